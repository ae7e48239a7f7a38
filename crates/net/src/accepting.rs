//! Accepting connections, and closing those that ended: [`admission`](super::admission) says how
//! many of either belong to a turn.

use super::Handler;
use super::Problem;
use super::admission::Room;
use super::listen::Listener;
use super::reactor::Reactor;
use super::shared::Arrival;
use super::sys;
use std::sync::Arc;
use std::time::Duration;

/// After a failure to accept (no descriptors left, most likely) listeners rest for this long.
const FAILURE_REST: Duration = Duration::from_millis(100);
/// The same while descriptors wait to be closed, which takes a few turns.
const CLOSING_REST: Duration = Duration::from_millis(1);
/// So long no connection is accepted because of descriptors that wait. The thread that has them may
/// be busy for longer.
const CLOSING_PATIENCE: Duration = Duration::from_millis(100);

impl<H: Handler> Reactor<H> {
    /// The kernel has taken all requests of the last turn: what they named may go.
    #[inline]
    pub(super) fn after_submission(&mut self) {
        if !(self.core.closing.is_empty() && self.core.leaving.is_empty()) {
            self.close_some();
        }
        self.retired.clear();
    }

    /// Closes as many connections that ended as belong to a turn.
    fn close_some(&mut self) {
        self.core.free.append(&mut self.core.closing);
        let count = self.net.closes(self.listening.len());
        self.core.leaving.close(count, self.net.admission());
    }

    /// Accepts connections at the listeners where some wait.
    #[cold]
    pub(super) fn accept_some(&mut self) {
        let mut keys = std::mem::take(&mut self.batch.arrivals);
        for key in keys.drain(..) {
            // It may have been reported twice, or just been closed.
            if !self.resting.contains(&key)
                && let Some(listener) = self.listener(key)
            {
                self.accept(&listener);
            }
        }
        self.batch.arrivals = keys;
    }

    fn listener(&self, key: u32) -> Option<Arc<Listener>> {
        self.listening.iter().find(|listener| listener.key == key).cloned()
    }

    /// Accepts as many connections as belong to a turn: half as many while this thread closes some.
    fn accept(&mut self, listener: &Listener) {
        let accepts = self.net.admission().accepts();
        let count = if self.core.leaving.is_empty() { accepts } else { accepts.div_ceil(2) };
        for _ in 0..count {
            let room = self.net.room(self.core.thread as usize, !self.core.dead.is_empty());
            if self.is_to_wait(room) {
                return self.rest(listener.key, CLOSING_REST);
            }
            match sys::accept(listener.raw_fd()) {
                Ok(fd) => self.let_in(Arrival::accepted(fd, listener)),
                Err(e) => match e.raw_os_error().unwrap_or(libc::EIO) {
                    libc::EAGAIN => return,
                    // The peer gave up before it was accepted: its problem, not the listener's.
                    libc::ECONNABORTED | libc::EINTR | libc::EPROTO => {}
                    errno => return self.accepting_failed(listener.key, errno),
                },
            }
            if room != Room::Free {
                return;
            }
        }
    }

    /// Returns whether connections wait until descriptors are closed.
    fn is_to_wait(&mut self, room: Room) -> bool {
        if room == Room::Free {
            self.full_since = None;
        }
        let now = self.core.now;
        room == Room::Soon && now - *self.full_since.get_or_insert(now) < CLOSING_PATIENCE
    }

    /// Takes a new connection to its thread.
    fn let_in(&mut self, arrival: Arrival) {
        let own = self.core.thread as usize;
        let thread = self.net.assign(own, arrival.tag);
        if thread == own {
            self.admit(arrival);
        } else {
            self.net.hand_over(thread, arrival);
        }
    }

    fn accepting_failed(&mut self, key: u32, errno: i32) {
        // EINVAL is how a listener ends that has been replaced.
        if errno != libc::EINVAL && self.resting.is_empty() {
            self.handler.problem(Problem::Accept(errno));
        }
        let rest = if self.core.leaving.is_empty() { FAILURE_REST } else { CLOSING_REST };
        self.rest(key, rest);
    }

    /// Has a listener rest for so long, or until others have rested if that is earlier.
    fn rest(&mut self, key: u32, time: Duration) {
        self.driver.unlisten(key);
        self.resting.push(key);
        let end = self.core.now + time;
        self.rested_at = Some(self.rested_at.map_or(end, |other| other.min(end)));
    }

    /// Watches listeners again that have rested.
    pub(super) fn end_rest(&mut self) {
        if self.rested_at.is_some_and(|at| at <= self.core.now) {
            self.rested_at = None;
            for key in std::mem::take(&mut self.resting) {
                if let Some(listener) = self.listener(key) {
                    self.listen(&listener);
                }
            }
        }
    }

    /// Watches the listeners that there are now, and no others.
    pub(super) fn sync_listeners(&mut self) {
        let (version, mut wanted) = self.net.listeners().snapshot();
        wanted.retain(|listener| self.net.serves(self.core.thread as usize, listener.tag()));
        self.listening_version = version;
        let old = std::mem::take(&mut self.listening);
        for listener in &wanted {
            if !old.iter().any(|l| l.key == listener.key) {
                self.listen(listener);
            }
        }
        for listener in old {
            if !wanted.iter().any(|l| l.key == listener.key) {
                self.driver.unlisten(listener.key);
                self.resting.retain(|key| *key != listener.key);
                self.retired.push(listener);
            }
        }
        self.listening = wanted;
    }

    fn listen(&mut self, listener: &Listener) {
        if let Err(e) = self.driver.listen(listener.key, listener.raw_fd()) {
            self.handler.problem(Problem::Setup(&e));
        }
    }
}
