//! How threads reach each other's clients.
//!
//! A client belongs to one reactor thread, which alone writes to it. Whoever has something for a
//! client of another thread (a published message, the reply of a blocked command, an order to
//! close) posts it to that thread's mailbox and wakes the thread if it sleeps.

use crate::blocking::Resumption;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Something for one client, or for the thread itself.
pub enum Message {
    /// An out-of-band message.
    Push(u64, Arc<Push>),
    /// The end of a suspension: the reply of a blocked or background command.
    Resume(u64, Resumption),
    /// CLIENT UNBLOCK; with an error or as if the time were up.
    Unblock(u64, bool),
    /// The client is to be closed.
    Kill(u64),
    /// The client is to be closed because a reply is larger than its output may be.
    Overflow(u64),
    /// The client is to be closed because clients use too much memory.
    Evict(u64),
    /// Something has changed that suspends or releases clients (CLIENT UNPAUSE, the end of a long
    /// command): look again.
    Recheck,
}

/// An out-of-band message, encoded by the receiving thread in the client's own protocol.
#[derive(Debug)]
pub enum Push {
    /// To a channel's subscriber.
    Message {
        /// The channel.
        channel: Box<[u8]>,
        /// What was published.
        payload: Box<[u8]>,
    },
    /// To a pattern's subscriber.
    PatternMessage {
        /// The pattern that matched.
        pattern: Box<[u8]>,
        /// The channel.
        channel: Box<[u8]>,
        /// What was published.
        payload: Box<[u8]>,
    },
    /// To a shard channel's subscriber.
    ShardMessage {
        /// The channel.
        channel: Box<[u8]>,
        /// What was published.
        payload: Box<[u8]>,
    },
    /// Keys that a client-side cache must forget; `None` for all.
    Invalidate(Option<Vec<Box<[u8]>>>),
    /// The client that tracking redirects to is gone.
    TrackingRedirBroken(u64),
    /// A line for MONITOR, without `+` and line end.
    Monitor(Box<[u8]>),
}

type Wake = Box<dyn Fn() + Send + Sync>;

/// One thread's mailbox.
#[derive(Default)]
pub struct Mailbox {
    messages: Mutex<Vec<Message>>,
    has_mail: AtomicBool,
    wake: OnceLock<Wake>,
}

impl Mailbox {
    /// Says how to wake the thread; once.
    pub fn set_wake(&self, wake: Wake) {
        // A second call would mean two reactors on one mailbox.
        assert!(self.wake.set(wake).is_ok(), "a mailbox has one owner");
    }

    /// Posts a message.
    pub fn post(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        if !self.has_mail.swap(true, AcqRel)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// Whether something may be there.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.has_mail.load(Acquire)
    }

    /// Takes the out-of-band messages for one client, in the order of posting; the others stay.
    pub fn take_pushes(&self, client: u64) -> Vec<Arc<Push>> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages
            .extract_if(.., |message| matches!(message, Message::Push(to, _) if *to == client))
            .filter_map(|message| match message {
                Message::Push(_, push) => Some(push),
                _ => None,
            })
            .collect()
    }

    /// Takes all messages, in the order of posting.
    pub fn take(&self) -> Vec<Message> {
        self.has_mail.store(false, Release);
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
