//! A client's bytes become requests, and requests go where they belong.

use super::Hub;
use super::client::{Client, Flow, Replies, ReplyPlace};
use super::learning::shown;
use super::proxy_header::proxy_header;
use super::sending::Answers;
use super::tag::Aim;
use crate::policy::Policy;
use crate::settings::Reads;
use crate::vocabulary::Meaning;
use crate::wire::Wire;
use resp::{Limits, Parsed, Parser};
use route::plan::{Course, Placement, Plan, Request};
use route::{Joining, raw};
use spec::{About, Flags, Local, Merge, NotRun, Refusal, Resolved, Unresolved, Way};
use structs::sync::lock;

/// How an inline or long request is parsed.
const MAX_WORDS: i64 = 1 << 20;

impl<P: Policy> Hub<P> {
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
            match proxy_header(input) {
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
    #[inline]
    fn request<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        match client.replies {
            Replies::On => self.wanted(wire, client, words, request),
            replies => self.muted(wire, client, words, request, replies),
        }
    }

    /// A request whose reply the client does not want.
    #[cold]
    fn muted<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
        replies: Replies,
    ) -> Flow {
        client.is_muted = true;
        if replies == Replies::Skip {
            client.replies = Replies::On;
        }
        let flow = self.wanted(wire, client, words, request);
        client.is_muted = false;
        if flow == Flow::Later {
            client.replies = replies;
        }
        flow
    }

    /// A request whose reply is wanted, unless the client is muted.
    fn wanted<W: Wire>(
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
        if self.pools[client.pool].shared.pause.is_any() && self.has_to_pause(wire, client, words) {
            return Flow::Later;
        }
        let Some(row) = row else {
            return self.unknown(wire, client, words, request);
        };
        let at = row.single_key;
        if row.goes_to_one_key() && words.len() > at && client.is_plain() {
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
                self.forward(wire, client, server, request, ReplyPlace::Waiting);
                return Flow::Done;
            }
        }
        let sub = words.get(1).and_then(|word| commands.table.subcommand(row, word));
        let row = sub.unwrap_or(row);
        let mut course = Course { way: row.way_of(words), may_wait: row.may_wait(words) };
        if self.is_refused(wire, client, words, row, course.way) {
            return Flow::Done;
        }
        let mut keys = Vec::new();
        if course.way != Way::Scan {
            keys_of(row, words, &mut keys);
        }
        if let Some(&first) = keys.first() {
            let local = &self.pools[client.pool];
            spec::keys::for_each_prefix(row.command, words, |prefix| {
                if !local.shares_server(words[first], prefix) {
                    course = Course::by(Way::Refused(Refusal::UnnamedKeys));
                }
            });
        }
        let is_read = commands.reads[row.index] && !keys.is_empty();
        let had_caching = client.caching.is_some();
        let flow = self.planned(wire, client, words, request, &keys, (course, is_read));
        // It is for one request, or for one transaction.
        let is_about_client = course.way == Way::Local(Local::Client);
        if had_caching && !is_about_client && flow == Flow::Done && client.multi.is_none() {
            client.caching = None;
        }
        flow
    }

    /// Returns whether a request waits for the end of a pause.
    #[cold]
    fn has_to_pause<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
    ) -> bool {
        let row = self.commands.table.lookup(words).or_else(|| self.commands.table.find(words[0]));
        let writes = row.is_none_or(|row| self.commands.writes[row.index]);
        client.is_authenticated && self.is_held_by_pause(wire, client, writes)
    }

    /// Refuses a request as a server does, if what is wrong with it has to be found here: of what is
    /// answered here, and of what a transaction keeps. Returns whether it is refused.
    fn is_refused<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        row: &Resolved<NotRun>,
        way: Way,
    ) -> bool {
        let is_checked_here = match way {
            Way::Local(local) => local != Local::Command,
            Way::Session(_) => true,
            _ => false,
        };
        let is_in_multi = client.multi.is_some();
        if !is_checked_here && !is_in_multi {
            return false;
        }
        let Some(why) = self.commands.refusal(words, is_in_multi) else { return false };
        match row.command.flags.has(Flags::RUNS_QUEUE) {
            true => self.exec_refused(wire, client, &why),
            false => self.refuse(wire, client, &why),
        }
        true
    }

    fn planned<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
        keys: &[usize],
        (course, is_read): (Course, bool),
    ) -> Flow {
        let way = course.way;
        if let Some(why) = self.refusal(client, words, way) {
            self.refuse(wire, client, &why);
            return Flow::Done;
        }
        if client.multi.is_some() {
            return self.in_multi(wire, client, words, request, keys, way);
        }
        let local = &self.pools[client.pool];
        let allows_split_writes = !local.shared.config.is_strict;
        let mut plan = route::plan(&Request { words, keys, course, allows_split_writes }, local);
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
        let everyone = match way {
            Way::Message => Some(Merge::Sum),
            Way::All { merge, about: About::Clients } => Some(merge),
            _ => None,
        };
        let everyone = everyone.map(|merge| (merge, local.every_with_clients()));
        if let Some((merge, everyone)) = everyone.filter(|(_, everyone)| !everyone.is_empty()) {
            return self.send_to(wire, client, everyone, request, Answers::of_all(merge));
        }
        // What ends a script does not wait behind it on the connection that clients share.
        let ends_script = matches!(way, Way::All { merge: Merge::AnyGood, .. });
        match plan {
            Plan::Local(local) => self.local(wire, client, local, words, request),
            Plan::One(_) | Plan::All(_) if ends_script => self.end_script(wire, client, request),
            Plan::One(server) => {
                self.forward(wire, client, server, request, ReplyPlace::Waiting);
                Flow::Done
            }
            Plan::Exclusive(server) => self.blocking(wire, client, server, request),
            Plan::Pieces(pieces, joining) => {
                self.pools[client.pool].stats.fragments.add(pieces.len() as u64);
                let seq = client.push(ReplyPlace::Joining(Box::new(joining)));
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
            Plan::Gather(asked, gather) => {
                let servers = self.pools[client.pool].every();
                let joining = Joining::gathering(gather, raw::request(words), servers.len());
                let seq = client.push(ReplyPlace::Joining(Box::new(joining)));
                for (part, server) in servers.into_iter().enumerate() {
                    let to = (server, self.aim_at_shard(client, server));
                    self.send_part(wire, client, to, &asked, (seq, part as u32));
                }
                Flow::Done
            }
            Plan::Scan(piece, page) => self.scan(wire, client, &piece, page),
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
        let servers = match P::ENDS_SCRIPTS_OF_REPLICAS {
            true => local.every_copy(),
            false => local.every(),
        };
        let is_lenient = P::ENDS_SCRIPTS_OF_REPLICAS;
        let answers = Answers { merge: Merge::AnyGood, own: None, is_lenient, is_apart: true };
        self.send_apart(wire, client, servers, request, answers)
    }
}

fn keys_of(row: &Resolved<NotRun>, words: &[&[u8]], keys: &mut Vec<usize>) {
    if row.command.accepts(words.len()) {
        // What is wrong with the request the server says.
        let _ = spec::keys::for_each_key(row.command, words, |at, _| keys.push(at));
    }
}

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
}
