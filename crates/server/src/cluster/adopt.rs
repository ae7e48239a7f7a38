//! A server that starts from the files of a Redis or Valkey Cluster: it tells the coordinator what
//! its `nodes.conf` says, and the server with the newest one makes the topology. Until then it
//! serves nothing, so nothing is changed that a file does not know.

use crate::log;
use cluster::Moment;
use cluster::coordinator::{Coordinator as _, Failure, Outcome};
use cluster::id::Id;
use cluster::nodes_conf::{Claim, FileStep, Layout, make, read_claims, tell};
use cluster::topology::Address;
use cluster::view::Keys;
use etcd::Client;

/// How long it waits before it looks again.
const LOOK: Moment = Moment::from_millis(200);

/// See the head of this file.
pub(super) struct Adoption {
    /// The file.
    pub(super) layout: Layout,
    /// This server.
    pub(super) id: Id,
    /// Where others reach it.
    pub(super) address: Address,
}

impl Adoption {
    /// Waits until the server has a home at the coordinator.
    pub(super) fn run(&self, mut client: Client, keys: &Keys) {
        let mut said = String::new();
        loop {
            let text = match self.look(&mut client, keys) {
                Ok(None) => return,
                Ok(Some(text)) => text,
                Err(Failure::Away(why)) => format!("etcd is away: {why}"),
                Err(Failure::Unreadable(why)) => why,
                Err(Failure::Compacted(_)) => continue,
            };
            if text != said {
                log!(Notice, "Cluster: starts from nodes.conf: {text}");
                said = text;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Does what is next. Returns what it waits for, or `None` if the server has a home.
    fn look(&self, client: &mut Client, keys: &Keys) -> Result<Option<String>, Failure> {
        if !client.range(&keys.home(self.id), None)?.items.is_empty() {
            return Ok(None);
        }
        for node in self.layout.nodes.iter().filter(|node| node.id != self.id) {
            if !client.range(&keys.home(node.id), None)?.items.is_empty() {
                log!(
                    Warning,
                    "Cluster: the others of nodes.conf are at etcd without this node. It begins on \
                     its own: make it a replica with CLUSTER MEET and CLUSTER REPLICATE"
                );
                return Ok(None);
            }
        }
        let claim = Claim { layout: self.layout.clone(), address: self.address.clone() };
        client.commit(&tell(keys, self.id, &claim))?;
        let range = client.range(&keys.claims(), None)?;
        let claims = read_claims(keys, &range);
        Ok(Some(match self.layout.step(self.id, &claims) {
            FileStep::Waits(ids) => {
                let ids: Vec<String> = ids.iter().map(Id::to_string).collect();
                format!(
                    "waits for the start of {}. Remove the line of a node that does not come back, \
                     if another has its slots",
                    ids.join(", ")
                )
            }
            FileStep::Yields(id) => format!("waits for node {id}, whose file is newer"),
            FileStep::Unusable(why) => format!("the file makes no topology: {why}"),
            FileStep::Makes(topology) => match client.commit(&make(keys, &topology, &claims))? {
                Outcome::Done(_) => "the topology is at etcd".into(),
                Outcome::Conflict => "another node makes the topology".into(),
            },
        }))
    }
}
