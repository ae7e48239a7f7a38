//! Who is the master, and who has which slot: asked of sentinels and of a cluster's nodes.
//!
//! One thread a pool asks, and changes the pool's topology. Sentinels are also subscribed to; their
//! message makes the thread ask at once, because the answer of the majority decides, not one
//! message.

use client::{Client, Connector, Patience, parse_slots};
use forward::hub::server_at;
use forward::pool::{Place, Shared};
use forward::settings::{Address, Login, PoolKind, Reads};
use resp::Value;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use structs::crc16::SLOTS;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The longest answer: a cluster of a thousand nodes says its slots in much less.
const MAX_REPLY: usize = 64 << 20;
/// The time between two rounds of questions.
const ROUND_EVERY: Duration = Duration::from_secs(2);
/// How often a thread looks whether it has to ask before the next round.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Connects to a server of the pool.
fn server(shared: &Shared, address: &Address) -> io::Result<Client> {
    connect(shared, address, shared.config.login.as_ref(), true)
}

/// Connects to a sentinel of the pool.
fn sentinel(shared: &Shared, address: &Address) -> io::Result<Client> {
    connect(shared, address, shared.config.sentinel_login.as_ref(), shared.config.sentinel_tls)
}

fn connect(
    shared: &Shared,
    address: &Address,
    login: Option<&Login>,
    may_encrypt: bool,
) -> io::Result<Client> {
    let Address::Tcp(host, port) = address else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let tls = match may_encrypt {
        true => {
            shared.tls_client(&address.clone().into()).map_err(|why| io::Error::other(why.0))?
        }
        false => None,
    };
    let (user, password) = match login {
        Some(login) => (login.user.as_deref().unwrap_or_default(), &*login.password),
        None => ("", ""),
    };
    let connector = Connector {
        tls: tls.as_ref(),
        login: client::Login { user, password },
        max_reply: MAX_REPLY,
        ..Connector::plain(Patience::Each(TIMEOUT))
    };
    connector.open(&client::Address::tcp(host, *port))
}

/// Asks once, before clients may connect.
pub fn ask_once(shared: &Arc<Shared>) {
    round(shared, |_| {});
}

