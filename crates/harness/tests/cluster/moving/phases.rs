//! Servers are killed, stand still and are handed over, and jobs are cancelled, at each phase of a
//! move of slots (DEBUG SLOTMIGRATION holds it there). Meanwhile clients use registers, whose
//! histories must have one order, and random commands, whose replies and effects must be those of
//! one server.
//!
//! `DUNLIN_MOVES_SECONDS` sets how long that goes on (`./test cluster-moves`), `DUNLIN_SEED` what
//! happens. By default each test sees one blow.

use super::*;
use harness::cluster::create;
use harness::contents::value;
use harness::differential::Op;
use harness::differential::grammar::Generator;
use harness::environment::{seconds, skipped, variable};
use harness::proxy::Proxy;
use harness::registers::Registers;
use harness::reply::Protocol;
use harness::rng::Rng;
use harness::server::{Options, Program, free_port};
use harness::slot_jobs::Phase::{self, *};
use harness::wait::SetAtEnd;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// Both copies of a shard have what is confirmed.
const OPTIONS: [&str; 6] =
    ["--commit-mode", "quorum", "--commit-quorum", "1", "--cluster-lease", "2"];

/// How long a node that stands still does so: longer than its lease.
const STANDSTILL: Duration = Duration::from_secs(4);

/// How long a client waits for a reply.
const PATIENCE: Duration = Duration::from_secs(5);

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blow {
    Nothing,
    Cancel,
    KillSource,
    KillTarget,
    StopSource,
    StopTarget,
    HandOverSource,
    HandOverTarget,
}

use Blow::*;

/// That of the short run, by seed. In the long one all happen at all phases.
const SHORT: [(Phase, Blow); 2] = [(Copied, KillSource), (Paused, Cancel)];

const BLOWS: [Blow; 8] = [
    Nothing,
    Cancel,
    KillSource,
    KillTarget,
    StopSource,
    StopTarget,
    HandOverSource,
    HandOverTarget,
];

/// Slots that move together, about a third of all.
const BLOCK: (u16, u16) = (0, 5460);

/// Three shards of two copies, and a node without slots that clients are connected to.
struct Moved {
    _etcd: Etcd,
    nodes: Vec<Server>,
    entry: Server,
}

impl Moved {
    fn new(name: &str) -> Moved {
        let etcd = Etcd::start(name);
        let nodes: Vec<Server> = (0..6).map(|_| etcd.node_with(&OPTIONS)).collect();
        create(&nodes);
        let entry = etcd.node_with(&OPTIONS);
        let meet = format!("CLUSTER MEET 127.0.0.1 {}", entry.port());
        eventually("the entry is a node", || {
            let mut client = nodes[0].client();
            !ask(&mut client, &meet).is_error()
                && text(ask(&mut client, "CLUSTER INFO")).contains("cluster_known_nodes:7")
        });
        let moved = Moved { _etcd: etcd, nodes, entry };
        moved.nodes.iter().chain([&moved.entry]).for_each(shows_one_server);
        eventually("it serves", || {
            ["b", "bar", "foo"]
                .iter()
                .all(|key| !ask(&mut moved.entry.client(), &format!("GET {key}")).is_error())
        });
        moved
    }

    /// The primary of the block, and another one.
    fn sides(&self) -> (usize, usize) {
        let mut found = None;
        eventually("the block has an owner", || {
            let slots = self.slots();
            let owner = slots.iter().find(|range| list(range)[0] == Reply::Integer(0));
            let source = owner.and_then(|range| self.primary(range));
            let others = slots.iter().filter_map(|range| self.primary(range));
            let target = others.filter(|&at| Some(at) != source).max();
            found = source.zip(target);
            found.is_some()
        });
        found.expect("it was waited for")
    }

    fn slots(&self) -> Vec<Reply> {
        let mut client = self.entry.client();
        ok(&mut client, "CLIENT CAPA cluster");
        list(&ask(&mut client, "CLUSTER SLOTS")).to_vec()
    }

    fn primary(&self, range: &Reply) -> Option<usize> {
        let port = list(&list(range)[2])[1].clone();
        self.nodes.iter().position(|node| port == Reply::Integer(node.port().into()))
    }

