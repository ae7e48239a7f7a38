//! Redirections of a Redis Cluster.

use super::Hub;
use super::again::{BRIEF_PAUSE, PAUSE};
use super::client::Client;
use super::tag::{Again, Aim, Kept, Purpose, Tag};
use super::transactions::ASKING;
use crate::failure::Failure;
use crate::policy::Policy;
use crate::vocabulary::Meaning;
use crate::wire::Wire;
use route::plan::{Course, Piece, Plan, Request};
use route::slots::redirection;
use route::{Joining, raw};
use spec::{ScriptName, Way};
use std::time::Instant;

/// After this number of attempts the pause is no longer brief.
const MANY_TRIES: u32 = 20;

/// Where a request goes that is sent again.
enum Resend {
    /// To this server.
    Whole(usize),
    /// Its keys are on several.
    Pieces(Vec<Piece>, Joining),
}

impl<P: Policy> Hub<P> {
    /// Sends a request elsewhere if its reply asks for it. Otherwise the reply is the client's.
    pub(super) fn redirected<W: Wire>(
        &mut self,
        wire: &mut W,
        tag: Tag,
        mut kept: Box<Kept>,
        reply: &[u8],
    ) {
        if reply.starts_with(b"-NOSCRIPT")
            && let Some(client) = self.client(tag.client)
        {
            let pool = client.pool;
            if let Some(request) = self.with_text(pool, &kept.request) {
                kept.request = request;
                return self.postpone(wire, wire.now(), tag, kept, reply);
            }
        }
        // The server has other slots or another hashing rule than this node has seen, so the keys
        // part elsewhere.
        if reply.starts_with(b"-CROSSSLOT") && self.is_split(&kept.request) {
            kept.server = None;
            kept.is_asking = false;
            let pause = if kept.tries < MANY_TRIES { BRIEF_PAUSE } else { PAUSE };
            return self.postpone(wire, wire.now() + pause, tag, kept, reply);
        }
        let is_behind = reply.starts_with(b"-LOADING") || reply.starts_with(b"-MASTERDOWN");
        if kept.is_read && is_behind {
            return self.postpone(wire, wire.now(), tag, kept, reply);
        }
        let Some(redirection) = redirection(reply) else { return self.deliver(wire, tag, reply) };
        if kept.is_watch && !self.may_watch_elsewhere(tag.client) {
            return self.deliver(wire, tag, b"+OK\r\n");
        }
        let Some(client) = self.client(tag.client) else { return };
        let pool = client.pool;
        let onward = self.onward(pool, redirection);
        kept.server = onward.server;
        kept.is_asking = onward.is_asking;
        // The same server may say MOVED twice while it learns itself.
        let is_later = onward.is_later || kept.tries > 5;
        let due = if is_later { wire.now() + PAUSE } else { wire.now() };
        self.postpone(wire, due, tag, kept, reply);
    }

    /// Returns EVAL with the script's text in place of EVALSHA, if this process knows it.
    fn with_text(&self, pool: usize, request: &[u8]) -> Option<Vec<u8>> {
        let script = self.pools[pool].shared.script.get()?;
        let mut words = raw::words(request)?;
        let table = &self.commands.table;
        let row = table.find(words.first()?);
        let row = row.filter(|row| row.command.script == Some(ScriptName::Digest))?;
        let by_text = table.named_by(row, ScriptName::Source)?;
        let text = (script.0)(words.get(1)?)?;
        words[0] = by_text.command.name.as_bytes();
        words[1] = &text;
        Some(raw::request(&words))
    }

    /// Sends requests again whose time has come.
    pub(super) fn send_again<W: Wire>(&mut self, wire: &mut W) {
        let now = wire.now();
        if self.again.is_empty() || now < self.again_due {
            return;
        }
        let all = std::mem::take(&mut self.again);
        for again in all {
            // It waits for those before it, which were sent again.
            let is_behind =
                |client: &mut Client| client.repeats_in_order && !client.is_oldest(again.tag.seq);
            if again.due > now || self.client(again.tag.client).is_some_and(is_behind) {
                self.add_again(again);
                continue;
            }
            let Again { tag, pool, bytes, .. } = again;
            self.pools[pool].queued -= bytes;
            let Some(client) = self.client(tag.client) else { continue };
            let pool = client.pool;
            self.pools[pool].refresh();
            let kept = match tag.purpose {
                Purpose::Redirectable(kept) => kept,
                Purpose::Exec => {
                    self.execute_again(wire, tag);
                    continue;
                }
                _ => continue,
            };
            let tag = Tag { purpose: Purpose::Client, ..tag };
            let asked = kept.server.map(usize::from);
            let way = match asked {
                Some(server) => Some(Resend::Whole(server)),
                None => self.way_of_kept(pool, &kept, now),
            };
            match way {
                Some(Resend::Whole(server)) => self.send_kept(wire, pool, server, tag, kept),
                Some(Resend::Pieces(pieces, joining)) => match self.divide(&tag, joining) {
                    Some(first) => {
                        self.send_pieces(wire, pool, pieces, &Tag { part: first, ..tag }, &kept);
                    }
                    // No reply is wanted, so the server of the first key says what is in the way.
                    None => self.send_kept(wire, pool, pieces[0].server, tag, kept),
                },
                None => self.try_again(wire, tag, kept, &Failure::NoServer.reply()),
            }
        }
    }

