//! Which etcd a node uses: one of our own, new or joined, or that of the user.

use super::contained::ContainedOptions;
use super::kept::Kept;
use super::{ADMIN_PORT, PATIENCE, UpOptions, members};
use crate::authority::Files;
use crate::own_etcd::{self, OwnEtcd, Server};
use crate::settings::{Wrong, check_name};
use crate::store::put;
use cluster::Moment;
use cluster::coordinator::{Compare, Coordinator as _, Transaction};
use etcd::{Client, Endpoint, Peer, Way, version_warning};
use process::log;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// Servers of etcd that are started on their own; more machines are clients.
pub const MEMBERS: usize = 3;

/// How many ports are tried from the first one on.
const PORTS: u16 = 100;

/// How long a call may take.
pub const CALL: Moment = Moment::from_secs(5);

/// Where the names of the clusters of an etcd are.
const CLUSTERS: &str = "/dunlin-clusters/";

/// The etcd of a node.
pub struct Entered {
    /// The server that is started here.
    pub own: Option<OwnEtcd>,
    /// The way to all servers, the own one first.
    pub way: Way,
    /// What the user should know.
    pub summary: Vec<String>,
}

/// Opens the port of the interface: the one that was asked for, the one of last time, or the first
/// free one.
///
/// # Errors
/// None is free.
pub fn listen(
    bind: &[String],
    kept: u16,
    asked: Option<u16>,
) -> Result<(Vec<TcpListener>, u16), Wrong> {
    let fixed = asked.or((kept > 0).then_some(kept));
    let port = match fixed {
        Some(port) => port,
        None => free_port("127.0.0.1", ADMIN_PORT)?,
    };
    Ok((web::bind(bind, port).map_err(Wrong)?, port))
}

fn free_port(host: &str, first: u16) -> Result<u16, Wrong> {
    let is_free = |port: &u16| TcpListener::bind((host, *port)).is_ok();
    (first..first.saturating_add(PORTS)).find(is_free).ok_or_else(|| {
        Wrong(format!(
            "no port of {host} from {first} on is free, or {host} is no address of this machine"
        ))
    })
}

/// Finds or starts etcd, and waits until it answers.
///
/// # Errors
/// Why there is none; the text says what to do.
pub fn enter(options: &UpOptions, kept: &mut Kept, directory: &Path) -> Result<Entered, Wrong> {
    if let Some(text) = &options.contained.etcd_members {
        return members::enter(text, options, kept, directory);
    }
    if let Some(text) = &options.etcd {
        let mut access = kept.access.clone();
        access.take(&options.access, directory)?;
        access.sign(kept, options.admin_tls.names(), directory)?;
        kept.access = access;
        let name = if kept.endpoints.is_empty() { Name::Enter } else { Name::Find };
        return use_theirs(text, kept, options.contained.patience(), name);
    }
    let is_new = kept.etcd.is_none() && (options.join.is_some() || kept.endpoints.is_empty());
    match &options.join {
        Some(_) if is_new => kept.access.join(&options.access, directory)?,
        None if is_new => kept.access.found(&options.access, directory)?,
        _ => {}
    }
    let mut access = kept.access.clone();
    access.sign(kept, options.admin_tls.names(), directory)?;
    kept.access = access;
    match &options.join {
        Some(place) if is_new => join(options, place, kept)?,
        None if is_new => kept.etcd = Some(found(options, kept)?),
        _ => {}
    }
    if let Some(server) = &mut kept.etcd {
        server.is_fast = kept.is_fast;
    }
    kept.write(directory)?;
    let Some(server) = kept.etcd.clone() else {
        let text = kept.endpoints.join(",");
        return use_theirs(&text, kept, options.contained.patience(), Name::Enter);
    };
    start(server, kept, directory, &options.contained)
}

