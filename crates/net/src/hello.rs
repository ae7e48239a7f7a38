//! TLS handshakes that wait for their turn: see [`admission`](super::admission).
//!
//! The first message of a handshake is kept in the connection's `rest`, and the connection is in
//! `Core::hellos`, at which the reactor looks before it sleeps. A connection that comes when that
//! is full is closed unread, which costs little.

use super::conn::flag;
use super::core::Core;
use super::reactor::Reactor;
use super::{Close, Handler};

/// Bytes that a peer may send before its handshake has begun: more is no greeting.
const MAX_HELLO: usize = 64 << 10;

impl<H: Handler> Reactor<H> {
    /// Has the first message of a TLS handshake, which is in the connection's `rest`, wait for its
    /// turn. Refuses it if too many wait.
    #[cold]
    pub(super) fn queue_hello(&mut self, slot: u32) {
        let thread = self.core.thread as usize;
        let Core { links, hellos, .. } = &mut self.core;
        let link = &mut links[slot as usize];
        if link.rest.len() > MAX_HELLO {
            self.tls_failed(slot, "too much before the handshake");
        } else if !link.is(flag::QUEUED) {
            if hellos.len() >= self.net.admission().max_waiting() {
                self.net.note_refused_handshake(thread);
                self.core.kill(slot, Close::Tls);
                return;
            }
            link.flags |= flag::QUEUED;
            let token = self.core.token(slot);
            self.core.hellos.push_back(token);
        }
    }

    /// Begins as many TLS handshakes as belong to a turn, the oldest first.
    #[inline]
    pub(super) fn begin_handshakes(&mut self) {
        if !self.core.hellos.is_empty() {
            self.begin_some_handshakes();
        }
    }

    #[cold]
    fn begin_some_handshakes(&mut self) {
        let mut left = self.net.admission().handshakes();
        while left > 0
            && let Some(token) = self.core.hellos.pop_front()
        {
            // A peer that is gone costs nothing.
            if let Some(slot) = self.core.find(token) {
                self.begin_handshake(slot);
                left -= 1;
            }
        }
        self.net.note_waiting_handshakes(self.core.thread as usize, self.core.hellos.len());
    }

    fn begin_handshake(&mut self, slot: u32) {
        let link = &mut self.core.links[slot as usize];
        link.flags &= !flag::QUEUED;
        let (hello, start) = (std::mem::take(&mut link.rest), std::mem::take(&mut link.start));
        let Some(session) = link.tls.as_mut() else { return };
        let mut plain = std::mem::take(&mut self.plain);
        let fed = session.feed(&hello[start..], |text| plain.extend_from_slice(text));
        // Of an unfinished message the rest waits for its turn, too.
        if session.has_output() || fed.is_err() {
            link.flags &= !flag::HELLO;
        }
        self.on_fed(slot, fed, plain, false);
    }
}
