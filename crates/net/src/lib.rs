//! The network layer: one reactor per thread, which owns its connections and knows no command.
//!
//! A reactor moves bytes between sockets and a [`Handler`]. It is built around *turns*:
//!
//! ```text
//!        ┌────────────────────────────────────────────────────────────────────┐
//!        │ wait      one system call: sends of the last turn go out, and what │
//!        │           has arrived comes back as a batch of events              │
//!        │ deliver   every event to the handler: opened, data, closed         │
//!        │ woken     when another thread has called the waker; tick when due  │
//!        │ retry     connections whose next command could not run before      │
//!        │ end       end_of_turn, then every connection with output is queued │
//!        └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! so that a busy server pays for one system call and one wake-up per batch, not per request.
//!
//! * [`Net`] is what the threads share: listeners, TLS settings, wakers, the spreading of
//!   connections. [`Reactor`] is one thread's event loop. [`Cx`] and [`ConnIo`] are what a handler
//!   can do to its connections.
//! * Two back-ends (io_uring and epoll) lie behind one internal interface; [`Backend::probe`]
//!   picks.
//! * Connections are named by [`ConnId`], which carries thread and generation: an id that has
//!   become stale names nothing, never another connection.
//!
//! What must *not* be here: anything that knows a protocol, a command, a key or a reply; files; the
//! log.

mod accepting;
mod admission;
mod backlog;
mod buffers;
mod coalesce;
mod conn;
mod core;
mod cx;
mod deliver;
mod direct;
mod driver;
mod epoll;
mod fair;
mod filling;
mod gated;
mod handed;
mod hello;
mod listen;
mod outgoing;
mod peer;
mod probe;
mod reactor;
mod resolve;
mod rest;
mod settle;
mod shared;
mod sys;
mod tls;
mod turn;
mod uring;
mod waker;
mod yielding;

pub use admission::Admission;
pub use conn::ConnId;
pub use cx::{ConnIo, Cx, OutputSize};
pub use gated::{Gate, Passed};
pub use listen::{Address, BindError, ListenSpec};
pub use outgoing::{ConnectError, Outgoing, Target};
pub use peer::{Kind, PeerInfo, Tag, share_private_range};
pub use probe::{Backend, Choice};
pub use reactor::Reactor;
pub use shared::{MAX_THREADS, Net, NetOptions};
pub use sys::thread_cpu_time;
pub use tls::{
    ClientAuth, NameCheck, TlsClient, TlsContext, TlsError, TlsSettings, Trust, client_rules,
    client_rules_trusting,
};
pub use waker::Waker;

/// A connection from a local address.
///
/// # Errors
/// The address is not this machine's, or the target cannot be reached.
pub fn connect_from(
    source: std::net::IpAddr,
    target: &std::net::SocketAddr,
    timeout: std::time::Duration,
) -> std::io::Result<std::net::TcpStream> {
    sys::connect_from(source, target, timeout)
}

use std::fmt;
use std::time::Duration;

/// What a handler made of the bytes it was given: see [`Handler::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Consumed {
    /// How many bytes of the input are done with; the rest is presented again.
    pub bytes: usize,
    /// When to present it.
    pub next: NextInput,
}

/// When a handler wants to see what it left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextInput {
    /// When at least `missing` more bytes have arrived. Zero means any more. The hint spares a
    /// handler the sight of every piece of a large request, and the reactor every copy but one.
    Read {
        /// How many bytes the current request still lacks, as far as is known.
        missing: usize,
    },
    /// The input ends with the first `arrived` bytes of a long word. They are taken out of it, the
    /// word is received into a block of its own ([`ConnIo::take_word`]), and the input is presented
    /// when it goes on behind the word.
    Word {
        /// Bytes of the word in the input.
        arrived: usize,
        /// Bytes of the word.
        len: usize,
        /// Bytes that have to arrive behind the word before the input is presented.
        behind: usize,
    },
    /// As soon as the other connections have had their turn: the next request could not run now.
    Retry,
}

impl Consumed {
    /// `bytes` are done with, and what is left, if anything, is no complete request.
    #[inline]
    pub fn read(bytes: usize) -> Self {
        Self { bytes, next: NextInput::Read { missing: 0 } }
    }

    /// `bytes` are done with, and the request that follows lacks at least `missing` bytes.
    #[inline]
    pub fn need(bytes: usize, missing: usize) -> Self {
        Self { bytes, next: NextInput::Read { missing } }
    }

