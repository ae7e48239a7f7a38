//! Stock sentinels manage Dunlins, alone and mixed with the reference server.
//!
//! By default two fail-overs by the reference's sentinels; with `DUNLIN_SENTINEL_LONG=1` (`./test
//! sentinel`) everything, by those of Valkey 9.1, Redis 7.0 and Redis 8.

use harness::client::{Client, ask, is_gone, ok};
use harness::environment::variable;
use harness::info::find;
use harness::replicas::{compare, is_linked, write};
use harness::reply::{Protocol, Reply};
use harness::rng::Rng;
use harness::sentinel::{NAME, Sentinels, hang};
use harness::server::{Options, Program, Server, free_port, signal};
use harness::tls::Authority;
use harness::wait::eventually;
use std::fs;
use std::time::Duration;

fn reference() -> Program {
    Program::reference().expect("there is a reference")
}

fn is_long() -> bool {
    variable("DUNLIN_SENTINEL_LONG").is_some_and(|number| number != 0)
}

/// Runs a scenario with the sentinels of every server; with those of the reference alone in a short
/// run, if it is part of that at all.
fn with_sentinels(is_short: bool, scenario: impl Fn(&Program)) {
    if is_short || is_long() {
        scenario(&reference());
    }
    if is_long() {
        scenario(&Program::redis_7().expect("there is Redis 7"));
        scenario(&reference().beside("redis-server"));
    }
}

/// Three servers, the first of them the primary, and three sentinels that know them.
struct Fleet {
    servers: Vec<Server>,
    sentinels: Sentinels,
    /// How clients log in, if they have to.
    login: Vec<String>,
}

impl Fleet {
    fn dunlins(sentinel: &Program) -> Fleet {
        Fleet::start(sentinel, &[(); 3].map(|()| Program::under_test()), "", &[], &[])
    }

    /// `config` is in the files of the servers, `lines` in those of the sentinels.
    fn start(
        sentinel: &Program,
        programs: &[Program],
        config: &str,
        lines: &[&str],
        login: &[&str],
    ) -> Fleet {
        Fleet::known_as("127.0.0.1", sentinel, programs, config, lines, login)
    }

    /// The same with this name or address of the host.
    fn known_as(
        host: &str,
        sentinel: &Program,
        programs: &[Program],
        config: &str,
        lines: &[&str],
        login: &[&str],
    ) -> Fleet {
        let config = format!("repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n{config}");
        let start = |program: &Program| {
            let options = Options { config: Some(config.clone()), ..Options::default() };
            Server::start(program, options).expect("it starts")
        };
        let servers: Vec<Server> = programs.iter().map(start).collect();
        let port = servers[0].port();
        for replica in &servers[1..] {
            let mut client = log_in(replica, login);
            ok(&mut client, &["REPLICAOF", host, &port.to_string()]);
            eventually("the link is up", || is_linked(&mut client));
        }
        let sentinels = Sentinels::watch(sentinel, host, port, lines).expect("they start");
        let login = login.iter().map(|word| (*word).to_owned()).collect();
        let fleet = Fleet { servers, sentinels, login };
        fleet.sentinels.until_they_know(fleet.servers.len() - 1);
        fleet
    }

    fn client(&self, server: usize) -> Client {
        let words: Vec<&str> = self.login.iter().map(String::as_str).collect();
        log_in(&self.servers[server], &words)
    }

    /// The server that listens there.
    fn at(&self, port: u16) -> usize {
        let found = self.servers.iter().position(|server| server.port() == port);
        found.unwrap_or_else(|| panic!("no server of ours has port {port}"))
    }

    /// Waits until this one is the primary, takes writes, and all others that run follow it.
    fn until_led_by(&self, primary: usize, others: &[usize]) {
        eventually("it is promoted", || self.says(primary, "role").as_deref() == Some("master"));
        ok(&mut self.client(primary), &["SET", "promoted", &primary.to_string()]);
        let port = self.servers[primary].port().to_string();
        for &other in others {
            eventually("the others follow", || {
                self.says(other, "master_port").as_ref() == Some(&port)
                    && self.says(other, "master_link_status").as_deref() == Some("up")
            });
        }
    }

    /// What a server says of its role; `None` if it does not, or if a sentinel closes the
    /// connection, as it does with all clients where it changes a role.
    fn says(&self, server: usize, name: &str) -> Option<String> {
        let mut client = self.servers[server].connect(Protocol::Resp2).ok()?;
        if !self.login.is_empty() {
            client.command(&self.login).ok()?;
        }
        find(&client.command(&["INFO", "replication"]).ok()?, name)
    }

