//! Commands that no table has: the servers are asked where their keys are.

use super::Hub;
use super::client::{Client, Flow};
use super::tag::{Purpose, Tag};
use crate::failure::Failure;
use crate::policy::Policy;
use crate::pool::Session;
use crate::vocabulary::Meaning;
use crate::wire::Wire;
use route::plan::Placement;
use route::raw;
use std::time::Instant;
use structs::sync::lock;

impl<P: Policy> Hub<P> {
    /// Closes a connection that speaks HTTP.
    #[cold]
    pub(super) fn reject_http<W: Wire>(&mut self, wire: &mut W, client: &mut Client) -> Flow {
        client.is_leaving = true;
        wire.finish(client.id);
        let seconds = wire.now().saturating_duration_since(self.common.started).as_secs();
        if let Some(line) = self.common.http_log.line(1 + seconds as i64, &client.peer) {
            (self.common.log)(&line);
        }
        Flow::Done
    }

    /// Returns what is known of a command that no table has.
    pub(super) fn meaning(&self, pool: usize, name: &[u8], now: Instant) -> Option<Meaning> {
        lock(&self.pools[pool].shared.vocabulary).find(&shown(name), now)
    }

    /// Lets a client wait until a server has said what it knows of a command.
    pub(super) fn learn<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        name: String,
    ) -> Flow {
        if self.learning.insert((client.pool, name.clone()))
            && let Err(why) = self.ask_for(wire, client, &name)
        {
            self.learning.remove(&(client.pool, name));
            self.refuse(wire, client, &why.text());
            return Flow::Done;
        }
        client.is_learning = true;
        self.learners.push(client.id);
        Flow::Later
    }

    fn ask_for<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &Client,
        name: &str,
    ) -> Result<(), Failure> {
        let pool = client.pool;
        let server = self.pools[pool].any().ok_or(Failure::NoServer)?;
        let session = Session { protocol: resp::Protocol::Resp2, ..client.session };
        let key = self.pools[pool].link_key(session, 0, server);
        let id = self.shared(wire, pool, server, key)?;
        let purpose = Purpose::Learn(name.to_owned());
        let tag = Tag { client: client.id, seq: pool as u64, part: 0, bytes: 0, purpose };
        self.send_on(wire, id, &raw::request(&[b"COMMAND", b"INFO", name.as_bytes()]), tag);
        Ok(())
    }

    /// Takes a server's reply, or the error of a lost connection, and lets the clients go on.
    pub(super) fn learned<W: Wire>(
        &mut self,
        wire: &mut W,
        pool: usize,
        name: String,
        reply: &[u8],
    ) {
        self.learning.remove(&(pool, name.clone()));
        lock(&self.pools[pool].shared.vocabulary).note(name, reply, wire.now());
        for id in std::mem::take(&mut self.learners) {
            if let Some(client) = self.client(id) {
                client.is_learning = false;
                wire.resume(id);
            }
        }
    }
}

/// A name as servers are asked for it.
pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_uppercase()
}
