//! A replica behind a link that carries less than is written: 1 MB/s, of which 1 % is lost, 50 ms
//! late. The primary's memory stays within its options, no write waits or is refused, the replica
//! goes on where it was or the primary's log says why it could not, and in the end both are equal.
//!
//! Beside the primary there is one without a replica, on the same machine (a network namespace) and
//! under the same writes: what it takes is what the replica does not cost. `./test slow-links 60`
//! writes for a minute; without `DUNLIN_SLOW_SECONDS` it is ten seconds. Latencies are printed and
//! not compared, since the machine is shared.

use harness::client::{Client, ask, ok};
use harness::contents::contents;
use harness::environment::{seconds, skipped};
use harness::info::number;
use harness::network::{BadLink, Network};
use harness::replicas::{Link, assert_same, dunlin, is_linked};
use harness::server::Server;
use harness::stalls::histogram::Histogram;
use harness::wait::{SetAtEnd, eventually};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// The machine of the primaries and the writers, and that of the replica.
const PRIMARY: usize = 0;
const REPLICA: usize = 1;

const LINK: BadLink = BadLink { bytes_per_second: 1_000_000, lost_percent: 1, late_ms: 50 };

/// Six times what the link carries, if the machine has time for it.
const WRITERS: usize = 2;
const PAUSE: Duration = Duration::from_micros(6600);
const VALUE: usize = 20_000;
const KEYS: usize = 500;

const MIB: u64 = 1 << 20;
const BACKLOG: u64 = 4 * MIB;
const MAXMEMORY: u64 = 128 * MIB;
/// A replica that never catches up is allowed more each time, up to this.
const MOST_BEHIND: u64 = MAXMEMORY / 4;
/// What a snapshot that is sent keeps of values that were overwritten: each once.
const OF_SNAPSHOT: u64 = (KEYS * VALUE) as u64;
/// The window of the stream, the replica's buffers, and what was freed and not given back.
const OTHERS: u64 = 16 * MIB;

/// The most that a server has taken.
#[derive(Clone, Copy, Default, Debug)]
struct Memory {
    used: u64,
    resident: u64,
}

impl Memory {
    fn note(&mut self, server: &Server, client: &mut Client) {
        self.resident = self.resident.max(server.resident_bytes());
        self.used = self.used.max(number(client, "used_memory"));
    }
}

fn start(network: &Network) -> (Server, Server, Server) {
    let host = network.address(PRIMARY).to_string();
    let (backlog, maxmemory) = (BACKLOG.to_string(), MAXMEMORY.to_string());
    let options = [
        ["--maxmemory", &maxmemory],
        ["--repl-backlog-size", &backlog],
        ["--client-output-buffer-limit", "replica 8mb 4mb 10"],
        ["--io-threads", "2"],
        ["--protected-mode", "no"],
    ];
    let words: Vec<&str> =
        ["--bind", &host, "127.0.0.1"].into_iter().chain(options.concat()).collect();
    let [primary, alone] = [(); 2].map(|()| network.at(PRIMARY, || dunlin(&words)));
    let there = network.address(REPLICA).to_string();
    let port = primary.port().to_string();
    let words =
        ["--bind", &there, "127.0.0.1", "--protected-mode", "no", "--replicaof", &host, &port];
    let replica = network.at(REPLICA, || dunlin(&words));
    (primary, alone, replica)
}

/// Writes until it is over. Returns how long each write took.
fn write(address: SocketAddr, writer: usize, is_over: &AtomicBool) -> Histogram {
    let mut client = Client::connect(address).expect("it listens");
    let mut times = Histogram::default();
    for count in 0.. {
        if is_over.load(SeqCst) {
            break;
        }
        set(&mut client, count * WRITERS + writer, &mut times);
        thread::sleep(PAUSE);
    }
    times
}