    /// The replica beside a primary.
    fn replica(&self, primary: usize) -> Option<usize> {
        let slots = self.slots();
        let range = slots.iter().find(|range| self.primary(range) == Some(primary))?;
        let port = list(list(range).get(3)?)[1].clone();
        self.nodes.iter().position(|node| port == Reply::Integer(node.port().into()))
    }

    /// Waits until each shard has both its copies, and no job is under way.
    fn settle(&self) {
        eventually("both copies are there", || {
            self.slots().iter().all(|range| list(range).len() == 4)
        });
        settle(&self.nodes);
    }

    fn hold(&self, phase: Phase, holds: bool) {
        hold(&self.nodes, phase, holds);
    }

    /// Moves the block, and lets something happen at this phase. `goes_on` waits until clients have
    /// got something done.
    fn suffer(&mut self, (phase, blow): (Phase, Blow), goes_on: &dyn Fn()) {
        self.settle();
        goes_on();
        let (source, target) = self.sides();
        println!("{phase:?}, {blow:?}: from {source} to {target}");
        self.hold(phase, true);
        let to = id_of(&self.nodes[target]);
        let mut client = self.nodes[source].client();
        ok(&mut client, "CLIENT CAPA cluster");
        let (first, last) = BLOCK;
        let request = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {to}");
        eventually("the job is noted", || {
            let reply = ask(&mut client, &request);
            !reply.is_error() || error(&reply).contains("already migrating")
        });
        let is_at =
            |state: &str| jobs::jobs(&self.nodes[source]).iter().any(|job| job["state"] == state);
        match phase.state() {
            Some(state) => eventually("it is held", || is_at(state)),
            None if phase == Given => {
                eventually("the slots are given", || self.sides().0 == target);
            }
            None => {}
        }
        match blow {
            Nothing => {}
            Cancel => {
                let reply = ask(&mut client, "CLUSTER CANCELSLOTMIGRATIONS");
                assert!(!reply.is_error() || error(&reply).contains("No migrations"), "{reply:?}");
            }
            KillSource => self.kill(source, phase, goes_on),
            KillTarget => self.kill(target, phase, goes_on),
            StopSource => self.stop(source, phase),
            StopTarget => self.stop(target, phase),
            HandOverSource => self.hand_over(source),
            HandOverTarget => self.hand_over(target),
        }
        self.hold(phase, false);
        goes_on();
        self.settle();
        // A job that was not cancelled is carried out, whatever happened.
        if blow != Cancel {
            assert_eq!(self.shard_of_block(), self.shard_of(target), "{phase:?}, {blow:?}");
        }
    }

    fn shard_of_block(&self) -> Vec<usize> {
        self.shard_of(self.sides().0)
    }

    /// A copy and the other one of its shard.
    fn shard_of(&self, copy: usize) -> Vec<usize> {
        let mut client = self.nodes[copy].client();
        ok(&mut client, "CLIENT CAPA cluster");
        let shard = text(ask(&mut client, "CLUSTER MYSHARDID"));
        let is_there = |at: &usize| {
            let mut client = self.nodes[*at].client();
            ok(&mut client, "CLIENT CAPA cluster");
            text(ask(&mut client, "CLUSTER MYSHARDID")) == shard
        };
        (0..self.nodes.len()).filter(is_there).collect()
    }

    fn kill(&mut self, at: usize, phase: Phase, goes_on: &dyn Fn()) {
        self.nodes[at].kill().expect("it runs");
        self.hold(phase, false);
        goes_on();
        self.nodes[at].start_again().expect("it starts");
        shows_one_server(&self.nodes[at]);
    }

    fn stop(&mut self, at: usize, phase: Phase) {
        signal(self.nodes[at].process_id(), "STOP").expect("it runs");
        std::thread::sleep(STANDSTILL);
        signal(self.nodes[at].process_id(), "CONT").expect("it is there");
        self.hold(phase, false);
    }