/// Asks until the pool is retired.
pub fn run(shared: &Arc<Shared>, log: fn(&str)) {
    if let PoolKind::Sentinel { sentinels, .. } = &shared.config.kind {
        for sentinel in sentinels.clone() {
            let shared = shared.clone();
            let _ = process::thread::spawn("sentinel", move || listen(&shared, &sentinel));
        }
    }
    while !shared.is_retired.load(SeqCst) {
        round(shared, log);
        let until = Instant::now() + ROUND_EVERY;
        while Instant::now() < until && !shared.is_stale.swap(false, SeqCst) {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn round(shared: &Shared, log: impl Fn(&str)) {
    match &shared.config.kind {
        PoolKind::Sentinel { sentinels, master } => {
            find_master(shared, sentinels, master, log);
            if shared.config.reads != Reads::Primary {
                let replicas = find_replicas(shared, sentinels, master);
                set_replicas(shared, &[(0, replicas)]);
            }
        }
        PoolKind::Cluster { seeds } => find_slots(shared, seeds),
        _ => {}
    }
}

/// Makes the thread of the pool ask when a sentinel says that the master has changed.
fn listen(shared: &Shared, sentinel: &Address) {
    while !shared.is_retired.load(SeqCst) {
        if let Ok(mut asking) = self::sentinel(shared, sentinel) {
            let subscribed = asking.ask(&["SUBSCRIBE", "+switch-master"]);
            // Messages from before the subscription are lost, so the sentinels are asked.
            shared.is_stale.store(true, SeqCst);
            while subscribed.is_ok() && !shared.is_retired.load(SeqCst) {
                match asking.value() {
                    Ok(_) => shared.is_stale.store(true, SeqCst),
                    Err(why) if why.kind() == io::ErrorKind::TimedOut => {}
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
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master];
        let reply = self::sentinel(shared, sentinel).and_then(|mut asking| asking.ask(&words));
        let Ok(reply) = reply else { continue };
        let [host, port] = reply.items() else { continue };
        if let Some(address) = address_of(host, port) {
            *votes.entry(address).or_default() += 1;
        }
    }
    let answers: usize = votes.values().sum();
    let Some((address, _)) = votes.into_iter().find(|(_, count)| count * 2 > answers) else {
        return;
    };
    let place = Place::from(address.clone());
    if shared.topology().servers.first() == Some(&place) {
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
            *server = place;
            shared.switches.fetch_add(1, SeqCst);
            shared.failures[0].store(0, SeqCst);
        }
        None => topology.servers.push(place),
    });
    // A sentinel that was asked before the switch may have named the old master.
    shared.is_stale.store(true, SeqCst);
}

/// Returns the replicas that the first sentinel knows which answers.
fn find_replicas(shared: &Shared, sentinels: &[Address], master: &str) -> Vec<Address> {
    let words = ["SENTINEL", "REPLICAS", master];
    let ask = |sentinel| {
        let reply = self::sentinel(shared, sentinel).ok()?.ask(&words).ok()?;
        let Value::Array(replicas) = &reply else { return None };
        let address = |replica: &Value| address_of(replica.get("ip")?, replica.get("port")?);
        Some(replicas.iter().filter_map(address).collect())
    };
    sentinels.iter().find_map(ask).unwrap_or_default()
}

fn address_of(host: &Value, port: &Value) -> Option<Address> {
    Some(Address::Tcp(host.text(), u16::try_from(port.integer()?).ok()?))
}

/// Finds out which of these replicas, by the numbers of their primaries, may be read: those that
/// are connected to their primary and not further behind it than the configuration allows.
fn set_replicas(shared: &Shared, known: &[(u16, Vec<Address>)]) {
    let mut usable: Vec<Vec<u16>> = Vec::new();
    for (primary, replicas) in known {
        let Some(Place { address, .. }) =
            shared.topology().servers.get(usize::from(*primary)).cloned()
        else {
            continue;
        };
        // Asked first, so that a replica that keeps up is not behind.
        let Some(Standing::Primary(offset)) = standing(shared, &address) else { continue };
        let keeps_up = |replica: &&Address| match standing(shared, replica) {
            Some(Standing::Replica(own)) => offset.saturating_sub(own) <= shared.config.max_lag,
            _ => false,
        };
        let replicas = replicas.iter().filter(|replica| **replica != address).filter(keeps_up);
        let mut numbers: Vec<u16> =
            replicas.filter_map(|at| server_at(shared, &at.clone().into())).collect();
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
    let reply = server(shared, address).ok()?.ask(&["ROLE"]).ok()?;
    let parts = reply.items();
    let offset = |at: usize| u64::try_from(parts.get(at)?.integer()?).ok();
    match parts.first()?.bytes()? {
        b"master" => Some(Standing::Primary(offset(1)?)),
        _ if parts.get(3)?.bytes()? == b"connected" => Some(Standing::Replica(offset(4)?)),
        _ => None,
    }
}

/// Returns the role that a server says it has, or `None` if it does not answer or refuses to say.
fn role(shared: &Shared, address: &Address) -> Option<String> {
    let reply = server(shared, address).ok()?.ask(&["ROLE"]).ok()?;
    reply.items().first().map(Value::text)
}

fn find_slots(shared: &Shared, seeds: &[Address]) {
    let servers = shared.topology().servers.into_iter().map(|place| place.address);
    let asked: Vec<Address> = servers.chain(seeds.iter().cloned()).collect();
    for node in asked {
        let reply = server(shared, &node).and_then(|mut asking| asking.ask(&["CLUSTER", "SLOTS"]));
        let Some(ranges) = reply.ok().and_then(|reply| parse_slots(&reply)) else { continue };
        if ranges.is_empty() {
            continue;
        }
        let address = |(host, port): &(String, u16)| {
            let host = match (&host[..], &node) {
                ("", Address::Tcp(host, _)) => host.clone(),
                _ => host.clone(),
            };
            Address::Tcp(host, *port)
        };
        let mut table = vec![None; usize::from(SLOTS)];
        let mut copies: HashMap<u16, Vec<Address>> = HashMap::new();
        for range in ranges {
            let Some((primary, replicas)) = range.nodes.split_first() else { continue };
            let server = server_at(shared, &address(primary).into());
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