fn set(client: &mut Client, number: usize, times: &mut Histogram) {
    let (key, value) = (format!("key:{}", number % KEYS), format!("{number:0VALUE$}"));
    let began = Instant::now();
    ok(client, &["SET", &key, &value]);
    times.record(began.elapsed().as_micros() as u64);
}

/// Writes to both primaries for a time, and on until it is enough on a machine that is busy.
/// Returns the latencies of each, and what it has taken.
fn storm(
    primaries: [&Server; 2],
    time: Duration,
    mut is_enough: impl FnMut() -> bool,
) -> ([Histogram; 2], [Memory; 2]) {
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let writers = primaries.map(|server| {
            let address = server.address();
            let is_over = &is_over;
            [0, 1].map(|writer| threads.spawn(move || write(address, writer, is_over)))
        });
        let over = SetAtEnd(&is_over);
        let mut clients = primaries.map(Server::client);
        let mut memory = [Memory::default(); 2];
        let began = Instant::now();
        while began.elapsed() < time || (began.elapsed() < 6 * time && !is_enough()) {
            for ((memory, server), client) in memory.iter_mut().zip(primaries).zip(&mut clients) {
                memory.note(server, client);
            }
            thread::sleep(Duration::from_millis(50));
        }
        drop(over);
        let times = writers.map(|writers| {
            let mut all = Histogram::default();
            writers.into_iter().for_each(|it| all.merge(&it.join().expect("no write fails")));
            all
        });
        (times, memory)
    })
}

fn offset(client: &mut Client) -> u64 {
    number(client, "master_repl_offset")
}

/// What the primary's log says of replicas that could not go on.
fn reasons(primary: &Server) -> Vec<String> {
    const REASONS: [&str; 3] =
        ["is too far behind", "Unable to partial resync", "Partial resynchronization not accepted"];
    let log = primary.log();
    let is_reason = |line: &&str| REASONS.iter().any(|reason| line.contains(reason));
    log.lines().filter(is_reason).map(str::to_owned).collect()
}

#[test]
fn a_replica_behind_a_bad_link_costs_its_primary_no_time_and_bounded_memory() {
    let network = match Network::new(2) {
        Ok(network) => network,
        Err(why) => return skipped(format_args!("no network namespaces: {why}")),
    };
    let (primary, alone, replica) = start(&network);
    network.at(PRIMARY, || run(&network, &primary, &alone, &replica));
}

fn run(network: &Network, primary: &Server, alone: &Server, replica: &Server) {
    let mut ours = primary.client();
    let there = SocketAddr::from((network.address(REPLICA), replica.port()));
    let mut theirs = Client::connect(there).expect("it listens");
    eventually("the link is up", || is_linked(&mut theirs));
    for server in [primary, alone] {
        let mut client = server.client();
        (0..KEYS).for_each(|number| set(&mut client, number, &mut Histogram::default()));
    }
    eventually("it has everything", || offset(&mut ours) == offset(&mut theirs));
    let means = [PRIMARY, REPLICA].map(|machine| network.slow(machine, LINK));
    let means = match means {
        [Ok(means), Ok(_)] => means,
        [Err(why), _] | [_, Err(why)] => return skipped(format_args!("no slow links: {why}")),
    };
    println!("{LINK:?}, by {means}");
    goes_on_where_it_was(&mut ours, &mut theirs);
    let full_before = number(&mut ours, "sync_full");
    let time = seconds("DUNLIN_SLOW_SECONDS").unwrap_or(Duration::from_secs(10));
    let before = offset(&mut ours);
    let ([with, without], [ours_took, alone_took]) = storm([primary, alone], time, || {
        offset(&mut ours).saturating_sub(offset(&mut theirs)) > BACKLOG
    });
    let written = offset(&mut ours) - before;
    let lag = offset(&mut ours).saturating_sub(offset(&mut theirs));
    println!("{written} bytes written in {time:?}, {lag} of which the replica lacks");
    let p99 = [&with, &without].map(|times| times.quantile_us(0.99));
    let ratio = p99[0] as f64 / p99[1] as f64;
    println!("p99 of SET with the replica {} µs, without {} µs: {ratio:.2} ×", p99[0], p99[1]);
    println!("longest {} µs and {} µs", with.longest_us(), without.longest_us());
    println!("memory with the replica {ours_took:?}, without {alone_took:?}");
    let was_cut_off = number(&mut ours, "sync_full") > full_before;
    assert!(was_cut_off || lag > BACKLOG, "the link has carried everything: nothing is to see");
    let most = MOST_BEHIND + BACKLOG + OF_SNAPSHOT + OTHERS;
    assert!(ours_took.used < alone_took.used + most, "{ours_took:?}, beside it {alone_took:?}");
    let most = most + most / 2;
    assert!(ours_took.resident < alone_took.resident + most, "{ours_took:?}, {alone_took:?}");
    network.quicken();
    eventually("the link is up", || is_linked(&mut theirs));
    eventually("it has everything", || offset(&mut ours) == offset(&mut theirs));
    assert_same(&contents(&mut ours), &contents(&mut theirs));
    let [full, partial] = ["sync_full", "sync_partial_ok"].map(|name| number(&mut ours, name));
    println!("{full} full synchronisations, {partial} partial ones; the log says:");
    let reasons = reasons(primary);
    reasons.iter().for_each(|line| println!("  {line}"));
    let says_why = full == full_before || !reasons.is_empty();
    assert!(says_why, "the log does not say why:\n{}", primary.log());
}

