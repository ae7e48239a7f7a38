//! A real Valkey Cluster of three shards that is resharded and changes its primaries while clients
//! write through the proxy: no update is lost or made twice, no reply is another's, and no client
//! sees an error.
//!
//! `./test proxy-cluster [ROUNDS]` does it more often, and kills primaries, too.

use crate::support::{Proxy, text};
use harness::client::{Client, ask, patience};
use harness::environment::variable;
use harness::reply::{Protocol, Reply};
use harness::rng::Rng;
use harness::server::{Options, Program, Server, free_port};
use harness::wait::SetAtEnd;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const SHARDS: usize = 3;
const WRITERS: usize = 4;
/// Keys of one writer, all over the slots.
const KEYS: usize = 60;
const PIPELINE: usize = 6;
/// Slots that move at once.
const SLOTS: &str = "300";

/// No node of a busy machine seems dead.
const CALM: &str = "60000";
/// A node that dies is noticed soon.
const NERVOUS: &str = "3000";

/// Waits until something is so. Six nodes and their clients may share a core.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + 12 * patience();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Six nodes: three primaries, and a replica of each.
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<Server>,
}

/// One line of CLUSTER NODES.
struct Node {
    id: String,
    port: u16,
    is_primary: bool,
    of: String,
    slots: usize,
}

impl Cluster {
    /// A cluster of the reference's servers; nothing where it cannot be installed.
    pub fn start(node_timeout: &str) -> Option<Cluster> {
        let valkey = Program::reference_or_skip()?;
        let start = |_| {
            let arguments = ["--cluster-enabled", "yes", "--cluster-node-timeout", node_timeout];
            Server::start(&valkey, Options::arguments(&arguments)).expect("a node starts")
        };
        let cluster = Cluster { nodes: (0..2 * SHARDS).map(start).collect() };
        let addresses = cluster.nodes.iter().map(|node| node.address().to_string());
        let mut words = vec!["create".to_owned()];
        words.extend(addresses);
        words.extend(["--cluster-replicas".to_owned(), "1".to_owned()]);
        cluster.manage(&words);
        cluster.agrees();
        Some(cluster)
    }

    /// `valkey-cli --cluster …`
    fn manage(&self, words: &[String]) {
        let mut command = self.nodes[0].program().beside("valkey-cli").command();
        let output = command.arg("--cluster").args(words).arg("--cluster-yes").output();
        let output = output.expect("valkey-cli runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{words:?}: {said}");
    }

    /// A connection to a node that answers.
    fn client(&self) -> Client {
        let connect = |node: &Server| node.connect(Protocol::Resp2).ok();
        self.nodes.iter().find_map(connect).expect("a node answers")
    }

