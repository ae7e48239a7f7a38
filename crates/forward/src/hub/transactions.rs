//! MULTI, EXEC, WATCH.
//!
//! In front of a cluster a transaction's slot may move while it is queued. The server then answers
//! a redirection to one of its requests, and EXECABORT or a redirection to EXEC: nothing of it has
//! run. So its requests are kept, the client hears QUEUED, and the whole is sent again where the
//! slot is now. If the client watches keys, EXEC is answered with null instead, as if one of them
//! had changed: what the client does then, begin again, is right.

use super::again::{MAX_TRIES, PAUSE, given_up};
use super::client::{Client, Flow, ReplyPlace};
use super::multi::{Multi, null_array};
use super::tag::{Again, Purpose, Tag};
use super::{Conn, Hub};
use crate::failure::Failure;
use crate::policy::Policy;
use crate::wire::{Id, Wire};
use route::plan::Placement;
use route::raw::{self, DISCARD, EXEC, MULTI, UNWATCH};
use route::slots::redirection;

/// What the next request, or transaction, is sent behind to a server that does not have the slot
/// yet.
pub(super) const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

impl<P: Policy> Hub<P> {
    /// WATCH
    pub(super) fn watch<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: Option<usize>,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        let local = &self.pools[client.pool];
        let Some(mut server) = server.or_else(|| local.any()) else {
            client.answer(wire, &Failure::NoServer.reply());
            return Flow::Done;
        };
        let group = words.get(1).and_then(|key| local.group_of(key));
        if let Some(watch) = &client.watch {
            if watch.is_broken {
                client.answer(wire, b"+OK\r\n");
                return Flow::Done;
            }
            if watch.server != server && watch.group != group {
                client.answer(wire, &Failure::TransactionParted.reply());
                return Flow::Done;
            }
            // If the slot has moved since, EXEC will find out.
            server = watch.server;
        }
        if !client.is_idle() && client.watch.is_none() {
            return self.come_again(client);
        }
        match self.acquire_own(wire, client, server) {
            Ok(_) => {
                let watch = client.watch.get_or_insert_default();
                watch.server = server;
                watch.count += 1;
                watch.group = watch.group.or(group);
                self.forward(wire, client, server, request, ReplyPlace::Waiting);
            }
            Err(why) => client.answer(wire, &why.reply()),
        }
        Flow::Done
    }

    /// A WATCH has been redirected. Returns whether it may be sent elsewhere; otherwise the keys
    /// count as changed.
    pub(super) fn may_watch_elsewhere(&mut self, id: Id) -> bool {
        let Some(client) = self.client(id) else { return false };
        let is_alone = client.multi.is_none() && client.executing.is_none();
        let Some(watch) = &mut client.watch else { return false };
        if is_alone && watch.count == 1 && !watch.is_broken {
            return true;
        }
        watch.is_broken = true;
        false
    }

    /// Notes where keys are watched, and whether the server does not have their slot yet.
    pub(super) fn watches_at(&mut self, id: Id, server: usize, is_asking: bool) {
        if let Some(watch) = self.client(id).and_then(|client| client.watch.as_mut()) {
            watch.server = server;
            watch.is_asking = is_asking;
        }
    }

    /// The client's own connection to a server is lost, which forgets what it has watched and
    /// queued.
    pub(super) fn transaction_lost(&mut self, id: Id, server: usize) {
        let Some(client) = self.client(id) else { return };
        if let Some(watch) = client.watch.as_mut().filter(|watch| watch.server == server) {
            watch.is_broken = true;
        }
        let pool = client.pool;
        let has_slots = self.pools[pool].has_slots();
        let multi = self.client(id).and_then(|client| client.multi.as_mut());
        let Some(multi) = multi.filter(|multi| multi.server == Some(server)) else { return };
        // What was queued at no cluster is not here any more.
        multi.is_dirty |= !has_slots;
        multi.server = None;
        multi.onward = None;
    }

    /// Returns the server that the first key of a transaction has by now.
    fn server_of_first_key(&self, pool: usize, multi: &Multi) -> Option<usize> {
        let place = self.pools[pool].place(multi.first_key.as_ref()?)?;
        Some(place.server)
    }

    /// Begins the transaction on a server. Returns whether it could already.
    pub(super) fn attach<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        mut server: usize,
        group: Option<usize>,
    ) -> Result<bool, Failure> {
        let Some(multi) = &client.multi else { return Ok(true) };
        match multi.server {
            // In front of a cluster the slot may be elsewhere by now; EXEC will find out.
            Some(before) if before == server || multi.group == group => return Ok(true),
            Some(_) if self.server_of_first_key(client.pool, multi) == Some(server) => {
                return Ok(true);
            }
            Some(_) => return Err(Failure::TransactionParted),
            None => {}
        }
        let mut is_asking = false;
        if let Some(watch) = client.watch.as_ref().filter(|watch| !watch.is_broken) {
            if watch.server != server && watch.group != group {
                return Err(Failure::TransactionParted);
            }
            server = watch.server;
            is_asking = watch.is_asking;
        }
        if !client.is_idle() {
            return Ok(false);
        }
        let id = self.acquire_own(wire, client, server)?;
        self.bring_in_step(wire, client, id);
        let has_slots = self.pools[client.pool].has_slots();
        let Some(multi) = client.multi.as_mut() else { return Ok(true) };
        multi.server = Some(server);
        multi.group = group;
        let requests = std::mem::take(&mut multi.requests);
        self.say_caching(wire, client, id);
        self.begin(wire, client.id, id, &requests, is_asking);
        if let Some(multi) = client.multi.as_mut().filter(|_| has_slots) {
            multi.requests = requests;
        }
        Ok(true)
    }

    /// Sends MULTI and what has been queued so far.
    fn begin<W: Wire>(
        &mut self,
        wire: &mut W,
        client: Id,
        id: Id,
        requests: &[Vec<u8>],
        is_asking: bool,
    ) {
        let tag = |purpose| Tag { client, seq: 0, part: 0, bytes: 0, purpose };
        if is_asking {
            self.send_on(wire, id, ASKING, tag(Purpose::Discard));
        }
        self.send_on(wire, id, MULTI, tag(Purpose::Discard));
        for request in requests {
            self.send_on(wire, id, request, tag(Purpose::Requeued));
        }
    }

    /// Sends a request of a transaction.
    pub(super) fn send_own<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        request: &[u8],
        purpose: Purpose,
    ) {
        let server = client.multi.as_ref().and_then(|multi| multi.server);
        let seq = client.push(ReplyPlace::Waiting);
        match server.and_then(|server| client.own_to(server)) {
            Some(id) => {
                let tag = Tag { client: client.id, seq, part: 0, bytes: 0, purpose };
                self.send_on(wire, id, request, tag);
            }
            None => client.take(wire, seq, 0, &Failure::NoServer.reply()),
        }
    }

    pub(super) fn exec<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        request: &[u8],
    ) -> Flow {
        let Some(multi) = &client.multi else { return Flow::Done };
        let is_watching = client.watch.is_some();
        let is_broken = client.watch.as_ref().is_some_and(|watch| watch.is_broken);
        let is_empty = multi.server.is_none() && multi.requests.is_empty() && !is_watching;
        if multi.is_dirty || is_broken || is_empty {
            let reply: &[u8] = match (multi.is_dirty, is_broken) {
                (true, _) => b"-EXECABORT Transaction discarded because of previous errors.\r\n",
                (false, true) => null_array(client.session.protocol),
                (false, false) => b"*0\r\n",
            };
            client.answer(wire, reply);
            self.abandon(wire, client);
            return Flow::Done;
        }
        let local = &self.pools[client.pool];
        let group = multi.group.or(client.slot_of_queue);
        let known = multi.server.or_else(|| client.watch.as_ref().map(|watch| watch.server));
        let Some(server) = known.or_else(|| local.server_of_group(group)).or_else(|| local.any())
        else {
            client.answer(wire, &Failure::NoServer.reply());
            self.abandon(wire, client);
            return Flow::Done;
        };
        let is_followed =
            local.has_slots() || !multi.selects.is_empty() || !multi.answered_here.is_empty();
        match self.attach(wire, client, server, group) {
            Ok(true) if is_followed => {
                self.send_own(wire, client, request, Purpose::Exec);
                client.executing = client.multi.take();
                if let Some(executing) = &mut client.executing {
                    executing.is_watching = is_watching;
                }
            }
            Ok(true) => self.forward(wire, client, server, request, ReplyPlace::Waiting),
            Ok(false) => return self.come_again(client),
            Err(why) => client.answer(wire, &why.reply()),
        }
        client.multi = None;
        client.watch = None;
        self.settle_soon(client);
        Flow::Done
    }

    /// EXEC with words too many. The transaction is over, and keys are not watched any more, even
    /// without MULTI.
    pub(super) fn exec_refused<W: Wire>(&mut self, wire: &mut W, client: &mut Client, why: &str) {
        let why = why.strip_prefix("ERR ").unwrap_or(why);
        let error = format!("EXECABORT Transaction discarded because of: {why}");
        client.answer(wire, &raw::error(&error));
        if client.multi.is_some() || client.watch.is_some() {
            self.abandon(wire, client);
        }
    }

    pub(super) fn discard<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        request: &[u8],
    ) -> Flow {
        match client.multi.as_ref().and_then(|multi| multi.server) {
            Some(server) => {
                self.forward(wire, client, server, request, ReplyPlace::Waiting);
                client.multi = None;
                client.watch = None;
                self.settle_soon(client);
            }
            None => {
                client.answer(wire, b"+OK\r\n");
                self.abandon(wire, client);
            }
        }
        Flow::Done
    }

    /// Ends a transaction that will not run, and forgets watched keys.
    pub(super) fn abandon<W: Wire>(&mut self, wire: &mut W, client: &mut Client) {
        let began = client.multi.take().is_some_and(|multi| multi.server.is_some());
        for &(_, id) in &client.own {
            let tag =
                Tag { client: client.id, seq: 0, part: 0, bytes: 0, purpose: Purpose::Discard };
            self.send_on(wire, id, if began { DISCARD } else { UNWATCH }, tag);
        }
        client.watch = None;
        self.settle_soon(client);
    }

    /// A cluster's reply to a request between MULTI and EXEC.
    pub(super) fn queued<W: Wire>(&mut self, wire: &mut W, tag: Tag, reply: &[u8]) {
        let is_known = tag.purpose == Purpose::Requeued;
        let tag = Tag { purpose: Purpose::Client, ..tag };
        if !raw::is_error(reply) {
            if !is_known {
                self.deliver(wire, tag, reply);
            }
            return;
        }
        let Some(client) = self.client(tag.client) else { return };
        let pool = client.pool;
        let onward = redirection(reply).map(|redirection| self.onward(pool, redirection));
        let is_moved = onward.is_some();
        let Some(client) = self.client(tag.client) else { return };
        if let Some(multi) = client.multi.as_mut().or(client.executing.as_mut()) {
            multi.is_refused |= !is_moved;
            multi.onward = onward.or(multi.onward.take());
        }
        match (is_known, is_moved) {
            (true, _) => {}
            (false, true) => self.deliver(wire, tag, b"+QUEUED\r\n"),
            (false, false) => self.deliver(wire, tag, reply),
        }
    }

    /// A cluster's reply to EXEC.
    pub(super) fn executed<W: Wire>(&mut self, wire: &mut W, tag: Tag, reply: &[u8]) {
        let tag = Tag { purpose: Purpose::Client, ..tag };
        let Some(client) = self.client(tag.client) else { return };
        let Some(mut multi) = client.executing.take() else {
            return self.deliver(wire, tag, reply);
        };
        let pool = client.pool;
        let has_slots = self.pools[pool].has_slots();
        // Errors of requests that have run are inside of an array.
        let onward = match redirection(reply).filter(|_| has_slots) {
            Some(redirection) => Some(self.onward(pool, redirection)),
            None if reply.starts_with(b"-EXECABORT") && !multi.is_refused => multi.onward.take(),
            None => None,
        };
        match onward {
            Some(onward) => {
                multi.onward = Some(onward);
                self.execute_later(wire, tag, multi, reply);
            }
            None => match self.spliced(wire, tag.client, &multi.answered_here, reply) {
                Some(whole) => self.deliver(wire, tag, &whole),
                None => self.deliver(wire, tag, reply),
            },
        }
    }

    /// A transaction of which nothing has run is to be sent again. `reply` is for a client in vain.
    pub(super) fn execute_later<W: Wire>(
        &mut self,
        wire: &mut W,
        tag: Tag,
        mut multi: Box<Multi>,
        reply: &[u8],
    ) {
        let Some(client) = self.client(tag.client) else { return };
        if multi.is_watching {
            let null = null_array(client.session.protocol);
            return self.deliver(wire, tag, null);
        }
        multi.tries += 1;
        if multi.tries > MAX_TRIES {
            return self.deliver(wire, tag, given_up(reply));
        }
        let is_later = multi.onward.as_ref().is_none_or(|onward| onward.is_later);
        let pause = if is_later || multi.tries > 5 { PAUSE } else { std::time::Duration::ZERO };
        client.executing = Some(multi);
        let (pool, due) = (client.pool, wire.now() + pause);
        // What it takes is counted with the client.
        let tag = Tag { purpose: Purpose::Exec, ..tag };
        self.add_again(Again { due, tag, pool, bytes: 0 });
    }

    /// Sends a transaction again.
    pub(super) fn execute_again<W: Wire>(&mut self, wire: &mut W, tag: Tag) {
        let Some(Conn::Client(mut client)) = self.take_conn(tag.client) else { return };
        let Some(mut multi) = client.executing.take() else {
            return self.put(tag.client, Conn::Client(client));
        };
        let local = &self.pools[client.pool];
        let onward = multi.onward.take().unwrap_or_default();
        let asked = onward.server.map(usize::from);
        let of_key = || self.server_of_first_key(client.pool, &multi);
        let of_group = || local.server_of_group(multi.group);
        let server = asked.or_else(of_key).or_else(of_group).or_else(|| local.any());
        let acquired = match server {
            Some(server) => self.own_elsewhere(wire, &mut client, server),
            None => Err(Failure::NoServer),
        };
        let requests = std::mem::take(&mut multi.requests);
        match acquired {
            Ok(id) => {
                self.bring_in_step(wire, &client, id);
                self.begin(wire, tag.client, id, &requests, onward.is_asking);
                multi.requests = requests;
                client.executing = Some(multi);
                self.put(tag.client, Conn::Client(client));
                self.send_on(wire, id, EXEC, tag);
            }
            Err(why) => {
                self.put(tag.client, Conn::Client(client));
                multi.requests = requests;
                let tag = Tag { purpose: Purpose::Client, ..tag };
                self.execute_later(wire, tag, multi, &why.reply());
            }
        }
    }
}