/// A replica whose connection ends while it is behind, but not behind the backlog, gets what it
/// lacks.
fn goes_on_where_it_was(ours: &mut Client, theirs: &mut Client) {
    // On a busy machine it was cut off before, while it got its first data.
    let before = ["sync_full", "sync_partial_ok"].map(|name| number(ours, name));
    let mut times = Histogram::default();
    (0..100).for_each(|number| set(ours, number, &mut times));
    ask(ours, "CLIENT KILL TYPE replica");
    eventually("it is back", || number(ours, "sync_partial_ok") == before[1] + 1);
    eventually("it has everything", || offset(ours) == offset(theirs));
    assert_eq!(number(ours, "sync_full"), before[0], "there is no need for a snapshot");
}

/// Bytes of a snapshot that come through before its link stands still.
const BEGUN: u64 = 1 << 20;
/// With these values more than sockets hold.
const KEYS_OF_SNAPSHOT: usize = 40_000;
const VALUE_OF_SNAPSHOT: usize = 2000;

/// What writers overwrite is kept for the replica up to a limit. Beyond, they wait for a replica
/// that takes nothing for as long as they have patience, which is less than `repl-timeout`; then it
/// has to begin again, with twice the limit.
#[test]
fn writes_do_not_wait_for_a_snapshot_that_no_replica_takes() {
    let primary = dunlin(&[
        "--snapshot-buffer-limit",
        "64kb",
        "--repl-timeout",
        "3600",
        "--rdbcompression",
        "no",
    ]);
    let mut ours = primary.client();
    let populate = format!("DEBUG POPULATE {KEYS_OF_SNAPSHOT} key {VALUE_OF_SNAPSHOT}");
    ok(&mut ours, &*populate);
    let link = Link::to(primary.address()).expect("a port");
    link.hold_after(BEGUN);
    let replica = dunlin(&["--replicaof", "127.0.0.1", &link.port().to_string()]);
    primary.logs("Starting sync with target");
    for number in 0..KEYS_OF_SNAPSHOT {
        ok(&mut ours, &["SET", &format!("key:{number}"), &number.to_string()]);
    }
    primary.logs("failed: writes have waited for it");
    link.release();
    let mut theirs = replica.client();
    eventually("it has everything", || {
        is_linked(&mut theirs) && offset(&mut ours) == offset(&mut theirs)
    });
    assert_same(&contents(&mut ours), &contents(&mut theirs));
}
