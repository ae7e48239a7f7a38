//! Servers of etcd on machines that are named beforehand, as the first pods of a StatefulSet are:
//! they start in any order, and the list may grow. Their hosts are names that stay while addresses
//! change.

use super::UpOptions;
use super::absent::Absent;
use super::join::{self, CALL, Entered, Name};
use super::kept::Kept;
use crate::own_etcd::{self, Server, is_loopback};
use crate::settings::{Wrong, check_name};
use cluster::Moment;
use etcd::Peer;
use process::log;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long another machine may take to say whether it has data.
const LOOK_LIMIT: Moment = Moment::from_secs(2);

/// Between two looks at the others.
const LOOK: Duration = Duration::from_millis(200);

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
    let port = options.etcd_port.unwrap_or(etcd::DEFAULT_PORT);
    let peer_port =
        port.checked_add(1).ok_or_else(|| Wrong("--etcd-port is too large".to_owned()))?;
    let mut all: Vec<Server> =
        members.iter().map(|(name, host)| server(kept, name, host, (port, peer_port))).collect();
    let own = all.iter().position(|server| server.name == kept.machine);
    // The own one first.
    all.rotate_left(own.unwrap_or(0));
    let unreadable = |error| Wrong(format!("the data of etcd cannot be read: {error}"));
    let has_data = own_etcd::has_data(directory).map_err(unreadable)?;
    let mut endpoints: Vec<String> = all.iter().map(|server| server.endpoint().url()).collect();
    let own = own.map(|_| all.remove(0));
    kept.etcd = match (own, kept.etcd.take()) {
        // What it was started with counts at its first start only.
        (Some(server), Some(old)) => {
            Some(Server { initial_cluster: old.initial_cluster, joins: old.joins, ..server })
        }
        (Some(server), None) => Some(server),
        // The others count on its vote.
        (None, Some(old)) if has_data => {
            log!(
                Warning,
                "This machine is a member of etcd although --etcd-members has it no longer"
            );
            endpoints.insert(0, old.endpoint().url());
            Some(old)
        }
        (None, _) => None,
    };
    kept.endpoints.clone_from(&endpoints);
    let mut access = kept.access.clone();
    access.sign(kept, options.admin_tls.names(), directory)?;
    kept.access = access;
    let Some(mut server) = kept.etcd.clone() else {
        kept.write(directory)?;
        return join::use_theirs(
            &endpoints.join(","),
            kept,
            options.contained.patience(),
            Name::Enter,
        );
    };
    if !has_data {
        server = begin(server, &all, kept, options)?;
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
    let listens_at = match is_loopback(host) {
        true => "",
        false if kept.host.contains(':') => "::",
        false => "0.0.0.0",
    };
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
        listens_at: listens_at.to_owned(),
    }
}

/// Finds out where the data of this machine's server come from, which has none, and prepares its
/// start: it joins the etcd of which another machine of the list has data, or founds one.
///
/// Silence says nothing: a machine that has data may be down. So one machine alone may found an
/// etcd, the first by name, and only when each of the others has said that it has no data.
fn begin(
    mut server: Server,
    others: &[Server],
    kept: &mut Kept,
    options: &UpOptions,
) -> Result<Server, Wrong> {
    own_etcd::find_program()?;
    let _absent = match others {
        [] => None,
        _ => Some(Absent::answer(&server, kept)?),
    };
    let (began, patience) = (Instant::now(), options.contained.patience_with_members());
    let mut said = String::new();
    loop {
        let looks: Vec<Look> = others.iter().map(|other| look(other, kept)).collect();
        let waits = match decide(&server.name, others, &looks) {
            Next::Found => {
                server.initial_cluster = format!("{}={}", server.name, server.peer_url());
                server.joins = false;
                return Ok(server);
            }
            Next::Join => match join_others(&server, others, &looks, kept, patience) {
                Ok(joined) => return Ok(joined),
                Err(why) => why.0,
            },
            Next::Wait(why) => why,
        };
        if began.elapsed() > patience || super::is_over() {
            return Err(Wrong(format!("there is no etcd to be a member of: {waits}")));
        }
        if waits != said {
            log!(Notice, "etcd is not started yet: {waits}");
            said = waits;
        }
        std::thread::sleep(LOOK);
    }
}

/// What a machine says about its server of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Look {
    /// It has data, and knows these members.
    Member(Vec<Peer>),
    /// It has none yet.
    Absent,
    /// It does not answer.
    Silent(String),
}

fn look(other: &Server, kept: &Kept) -> Look {
    let asked = kept
        .access
        .way(vec![other.peer_endpoint()])
        .and_then(|way| way.client(LOOK_LIMIT).peers_known().map_err(|why| Wrong(why.to_string())));
    match asked {
        Ok(peers) if peers.is_empty() => Look::Absent,
        Ok(peers) => Look::Member(peers),
        Err(why) => Look::Silent(why.0),
    }
}

/// What a machine without data does.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Next {
    /// It starts an etcd that has no other member.
    Found,
    /// It becomes a member of the one that is there.
    Join,
    /// It looks again. The text says for what it waits.
    Wait(String),
}

