//! Who is the master, and who has which slot: asked of sentinels and of a cluster's nodes.
//!
//! One thread a pool asks, and changes the pool's topology. Sentinels are also subscribed to; their
//! message makes the thread ask at once, because the answer of the majority decides, not one
//! message.

use crate::config::{Address, Kind, Login, Reads, ServerTls};
use crate::hub::server_at;
use crate::pool::Shared;
use resp::{ReplyLimits, Scanned, Scanner};
use route::{raw, slots};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Between two rounds of questions.
const ROUND: Duration = Duration::from_secs(2);
/// Between two looks at whether there is a reason to ask now.
const LOOK: Duration = Duration::from_millis(20);

/// A stream of bytes, plain or not.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A connection that waits for its replies.
struct Asking {
    stream: Box<dyn Stream>,
    input: Vec<u8>,
    scanner: Scanner,
}

impl Asking {
    /// To a server of the pool.
    fn server(shared: &Shared, address: &Address) -> io::Result<Asking> {
        let tls = shared.config.server_tls.as_ref();
        Asking::connect(shared, address, shared.config.login.as_ref(), tls)
    }

    /// To a sentinel of the pool.
    fn sentinel(shared: &Shared, address: &Address) -> io::Result<Asking> {
        let tls = shared.config.server_tls.as_ref().filter(|_| shared.config.sentinel_tls);
        Asking::connect(shared, address, shared.config.sentinel_login.as_ref(), tls)
    }

