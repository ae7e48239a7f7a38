//! MULTI, EXEC, WATCH.
//!
//! In front of a cluster a transaction's slot may move while it is queued. The server then answers
//! a redirection to one of its requests, and EXECABORT or a redirection to EXEC: nothing of it has
//! run. So its requests are kept, the client hears QUEUED, and the whole is sent again where the
//! slot is now. If the client watches keys, EXEC is answered with null instead, as if one of them
//! had changed: what the client does then, begin again, is right.

use super::client::{Client, Slot};
use super::cluster::{Again, MAX_TRIES, Onward, PAUSE, given_up};
use super::request::Flow;
use super::splicing::{PLACEHOLDER, is_answered_here};
use super::stepping::{OK, database};
use super::upstream::{Aim, Kept, Purpose, Tag, WasSent};
use super::wire::{Id, Wire};
use super::{Conn, Hub};
use crate::failure::Failure;
use crate::policy::{Audience, Policy};
use resp::Protocol;
use route::plan::{self, Course, Placement, Plan, Request};
use route::raw::{self, DISCARD, EXEC, MULTI, UNWATCH};
use route::slots::redirection;
use spec::{Flags, Local, Session, Way};

/// What the next request, or transaction, is sent behind to a server that does not have the slot
/// yet.
pub(super) const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// A transaction that has begun.
#[derive(Debug, Default)]
pub struct Multi {
    /// The server of its keys.
    server: Option<usize>,
    /// The servers of these keys, or their slot.
    group: Option<usize>,
    /// In front of a cluster: its first key. Slots and hashing rules may change before EXEC.
    first_key: Option<Vec<u8>>,
    /// Requests without keys that came before the server was known; in front of a cluster, all
    /// requests.
    requests: Vec<Vec<u8>>,
    /// Their bytes.
    bytes: usize,
    /// A request was refused here: EXEC will be, too.
    pub is_dirty: bool,
    /// The server has refused a request for a reason that does not depend on where it was.
    is_refused: bool,
    /// Where it has to go, because the slot has moved.
    onward: Option<Onward>,
    /// How often it was sent again.
    tries: u32,
    /// Whether the client watches keys.
    is_watching: bool,
    /// Requests that are queued, here or at the server.
    queued: usize,
    /// Which of them select a database, and which one.
    selects: Vec<(usize, u32)>,
    /// Which of them the proxy answers.
    answered_here: Vec<(usize, Vec<u8>)>,
}

impl Multi {
    /// The database that is selected by the reply to EXEC, if it is another one.
    pub(super) fn selects(&self, reply: &[u8]) -> Option<u32> {
        if self.selects.is_empty() {
            return None;
        }
        let done = raw::elements(reply)?;
        let selected = |&&(at, _): &&(usize, u32)| done.get(at).is_some_and(|reply| *reply == OK);
        self.selects.iter().rev().find(selected).map(|&(_, db)| db)
    }

    /// Keeps a request that the proxy answers. Returns what the server is sent instead.
    fn keep_to_answer(&mut self, request: &[u8]) -> &'static [u8] {
        self.answered_here.push((self.queued, request.to_vec()));
        self.bytes += request.len();
        PLACEHOLDER
    }

    /// Bytes of requests that are kept here.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests that are queued, here or at the server.
    pub fn len(&self) -> usize {
        self.queued
    }
}

/// Keys that a client watches.
#[derive(Debug, Default)]
pub struct Watch {
    /// The server that watches.
    server: usize,
    /// Requests WATCH.
    count: u32,
    /// The keys' server, or their slot.
    group: Option<usize>,
    /// A key may have changed: EXEC answers null.
    is_broken: bool,
    /// The server does not have the slot yet.
    is_asking: bool,
}

impl Watch {
    /// The server, if the client still has its connection there.
    pub fn server_of(&self, client: &Client) -> Option<usize> {
        client.own_to(self.server).map(|_| self.server)
    }
}

