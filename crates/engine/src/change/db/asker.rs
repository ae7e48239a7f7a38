//! The client that a long command works for.

use super::Db;
use crate::clients::{Client, Departure};
use crate::held_keys::NamedKey;
use crate::session::Session;
use std::cell::Cell;
use std::sync::Arc;
use structs::give_way;

/// The client that waits for a long command.
pub(crate) struct Asker {
    client: Arc<Client>,
    /// How it has to have gone for the command to be in vain.
    departure: Departure,
    /// How often it was asked for.
    asked: Cell<u32>,
}

impl Asker {
    pub(crate) fn new(session: &Session, keys: &[NamedKey]) -> Asker {
        let writes = keys.iter().any(|key| key.writes);
        // A write is done even if its client hangs up, as in Redis.
        let departure = if writes { Departure::Closed } else { Departure::Left };
        Asker { client: Arc::clone(&session.client), departure, asked: Cell::default() }
    }

    pub(crate) fn has_gone(&self) -> bool {
        self.client.has_gone(self.departure)
    }

    /// Gives way, if it is time. Some ask for every element, which is more often than a clock needs
    /// to be looked at.
    fn give_way(&self) {
        let asked = self.asked.get().wrapping_add(1);
        self.asked.set(asked);
        if asked.is_multiple_of(64) {
            give_way::give_way();
        }
    }
}

impl Db<'_> {
    /// Whether the result of this command is still wanted. If not, it may end at once: its reply
    /// is not sent, and it has changed nothing. Commands that can run for long ask this now and
    /// then while they only read, and above all before their first change.
    ///
    /// From its first change on a command is always wanted, so that none is done by half.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        match self.asker {
            None => true,
            Some(_) if !self.locks.is_empty() => true,
            Some(asker) => {
                asker.give_way();
                !asker.has_gone()
            }
        }
    }
}
