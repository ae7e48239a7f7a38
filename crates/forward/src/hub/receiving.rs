//! Bytes of servers become replies and messages.

use super::Hub;
use super::upstream::{MAX_VOID, Upstream};
use crate::failure::Ended;
use crate::policy::Policy;
use crate::stats::LARGE;
use crate::wire::Wire;
use route::link::Received;
use route::raw;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

/// So much is read of one connection to a server in a turn.
const TURN_BYTES: usize = 1 << 20;

impl<P: Policy> Hub<P> {
    /// Sends what waits on a connection that has been made.
    pub(super) fn upstream_connected<W: Wire>(&mut self, wire: &mut W, up: &mut Upstream) {
        up.connect_by = None;
        let id = up.id;
        let config = &self.pools[up.pool].shared.config;
        if let Some(silence) = P::SILENCE {
            wire.probe_within(id, silence);
        } else if !config.keepalive {
            wire.do_not_probe(id);
        }
        up.link.opened(&mut |bytes| wire.send(id, bytes));
        self.subscribe_now(wire, up);
        self.failed_over(wire, up.pool, up.server);
        let local = &mut self.pools[up.pool];
        local.targets[up.server].retry_at = None;
    }

    /// Reads bytes of a server. Returns how many are done with.
    pub(super) fn upstream_data<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &mut Upstream,
        input: &[u8],
    ) -> Result<usize, Ended> {
        let mut at = 0;
        let id = up.id;
        self.void_bytes = 0;
        let long = self.pools[up.pool].shared.config.limits.long;
        let (mut replies, mut answered) = (0, 0);
        loop {
            if up.passing.is_some() {
                let (len, tag) = self.pass_reply(wire, up, &input[at..])?;
                at += len;
                let Some(tag) = tag else { break };
                replies += 1;
                answered += tag.bytes as usize;
                self.pools[up.pool].server_stats(up.server).large_responses.add(1);
                self.passed(wire, up, tag);
                continue;
            }
            if up.is_subscribed && up.link.is_ready() {
                self.subscribe_now(wire, up);
                at += self.messages(wire, up, &input[at..])?;
                break;
            }
            let found = up.link.receive(&input[at..], &mut |bytes| wire.send(id, bytes));
            let (received, len) = match found {
                Ok(Some(found)) => found,
                Ok(None) if input.len() - at > long => {
                    if self.begin_passing(wire, up, &input[at..]) {
                        continue;
                    }
                    break;
                }
                Ok(None) => break,
                Err(why) => return Err(self.why_broken(up.pool, why)),
            };
            at += len;
            match received {
                Some(Received::Reply(tag, reply)) => {
                    replies += 1;
                    answered += tag.bytes as usize;
                    if reply.starts_with(b"-READONLY") {
                        // It is not the master any more: the sentinels, or the nodes, know more.
                        self.pools[up.pool].shared.is_stale.store(true, SeqCst);
                    }
                    if len > LARGE {
                        self.pools[up.pool].server_stats(up.server).large_responses.add(1);
                    }
                    let tag = up.settle(tag, reply);
                    self.replied(wire, up, tag, reply);
                }
                Some(Received::Push(push)) => self.push_came(wire, up, push)?,
                None => {}
            }
        }
        let left = input.len() - at;
        self.count_kept_reply(up, if left > long { left } else { 0 });
        self.pools[up.pool].server_stats(up.server).response_bytes.add(at as u64);
        if replies > 0 {
            self.dequeued(up, answered);
            let stats = self.pools[up.pool].server_stats(up.server);
            stats.responses.add(replies);
            up.note_times(wire.now(), &stats.times);
            let failures = &self.pools[up.pool].shared.failures[up.server];
            if failures.load(SeqCst) != 0 {
                failures.store(0, SeqCst);
            }
        }
        self.check_void(up, wire.now())?;
        Ok(at)
    }

    /// Counts what has come for clients that have gone.
    ///
    /// # Errors
    /// It is so much that the connection is to be closed.
    fn check_void(&mut self, up: &mut Upstream, now: Instant) -> Result<(), Ended> {
        let bytes = std::mem::take(&mut self.void_bytes);
        if bytes == 0 || !P::BOUNDS_CLIENTS || !up.wastes(bytes, now) {
            return Ok(());
        }
        Err(Ended::LeftBehind(MAX_VOID))
    }

    /// Counts what a server has sent: `shown` bytes of input, of which `taken` are done with. Returns
    /// whether it is not read before the next turn, so that the others get theirs: what is long is
    /// looked at byte by byte.
    #[inline]
    pub(super) fn has_spent_turn(&mut self, up: &mut Upstream, shown: usize, taken: usize) -> bool {
        if up.turn.0 != self.turn {
            up.turn = (self.turn, 0);
        }
        up.turn.1 += shown.saturating_sub(up.left);
        up.left = shown - taken;
        let has_spent = P::BOUNDS_CLIENTS && up.turn.1 > TURN_BYTES;
        if has_spent {
            self.spent.push(up.id);
        }
        has_spent
    }

    /// Reads all servers again.
    pub(super) fn begin_turn<W: Wire>(&mut self, wire: &mut W) {
        self.turn += 1;
        for id in std::mem::take(&mut self.spent) {
            let passing = self.upstream(id).and_then(|up| up.passing.as_ref());
            if !passing.is_some_and(|passing| passing.is_held()) {
                wire.resume(id);
            }
        }
    }

    /// A push has come.
    ///
    /// # Errors
    /// It says that the server goes down.
    fn push_came<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &mut Upstream,
        push: &[u8],
    ) -> Result<(), Ended> {
        if P::TRUSTS_SERVERS && push == raw::GOES_DOWN {
            return Err(Ended::GoesDown);
        }
        self.pushed(wire, up, push);
        Ok(())
    }

    /// Counts what is kept of replies on a connection.
    #[inline]
    fn count_kept_reply(&mut self, up: &mut Upstream, left: usize) {
        let kept = left + up.passing.as_ref().map_or(0, |passing| passing.backlog);
        if kept != up.kept {
            let local = &mut self.pools[up.pool];
            local.queued = local.queued + kept - up.kept;
            up.kept = kept;
        }
    }
}
