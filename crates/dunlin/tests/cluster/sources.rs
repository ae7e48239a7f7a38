//! Sources of imports that are no plain server: with TLS and users, and watched by sentinels.

use crate::data::{begin, client, first_database, job, until_in_step};
use crate::support::Machine;
use harness::client::{Client, ask, ok};
use harness::reply::{Protocol, Reply};
use harness::sentinel::{NAME, Sentinels};
use harness::server::{Options, Program, Server, free_port};
use harness::tls::Authority;
use harness::wait::eventually;
use std::fs;
use std::path::PathBuf;

fn reference() -> Program {
    Program::reference_or_skip().unwrap_or_else(Program::under_test)
}

/// Files of an authority, where a program sees them.
struct Files {
    outside: PathBuf,
    inside: PathBuf,
}

impl Files {
    fn of(program: &Program, authority: &Authority, names: &[&str]) -> Files {
        let base =
            if program.is_dunlin() { std::env::temp_dir() } else { program.root().join("tmp") };
        let outside = base.join(format!("import-files-{}", std::process::id()));
        fs::create_dir_all(&outside).expect("a folder");
        for name in names {
            fs::copy(authority.path(name), outside.join(name)).expect("it is copied");
        }
        Files { inside: program.inside(&outside), outside }
    }

    fn path(&self, name: &str) -> String {
        self.inside.join(name).display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is for the system to clean up.
        let _ = fs::remove_dir_all(&self.outside);
    }
}

/// Fills a source with keys whose names begin with this.
fn write(client: &mut Client, name: &str) {
    for number in 0..100 {
        ok(client, &*format!("SET {name}:{number} {number}"));
    }
}

#[test]
fn a_source_is_asked_with_tls_and_a_user() {
    let machine = Machine::first("import-tls", "a");
    let (port, _) = machine.create("there", "0");
    let authority = Authority::new("import-tls");
    authority.sign("source");
    let tls_port = free_port().expect("a port is free");
    let program = reference();
    let files = Files::of(&program, &authority, &["ca.crt", "source.crt", "source.key"]);
    let arguments = [
        ("--tls-port", tls_port.to_string()),
        ("--tls-cert-file", files.path("source.crt")),
        ("--tls-key-file", files.path("source.key")),
        ("--tls-ca-cert-file", files.path("ca.crt")),
        ("--tls-auth-clients", "no".to_owned()),
        ("--repl-diskless-sync-delay", "0".to_owned()),
    ];
    let arguments: Vec<&str> =
        arguments.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
    let source = Server::start(&program, Options::arguments(&arguments)).expect("it starts");
    let mut writer = source.client();
    write(&mut writer, "before");
    // The default user may nothing that an import needs.
    let user = "ACL SETUSER importer on >p@ss:word -@all +psync +replconf +ping +info +client +command \
                +function|dump +cluster +scan +hello +auth +role +config|get +dbsize";
    ok(&mut writer, user);
    let authorities = authority.path("ca.crt");
    let place = |login: &str, query: &str| format!("rediss://{login}localhost:{tls_port}?{query}");
    let trusting = format!("cacert={authorities}");
    let refusals = [
        (place("importer:wrong@", &trusting), "WRONGPASS"),
        (place("importer:p%40ss:word@", ""), "certificate"),
        (place("importer:p%40ss:word@", "cacert=/none"), "/none"),
        (format!("redis://importer:p%40ss:word@localhost:{tls_port}"), "localhost"),
    ];
    for (place, reason) in refusals {
        let (is_done, text) = machine.ask(&["import", &place, "there", "--dry-run"]);
        assert!(!is_done && text.contains(reason) && !text.contains("ss:word"), "{place}: {text}");
    }
    let right = place("importer:p%40ss:word@", &trusting);
    let (is_done, text) = machine.ask(&["import", &right, "there", "--dry-run"]);
    assert!(is_done && text.contains("Nothing is in the way"), "{text}");
    let import = begin(&machine, &["import", &right, "there"]);
    until_in_step(&machine, &import);
    write(&mut writer, "after");
    let (is_done, text) = machine.ask(&["finish", &import]);
    assert!(is_done && text.contains("done"), "{text}");
    assert_eq!(first_database(&mut client(port)), first_database(&mut writer));
    // Nothing that is kept or shown has the password.
    assert!(!machine.ask(&["jobs"]).1.contains("ss:word"));
}

