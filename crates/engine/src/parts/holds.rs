//! The long commands that hold keys, and the commands that wait for them.
//!
//! The holds themselves are in the stripes (`keyspace::holds`). This module has their common state:
//! the number of long commands, the threads to notify when one ends, and the keys that one has left
//! unserved. A long command sees its keys through [`crate::held_keys::HeldKeys`].

use crate::background::GAP;
use crate::clients::waiter::Ready;
use crate::clock::Clock;
use crate::mailbox::{Mailbox, recheck_all};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use structs::flags::{CountedFlag, Flag};
use structs::sync::lock;

/// The long commands that hold keys at present.
#[derive(Default)]
pub struct Holds {
    count: CountedFlag,
    /// Number of long commands that hold keys at this moment.
    pub(crate) holding: AtomicUsize,
    last_holder: AtomicU64,
    /// Number of scripts that run on background threads, under locks.
    scripts: AtomicUsize,
    is_waited_for: AtomicBool,
    world_is_wanted: AtomicBool,
    /// Whether no key may be held now ([`Holds::bar`]).
    pub(crate) is_barred: AtomicBool,
    /// The long command that is changing its keys one after the other, or 0.
    changer: AtomicU64,
    /// Keys whose blocked clients could not be served because of a long command.
    unserved: Mutex<Vec<Ready>>,
}

/// Number of pauses without a long command or script after which a thread that wanted to stop the
/// world counts as gone.
const MAX_FREE_ROUNDS: u32 = 50;

impl Holds {
    /// Returns the state without long commands. `flag` is their bit among the special states of the
    /// server.
    pub(crate) fn new(flag: Flag) -> Holds {
        Holds { count: CountedFlag::new(flag), ..Holds::default() }
    }

    /// Returns whether any long command holds keys.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.any()
    }

    /// Returns the number of commands that hold keys at this moment.
    pub fn holding(&self) -> usize {
        self.holding.load(SeqCst)
    }

    /// Prevents keys from being held until [`Holds::unbar`]. Returns `false` without effect if a
    /// key is held or a long command is about to hold one. For a short time, and by one thread
    /// only.
    pub(crate) fn bar(&self) -> bool {
        // A long command counts itself before it checks this flag.
        self.is_barred.store(true, SeqCst);
        let is_free = !self.any();
        if !is_free {
            self.unbar();
        }
        is_free
    }

    /// Ends the effect of [`Holds::bar`].
    pub(crate) fn unbar(&self) {
        self.is_barred.store(false, SeqCst);
    }

    /// Returns whether a script must not take the turn. A long command that began earlier may hold
    /// a key that the script will need, and then need the script's stripes.
    pub(crate) fn blocks_turn(&self) -> bool {
        if !self.any() {
            return false;
        }
        self.wait();
        self.any()
    }

    /// Begins a script on a background thread, under locks. Waits first if a thread wants to stop
    /// the world.
    pub(crate) fn begin_script(&self, clock: &Clock) {
        self.wait_for_world(clock);
        self.scripts.fetch_add(1, SeqCst);
    }

    /// Ends a script on a background thread.
    pub(crate) fn end_script(&self, mailboxes: &[Mailbox]) {
        self.scripts.fetch_sub(1, SeqCst);
        self.recheck(mailboxes);
    }

    /// Makes the threads try again what they could not do, if one of them waits.
    pub(crate) fn recheck(&self, mailboxes: &[Mailbox]) {
        if self.is_waited_for.swap(false, SeqCst) {
            recheck_all(mailboxes);
        }
    }

    /// Returns whether a long command or a script runs in the background. The world must not wait
    /// for it.
    pub(crate) fn is_in_background(&self) -> bool {
        self.any() || self.scripts.load(SeqCst) > 0
    }

    /// Waits until the world has been stopped, if a thread wants that. Its client may be gone.
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

    /// Returns whether a thread wants to stop the world and is kept from it by scripts or long
    /// commands in the background.
    pub(crate) fn world_is_wanted(&self) -> bool {
        self.world_is_wanted.load(SeqCst)
    }

    /// Notes that the world is stopped. Commands that waited for this can continue.
    pub(crate) fn got_world(&self) {
        self.world_is_wanted.store(false, SeqCst);
    }

    /// Begins a long command and returns its number. Waits while a thread wants to stop the world,
    /// and while a script has the turn.
    pub(crate) fn begin(&self, clock: &Clock, is_turn_taken: impl Fn() -> bool) -> u64 {
        loop {
            self.wait_for_world(clock);
            self.count.add();
            if !is_turn_taken() {
                break;
            }
            self.count.remove();
            clock.rest(GAP);
        }
        self.last_holder.fetch_add(1, SeqCst) + 1
    }

    /// Ends a long command. Threads try again what they could not do meanwhile.
    pub(crate) fn end(&self, mailboxes: &[Mailbox], clock: &Clock) {
        self.count.remove();
        if self.is_waited_for.swap(false, SeqCst) {
            recheck_all(mailboxes);
            // Without the pause, the next long command might begin before those that waited.
            clock.rest(GAP);
        }
    }

    /// Returns the long command that is changing its keys one after the other, or 0. Until its end,
    /// its keys must not be read either.
    #[inline]
    pub(crate) fn changer(&self) -> u64 {
        self.changer.load(SeqCst)
    }

    /// Begins such a change. Only one command does so at a time.
    pub(crate) fn begin_change(&self, holder: u64, clock: &Clock) {
        while self.changer.compare_exchange(0, holder, SeqCst, SeqCst).is_err() {
            clock.rest(GAP);
        }
    }

    pub(crate) fn end_change(&self) {
        self.changer.store(0, SeqCst);
    }

    /// Notes that a command waits for a long one to end. Called before the last check for an
    /// obstacle, so that its end is either seen or notified.
    pub(crate) fn wait(&self) {
        self.is_waited_for.store(true, SeqCst);
    }

    /// Returns whether the world must not be stopped now. The caller is notified when to try again.
    pub(crate) fn keep_world(&self) -> bool {
        if !self.is_in_background() {
            return false;
        }
        self.world_is_wanted.store(true, SeqCst);
        self.wait();
        self.is_in_background()
    }

    /// Returns whether a script runs on a background thread, under locks.
    pub(crate) fn has_scripts(&self) -> bool {
        self.scripts.load(SeqCst) > 0
    }

    /// Leaves a key's blocked clients to the long command or the script that is in the way. If that
    /// has ended meanwhile, returns the keys that it may have missed.
    pub(crate) fn serve_later(&self, ready: Ready) -> Vec<Ready> {
        lock(&self.unserved).push(ready);
        if self.is_in_background() { Vec::new() } else { self.take_unserved() }
    }

    pub(crate) fn take_unserved(&self) -> Vec<Ready> {
        std::mem::take(&mut *lock(&self.unserved))
    }
}
