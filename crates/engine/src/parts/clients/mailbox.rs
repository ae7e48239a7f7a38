//! How threads reach each other's clients.
//!
//! A client belongs to one reactor thread, which alone writes to it. A sender of something to a
//! client of another thread (a published message, the reply of a blocked command, an order to
//! close) posts it to that thread's mailbox and wakes the thread if it sleeps.
//!
//! To post a message costs less than to deliver it, so one client that publishes without pause
//! could fill a mailbox faster than its thread empties it, and keep that thread from everything
//! else. So a mailbox is *overdue* from [`MAX_WAITING`] bytes on, and what may post many messages
//! is tried again later while any mailbox is.
//!
//! What has to reach its receiver before the poster's own client gets its reply is posted with a
//! *ticket* ([`Mailbox::post_first`]): the reply is held until [`delivered`] has come to that
//! ticket.

use super::session::Fate;
use super::suspension::Resumption;
use keyspace::HeapString;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use structs::flags::{CountedFlag, Flag};
use structs::sync::lock;

/// Bytes of messages, as they will be delivered, that may wait for a thread before it is overdue:
/// a few milliseconds of its time.
pub const MAX_WAITING: usize = 4 << 20;
/// What a message costs beside the bytes it carries.
const MESSAGE_OVERHEAD: usize = 64;

/// Something for one client, or for the thread itself.
pub enum Message {
    /// An out-of-band message.
    Push(u64, Arc<Push>),
    /// The end of a suspension: the reply of a blocked or background command.
    Resume(u64, Resumption),
    /// The end of the suspension with this token: CLIENT UNBLOCK, or a change of role.
    Unblock {
        /// The client.
        client: u64,
        /// The suspension's.
        token: u64,
        /// With this error, or as if the time were up.
        error: Option<Cow<'static, str>>,
        /// What happens to the connection then.
        fate: Fate,
    },
    /// The client is to be closed.
    Kill(u64),
    /// The client is to be closed because a reply is larger than its output may be.
    Overflow(u64),
    /// The client is to be closed because clients use too much memory.
    Evict(u64),
    /// Something has changed that suspends or releases clients (CLIENT UNPAUSE, the end of a long
    /// command): look again.
    Recheck,
    /// A value that the client's request waits for has been read, or cannot be.
    Arrived(u64),
    /// The stream of a replica is to begin.
    Stream(u64),
    /// There may be new entries for the replicas that the thread feeds.
    Feed,
    /// A request for the other nodes of the cluster that lead a shard. Its replies are of no use.
    Spread(Box<[u8]>),
    /// Clients want to hear of events of keys on other nodes ([`crate::pubsub::elsewhere`]).
    Listen,
    /// The server goes down, and another leads its shard: links of other nodes are ended, with word
    /// that nothing more of what they bring is carried out.
    EndLinks,
    /// The thread's own heap is to give back what it can (MEMORY PURGE).
    Purge,
}

/// An out-of-band message, encoded by the receiving thread in the client's own protocol.
#[derive(Debug)]
pub enum Push {
    /// To a channel's subscriber.
    Message {
        /// The channel.
        channel: Box<[u8]>,
        /// What was published.
        payload: HeapString,
    },
    /// To a pattern's subscriber.
    PatternMessage {
        /// The pattern that matched.
        pattern: Box<[u8]>,
        /// The channel.
        channel: Box<[u8]>,
        /// What was published.
        payload: HeapString,
    },
    /// To a shard channel's subscriber.
    ShardMessage {
        /// The channel.
        channel: Box<[u8]>,
        /// What was published.
        payload: HeapString,
    },
    /// To a shard channel's subscriber: its slot has moved to another server.
    ShardUnsubscribed {
        /// The channel.
        channel: Box<[u8]>,
    },
    /// What a client-side cache must forget.
    Invalidate {
        /// The keys; `None` for all.
        keys: Option<Vec<Box<[u8]>>>,
        /// Whether the client gets this because of REDIRECT: only then it is told so under RESP2.
        is_redirected: bool,
    },
    /// The client that tracking redirects to is gone.
    TrackingRedirBroken(u64),
    /// A maintenance notice, in RESP3.
    Notice(Box<[u8]>),
    /// A line for MONITOR, without `+` and line end.
    Monitor(Box<[u8]>),
}

