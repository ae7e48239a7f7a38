//! Servers of etcd on machines that are named beforehand, as the first pods of a StatefulSet are:
//! each starts by itself, and none is the first. Their hosts are names that stay while addresses
//! change.

use super::UpOptions;
use super::join::{self, CALL, CLIENT_PORT, Entered};
use super::kept::Kept;
use crate::own_etcd::Server;
use crate::settings::{Wrong, check_name};
use etcd::{Client, Endpoint};
use process::log;
use std::path::Path;

/// Waits for a member that takes the place of one which lost its data.
const ATTEMPTS: u32 = 100;

/// Starts the server of this machine if it is one of `text`, `NAME=HOST,…`; otherwise uses those
/// that are.
///
/// # Errors
/// Why there is no etcd; the text says what to do.
pub fn enter(
    text: &str,
    options: &UpOptions,
    kept: &mut Kept,
    directory: &Path,
) -> Result<Entered, Wrong> {
    let members = read(text)?;
    if kept.cluster.is_empty() {
        kept.cluster = "dunlin".into();
    }
    let mut access = kept.access.clone();
    access.share(&options.access, directory)?;
    kept.access = access;
    let port = options.etcd_port.unwrap_or(CLIENT_PORT);
    let peer_port =
        port.checked_add(1).ok_or_else(|| Wrong("--etcd-port is too large".to_owned()))?;
    let mut all: Vec<Server> =
        members.iter().map(|(name, host)| server(kept, name, host, (port, peer_port))).collect();
    let list: Vec<String> = all.iter().map(|it| format!("{}={}", it.name, it.peer_url())).collect();
    let own = all.iter().position(|server| server.name == kept.machine);
    // The own one first.
    all.rotate_left(own.unwrap_or(0));
    kept.endpoints = all.iter().map(|server| server.endpoint().url()).collect();
    let own = own.map(|_| all.swap_remove(0));
    let is_new = kept.etcd.is_none();
    kept.etcd = own.map(|server| match kept.etcd.take() {
        // What it was started with counts at its first start only.
        Some(old) => Server { initial_cluster: old.initial_cluster, joins: old.joins, ..server },
        None => Server { initial_cluster: list.join(","), ..server },
    });
    let mut access = kept.access.clone();
    access.sign(kept, directory)?;
    kept.access = access;
    let endpoints = kept.endpoints.clone();
    let Some(mut server) = kept.etcd.clone() else {
        kept.write(directory)?;
        return join::use_theirs(&endpoints.join(","), kept, options.contained.patience());
    };
    if is_new {
        replace_lost(&mut server, kept, &endpoints[1..])?;
        kept.etcd = Some(server.clone());
    }
    kept.write(directory)?;
    let mut entered = join::start(server, kept, directory, &options.contained)?;
    // Members that are still about to start are not listed with their addresses.
    kept.endpoints = endpoints;
    entered.way = join::way(kept)?;
    Ok(entered)
}

fn read(text: &str) -> Result<Vec<(String, String)>, Wrong> {
    let pair = |pair: &str| {
        let (name, host) = pair.split_once('=').filter(|(_, host)| !host.is_empty())?;
        Some((name.to_owned(), host.to_owned()))
    };
    let pairs: Option<Vec<_>> = text.split(',').map(|text| pair(text.trim())).collect();
    let pairs = pairs.ok_or_else(|| {
        Wrong(format!("--etcd-members {text}: it is NAME=HOST, several with commas"))
    })?;
    for (at, (name, _)) in pairs.iter().enumerate() {
        check_name("machine", name)?;
        if pairs[..at].iter().any(|(other, _)| other == name) {
            return Err(Wrong(format!("--etcd-members: machine '{name}' is there twice")));
        }
    }
    Ok(pairs)
}

fn server(kept: &Kept, name: &str, host: &str, (client_port, peer_port): (u16, u16)) -> Server {
    // A name cannot be bound, and its address changes.
    let wildcard = if kept.host.contains(':') { "::" } else { "0.0.0.0" };
    Server {
        name: name.to_owned(),
        host: host.to_owned(),
        client_port,
        peer_port,
        initial_cluster: String::new(),
        joins: false,
        is_tls: kept.access.is_ours,
        is_fast: kept.is_fast,
        token: kept.cluster.clone(),
        listens_at: wildcard.to_owned(),
    }
}

/// Takes the place of the member that this machine was, if that member was started once: its disk
/// is lost. etcd takes no member back that has forgotten what it promised.
fn replace_lost(server: &mut Server, kept: &Kept, others: &[String]) -> Result<(), Wrong> {
    let own_url = server.peer_url();
    for other in others {
        let list = Endpoint::list(other).map_err(|why| Wrong(why.to_string()))?;
        let mut client = kept.access.way(list)?.client(CALL);
        let Ok(peers) = client.peers() else { continue };
        let lost = peers.iter().find(|peer| peer.peer_urls.contains(&own_url));
        let Some(lost) = lost.filter(|peer| !peer.client_urls.is_empty()) else { return Ok(()) };
        log!(
            Warning,
            "The data of member '{}' of etcd are lost: a new one takes its place",
            lost.name
        );
        let failed = |why| Wrong(format!("etcd does not let go of the lost member: {why}"));
        client.remove_peer(&lost.id).map_err(failed)?;
        return add(&mut client, server, &own_url);
    }
    Ok(())
}

fn add(client: &mut Client, server: &mut Server, own_url: &str) -> Result<(), Wrong> {
    let mut outcome = client.add_peer(own_url);
    for _ in 0..ATTEMPTS {
        if outcome.is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        outcome = client.add_peer(own_url);
    }
    let peers = outcome.map_err(|why| Wrong(format!("etcd takes no new member: {why}")))?;
    let names = peers.iter().flat_map(|peer| {
        let is_own = peer.peer_urls.iter().any(|url| url == own_url);
        let name = if is_own { server.name.clone() } else { peer.name.clone() };
        peer.peer_urls.iter().map(move |url| format!("{name}={url}"))
    });
    server.initial_cluster = names.collect::<Vec<_>>().join(",");
    server.joins = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_names_with_hosts() {
        let pair = |name: &str, host: &str| (name.to_owned(), host.to_owned());
        assert_eq!(read("a=a.x, b=b.x"), Ok(vec![pair("a", "a.x"), pair("b", "b.x")]));
        for wrong in ["", "a", "a=", "=b", "a=x,a=y", "a b=x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