    fn hand_over(&self, primary: usize) {
        eventually("it is handed over", || {
            let Some(replica) = self.replica(primary) else { return false };
            let mut client = self.nodes[replica].client();
            ok(&mut client, "CLIENT CAPA cluster");
            let _ = ask(&mut client, "CLUSTER FAILOVER");
            let (mut tries, mut is_done) = (0, false);
            while !is_done && tries < 100 {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
                let info = text(ask(&mut client, "INFO replication"));
                is_done = info.contains("role:master");
            }
            is_done
        });
    }

    /// Lets things happen for the time of this run.
    fn go_through(&mut self, seed: u64, goes_on: &dyn Fn()) {
        let Some(time) = seconds("DUNLIN_MOVES_SECONDS") else {
            // Each test has a seed of its own.
            self.suffer(SHORT[(seed % 2) as usize], goes_on);
            return;
        };
        let began = Instant::now();
        let mut rng = Rng::new(seed);
        while began.elapsed() < time {
            let event = (*rng.pick(&Phase::ALL), *rng.pick(&BLOWS));
            self.suffer(event, goes_on);
        }
    }
}

fn shows_one_server(node: &Server) {
    ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
}

fn seed(number: u64) -> u64 {
    let seed = variable("DUNLIN_SEED").unwrap_or(0) + number;
    println!("seed {seed}");
    seed
}

#[test]
fn histories_have_one_order_whatever_happens_while_slots_move() {
    let _alone = crate::forwarding::alone();
    let mut moved = Moved::new("move-histories");
    let mut addresses = vec![moved.entry.address()];
    addresses.extend(moved.nodes.iter().map(Server::address));
    let work = Registers::new(addresses);
    let seed = seed(0);
    work.during(seed, || moved.go_through(seed, &|| work.go_on()));
    let confirmed = work.confirmed();
    let count = work.verdict_through_proxy().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    println!("{count} operations have one order, {confirmed} confirmed writes among them");
}