    fn connect(
        shared: &Shared,
        address: &Address,
        login: Option<&Login>,
        tls: Option<&ServerTls>,
    ) -> io::Result<Asking> {
        let Address::Tcp(host, port) = address else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let target = (&host[..], *port).to_socket_addrs()?.next();
        let target = target.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stream = TcpStream::connect_timeout(&target, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let stream: Box<dyn Stream> = match tls.zip(shared.server_rules()) {
            Some((tls, rules)) => {
                Box::new(net::shake_hands(rules, &tls.name_of(address), stream, || false)?)
            }
            None => Box::new(stream),
        };
        let scanner = Scanner::new(ReplyLimits::PEER);
        let mut asking = Asking { stream, input: Vec::new(), scanner };
        if let Some(login) = login {
            let password = login.password.as_bytes();
            let reply = match &login.user {
                Some(user) => asking.ask(&[b"AUTH", user.as_bytes(), password])?,
                None => asking.ask(&[b"AUTH", password])?,
            };
            if raw::is_error(&reply) {
                return Err(io::Error::other(String::from_utf8_lossy(&reply).trim().to_owned()));
            }
        }
        Ok(asking)
    }

    fn ask(&mut self, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        self.stream.write_all(&raw::request(words))?;
        self.next()
    }

    fn next(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = [0; 4096];
        loop {
            match self.scanner.scan(&self.input) {
                Ok(Scanned::Reply { len }) => return Ok(self.input.drain(..len).collect()),
                Ok(Scanned::Incomplete { .. }) => {}
                Err(why) => return Err(io::Error::other(why)),
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => self.input.extend_from_slice(&buffer[..len]),
            }
        }
    }
}

/// Asks once, before clients are let in.
pub fn first(shared: &Arc<Shared>) {
    round(shared, |_| {});
}

/// Asks again and again.
pub fn run(shared: &Arc<Shared>, log: fn(&str)) {
    if let Kind::Sentinel { sentinels, .. } = &shared.config.kind {
        for sentinel in sentinels.clone() {
            let shared = shared.clone();
            let _ = process::thread::spawn("sentinel", move || listen(&shared, &sentinel));
        }
    }
    while !shared.is_retired.load(SeqCst) {
        round(shared, log);
        let until = Instant::now() + ROUND;
        while Instant::now() < until && !shared.is_stale.swap(false, SeqCst) {
            std::thread::sleep(LOOK);
        }
    }
}

fn round(shared: &Shared, log: impl Fn(&str)) {
    match &shared.config.kind {
        Kind::Sentinel { sentinels, master } => {
            find_master(shared, sentinels, master, log);
            if shared.config.reads != Reads::Primary {
                let replicas = find_replicas(shared, sentinels, master);
                set_replicas(shared, &[(0, replicas)]);
            }
        }
        Kind::Cluster { seeds } => find_slots(shared, seeds),
        _ => {}
    }
}

/// Makes the thread of the pool ask when a sentinel says that the master has changed.
fn listen(shared: &Shared, sentinel: &Address) {
    while !shared.is_retired.load(SeqCst) {
        if let Ok(mut asking) = Asking::sentinel(shared, sentinel) {
            let subscribed = asking.ask(&[b"SUBSCRIBE", b"+switch-master"]);
            // What was said meanwhile is asked for.
            shared.is_stale.store(true, SeqCst);
            while subscribed.is_ok() && !shared.is_retired.load(SeqCst) {
                match asking.next() {
                    Ok(_) => shared.is_stale.store(true, SeqCst),
                    Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn find_master(shared: &Shared, sentinels: &[Address], master: &str, log: impl Fn(&str)) {
    let mut votes: HashMap<Address, usize> = HashMap::new();
    for sentinel in sentinels {
        let words: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", master.as_bytes()];
        let reply = Asking::sentinel(shared, sentinel).and_then(|mut asking| asking.ask(&words));
        let Ok(reply) = reply else { continue };
        let parts = raw::elements(&reply).unwrap_or_default();
        let text = |at: usize| {
            let part = parts.get(at).and_then(|part| raw::text(part));
            part.map(|part| String::from_utf8_lossy(part).into_owned())
        };
        if let (Some(host), Some(Ok(port))) = (text(0), text(1).map(|port| port.parse())) {
            *votes.entry(Address::Tcp(host, port)).or_default() += 1;
        }
    }
    let answers: usize = votes.values().sum();
    let Some((address, _)) = votes.into_iter().find(|(_, count)| count * 2 > answers) else {
        return;
    };
    if shared.topology().servers.first() == Some(&address) {
        return;
    }
    // A sentinel that lags names a master of the past, and one that has just been chosen may still
    // be a replica: no write may go there.
    match role(shared, &address) {
        Some(role) if role != "master" => {
            if shared.doubted.swap(true, SeqCst) {
                return;
            }
            let name = &shared.config.name;
            return log(&format!("pool {name}: {address} is called the master but is a {role}"));
        }
        _ => {}
    }
    shared.doubted.store(false, SeqCst);
    log(&format!("pool {}: the master is {address}", shared.config.name));
    shared.change(|topology| match topology.servers.first_mut() {
        Some(server) => {
            *server = address;
            shared.switches.fetch_add(1, SeqCst);
            shared.failures[0].store(0, SeqCst);
        }
        None => topology.servers.push(address),
    });
    // Whoever asked before the switch may have been told the old master.
    shared.is_stale.store(true, SeqCst);
}

/// The replicas that a sentinel knows.
fn find_replicas(shared: &Shared, sentinels: &[Address], master: &str) -> Vec<Address> {
    let words: [&[u8]; 3] = [b"SENTINEL", b"REPLICAS", master.as_bytes()];
    let ask = |sentinel| {
        let reply = Asking::sentinel(shared, sentinel).ok()?.ask(&words).ok()?;
        let replicas = raw::elements(&reply)?;
        Some(replicas.iter().filter_map(|replica| address_of(replica)).collect())
    };
    sentinels.iter().find_map(ask).unwrap_or_default()
}

/// The address in what a sentinel says about a server: names and values in turn.
fn address_of(fields: &[u8]) -> Option<Address> {
    let fields = raw::elements(fields)?;
    let value = |name: &[u8]| {
        let mut pairs = fields.chunks_exact(2);
        let pair = pairs.find(|pair| raw::text(pair[0]) == Some(name))?;
        Some(String::from_utf8_lossy(raw::text(pair[1])?).into_owned())
    };
    Some(Address::Tcp(value(b"ip")?, value(b"port")?.parse().ok()?))
}

/// Finds out which of these replicas, by the numbers of their primaries, may be read: those that
/// are connected to their primary and not further behind it than the configuration allows.
fn set_replicas(shared: &Shared, known: &[(u16, Vec<Address>)]) {
    let mut usable: Vec<Vec<u16>> = Vec::new();
    for (primary, replicas) in known {
        let Some(address) = shared.topology().servers.get(usize::from(*primary)).cloned() else {
            continue;
        };
        // Asked first, so that a replica that keeps up is not behind.
        let Some(Standing::Primary(offset)) = standing(shared, &address) else { continue };
        let keeps_up = |replica: &&Address| match standing(shared, replica) {
            Some(Standing::Replica(own)) => offset.saturating_sub(own) <= shared.config.max_lag,
            _ => false,
        };
        let replicas = replicas.iter().filter(|replica| **replica != address).filter(keeps_up);
        let mut numbers: Vec<u16> = replicas.filter_map(|at| server_at(shared, at)).collect();
        numbers.sort_unstable();
        usable.resize_with(usable.len().max(usize::from(*primary) + 1), Vec::new);
        usable[usize::from(*primary)] = numbers;
    }
    if shared.topology().replicas != usable {
        shared.change(|topology| topology.replicas = usable);
    }
}

/// What a server says of its place in replication.
enum Standing {
    /// Bytes that it has sent.
    Primary(u64),
    /// Bytes that it has of its primary, to which it is connected.
    Replica(u64),
}

fn standing(shared: &Shared, address: &Address) -> Option<Standing> {
    let reply = Asking::server(shared, address).ok()?.ask(&[b"ROLE"]).ok()?;
    let parts = raw::elements(&reply)?;
    let offset = |at: usize| u64::try_from(raw::integer(parts.get(at)?)?).ok();
    match raw::text(parts.first()?)? {
        b"master" => Some(Standing::Primary(offset(1)?)),
        _ if raw::text(parts.get(3)?)? == b"connected" => Some(Standing::Replica(offset(4)?)),
        _ => None,
    }
}

/// What a server says that it is; nothing if it does not answer, or may not say.
fn role(shared: &Shared, address: &Address) -> Option<String> {
    let reply = Asking::server(shared, address).ok()?.ask(&[b"ROLE"]).ok()?;
    let parts = raw::elements(&reply)?;
    Some(String::from_utf8_lossy(raw::text(parts.first()?)?).into_owned())
}

fn find_slots(shared: &Shared, seeds: &[Address]) {
    let mut asked = shared.topology().servers;
    asked.extend_from_slice(seeds);
    for node in asked {
        let reply = Asking::server(shared, &node)
            .and_then(|mut asking| asking.ask(&[b"CLUSTER", b"SLOTS"]));
        let Some(ranges) = reply.ok().and_then(|reply| slots::parse(&reply)) else { continue };
        if ranges.is_empty() {
            continue;
        }
        let address = |(host, port): &slots::Address| {
            let host = match (&host[..], &node) {
                ("", Address::Tcp(host, _)) => host.clone(),
                _ => host.clone(),
            };
            Address::Tcp(host, *port)
        };
        let mut table = vec![None; slots::SLOTS];
        let mut copies: HashMap<u16, Vec<Address>> = HashMap::new();
        for range in ranges {
            let Some((primary, replicas)) = range.nodes.split_first() else { continue };
            let server = server_at(shared, &address(primary));
            for slot in range.first..=range.last {
                table[usize::from(slot)] = server;
            }
            let Some(server) = server else { continue };
            copies.entry(server).or_insert_with(|| replicas.iter().map(address).collect());
        }
        if shared.topology().slots != table {
            shared.change(|topology| topology.slots = table);
        }
        if shared.config.reads != Reads::Primary {
            set_replicas(shared, &copies.into_iter().collect::<Vec<_>>());
        }
        return;
    }
}
