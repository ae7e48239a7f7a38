//! Shards without a primary: what each copy has, what would be given up if it led, and the way on.

use crate::site::Database;
use cluster::id::Id;
use cluster::promotion::{self, Election, Origin, Vote};
use cluster::topology::Shard;
use cluster::view::View;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a copy has, and what would be given up if it led.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// Its name: 40 hexadecimal digits.
    pub copy: String,
    /// Its machine.
    pub machine: String,
    /// The epoch of the last entry of its data; none if it has not said what it has.
    pub epoch: Option<u64>,
    /// Where its data end in the stream; none likewise.
    pub offset: Option<u64>,
    /// kept, log, other, or none if it has not said what it has: where its data come from.
    pub data: String,
    /// What would be given up if it led; empty if nothing that is known of.
    pub given_up: String,
}

/// A shard without a primary.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// What it waits for, and the way on. Empty if it has a primary.
    pub text: String,
    /// What its copies have.
    pub copies: Vec<Standing>,
}

/// The machine of a copy.
fn machine(database: &Database, copy: Id) -> &str {
    let placed = database.copies.iter().find(|placed| placed.copy == copy);
    placed.map_or("?", |placed| &placed.machine)
}

/// Says what would be given up if `copy` led: what the best copy has and it does not. `None`:
/// nothing that is known of.
pub fn given_up(database: &Database, view: &View, shard: &Shard, copy: Id) -> Option<String> {
    let best = promotion::better_than(view, shard, copy)?;
    let votes = promotion::votes(view, shard);
    let own = votes.iter().find(|vote| vote.holder.id == copy).map(|vote| vote.position);
    let how_much = match own {
        Some(own) if own.epoch == best.position.epoch => {
            format!("{} bytes of the stream", best.position.offset.saturating_sub(own.offset))
        }
        Some(own) => format!("what was written behind epoch {}", own.epoch.0),
        None => "everything".into(),
    };
    let (id, machine) = (best.holder.id, machine(database, best.holder.id));
    Some(format!("{how_much} that copy {id} on machine '{machine}' has ({})", place(&best)))
}

fn place(vote: &Vote) -> String {
    format!("epoch {}, offset {}", vote.position.epoch.0, vote.position.offset)
}

/// Describes a shard. `name` is the database's.
pub fn waiting(name: &str, database: &Database, view: &View, shard: &Shard) -> Waiting {
    if view.is_alive(shard.holder) {
        return Waiting::default();
    }
    let votes = promotion::votes(view, shard);
    let standing = |copy: Id| {
        let vote = votes.iter().find(|vote| vote.holder.id == copy);
        let data = vote.map_or("none", |vote| match vote.origin {
            Origin::Kept => "kept",
            Origin::Log => "log",
            Origin::Other => "other",
        });
        Standing {
            copy: copy.to_string(),
            machine: machine(database, copy).into(),
            epoch: vote.map(|vote| vote.position.epoch.0),
            offset: vote.map(|vote| vote.position.offset),
            data: data.into(),
            given_up: given_up(database, view, shard, copy).unwrap_or_default(),
        }
    };
    let copies = shard.copies.iter().map(|copy| standing(copy.id)).collect();
    Waiting { text: text(name, view, shard, &votes), copies }
}

fn text(name: &str, view: &View, shard: &Shard, votes: &[Vote]) -> String {
    let silent = shard.members().filter(|copy| votes.iter().all(|vote| vote.holder.id != copy.id));
    let silent: Vec<String> = silent.map(|copy| copy.id.to_string()).collect();
    let alive = votes.iter().filter(|vote| view.is_alive(vote.holder));
    let best = alive.max_by_key(|vote| (vote.position, vote.has_keys));
    let way = match best {
        Some(vote) => {
            let id = vote.holder.id;
            format!("or give up what they may have: dunlin cluster recover {name} --copy {id}")
        }
        None => "no copy has said what it has yet".into(),
    };
    let why = match shard.is_rolled_back() {
        true => {
            "etcd was started again with older files, so its copies elect one by what they have: "
        }
        false => "",
    };
    let state = match promotion::elect(view, shard) {
        Election::Won(_) => "a copy is about to lead".into(),
        Election::Restored(id) => {
            let (id, silent) = (id.id, silent.join(", "));
            format!("copy {id} leads in some seconds, unless {silent} comes back with more")
        }
        Election::Lost => format!("all its copies are empty; {way}"),
        Election::Waiting { .. } if silent.is_empty() => {
            format!("the copy that has most is not there: start it, {way}")
        }
        Election::Waiting { fenced, needed } => format!(
            "{fenced} of {needed} copies that it takes have said what they have: start {}, {way}",
            silent.join(" or ")
        ),
    };
    format!("{why}{state}")
}
