//! `add-node`, `del-node`, `call` and `set-timeout`.

use super::node::Node;
use super::nodes::Cluster;
use super::{address_of, bad, check, good, misused, say, step, warn};
use crate::format::{Format, Style};
use crate::options::{ClusterOptions, Options};
use crate::session::emit;
use resp::Value;

/// `add-node NEW EXISTING`
pub fn add_node(
    options: &Options,
    wanted: &ClusterOptions,
    new: &str,
    existing: &str,
) -> Result<(), String> {
    let (host, port) = address_of(new)?;
    let mut cluster = {
        let (host, port) = address_of(existing)?;
        step(&format!(">>> Adding node {new} to cluster {existing}"));
        Cluster::load(Node::connect(options, &host, port)?)?
    };
    check::ensure_fine(&mut cluster, wanted, "")?;
    let primary = match &wanted.primary {
        _ if !wanted.as_replica => None,
        Some(id) => Some(cluster.by_id(id).ok_or(format!("[ERR] No such primary ID {id}"))?),
        None => {
            let at = cluster.with_fewest_replicas()?;
            let node = &cluster.nodes[at];
            say(&format!("Automatically selected {} {node}", node.primary_word()));
            Some(at)
        }
    };
    let mut node = Node::connect(options, &host, port)?;
    node.ensure_empty()?;
    if primary.is_none() {
        give_functions(&mut cluster.nodes[0], &mut node)?;
    }
    step(&format!(">>> Send CLUSTER MEET to node {node} to make it join the cluster."));
    node.meet(&cluster.nodes[0].meeting_place()?)?;
    if let Some(at) = primary {
        let (id, address) = (cluster.nodes[at].id.clone(), cluster.nodes[at].to_string());
        cluster.nodes.push(node);
        cluster.wait_until_joined()?;
        step(&format!(">>> Configure node as replica of {address}."));
        cluster.nodes.last_mut().map_or(Ok(()), |node| node.replicate(&id))?;
    }
    good("[OK] New node added correctly.");
    Ok(())
}

/// Gives a new primary the functions of the cluster. A replica gets them from its primary.
fn give_functions(from: &mut Node, to: &mut Node) -> Result<(), String> {
    step(">>> Getting functions from cluster");
    let dump = from.ask_any(&["FUNCTION", "DUMP"])?;
    if dump.is_error() {
        step(&format!(
            ">>> Failed retrieving Functions from the cluster, skip this step as the server does \
             not support the function command (error = '{}')",
            dump.text_or_error()
        ));
        return Ok(());
    }
    step(&format!(">>> Send FUNCTION LIST to {to} to verify there is no functions in it"));
    let list = to.ask(&["FUNCTION", "LIST"])?;
    if !list.items().is_empty() {
        return Err(
            ">>> New node already contains functions and can not be added to the cluster. \
                    Use FUNCTION FLUSH and try again."
                .into(),
        );
    }
    step(&format!(">>> Send FUNCTION RESTORE to {to}"));
    to.ask(&[&b"FUNCTION"[..], b"RESTORE", dump.bytes().unwrap_or_default()]).map(drop)
}

/// `del-node HOST:PORT ID`
pub fn del_node(options: &Options, address: &str, id: &str) -> Result<(), String> {
    let (host, port) = address_of(address)?;
    step(&format!(">>> Removing node {id} from cluster {address}"));
    let mut cluster = Cluster::load(Node::connect(options, &host, port)?)?;
    let found = cluster.by_id(id);
    let away = cluster.away.iter().position(|node| node.id.eq_ignore_ascii_case(id));
    let (shown, has_slots) = match (found, away) {
        (Some(at), _) => (cluster.nodes[at].to_string(), !cluster.nodes[at].slots.is_empty()),
        (None, Some(at)) => (cluster.away[at].address.clone(), cluster.away[at].has_slots),
        (None, None) => return Err(format!("[ERR] No such node ID {id}")),
    };
    if has_slots {
        return Err(format!("[ERR] Node {shown} is not empty! Reshard data away and try again."));
    }
    let leaving = found.map(|at| cluster.nodes.remove(at));
    step(">>> Sending CLUSTER FORGET messages to the cluster...");
    for other in cluster.away.iter().filter(|node| !node.id.eq_ignore_ascii_case(id)) {
        warn(&format!(
            ">>> Skipping unreachable node {}. It may need manual reconfiguration when it comes \
             back online.",
            other.address
        ));
    }
    for at in 0..cluster.nodes.len() {
        let follows = |primary: &String| primary.eq_ignore_ascii_case(id);
        if cluster.nodes[at].primary.as_ref().is_some_and(follows) {
            let next = cluster.with_fewest_replicas()?;
            let next_id = cluster.nodes[next].id.clone();
            step(&format!(">>> {} as replica of {}", cluster.nodes[at], cluster.nodes[next]));
            cluster.nodes[at].replicate(&next_id)?;
        }
    }
    forget(&mut cluster, id)?;
    match leaving {
        Some(mut node) => {
            step(">>> Sending CLUSTER RESET SOFT to the deleted node.");
            node.ask(&["CLUSTER", "RESET", "SOFT"])?;
        }
        None => warn(&format!(
            ">>> WARNING: Could not connect to node {shown}, unable to send CLUSTER RESET."
        )),
    }
    good(&format!("[OK] Node {id} removed from the cluster."));
    Ok(())
}

