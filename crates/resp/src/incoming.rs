//! What has come from a server and was not used yet, and the replies in it. Its owner has the
//! socket, waiting or not, and appends what it reads.

use crate::decode::{Scanned, Scanner, decode};
use crate::token::{InvalidReply, ReplyLimits};
use crate::value::Value;

/// Used bytes stay in front of the buffer until they are so many.
const MAX_USED: usize = 256 << 10;

/// See the head of this file.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that have been used.
    used: usize,
    scanner: Scanner,
    limits: ReplyLimits,
    max_bytes: usize,
}

impl Incoming {
    /// Makes an empty one. `max_bytes`: of the longest reply as it is written.
    pub fn new(limits: ReplyLimits, max_bytes: usize) -> Incoming {
        let scanner = Scanner::new(limits);
        Incoming { bytes: Vec::new(), used: 0, scanner, limits, max_bytes }
    }

    /// Returns the buffer, to append to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.used == self.bytes.len() || self.used > MAX_USED {
            self.bytes.drain(..self.used);
            self.bytes.shrink_to(MAX_USED);
            self.used = 0;
        }
        &mut self.bytes
    }

    /// Returns the bytes that were not used.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Uses so many bytes, between two replies.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.bytes().len(), "only what has come is used");
        self.used += count;
    }

    /// Takes the next reply or push, if all of it has come.
    ///
    /// # Errors
    /// What has come is none, or one beyond the limits; nothing behind it can be read.
    pub fn take(&mut self) -> Result<Option<Value>, InvalidReply> {
        let input = &self.bytes[self.used..];
        match self.scanner.scan(input)? {
            Scanned::Reply { len } => {
                let value = decode(&input[..len], self.limits)?;
                self.used += len;
                Ok(Some(value))
            }
            Scanned::Incomplete { missing } => {
                match input.len().saturating_add(missing) <= self.max_bytes {
                    true => Ok(None),
                    false => Err(InvalidReply("longer than it may be")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming(max_bytes: usize, bytes: &[u8]) -> Incoming {
        let mut incoming = Incoming::new(ReplyLimits::PEER, max_bytes);
        incoming.buffer().extend_from_slice(bytes);
        incoming
    }

    #[test]
    fn replies_and_raw_bytes_take_turns() {
        let mut incoming = incoming(100, b"+FULLRESYNC a 0\r\n$3\r\nabcREST*1\r\n:");
        assert_eq!(incoming.take(), Ok(Some(Value::Simple(b"FULLRESYNC a 0".to_vec()))));
        incoming.consume(7);
        incoming.consume(4);
        assert_eq!(incoming.take(), Ok(None));
        incoming.buffer().extend_from_slice(b"1\r\n");
        assert_eq!(incoming.take(), Ok(Some(Value::Array(vec![Value::Integer(1)]))));
        assert_eq!((incoming.take(), incoming.bytes()), (Ok(None), &b""[..]));
    }

    #[test]
    fn a_hostile_server_is_given_little() {
        let long = Err(InvalidReply("longer than it may be"));
        assert_eq!(incoming(1000, b"$1001\r\n").take(), long);
        // An array that never ends.
        let endless = [&b"*2147483647\r\n"[..], &b":1\r\n".repeat(500)].concat();
        assert_eq!(incoming(1000, &endless).take(), long);
        assert_eq!(
            incoming(usize::MAX, &b"*1\r\n".repeat(1_000_000)).take(),
            Err(InvalidReply("too many levels"))
        );
        assert_eq!(incoming(1000, b"HTTP/1.1\r\n").take(), Err(InvalidReply("unknown type")));
    }
}
