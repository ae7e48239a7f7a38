//! What threads ask of each other about their clients. [`administering`](super::administering)
//! works on it.

use super::filters::Filters;
use crate::wire::Id;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex};
use structs::sync::lock;

/// What is to be done with clients.
#[derive(Debug)]
pub(super) enum What {
    List(Filters),
    Kill(Filters),
    /// The old form: one client, by its address.
    KillAt(String),
    /// A client's number, and the last word.
    Unblock(u64, &'static [u8]),
}

/// What a client wants of the clients of its pool.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) what: What,
    /// The pool's name.
    pub(super) pool: String,
    /// The asking client's number.
    pub(super) asker: u64,
}

/// Where the answer to an order goes.
#[derive(Debug)]
pub(super) struct Return {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) client: Id,
    pub(super) seq: u64,
    pub(super) part: u32,
}

#[derive(Debug)]
pub(super) enum Letter {
    Order(Arc<Order>, Return),
    Answer(Return, Vec<u8>),
}

/// A thread's mailbox.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    has_letters: AtomicBool,
}

impl Mailbox {
    pub(super) fn put(&self, letter: Letter) {
        lock(&self.letters).push(letter);
        self.has_letters.store(true, SeqCst);
    }

    /// Takes all letters. One that is being put is taken in the next turn, which its sender causes.
    pub(super) fn take(&self) -> Vec<Letter> {
        // Each turn looks here.
        if !self.has_letters.load(Relaxed) || !self.has_letters.swap(false, SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut *lock(&self.letters))
    }
}
