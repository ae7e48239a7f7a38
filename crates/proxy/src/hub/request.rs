//! A client's bytes become requests, and requests go where they belong.

use super::Hub;
use super::client::{Client, Replies, Slot};
use super::session::Answers;
use super::upstream::{Aim, Tag};
use super::wire::Wire;
use crate::config::Reads;
use crate::pool::LinkKey;
use resp::{Limits, Parsed, Parser};
use route::handling::Handling;
use route::join::Merge;
use route::plan::{Piece, Placement, Plan, Request, Walk};
use route::raw;
use spec::{NotRun, Resolved};
use structs::sync::lock;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It is done with.
    Done,
    /// It is to be presented again.
    Later,
}

/// What a client of RESP2 may send that has subscribed.
static WHILE_SUBSCRIBED: &[&str] = &[
    "PING",
    "PSUBSCRIBE",
    "PUNSUBSCRIBE",
    "QUIT",
    "RESET",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "SUNSUBSCRIBE",
    "UNSUBSCRIBE",
];

/// How an inline or long request is parsed.
const MAX_WORDS: i64 = 1 << 20;

impl Hub {
    /// Requests of a client. Returns how many bytes are done with.
    pub(super) fn requests<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        input: &[u8],
    ) -> usize {
        let mut at = 0;
        if client.upload.is_some() {
            at = self.upload(wire, client, input);
            if client.upload.is_some() || client.is_leaving {
                return at;
            }
        }
        if client.awaits_header {
            match super::local::proxy_header(input) {
                Ok(None) => return 0,
                Ok(Some((len, peer))) => {
                    client.awaits_header = false;
                    client.peer = peer.unwrap_or_else(|| client.peer.clone());
                    at = len;
                }
                Err(why) => {
                    (self.common.log)(&format!("client {}: {why}", client.peer));
                    client.is_leaving = true;
                    wire.finish(client.id);
                    return input.len();
                }
            }
        }
        let mut words: Vec<&[u8]> = Vec::with_capacity(16);
        while at < input.len() && !client.is_stalled() {
            words.clear();
            // A request that the parser has begun with is the parser's to finish.
            let is_begun = client.parser.is_inside_request();
            let plain = if is_begun { None } else { resp::plain(input, at, &mut words) };
            let Some(end) = plain else {
                match self.unusual(wire, client, &input[at..]) {
                    Some(0) => break,
                    Some(len) => at += len,
                    None => return input.len(),
                }
                self.check_awaited(client);
                continue;
            };
            if self.request(wire, client, &words, &input[at..end]) == Flow::Later {
                break;
            }
            at = end;
            self.check_awaited(client);
        }
        at
    }

    /// A request that is long, incomplete, inline or wrong. Returns the bytes that are done with;
    /// `None` if the connection is to be closed.
    #[cold]
    fn unusual<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        input: &[u8],
    ) -> Option<usize> {
        let config = &self.pools[client.pool].shared.config;
        let long = config.limits.long;
        let limits = if client.is_authenticated {
            Limits { words: MAX_WORDS, bulk_len: config.limits.request as i64 }
        } else {
            Limits::UNAUTHENTICATED
        };
        let mut parser = std::mem::replace(&mut client.parser, Parser::new());
        match parser.next(input, limits) {
            Parsed::Incomplete { missing } => {
                client.parser = parser;
                let is_long = input.len().saturating_add(missing) > long;
                let begun = is_long.then(|| self.begin_upload(wire, client, input, missing));
                Some(begun.flatten().unwrap_or(0))
            }
            Parsed::Request { consumed } => {
                let source = if parser.is_inline() { parser.owned_words() } else { input };
                let words: Vec<&[u8]> =
                    parser.words().iter().map(|place| &source[place.clone()]).collect();
                if words.is_empty() {
                    return Some(consumed);
                }
                let flow = if parser.is_inline() {
                    let encoded = raw::request(&words);
                    self.request(wire, client, &words, &encoded)
                } else {
                    self.request(wire, client, &words, &input[..consumed])
                };
                let is_done = flow == Flow::Done;
                Some(if is_done { consumed } else { 0 })
            }
            Parsed::Error(text) => {
                client.answer(wire, &raw::error(&format!("ERR Protocol error: {text}")));
                client.is_leaving = true;
                if client.is_idle() {
                    wire.finish(client.id);
                }
                None
            }
        }
    }

    /// One request.
    fn request<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        let moves = self.pools[client.pool].moves;
        if client.moves != moves {
            if !client.is_idle() {
                // It could overtake requests that are at the servers of before.
                return self.come_again(client);
            }
            client.moves = moves;
        }
        let commands = self.commands.clone();
        let row = commands.table.find(words[0]);
        if self.pools[client.pool].shared.pause.is_any() {
            let writes = row.is_none_or(|row| {
                let row = commands.table.lookup(words).unwrap_or(row);
                commands.writes[row.index]
            });
            if client.is_authenticated && self.is_held_by_pause(wire, client, writes) {
                return Flow::Later;
            }
        }
        let Some(row) = row else {
            return self.unknown(wire, client, words, request);
        };
        let handling = commands.handlings[row.index];
        let at = row.single_key;
        if handling == Handling::Keyed && at > 0 && words.len() > at && client.is_plain() {
            self.until_sample -= 1;
            if self.until_sample == 0 {
                self.until_sample = super::SAMPLE;
                lock(&self.pools[client.pool].stats.hot).add(words[at]);
            }
            let local = &self.pools[client.pool];
            if local.shared.config.deny.is_empty()
                && local.shared.config.allow.is_empty()
                && let Some(place) = local.place(words[at])
            {
                let mut server = place.server;
                if local.shared.config.reads != Reads::Primary && commands.reads[row.index] {
                    server = local.reader(server, client.number, wire.now());
                }
                self.forward(wire, client, server, request, Slot::Waiting);
                return Flow::Done;
            }
        }
        let (row, handling) = match handling {
            // XGROUP, XINFO and OBJECT have no keys, what is below them has.
            Handling::Container | Handling::Keyed => {
                match words.get(1).and_then(|w| commands.table.subcommand(row, w)) {
                    Some(sub) => (sub, commands.handlings[sub.index]),
                    None => (row, Handling::Keyed),
                }
            }
            handling => (row, handling),
        };
        let (mut keys, mut handling) = (Vec::new(), handling);
        if handling != Handling::Scan {
            keys_of(row, words, &mut keys);
        }
        if let Some(&first) = keys.first() {
            let local = &self.pools[client.pool];
            spec::keys::for_each_prefix(row.command, words, |prefix| {
                if !local.shares_server(words[first], prefix) {
                    handling = route::handling::UNNAMED_ELSEWHERE;
                }
            });
        }
        let is_read = commands.reads[row.index] && !keys.is_empty();
        let had_caching = client.caching.is_some();
        let flow = self.planned(wire, client, words, request, &keys, (handling, is_read));
        // It is for one request, or for one transaction.
        let is_about_client = words[0].eq_ignore_ascii_case(b"CLIENT");
        if had_caching && !is_about_client && flow == Flow::Done && client.multi.is_none() {
            client.caching = None;
        }
        flow
    }

    pub(super) fn planned<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
        keys: &[usize],
        (handling, is_read): (Handling, bool),
    ) -> Flow {
        if let Some(why) = self.refusal(client, words, handling) {
            self.refuse(wire, client, &why);
            return Flow::Done;
        }
        if client.multi.is_some() {
            return self.in_multi(wire, client, words, request, keys, handling);
        }
        let local = &self.pools[client.pool];
        let allows_split_writes = !local.shared.config.is_strict;
        let mut plan = route::plan(&Request { words, keys, handling, allows_split_writes }, local);
        if is_read && local.shared.config.reads != Reads::Primary && client.is_plain() {
            let reader = |server: &mut usize| {
                *server = local.reader(*server, client.number, wire.now());
            };
            match &mut plan {
                Plan::One(server) => reader(server),
                Plan::Pieces(pieces, _) => pieces.iter_mut().for_each(|p| reader(&mut p.server)),
                _ => {}
            }
        }
        let everyone = match route::handling::asks_about_clients(words) {
            true => local.every_with_clients(),
            false => Vec::new(),
        };
        if !everyone.is_empty() && client.replies == Replies::On {
            let merge = match handling {
                Handling::All(merge) => merge,
                _ => Merge::Sum,
            };
            return self.send_to(wire, client, everyone, request, Answers::of_all(merge));
        }
        if client.replies != Replies::On {
            return self.muted(wire, client, words, request, plan);
        }
        // What ends a script does not wait behind it on the connection that clients share.
        let ends_script = matches!(handling, Handling::All(Merge::AnyGood));
        match plan {
            Plan::Local(local) => self.local(wire, client, local, words, request),
            Plan::One(_) | Plan::All(_) if ends_script => self.end_script(wire, client, request),
            Plan::One(server) => {
                self.forward(wire, client, server, request, Slot::Waiting);
                Flow::Done
            }
            Plan::Exclusive(server) => self.blocking(wire, client, server, request),
            Plan::Pieces(pieces, joining) => {
                self.pools[client.pool].stats.fragments.add(pieces.len() as u64);
                let seq = client.push(Slot::Joining(Box::new(joining)));
                for (part, piece) in pieces.iter().enumerate() {
                    let to = (piece.server, Aim::Key);
                    self.send_part(wire, client, to, &piece.request, (seq, part as u32));
                }
                Flow::Done
            }
            Plan::All(merge) => {
                let servers = self.pools[client.pool].every();
                self.send_to(wire, client, servers, request, Answers::of_all(merge))
            }
            Plan::Scan(piece, walk) => self.scan(wire, client, &piece, walk),
            Plan::Session(session, server) => {
                self.session(wire, client, session, server, words, request)
            }
            Plan::Refuse(why) => {
                client.answer(wire, &raw::error(&why));
                Flow::Done
            }
        }
    }

    /// Ends scripts at all servers. A node's replicas are asked, too: a script without a key runs
    /// where its client is connected.
    fn end_script<W: Wire>(&mut self, wire: &mut W, client: &mut Client, request: &[u8]) -> Flow {
        let local = &self.pools[client.pool];
        let servers = match local.shared.config.is_node {
            true => local.every_copy(),
            false => local.every(),
        };
        let is_lenient = local.shared.config.is_node;
        let answers = Answers { merge: Merge::AnyGood, own: None, is_lenient };
        self.send_apart(wire, client, servers, request, answers)
    }

    /// Sends SCAN to one of the servers that it goes through.
    fn scan<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        piece: &Piece,
        walk: Walk,
    ) -> Flow {
        let to = (piece.server, self.aim_at_shard(client, piece.server));
        let seq = client.push(Slot::Scan(walk));
        self.send_part(wire, client, to, &piece.request, (seq, 0));
        Flow::Done
    }

    /// Returns who may answer a request without a key in place of this server: the one that leads
    /// the same shard by then. Any other would answer for its own shard once more.
    fn aim_at_shard(&self, client: &Client, server: usize) -> Aim {
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
        let Answers { merge, own, is_lenient } = answers;
        let asked = servers.len();
        let joining = route::Joining::new(merge, asked + usize::from(own.is_some()));
        let joining = if is_lenient { joining.lenient() } else { joining };
        let seq = client.push(Slot::Joining(Box::new(joining)));
        for (part, server) in servers.into_iter().enumerate() {
            let aim = match is_lenient {
                true => Aim::Server,
                false => self.aim_at_shard(client, server),
            };
            self.send_part(wire, client, (server, aim), request, (seq, part as u32));
        }
        if let Some(own) = own {
            client.take(wire, seq, asked as u32, own);
        }
        Flow::Done
    }

    /// Why a client may not send this.
    pub(super) fn refusal(
        &self,
        client: &Client,
        words: &[&[u8]],
        handling: Handling,
    ) -> Option<String> {
        use route::handling::Local;
        let is_open = matches!(
            handling,
            Handling::Local(Local::Auth | Local::Hello | Local::Quit | Local::Reset)
        );
        if !client.is_authenticated && !is_open {
            return Some("NOAUTH Authentication required.".into());
        }
        let name = String::from_utf8_lossy(words[0]).to_uppercase();
        let is_subscribed = client.protocol == raw::Protocol::Resp2
            && client.subscriptions.as_ref().is_some_and(|subscriptions| !subscriptions.is_empty());
        if is_subscribed && !WHILE_SUBSCRIBED.contains(&&name[..]) {
            return Some(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
                 are allowed in this context",
                name.to_lowercase()
            ));
        }
        let config = &self.pools[client.pool].shared.config;
        if config.deny.is_empty() && config.allow.is_empty() {
            return None;
        }
        let full_name = self.full_name(words, &name);
        let has = |list: &[String]| {
            list.iter().map(|other| other.strip_prefix('=').unwrap_or(other)).any(|other| {
                other == name || full_name.as_deref().is_some_and(|full_name| full_name == other)
            })
        };
        let is_allowed = config.allow.is_empty() || has(&config.allow) || is_open;
        (!is_allowed || has(&config.deny)).then(|| {
            let shown = full_name.as_ref().unwrap_or(&name).to_lowercase();
            format!("NOPERM '{shown}' is not allowed in pool '{}'", config.name)
        })
    }

    /// The name of a subcommand, `CONFIG|SET`, if a request is one.
    fn full_name(&self, words: &[&[u8]], name: &str) -> Option<String> {
        let row = self.commands.table.find(words[0])?;
        let sub = self.commands.table.subcommand(row, words.get(1)?)?;
        Some(format!("{name}|{}", sub.command.name.to_uppercase()))
    }

    /// Refuses a request; a transaction that it belongs to will not run.
    pub(super) fn refuse<W: Wire>(&mut self, wire: &mut W, client: &mut Client, why: &str) {
        if let Some(multi) = &mut client.multi {
            multi.is_dirty = true;
        }
        self.say_to(wire, client, &raw::error(why));
    }

    /// Sends a request to one server.
    #[inline]
    pub(super) fn forward<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        server: usize,
        request: &[u8],
        slot: Slot,
    ) {
        let seq = client.push(slot);
        self.send_part(wire, client, (server, Aim::Key), request, (seq, 0));
    }

    #[inline]
    fn send_part<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        (server, aim): (usize, Aim),
        request: &[u8],
        (seq, part): (u64, u32),
    ) {
        let local = &self.pools[client.pool];
        let key = local.link_key(client.protocol, client.db, client.turn, server);
        let key = LinkKey { user: client.user, ..key };
        let id = match client.own_to(server) {
            Some(id) => Ok(id),
            None if client.tracking.is_some() => self.tracked(wire, client, server, key),
            None => self.shared(wire, client.pool, server, key),
        };
        match id {
            Ok(id) => {
                // A client's own connection ends what it has begun.
                if client.own.is_empty()
                    && let Some(why) = self.is_full(id)
                {
                    return client.take(wire, seq, part, &raw::error(&why));
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
                let purpose = self.purpose(client, server, request, aim);
                let tag = Tag { client: client.id, seq, part, bytes: 0, purpose };
                if let Err(tag) = self.unreachable(wire.now(), client, tag) {
                    client.take(wire, tag.seq, tag.part, &raw::error(&why));
                }
            }
        }
    }

    /// A request while the client does not want replies.
    fn muted<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
        plan: Plan,
    ) -> Flow {
        if let Plan::Local(local) = plan {
            return self.local(wire, client, local, words, request);
        }
        if let Plan::One(server) = plan {
            self.forward(wire, client, server, request, Slot::Muted);
        }
        if client.replies == Replies::Skip {
            client.replies = Replies::On;
        }
        Flow::Done
    }
}

fn keys_of(row: &Resolved<NotRun>, words: &[&[u8]], keys: &mut Vec<usize>) {
    if row.command.accepts(words.len()) {
        // What is wrong with the request the server says.
        let _ = spec::keys::for_each_key(row.command, words, |at, _| keys.push(at));
    }
}