    fn compare(&self, primary: usize, others: &[usize]) {
        for &other in others {
            compare(&self.servers[primary], &self.servers[other]);
        }
    }

    /// Writes that all replicas have.
    fn fill(&self, primary: usize, seed: u64) {
        let (mut client, mut rng) = (self.client(primary), Rng::new(seed));
        (0..500).for_each(|_| write(&mut client, &mut rng));
        let replicas = ask(&mut client, &["INFO", "replication"]);
        let replicas = find(&replicas, "connected_slaves").expect("it says so");
        let copies = ask(&mut client, &["WAIT", &replicas, "25000"]);
        assert!(copies.integer().is_some_and(|copies| copies >= 1), "{copies:?} of {replicas}");
    }
}

fn log_in(server: &Server, words: &[&str]) -> Client {
    let mut client = server.client();
    if !words.is_empty() {
        ok(&mut client, words);
    }
    client
}

/// The other two of three.
fn without(one: usize) -> Vec<usize> {
    (0..3).filter(|&server| server != one).collect()
}

fn survives_a_kill(sentinel: &Program) {
    let mut fleet = Fleet::dunlins(sentinel);
    fleet.fill(0, 1);
    let old = fleet.servers[0].port();
    fleet.servers[0].kill().expect("it runs");
    let new = fleet.at(fleet.sentinels.until_primary_is_not(old));
    let third = 3 - new;
    fleet.until_led_by(new, &[third]);
    fleet.sentinels.until_quiet();
    fleet.fill(new, 2);
    fleet.compare(new, &[third]);
    // The promotion is in the file of the new primary, the change of primary in that of the other.
    let file = |server: &Server| {
        fs::read_to_string(server.directory().join("server.conf")).expect("it has a file")
    };
    assert!(!file(&fleet.servers[new]).contains("\nreplicaof"), "{}", file(&fleet.servers[new]));
    let line = format!("\nreplicaof 127.0.0.1 {}\n", fleet.servers[new].port());
    assert!(file(&fleet.servers[third]).contains(&line), "{}", file(&fleet.servers[third]));
    // The old primary comes back, and is told.
    fleet.servers[0].start_again().expect("it starts");
    assert_eq!(fleet.servers[0].port(), old, "its port is still its own");
    fleet.until_led_by(new, &[0, third]);
    fleet.fill(new, 3);
    fleet.compare(new, &[0, third]);
    eventually("its file says so", || file(&fleet.servers[0]).contains(&line));
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    with_sentinels(true, survives_a_kill);
}

/// A primary that hangs is replaced; its clients are closed when it comes back.
fn survives_a_hang(sentinel: &Program) {
    let fleet = Fleet::dunlins(sentinel);
    fleet.fill(0, 4);
    let mut client = fleet.client(0);
    let mut listener = fleet.client(0);
    ask(&mut listener, &["SUBSCRIBE", "news"]);
    hang(&fleet.servers[0], true).expect("it runs");
    let new = fleet.at(fleet.sentinels.until_primary_is_not(fleet.servers[0].port()));
    fleet.until_led_by(new, &[3 - new]);
    fleet.fill(new, 5);
    hang(&fleet.servers[0], false).expect("it runs");
    fleet.until_led_by(new, &without(new));
    until_closed(&mut client);
    until_closed(&mut listener);
    fleet.compare(new, &without(new));
}

/// What a client of before sees where sentinels have changed the role.
fn until_closed(client: &mut Client) {
    eventually("the client is closed", || match client.command(&["PING"]) {
        Err(error) => {
            assert!(is_gone(&error), "{error}");
            true
        }
        Ok(_) => false,
    });
}

#[test]
fn a_primary_that_hangs_is_replaced() {
    with_sentinels(false, survives_a_hang);
}

/// A planned fail-over: clients are closed, a replica of priority 0 is not chosen.
fn hands_over(sentinel: &Program) {
    let fleet = Fleet::dunlins(sentinel);
    fleet.fill(0, 6);
    ok(&mut fleet.client(1), &["CONFIG", "SET", "replica-priority", "0"]);
    for sentinel in 0..3 {
        eventually("the priority is known", || {
            fleet.sentinels.of_replicas(sentinel, "slave-priority").contains(&"0".to_owned())
        });
    }
    let mut client = fleet.client(0);
    ok_of(&fleet.sentinels.ask(0, &["SENTINEL", "FAILOVER", NAME]));
    assert_eq!(fleet.at(fleet.sentinels.until_primary_is_not(fleet.servers[0].port())), 2);
    fleet.until_led_by(2, &[0, 1]);
    until_closed(&mut client);
    fleet.sentinels.until_quiet();
    fleet.fill(2, 7);
    fleet.compare(2, &[0, 1]);
}

