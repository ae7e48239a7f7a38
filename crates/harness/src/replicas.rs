//! Primaries and replicas in tests: random writes, comparing what two servers hold, and a link that
//! can be cut.

use crate::client::Client;
use crate::contents::{Contents, LAG_OF_ALL, contents};
use crate::info::{field, number};
use crate::rng::Rng;
use crate::server::{Options, Program, Server};
use crate::wait::{SetAtEnd, eventually};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// A server without save points whose snapshots for replicas begin at once.
///
/// # Panics
/// It does not start.
#[track_caller]
pub fn start(program: &Program, arguments: &[&str]) -> Server {
    let all = [&["--save", "", "--repl-diskless-sync-delay", "0"], arguments].concat();
    Server::start(program, Options::arguments(&all)).expect("it starts")
}

/// As [`start`], of the program under test.
///
/// # Panics
/// As [`start`] does.
#[track_caller]
pub fn dunlin(arguments: &[&str]) -> Server {
    start(&Program::under_test(), arguments)
}

/// Waits until a replica gets the stream.
///
/// # Panics
/// It does not.
#[track_caller]
pub fn until_linked(replica: &Server) {
    let mut client = replica.client();
    eventually("the link is up", || is_linked(&mut client));
}

/// Makes so many random writes.
///
/// # Panics
/// If the server does not answer.
pub fn fill(server: &Server, seed: u64, writes: usize) {
    let (mut client, mut rng) = (server.client(), Rng::new(seed));
    (0..writes).for_each(|_| write(&mut client, &mut rng));
}

/// Answers every connection with these bytes, and closes it: the port, and how many there were.
///
/// # Panics
/// There is no port.
pub fn lying_primary(answer: Vec<u8>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // The other end may have had enough of it.
            let _ = client.write_all(&answer);
            let _ = client.shutdown(Shutdown::Write);
            let _ = io::copy(&mut client, &mut io::sink());
            count.fetch_add(1, SeqCst);
        }
    });
    (port, connections)
}

/// A random write, of every type and in several databases; a script or a transaction now and then.
///
/// # Panics
/// If the server does not answer.
pub fn write(client: &mut Client, rng: &mut Rng) {
    try_write(client, rng).expect("a reply");
}

/// As [`write`].
///
/// # Errors
/// The server does not answer.
pub fn try_write(client: &mut Client, rng: &mut Rng) -> io::Result<()> {
    let key = format!("k{}", rng.below(200));
    let (word, number) = (format!("m{}", rng.below(50)), rng.below(1000).to_string());
    let script = "redis.call('SET', KEYS[1], ARGV[1]); return redis.call('INCR', KEYS[2])";
    let request: Vec<&str> = match rng.below(17) {
        0 => vec!["SET", &key, &number],
        1 => vec!["SADD", &key, &word, &number],
        2 => vec!["RPUSH", &key, &word],
        3 => vec!["HSET", &key, &word, &number],
        4 => vec!["ZADD", &key, &number, &word],
        5 => vec!["DEL", &key],
        6 => vec!["SPOP", &key],
        7 => vec!["LPOP", &key],
        8 => vec!["PEXPIRE", &key, "100000"],
        9 => vec!["APPEND", &key, &word],
        10 => vec!["SELECT", if number.len() == 3 { "0" } else { "5" }],
        11 => vec!["XADD", &key, "MAXLEN", "20", "*", &word, &number],
        12 => vec!["EVAL", script, "2", &key, "counter", &word],
        13 => {
            for request in [&["MULTI"][..], &["INCR", "{t}a"], &["INCR", "{t}b"]] {
                client.command(request)?;
            }
            vec!["EXEC"]
        }
        14 => vec!["RENAME", &key, &word],
        15 => return try_change_stream(client, rng),
        _ => vec!["COPY", &key, &word, "REPLACE"],
    };
    // A wrong type is an error, and changes nothing.
    client.command(&request).map(drop)
}

/// A random change of one of a few streams with groups. Some commands and options not every server
/// knows.
///
/// # Panics
/// If the server does not answer.
pub fn change_stream(client: &mut Client, rng: &mut Rng) {
    try_change_stream(client, rng).expect("a reply");
}

