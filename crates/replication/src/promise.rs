//! What the copies of a shard tell each other while the coordinator is away.
//!
//! ```text
//!   in the stream     PING dunlin-ask:<epoch>:<sent>:<primary>:<its data>
//!   to the primary    REPLCONF PROMISE <copy> EPOCH <epoch> SENT <sent> MS <time>
//! ```
//!
//! The question is a PING with a message, as the entry that begins an epoch is: any server takes it
//! without doing anything. `sent` is a moment by the primary's clock in milliseconds. A copy
//! repeats it and does not interpret it.

use crate::vote::Voter;
use resp::bulk::push_request;
use structs::numbers::parse_i64;

/// A primary asks its copies for the promise not to take part in a promotion for a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The primary's epoch.
    pub epoch: u64,
    /// When it asked, in milliseconds by its own clock.
    pub sent: u64,
    /// The primary, with the data that it holds.
    pub from: Voter,
}

const ASK: &str = "dunlin-ask";

impl Question {
    /// Writes the entry of the stream.
    pub fn entry(&self) -> Vec<u8> {
        let Question { epoch, sent, from } = self;
        let id = String::from_utf8_lossy(&from.id);
        let message = format!("{ASK}:{epoch}:{sent}:{id}:{}", from.incarnation);
        format!("*2\r\n$4\r\nPING\r\n${}\r\n{message}\r\n", message.len()).into_bytes()
    }

    /// Reads the message of a PING; `None` if it is another one.
    pub fn parse(message: &[u8]) -> Option<Question> {
        let parts: Vec<&str> = str::from_utf8(message).ok()?.split(':').collect();
        let &[ASK, epoch, sent, id, incarnation] = parts.as_slice() else { return None };
        let id = id.as_bytes().try_into().ok()?;
        let from = Voter { id, incarnation: incarnation.parse().ok()? };
        Some(Question { epoch: epoch.parse().ok()?, sent: sent.parse().ok()?, from })
    }
}

/// A copy's promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    /// The copy: 40 hexadecimal digits.
    pub from: [u8; 40],
    /// The epoch in the question that it answers.
    pub epoch: u64,
    /// The moment in it.
    pub sent: u64,
    /// For how many milliseconds it is given.
    pub ms: u64,
}

impl Promise {
    /// Writes the command.
    pub fn command(&self) -> Vec<u8> {
        let numbers = [self.epoch, self.sent, self.ms].map(|number| number.to_string());
        let [epoch, sent, ms] = numbers.each_ref().map(String::as_bytes);
        let words: [&[u8]; 9] =
            [b"REPLCONF", b"PROMISE", &self.from, b"EPOCH", epoch, b"SENT", sent, b"MS", ms];
        let mut command = Vec::new();
        push_request(&mut command, &words);
        command
    }

    /// Reads the words behind REPLCONF; `None` if they are others.
    pub fn parse(pairs: &[[&[u8]; 2]]) -> Option<Promise> {
        let [[promise, from], [of, epoch], [at, sent], [time, ms]] = pairs else { return None };
        let is = |word: &[u8], name: &[u8]| word.eq_ignore_ascii_case(name);
        if !is(promise, b"promise") || !is(of, b"epoch") || !is(at, b"sent") || !is(time, b"ms") {
            return None;
        }
        let number = |text: &[u8]| u64::try_from(parse_i64(text)?).ok();
        let from = (*from).try_into().ok()?;
        Some(Promise { from, epoch: number(epoch)?, sent: number(sent)?, ms: number(ms)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let from = Voter { id: [b'a'; 40], incarnation: 12 };
        let question = Question { epoch: 7, sent: 123, from };
        let entry = question.entry();
        let message = entry.split(|&byte| byte == b'\n').nth(4).expect("it has a message");
        assert_eq!(Question::parse(message.trim_ascii_end()), Some(question));
        for other in
            ["", "dunlin-ask:1", "dunlin-ask:1:x", "dunlin-epoch:7", "ask:1:2", "dunlin-ask:1:2:3"]
        {
            assert_eq!(Question::parse(other.as_bytes()), None, "{other}");
        }
        let promise = Promise { from: [b'b'; 40], epoch: 7, sent: 123, ms: 2000 };
        let command = promise.command();
        let words: Vec<&[u8]> = command
            .split(|&byte| byte == b'\n')
            .skip(2)
            .step_by(2)
            .map(<[u8]>::trim_ascii_end)
            .collect();
        let (pairs, rest) = words[1..].as_chunks::<2>();
        assert!(rest.is_empty());
        assert_eq!(Promise::parse(pairs), Some(promise));
        assert_eq!(Promise::parse(&pairs[..3]), None);
    }
}
