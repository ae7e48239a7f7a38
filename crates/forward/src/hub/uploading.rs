//! Long requests are sent on as they come: none of it is kept but what the server's socket does not
//! take.
//!
//! A request of more than `Limits::long` bytes goes out on a connection of the client's own,
//! because a shared one would be closed for all if the rest never came. Only commands with one key
//! in a fixed place do, whose key has come. All others are kept until they are whole, and count
//! against the pool's limits.
//!
//! In front of a cluster a request that is sent elsewhere has to be kept, so requests up to
//! [`KEPT`] bytes are. Longer ones are not; if the slot moves meanwhile, the client is told to try
//! again.

use super::Hub;
use super::client::{Client, ReplyPlace};
use super::tag::{Purpose, Tag};
use super::upload::{Share, Upload};
use crate::failure::Failure;
use crate::policy::Policy;
use crate::settings::Reads;
use crate::wire::{Id, Wire};
use resp::Passage;
use route::plan::Placement;
use route::raw;
use route::slots::redirection;
use spec::Way;

/// Requests for a cluster up to so many bytes are kept, so that they can follow their slot.
const KEPT: usize = 8 << 20;

/// Bytes that wait for a server before the client is not read.
const MAX_WAITING: usize = 1 << 20;

/// Bytes that wait for a server when the client is read again.
const MAX_RESTING: usize = 32 << 10;