fn try_change_stream(client: &mut Client, rng: &mut Rng) -> io::Result<()> {
    let key = format!("s{}", rng.below(5));
    let (group, consumer) = (format!("g{}", rng.below(3)), format!("c{}", rng.below(3)));
    let first = client.command(&["XRANGE", &key, "-", "+", "COUNT", "8"])?;
    let ids: Vec<String> = first
        .elements()
        .unwrap_or_default()
        .iter()
        .filter_map(|entry| Some(entry.elements()?.first()?.shown()))
        .collect();
    let id = ids.get(rng.below(8)).map_or("1-1", String::as_str);
    let references = ["KEEPREF", "DELREF", "ACKED"][rng.below(3)];
    let length = rng.below(30).to_string();
    let request: Vec<&str> = match rng.below(20) {
        0 => vec!["XGROUP", "CREATE", &key, &group, "0", "MKSTREAM"],
        1..=5 => {
            vec!["XREADGROUP", "GROUP", &group, &consumer, "COUNT", "3", "STREAMS", &key, ">"]
        }
        6..=7 => vec!["XACK", &key, &group, id],
        8 => vec!["XCLAIM", &key, &group, &consumer, "0", id],
        9 => vec!["XAUTOCLAIM", &key, &group, &consumer, "0", "0", "COUNT", "2"],
        10 => vec!["XDEL", &key, id],
        11 => vec!["XTRIM", &key, "MAXLEN", &length],
        12 => vec!["XTRIM", &key, "MAXLEN", &length, references],
        13 => vec!["XDELEX", &key, references, "IDS", "2", id, "5-5"],
        14 => vec!["XACKDEL", &key, &group, references, "IDS", "1", id],
        15 => vec!["XADD", &key, "MAXLEN", "~", "50", references, "*", "f", &consumer],
        16 => vec!["XADD", &key, references, "MAXLEN", "20", "*", "f", &consumer],
        17 => vec!["XNACK", &key, &group, "FAIL", "IDS", "1", id, "FORCE"],
        _ => vec!["XADD", &key, "*", "f", &consumer],
    };
    // An unknown command or group is an error, and changes nothing.
    client.command(&request).map(drop)
}

/// Has the groups of [`change_stream`] forget what is pending but deleted: a log base that is
/// written as commands cannot say that, here as in Valkey.
///
/// # Panics
/// If the server does not answer.
pub fn forget_deleted(client: &mut Client) {
    // The databases of `write`; the client is in the first afterwards.
    for db in ["5", "0"] {
        client.command(&["SELECT", db]).expect("a reply");
        for (stream, group) in (0..5).flat_map(|stream| (0..3).map(move |group| (stream, group))) {
            let (key, group) = (format!("s{stream}"), format!("g{group}"));
            // There need not be such a group.
            let request = ["XAUTOCLAIM", &key, &group, "c0", "0", "0", "COUNT", "100000"];
            client.command(&request).expect("a reply");
        }
    }
}

/// Waits until the replica has everything, and compares.
///
/// # Panics
/// They differ.
pub fn compare(primary: &Server, replica: &Server) {
    let (mut ours, mut theirs) = (primary.client(), replica.client());
    eventually("the replica has everything", || {
        number(&mut theirs, "master_repl_offset") == number(&mut ours, "master_repl_offset")
    });
    let versions = [&mut ours, &mut theirs].map(|client| field(client, "redis_version"));
    let is_any = |version| versions.iter().any(|one| one.starts_with(version));
    let seen = |client: &mut Client| {
        let mut contents = contents(client);
        if is_any("7.0.") {
            // It estimates by other rules how many entries a group has read, and how many are left.
            forget(&mut contents, "entries-read=", 2);
        }
        if is_any("8.") {
            forget(&mut contents, LAG_OF_ALL, 1);
        }
        contents
    };
    assert_same(&seen(&mut ours), &seen(&mut theirs));
}

/// Takes so many words out of every value wherever they begin in this way.
fn forget(contents: &mut Contents, beginning: &str, words: usize) {
    for (value, _) in contents.values_mut() {
        let mut parts = value.split(beginning);
        let mut rest = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            rest += part.splitn(words + 1, ' ').nth(words).unwrap_or_default();
        }
        *value = rest;
    }
}

/// Compares what two servers hold, or one at two moments.
///
/// # Panics
/// They differ.
#[track_caller]
pub fn assert_same(ours: &Contents, theirs: &Contents) {
    assert!(!ours.is_empty(), "there is something to compare");
    let different =
        |(key, value): &(&(u32, Vec<u8>), &(String, i64))| theirs.get(key) != Some(value);
    if let Some((key, value)) = ours.iter().find(different) {
        let (ours, theirs) = (format!("{value:?}"), format!("{:?}", theirs.get(key)));
        panic!("they differ: {key:?} {}", difference(&ours, theirs.trim_start_matches("Some(")));
    }
    assert!(ours.len() == theirs.len(), "there are keys that should not be there");
}

/// Where two texts begin to differ, and what is around that.
fn difference(ours: &str, theirs: &str) -> String {
    const AROUND: usize = 300;
    let same = ours.bytes().zip(theirs.bytes()).take_while(|(one, other)| one == other).count();
    let begin = same.saturating_sub(AROUND);
    let part = |text: &str| {
        let end = text.len().min(same + AROUND);
        String::from_utf8_lossy(&text.as_bytes()[begin.min(end)..end]).into_owned()
    };
    format!("from byte {same} on, is\n…{}…\nand there\n…{}…", part(ours), part(theirs))
}

