//! A planned switch: the successor is asked, the topology says when it leads, and the copies when
//! they know.

use crate::site::{Database, Placed};
use crate::store::{Problem, Store};
use crate::talk::{self, Answer};
use cluster::id::Id;
use cluster::view::View;
use std::time::{Duration, Instant};

/// How long a switch may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a copy may take to answer.
const ANSWER: Duration = Duration::from_secs(8);

/// Hands a shard over to a replica, and waits until it leads.
///
/// # Errors
/// The replica refuses it, or it takes too long.
pub fn hand_over(store: &mut Store, database: &Database, to: &Placed) -> Result<(), Problem> {
    let began = Instant::now();
    let address = (&*to.host, to.port);
    match talk::ask_node(address, database.login(), &["CLUSTER", "FAILOVER"], ANSWER) {
        Ok(Answer::Text(_)) => {}
        Ok(Answer::Error(why)) => {
            return Err(Problem::Wrong(format!("the replica refuses it: {why}")));
        }
        Err(error) => return Err(Problem::Away(format!("the replica does not answer: {error}"))),
    }
    while began.elapsed() < PATIENCE {
        let view = store.view(database.id)?;
        let shard = view.as_ref().and_then(|view| view.topology.value.shard_of(to.copy));
        if shard.is_some_and(|shard| shard.holder.id == to.copy) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(Problem::Away("the primary did not hand the shard over in time; it goes on".into()))
}

/// Says which copy may still send requests to one that led: it does not know yet that that one has
/// no slots.
pub fn still_sent_to(database: &Database, view: &View, former: Id) -> Option<String> {
    let name = former.to_string();
    let copies = database.copies.iter().filter(|it| view.alive.contains_key(&it.copy));
    let unaware = talk::side_by_side(copies, |placed| {
        let address = (&*placed.host, placed.port);
        let answer = talk::ask_node(address, database.login(), &["CLUSTER", "NODES"], talk::ANSWER);
        let knows = match answer {
            Ok(Answer::Text(nodes)) => {
                // Slots are behind the eighth word of a line.
                let line = nodes.lines().find(|line| line.starts_with(&name));
                line.is_none_or(|line| line.split_whitespace().count() <= 8)
            }
            // What does not answer sends nothing, or is asked again.
            _ => false,
        };
        (!knows).then_some(placed)
    });
    let Placed { machine, port, .. } = unaware.into_iter().flatten().next()?;
    Some(format!("the copy on machine '{machine}', port {port}, does not know yet where slots are"))
}
