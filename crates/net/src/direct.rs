//! Long words that are received straight into their own blocks.
//!
//! Usually the back-end receives into its [buffers](super::buffers) and tells what has come. Of a
//! long word that would be a second copy of every byte, so a connection that sends one is read by
//! the reactor from then on: the back-end only says that there is something to read.
//!
//! ```text
//!              a long word begins                    `Readable`
//!   buffers ──────────────────────────▶ direct ────────────────────▶ head ──▶ block ─┐
//!      ▲                                   ▲                          │              │
//!      └── 8 requests without a long word, └── nothing is left, or ───┴──────────────┘
//!          many short ones, blocked            its share of the turn is used up
//! ```
//!
//! A request is read in two pieces: its head, a short piece, from which the word's length follows,
//! and the rest of the word with what comes behind it. What has arrived before the change is in the
//! back-end's buffers and is copied as ever, so a connection may be read either way at any byte.
//!
//! Each connection receives at most its share of a turn (`fair.rs`).

use super::conn::flag;
use super::core::HEAD;
use super::reactor::Reactor;
use super::{Close, Handler};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Requests without a long word after which the back-end receives again.
const MAX_SHORT: u8 = 8;

/// What is left to do for a connection after a piece.
enum Next {
    /// There may be more to read.
    Read,
    /// The socket has nothing more.
    Wait,
    /// The back-end receives again.
    Leave,
    /// Nothing is to be received any more.
    End,
}

impl<H: Handler> Reactor<H> {
    /// Has connections read directly whose handlers have asked for long words in this turn.
    pub(super) fn begin_direct(&mut self) {
        for token in std::mem::take(&mut self.core.begun_words) {
            if let Some(slot) = self.core.find(token) {
                let link = &mut self.core.links[slot as usize];
                if !link.is(flag::TLS | flag::BLOCKED) {
                    link.short_heads = 0;
                    self.driver.direct(token);
                }
            }
        }
    }

    /// Reads a connection whose socket has something, or is at its end.
    pub(super) fn on_readable(&mut self, slot: u32) {
        let token = self.core.token(slot);
        // Of two events of one turn the first may have given it back.
        if !self.driver.is_direct(token) {
            return;
        }
        self.coalescer.arrived(&mut self.core.links[slot as usize].seen);
        let mut share = self.core.receive_budget.share();
        loop {
            let link = &mut self.core.links[slot as usize];
            let Some(fd) = link.fd.as_ref().map(AsRawFd::as_raw_fd) else { return };
            // Reading may have been switched off since the event.
            if link.is(flag::DEAD | flag::UNREAD) {
                return;
            }
            if link.is(flag::BLOCKED) {
                return self.driver.read_on(token);
            }
            if share == 0 {
                return self.driver.await_readable(token, false);
            }
            let is_arriving = link.filling.as_ref().is_some_and(|word| !word.is_complete());
            let received = match is_arriving {
                true => self.receive_word(slot, fd, share),
                false => self.receive_head(slot, fd),
            };
            let next = match received {
                Ok((bytes, next)) => {
                    share = share.saturating_sub(bytes);
                    self.core.receive_budget.spend(bytes);
                    next
                }
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock => Next::Wait,
                    io::ErrorKind::Interrupted => Next::Read,
                    _ => {
                        let errno = e.raw_os_error().unwrap_or(libc::EIO);
                        self.core.kill(slot, Close::Failed(errno));
                        Next::End
                    }
                },
            };
            match next {
                Next::Read => {}
                Next::Wait => return self.driver.await_readable(token, true),
                Next::Leave => return self.driver.read_on(token),
                Next::End => return,
            }
        }
    }

    /// Receives at most `most` bytes of a long word into its block. Returns how many there were.
    fn receive_word(&mut self, slot: u32, fd: RawFd, most: usize) -> io::Result<(usize, Next)> {
        let link = &mut self.core.links[slot as usize];
        let Some(filling) = &mut link.filling else { return Ok((0, Next::Wait)) };
        let received = filling.receive(fd, most, &mut self.core.head)?;
        let (is_complete, len) = (filling.is_complete(), filling.len());
        if is_complete {
            link.prove(len);
        }
        if received.own == 0 {
            return Ok((0, self.ends(slot)));
        }
        self.take_head(slot, received.behind);
        let next = if received.is_drained { Next::Wait } else { Next::Read };
        Ok((received.own + received.behind, next))
    }

    /// Receives a piece of input in which no long word has begun. Returns its length.
    fn receive_head(&mut self, slot: u32, fd: RawFd) -> io::Result<(usize, Next)> {
        let len = super::sys::recv(fd, &mut self.core.head)?;
        if len == 0 {
            return Ok((0, self.ends(slot)));
        }
        self.take_head(slot, len);
        let link = &mut self.core.links[slot as usize];
        if link.filling.is_some() {
            link.short_heads = 0;
            return Ok((len, Next::Read));
        }
        link.short_heads = link.short_heads.saturating_add(1);
        let next = match len == HEAD || link.short_heads >= MAX_SHORT {
            true => Next::Leave,
            false => Next::Wait,
        };
        Ok((len, next))
    }

    /// Handles the first bytes of `head` as input.
    fn take_head(&mut self, slot: u32, len: usize) {
        let head = std::mem::take(&mut self.core.head);
        self.on_plain(slot, &head[..len]);
        self.core.head = head;
    }

    /// Handles the end of a connection's input.
    fn ends(&mut self, slot: u32) -> Next {
        self.on_eof(slot);
        Next::End
    }
}
