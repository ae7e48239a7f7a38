//! Sends a client's request to one server or to several.

use super::client::{Client, Flow, ReplyPlace};
use super::tag::{Aim, Kept, Purpose, Tag};
use super::{Conn, Hub};
use crate::failure::Failure;
use crate::policy::Policy;
use crate::wire::Wire;
use route::plan::{Page, Piece};
use route::raw;
use spec::{Flags, Merge};
use std::time::Duration;

/// How long a server may take to answer a request that does not need the answer of each.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// How the replies of several servers become one.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a> {
    /// By this rule.
    pub merge: Merge,
    /// This reply is joined with theirs.
    pub own: Option<&'a [u8]>,
    /// Servers that do not answer are left out ([`Joining::lenient`](route::Joining::lenient)).
    pub is_lenient: bool,
    /// The request is about no database, and goes out on connections as they are.
    pub is_apart: bool,
}

impl Answers<'_> {
    /// Has the answers of all servers joined by this rule.
    pub fn of_all(merge: Merge) -> Answers<'static> {
        Answers { merge, own: None, is_lenient: false, is_apart: false }
    }
}

impl<P: Policy> Hub<P> {
    /// Returns who may answer a request without a key in place of this server: the one that leads
    /// the same shard by then. Any other would answer for its own shard once more.
    pub(super) fn aim_at_shard(&self, client: &Client, server: usize) -> Aim {
        self.pools[client.pool].first_slot(server).map_or(Aim::Server, Aim::Slot)
    }