    /// What a node knows of all.
    fn view(client: &mut Client) -> Vec<Node> {
        let all = text(&ask(client, &["CLUSTER", "NODES"]));
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let port = words[1].split(['@', ',']).next()?.rsplit(':').next()?.parse().ok()?;
            let count = |range: &&str| match range.split_once('-') {
                _ if range.starts_with('[') => 0,
                Some((first, last)) => {
                    last.parse::<usize>().unwrap_or(0) + 1 - first.parse::<usize>().unwrap_or(0)
                }
                None => 1,
            };
            Some(Node {
                id: words[0].to_owned(),
                port,
                is_primary: words[2].contains("master") && !words[2].contains("fail"),
                of: words[3].to_owned(),
                slots: words[8..].iter().map(count).sum(),
            })
        };
        all.lines().filter_map(line).collect()
    }

    /// Waits until all nodes that run know the same owners of all slots, and each primary has a
    /// replica.
    fn agrees(&self) {
        until("the nodes agree", || {
            let views = self.nodes.iter().filter_map(|node| node.connect(Protocol::Resp2).ok());
            let mut views = views.map(|mut client| {
                let info = text(&ask(&mut client, &["CLUSTER", "INFO"]));
                let view = Cluster::view(&mut client);
                let primaries = view.iter().filter(|node| node.is_primary && node.slots > 0);
                let mut slots: Vec<_> =
                    primaries.map(|node| (node.id.clone(), node.slots)).collect();
                slots.sort();
                let has_copy = |of: &str| view.iter().any(|node| node.of == of);
                let is_whole = slots.len() == SHARDS && slots.iter().all(|(id, _)| has_copy(id));
                (is_whole && info.contains("cluster_state:ok")).then_some(slots)
            });
            let first = views.next().flatten();
            first.is_some() && views.all(|view| view == first)
        });
    }

    /// Moves slots from one primary to another.
    fn reshard(&self, rng: &mut Rng) {
        let mut client = self.client();
        let mut view = Cluster::view(&mut client);
        view.retain(|node| node.is_primary && node.slots > 0);
        let from = view.swap_remove(rng.below(view.len()));
        let to = view.swap_remove(rng.below(view.len()));
        let address = format!("127.0.0.1:{}", from.port);
        let words = ["reshard", &address, "--cluster-from", &from.id, "--cluster-to", &to.id];
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        words.extend(["--cluster-slots".to_owned(), SLOTS.to_owned()]);
        self.manage(&words);
        self.agrees();
    }

    /// Makes a replica the primary, with the consent of the one that it was.
    fn fail_over(&self, rng: &mut Rng) {
        let mut view = Cluster::view(&mut self.client());
        let replicas: Vec<_> = view.iter().filter(|node| node.of != "-").collect();
        let port = replicas[rng.below(replicas.len())].port;
        let node = self.nodes.iter().find(|node| node.port() == port).expect("it is ours");
        let mut client = node.client();
        let mut asked = Instant::now();
        ask(&mut client, &["CLUSTER", "FAILOVER"]);
        until("the replica takes over", || {
            // It gives up after five seconds.
            if asked.elapsed() > Duration::from_secs(6) {
                asked = Instant::now();
                ask(&mut client, &["CLUSTER", "FAILOVER"]);
            }
            view = Cluster::view(&mut client);
            view.iter().any(|node| node.port == port && node.is_primary)
        });
        self.agrees();
    }

    /// Kills a primary, waits until its replica has taken over, and starts it again.
    fn kill(&mut self, rng: &mut Rng) {
        let view = Cluster::view(&mut self.client());
        let primaries: Vec<_> = view.iter().filter(|node| node.is_primary).collect();
        let victim = primaries[rng.below(primaries.len())];
        let at = self.nodes.iter().position(|node| node.port() == victim.port);
        let at = at.expect("it is ours");
        self.nodes[at].kill().expect("it ends");
        until("a replica takes over", || {
            let view = Cluster::view(&mut self.client());
            view.iter().filter(|node| node.is_primary && node.slots > 0).count() == SHARDS
        });
        self.nodes[at].start_again().expect("it starts");
        self.agrees();
    }

    /// A proxy in front of it; `more` is added to the pool.
    pub fn proxy(&self, more: &str) -> Proxy {
        let port = free_port().expect("a port");
        let seeds: Vec<String> =
            self.nodes.iter().map(|node| format!("\"{}\"", node.address())).collect();
        let file = format!(
            "[pool.main]\nkind = \"cluster\"\nlisten = [\"127.0.0.1:{port}\"]\nseeds = [{}]\n{more}",
            seeds.join(", ")
        );
        let path = self.nodes[0].directory().join("proxy.toml");
        Proxy::run(&Program::under_test(), &path, port, &file)
    }
}

/// What the clients of a run share.
struct Run<'a> {
    proxy: &'a Proxy,
    done: AtomicUsize,
    is_over: AtomicBool,
    /// Whether servers are killed: then there are errors, and what was confirmed last may be lost.
    has_kills: bool,
}

impl Run<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    fn count(&self) {
        self.done.fetch_add(1, SeqCst);
    }

    /// Whether a reply is an error that a kill explains. Others are failures.
    #[track_caller]
    fn is_excused(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Error(_) if self.has_kills => true,
            Reply::Error(error) => panic!("{}", String::from_utf8_lossy(error)),
            _ => false,
        }
    }
}

/// Appends numbers to lists and reads single ones, in pipelines. Every list is to hold what was
/// confirmed.
fn append(run: &Run<'_>, number: usize) {
    let protocol = if number.is_multiple_of(2) { Protocol::Resp2 } else { Protocol::Resp3 };
    let mut client = run.proxy.client(protocol);
    let mut rng = Rng::new(number as u64);
    let kind = if run.has_kills { "killed" } else { "list" };
    let mut lists: HashMap<String, Vec<u64>> = HashMap::new();
    let mut next = 0;
    while !run.is_over() {
        let keys: Vec<String> =
            (0..PIPELINE).map(|_| format!("{kind}:{number}:{}", rng.below(KEYS))).collect();
        for key in &keys {
            next += 1;
            client.send(&["RPUSH", key, &next.to_string()]).expect("the proxy stays");
            client.send(&["LINDEX", key, "-1"]).expect("the proxy stays");
        }
        next -= keys.len() as u64;
        for key in &keys {
            next += 1;
            let (pushed, last) = (client.reply(), client.reply());
            let (pushed, last) = (pushed.expect("a reply"), last.expect("a reply"));
            let list = lists.entry(key.clone()).or_default();
            if run.is_excused(&pushed) {
                continue;
            }
            list.push(next);
            run.count();
            if !run.has_kills {
                assert_eq!(pushed, Reply::Integer(list.len() as i64), "{key}");
                assert_eq!(text(&last), next.to_string(), "{key}");
            }
        }
    }
    for (key, expected) in lists {
        let Reply::Array(found) = ask(&mut client, &["LRANGE", &key, "0", "-1"]) else {
            panic!("{key} is no list")
        };
        let found: Vec<u64> =
            found.iter().map(|item| text(item).parse().expect("a number")).collect();
        if run.has_kills {
            // Each at most once, and in order.
            assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{key}: {found:?}");
        } else {
            assert_eq!(found, expected, "{key}");
        }
    }
}