fn ok_of(reply: &Reply) {
    assert!(!reply.is_error(), "{reply:?}");
}

#[test]
fn a_planned_failover_takes_the_replica_that_is_allowed() {
    with_sentinels(true, hands_over);
}

/// Users with the rights that Redis documents for sentinels and replicas, and no others.
fn works_with_users(sentinel: &Program) {
    let config = "user default off\n\
        user admin on >secret ~* &* +@all\n\
        user watcher on >watch allchannels +multi +slaveof +ping +exec +subscribe +config|rewrite +role \
        +publish +info +client|setname +client|kill +script|kill\n\
        user copier on >copy +psync +replconf +ping\n\
        masteruser copier\nmasterauth copy\n";
    let programs = [(); 3].map(|()| Program::under_test());
    let lines = ["sentinel auth-user NAME watcher", "sentinel auth-pass NAME watch"];
    let login = ["AUTH", "admin", "secret"];
    let mut fleet = Fleet::start(sentinel, &programs, config, &lines, &login);
    fleet.fill(0, 8);
    let old = fleet.servers[0].port();
    ok_of(&fleet.sentinels.ask(0, &["SENTINEL", "FAILOVER", NAME]));
    let new = fleet.at(fleet.sentinels.until_primary_is_not(old));
    fleet.until_led_by(new, &without(new));
    fleet.sentinels.until_quiet();
    fleet.fill(new, 9);
    hang(&fleet.servers[new], true).expect("it runs");
    let next = fleet.at(fleet.sentinels.until_primary_is_not(fleet.servers[new].port()));
    hang(&fleet.servers[new], false).expect("it runs");
    fleet.until_led_by(next, &without(next));
    fleet.servers.clear();
}

#[test]
fn sentinels_and_replicas_log_in() {
    with_sentinels(false, works_with_users);
}

/// Servers and sentinels know each other by a name instead of an address.
fn works_with_names(sentinel: &Program) {
    let config = "replica-announce-ip localhost\n";
    let lines = ["sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"];
    let programs = [(); 3].map(|()| Program::under_test());
    let fleet = Fleet::known_as("localhost", sentinel, &programs, config, &lines, &[]);
    fleet.fill(0, 30);
    let named = ask(&mut fleet.client(0), &["INFO", "replication"]).shown();
    assert_eq!(named.matches("ip=localhost,").count(), 2, "{named}");
    let role = ask(&mut fleet.client(0), &["ROLE"]);
    let replicas = role.elements().expect("words")[2].elements().expect("replicas").to_vec();
    assert_eq!(replicas[0].elements().expect("words")[0].shown(), "localhost");
    for sentinel in 0..3 {
        assert_eq!(fleet.sentinels.host(sentinel), "localhost");
        let names = fleet.sentinels.of_replicas(sentinel, "ip");
        assert_eq!(names, ["localhost", "localhost"]);
    }
    hang(&fleet.servers[0], true).expect("it runs");
    let new = fleet.at(fleet.sentinels.until_primary_is_not(fleet.servers[0].port()));
    assert_eq!(fleet.sentinels.host(0), "localhost");
    hang(&fleet.servers[0], false).expect("it runs");
    fleet.until_led_by(new, &without(new));
    assert_eq!(fleet.says(0, "master_host").as_deref(), Some("localhost"));
    fleet.sentinels.until_quiet();
    fleet.fill(new, 31);
    fleet.compare(new, &without(new));
}

#[test]
fn servers_have_names() {
    with_sentinels(false, works_with_names);
}

