//! Why a request is not sent or gets no reply, and why a connection to a server ends.
//!
//! What happens next is decided by these types. Their texts are for people: a client is told
//! [`Failure::reply`], which begins with a code word (`docs/internals/routing.md`), the log
//! [`Ended`].

use route::{code, raw};
use std::fmt;

/// Why a request is not sent, or gets no reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No server has its key at the moment.
    NoServer,
    /// The server, by its name, could not be reached just now.
    Unreachable(String),
    /// The server's address has no name for TLS.
    NoTlsName {
        /// The server's name.
        server: String,
        /// What is wrong.
        why: String,
    },
    /// Each session in use has a connection to the server, and there are as many as there may be.
    TooManySessions {
        /// The server's name.
        server: String,
        /// How many there may be.
        most: usize,
    },
    /// Clients have as many connections for themselves as they may.
    TooManyExclusive {
        /// The pool's name.
        pool: String,
        /// How many there may be.
        most: usize,
    },
    /// Too many bytes of requests wait on one connection.
    ServerQueueFull {
        /// The server's name.
        server: String,
        /// The bytes that wait.
        bytes: usize,
    },
    /// Too many bytes of requests wait for all servers of a pool.
    PoolQueueFull {
        /// The name of the server that was to get the request.
        server: String,
        /// The pool's name.
        pool: String,
        /// The bytes that wait.
        bytes: usize,
    },
    /// Too many bytes of requests have come and are kept.
    InputFull {
        /// The pool's name.
        pool: String,
        /// The bytes that wait.
        bytes: usize,
    },
    /// Too many bytes of requests are in one transaction.
    TransactionFull,
    /// The keys of a transaction are on several servers.
    TransactionParted,
    /// The connection to the server has ended before the reply came.
    Lost {
        /// The server's name.
        server: String,
        /// Why.
        why: Ended,
    },
}

impl Failure {
    /// Returns the code word that clients get in front.
    fn code(&self) -> &'static str {
        match self {
            Failure::TransactionParted => "CROSSSLOT",
            _ => code::NO_REPLY,
        }
    }

    /// Returns what a client is told, as the text of an error.
    pub fn text(&self) -> String {
        format!("{} {self}", self.code())
    }

    /// Returns what a client is told.
    pub fn reply(&self) -> Vec<u8> {
        raw::error(&self.text())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoServer => out.write_str("no server is available for this key"),
            Failure::Unreachable(server) => write!(out, "server {server} cannot be reached"),
            Failure::NoTlsName { server, why } => write!(out, "server {server}: {why}"),
            Failure::TooManySessions { server, most } => write!(
                out,
                "server {server}: {most} databases are in use at once, for each of which a thread \
                 has a connection; send this again, or use fewer"
            ),
            Failure::TooManyExclusive { pool, most } => write!(
                out,
                "all {most} connections for blocking commands, transactions and subscriptions are \
                 in use; raise max_exclusive of pool '{pool}'"
            ),
            Failure::ServerQueueFull { server, bytes } => write!(
                out,
                "server {server}: {bytes} bytes of requests wait for its replies; the limit is \
                 server_queue_bytes"
            ),
            Failure::PoolQueueFull { server, pool, bytes } => write!(
                out,
                "server {server}: {bytes} bytes of requests wait for servers of pool '{pool}'; the \
                 limit is queue_bytes"
            ),
            Failure::InputFull { pool, bytes } => write!(
                out,
                "{bytes} bytes of requests wait in pool '{pool}'; the limit is \
                 queue_bytes"
            ),
            Failure::TransactionFull => out.write_str(
                "too many bytes of requests in a transaction; the limit is server_queue_bytes",
            ),
            Failure::TransactionParted => out.write_str(
                "a transaction needs all its keys, the watched ones too, on one server; give them \
                 a common hash tag",
            ),
            Failure::Lost { server, why } => write!(out, "server {server}: {why}"),
        }
    }
}

/// Why a connection to a server ends, or does not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The server has closed it.
    Closed,
    /// The network says so, in these words.
    Failed(String),
    /// The server could not be reached in time.
    NotReached,
    /// A reply has not come in time.
    Silent,
    /// The server has not taken a long request in time.
    NotTaken,
    /// The server refuses to be set up as is needed, in these words. It will again.
    Refused(String),
    /// The server does not take the password that this pool has, in these words.
    WrongLogin {
        /// The pool's name.
        pool: String,
        /// What the server says.
        why: String,
    },
    /// The server refuses a subscription, in these words.
    RefusesSubscription(String),
    /// A reply is no RESP.
    Invalid(String),
    /// There was a reply too many.
    Unasked,
    /// The server goes down and has said so: what has no reply was not carried out.
    GoesDown,
    /// Clients that have gone left more replies than are read for them; in bytes.
    LeftBehind(usize),
    /// Another server is the master.
    Replaced,
    /// Another node leads the server's shard, and the server was silent.
    NotLeading,
}

impl Ended {
    /// Returns whether the server has failed. If not, it has done what it should.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Ended::GoesDown | Ended::LeftBehind(_))
    }

    /// Returns whether requests that were not sent would be refused again.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Ended::Refused(_) | Ended::WrongLogin { .. })
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Closed => out.write_str("it closed the connection"),
            Ended::Failed(why) => out.write_str(why),
            Ended::NotReached => out.write_str("it cannot be reached"),
            Ended::Silent => out.write_str("it did not answer in time"),
            Ended::NotTaken => out.write_str("it did not take a long request in time"),
            Ended::Refused(why) => write!(out, "it refused the connection: {why}"),
            Ended::WrongLogin { pool, why } => write!(
                out,
                "it does not take the password of pool '{pool}' ({why}): set the one that the \
                 server has now ('password', 'redis_auth' in YAML) and reload the configuration (SIGHUP)"
            ),
            Ended::RefusesSubscription(why) => write!(out, "it refuses a subscription: {why}"),
            Ended::Invalid(why) => write!(out, "its reply is invalid: {why}"),
            Ended::Unasked => out.write_str("it answered more than it was asked"),
            Ended::GoesDown => out.write_str("it goes down"),
            Ended::LeftBehind(most) => write!(
                out,
                "clients that have left had more than {} MB of replies before this one: whether it \
                 has carried the request out is unknown",
                most >> 20
            ),
            Ended::Replaced => out.write_str("it is not the master any more"),
            Ended::NotLeading => out.write_str(
                "another node leads its shard, and it did not answer: whether it has carried the \
                 request out is unknown",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_a_code_word_first() {
        let lost = Failure::Lost { server: "a".into(), why: Ended::Silent };
        assert!(code::has(&lost.reply(), code::NO_REPLY));
        assert_eq!(lost.reply(), b"-NOREPLY server a: it did not answer in time\r\n");
        assert!(code::has(&Failure::TransactionParted.reply(), "CROSSSLOT"));
        assert_eq!(Failure::NoServer.text(), route::plan::NO_SERVER);
    }

    #[test]
    fn what_a_server_does_in_order_is_no_failure() {
        assert!(!Ended::GoesDown.is_failure() && !Ended::LeftBehind(1).is_failure());
        assert!(Ended::Silent.is_failure() && Ended::Refused("x".into()).is_failure());
        assert!(Ended::Refused("x".into()).is_refusal() && !Ended::Closed.is_refusal());
    }
}