/// Has every thread try again what could not be done: what was in the way may be over.
pub fn recheck_all(mailboxes: &[Mailbox]) {
    mailboxes.iter().for_each(|mailbox| mailbox.post(Message::Recheck));
}

impl Message {
    /// What it costs to keep and to deliver, in bytes.
    fn weight(&self) -> usize {
        let carried = match self {
            Message::Push(_, push) => match &**push {
                Push::Message { channel, payload } | Push::ShardMessage { channel, payload } => {
                    channel.len() + payload.len()
                }
                Push::PatternMessage { pattern, channel, payload } => {
                    pattern.len() + channel.len() + payload.len()
                }
                Push::Monitor(line) | Push::Notice(line) => line.len(),
                Push::Invalidate { keys, .. } => {
                    keys.iter().flatten().map(|key| key.len() + 16).sum()
                }
                Push::ShardUnsubscribed { channel } => channel.len(),
                Push::TrackingRedirBroken(_) => 0,
            },
            Message::Spread(request) => request.len(),
            _ => 0,
        };
        carried + MESSAGE_OVERHEAD
    }
}

type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Waiting {
    messages: Vec<Message>,
    /// Of all of them; those that were taken singly may still be counted.
    weight: usize,
}

/// One thread's mailbox.
#[derive(Default)]
pub struct Mailbox {
    waiting: Mutex<Waiting>,
    has_mail: AtomicBool,
    shared: Arc<Shared>,
    wake: OnceLock<Wake>,
    /// The last ticket posted, taken, and delivered.
    posted: AtomicU64,
    taken: AtomicU64,
    delivered: AtomicU64,
}

/// What the mailboxes of a server share.
#[derive(Default)]
pub struct Shared {
    /// How many mailboxes are overdue.
    pub overdue: CountedFlag,
    /// The last ticket that was given out.
    issued: AtomicU64,
}

impl Shared {
    /// Returns what new mailboxes share. `flag` is the bit of overdue ones among the special states
    /// of the server.
    pub(crate) fn new(flag: Flag) -> Shared {
        Shared { overdue: CountedFlag::new(flag), ..Shared::default() }
    }
}

thread_local! {
    static LAST_TICKET: Cell<u64> = const { Cell::new(0) };
}

/// Returns the last ticket of what the calling thread has posted, 0 for none.
#[inline]
pub fn last_ticket() -> u64 {
    LAST_TICKET.get()
}

/// Returns the last ticket of all that was posted.
pub fn issued(mailboxes: &[Mailbox]) -> u64 {
    mailboxes.first().map_or(0, |mailbox| mailbox.shared.issued.load(SeqCst))
}

/// Returns the ticket up to which all that was posted has been delivered.
pub fn delivered(mailboxes: &[Mailbox]) -> u64 {
    // First: what is posted behind this has a higher ticket.
    let issued = issued(mailboxes);
    let outstanding = mailboxes.iter().filter_map(|mailbox| {
        let delivered = mailbox.delivered.load(SeqCst);
        (mailbox.posted.load(SeqCst) > delivered).then_some(delivered)
    });
    outstanding.fold(issued, u64::min)
}

impl Mailbox {
    /// Of a server whose mailboxes share this.
    pub fn new(shared: &Arc<Shared>) -> Mailbox {
        Mailbox { shared: Arc::clone(shared), ..Mailbox::default() }
    }

    /// Says how to wake the thread; once.
    pub fn set_wake(&self, wake: Wake) {
        // A second call would mean two reactors on one mailbox.
        assert!(self.wake.set(wake).is_ok(), "a mailbox has one owner");
    }

    /// Posts a message.
    pub fn post(&self, message: Message) {
        self.add(lock(&self.waiting), message);
    }

    /// Posts a message that is to be delivered before the client that causes it gets its reply.
    pub fn post_first(&self, message: Message) {
        let waiting = lock(&self.waiting);
        // Under the lock, so that the tickets of a mailbox rise.
        let ticket = self.shared.issued.fetch_add(1, SeqCst) + 1;
        self.posted.store(ticket, SeqCst);
        LAST_TICKET.set(ticket);
        self.add(waiting, message);
    }

