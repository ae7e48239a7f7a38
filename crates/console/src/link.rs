//! One connection to the server: requests and their replies, in order.

use crate::host::Stream;
use futures_util::FutureExt as _;
use resp::bulk::push_request;
use resp::{Incoming, ReplyLimits, Value};
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// What one reply may ask of this process.
const LIMITS: ReplyLimits = ReplyLimits { depth: 64, bulk_len: MAX_REPLY, elements: 4 << 20 };
/// Bytes of the longest reply that is read.
const MAX_REPLY: usize = 64 << 20;

/// Why there is no reply.
#[derive(Debug)]
pub enum Failure {
    /// The server cannot be reached, or the connection broke.
    Lost(io::Error),
    /// The server did not answer in time.
    Late,
    /// The reply is too large or is none.
    Unreadable(&'static str),
    /// The server does not accept the name and the password.
    Refused(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Lost(error) => write!(f, "the server cannot be reached: {error}"),
            Failure::Late => f.write_str("the server does not answer"),
            Failure::Unreadable(why) => write!(f, "the reply cannot be shown: {why}"),
            Failure::Refused(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Lost(error)
    }
}

/// A request: its words.
pub type Words = Vec<Vec<u8>>;

/// Makes a request of words of any type.
#[macro_export]
macro_rules! words {
    ($($word:expr),+ $(,)?) => { vec![$(Vec::from($word)),+] };
}

/// A connection. After a failure it is of no use any more.
pub struct Link {
    stream: Box<dyn Stream>,
    incoming: Incoming,
    /// Messages that came between replies.
    pub pushes: Vec<Value>,
    /// The database that is selected.
    pub db: u32,
}

impl Link {
    /// On a connection that has just been opened.
    pub fn new(stream: Box<dyn Stream>) -> Link {
        let incoming = Incoming::new(LIMITS, MAX_REPLY);
        Link { stream, incoming, pushes: Vec::new(), db: 0 }
    }

    /// Whether it can be used: nothing has come unasked, and the server has not closed it.
    pub fn is_idle(&mut self) -> bool {
        self.incoming.bytes().is_empty() && self.stream.read_u8().now_or_never().is_none()
    }

    /// Sends requests and reads their replies.
    ///
    /// # Errors
    /// One of them got no reply.
    pub async fn ask(
        &mut self,
        requests: &[Words],
        patience: Duration,
    ) -> Result<Vec<Value>, Failure> {
        let work = async {
            self.send(requests).await?;
            let mut replies = Vec::with_capacity(requests.len());
            while replies.len() < requests.len() {
                match self.next().await? {
                    Value::Push(message) => self.pushes.push(Value::Push(message)),
                    reply => replies.push(reply),
                }
            }
            Ok(replies)
        };
        tokio::time::timeout(patience, work).await.unwrap_or(Err(Failure::Late))
    }

    /// Sends requests, whose replies are to be read with [`Link::next`].
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, requests: &[Words]) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        requests.iter().for_each(|words| push_request(&mut bytes, words));
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// The next reply or message, whenever it comes.
    ///
    /// # Errors
    /// The connection broke, or what came is none.
    pub async fn next(&mut self) -> Result<Value, Failure> {
        loop {
            let reply = self.incoming.take().map_err(|why| Failure::Unreadable(why.0))?;
            if let Some(reply) = reply {
                return Ok(reply);
            }
            let buffer = self.incoming.buffer();
            buffer.reserve(16 << 10);
            if self.stream.read_buf(buffer).await? == 0 {
                return Err(Failure::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn replies_come_in_order_and_messages_apart() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let mut link = Link::new(Box::new(ours));
        theirs.write_all(b"+OK\r\n>1\r\n+news\r\n*2\r\n:1\r\n$1\r\na\r\n").await.unwrap();
        let replies =
            link.ask(&[words!["A"], words!["B", "c"]], PATIENCE).await.expect("two replies");
        assert_eq!(replies[0].text(), "OK");
        assert_eq!(replies[1].items()[1].text(), "a");
        assert_eq!(link.pushes.len(), 1);
        let expected = b"*1\r\n$1\r\nA\r\n*2\r\n$1\r\nB\r\n$1\r\nc\r\n";
        let mut sent = vec![0; expected.len()];
        theirs.read_exact(&mut sent).await.unwrap();
        assert_eq!(sent, expected);
        assert!(link.is_idle());
        drop(theirs);
        assert!(!link.is_idle());
    }

    #[tokio::test]
    async fn a_reply_that_is_too_long_ends_the_connection() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let mut link = Link::new(Box::new(ours));
        theirs.write_all(b"$100000000\r\n").await.unwrap();
        let outcome = link.ask(&[words!["A"]], PATIENCE).await;
        assert!(matches!(outcome, Err(Failure::Unreadable(_))));
    }
}