fn null_array(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Resp2 => b"*-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    }
}

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
                self.forward(wire, client, server, request, Slot::Waiting);
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

    /// A request between MULTI and EXEC.
    pub(super) fn in_multi<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
        keys: &[usize],
        way: Way,
    ) -> Flow {
        match way {
            Way::Session(Session::Exec) => return self.exec(wire, client, request),
            Way::Session(Session::Discard) => return self.discard(wire, client, request),
            Way::Local(local @ (Local::Quit | Local::Reset)) => {
                return self.local(wire, client, local, words, request);
            }
            _ => {}
        }
        if let Some(why) = self.refusal_in_multi(client, words, way) {
            self.refuse(wire, client, &why);
            return Flow::Done;
        }
        let has_slots = self.pools[client.pool].has_slots();
        let place = match self.place_in_multi(client, words, keys, way) {
            Ok(place) => place,
            Err(why) => {
                self.refuse(wire, client, &why);
                return Flow::Done;
            }
        };
        if let (Some(multi), Some(&first)) = (client.multi.as_mut(), keys.first())
            && has_slots
            && multi.first_key.is_none()
        {
            multi.first_key = Some(words[first].to_vec());
        }
        let most = self.pools[client.pool].shared.config.limits.server_queue;
        let is_kept = place.is_none() || has_slots;
        let is_answered_here = !P::IS_CHECKED && is_answered_here(words, way);
        if (is_kept || is_answered_here)
            && client.multi.as_ref().is_some_and(|multi| multi.bytes > most)
        {
            self.refuse(wire, client, &Failure::TransactionFull.text());
            return Flow::Done;
        }
        let attached = match place {
            Some((server, group)) => self.attach(wire, client, server, group),
            None => Ok(true),
        };
        match attached {
            Ok(true) => {}
            Ok(false) => return self.come_again(client),
            Err(why) => {
                self.refuse(wire, client, &why.text());
                return Flow::Done;
            }
        }
        let request = match client.multi.as_mut() {
            Some(multi) if is_answered_here => multi.keep_to_answer(request),
            _ => request,
        };
        if let Some(multi) = client.multi.as_mut() {
            let is_select = way == Way::Local(Local::Select);
            let db = if is_select { words.get(1).and_then(|word| database(word)) } else { None };
            multi.selects.extend(db.map(|db| (multi.queued, db)));
            multi.queued += 1;
            if is_kept {
                multi.requests.push(request.to_vec());
                multi.bytes += request.len();
            }
        }
        match client.multi.as_ref().and_then(|multi| multi.server) {
            Some(_) if has_slots => self.send_own(wire, client, request, Purpose::Queued),
            Some(server) => self.forward(wire, client, server, request, Slot::Waiting),
            None => client.answer(wire, b"+QUEUED\r\n"),
        }
        Flow::Done
    }

    /// Why a command cannot be in a transaction.
    fn refusal_in_multi(&self, client: &Client, words: &[&[u8]], way: Way) -> Option<String> {
        let name = || String::from_utf8_lossy(words[0]).to_lowercase();
        // The process has looked at the whole transaction before: it is for one server.
        if P::IS_CHECKED {
            return None;
        }
        if let Some(why) = plan::refusal(way) {
            return Some(format!("ERR '{}' does not work through the proxy: {why}", name()));
        }
        match way {
            Way::Session(Session::Subscribe | Session::Unsubscribe) => {
                Some(format!("ERR proxy: '{}' does not work inside a transaction", name()))
            }
            Way::Local(Local::Client) if !is_answered_here(words, way) => {
                let sub = words.get(1).map(|sub| String::from_utf8_lossy(sub).to_lowercase());
                let sub = sub.unwrap_or_default();
                Some(format!(
                    "ERR proxy: 'client {sub}' does not work inside a transaction; send it before MULTI \
                     or behind EXEC"
                ))
            }
            Way::All { .. } | Way::Scan | Way::OneServer
                if self.pools[client.pool].servers() > 1 =>
            {
                let name = name();
                Some(format!("ERR proxy: '{name}' is for all servers, a transaction for one"))
            }
            _ => None,
        }
    }

    /// The server of a queued request, and the group of its keys; nothing if it is not known yet.
    fn place_in_multi(
        &self,
        client: &Client,
        words: &[&[u8]],
        keys: &[usize],
        way: Way,
    ) -> Result<Option<(usize, Option<usize>)>, String> {
        let Some(multi) = &client.multi else { return Ok(None) };
        let local = &self.pools[client.pool];
        let is_message = P::AUDIENCE == Audience::All && way == Way::Message;
        let Some(first) = keys.first().filter(|_| !is_message) else {
            return Ok(multi.server.map(|server| (server, multi.group)));
        };
        let group = local.group_of(words[*first]);
        let course = Course::by(Way::Keys);
        let keyed = Request { words, keys, course, allows_split_writes: false };
        match route::plan(&keyed, local) {
            Plan::One(server) | Plan::Exclusive(server) => Ok(Some((server, group))),
            Plan::Refuse(why) => Err(why),
            _ => Ok(None),
        }
    }

    /// Returns the server that the first key of a transaction has by now.
    fn server_of_first_key(&self, pool: usize, multi: &Multi) -> Option<usize> {
        let place = self.pools[pool].place(multi.first_key.as_ref()?)?;
        Some(place.server)
    }

    /// Begins the transaction on a server. Returns whether it could already.
    fn attach<W: Wire>(
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
    fn send_own<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        request: &[u8],
        purpose: Purpose,
    ) {
        let server = client.multi.as_ref().and_then(|multi| multi.server);
        let seq = client.push(Slot::Waiting);
        match server.and_then(|server| client.own_to(server)) {
            Some(id) => {
                let tag = Tag { client: client.id, seq, part: 0, bytes: 0, purpose };
                self.send_on(wire, id, request, tag);
            }
            None => client.take(wire, seq, 0, &Failure::NoServer.reply()),
        }
    }

    fn exec<W: Wire>(&mut self, wire: &mut W, client: &mut Client, request: &[u8]) -> Flow {
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
            Ok(true) => self.forward(wire, client, server, request, Slot::Waiting),
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

    fn discard<W: Wire>(&mut self, wire: &mut W, client: &mut Client, request: &[u8]) -> Flow {
        match client.multi.as_ref().and_then(|multi| multi.server) {
            Some(server) => {
                self.forward(wire, client, server, request, Slot::Waiting);
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
    fn execute_later<W: Wire>(
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

    /// A connection was lost before the reply to this came.
    pub(super) fn lost<W: Wire>(
        &mut self,
        wire: &mut W,
        tag: Tag,
        reply: &[u8],
        was_sent: WasSent,
    ) {
        let Tag { client: id, seq, part, bytes, purpose } = tag;
        let tag = |purpose| Tag { client: id, seq, part, bytes, purpose };
        let again = Tag { bytes: 0, ..tag(Purpose::Client) };
        match purpose {
            Purpose::Redirectable(kept) if kept.is_watch => {
                if let Some(watch) = self.client(id).and_then(|client| client.watch.as_mut()) {
                    watch.is_broken = true;
                }
                self.deliver(wire, tag(Purpose::Client), b"+OK\r\n");
            }
            Purpose::Redirectable(kept) if self.is_message_to_all(id, &kept.request) => {
                // As on one server, clients that do not listen at this moment do not hear it.
                self.deliver(wire, tag(Purpose::Client), b":0\r\n");
            }
            Purpose::Redirectable(kept)
                if kept.is_read || self.may_repeat(id, &kept.request, was_sent) =>
            {
                self.try_again(wire, again, kept, reply);
            }
            Purpose::Redirectable(_) => self.deliver(wire, tag(Purpose::Client), reply),
            Purpose::Queued => self.deliver(wire, tag(Purpose::Client), b"+QUEUED\r\n"),
            Purpose::Requeued => {}
            Purpose::Exec => {
                let pool = self.client(id).map(|client| client.pool);
                let has_slots = pool.is_some_and(|pool| self.pools[pool].has_slots());
                let multi = self.client(id).and_then(|client| client.executing.take());
                match multi.filter(|_| has_slots && was_sent == WasSent::No) {
                    Some(mut multi) => {
                        multi.onward = None;
                        self.execute_later(wire, again, multi, reply);
                    }
                    None => self.deliver(wire, tag(Purpose::Client), reply),
                }
            }
            other => self.reply(wire, tag(other), reply),
        }
    }

    /// Returns whether a request of a client that is still there is a message for the clients of
    /// all servers.
    fn is_message_to_all(&mut self, id: Id, request: &[u8]) -> bool {
        if P::AUDIENCE != Audience::All || self.client(id).is_none() {
            return false;
        }
        let words = raw::words(request).unwrap_or_default();
        let row = self.commands.table.lookup(&words);
        row.is_some_and(|row| row.way == Way::Message)
    }

    /// Returns whether a request that was lost may be sent again.
    fn may_repeat(&mut self, id: Id, request: &[u8], was_sent: WasSent) -> bool {
        if !P::TRUSTS_SERVERS || self.client(id).is_none() {
            return was_sent == WasSent::No;
        }
        let Some(words) = raw::words(request) else { return false };
        let Some(row) = self.commands.table.lookup(&words) else { return false };
        let mut has_key = false;
        // A request without a key was for this server's shard alone, and another server may lead
        // that now.
        let _ = spec::keys::for_each_key(row.command, &words, |_, _| has_key = true);
        has_key && (was_sent == WasSent::No || self.commands.reads[row.index])
    }

    fn is_watch(&self, request: &[u8]) -> bool {
        let name = raw::elements(request).and_then(|words| words.first().copied());
        let row = name.and_then(raw::text).and_then(|name| self.commands.table.find(name));
        row.is_some_and(|row| row.command.flags.has(Flags::WATCHES))
    }

    /// What a request is that is not in a transaction.
    #[inline]
    pub(super) fn purpose(
        &self,
        client: &Client,
        server: usize,
        request: &[u8],
        aim: Aim,
    ) -> Purpose {
        let local = &self.pools[client.pool];
        let is_read = local.is_replica(server);
        if !local.has_slots() && !is_read {
            return Purpose::Client;
        }
        let is_watch = client.watch.is_some() && self.is_watch(request);
        let request = request.to_vec();
        let (tries, returns, is_asking, server) = (0, 0, false, None);
        let kept = Kept { request, tries, is_asking, server, is_watch, is_read, aim, returns };
        Purpose::Redirectable(Box::new(kept))
    }
}