    /// Returns whether a request is one that is split by its keys.
    fn is_split(&self, request: &[u8]) -> bool {
        let words = raw::words(request).unwrap_or_default();
        self.splitting(&words).is_some()
    }

    /// Returns how a request is split by its keys, if it is.
    fn splitting(&self, words: &[&[u8]]) -> Option<Way> {
        let way = self.commands.table.find(words.first()?)?.way_of(words);
        matches!(way, Way::Split { .. }).then_some(way)
    }

    /// Returns where a request goes by now: it may have to be split, although it was not when it
    /// was sent.
    fn way_of_kept(&self, pool: usize, kept: &Kept, now: Instant) -> Option<Resend> {
        let words = raw::words(&kept.request)?;
        let local = &self.pools[pool];
        if let Aim::Slot(slot) = kept.aim {
            return local.server_of_group(Some(slot.into())).map(Resend::Whole);
        }
        if let Some(way) = self.splitting(&words) {
            let allows_split_writes = !local.shared.config.is_strict;
            let course = Course::by(way);
            let request = Request { words: &words, keys: &[], course, allows_split_writes };
            if let Plan::Pieces(pieces, joining) = route::plan(&request, local) {
                return Some(Resend::Pieces(pieces, joining));
            }
        }
        let key = self.first_key(pool, &words, now)?;
        let server = match key {
            Some(key) => route::Placement::place(local, words[key]).map(|place| place.server),
            None => route::Placement::any(local),
        };
        server.map(Resend::Whole)
    }

    /// Returns which word of a request is its first key, if it has one; `None` if that is not
    /// known.
    fn first_key(&self, pool: usize, words: &[&[u8]], now: Instant) -> Option<Option<usize>> {
        let name = words.first()?;
        if self.commands.table.find(name).is_none() {
            return match self.meaning(pool, name, now)? {
                Meaning::Known(learned) => Some(learned.keys(words).first().copied()),
                Meaning::Unknown => Some(None),
                Meaning::Unclear(_) => None,
            };
        }
        let row = self.commands.table.lookup(words)?;
        let mut key = None;
        let _ = spec::keys::for_each_key(row.command, words, |at, _| {
            key = key.or(Some(at));
        });
        Some(key)
    }

    /// Has the reply of a tag made of several. Returns the number of the first part.
    fn divide(&mut self, tag: &Tag, joining: Joining) -> Option<u32> {
        self.client(tag.client)?.divide(tag.seq, tag.part, joining)
    }

    /// Sends the pieces of a request; `tag` is that of the first.
    fn send_pieces<W: Wire>(
        &mut self,
        wire: &mut W,
        pool: usize,
        pieces: Vec<Piece>,
        tag: &Tag,
        whole: &Kept,
    ) {
        for (part, piece) in (tag.part..).zip(pieces) {
            let &Kept { tries, returns, is_read, .. } = whole;
            let (is_asking, is_watch, server) = (false, false, None);
            let request = piece.request;
            let aim = Aim::Key;
            let kept = Kept { request, tries, is_asking, server, is_watch, is_read, aim, returns };
            let purpose = Purpose::Client;
            let tag = Tag { client: tag.client, seq: tag.seq, part, bytes: 0, purpose };
            self.send_kept(wire, pool, piece.server, tag, Box::new(kept));
        }
    }

    fn send_kept<W: Wire>(
        &mut self,
        wire: &mut W,
        pool: usize,
        server: usize,
        tag: Tag,
        kept: Box<Kept>,
    ) {
        let Some(client) = self.client(tag.client) else { return };
        let (session, turn) = (client.session, client.turn);
        let needs_own = client.is_blocked || client.tracking.is_some() || kept.is_watch;
        let id = match client.own_to(server) {
            Some(id) => {
                self.step(wire, tag.client, id);
                Ok(id)
            }
            None if needs_own => self.move_own(wire, tag.client, server),
            None => {
                let key = self.pools[pool].link_key(session, turn, server);
                self.shared(wire, pool, server, key)
            }
        };
        let id = match id {
            Ok(id) => id,
            Err(why) => return self.try_again(wire, tag, kept, &why.reply()),
        };
        if !self.takes_returned(wire, id) {
            let tag = Tag { purpose: Purpose::Redirectable(kept), ..tag };
            return self.queue_again(pool, wire.now() + BRIEF_PAUSE, tag);
        }
        if let Some(client) = self.client(tag.client).filter(|client| client.is_blocked) {
            let client = (tag.client, client.origin);
            self.say_origin(wire, client, id);
            if !P::TRUSTS_SERVERS {
                self.identify(wire, Some(id));
            }
        }
        if kept.is_watch {
            self.watches_at(tag.client, server, kept.is_asking);
        }
        if kept.is_asking {
            let asking =
                Tag { client: tag.client, seq: 0, part: 0, bytes: 0, purpose: Purpose::Discard };
            self.send_on(wire, id, ASKING, asking);
        }
        let request = kept.request.clone();
        self.send_on(wire, id, &request, Tag { purpose: Purpose::Redirectable(kept), ..tag });
    }
}