/// Sentinels and replicas talk to the servers by TLS alone.
fn works_by_tls(sentinel: &Program) {
    let authority = Authority::new("sentinel");
    authority.sign("server");
    // The sentinels see another root, and so a copy of the files; servers and sentinels name them
    // alike.
    let names = ["ca.crt", "server.crt", "server.key"];
    let inside = sentinel.root().join(authority.path("").trim_start_matches('/'));
    fs::create_dir_all(&inside).expect("a folder");
    for name in names {
        fs::copy(authority.path(name), inside.join(name)).expect("it is copied");
    }
    let path = |name| authority.path(name);
    let files = format!(
        "tls-ca-cert-file {}\ntls-cert-file {}\ntls-key-file {}\ntls-replication yes\n",
        path("ca.crt"),
        path("server.crt"),
        path("server.key")
    );
    // The sentinels talk to each other by TLS, too.
    let lines: Vec<&str> = files.lines().chain(["tls-port FREE_PORT"]).collect();
    let ports = [(); 3].map(|()| free_port().expect("a port"));
    let configs = ports.map(|port| {
        format!("{files}tls-port {port}\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n")
    });
    let servers = configs.map(|config| {
        let options = Options { config: Some(config), ..Options::default() };
        Server::start(&Program::under_test(), options).expect("it starts")
    });
    for server in &servers[1..] {
        let mut client = server.client();
        ok(&mut client, &["REPLICAOF", "127.0.0.1", &ports[0].to_string()]);
        eventually("the link is up", || is_linked(&mut client));
    }
    let sentinels = Sentinels::start(sentinel, ports[0], &lines).expect("they start");
    sentinels.until_they_know(2);
    let (mut client, mut rng) = (servers[0].client(), Rng::new(32));
    (0..500).for_each(|_| write(&mut client, &mut rng));
    assert_eq!(ask(&mut client, &["WAIT", "2", "9000"]).integer(), Some(2));
    hang(&servers[0], true).expect("it runs");
    let port = sentinels.until_primary_is_not(ports[0]);
    let new = ports.iter().position(|one| *one == port).expect("one of ours");
    hang(&servers[0], false).expect("it runs");
    for other in without(new) {
        let reached = || {
            let mut client = servers[other].connect(Protocol::Resp2).ok()?;
            let said = client.command(&["INFO", "replication"]).ok()?;
            Some((find(&said, "master_port")?, find(&said, "master_link_status")?))
        };
        eventually("it follows", || reached() == Some((port.to_string(), "up".to_owned())));
        compare(&servers[new], &servers[other]);
    }
    // What is left is for the system to clean up.
    let _ = fs::remove_dir_all(inside);
}

#[test]
fn all_links_may_be_encrypted() {
    with_sentinels(false, works_by_tls);
}

/// A planned fail-over for which the sentinel asks the primary itself: nothing that was
/// acknowledged is lost.
fn hands_over_coordinated() {
    let fleet = Fleet::dunlins(&reference());
    fleet.fill(0, 20);
    let mut writer = fleet.client(0);
    let counted = std::thread::scope(|scope| {
        let counting = scope.spawn(move || {
            let mut acknowledged = 0;
            // Until it is refused, or closed.
            while let Ok(Reply::Integer(number)) = writer.command(&["INCR", "counter"]) {
                acknowledged = number;
            }
            acknowledged
        });
        ok_of(&fleet.sentinels.ask(0, &["SENTINEL", "FAILOVER", NAME, "COORDINATED"]));
        counting.join().expect("it counts")
    });
    let new = fleet.at(fleet.sentinels.until_primary_is_not(fleet.servers[0].port()));
    fleet.until_led_by(new, &without(new));
    let value = ask(&mut fleet.client(new), &["GET", "counter"]);
    assert_eq!(value.shown(), counted.to_string());
    fleet.sentinels.until_quiet();
    fleet.fill(new, 21);
    fleet.compare(new, &without(new));
}

#[test]
fn a_coordinated_failover_loses_nothing() {
    if is_long() {
        hands_over_coordinated();
    }
}

