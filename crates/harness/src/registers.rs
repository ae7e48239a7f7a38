//! Clients that write and read registers of a cluster, or [objects](crate::objects) of all kinds,
//! and lists in transactions, through any of its nodes, whatever fails meanwhile. What they saw is
//! a history, which one order of all operations has to explain: then no confirmed write is lost, no
//! read is stale, no transaction is torn, and no two primaries confirm.

use crate::client::Client;
use crate::history::Recorder;
use crate::list_transactions::{ListTransactions, Outcome};
use crate::objects::{Kind, Request, key_of};
use crate::reply::{Protocol, Reply};
use crate::rng::Rng;
use crate::wait::{SetAtEnd, eventually, eventually_within};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const WORKERS: usize = 6;

/// How many registers are in use at a time, and objects of each other kind.
const REGISTERS: usize = 4;

/// How many requests without a reply counters or sets get until others are used. Each doubles the
/// work of the check. One to a register or a list shows by its value whether it has run.
const DOUBTS: u64 = 6;

/// How long a worker waits after a request that was not served.
const PAUSE: Duration = Duration::from_millis(5);

/// How long a worker waits for a reply.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long copies may take to be members again.
const SETTLING: Duration = Duration::from_secs(180);

/// What the clients share.
pub struct Registers {
    addresses: Vec<SocketAddr>,
    recorder: Recorder,
    transactions: ListTransactions,
    kinds: &'static [Kind],
    /// Requests of each kind that may have run.
    doubts: [AtomicU64; Kind::ALL.len()],
    tally: Mutex<BTreeMap<String, u64>>,
    /// Whether keys with the same tag are on one server, so that there are transactions over them.
    has_tags: bool,
    began: Instant,
    next: AtomicU64,
    confirmed: AtomicU64,
    /// Requests that were not served, and what was said about the first of them.
    failures: AtomicU64,
    first_failure: Mutex<Option<String>>,
    is_over: AtomicBool,
}