    /// The client of the calling thread causes what another thread has just posted.
    pub(crate) fn share_tickets(&self) {
        LAST_TICKET.set(self.shared.issued.load(SeqCst));
    }

    fn add(&self, mut waiting: MutexGuard<'_, Waiting>, message: Message) {
        let before = waiting.weight;
        waiting.weight += message.weight();
        if before <= MAX_WAITING && waiting.weight > MAX_WAITING {
            self.shared.overdue.add();
        }
        waiting.messages.push(message);
        // Under the lock, as in `take`: were it true while nothing is there, the next message would
        // wake no thread.
        let was_empty = !self.has_mail.swap(true, AcqRel);
        drop(waiting);
        if was_empty && let Some(wake) = self.wake.get() {
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
        let mut waiting = lock(&self.waiting);
        waiting
            .messages
            .extract_if(.., |message| matches!(message, Message::Push(to, _) if *to == client))
            .filter_map(|message| match message {
                Message::Push(_, push) => Some(push),
                _ => None,
            })
            .collect()
    }

    /// Takes all messages, in the order of posting.
    pub fn take(&self) -> Vec<Message> {
        let mut waiting = lock(&self.waiting);
        self.has_mail.store(false, Release);
        self.taken.store(self.posted.load(Relaxed), Relaxed);
        let Waiting { messages, weight } = std::mem::take(&mut *waiting);
        if weight > MAX_WAITING {
            self.shared.overdue.remove();
        }
        messages
    }

    /// Returns whether messages with tickets were taken that are not [confirmed](Mailbox::confirm).
    #[inline]
    pub fn is_unconfirmed(&self) -> bool {
        self.taken.load(Relaxed) > self.delivered.load(Relaxed)
    }

    /// All that was taken has been delivered.
    pub fn confirm(&self) {
        self.delivered.store(self.taken.load(Relaxed), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_is_overdue_from_its_limit_until_it_is_emptied() {
        let shared: Arc<Shared> = Arc::default();
        let mailboxes = [Mailbox::new(&shared), Mailbox::new(&shared)];
        let overdue = &shared.overdue;
        let push = Arc::new(Push::Monitor(vec![b'x'; MAX_WAITING / 2].into()));
        let mut seen = Vec::new();
        for mailbox in [0, 0, 0, 1, 1] {
            mailboxes[mailbox].post(Message::Push(1, Arc::clone(&push)));
            seen.push(overdue.any());
        }
        assert_eq!(seen, [false, true, true, true, true]);
        assert_eq!(mailboxes[0].take_pushes(1).len(), 3);
        assert_eq!(mailboxes[0].take().len(), 0);
        assert!(overdue.any());
        assert_eq!(mailboxes[1].take().len(), 2);
        assert!(!overdue.any());
    }

    #[test]
    fn tickets_pass_when_their_mailboxes_have_delivered() {
        let shared: Arc<Shared> = Arc::default();
        let mailboxes = [0, 1, 2].map(|_| Mailbox::new(&shared));
        let push = || Message::Push(1, Arc::new(Push::TrackingRedirBroken(2)));
        assert_eq!(delivered(&mailboxes), 0);
        mailboxes[0].post_first(push());
        assert_eq!((last_ticket(), delivered(&mailboxes)), (1, 0));
        mailboxes[1].post_first(push());
        mailboxes[0].post(push());
        assert_eq!(mailboxes[0].take().len(), 2);
        assert!(mailboxes[0].is_unconfirmed());
        mailboxes[0].confirm();
        assert_eq!(delivered(&mailboxes), 0, "the other one has not delivered");
        mailboxes[1].take();
        mailboxes[2].post_first(push());
        mailboxes[1].confirm();
        assert!(!mailboxes[1].is_unconfirmed());
        assert_eq!(delivered(&mailboxes), 0, "nothing is known of the third");
        mailboxes[2].take();
        mailboxes[2].confirm();
        assert_eq!(delivered(&mailboxes), 3);
    }
}