impl<P: Policy> Hub<P> {
    /// A request has begun of which `input` has come and so many bytes are missing. Returns how
    /// many bytes are done with if it is sent on in parts, or has to come again; nothing if it is
    /// to be kept.
    #[cold]
    pub(super) fn begin_upload<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        input: &[u8],
        missing: usize,
    ) -> Option<usize> {
        let local = &self.pools[client.pool];
        let config = &local.shared.config;
        let is_pausing = local.shared.pause.is_any();
        if !P::PASSES_ON || is_pausing || !client.is_plain() || client.parser.is_inline() {
            return None;
        }
        if local.has_slots() && input.len().saturating_add(missing) <= KEPT {
            return None;
        }
        let words: Vec<&[u8]> =
            client.parser.words().iter().map(|place| &input[place.clone()]).collect();
        let commands = self.commands.clone();
        let row = commands.table.find(words.first()?)?;
        let at = row.single_key;
        if !row.goes_to_one_key() || words.len() <= at {
            return None;
        }
        if self.refusal(client, &words, Way::Keys).is_some() {
            return None;
        }
        let local = &self.pools[client.pool];
        let mut server = local.place(words[at])?.server;
        if config.reads != Reads::Primary && commands.reads[row.index] {
            server = local.reader(server, client.number, wire.now());
        }
        if !client.is_idle() || client.moves != local.moves {
            client.moves = local.moves;
            self.settle_soon(client);
            return Some(0);
        }
        // Without a free one it is kept until it is whole, and then needs none.
        let share = Share::of(&self.pools[client.pool].shared)?;
        let to = match self.acquire_own(wire, client, server) {
            Ok(own) => Some(own),
            Err(why) => {
                client.answer(wire, &why.reply());
                None
            }
        };
        client.parser = resp::Parser::new();
        let upload = Upload {
            to,
            is_held: false,
            passage: Passage::new(),
            progress_at: wire.now(),
            _share: share,
        };
        client.upload = Some(Box::new(upload));
        if let Some(id) = to {
            let seq = client.push(ReplyPlace::Waiting);
            let is_elsewhere = self.pools[client.pool].has_slots();
            let purpose = if is_elsewhere { Purpose::Streamed } else { Purpose::Client };
            let tag = Tag { client: client.id, seq, part: 0, bytes: 0, purpose };
            self.send_on(wire, id, &[], tag);
        }
        Some(self.upload(wire, client, input))
    }

    /// More of a long request has come. Returns how many bytes are done with.
    pub(super) fn upload<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        input: &[u8],
    ) -> usize {
        let now = wire.now();
        let longest = self.pools[client.pool].shared.config.limits.request;
        let Some(upload) = client.upload.as_mut() else { return 0 };
        let passed = match upload.passage.pass(input, longest) {
            Ok(passed) => passed,
            Err(why) => {
                // What the server has of it has no end.
                let to = upload.to.take();
                client.upload = None;
                client.is_leaving = true;
                (self.common.log)(&format!("client {}: Protocol error: {why}", client.peer));
                self.give_up(wire, client, to);
                client.answer_first(wire, &raw::error(&format!("ERR Protocol error: {why}")));
                wire.finish(client.id);
                return input.len();
            }
        };
        upload.progress_at = now;
        let to = upload.to;
        let mut waiting = 0;
        if let Some(up) = to.and_then(|id| self.upstream(id)) {
            let id = up.id;
            up.link.send_more(&input[..passed.bytes], &mut |bytes| wire.send(id, bytes));
            waiting = wire.backlog(id) + up.link.waiting_bytes();
            if passed.is_whole {
                up.mark_end(now);
                up.has_upload = true;
            }
            let (pool, server) = (up.pool, up.server);
            self.pools[pool].server_stats(server).request_bytes.add(passed.bytes as u64);
        }
        if passed.is_whole {
            client.upload = None;
            self.settle_soon(client);
            self.keep(to, 0);
            return passed.bytes;
        }
        self.keep(to, waiting);
        let local = &self.pools[client.pool];
        let limits = &local.shared.config.limits;
        let is_full = local.queued_of_all() > limits.queue;
        if (waiting > MAX_WAITING || is_full && waiting > limits.long)
            && let Some(upload) = client.upload.as_mut()
        {
            upload.is_held = true;
            self.uploading.push(client.id);
        }
        passed.bytes
    }

    /// Counts what waits for a server on the connection of a long request.
    fn keep(&mut self, id: Option<Id>, bytes: usize) {
        let Some(up) = id.and_then(|id| self.upstream(id)) else { return };
        let (pool, before) = (up.pool, std::mem::replace(&mut up.kept, bytes));
        let local = &mut self.pools[pool];
        local.queued = local.queued + bytes - before;
    }

    /// Reads clients again whose servers have taken what they sent.
    pub(super) fn go_on_uploading<W: Wire>(&mut self, wire: &mut W) {
        for id in std::mem::take(&mut self.uploading) {
            let to = self.client(id).and_then(|client| client.upload.as_ref()).map(|up| up.to);
            let Some(to) = to else { continue };
            let waiting_bytes =
                to.and_then(|to| self.upstream(to)).map(|up| up.link.waiting_bytes());
            let waiting = match (to, waiting_bytes) {
                (Some(to), Some(bytes)) => bytes + wire.backlog(to),
                _ => 0,
            };
            self.keep(to, waiting);
            if waiting > MAX_RESTING {
                self.uploading.push(id);
            } else if let Some(upload) = self.client(id).and_then(|client| client.upload.as_mut()) {
                upload.is_held = false;
                upload.progress_at = wire.now();
                wire.resume(id);
            }
        }
    }

    /// A long request for a cluster has its reply.
    pub(super) fn streamed<W: Wire>(&mut self, wire: &mut W, tag: Tag, reply: &[u8]) {
        let pool = self.client(tag.client).map(|client| client.pool);
        if let (Some(pool), Some(redirection)) = (pool, redirection(reply)) {
            let _ = self.onward(pool, redirection);
            let why = format!(
                "TRYAGAIN proxy: the slot moved while a request of more than {} MB was on its way; send it again",
                KEPT >> 20
            );
            return self.deliver(wire, tag, &raw::error(&why));
        }
        self.deliver(wire, tag, reply);
    }

    /// Counts what is kept of a request until it is whole, and refuses the request if the pool
    /// keeps too much.
    #[inline]
    pub(super) fn count_kept<W: Wire>(&mut self, wire: &mut W, client: &mut Client, left: usize) {
        let long = self.pools[client.pool].shared.config.limits.long;
        let kept = if left > long { left } else { 0 } + client.bytes_of_transaction();
        if kept != client.kept {
            self.kept_input(wire, client, kept);
        }
    }

    #[cold]
    fn kept_input<W: Wire>(&mut self, wire: &mut W, client: &mut Client, kept: usize) {
        let local = &mut self.pools[client.pool];
        local.queued = local.queued + kept - client.kept;
        let has_grown = kept > client.kept;
        client.kept = kept;
        if has_grown
            && !client.is_leaving
            && local.queued_of_all() > local.shared.config.limits.queue
        {
            let pool = local.shared.config.name.clone();
            let why = Failure::InputFull { pool, bytes: local.queued_of_all() };
            local.stats.forward_error.add(1);
            client.answer(wire, &why.reply());
            client.is_leaving = true;
            if client.is_idle() {
                wire.finish(client.id);
            }
        }
    }
}