/// Whether a replica gets the stream.
pub fn is_linked(replica: &mut Client) -> bool {
    field(replica, "master_link_status") == "up"
}

/// Does something while three clients write.
pub fn while_writing(primary: &Server, seed: u64, work: impl FnOnce()) {
    let stops = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3 {
            let stops = &stops;
            scope.spawn(move || {
                let (mut client, mut rng) = (primary.client(), Rng::new(seed + thread));
                while !stops.load(Relaxed) {
                    write(&mut client, &mut rng);
                }
            });
        }
        let _stops = SetAtEnd(&stops);
        work();
    });
}

/// A link that connections go through on their way to a server. It can be cut, at once or after
/// some more bytes have come from there, and can hold back what comes.
pub struct Link {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// How many more bytes may come from the server before each connection is cut.
    budget: AtomicU64,
    sockets: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    /// How many bytes of each connection may come from the server at present; `None`: all of them.
    passing: Mutex<Option<u64>>,
    changed: Condvar,
    is_over: AtomicBool,
}

impl State {
    /// Waits until so many bytes of a connection may have come.
    fn wait_until_passing(&self, bytes: u64) {
        let mut passing = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        while passing.is_some_and(|most| bytes > most) {
            passing = self.changed.wait(passing).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn pass(&self, most: Option<u64>) {
        *self.passing.lock().unwrap_or_else(PoisonError::into_inner) = most;
        self.changed.notify_all();
    }

    fn cut(&self) {
        for socket in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Link {
    /// A link to a server.
    ///
    /// # Errors
    /// There is no port to listen on.
    pub fn to(target: SocketAddr) -> io::Result<Link> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State { budget: AtomicU64::new(u64::MAX), ..State::default() });
        let own = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if own.is_over.load(SeqCst) {
                    break;
                }
                let Ok(client) = client else { break };
                // Where the server is not there, the client is to find that out by itself.
                let Ok(server) = TcpStream::connect(target) else { continue };
                let Ok(()) = forward(&own, client, server) else { continue };
            }
        });
        Ok(Link { port, state })
    }

    /// Where to connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// Cuts all connections when so many more bytes have come from the server; once.
    pub fn cut_after(&self, bytes: u64) {
        self.state.budget.store(bytes, SeqCst);
    }

    /// Holds every connection back that has brought so many bytes from the server, until it is
    /// released.
    pub fn hold_after(&self, bytes: u64) {
        self.state.pass(Some(bytes));
    }

    /// Ends that.
    pub fn release(&self) {
        self.state.pass(None);
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.state.connections.load(SeqCst)
    }

    /// Whether a cut is still to come.
    pub fn is_to_be_cut(&self) -> bool {
        self.state.budget.load(SeqCst) != u64::MAX
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.is_over.store(true, SeqCst);
        self.state.pass(None);
        self.state.cut();
        // The thread that listens finds out.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// Sends on what comes from one socket to the other until one of them ends, on a thread of its own.
pub(crate) fn send_on(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        // An error ends the connection, as its end does.
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Starts the two directions of a connection.
fn forward(state: &Arc<State>, client: TcpStream, server: TcpStream) -> io::Result<()> {
    let mut sockets = state.sockets.lock().unwrap_or_else(PoisonError::into_inner);
    sockets.retain(|socket| socket.peer_addr().is_ok());
    sockets.extend([client.try_clone()?, server.try_clone()?]);
    drop(sockets);
    state.connections.fetch_add(1, SeqCst);
    send_on(client.try_clone()?, server.try_clone()?);
    let state = Arc::clone(state);
    thread::spawn(move || {
        let (mut server, mut client) = (server, client);
        let (mut piece, mut brought) = ([0; 4096], 0);
        while let Ok(read @ 1..) = server.read(&mut piece) {
            brought += read as u64;
            state.wait_until_passing(brought);
            let budget = state.budget.load(SeqCst);
            let most = usize::try_from(budget).unwrap_or(usize::MAX).min(read);
            if client.write_all(&piece[..most]).is_err() {
                break;
            }
            if budget == u64::MAX {
                continue;
            }
            if most < read || budget == most as u64 {
                state.budget.store(u64::MAX, SeqCst);
                state.cut();
                break;
            }
            state.budget.store(budget - most as u64, SeqCst);
        }
        let _ = client.shutdown(Shutdown::Both);
        // What waits to be read would keep the server from sending more, and so from learning that
        // nobody is there.
        let _ = server.shutdown(Shutdown::Both);
        let _ = io::copy(&mut server, &mut io::sink());
    });
    Ok(())
}