impl Registers {
    /// Registers of a cluster whose nodes have these addresses.
    pub fn new(addresses: Vec<SocketAddr>) -> Registers {
        Registers {
            addresses,
            recorder: Recorder::new(),
            transactions: ListTransactions::default(),
            kinds: &[Kind::Register],
            doubts: Default::default(),
            tally: Mutex::default(),
            has_tags: true,
            began: Instant::now(),
            next: AtomicU64::new(1),
            confirmed: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            first_failure: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    /// The same with objects of all kinds.
    pub fn of_all_kinds(addresses: Vec<SocketAddr>) -> Registers {
        Registers { kinds: &Kind::ALL, ..Registers::new(addresses) }
    }

    /// Registers alone, of servers between which a proxy divides keys whatever their tags are.
    pub fn without_transactions(address: SocketAddr) -> Registers {
        Registers { has_tags: false, ..Registers::new(vec![address]) }
    }

    /// Runs clients as long as `meanwhile` does.
    pub fn during(&self, seed: u64, meanwhile: impl FnOnce()) {
        thread::scope(|threads| {
            for worker in 0..WORKERS {
                let rng = Rng::new(seed ^ (worker as u64 + 1) << 32);
                threads.spawn(move || self.run(worker, rng));
            }
            let _over = SetAtEnd(&self.is_over);
            meanwhile();
        });
    }

    /// How long the clients have been there.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The writes that were confirmed.
    pub fn confirmed(&self) -> u64 {
        self.confirmed.load(SeqCst)
    }

    /// The requests that were not served so far, and the reason of the first of them.
    pub fn failures(&self) -> (u64, Option<String>) {
        let first = self.first_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.failures.load(SeqCst), first)
    }

    /// What has become of operations, by their kind: how many were confirmed, refused or are in
    /// doubt.
    pub fn tally(&self) -> BTreeMap<String, u64> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, what: &str, outcome: &str) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        *tally.entry(format!("{what} {outcome}")).or_default() += 1;
    }

    /// Waits until more writes are confirmed.
    #[track_caller]
    pub fn go_on(&self) {
        let before = self.confirmed();
        eventually("writes are confirmed", || self.confirmed() > before + 20);
    }

    /// Reads all registers and lists once more, since what is there in the end belongs to the
    /// history, and checks it. Returns how many operations and transactions it has.
    ///
    /// # Errors
    /// What no order explains.
    pub fn verdict(&self) -> Result<usize, String> {
        self.verdict_of(|| self.addresses[leader(&self.addresses)])
    }

    /// The same where the clients know one address, a proxy's.
    ///
    /// # Errors
    /// What no order explains.
    pub fn verdict_through_proxy(&self) -> Result<usize, String> {
        self.verdict_of(|| self.addresses[0])
    }

    fn verdict_of(&self, address: impl Fn() -> SocketAddr) -> Result<usize, String> {
        let mut client = None;
        let mut until_read = |read: &dyn Fn(&mut Client) -> bool| {
            eventually("what is there is read", || {
                let mut connection = client.take().or_else(|| connect(address()));
                let is_read = connection.as_mut().is_some_and(read);
                client = connection.filter(|_| is_read);
                is_read
            });
        };
        let objects = self.recorder.objects();
        for key in objects.iter().map(|object| key_of(object)).collect::<BTreeSet<_>>() {
            let read = Request::read(key.to_owned());
            until_read(&|client| self.ask(WORKERS, client, &read));
        }
        for set in self.transactions.sets() {
            until_read(&|client| self.transactions.read_all(set, client, || self.recorder.now()));
        }
        Ok(self.recorder.verdict()? + self.transactions.verdict()?)
    }

    /// Returns a key. Keys are left after some seconds, so that a history stays short.
    fn key(&self, rng: &mut Rng) -> String {
        let round = self.began.elapsed().as_secs() / 3;
        let kind = *rng.pick(self.kinds);
        let doubts = self.doubts[kind as usize].load(SeqCst) / DOUBTS;
        format!("{}{round}.{doubts}:{}", kind.letter(), rng.below(REGISTERS))
    }

    fn run(&self, worker: usize, mut rng: Rng) {
        let mut client = None;
        while !self.is_over.load(SeqCst) {
            let Some(connection) = client.as_mut() else {
                let address = self.addresses[rng.below(self.addresses.len())];
                client = connect(address);
                if client.is_none() {
                    self.failed(|| format!("no connection to {address}"));
                }
                continue;
            };
            let key = self.key(&mut rng);
            let is_well = match rng.below(5) {
                0 | 1 => {
                    let value = self.next.fetch_add(1, SeqCst);
                    self.ask(worker, connection, &Request::change(key, value, &mut rng))
                }
                4 if self.has_tags => self.transact(worker, connection, &mut rng),
                _ => self.ask(worker, connection, &Request::read(key)),
            };
            if !is_well {
                client = None;
            }
        }
    }

    /// Notes a request that was not served, and waits a moment, as clients do.
    fn failed(&self, why: impl FnOnce() -> String) {
        self.failures.fetch_add(1, SeqCst);
        let mut first = self.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(why);
        drop(first);
        thread::sleep(PAUSE);
    }

    /// Sends a request and records what became of it. Returns whether the connection is used on: a
    /// client that was refused tries another address.
    fn ask(&self, worker: usize, client: &mut Client, request: &Request) -> bool {
        let what = format!("{:?}", request.kind()).to_lowercase();
        let words = request.words();
        let called = self.recorder.now();
        let reply = client.command(&words);
        if let Some(steps) = reply.as_ref().ok().and_then(|reply| request.done(reply)) {
            self.recorder.record(worker, called, steps);
            self.confirmed.fetch_add(u64::from(request.is_change()), SeqCst);
            self.count(&what, if request.is_change() { "written" } else { "read" });
            return true;
        }
        self.failed(|| format!("{}: {reply:?}", words[0]));
        // Anything else may have run, whatever the error is.
        let is_refused =
            matches!(&reply, Ok(Reply::Error(text)) if text.starts_with(b"CLUSTERDOWN"));
        match request.in_doubt().filter(|_| !is_refused) {
            Some(step) => {
                self.recorder.record_unknown(worker, called, step);
                if matches!(request.kind(), Kind::Counter | Kind::Set) {
                    self.doubts[request.kind() as usize].fetch_add(1, SeqCst);
                }
                self.count(&what, "in doubt");
            }
            None => self.count(&what, "refused"),
        }
        false
    }

    /// The same of a transaction.
    fn transact(&self, worker: usize, client: &mut Client, rng: &mut Rng) -> bool {
        let why = match self.transactions.run(worker, client, rng, || self.recorder.now()) {
            Outcome::Confirmed => {
                self.confirmed.fetch_add(1, SeqCst);
                self.count("transaction", "confirmed");
                return true;
            }
            Outcome::Failed(why) | Outcome::Lost(why) => why,
        };
        self.count("transaction", "refused or in doubt");
        self.failed(|| format!("a transaction: {why}"));
        false
    }
}