fn forget(cluster: &mut Cluster, id: &str) -> Result<(), String> {
    for (forgot, node) in cluster.nodes.iter_mut().enumerate() {
        let reply = node.ask_any(&["CLUSTER", "FORGET", id])?;
        // Where nodes share what they know, the first has told the others.
        let is_gone = forgot > 0 && reply.text_or_error().starts_with("ERR Unknown node");
        if reply.is_error() && !is_gone {
            return Err(node.refused(&reply));
        }
    }
    Ok(())
}

/// `call HOST:PORT COMMAND ARGUMENT …`
pub fn call(options: &Options, wanted: &ClusterOptions) -> Result<(), String> {
    let [_, address, command @ ..] = &wanted.words[..] else { return Err(String::new()) };
    let mut cluster = super::cluster(options, &[String::from_utf8_lossy(address).into_owned()])?;
    let shown: Vec<_> = command.iter().map(|word| String::from_utf8_lossy(word)).collect();
    step(&format!(">>> Calling {}", shown.join(" ")));
    let style = Style { format: Format::Raw, ..options.style.clone() };
    let mut failed = 0;
    for node in &mut cluster.nodes {
        let is_primary = node.primary.is_none();
        if wanted.only_primaries && !is_primary || wanted.only_replicas && is_primary {
            continue;
        }
        let reply = node.ask_any(command);
        failed += usize::from(!matches!(&reply, Ok(reply) if !reply.is_error()));
        let mut text = format!("{node}: ").into_bytes();
        match reply {
            Ok(reply) => text.extend(style.write(&reply)),
            Err(_) => text.extend(b"Failed!"),
        }
        if text.last() != Some(&b'\n') {
            text.push(b'\n');
        }
        emit(&text);
    }
    if failed > 0 && options.exit_status {
        return Err(format!("[ERR] {failed} nodes replied with an error."));
    }
    Ok(())
}

/// `set-timeout HOST:PORT MILLISECONDS`
pub fn set_timeout(options: &Options, address: &str, timeout: &str) -> Result<(), String> {
    match timeout.parse::<u64>() {
        Ok(100..) => {}
        _ => {
            let why = "Setting a node timeout of less than 100 milliseconds is a bad idea.";
            return Err(misused(why));
        }
    }
    let mut cluster = super::cluster(options, &[address.to_owned()])?;
    step(">>> Reconfiguring node timeout in every cluster node...");
    let (mut done, mut failed) = (0, 0);
    for node in &mut cluster.nodes {
        let set = |node: &mut Node| -> Result<(), String> {
            for words in
                [&["CONFIG", "SET", "cluster-node-timeout", timeout][..], &["CONFIG", "REWRITE"]]
            {
                if let Value::Error(text) = node.ask_any(words)? {
                    return Err(String::from_utf8_lossy(&text).into_owned());
                }
            }
            Ok(())
        };
        match set(node) {
            Ok(()) => {
                warn(&format!("*** New timeout set for {node}"));
                done += 1;
            }
            Err(why) => {
                bad(&format!("ERR setting node-timeout for {node}: {why}"));
                failed += 1;
            }
        }
    }
    step(&format!(">>> New node timeout set. {done} OK, {failed} ERR."));
    Ok(())
}
