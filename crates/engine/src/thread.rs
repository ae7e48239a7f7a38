//! What belongs to one thread that runs commands.

use crate::blocking::Suspension;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::request_keys::RequestKeys;
use crate::session::{ReplyMode, Session};
use crate::stats::ThreadStats;
use keyspace::Millis;
use keyspace::world::Reader;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use structs::random::Rng;

/// What commands may know of their thread.
pub struct ThreadContext {
    /// The engine, for what outlives a command.
    pub engine: &'static Engine,
    /// Which thread.
    pub index: usize,
    stats: &'static ThreadStats,
    /// What commands are timed with.
    pub clock: Clock,
    /// Its registration with the world.
    pub reader: Reader<'static>,
    pub(crate) next_token: Cell<u64>,
    /// When suspensions end by themselves, with the clients and the tokens: exactly those that
    /// have not ended yet, since a deadline may be days away and a suspension over in no time.
    pub(crate) deadlines: RefCell<BTreeSet<(Millis, u64, u64)>>,
    /// The description of a request's keys between two batches; kept for its allocation.
    pub(crate) keys: Cell<RequestKeys>,
    /// Its interpreter.
    pub(crate) scripts: RefCell<crate::scripts::Local>,
    /// Where the thread's random numbers go on.
    pub(crate) seed: Cell<u64>,
}

impl ThreadContext {
    /// The context of the calling thread, whose counters have this index.
    pub(crate) fn new(engine: &'static Engine, index: usize) -> ThreadContext {
        ThreadContext {
            engine,
            index,
            stats: &engine.thread_stats[index],
            clock: engine.clock,
            reader: engine.keyspace.world().register(),
            next_token: Cell::new(0),
            deadlines: RefCell::default(),
            keys: Cell::default(),
            scripts: RefCell::default(),
            seed: Cell::new(structs::hashing::os_random()),
        }
    }

    /// The thread's counters.
    #[inline]
    pub fn stats(&self) -> &'static ThreadStats {
        self.stats
    }

    /// Suspends a session: it reads no further request until it is resumed.
    pub fn suspend(&self, session: &mut Session, mut suspension: Suspension) -> u64 {
        let token = self.next_token.get() + 1;
        self.next_token.set(token);
        suspension.token = token;
        suspension.is_silent = session.reply_mode != ReplyMode::On;
        if let Some(deadline) = suspension.deadline {
            self.deadlines.borrow_mut().insert((deadline, session.id(), token));
        }
        session.suspension = Some(suspension);
        token
    }

    /// Forgets when a suspension, which is over, would have ended by itself.
    pub(crate) fn forget_deadline(&self, client: u64, suspension: &Suspension) {
        if let Some(deadline) = suspension.deadline {
            self.deadlines.borrow_mut().remove(&(deadline, client, suspension.token));
        }
    }

    pub(crate) fn rng(&self) -> Rng {
        let mut rng = Rng::seeded(self.seed.get());
        self.seed.set(rng.next_u64());
        rng
    }
}
