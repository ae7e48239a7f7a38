//! Waiting until replicas have everything, before the server goes down.

use super::name;
use crate::log;
use engine::Engine;
use engine::clock::now;
use engine::journal::JournalPos;
use engine::mailbox::recheck_all;
use replication::primary::{Link, Stage};

/// What replicas are to have before the server goes down: all that there was when writes paused. They are
/// not asked for it: a GETACK would be in the stream, and a primary that comes back goes on only with
/// replicas that have exactly what it has. They acknowledge every second by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    paused_at: JournalPos,
}

/// Whether a replica counts: others acknowledge nothing, and only take a snapshot, or a fail-over does not count them.
fn counts(engine: &Engine, link: &Link) -> bool {
    !link.is_old && !link.facts.rdb_only && engine.votes().counts(link)
}

impl Target {
    /// All that there is now.
    pub fn now(engine: &Engine) -> Target {
        Target { paused_at: engine.journal().position() }
    }

    /// Makes writes wait. The thread is outside the world.
    pub fn pause(engine: &Engine) -> Target {
        let stopped = engine.keyspace().world().stop();
        engine.pause().begin_shutdown();
        let target = Target::now(engine);
        drop(stopped);
        recheck_all(engine.mailboxes());
        target
    }

    /// The position that replicas are to have. A primary's own stream stands still, but for commands that
    /// had begun before; that of its primary goes on.
    fn position(self, engine: &Engine) -> JournalPos {
        let is_copy = engine.journal().is_copy();
        if is_copy { self.paused_at } else { engine.journal().position() }
    }

    /// Whether all replicas have that.
    pub fn is_reached(self, engine: &Engine) -> bool {
        let wanted = self.position(engine);
        let primary = engine.replicas().primary();
        primary
            .replicas()
            .filter(|link| counts(engine, link))
            .all(|link| link.acknowledged() >= wanted)
    }

    /// Says in the log which replicas lack something.
    pub fn log(self, engine: &Engine) {
        let (wanted, now) = (self.position(engine), now());
        let lines: Vec<(u64, Option<String>)> = {
            let primary = engine.replicas().primary();
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
