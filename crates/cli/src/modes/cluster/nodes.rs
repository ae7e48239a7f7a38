//! All nodes of a cluster.

use super::node::{Line, Node, PATIENCE, lines};
use super::{say, warn};
use crate::session::emit;
use std::thread;
use std::time::{Duration, Instant};

/// A node that cannot be reached, as another one describes it.
pub struct Away {
    pub id: String,
    pub address: String,
    pub is_replica: bool,
    pub has_slots: bool,
}

/// The nodes of a cluster.
pub struct Cluster {
    /// Those that can be reached; the first is the one that was named.
    pub nodes: Vec<Node>,
    /// The others.
    pub away: Vec<Away>,
}

impl Cluster {
    /// Connects to all nodes that the first one knows.
    pub fn load(mut first: Node) -> Result<Cluster, String> {
        let text = first.look()?;
        let options = first.session.options.clone();
        let mut cluster = Cluster { nodes: vec![first], away: Vec::new() };
        for line in lines(&text).filter(|line| !line.has("myself")) {
            let address = line.address().filter(|_| !line.has("handshake") && !line.has("noaddr"));
            let connected = address.map(|(host, port, _)| Node::connect(&options, host, port));
            match connected {
                Some(Ok(node)) => cluster.nodes.push(node),
                Some(Err(why)) => {
                    if !why.is_empty() {
                        warn(&why);
                    }
                    cluster.away.push(away(&line));
                }
                None => cluster.away.push(away(&line)),
            }
        }
        for node in &cluster.nodes {
            if let Some(id) = node.primary.as_ref().filter(|id| !cluster.knows(id)) {
                warn(&format!("*** WARNING: {node} claims to be replica of unknown node ID {id}."));
            }
        }
        Ok(cluster)
    }

    fn knows(&self, id: &str) -> bool {
        self.nodes.iter().any(|node| node.id == id) || self.away.iter().any(|node| node.id == id)
    }

    /// How many primaries are away.
    pub fn unreachable_primaries(&self) -> usize {
        self.away.iter().filter(|node| !node.is_replica).count()
    }

    /// Asks all nodes for their views again.
    pub fn look(&mut self) -> Result<(), String> {
        self.nodes.iter_mut().try_for_each(|node| node.look().map(drop))
    }

    /// Whether all nodes have the same view, as far as it was looked at.
    pub fn agrees(&self) -> bool {
        self.nodes.iter().all(|node| node.view == self.nodes[0].view)
    }

    /// Waits until all nodes know each other and agree.
    pub fn wait_until_joined(&mut self) -> Result<(), String> {
        say("Waiting for the cluster to join");
        let joined = self.wait_until(|cluster| {
            let count = cluster.nodes.len();
            cluster.agrees() && cluster.nodes.iter().all(|node| node.known >= count)
        });
        say("");
        joined
    }

    /// Looks at all nodes until something holds. Prints a dot each second.
    pub fn wait_until(&mut self, holds: impl Fn(&Cluster) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut shown = Instant::now();
        loop {
            self.look()?;
            if holds(self) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(
                    "[ERR] The nodes do not agree; look at CLUSTER NODES of each. The port \
                            of the cluster bus has to be reachable by every node, too."
                        .into(),
                );
            }
            if shown.elapsed() > Duration::from_secs(1) {
                emit(b".");
                shown = Instant::now();
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The node of this name.
    pub fn by_id(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.id.eq_ignore_ascii_case(id))
    }

    /// The primary whose name begins so.
    pub fn by_abbreviated_id(&self, id: &str) -> Option<usize> {
        let matches = |&at: &usize| self.nodes[at].id.starts_with(&id.to_ascii_lowercase());
        self.primaries().into_iter().find(matches)
    }

    /// Places of the primaries.
    pub fn primaries(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&at| self.nodes[at].primary.is_none()).collect()
    }

    /// The primary with the fewest replicas; the first of them.
    pub fn with_fewest_replicas(&self) -> Result<usize, String> {
        let fewest = self.primaries().into_iter().min_by_key(|&at| self.replicas_of(at));
        fewest.ok_or_else(|| "[ERR] Could not find a reachable primary node.".into())
    }

    /// How many replicas a node has.
    pub fn replicas_of(&self, at: usize) -> usize {
        let id = Some(&self.nodes[at].id);
        self.nodes.iter().filter(|node| node.primary.as_ref() == id).count()
    }

    /// The lines that describe a node.
    pub fn describe(&self, at: usize, indent: usize) -> String {
        self.nodes[at].describe(self.replicas_of(at), indent)
    }
}

fn away(line: &Line<'_>) -> Away {
    let address = line.address().map(|(host, port, _)| format!("{host}:{port}"));
    Away {
        id: line.id.to_owned(),
        address: address.unwrap_or_else(|| "(no address)".to_owned()),
        is_replica: line.is_replica(),
        has_slots: line.has_slots(),
    }
}