/// What was confirmed by a quorum is not given to a primary that is alone: it could be lost with it.
#[test]
fn a_target_without_its_quorum_is_given_nothing() {
    let _alone = crate::forwarding::alone();
    let moved = Moved::new("move-quorum");
    let (source, target) = moved.sides();
    let replica = moved.replica(target).expect("there is one");
    let mut client = moved.nodes[source].client();
    ok(&mut client, "CLIENT CAPA cluster");
    (0..100).for_each(|number| _ = ok(&mut client, &format!("SET {{b}}{number} {number}")));
    let to = id_of(&moved.nodes[target]);
    // Its replies to writes are given up before the source stops to wait for them.
    ok(&mut moved.nodes[target].client(), "CONFIG SET commit-timeout-ms 300");
    signal(moved.nodes[replica].process_id(), "STOP").expect("it runs");
    change(&mut client, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {to}"));
    eventually("it is tried again", || {
        let retries = jobs::status(&moved.nodes[source])["retries"].parse::<u64>();
        retries.is_ok_and(|retries| retries >= 2)
    });
    assert_eq!(moved.sides().0, source);
    assert!(!ask(&mut moved.nodes[target].client(), "PING").is_error(), "it still runs");
    signal(moved.nodes[replica].process_id(), "CONT").expect("it is there");
    eventually("it is carried out", || {
        let replies = ask(&mut client, "EXISTS {b}0 {b}99");
        replies.is_error() && error(&replies).starts_with("MOVED 3300 ")
    });
    assert_eq!(text(ask(&mut moved.entry.client(), "GET {b}99")), "99");
}

/// Requests for a slot that waits do not hold up those of other clients that take the same link
/// between nodes, and stay in order although the link gives them back: while the job is cancelled,
/// and while it is carried out.
#[test]
fn what_waits_for_a_slot_holds_nothing_else_up() {
    let _alone = crate::forwarding::alone();
    let moved = Moved::new("move-links");
    let (source, target) = moved.sides();
    // Replicas, too, which no quorum confirms anything to.
    for node in &moved.nodes {
        let mut client = node.client().with_patience(Duration::from_secs(3));
        ok(&mut client, "DEBUG SLOTMIGRATION PREVENT-FAILOVER 0");
    }
    hold_nothing_else_up(&moved.nodes, [source, target], || moved.entry.client());
    assert_eq!(moved.sides().0, source, "one slot has moved");
}

/// The same of clients of a proxy before the cluster.
#[test]
fn what_waits_for_a_slot_holds_nothing_else_up_behind_the_proxy() {
    let program = Program::under_test();
    if !program.is_dunlin() {
        return;
    }
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-proxied");
    let nodes = three(&etcd);
    let port = free_port().expect("a port");
    let config = format!(
        "[pool.main]\nkind = \"cluster\"\nlisten = [\"127.0.0.1:{port}\"]\nseeds = [\"127.0.0.1:{}\"]\n",
        nodes[1].port()
    );
    let file = nodes[0].directory().join("proxy.toml");
    let proxy = Proxy::run(&program, &file, port, &config);
    let connect = || proxy.client(Protocol::Resp2);
    eventually("it serves", || !ask(&mut connect(), "GET b").is_error());
    hold_nothing_else_up(&nodes, [0, 2], connect);
}

/// Has slot 3300 move from the source to the target, both of these nodes, while clients write into
/// it, and into another slot of the source. The first two times the job is cancelled.
fn hold_nothing_else_up(
    nodes: &[Server],
    [source, target]: [usize; 2],
    connect: impl Fn() -> Client,
) {
    let to = id_of(&nodes[target]);
    let mut admin = nodes[source].client();
    ok(&mut admin, "CLIENT CAPA cluster");
    let mut clients: Vec<Client> = (0..8).map(|_| connect()).collect();
    let mut pushed = 0;
    for is_cancelled in [true, true, false] {
        hold(nodes, Paused, true);
        change(&mut admin, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3300 3300 NODE {to}"));
        let is_paused = || {
            let is_held = |job: &BTreeMap<String, String>| Paused.state() == Some(&*job["state"]);
            jobs::jobs(&nodes[source]).iter().any(is_held)
        };
        eventually("requests wait", is_paused);
        for (number, client) in clients.iter_mut().enumerate() {
            let push = |value| format!("RPUSH {{b}}{number} {value}\r\n");
            let requests: String = (pushed..pushed + 40).map(push).collect();
            client.send_raw(requests.as_bytes()).expect("it is sent");
        }
        // "bar" is of the same shard as "b".
        for number in 0..8 {
            let mut other = connect().with_patience(PATIENCE);
            for _ in 0..10 {
                ok(&mut other, &format!("SET {{bar}}{number} value"));
            }
        }
        assert!(is_paused());
        if is_cancelled {
            ok(&mut admin, "CLUSTER CANCELSLOTMIGRATIONS");
        }
        hold(nodes, Paused, false);
        for client in &mut clients {
            for at in pushed..pushed + 40 {
                assert_eq!(client.reply().expect("it is answered"), Reply::Integer(at + 1));
            }
        }
        pushed += 40;
        settle(nodes);
    }
    let expected: Vec<String> = (0..pushed).map(|value| value.to_string()).collect();
    for number in 0..8 {
        let reply = ask(&mut nodes[target].client(), &format!("LRANGE {{b}}{number} 0 -1"));
        let values: Vec<String> = list(&reply).iter().cloned().map(text).collect();
        assert_eq!(values, expected);
    }
}

/// Waits until no job is under way.
pub(super) fn settle(nodes: &[Server]) {
    eventually("no job is under way", || {
        let is_over = |job: &BTreeMap<String, String>| {
            ["success", "cancelled", "failed"].contains(&&*job["state"])
        };
        nodes.iter().all(|node| jobs::jobs(node).iter().all(is_over))
    });
}

/// Has nodes hold jobs at a phase, or let them go on.
pub(super) fn hold(nodes: &[Server], phase: Phase, holds: bool) {
    let Some(words) = phase.hold(holds) else { return };
    for node in nodes {
        let Ok(client) = Client::connect(node.address()) else { continue };
        let mut client = client.with_patience(PATIENCE);
        // One that was killed, or stands still, has no hold when it comes back.
        let _ = client.command(&words);
    }
}

/// What the keys of a request have in common. Some are in slots that move.
const TAGS: [&str; 6] = ["{b}", "{bar}", "{x}", "{foo}", "{17}", "{moved}"];

/// Commands whose effects depend on their request and their keys alone.
const COMMANDS: &[&str] = &[
    "set",
    "setnx",
    "get",
    "getset",
    "getdel",
    "getrange",
    "setrange",
    "strlen",
    "append",
    "incr",
    "decr",
    "incrby",
    "decrby",
    "incrbyfloat",
    "mget",
    "mset",
    "msetnx",
    "setbit",
    "getbit",
    "bitcount",
    "bitpos",
    "bitop",
    "bitfield",
    "del",
    "unlink",
    "exists",
    "type",
    "rename",
    "renamenx",
    "persist",
    "hset",
    "hsetnx",
    "hget",
    "hmget",
    "hdel",
    "hlen",
    "hexists",
    "hincrby",
    "hincrbyfloat",
    "hstrlen",
    "lpush",
    "rpush",
    "lpushx",
    "rpushx",
    "lpop",
    "rpop",
    "llen",
    "lindex",
    "linsert",
    "lset",
    "lrem",
    "ltrim",
    "lrange",
    "lmove",
    "lpos",
    "lmpop",
    "rpoplpush",
    "sadd",
    "srem",
    "sismember",
    "smismember",
    "scard",
    "smove",
    "sinterstore",
    "sunionstore",
    "sdiffstore",
    "zadd",
    "zincrby",
    "zrem",
    "zcard",
    "zscore",
    "zmscore",
    "zcount",
    "zremrangebyrank",
    "zremrangebyscore",
    "zunionstore",
    "zinterstore",
    "zrangestore",
    "zpopmin",
    "zpopmax",
    "pfadd",
    "pfcount",
    "xadd",
    "xdel",
    "xtrim",
    "xsetid",
    "xgroup",
    "xreadgroup",
    "xack",
    "xclaim",
    "expireat",
    "pexpireat",
    "getex",
    "setex",
    "hexpireat",
    "hpexpireat",
    "hpersist",
    "hsetex",
    "hgetex",
    "hgetdel",
    "geoadd",
    "geosearchstore",
    "pfmerge",
    "zdiffstore",
];

/// One of so many requests deletes all keys.
const FLUSHES: usize = 400;

/// So many requests have to be done before something else happens.
const PROGRESS: usize = 20;

/// For how long the deletion of all keys may wait for a move.
const FLUSH_PATIENCE: Duration = Duration::from_secs(60);

/// Returns the words of a request whose keys all have this tag.
fn tagged(op: &Op, tag: &str) -> Vec<Vec<u8>> {
    let is_key = |word: &[u8]| matches!(word, [b'a'..=b'z', b'1'..=b'4']);
    let tag = |word: &Vec<u8>| match is_key(word) {
        true => [tag.as_bytes(), word].concat(),
        false => word.clone(),
    };
    op.words
        .iter()
        .enumerate()
        .map(|(at, word)| if at == 0 { word.clone() } else { tag(word) })
        .collect()
}

/// Replaces moments of this century, which two servers do not share: entries of streams say when
/// they were delivered.
fn without_moments(value: &str) -> String {
    const BEFORE: &str = "Integer(";
    let mut parts = value.split(BEFORE);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += BEFORE;
        let end = part.find(')').unwrap_or(part.len());
        let is_moment = part[..end].parse().is_ok_and(|ms: i64| (1 << 40..1 << 41).contains(&ms));
        text += if is_moment { "moment" } else { &part[..end] };
        text += &part[end..];
    }
    text
}

/// Which fields of a hash expire, in the order of their names.
fn expiring_fields(client: &mut Client, key: &[u8]) -> std::io::Result<String> {
    let keys = client.command(&[&b"HKEYS"[..], key])?;
    let mut fields: Vec<&[u8]> =
        keys.elements().unwrap_or_default().iter().filter_map(Reply::text).collect();
    fields.sort_unstable();
    let count = fields.len().to_string();
    let words = [&[b"HPEXPIRETIME", key, b"FIELDS", count.as_bytes()][..], &fields].concat();
    let times = client.command(&words)?;
    let expires = |time: &Reply| time.integer().is_some_and(|at| at >= 0);
    let expiring = times.elements().map(|times| times.iter().map(expires).collect::<Vec<_>>());
    expiring.map(|all| format!("{all:?}")).ok_or_else(|| std::io::Error::other(times.shown()))
}

/// The keys with a tag, their values, and whether they expire.
fn part(client: &mut Client, tag: &str) -> std::io::Result<BTreeMap<Vec<u8>, (String, bool)>> {
    let keys = client.command(&["KEYS", &format!("{tag}*")])?;
    if keys.is_error() {
        return Err(std::io::Error::other(keys.shown()));
    }
    let mut part = BTreeMap::new();
    for key in list(&keys) {
        let key = key.text().unwrap_or_default().to_vec();
        let expiry = client.command(&[&b"PEXPIRETIME"[..], &key])?;
        let expires = match expiry {
            Reply::Integer(at) => at >= 0,
            other => return Err(std::io::Error::other(other.shown())),
        };
        let mut value = without_moments(&value(client, &key)?);
        if value.starts_with("hash") {
            value += &expiring_fields(client, &key)?;
        }
        part.insert(key, (value, expires));
    }
    Ok(part)
}

/// A cluster whose slots move, and a single server, which get the same requests.
struct Twins {
    entry: SocketAddr,
    client: Option<Client>,
    model: Client,
    unknown: usize,
}

impl Twins {
    /// A connection that is there as long as nothing fails.
    fn client(&mut self) -> std::io::Result<&mut Client> {
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(self.entry)?.with_patience(PATIENCE),
        };
        Ok(self.client.insert(client))
    }

    /// The cluster's keys with a tag, when it serves them again.
    fn served(&mut self, tag: &str) -> BTreeMap<Vec<u8>, (String, bool)> {
        let mut found = None;
        eventually("the keys are served", || {
            found = self.client().and_then(|client| part(client, tag)).ok();
            if found.is_none() {
                self.client = None;
            }
            found.is_some()
        });
        found.expect("it was waited for")
    }

    fn send(&mut self, op: &Op, tag: &str) {
        let words = tagged(op, tag);
        // The generator makes some requests wrong: those whose keys have no tag are for any shard.
        let asked = [vec![b"COMMAND".to_vec(), b"GETKEYS".to_vec()], words.clone()].concat();
        let keys = self.model.command(&asked).expect("it answers");
        let has_tag = |key: &Reply| key.text().is_some_and(|text| text.starts_with(tag.as_bytes()));
        if list(&keys).is_empty() || !list(&keys).iter().all(has_tag) {
            return;
        }
        let reply = self.client().and_then(|client| client.command(&words));
        if let Ok(reply) = &reply
            && !reply.is_error()
        {
            let modelled = self.model.command(&words).expect("it answers");
            let same = op.compare.same(reply, &modelled);
            assert!(same, "{op} with {tag}: {reply:?}, and {modelled:?} of one server");
            return;
        }
        // An error may be the request's own. Otherwise it has run or not.
        let before = part(&mut self.model, tag).expect("it answers");
        let modelled = self.model.command(&words).expect("it answers");
        let after = part(&mut self.model, tag).expect("it answers");
        if reply.as_ref().is_ok_and(|reply| op.compare.same(reply, &modelled)) {
            return;
        }
        self.unknown += 1;
        self.client = None;
        let found = self.served(tag);
        if found == after {
            return;
        }
        assert_eq!(found, before, "{op} with {tag}: neither has it run, nor has it not: {reply:?}");
        self.take_back(&before, &after);
    }

    /// Deletes all keys. What fails is tried again, and what waits is waited for, so that none of
    /// it comes late. A shard whose replica was killed confirms nothing, so each try counts as
    /// something done.
    fn flush(&mut self, tries: &AtomicUsize) {
        eventually("all keys are deleted", || {
            tries.fetch_add(PROGRESS, SeqCst);
            let Ok(client) = Client::connect(self.entry) else { return false };
            let reply = client.with_patience(FLUSH_PATIENCE).command(&["FLUSHALL"]);
            reply.expect("it answers in time") == Reply::Simple("OK".into())
        });
        ok(&mut self.model, "FLUSHALL");
    }

    /// Gives the single server the keys that the cluster has.
    fn take_back(
        &mut self,
        wanted: &BTreeMap<Vec<u8>, (String, bool)>,
        present: &BTreeMap<Vec<u8>, (String, bool)>,
    ) {
        for key in present.keys() {
            self.model.command(&[&b"DEL"[..], key]).expect("it answers");
        }
        for key in wanted.keys() {
            let mut payload = Vec::new();
            let mut expiry = String::new();
            eventually("the key is served", || {
                let mut ask = |word: &[u8]| self.client().and_then(|it| it.command(&[word, key]));
                let replies = (ask(b"DUMP"), ask(b"PEXPIRETIME"));
                let (Ok(Reply::Bulk(dumped)), Ok(Reply::Integer(at))) = replies else {
                    self.client = None;
                    return false;
                };
                (payload, expiry) = (dumped, at.max(0).to_string());
                true
            });
            let words = [&b"RESTORE"[..], key, expiry.as_bytes(), &payload, b"ABSTTL"];
            assert!(!self.model.command(&words).expect("it answers").is_error());
        }
    }
}