/// Sets and gets keys of many slots by one request.
fn set_many(run: &Run<'_>) {
    let mut client = run.proxy.client(Protocol::Resp2);
    let keys: Vec<String> = (0..20).map(|n| format!("many:{n}")).collect();
    let mut round = 0;
    while !run.is_over() {
        round += 1;
        let value = round.to_string();
        let mut set = vec!["MSET"];
        keys.iter().for_each(|key| set.extend([&key[..], &value[..]]));
        let is_set = !run.is_excused(&ask(&mut client, &set[..]));
        let mut get = vec!["MGET"];
        get.extend(keys.iter().map(String::as_str));
        let reply = ask(&mut client, &get[..]);
        if run.is_excused(&reply) || run.has_kills || !is_set {
            continue;
        }
        let Reply::Array(values) = reply else { panic!("no array") };
        assert!(values.iter().all(|found| text(found) == value), "{values:?}, not {value}");
        run.count();
    }
}

/// Counts two keys up in transactions; they are always equal.
fn transact(run: &Run<'_>, number: usize) {
    let mut client = run.proxy.client(Protocol::Resp2);
    let mut rng = Rng::new(number as u64);
    let mut counts: HashMap<String, i64> = HashMap::new();
    let kind = if run.has_kills { "killed-both" } else { "both" };
    while !run.is_over() {
        let key = format!("{{{kind}:{number}:{}}}", rng.below(KEYS));
        let (one, two) = (format!("{key}1"), format!("{key}2"));
        let requests: [&[&str]; 5] =
            [&["MULTI"], &["INCR", &one], &["PING"], &["INCR", &two], &["EXEC"]];
        for request in requests {
            client.send(request).expect("the proxy stays");
        }
        let replies: Vec<Reply> =
            requests.iter().map(|_| client.reply().expect("a reply")).collect();
        if replies.iter().any(|reply| run.is_excused(reply)) {
            continue;
        }
        let Reply::Array(results) = &replies[4] else { panic!("{replies:?}") };
        assert_eq!(results[0], results[2]);
        run.count();
        let count = counts.entry(key).or_default();
        *count += 1;
        if !run.has_kills {
            assert_eq!(results[0], Reply::Integer(*count));
        }
    }
}

/// Adds to keys that others add to as well, by WATCH. Returns how often it did.
fn watch(run: &Run<'_>, number: usize) -> usize {
    let mut client = run.proxy.client(Protocol::Resp3);
    let mut rng = Rng::new(number as u64);
    let kind = if run.has_kills { "killed-watched" } else { "watched" };
    let mut added = 0;
    while !run.is_over() {
        let key = format!("{kind}:{}", rng.below(KEYS));
        let watched = ask(&mut client, &["WATCH", &key]);
        let before = ask(&mut client, &["GET", &key]);
        if run.is_excused(&watched) || run.is_excused(&before) {
            continue;
        }
        let next = text(&before).parse().unwrap_or(0) + 1;
        ask(&mut client, &["MULTI"]);
        let queued = ask(&mut client, &["SET", &key, &next.to_string()]);
        let result = ask(&mut client, &["EXEC"]);
        if run.is_excused(&queued) || run.is_excused(&result) || result.is_nil() {
            continue;
        }
        assert_eq!(result, Reply::Array(vec![Reply::Simple(b"OK".to_vec())]));
        added += 1;
        run.count();
    }
    added
}