/// Starts our server of etcd, or adopts it, and waits until it answers.
///
/// # Errors
/// It does not start, or no other member answers.
pub fn start(
    server: Server,
    kept: &mut Kept,
    directory: &Path,
    options: &ContainedOptions,
) -> Result<Entered, Wrong> {
    let program = own_etcd::find_program()?;
    let (log, patience) = (directory.join("logs").join("etcd.log"), options.patience());
    let file = (!options.is_contained()).then_some(&*log);
    let endpoint = server.endpoint();
    let own_way = kept.access.way(vec![endpoint.clone()])?;
    let mut client = own_way.client(CALL);
    let files = Files::of(directory);
    let mut own = OwnEtcd::start(
        program,
        &directory.join(own_etcd::FOLDER),
        file,
        server.clone(),
        files,
        own_way,
    )
    .map_err(|error| Wrong(format!("etcd cannot be started: {error}")))?;
    let version = wait(&mut client, patience, || match own.runs() {
        true => Ok(()),
        false => Err(Wrong(match options.is_contained() {
            true => "etcd has ended: its output is above".into(),
            false => format!("etcd has ended: see {}", log.display()),
        })),
    })?;
    let peers = persist(patience, || peers(&mut client))?;
    learn(kept, &peers, Some(&endpoint));
    persist(patience, || enter_name(&mut client, kept))?;
    let mut summary = vec![format!(
        "etcd {version} at {}, {} member{}",
        endpoint.url(),
        peers.len(),
        if peers.len() == 1 { "" } else { "s" }
    )];
    if server.host != "127.0.0.1" && !server.is_tls {
        summary.push(format!(
            "Ports {} and {} are open without TLS: let only machines of the cluster reach them",
            server.client_port, server.peer_port
        ));
    }
    summary.extend(warning(&version));
    Ok(Entered { own: Some(own), way: way(kept)?, summary })
}

fn warning(version: &str) -> Option<String> {
    let warning = version_warning(version)?;
    log!(Warning, "{warning}");
    Some(format!("Warning: {warning}"))
}

/// What is done with the cluster's name at an etcd that is not started here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// It is entered, if it is not there.
    Enter,
    /// It has to be there: this machine has been in the cluster, and elsewhere it would be another
    /// one of the same name.
    Find,
}

/// An etcd that the user has, or one of other machines of the cluster.
///
/// # Errors
/// It does not answer, or is that of another cluster.
pub fn use_theirs(
    text: &str,
    kept: &mut Kept,
    patience: Duration,
    name: Name,
) -> Result<Entered, Wrong> {
    let list = Endpoint::list(text).map_err(|why| Wrong(format!("--etcd: {why}")))?;
    let way = kept.access.way(list.clone()).map_err(|why| {
        Wrong(format!("--etcd: {why}. See --etcd-cacert, --etcd-cert and --etcd-key"))
    })?;
    let mut client = way.client(CALL);
    let version = wait(&mut client, patience, || Ok(()))?;
    if kept.cluster.is_empty() {
        kept.cluster = "dunlin".into();
    }
    match name {
        Name::Enter => persist(patience, || enter_name(&mut client, kept))?,
        Name::Find => find_name(&mut client, kept, text)?,
    }
    kept.endpoints = list.iter().map(Endpoint::url).collect();
    let mut summary = vec![format!("etcd {version} at {}", kept.endpoints.join(", "))];
    summary.extend(warning(&version));
    Ok(Entered { own: None, way, summary })
}