#[test]
fn a_source_is_followed_through_a_failover_of_its_sentinels() {
    let machine = Machine::first("import-sentinel", "a");
    let (port, _) = machine.create("there", "0");
    let words = "--repl-diskless-sync-delay 0 --requirepass secret --masterauth secret";
    let words: Vec<&str> = words.split(' ').collect();
    let options = || Options::arguments(&words);
    let mut servers: Vec<Server> =
        (0..2).map(|_| Server::start(&reference(), options()).expect("it starts")).collect();
    let log_in = |server: &Server| {
        let mut client = server.client();
        ok(&mut client, "AUTH secret");
        client
    };
    let primary = servers[0].port();
    ok(&mut log_in(&servers[1]), &*format!("REPLICAOF 127.0.0.1 {primary}"));
    let lines = [
        "sentinel auth-pass NAME secret",
        "requirepass watching",
        "sentinel sentinel-pass watching",
    ];
    let sentinels = Sentinels::watch(&reference(), "127.0.0.1", primary, &lines);
    let sentinels = sentinels.expect("they start");
    let known = |number: usize| {
        let address = ([127, 0, 0, 1], sentinels.port(number)).into();
        let mut client = Client::connect(address).expect("it listens");
        ok(&mut client, "AUTH watching");
        client
    };
    let told = |number: usize, name: &str| {
        let reply = known(number).command(&["SENTINEL", "MASTER", NAME]).expect("it answers");
        let words: Vec<String> =
            reply.elements().unwrap_or_default().iter().map(Reply::shown).collect();
        words.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
    };
    eventually("sentinels know the replica", || {
        (0..3).all(|number| {
            told(number, "num-slaves").as_deref() == Some("1")
                && told(number, "num-other-sentinels").as_deref() == Some("2")
        })
    });
    write(&mut log_in(&servers[0]), "before");
    let hosts: Vec<String> =
        (0..3).map(|number| format!("127.0.0.1:{}", sentinels.port(number))).collect();
    let hosts = hosts.join(",");
    let place = |login: &str, name: &str, query: &str| {
        format!("redis-sentinel://{login}{hosts}/{name}?{query}")
    };
    refuse_sentinels(&machine, place);
    let right = place(":secret@", NAME, "sentinel-password=watching");
    let import = begin(&machine, &["import", &right, "there"]);
    until_in_step(&machine, &import);
    // What the replica has, is not lost with the primary.
    let mut writer = log_in(&servers[0]);
    write(&mut writer, "while");
    eventually("the replica has it", || ask(&mut writer, "WAIT 1 1000") != Reply::Integer(0));
    servers[0].kill().expect("it runs");
    sentinels.until_primary_is_not(primary);
    eventually("the replica is promoted", || {
        // A sentinel closes all connections where it changes a role.
        let Ok(mut client) = servers[1].connect(Protocol::Resp2) else { return false };
        let replies = ["AUTH secret", "ROLE"].map(|request| {
            let words: Vec<&str> = request.split(' ').collect();
            client.command(&words).ok()
        });
        let role = replies[1].as_ref().and_then(Reply::elements);
        role.is_some_and(|it| it[0].shown() == "master")
    });
    write(&mut log_in(&servers[1]), "after");
    eventually("the new primary is followed", || {
        ask(&mut client(port), "GET after:99") == Reply::Bulk(b"99".to_vec())
    });
    until_in_step(&machine, &import);
    let (is_done, text) = machine.ask(&["finish", &import]);
    assert!(is_done && text.contains("done"), "{text}");
    assert_eq!(first_database(&mut client(port)), first_database(&mut log_in(&servers[1])));
}

/// Passwords and names that are wrong or missing.
fn refuse_sentinels(machine: &Machine, place: impl Fn(&str, &str, &str) -> String) {
    let refusals = [
        (place(":secret@", NAME, ""), "NOAUTH"),
        (place(":secret@", "unknown", "sentinel-password=watching"), "unknown"),
        (place("", NAME, "sentinel-password=watching"), "NOAUTH"),
    ];
    for (place, reason) in refusals {
        let (is_done, text) = machine.ask(&["import", &place, "there", "--dry-run"]);
        assert!(!is_done && text.contains(reason), "{place}: {text}");
    }
}

/// The value of a key in a database.
fn get(client: &mut Client, db: u32, key: &str) -> Reply {
    ok(client, &*format!("SELECT {db}"));
    ask(client, &*format!("GET {key}"))
}

