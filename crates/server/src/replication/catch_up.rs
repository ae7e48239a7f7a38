//! Waiting until replicas have everything, before the server goes down.

use super::name;
use crate::log;
use engine::Engine;
use engine::clock::now;
use engine::journal::JournalPos;
use engine::mailbox::recheck_all;
use replication::primary::{Link, Stage};
use replication::wire;

/// What replicas are to have before the server goes down. Once they are asked for it, they need not have
/// the question itself.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    before: JournalPos,
    asked: JournalPos,
}

/// Whether a replica counts: others acknowledge nothing, and only take a snapshot.
fn acknowledges(link: &Link) -> bool {
    !link.is_old && !link.facts.rdb_only
}

impl Target {
    /// All that there is now.
    pub fn now(engine: &Engine) -> Target {
        let position = engine.journal.position();
        Target { before: position, asked: position }
    }

    /// Makes writes wait, and asks the replicas for what they have then. The thread is outside the world.
    pub fn pause(engine: &Engine) -> Target {
        let stopped = engine.keyspace.world().stop();
        let before = engine.journal.position();
        engine.append_to_stream(wire::GETACK);
        engine.pause.begin_shutdown();
        let asked = engine.journal.position();
        drop(stopped);
        recheck_all(&engine.mailboxes);
        Target { before, asked }
    }

    /// The position that replicas are to have. A primary's own stream stands still from the question on,
    /// but for commands that had begun before; that of its primary goes on.
    fn position(self, engine: &Engine) -> JournalPos {
        let position = engine.journal.position();
        let is_still = position == self.asked || engine.journal.is_copy();
        if is_still { self.before } else { position }
    }

    /// Whether all replicas have that.
    pub fn is_reached(self, engine: &Engine) -> bool {
        let wanted = self.position(engine);
        let primary = engine.replicas.primary();
        primary
            .replicas()
            .filter(|link| acknowledges(link))
            .all(|link| link.acknowledged() >= wanted)
    }

    /// Says in the log which replicas lack something.
    pub fn log(self, engine: &Engine) {
        let (wanted, now) = (self.position(engine), now());
        let lines: Vec<(u64, Option<String>)> = {
            let primary = engine.replicas.primary();
            let counted = primary.replicas().filter(|link| acknowledges(link));
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