/// Lets clients work while a cluster changes.
fn work(cluster: &mut Cluster, rounds: u64, has_kills: bool) {
    let proxy = cluster.proxy("");
    let run = Run {
        proxy: &proxy,
        done: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        has_kills,
    };
    std::thread::scope(|scope| {
        let run = &run;
        let over = SetAtEnd(&run.is_over);
        let mut workers: Vec<_> =
            (0..WRITERS).map(|number| scope.spawn(move || append(run, number))).collect();
        workers.push(scope.spawn(|| set_many(run)));
        workers.extend((0..2).map(|number| scope.spawn(move || transact(run, number))));
        let adders: Vec<_> = (0..2).map(|number| scope.spawn(move || watch(run, number))).collect();
        let mut rng = Rng::new(rounds);
        for _ in 0..rounds {
            for change in 0..3 {
                let goal = run.done.load(SeqCst) + 100;
                until("clients work", || {
                    run.done.load(SeqCst) >= goal
                        || workers.iter().any(|worker| worker.is_finished())
                });
                match change {
                    0 => cluster.reshard(&mut rng),
                    1 => cluster.fail_over(&mut rng),
                    _ if has_kills => cluster.kill(&mut rng),
                    _ => {}
                }
            }
        }
        drop(over);
        let added: usize =
            adders.into_iter().map(|adder| adder.join().expect("it is content")).sum();
        if !has_kills {
            let mut client = proxy.client(Protocol::Resp2);
            let mut value = |n| text(&ask(&mut client, &["GET", &format!("watched:{n}")]));
            let values = (0..KEYS).map(|n| value(n).parse().unwrap_or(0));
            assert_eq!(values.sum::<usize>(), added, "every addition counts once");
        }
    });
}

#[test]
fn a_cluster_that_changes_loses_no_update() {
    if !Program::under_test().is_dunlin() {
        return;
    }
    let long = variable("DUNLIN_CLUSTER_ROUNDS");
    let Some(mut cluster) = Cluster::start(CALM) else { return };
    work(&mut cluster, long.unwrap_or(1), false);
    if let Some(rounds) = long {
        drop(cluster);
        work(&mut Cluster::start(NERVOUS).expect("it did"), rounds, true);
    }
}

#[test]
fn replicas_of_a_cluster_are_read() {
    if !Program::under_test().is_dunlin() {
        return;
    }
    let Some(cluster) = Cluster::start(CALM) else { return };
    let proxy = cluster.proxy("reads = \"replicas\"\n");
    let mut client = proxy.client(Protocol::Resp2);
    let keys: Vec<String> = (0..60).map(|n| format!("key:{n}")).collect();
    for key in &keys {
        assert_eq!(ask(&mut client, &["SET", key, key]), Reply::Simple(b"OK".to_vec()));
    }
    let view = Cluster::view(&mut cluster.client());
    let has_read = |node: &&Node| {
        let server = cluster.nodes.iter().find(|server| server.port() == node.port);
        let stats = ask(&mut server.expect("ours").client(), &["INFO", "commandstats"]);
        text(&stats).contains("cmdstat_get:")
    };
    until("all replicas are read", || {
        for key in &keys {
            let found = ask(&mut client, &["GET", key]);
            assert!(found.is_nil() || text(&found) == *key, "{found:?}");
        }
        view.iter().filter(|node| !node.is_primary).filter(has_read).count() == SHARDS
    });
    until("they have all keys", || {
        keys.iter().all(|key| text(&ask(&mut client, &["GET", key])) == *key)
    });
    // What a server refuses is said, and not tried again and again.
    let mut other = proxy.client(Protocol::Resp2);
    let Reply::Error(why) = ask(&mut other, &["SELECT", "1"]) else { panic!("no error") };
    assert_eq!(String::from_utf8_lossy(&why), "ERR DB index is out of range");
    assert_eq!(text(&ask(&mut other, &["GET", &keys[0]])), keys[0]);
    // A walk over all keys visits primaries alone.
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let Reply::Array(page) = ask(&mut client, &["SCAN", &cursor, "COUNT", "7"]) else {
            panic!("no page")
        };
        found.extend(page[1].elements().expect("keys").iter().map(text));
        cursor = text(&page[0]);
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    let mut expected = keys;
    expected.sort();
    assert_eq!(found, expected);
    // It goes on when others come to lead. A cursor between two shards is the first slot of the next one,
    // and a page that is not full has all keys from there on: cursors of two servers of Valkey have
    // nothing in common.
    let slots: Vec<Reply> = {
        let mut node = cluster.client();
        found.iter().map(|key| ask(&mut node, &["CLUSTER", "KEYSLOT", key])).collect()
    };
    let mut rng = Rng::new(3);
    for first in [0, 5461, 10_923] {
        let cursor = first.to_string();
        let Reply::Array(page) = ask(&mut client, &["SCAN", &cursor, "COUNT", "100000"]) else {
            panic!("no page")
        };
        let mut walked: Vec<String> = page[1].elements().expect("keys").iter().map(text).collect();
        walked.sort();
        let is_behind = |slot: &Reply| matches!(slot, Reply::Integer(slot) if *slot >= first);
        let behind = found.iter().zip(&slots).filter(|(_, slot)| is_behind(slot));
        let behind: Vec<String> = behind.map(|(key, _)| key.clone()).collect();
        assert_eq!((text(&page[0]), walked), ("0".to_owned(), behind));
        cluster.fail_over(&mut rng);
    }
}