fn connect(address: SocketAddr) -> Option<Client> {
    Client::connect_within(address, PATIENCE).ok().map(|client| client.with_patience(PATIENCE))
}

/// What a node says about replication; empty if it says nothing.
pub fn replication(address: SocketAddr) -> String {
    let ask = |mut client: Client| {
        let _ = client.command(&["CLIENT", "CAPA", "cluster", "node"]).ok()?;
        let reply = client.command(&["INFO", "replication"]).ok()?;
        reply.text().map(|text| String::from_utf8_lossy(text).into_owned())
    };
    connect(address).and_then(ask).unwrap_or_default()
}

/// The epoch in which a node leads, by what it says about replication. One that was cut off may not
/// know yet that another leads in a later one.
pub fn epoch_led(info: &str) -> Option<u64> {
    let epoch = info.lines().find_map(|line| line.strip_prefix("stream_epoch:"));
    let epoch = epoch.and_then(|text| text.trim().parse().ok());
    epoch.filter(|_| info.contains("role:master"))
}

/// The node that leads, as it says itself.
#[track_caller]
pub fn leader(addresses: &[SocketAddr]) -> usize {
    let mut found = None;
    eventually("a node leads", || {
        let epoch = |(at, &it)| Some((epoch_led(&replication(it))?, at));
        let epochs = addresses.iter().enumerate().filter_map(epoch);
        found = epochs.max().map(|(_, at)| at);
        found.is_some()
    });
    found.unwrap_or_default()
}

/// Waits until all of three copies are members that have everything, so that two of them are enough
/// for a promotion.
#[track_caller]
pub fn until_settled(addresses: &[SocketAddr]) {
    until_settled_with(addresses, 2);
}

/// The same where `fence` of them are enough.
#[track_caller]
pub fn until_settled_with(addresses: &[SocketAddr], fence: usize) {
    let wanted = format!("cluster_promotion_copies:{fence}\r");
    let mut shown = String::new();
    // A machine that was cut off is tried again in longer and longer intervals, and one attempt takes
    // seconds where others are busy.
    eventually_within(SETTLING, "all copies are members", || {
        let address = addresses[leader(addresses)];
        let Some(mut client) = connect(address) else { return false };
        let mut ask = |words: &[&str]| client.command(words);
        // Another node of the cluster may wait.
        drop(ask(&["CLIENT", "CAPA", "cluster", "node"]));
        let mut written = ask(&["SET", "probe", "1"]);
        for other in 0..16 {
            if matches!(&written, Ok(Reply::Error(why)) if why.starts_with(b"MOVED")) {
                // The key is another shard's.
                written = ask(&["SET", &format!("probe{other}"), "1"]);
            }
        }
        let waited = ask(&["WAIT", "2", "1000"]);
        let is_there = matches!(written, Ok(Reply::Simple(_)))
            && matches!(waited, Ok(Reply::Integer(2)))
            && replication(address).contains(&wanted);
        let state = format!("{address}: SET {written:?}, WAIT {waited:?}");
        if !is_there && state != shown {
            // For the reader of a failure.
            println!("{state}");
            addresses.iter().for_each(|&it| println!("{it}: {}", replication(it)));
            shown = state;
        }
        is_there
    });
}

/// Makes a shard with all slots of these nodes. The first leads.
pub fn make_shard(addresses: &[SocketAddr]) {
    make_shards(addresses, 1);
}

/// Makes so many shards of as many of these nodes each. The first of each leads.
///
/// # Panics
/// A node refuses.
pub fn make_shards(addresses: &[SocketAddr], count: usize) {
    const SLOTS: usize = 16384;
    let ask = |address: SocketAddr, request: &str| {
        let mut client = Client::connect_with(address, Protocol::Resp2);
        crate::client::ok(client.as_mut().expect("it listens"), request)
    };
    let (host, port) = (addresses[0].ip(), addresses[0].port());
    for (at, nodes) in addresses.chunks_exact(addresses.len() / count).enumerate() {
        let (first, end) = (at * SLOTS / count, (at + 1) * SLOTS / count);
        if at > 0 {
            ask(nodes[0], &format!("CLUSTER MEET {host} {port}"));
        }
        ask(nodes[0], &format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1));
        let id = crate::cluster::text(ask(nodes[0], "CLUSTER MYID"));
        for &node in &nodes[1..] {
            ask(node, &format!("CLUSTER MEET {host} {port}"));
            ask(node, &format!("CLUSTER REPLICATE {id}"));
        }
    }
}
