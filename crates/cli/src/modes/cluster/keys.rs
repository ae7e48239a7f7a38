//! Moves the keys of a slot with MIGRATE.

use super::node::Node;
use super::nodes::Cluster;
use super::{bad, moves, say, warn};
use crate::options::ClusterOptions;
use crate::session::emit;
use client::parse_slots;
use resp::Value;

/// Moves all keys of a slot, of all databases.
pub fn migrate(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    slot: u16,
    (from, to): (usize, usize),
    shows_dots: bool,
) -> Result<(), String> {
    let databases = databases(&mut cluster.nodes[from])?;
    for database in 0..databases {
        if databases > 1 {
            cluster.nodes[from].ask(&["SELECT", &database.to_string()])?;
        }
        loop {
            let node = &mut cluster.nodes[from];
            let (place, most) = (slot.to_string(), wanted.pipeline.to_string());
            let reply = node.ask(&["CLUSTER", "GETKEYSINSLOT", &place, &most])?;
            let keys: Vec<&[u8]> = reply.items().iter().filter_map(Value::bytes).collect();
            if keys.is_empty() {
                break;
            }
            let batch = Batch { wanted, slot, from, to, database, keys: &keys };
            batch.send(cluster)?;
            if shows_dots {
                emit(".".repeat(keys.len()).as_bytes());
            }
        }
    }
    if databases > 1 {
        cluster.nodes[from].ask(&["SELECT", "0"])?;
    }
    Ok(())
}

/// How many databases a node of a cluster has.
fn databases(node: &mut Node) -> Result<usize, String> {
    let reply = node.ask_any(&["CONFIG", "GET", "cluster-databases"])?;
    let count = reply.get("cluster-databases").and_then(Value::integer);
    Ok(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(1).max(1))
}

/// Keys that are sent with one MIGRATE.
struct Batch<'a> {
    wanted: &'a ClusterOptions,
    slot: u16,
    from: usize,
    to: usize,
    database: usize,
    keys: &'a [&'a [u8]],
}

impl Batch<'_> {
    fn send(&self, cluster: &mut Cluster) -> Result<(), String> {
        let reply = self.send_once(cluster, false)?;
        if !reply.is_error() {
            return Ok(());
        }
        let is_busy = reply.text_or_error().contains("BUSYKEY");
        let is_unserved = !is_busy && !is_served(&mut cluster.nodes[self.from], self.slot)?;
        if is_unserved {
            let id = cluster.nodes[self.to].id.clone();
            let target = cluster.nodes[self.to].to_string();
            warn(&format!("*** Slot was not served, setting owner to node {target}."));
            moves::set(&mut cluster.nodes[self.from], self.slot, "NODE", &id)?;
        } else if is_busy {
            warn("\n*** Target key exists");
            if !self.wanted.replace {
                self.ensure_equal(cluster)?;
            }
            warn("*** Replacing target keys...");
        } else {
            say("");
            return Err(cluster.nodes[self.from].refused(&reply));
        }
        let reply = self.send_once(cluster, is_busy)?;
        if reply.is_error() {
            say("");
            return Err(cluster.nodes[self.from].refused(&reply));
        }
        Ok(())
    }

    fn send_once(&self, cluster: &mut Cluster, replaces: bool) -> Result<Value, String> {
        let target = &cluster.nodes[self.to];
        let mut words: Vec<Vec<u8>> = [
            "MIGRATE",
            &target.host,
            &target.port.to_string(),
            "",
            &self.database.to_string(),
            &self.wanted.timeout_ms.to_string(),
        ]
        .map(|word| word.as_bytes().to_vec())
        .into();
        if replaces {
            words.push(b"REPLACE".to_vec());
        }
        words.extend(credentials(target));
        words.push(b"KEYS".to_vec());
        words.extend(self.keys.iter().map(|key| key.to_vec()));
        cluster.nodes[self.from].ask_any(&words)
    }

    /// Refuses keys that have another value at the target.
    fn ensure_equal(&self, cluster: &mut Cluster) -> Result<(), String> {
        warn("*** Checking key values on both nodes...");
        let mut digests = Vec::new();
        for at in [self.from, self.to] {
            let mut words: Vec<&[u8]> = vec![b"DEBUG", b"DIGEST-VALUE"];
            words.extend(self.keys);
            let reply = cluster.nodes[at].ask_any(&words)?;
            if reply.is_error() {
                bad(&cluster.nodes[at].refused(&reply));
                bad("*** Value check failed!");
                let why = match reply.text_or_error().starts_with("ERR DEBUG command not allowed") {
                    true => {
                        "DEBUG command is not allowed.\nYou can turn on the enable-debug-command \
                         option.\nOr you can relaunch the command with --cluster-replace option to \
                         force key overriding."
                    }
                    false => {
                        "DEBUG DIGEST-VALUE command is not supported.\nYou can relaunch the \
                         command with --cluster-replace option to force key overriding."
                    }
                };
                return Err(why.into());
            }
            let digests_of = reply.items().iter().map(Value::text_or_error);
            digests.push(digests_of.collect::<Vec<_>>());
        }
        let different = different(self.keys, &digests[0], &digests[1]);
        if different.is_empty() {
            return Ok(());
        }
        Err(format!(
            "*** Found {} key(s) in both source node and target node having different values.\n    \
             Source node: {}\n    Target node: {}\n    Keys(s):\n    - {}\nPlease fix the above \
             key(s) manually and try again or relaunch the command \nwith --cluster-replace option \
             to force key overriding.",
            different.len(),
            cluster.nodes[self.from],
            cluster.nodes[self.to],
            different.join("\n    - ")
        ))
    }
}

/// Keys of which both sides have a value, and not the same.
fn different(keys: &[&[u8]], ours: &[String], theirs: &[String]) -> Vec<String> {
    let is_missing = |digest: &String| digest.bytes().all(|byte| byte == b'0');
    let sides = ours.iter().zip(theirs);
    let pairs = keys
        .iter()
        .zip(sides)
        .filter(|(_, (one, other))| one != other && !is_missing(one) && !is_missing(other));
    pairs.map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
}

/// The words that log in at a server, as MIGRATE takes them.
pub fn credentials(node: &Node) -> Vec<Vec<u8>> {
    let options = &node.session.options;
    let words = match (&options.password, &options.user) {
        (None, _) => Vec::new(),
        (Some(password), None) => vec!["AUTH", password],
        (Some(password), Some(user)) => vec!["AUTH2", user, password],
    };
    words.into_iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Whether a node knows an owner of a slot.
pub fn is_served(node: &mut Node, slot: u16) -> Result<bool, String> {
    let reply = node.ask(&["CLUSTER", "SLOTS"])?;
    let ranges = parse_slots(&reply).unwrap_or_default();
    Ok(ranges.iter().any(|range| (range.first..=range.last).contains(&slot)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_both_have_can_differ() {
        let digests = |words: [&str; 4]| words.map(str::to_owned);
        let zero = "0".repeat(40);
        let (ours, theirs) =
            (digests(["aa", "bb", "cc", &zero]), digests(["aa", "b0", &zero, "dd"]));
        assert_eq!(different(&[b"1", b"2", b"3", b"4"], &ours, &theirs), ["2"]);
    }
}
