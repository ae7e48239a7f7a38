//! Commands that no table has: the servers are asked where their keys are.

use super::Hub;
use super::client::Client;
use super::request::Flow;
use super::upstream::{Purpose, Tag};
use super::wire::Wire;
use crate::failure::Failure;
use crate::policy::Policy;
use crate::pool::Session;
use crate::vocabulary::Meaning;
use route::plan::Placement;
use route::raw;
use spec::{Unresolved, Way};
use std::time::Instant;
use structs::sync::lock;

impl<P: Policy> Hub<P> {
    /// A request whose command no table has. It waits until a server has said what it knows of it.
    pub(super) fn unknown<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        if resp::http::is_http(words[0]) {
            return self.reject_http(wire, client);
        }
        // Servers are not asked for what the client may not send.
        if let Some(why) = self.refusal(client, words, Way::Keys) {
            self.refuse(wire, client, &why);
            return Flow::Done;
        }
        match self.meaning(client.pool, words[0], wire.now()) {
            Some(Meaning::Known(learned)) => {
                let (keys, course) = (learned.keys(words), learned.course(words));
                self.planned(wire, client, words, request, &keys, (course, false))
            }
            Some(Meaning::Unknown) => {
                // It is not sent: a server that has just learnt it would run it for a key that is
                // another's.
                let why = match self.commands.table.resolve(words) {
                    Err(Unresolved::Unknown(why)) => String::from_utf8_lossy(&why).into_owned(),
                    _ => "ERR unknown command".to_owned(),
                };
                self.refuse(wire, client, &why);
                Flow::Done
            }
            Some(Meaning::Unclear(why)) => {
                self.refuse(wire, client, &why);
                Flow::Done
            }
            None => self.learn(wire, client, shown(words[0])),
        }
    }

    /// Closes a connection that speaks HTTP.
    #[cold]
    fn reject_http<W: Wire>(&mut self, wire: &mut W, client: &mut Client) -> Flow {
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
    fn learn<W: Wire>(&mut self, wire: &mut W, client: &mut Client, name: String) -> Flow {
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
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_uppercase()
}
