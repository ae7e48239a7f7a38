//! Waits until replicas have everything before the server goes down.

use super::name;
use crate::log;
use engine::Engine;
use engine::clock::now;
use engine::journal::JournalPos;
use engine::mailbox::recheck_all;
use replication::primary::{Link, Stage};

/// The position that replicas have to reach before the server goes down: the journal's end when
/// writes paused. They are not asked for acknowledgements. A GETACK would be in the stream, and a
/// primary that restarts only continues with replicas that have exactly what it has. Replicas
/// acknowledge every second by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    paused_at: JournalPos,
}

/// Returns whether a replica counts. A replica that only takes a snapshot acknowledges nothing. One
/// that gets the stream counts whatever it has said of an epoch: it may take over, and says so only
/// with its next acknowledgement if the link or the epoch has just begun. Others may not count for
/// a failover.
fn counts(engine: &Engine, link: &Link) -> bool {
    let is_fed = link.stage == Stage::Online;
    !link.is_old && !link.facts.rdb_only && (is_fed || engine.votes.counts(link))
}

/// Returns whether there is a replica that counts.
pub fn has_replicas(engine: &Engine) -> bool {
    engine.replicas.primary().replicas().any(|link| counts(engine, link))
}

impl Target {
    /// Returns the present end of the journal as the target.
    pub fn now(engine: &Engine) -> Target {
        Target { paused_at: engine.journal.position() }
    }

    /// Pauses writes and returns the target. The thread is outside the world.
    pub fn pause(engine: &Engine) -> Target {
        let stopped = engine.keyspace.world().stop();
        engine.pause.begin_shutdown();
        let target = Target::now(engine);
        drop(stopped);
        recheck_all(&engine.mailboxes);
        target
    }

    /// Returns the position that replicas have to reach. On a primary it includes commands that had
    /// begun before the pause. On a replica the primary's stream goes on, so the position is fixed.
    fn position(self, engine: &Engine) -> JournalPos {
        let is_copy = engine.journal.is_copy();
        if is_copy { self.paused_at } else { engine.journal.position() }
    }

    /// Returns whether all replicas have reached the target.
    pub fn is_reached(self, engine: &Engine) -> bool {
        let wanted = self.position(engine);
        let primary = engine.replicas.primary();
        primary
            .replicas()
            .filter(|link| counts(engine, link))
            .all(|link| link.acknowledged() >= wanted)
    }

    /// Logs which replicas are behind.
    pub fn log(self, engine: &Engine) {
        let (wanted, now) = (self.position(engine), now());
        let lines: Vec<(u64, Option<String>)> = {
            let primary = engine.replicas.primary();
            let counted = primary.replicas().filter(|link| counts(engine, link));
            let line = |link: &Link| {
                let behind = wanted.0.saturating_sub(link.acknowledged().0);
                let lag = if link.stage == Stage::Online { link.lag_s(now) } else { 0 };
                let state = link.stage.name();
                (behind > 0).then(|| {
                    format!("reported offset {behind} behind master, lag={lag}, state={state}.")
                })
            };
            counted.map(|link| (link.client, line(link))).collect()
        };
        for (client, line) in &lines {
            if let Some(line) = line {
                log!(Notice, "Lagging replica {} {line}", name(engine, *client));
            }
        }
        let (all, synced) = (lines.len(), lines.iter().filter(|(_, line)| line.is_none()).count());
        if all > 0 {
            log!(Notice, "{synced} of {all} replicas are in sync when shutting down.");
        }
    }
}