    /// Sends a request to several servers.
    pub(super) fn send_to<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        servers: Vec<usize>,
        request: &[u8],
        answers: Answers<'_>,
    ) -> Flow {
        let Answers { merge, own, is_lenient, is_apart } = answers;
        let asked = servers.len();
        let joining = route::Joining::new(merge, asked + usize::from(own.is_some()));
        let joining = if is_lenient { joining.lenient() } else { joining };
        let seq = client.push(ReplyPlace::Joining(Box::new(joining)));
        for (part, server) in servers.into_iter().enumerate() {
            let aim = match is_lenient {
                true => Aim::Server,
                false => self.aim_at_shard(client, server),
            };
            let to = (server, aim);
            match is_apart {
                true => self.send_as_is(wire, client, to, request, (seq, part as u32)),
                false => self.send_part(wire, client, to, request, (seq, part as u32)),
            }
        }
        if let Some(own) = own {
            client.take(wire, seq, asked as u32, own);
        }
        Flow::Done
    }

    /// Sends a request to one server.
    #[inline]
    pub(super) fn forward<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
        request: &[u8],
        slot: ReplyPlace,
    ) {
        let seq = client.push(slot);
        self.send_part(wire, client, (server, Aim::Key), request, (seq, 0));
    }

    #[inline]
    pub(super) fn send_part<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        to: (usize, Aim),
        request: &[u8],
        part: (u64, u32),
    ) {
        // What is queued finds the session that EXEC has there.
        if let Some(own) = client.own_to(to.0).filter(|_| client.multi.is_none()) {
            self.bring_in_step(wire, client, own);
        }
        self.send_as_is(wire, client, to, request, part);
    }

    #[inline]
    fn send_as_is<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        (server, aim): (usize, Aim),
        request: &[u8],
        (seq, part): (u64, u32),
    ) {
        let id = match client.own_to(server) {
            Some(id) => Ok(id),
            None if client.tracking.is_some() => self.acquire_own(wire, client, server),
            None => {
                let local = &self.pools[client.pool];
                let key = local.link_key(client.session, client.turn, server);
                self.shared(wire, client.pool, server, key)
            }
        };
        match id {
            Ok(id) => {
                // A client's own connection ends what it has begun.
                if client.own.is_empty()
                    && let Some(why) = self.is_full(id)
                {
                    return client.take(wire, seq, part, &why.reply());
                }
                // Inside a transaction it would be queued.
                if client.multi.is_none() {
                    self.say_caching(wire, client, id);
                }
                let purpose = self.purpose(client, server, request, aim);
                let tag = Tag { client: client.id, seq, part, bytes: 0, purpose };
                self.send_on(wire, id, request, tag);
                self.check_queue(client, id);
            }
            Err(why) => {
                let purpose = match self.purpose(client, server, request, aim) {
                    Purpose::Keyed(_) => Purpose::redirectable(request.to_vec()),
                    purpose => purpose,
                };
                let tag = Tag { client: client.id, seq, part, bytes: 0, purpose };
                if let Err(tag) = self.unreachable(wire.now(), client, tag) {
                    client.take(wire, tag.seq, tag.part, &why.reply());
                }
            }
        }
    }

    /// Sends SCAN to one of the servers that it goes through.
    pub(super) fn scan<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        piece: &Piece,
        page: Page,
    ) -> Flow {
        let to = (piece.server, self.aim_at_shard(client, piece.server));
        let seq = client.push(ReplyPlace::Scan(Box::new(page)));
        self.send_part(wire, client, to, &piece.request, (seq, 0));
        Flow::Done
    }

    /// Sends what fills pages of SCAN.
    pub(super) fn go_on_scanning<W: Wire>(&mut self, wire: &mut W) {
        for (id, seq, piece) in std::mem::take(&mut self.pages) {
            let Some(Conn::Client(mut client)) = self.take_conn(id) else { continue };
            let to = (piece.server, self.aim_at_shard(&client, piece.server));
            self.send_part(wire, &mut client, to, &piece.request, (seq, 0));
            self.put(id, Conn::Client(client));
            self.answered(wire, id);
        }
    }

    /// Refuses a request; a transaction that it belongs to will not run.
    pub(super) fn refuse<W: Wire>(&mut self, wire: &mut W, client: &mut Client, why: &str) {
        if let Some(multi) = &mut client.multi {
            multi.is_dirty = true;
        }
        client.answer(wire, &raw::error(why));
    }

    /// Sends a command that may wait, on a connection of the client's own.
    pub(super) fn blocking<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
        request: &[u8],
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        match self.own(wire, client, server) {
            Ok(own) => {
                if !P::TRUSTS_SERVERS {
                    self.identify(wire, Some(own));
                }
                client.is_blocked = true;
                self.forward(wire, client, server, request, ReplyPlace::Waiting);
            }
            Err(why) => client.answer(wire, &why.reply()),
        }
        self.settle_soon(client);
        Flow::Done
    }

    /// A request for several servers that does not wait behind those of other clients: it is about
    /// what these do there.
    pub(super) fn send_apart<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        servers: Vec<usize>,
        request: &[u8],
        answers: Answers<'_>,
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        // A server that runs a long script selects no database.
        let db = std::mem::replace(&mut client.session.db, 0);
        let answers_by = answers.is_lenient.then(|| wire.now() + ANSWERS_WITHIN);
        let acquired = servers.iter().try_for_each(|&server| {
            let acquired = self.own(wire, client, server);
            if let Some(own) = client.own_to(server).and_then(|own| self.upstream(own)) {
                own.answers_by = answers_by;
            }
            if answers.is_lenient { Ok(()) } else { acquired.map(drop) }
        });
        client.session.db = db;
        match acquired {
            Ok(()) if servers.is_empty() => client.answer(wire, &Failure::NoServer.reply()),
            Ok(()) => {
                client.is_blocked = true;
                self.send_to(wire, client, servers, request, answers);
            }
            Err(why) => client.answer(wire, &why.reply()),
        }
        self.settle_soon(client);
        Flow::Done
    }

    fn is_watch(&self, request: &[u8]) -> bool {
        let name = raw::elements(request).and_then(|words| words.first().copied());
        let row = name.and_then(raw::text).and_then(|name| self.commands.table.find(name));
        row.is_some_and(|row| row.command.flags.has(Flags::WATCHES))
    }

    /// What a request is that is not in a transaction.
    #[inline]
    fn purpose(&self, client: &Client, server: usize, request: &[u8], aim: Aim) -> Purpose {
        let local = &self.pools[client.pool];
        let is_read = local.is_replica(server);
        if !local.has_slots() && !is_read {
            return Purpose::Client;
        }
        let is_watch = client.watch.is_some() && self.is_watch(request);
        let is_usual = !is_read && !is_watch && aim == Aim::Key;
        if let Some(len) = u32::try_from(request.len()).ok().filter(|_| is_usual) {
            return Purpose::Keyed(len);
        }
        let kept = Kept { is_watch, is_read, aim, ..Kept::new(request.to_vec()) };
        Purpose::Redirectable(Box::new(kept))
    }
}
