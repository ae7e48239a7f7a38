//! What belongs to one thread that runs commands.

use crate::clock::{Clock, Ticks};
use crate::membership::Seen;
use crate::request_keys::RequestKeys;
use crate::shedding::Turns;
use crate::stats::ThreadStats;
use keyspace::Millis;
use keyspace::world::Reader;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use structs::random::Rng;

/// What commands may know of their thread.
pub struct ThreadContext {
    /// Which thread.
    pub index: usize,
    /// It serves operators alone, and waits for no other thread for long.
    pub is_for_operators: bool,
    /// How long its turns take.
    pub turns: Turns,
    /// When it last gave up waiting for the world to go on.
    pub(crate) gave_up: Cell<Option<Ticks>>,
    stats: &'static ThreadStats,
    /// What commands are timed with.
    pub clock: Clock,
    /// Its registration with the world.
    pub reader: Reader<'static>,
    next_token: Cell<u64>,
    /// When suspensions end by themselves, with the clients and the tokens: exactly those that
    /// have not ended yet, since a deadline may be days away and a suspension over in no time.
    pub(crate) deadlines: RefCell<BTreeSet<(Millis, u64, u64)>>,
    /// The description of a request's keys between two batches; kept for its allocation.
    pub(crate) keys: Cell<RequestKeys>,
    /// What it has seen of the cluster.
    pub(crate) membership: Seen,
    /// Its interpreter.
    pub(crate) scripts: RefCell<crate::scripts::Local>,
    /// The generation of the scripts, and those that were on their way to other nodes, by hashes of
    /// their texts.
    pub(crate) noted_scripts: RefCell<(u64, HashSet<u64>)>,
    /// Where the thread's random numbers go on.
    pub(crate) seed: Cell<u64>,
}

impl ThreadContext {
    /// The context of the calling thread, whose counters have this index.
    pub(crate) fn new(
        index: usize,
        is_for_operators: bool,
        stats: &'static ThreadStats,
        clock: Clock,
        reader: Reader<'static>,
    ) -> ThreadContext {
        ThreadContext {
            index,
            is_for_operators,
            turns: Turns::default(),
            gave_up: Cell::new(None),
            stats,
            clock,
            reader,
            next_token: Cell::new(0),
            deadlines: RefCell::default(),
            keys: Cell::default(),
            membership: Seen::default(),
            scripts: RefCell::default(),
            noted_scripts: RefCell::default(),
            seed: Cell::new(structs::hashing::os_random()),
        }
    }

    /// The thread's counters.
    #[inline]
    pub fn stats(&self) -> &'static ThreadStats {
        self.stats
    }

    /// A number for the next suspension.
    pub(crate) fn next_token(&self) -> u64 {
        let token = self.next_token.get() + 1;
        self.next_token.set(token);
        token
    }

    /// Notes when a suspension ends by itself.
    pub(crate) fn note_deadline(&self, at: Millis, client: u64, token: u64) {
        self.deadlines.borrow_mut().insert((at, client, token));
    }

    /// Forgets when a suspension, which is over, would have ended by itself.
    pub(crate) fn forget_deadline(&self, at: Option<Millis>, client: u64, token: u64) {
        if let Some(at) = at {
            self.deadlines.borrow_mut().remove(&(at, client, token));
        }
    }

    pub(crate) fn rng(&self) -> Rng {
        let mut rng = Rng::seeded(self.seed.get());
        self.seed.set(rng.next_u64());
        rng
    }
}
