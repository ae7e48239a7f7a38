//! A planned switch: the successor is asked, and the topology says when it leads.

use crate::site::{Database, Placed};
use crate::store::{Problem, Store};
use crate::talk::{self, Answer};
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