fn is(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

#[test]
fn keys_of_databases_that_the_target_lacks_are_nowhere() {
    let machine = Machine::first("import-databases", "a");
    let (one, _) = machine.create("one", "0");
    let (four, _) = machine.create_with("four", &["--databases", "4"]);
    let options = Options::arguments(&["--repl-diskless-sync-delay", "0", "--databases", "16"]);
    let source = Server::start(&reference(), options).expect("it starts");
    let mut writer = source.client();
    ok(&mut writer, "SET k zero");
    ok(&mut writer, "SELECT 3");
    ok(&mut writer, "SET k three");
    ok(&mut client(one), "SET own 1");
    let place = format!("redis://127.0.0.1:{}", source.port());
    for words in [&["--replace"][..], &["--replace", "--dry-run"]] {
        let (is_done, text) = machine.ask(&[&["import", &place, "one"][..], words].concat());
        let says = ["database 3", "'one' has 1 database:", "create-db --databases 4"];
        assert!(!is_done && says.iter().all(|it| text.contains(it)), "{text}");
    }
    assert_eq!(get(&mut client(one), 0, "own"), is("1"), "nothing was removed");

    let import = begin(&machine, &["import", &place, "four"]);
    until_in_step(&machine, &import);
    for db in [0, 3, 1, 3, 0] {
        ok(&mut writer, &*format!("SELECT {db}"));
        ok(&mut writer, &*format!("SET later {db}"));
        ok(&mut writer, "SELECT 3");
        ok(&mut writer, &*format!("SET latest:{db} 3"));
    }
    until_in_step(&machine, &import);
    let mut reader = client(four);
    eventually("the last write is there", || get(&mut reader, 0, "later") == is("0"));
    eventually("the last write is there", || get(&mut reader, 3, "latest:0") == is("3"));
    for (db, text) in [(0, "zero"), (3, "three")] {
        assert_eq!(get(&mut reader, db, "k"), is(text), "{db}");
    }
    assert_eq!(get(&mut reader, 3, "later"), is("3"));
    assert_eq!(get(&mut reader, 1, "later"), is("1"));

    // The way back to a server with fewer databases.
    let options = Options::arguments(&["--databases", "2"]);
    let narrow = Server::start(&reference(), options).expect("it starts");
    ok(&mut narrow.client(), "SET own 1");
    let back = format!("redis://127.0.0.1:{}", narrow.port());
    let (is_done, text) = machine.ask(&["export", "four", &back, "--replace"]);
    assert!(!is_done && text.contains("keys in database 3"), "{text}");
    assert_eq!(get(&mut narrow.client(), 0, "own"), is("1"), "nothing was removed");

    // A database that is new while the source is followed.
    ok(&mut writer, "SELECT 9");
    ok(&mut writer, "SET k nine");
    ok(&mut writer, "SET lost 9");
    eventually("the import has ended", || job(&machine, &import).0 == "failed");
    let (_, text) = job(&machine, &import);
    assert!(text.contains("keys in database 9") && text.contains("at least 10"), "{text}");
    for db in 0..4 {
        assert_eq!(get(&mut reader, db, "lost"), Reply::Nil, "{db}");
    }
    assert_eq!(get(&mut reader, 0, "k"), is("zero"));
}

#[test]
fn a_source_gives_no_orders() {
    let machine = Machine::first("import-orders", "a");
    let (port, _) = machine.create("there", "0");
    let options = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    let source = Server::start(&Program::under_test(), Options::arguments(&options));
    let source = source.expect("it starts");
    let mut writer = source.client();
    let place = format!("redis://127.0.0.1:{}", source.port());
    // These are no data, and no order either.
    let dropped = ["SCRIPT LOAD x", "SCRIPT FLUSH", "PUBLISH a b"];
    let refused = [
        ("ACL SETUSER intruder on nopass ~* +@all", "ACL SETUSER"),
        ("EVAL redis.call('set','by-script','1') 0", "EVAL"),
        ("FCALL f 0", "FCALL"),
        ("DEBUG SLEEP 0", "DEBUG"),
        ("CONFIG SET maxclients 17", "CONFIG SET"),
        ("MIGRATE 127.0.0.1 1 k 0 1000", "MIGRATE"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF"),
        ("SHUTDOWN NOSAVE", "SHUTDOWN"),
        ("GET before", "GET"),
    ];
    for (order, name) in refused {
        let import = begin(&machine, &["import", &place, "there", "--replace"]);
        until_in_step(&machine, &import);
        for harmless in dropped {
            ok(&mut writer, &*format!("DEBUG REPLICATE {harmless}"));
        }
        ok(&mut writer, &["SET", "before", name]);
        let mut reader = client(port);
        eventually("what comes before is there", || get(&mut reader, 0, "before") == is(name));
        ok(&mut writer, &*format!("DEBUG REPLICATE {order}"));
        eventually("the import has ended", || job(&machine, &import).0 == "failed");
        let (_, text) = job(&machine, &import);
        assert!(text.contains(&format!("the source sends {name}, ")), "{order}: {text}");
        assert_eq!(get(&mut reader, 0, "by-script"), Reply::Nil);
    }
    // Servers of a cluster send this one, and it is a write.
    let import = begin(&machine, &["import", &place, "there", "--replace"]);
    until_in_step(&machine, &import);
    ok(&mut writer, "SET {before}too 1");
    ok(&mut writer, "SET kept 1");
    let mut reader = client(port);
    // The slot of `before`.
    ok(&mut writer, "DEBUG REPLICATE CLUSTER FLUSHSLOT 13818");
    eventually("the slot is empty", || get(&mut reader, 0, "before") == Reply::Nil);
    assert_eq!(get(&mut reader, 0, "{before}too"), Reply::Nil);
    assert_eq!(get(&mut reader, 0, "kept"), is("1"));
    let users = ask(&mut client(port), "ACL USERS");
    let names: Vec<String> =
        users.elements().unwrap_or_default().iter().map(Reply::shown).collect();
    assert!(names.contains(&"default".to_owned()), "{names:?}");
    assert!(!names.contains(&"intruder".to_owned()), "{names:?}");
}