/// Waits until etcd has a leader. Returns its version.
fn wait(
    client: &mut Client,
    patience: Duration,
    mut check: impl FnMut() -> Result<(), Wrong>,
) -> Result<String, Wrong> {
    let began = Instant::now();
    loop {
        let health = client.health();
        if let Ok(health) = &health
            && health.has_leader
        {
            return Ok(health.version.clone());
        }
        check()?;
        if began.elapsed() > patience || super::is_over() {
            let why = health.err().map_or("it has no leader".into(), |why| why.to_string());
            return Err(Wrong(format!("etcd does not answer: {why}")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes a call again until it succeeds: while a member joins, the others may have no majority.
fn persist<T>(patience: Duration, mut call: impl FnMut() -> Result<T, Wrong>) -> Result<T, Wrong> {
    let began = Instant::now();
    loop {
        match call() {
            Err(_) if began.elapsed() < patience && !super::is_over() => {
                std::thread::sleep(Duration::from_millis(200));
            }
            outcome => return outcome,
        }
    }
}

/// The first server of a new etcd.
fn found(options: &UpOptions, kept: &mut Kept) -> Result<Server, Wrong> {
    if kept.cluster.is_empty() {
        kept.cluster = "dunlin".into();
    }
    let mut server = server(options, kept)?;
    server.initial_cluster = format!("{}={}", server.name, server.peer_url());
    Ok(server)
}

fn server(options: &UpOptions, kept: &Kept) -> Result<Server, Wrong> {
    let host = kept.host.clone();
    let (client_port, peer_port) = match options.etcd_port {
        Some(port) => {
            (port, port.checked_add(1).ok_or_else(|| Wrong("--etcd-port is too large".into()))?)
        }
        None => {
            let client = free_port(&host, etcd::DEFAULT_PORT)?;
            (client, free_port(&host, client.saturating_add(1))?)
        }
    };
    Ok(Server {
        name: kept.machine.clone(),
        host,
        client_port,
        peer_port,
        initial_cluster: String::new(),
        joins: false,
        is_tls: kept.access.is_ours,
        is_fast: kept.is_fast,
        token: kept.cluster.clone(),
        listens_at: String::new(),
    })
}

/// Becomes a member of the etcd of another machine, or a client if it has enough members.
fn join(options: &UpOptions, place: &str, kept: &mut Kept) -> Result<(), Wrong> {
    let mut list = Endpoint::list(place).map_err(|why| Wrong(format!("--join: {why}")))?;
    let is_ours = kept.access.is_ours;
    list.iter_mut().for_each(|endpoint| endpoint.is_tls |= is_ours);
    let mut client = kept
        .access
        .way(list)
        .map_err(|why| Wrong(format!("--join: {why}. See --token-file")))?
        .client(CALL);
    let mut known = peers(&mut client).map_err(|why| {
        let hint = if is_ours {
            "the token that of this cluster, and its etcd with TLS"
        } else {
            "its etcd without TLS? Otherwise copy its file tls/join-token, and add --token-file"
        };
        Wrong(format!("no etcd answers at {place} ({why}): is the first machine up, and {hint}?"))
    })?;
    name_cluster(&mut client, kept, place)?;
    if known.iter().any(|peer| peer.name == kept.machine) {
        let name = &kept.machine;
        return Err(Wrong(format!("there is a machine '{name}' already: take another --machine")));
    }
    let server = server(options, kept)?;
    let own_url = server.peer_url();
    let is_mine = |peer: &Peer| peer.peer_urls.contains(&own_url);
    if known.len() >= MEMBERS && !known.iter().any(is_mine) {
        learn(kept, &known, None);
        return Ok(());
    }
    enrol(&mut client, server, &mut known, kept, PATIENCE)
}

/// Becomes a member of an etcd with a server that is to be started then, at the end of what `known`
/// says.
///
/// # Errors
/// etcd has not taken it for so long.
pub fn enrol(
    client: &mut Client,
    mut server: Server,
    known: &mut Vec<Peer>,
    kept: &mut Kept,
    patience: Duration,
) -> Result<(), Wrong> {
    let own_url = server.peer_url();
    let is_mine = |peer: &Peer| peer.peer_urls.contains(&own_url);
    let began = Instant::now();
    while !known.iter().any(is_mine) {
        match client.add_peer(&own_url) {
            Ok(peers) => *known = peers,
            // The members before must have been in touch for some seconds.
            Err(why) if began.elapsed() > patience || super::is_over() => {
                return Err(Wrong(format!("etcd takes no new member: {why}")));
            }
            Err(_) => {
                std::thread::sleep(Duration::from_millis(200));
                *known = peers(client)?;
            }
        }
    }
    let names = known.iter().enumerate().flat_map(|(number, peer)| {
        let name = match (is_mine(peer), peer.name.is_empty()) {
            (true, _) => kept.machine.clone(),
            (false, true) => format!("member-{number}"),
            (false, false) => peer.name.clone(),
        };
        peer.peer_urls.iter().map(move |url| format!("{name}={url}"))
    });
    server.initial_cluster = names.collect::<Vec<_>>().join(",");
    server.joins = true;
    learn(kept, known, Some(&server.endpoint()));
    kept.etcd = Some(server);
    Ok(())
}

/// Makes this machine, which was a client of the members, a member itself, and starts its server.
///
/// # Errors
/// Why it cannot be one.
pub fn become_member(
    options: &UpOptions,
    kept: &mut Kept,
    directory: &Path,
) -> Result<Option<OwnEtcd>, Wrong> {
    own_etcd::find_program()?;
    let mut client = way(kept)?.client(CALL);
    let mut known = peers(&mut client)?;
    let server = server(options, kept)?;
    enrol(&mut client, server.clone(), &mut known, kept, PATIENCE)?;
    kept.write(directory)?;
    let server = kept.etcd.clone().unwrap_or(server);
    Ok(start(server, kept, directory, &options.contained)?.own)
}

/// Takes the name of the cluster that is joined, or checks it.
///
/// # Errors
/// etcd is away, or has no such cluster.
pub fn name_cluster(client: &mut Client, kept: &mut Kept, place: &str) -> Result<(), Wrong> {
    let range = client.range(CLUSTERS, None).map_err(|why| Wrong(why.to_string()))?;
    let names: Vec<&str> =
        range.items.iter().filter_map(|item| item.key.strip_prefix(CLUSTERS)).collect();
    match (&*kept.cluster, &names[..]) {
        ("", [name]) => kept.cluster = (*name).to_owned(),
        ("", _) => {
            return Err(Wrong(format!("name the cluster: --name, one of {}", names.join(", "))));
        }
        (name, names) if names.contains(&name) => {}
        (name, names) => {
            return Err(Wrong(format!(
                "the etcd at {place} has no cluster '{name}' (it has {}): is the first machine up, and its --name \
                 the same?",
                if names.is_empty() { "none".into() } else { names.join(", ") }
            )));
        }
    }
    check_name("cluster", &kept.cluster)
}

/// Checks that an etcd is that of the cluster to which this machine belongs.
fn find_name(client: &mut Client, kept: &Kept, place: &str) -> Result<(), Wrong> {
    let (name, before) = (&kept.cluster, kept.endpoints.join(","));
    let key = format!("{CLUSTERS}{name}");
    let range = client.range(&key, None).map_err(|why| Wrong(why.to_string()))?;
    if range.items.iter().any(|item| item.key == key) {
        return Ok(());
    }
    Err(Wrong(format!(
        "the etcd at {place} has no cluster '{name}', to which this machine belongs: its etcd was {before}. Name that \
         one, or restore a snapshot of it; for a new cluster take another --dir"
    )))
}

/// Writes the cluster's name, for those who join.
fn enter_name(client: &mut Client, kept: &Kept) -> Result<(), Wrong> {
    let key = format!("{CLUSTERS}{}", kept.cluster);
    let compares = vec![Compare { key: key.clone(), revision: 0 }];
    let transaction = Transaction { compares, changes: vec![put(key, Vec::new())] };
    // A conflict says that it is there.
    client.commit(&transaction).map(|_| ()).map_err(|why| Wrong(why.to_string()))
}

/// Returns the members of an etcd.
///
/// # Errors
/// etcd is away.
pub fn peers(client: &mut Client) -> Result<Vec<Peer>, Wrong> {
    client.peers().map_err(|why| Wrong(why.to_string()))
}

/// Notes all servers, the own one first.
fn learn(kept: &mut Kept, peers: &[Peer], own: Option<&Endpoint>) {
    let mut list: Vec<String> = own.map(Endpoint::url).into_iter().collect();
    for url in peers.iter().flat_map(|peer| &peer.client_urls) {
        if let Ok(endpoint) = url.parse::<Endpoint>() {
            let text = endpoint.url();
            if !list.contains(&text) {
                list.push(text);
            }
        }
    }
    kept.endpoints = list;
}

/// The way to all servers that are known.
///
/// # Errors
/// A file cannot be used.
pub fn way(kept: &Kept) -> Result<Way, Wrong> {
    let list = Endpoint::list(&kept.endpoints.join(",")).map_err(|why| Wrong(why.to_string()))?;
    kept.access.way(list)
}
