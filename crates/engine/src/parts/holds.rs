//! What long commands hold, and the commands that wait for them.
//!
//! The holds themselves are in the stripes (`keyspace::holds`); here is what concerns all of them:
//! how many long commands run, which threads want to be told when one ends, and which keys it left unserved. The view that a
//! long command has of its keys is [`crate::held_keys::HeldKeys`].

use crate::background::GAP;
use crate::clients::waiter::Ready;
use crate::clock::Clock;
use crate::mailbox::{Mailbox, recheck_all};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use structs::sync::lock;

/// The long commands that hold keys at present.
#[derive(Default)]
pub struct Holds {
    count: AtomicUsize,
    /// Those of them that hold keys just now.
    pub(crate) holding: AtomicUsize,
    last_holder: AtomicU64,
    /// Scripts that run on background threads, under locks.
    scripts: AtomicUsize,
    is_waited_for: AtomicBool,
    world_is_wanted: AtomicBool,
    /// No key is to be held now; see [`Holds::bar`].
    pub(crate) is_barred: AtomicBool,
    /// The long command that changes its keys one after the other just now; 0 if none does.
    changer: AtomicU64,
    /// Keys whose blocked clients could not be served because a long command was in the way.
    unserved: Mutex<Vec<Ready>>,
}

/// Pauses in which nothing keeps a thread from stopping the world, before it counts as gone.
const MAX_FREE_ROUNDS: u32 = 50;

impl Holds {
    /// Whether any long command holds keys.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// How many commands hold keys just now.
    pub fn holding(&self) -> usize {
        self.holding.load(SeqCst)
    }

    /// From now on no key is held until [`Holds::unbar`], if none is held already and no long command is
    /// about to hold one; `false` otherwise. For a moment, and by one thread.
    pub(crate) fn bar(&self) -> bool {
        // A long command counts itself before it looks whether this is set.
        self.is_barred.store(true, SeqCst);
        let is_free = !self.any();
        if !is_free {
            self.unbar();
        }
        is_free
    }

    /// The end of what [`Holds::bar`] began.
    pub(crate) fn unbar(&self) {
        self.is_barred.store(false, SeqCst);
    }

    /// Whether a script must not take the turn: a long command that began before may hold a key that the
    /// script comes to want, and then want the script's stripes.
    pub(crate) fn blocks_turn(&self) -> bool {
        if !self.any() {
            return false;
        }
        self.wait();
        self.any()
    }

    /// Begins a script on a background thread, under locks, unless the world is wanted.
    pub(crate) fn begin_script(&self, clock: &Clock) {
        self.wait_for_world(clock);
        self.scripts.fetch_add(1, SeqCst);
    }

    /// Ends it.
    pub(crate) fn end_script(&self, mailboxes: &[Mailbox]) {
        self.scripts.fetch_sub(1, SeqCst);
        self.recheck(mailboxes);
    }

    /// Tells the threads to try again what could not be done, if one of them has said that it waits.
    pub(crate) fn recheck(&self, mailboxes: &[Mailbox]) {
        if self.is_waited_for.swap(false, SeqCst) {
            recheck_all(mailboxes);
        }
    }

    /// Whether anything runs in the background that the world must not wait for.
    pub(crate) fn is_in_background(&self) -> bool {
        self.any() || self.scripts.load(SeqCst) > 0
    }

    /// Waits until the world was stopped, if that is wanted. The client that wanted it may be gone.
    fn wait_for_world(&self, clock: &Clock) {
        let mut free_rounds = 0;
        while self.world_is_wanted() {
            free_rounds += u32::from(!self.is_in_background());
            if free_rounds > MAX_FREE_ROUNDS {
                self.got_world();
            }
            clock.rest(GAP);
        }
    }

    /// Whether a thread wants to stop the world, which scripts and long commands in the background
    /// keep it from.
    pub(crate) fn world_is_wanted(&self) -> bool {
        self.world_is_wanted.load(SeqCst)
    }

    /// The world is stopped: what waited for that can go on.
    pub(crate) fn got_world(&self) {
        self.world_is_wanted.store(false, SeqCst);
    }

    /// Begins a long command; its number. Waits if a thread wants the world and has waited long
    /// enough for the commands that run already, and while a script has the turn.
    pub(crate) fn begin(&self, clock: &Clock, is_turn_taken: impl Fn() -> bool) -> u64 {
        loop {
            self.wait_for_world(clock);
            self.count.fetch_add(1, SeqCst);
            if !is_turn_taken() {
                break;
            }
            self.count.fetch_sub(1, SeqCst);
            clock.rest(GAP);
        }
        self.last_holder.fetch_add(1, SeqCst) + 1
    }

    /// Ends it, and tells the threads to try again what could not be done beside it.
    pub(crate) fn end(&self, mailboxes: &[Mailbox], clock: &Clock) {
        self.count.fetch_sub(1, SeqCst);
        if self.is_waited_for.swap(false, SeqCst) {
            recheck_all(mailboxes);
            // Without it the next long command might be faster than those that wait.
            clock.rest(GAP);
        }
    }

    /// The long command that is changing the keys it holds one after the other: until its end they must
    /// not be read either. 0 if there is none.
    #[inline]
    pub(crate) fn changer(&self) -> u64 {
        self.changer.load(SeqCst)
    }

    /// Begins such a change; one command at a time does that.
    pub(crate) fn begin_change(&self, holder: u64, clock: &Clock) {
        while self.changer.compare_exchange(0, holder, SeqCst, SeqCst).is_err() {
            clock.rest(GAP);
        }
    }

    pub(crate) fn end_change(&self) {
        self.changer.store(0, SeqCst);
    }

    /// Notes that a command waits for a long one to end. To be called before the last look at
    /// what is in the way, so that the end is either seen or announced.
    pub(crate) fn wait(&self) {
        self.is_waited_for.store(true, SeqCst);
    }

    /// Whether the world must not be stopped now; the caller is told when to try again.
    pub(crate) fn keep_world(&self) -> bool {
        if !self.is_in_background() {
            return false;
        }
        self.world_is_wanted.store(true, SeqCst);
        self.wait();
        self.is_in_background()
    }

    /// Whether a script runs on a background thread, under locks.
    pub(crate) fn has_scripts(&self) -> bool {
        self.scripts.load(SeqCst) > 0
    }

    /// Leaves the serving of a key's blocked clients to the long command or the script in the way.
    /// If that has
    /// ended meanwhile, what it may have missed is returned.
    pub(crate) fn serve_later(&self, ready: Ready) -> Vec<Ready> {
        lock(&self.unserved).push(ready);
        if self.is_in_background() { Vec::new() } else { self.take_unserved() }
    }

    pub(crate) fn take_unserved(&self) -> Vec<Ready> {
        std::mem::take(&mut *lock(&self.unserved))
    }
}