    /// `bytes` are done with, and the request that follows is to be tried again soon.
    #[inline]
    pub fn retry(bytes: usize) -> Self {
        Self { bytes, next: NextInput::Retry }
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The peer closed its side.
    Eof,
    /// The connection broke, with this `errno`.
    Failed(i32),
    /// The handler asked for it.
    Asked,
    /// The TLS session broke.
    Tls,
    /// The reactor is stopping.
    Stopping,
}

/// Something an operator wants to read in the log. None of these ends more than the connection it
/// is about.
#[derive(Debug)]
pub enum Problem<'a> {
    /// Accepting failed, with this `errno`; accepting pauses for a moment.
    Accept(i32),
    /// A TLS handshake failed: the peer's address and the reason.
    Handshake(&'a str, &'a str),
    /// A connection was accepted but could not be set up.
    Setup(&'a std::io::Error),
    /// The thread may not change its scheduling policy, and does without.
    Scheduling(&'a std::io::Error),
}

impl fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept(errno) => {
                write!(
                    f,
                    "Accepting client connection: {}",
                    std::io::Error::from_raw_os_error(*errno)
                )
            }
            Self::Handshake(peer, why) => {
                write!(f, "Error accepting a client connection: {why} (addr={peer})")
            }
            Self::Setup(why) => write!(f, "Error registering a new client: {why}"),
            Self::Scheduling(why) => write!(f, "Can't change the policy of a thread: {why}"),
        }
    }
}

/// What sits on top of a reactor. One value per thread; every call comes from that thread.
pub trait Handler: Sized {
    /// What the handler keeps for each connection.
    type Conn;

    /// A turn begins.
    #[inline]
    fn begin_of_turn(&mut self) {}

    /// A connection has been accepted, or one that was [asked for](Cx::connect) is open (and, with
    /// TLS, its handshake is over). `None` refuses it: what has been written to `io` is still sent.
    fn opened(&mut self, peer: &PeerInfo, io: &mut ConnIo<'_>) -> Option<Self::Conn>;

    /// Bytes have arrived. `input` is everything not yet consumed, in one piece, and starts where
    /// the last call stopped. Replies are appended to [`ConnIo::out`]; they leave at the end of the
    /// turn, together with those of all other connections.
    fn data(&mut self, conn: &mut Self::Conn, io: &mut ConnIo<'_>, input: &[u8]) -> Consumed;

    /// More of a request has arrived that is not as long yet as [`Handler::data`] asked for. Here a
    /// handler can see to it that it does not become too long.
    fn growing(&mut self, conn: &mut Self::Conn, io: &mut ConnIo<'_>) {
        let _ = (conn, io);
    }

    /// The socket has taken the whole [backlog](ConnIo::backlog) of a connection.
    fn drained(&mut self, conn: &mut Self::Conn, io: &mut ConnIo<'_>) {
        let _ = (conn, io);
    }

    /// The peer has closed its side, and all that it has sent has been presented. Returns whether
    /// the connection stays open for replies that are still to come: then the handler closes it.
    /// May be called more than once.
    fn ended(&mut self, conn: &mut Self::Conn, io: &mut ConnIo<'_>) -> bool {
        let _ = (conn, io);
        false
    }

    /// A connection that was [asked for](Cx::connect) has not come about.
    fn not_opened(
        &mut self,
        id: ConnId,
        tag: Tag,
        why: &ConnectError,
        cx: &mut Cx<'_, Self::Conn>,
    ) {
        let _ = (id, tag, why, cx);
    }

    /// A connection is gone. Called once for each that [`Handler::opened`] accepted.
    fn closed(&mut self, id: ConnId, conn: Self::Conn, why: Close, cx: &mut Cx<'_, Self::Conn>);

    /// Another thread has called this reactor's [`Waker`].
    fn woken(&mut self, cx: &mut Cx<'_, Self::Conn>) {
        let _ = cx;
    }

    /// The time asked for has passed. Returns the time until the next call.
    fn tick(&mut self, cx: &mut Cx<'_, Self::Conn>) -> Duration {
        let _ = cx;
        Duration::from_secs(1)
    }

    /// All events of this turn have been delivered, and nothing has been sent yet.
    #[inline]
    fn end_of_turn(&mut self, cx: &mut Cx<'_, Self::Conn>) {
        let _ = cx;
    }

    /// Up to which position output that is [held](ConnIo::hold_until) at the gate `Told` may leave.
    /// Asked while there is such output. Where this grows, [`Handler::has_sent`] says so on some
    /// thread.
    fn told(&self) -> u64 {
        0
    }

    /// The kernel has what was written in earlier turns, as far as the sockets took it. Returns
    /// whether output at the gate `Told` may leave for that, on this or another thread.
    #[inline]
    fn has_sent(&mut self) -> bool {
        false
    }

    /// Returns whether the next [`Handler::has_sent`] is awaited: the reactor does not sleep
    /// before.
    #[inline]
    fn awaits_sending(&self) -> bool {
        false
    }

    /// So many replies are lost, because what they were [held](ConnIo::hold_reply) for was given
    /// up. Returns what takes the place of each.
    fn unconfirmed(&mut self, replies: usize) -> Vec<u8> {
        let _ = replies;
        Vec::new()
    }

    /// Something went wrong that belongs in the log.
    fn problem(&mut self, problem: Problem<'_>) {
        let _ = problem;
    }
}