#[test]
fn random_commands_have_the_effects_of_one_server_while_slots_move() {
    if seconds("DUNLIN_MOVES_SECONDS").is_none() {
        skipped("./test cluster-moves runs it, for minutes");
        return;
    }
    let _alone = crate::forwarding::alone();
    let mut moved = Moved::new("move-random");
    let arguments = ["--bind", "127.0.0.1", "--save", ""];
    let single = Server::start(&Program::under_test(), Options::arguments(&arguments));
    let single = single.expect("it starts");
    let (is_over, seed) = (AtomicBool::new(false), seed(1));
    let done = AtomicUsize::new(0);
    let twins =
        Twins { entry: moved.entry.address(), client: None, model: single.client(), unknown: 0 };
    let mut twins = std::thread::scope(|scope| {
        let over = SetAtEnd(&is_over);
        let writer = scope.spawn(|| {
            let (mut twins, mut round) = (twins, 0);
            while !is_over.load(SeqCst) {
                round += 1;
                let mut rng = Rng::new(seed ^ round << 32);
                let known = |name: &str| COMMANDS.contains(&name);
                for op in Generator::new(seed ^ round, known).sequence(200) {
                    if is_over.load(SeqCst) {
                        break;
                    }
                    if rng.below(FLUSHES) == 0 {
                        twins.flush(&done);
                    }
                    if op.compare.can_be_queued() {
                        twins.send(&op, TAGS[rng.below(TAGS.len())]);
                        done.fetch_add(1, SeqCst);
                    }
                }
            }
            twins
        });
        let goes_on = || {
            let before = done.load(SeqCst);
            eventually("commands run", || {
                assert!(!writer.is_finished(), "the writer has failed");
                done.load(SeqCst) >= before + PROGRESS
            });
        };
        moved.go_through(seed, &goes_on);
        drop(over);
        writer.join().expect("it has written")
    });
    println!("{} requests, {} with an unknown outcome", done.load(SeqCst), twins.unknown);
    let model = part(&mut twins.model, "").expect("it answers");
    assert_eq!(twins.served(""), model);
    assert_eq!(
        ask(&mut moved.entry.client(), "DBSIZE"),
        Reply::Integer(model.len() as i64),
        "no key is there twice"
    );
    for node in moved.nodes.iter().chain([&moved.entry]) {
        let mut client = node.client();
        ok(&mut client, "CLIENT CAPA cluster");
        ok(&mut client, "CONFIG SET cluster-endpoint cluster");
    }
    let check = redis_cli(&["--cluster", "check", &format!("127.0.0.1:{}", moved.nodes[0].port())]);
    assert!(check.contains("All 16384 slots covered") && !check.contains("WARNING"), "{check}");
}
