//! The gate of a cluster's node: whether a request's keys are in one slot, and whether this server answers for it.

use super::gates::{Refusal, may_write};
use crate::args::Args;
use crate::clients::flag;
use crate::command::Flags;
use crate::cx::Cx;
use crate::error::Error;
use crate::membership::{Place, Published};
use crate::request_keys::RequestKeys;
use crate::table::Resolved;
use cluster::describe::{Asker, Node};
use config::ClusterEndpointType;
use std::sync::Arc;

const DOWN: &str = "CLUSTERDOWN The cluster is down";

impl Cx<'_> {
    /// How nodes are named to this client.
    pub fn asker(&self) -> Asker {
        let by = self.engine.config.cluster_preferred_endpoint_type();
        Asker {
            is_tls: self.session.transport_flags & flag::TLS != 0,
            wants_hostname: by == ClusterEndpointType::Hostname,
        }
    }

    /// What the coordinator said last.
    pub fn membership(&self) -> Option<Arc<Published>> {
        self.engine.membership.current(&self.thread.membership)
    }
}

/// A client's request, or its transaction, is for one slot, which is served here.
pub(super) fn slot(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Refusal> {
    if !cx.engine.membership.is_on() || cx.session.is_replica {
        return Ok(());
    }
    let runs_queue = row.command.flags.has(Flags::RUNS_QUEUE);
    if row.command.keys.is_empty() && !runs_queue {
        return Ok(());
    }
    cx.find_keys(row, args);
    let Some(first) = cx.keys.first() else { return Ok(()) };
    let slot = first.slot(&cx.engine.keyspace);
    let is_one = cx.keys.iter().all(|key| key.slot(&cx.engine.keyspace) == slot);
    let Some(slot) = slot else { return Ok(()) };
    if !is_one {
        let text = "CROSSSLOT Keys in request don't hash to the same slot";
        return Err(Error::Elsewhere(text.into()).into());
    }
    let may_write = may_write(cx, row);
    served(cx, slot.number(), may_write).map_err(Refusal::from)
}

/// Whether requests for this slot are answered here.
fn served(cx: &Cx<'_>, slot: u16, may_write: bool) -> Result<(), Error> {
    let down = |text: &str| Err(Error::Elsewhere(text.into()));
    let Some(published) = cx.membership() else { return down(DOWN) };
    let place = published.place_of(slot, cx.asker());
    if place == Place::Unassigned {
        return down("CLUSTERDOWN Hash slot not served");
    }
    let config = &cx.engine.config;
    if !published.is_ok(config.cluster_require_full_coverage()) {
        match config.cluster_allow_reads_when_down() {
            false => return down(DOWN),
            true if may_write => {
                return down("CLUSTERDOWN The cluster is down and only accepts read commands");
            }
            true => {}
        }
    }
    match place {
        Place::Here => Ok(()),
        Place::Replica(_) if cx.session.reads_replica && !may_write => Ok(()),
        Place::Replica(node) | Place::Moved(node) => Err(moved(slot, &node)),
        Place::NotYet | Place::Unassigned => down(DOWN),
    }
}

fn moved(slot: u16, node: &Node) -> Error {
    Error::Elsewhere(format!("MOVED {slot} {}:{}", node.endpoint, node.port))
}

/// What a script asks for is served here, too: its keys may be others than it has declared.
pub(super) fn slot_of_script(
    cx: &mut Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
) -> Result<(), Refusal> {
    if !cx.engine.membership.is_on() || row.command.keys.is_empty() {
        return Ok(());
    }
    let keyspace = &cx.engine.keyspace;
    let keys = RequestKeys::of(keyspace, row.command, args.words());
    let may_write = row.command.flags.has(Flags::WRITE);
    for slot in keys.iter().filter_map(|key| key.slot(keyspace)) {
        if served(cx, slot.number(), may_write).is_err() {
            let text = "ERR Script attempted to access a non local key in a cluster node";
            return Err(Error::text(text).into());
        }
    }
    Ok(())
}