fn decide(own: &str, others: &[Server], looks: &[Look]) -> Next {
    if looks.iter().any(|look| matches!(look, Look::Member(_))) {
        return Next::Join;
    }
    let pairs = || others.iter().zip(looks);
    let first = others.iter().map(|other| &*other.name).filter(|name| *name < own).min();
    if let Some(first) = first {
        let silent = pairs().find_map(|(other, look)| match look {
            Look::Silent(why) if other.name == first => Some(format!(" ({why})")),
            _ => None,
        });
        let why = silent.unwrap_or_default();
        return Next::Wait(format!("machine '{first}' founds it, or one that has data{why}"));
    }
    let silent = pairs().find_map(|(other, look)| match look {
        Look::Silent(why) => Some((&other.name, why)),
        _ => None,
    });
    match silent {
        None => Next::Found,
        Some((name, why)) => Next::Wait(format!(
            "machine '{name}' has to say whether it has data of an etcd, and does not answer ({why})"
        )),
    }
}

/// Makes this machine a member of the etcd that the others have. If it was one, and its disk is
/// lost, a new member takes the place: etcd takes none back that has forgotten what it promised.
fn join_others(
    server: &Server,
    others: &[Server],
    looks: &[Look],
    kept: &mut Kept,
    patience: Duration,
) -> Result<Server, Wrong> {
    let mut client = kept.access.way(others.iter().map(Server::endpoint).collect())?.client(CALL);
    let own_url = server.peer_url();
    let mut known = match join::peers(&mut client) {
        Ok(known) => known,
        // There is no majority. It may lack this machine alone, which was taken on before it ended.
        Err(why) => awaiting(looks, &own_url).ok_or(why)?,
    };
    match known.iter().find(|peer| peer.peer_urls.contains(&own_url)) {
        // It was taken on, and is awaited: without it there may be no majority.
        Some(own) if own.client_urls.is_empty() => {}
        Some(lost) => {
            let name = &lost.name;
            log!(
                Warning,
                "The data of member '{name}' of etcd are lost: a new one takes its place"
            );
            let failed = |why| Wrong(format!("etcd does not let go of the lost member: {why}"));
            known = client.remove_peer(&lost.id).map_err(failed)?;
        }
        None => join::name_cluster(&mut client, kept, &client_list(others))?,
    }
    join::enrol(&mut client, server.clone(), &mut known, kept, patience)?;
    kept.etcd.clone().ok_or_else(|| Wrong("etcd has not taken this machine on".into()))
}

/// The members as one knows them that awaits the first start of the one with this address.
fn awaiting(looks: &[Look], own_url: &str) -> Option<Vec<Peer>> {
    let is_awaited = |peer: &Peer| {
        peer.client_urls.is_empty() && peer.peer_urls.iter().any(|url| url == own_url)
    };
    let mut known = looks.iter().filter_map(|look| match look {
        Look::Member(peers) => Some(peers),
        _ => None,
    });
    known.find(|peers| peers.iter().any(is_awaited)).cloned()
}

fn client_list(servers: &[Server]) -> String {
    let urls: Vec<String> = servers.iter().map(|server| server.endpoint().url()).collect();
    urls.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_founds_an_etcd_and_only_if_no_other_has_data() {
        let kept = Kept::new("t".into());
        let others = |names: &[&str]| {
            names.iter().map(|name| server(&kept, name, name, (1, 2))).collect::<Vec<_>>()
        };
        let silent = || Look::Silent("refused".into());
        let ac = others(&["a", "c"]);
        // Alone, or the first by name, whatever the order of the list.
        assert_eq!(decide("a", &[], &[]), Next::Found);
        let cb = others(&["c", "b"]);
        assert_eq!(decide("a", &cb, &[Look::Absent, Look::Absent]), Next::Found);
        assert!(matches!(decide("b", &ac, &[Look::Absent, Look::Absent]), Next::Wait(_)));
        // One that is silent may have data.
        let next = decide("a", &cb, &[silent(), Look::Absent]);
        assert!(matches!(&next, Next::Wait(why) if why.contains("'c'")), "{next:?}");
        let next = decide("b", &ac, &[silent(), Look::Absent]);
        assert!(matches!(&next, Next::Wait(why) if why.contains("'a'")), "{next:?}");
        // One that has data is joined, also by the first.
        let peer = |host: &str, client_urls: &[&str]| Peer {
            name: String::new(),
            id: "1".into(),
            peer_urls: vec![format!("https://{host}:2")],
            client_urls: client_urls.iter().map(|url| (*url).to_owned()).collect(),
        };
        let member = || Look::Member(vec![peer("c", &["https://c:1"]), peer("b", &[])]);
        assert_eq!(decide("a", &cb, &[silent(), member()]), Next::Join);
        assert_eq!(decide("b", &ac, &[Look::Absent, member()]), Next::Join);
        // One that was taken on and not started is the majority that is missing.
        let looks = [silent(), member()];
        assert_eq!(awaiting(&looks, "https://b:2").map(|all| all.len()), Some(2));
        assert_eq!(awaiting(&looks, "https://c:2"), None);
        assert_eq!(awaiting(&looks, "https://a:2"), None);
    }

    #[test]
    fn members_are_names_with_hosts() {
        let pair = |name: &str, host: &str| (name.to_owned(), host.to_owned());
        assert_eq!(read("a=a.x, b=b.x"), Ok(vec![pair("a", "a.x"), pair("b", "b.x")]));
        for wrong in ["", "a", "a=", "=b", "a=x,a=y", "a b=x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