/// Runs `dunlin bench` with these arguments and ones that find the primary; its status and what it
/// has said.
fn bench(fleet: &Fleet, line: &str) -> (bool, String) {
    let ports = [0, 1, 2].map(|number| format!("127.0.0.1:{}", fleet.sentinels.port(number)));
    let mut command = Program::under_test().subcommand("bench");
    command.args(line.split(' ')).args(["--sentinel", &ports.join(",")]);
    let output = command.args(["--sentinel-name", NAME]).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// A ledger is kept across the death of the primary. With a majority for each reply nothing in it
/// is lost.
fn loses_nothing_with_a_quorum(sentinel: &Program) {
    let config = "commit-mode quorum\ncommit-quorum 1\n";
    let programs = [(); 3].map(|()| Program::under_test());
    let mut fleet = Fleet::start(sentinel, &programs, config, &[], &[]);
    let ledger = std::env::temp_dir().join(format!("dunlin-sentinel-{}", std::process::id()));
    let path = ledger.display().to_string();
    let old = fleet.servers[0].port();
    let new = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            bench(
                &fleet,
                &format!("--ledger {path} --key-maximum 5000 --ratio 1:0 -c 8 --duration 10"),
            )
        });
        let mut client = fleet.client(0);
        eventually("it writes", || {
            ask(&mut client, &["DBSIZE"]).integer().is_some_and(|keys| keys > 1000)
        });
        signal(fleet.servers[0].process_id(), "KILL").expect("it runs");
        let new = fleet.at(fleet.sentinels.until_primary_is_not(old));
        let (_, text) = run.join().expect("it ends");
        assert!(text.contains("lost"), "connections were lost: {text}");
        new
    });
    fleet.until_led_by(new, &[3 - new]);
    let (is_clean, text) = bench(&fleet, &format!("audit {path}"));
    assert!(is_clean, "{text}");
    // It went on with the new primary, nearly to its end.
    let lines = fs::read_to_string(&ledger).expect("there is a ledger");
    let times = lines.lines().skip(1).filter_map(|line| line.rsplit(' ').next()?.parse().ok());
    assert!(times.max().is_some_and(|last_us: u64| last_us > 8_000_000), "{text}");
    fs::remove_file(ledger).expect("it is ours");
    fleet.servers.clear();
}

#[test]
fn no_write_that_a_quorum_has_confirmed_is_lost_by_a_kill() {
    with_sentinels(false, loses_nothing_with_a_quorum);
}

/// A fleet with a Valkey in it: either kind is promoted, and followed by the other.
fn works_mixed(sentinel: &Program) {
    let programs = [Program::under_test(), reference(), Program::under_test()];
    let fleet = Fleet::start(sentinel, &programs, "", &[], &[]);
    let mut primary = 0;
    for (round, next) in [1, 2, 1, 0].into_iter().enumerate() {
        fleet.fill(primary, 10 + round as u64);
        for server in without(primary) {
            let priority = if server == next { "1" } else { "100" };
            ok(&mut fleet.client(server), &["CONFIG", "SET", "replica-priority", priority]);
            let port = fleet.servers[server].port().to_string();
            for sentinel in 0..3 {
                eventually("the priority is known", || {
                    let ports = fleet.sentinels.of_replicas(sentinel, "port");
                    let known = fleet.sentinels.of_replicas(sentinel, "slave-priority");
                    let at = ports.iter().position(|one| *one == port);
                    at.and_then(|at| known.get(at)).is_some_and(|known| known == priority)
                });
            }
        }
        ok_of(&fleet.sentinels.ask(0, &["SENTINEL", "FAILOVER", NAME]));
        let old = fleet.servers[primary].port();
        primary = fleet.at(fleet.sentinels.until_primary_is_not(old));
        assert_eq!(primary, next);
        fleet.until_led_by(primary, &without(primary));
        fleet.sentinels.until_quiet();
        fleet.sentinels.until_they_know(2);
        fleet.compare(primary, &without(primary));
    }
    let mut client = fleet.client(2);
    assert!(is_linked(&mut client));
}

#[test]
fn a_mixed_fleet_hands_its_role_around() {
    with_sentinels(false, works_mixed);
}

/// Begins a script that reads a key and does not end, once it is known which keys it touches.
fn begin_endless(fleet: &Fleet, server: usize) -> Client {
    const ENDLESS: &str = "redis.call('GET', KEYS[1]) while #ARGV == 0 do end return 1";
    let mut client = fleet.client(server);
    ok(&mut client, &["EVAL_RO", ENDLESS, "1", "key", "ends"]);
    client.send(&["EVAL_RO", ENDLESS, "1", "key"]).expect("it is sent");
    client
}

fn until_killed(mut running: Client) {
    let reply = running.reply().expect("a reply, for the server goes on");
    let text = String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned();
    let is_ended = text.contains("Script killed by user") || text.starts_with("UNBLOCKED");
    assert!(is_ended, "{reply:?}");
}

#[test]
fn an_endless_script_is_killed() {
    with_sentinels(true, |sentinel| {
        let fleet = Fleet::start(
            sentinel,
            &[(); 2].map(|()| Program::under_test()),
            "busy-reply-threshold 100\nio-threads 2",
            &[],
            &[],
        );
        // They end the script of a server that they take for dead.
        fleet.sentinels.give_up_after(Duration::from_secs(1));
        until_killed(begin_endless(&fleet, 1));
        until_killed(begin_endless(&fleet, 0));
        fleet.sentinels.until_quiet();
    });
}
