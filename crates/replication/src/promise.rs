//! What the copies of a shard tell each other while the coordinator is away.
//!
//! ```text
//!   in the stream     PING dunlin-ask:<epoch>:<sent>
//!   to the primary    REPLCONF PROMISE <copy> EPOCH <epoch> SENT <sent> MS <time>
//! ```
//!
//! The question is a PING with a message, as the entry that begins an epoch is: any server takes it without doing
//! anything. `sent` is a moment by the primary's clock in milliseconds. A copy repeats it and does not interpret it.

use structs::numbers::parse_i64;

/// A primary asks its copies for the promise not to take part in a promotion for a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The primary's epoch.
    pub epoch: u64,
    /// When it asked, in milliseconds by its own clock.
    pub sent: u64,
}

const ASK: &str = "dunlin-ask";

impl Question {
    /// Writes the entry of the stream.
    pub fn entry(&self) -> Vec<u8> {
        let message = format!("{ASK}:{}:{}", self.epoch, self.sent);
        format!("*2\r\n$4\r\nPING\r\n${}\r\n{message}\r\n", message.len()).into_bytes()
    }

    /// Reads the message of a PING; `None` if it is another one.
    pub fn parse(message: &[u8]) -> Option<Question> {
        let parts: Vec<&str> = str::from_utf8(message).ok()?.split(':').collect();
        let &[ASK, epoch, sent] = parts.as_slice() else { return None };
        Some(Question { epoch: epoch.parse().ok()?, sent: sent.parse().ok()? })
    }
}

/// A copy's promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    /// The copy: 40 hexadecimal digits.
    pub from: [u8; 40],
    /// The question that it answers.
    pub question: Question,
    /// For how many milliseconds it is given.
    pub ms: u64,
}

impl Promise {
    /// Writes the command.
    pub fn command(&self) -> Vec<u8> {
        let Question { epoch, sent } = self.question;
        let numbers = [epoch, sent, self.ms].map(|number| number.to_string());
        let [epoch, sent, ms] = numbers.each_ref().map(String::as_bytes);
        let words: [&[u8]; 9] =
            [b"REPLCONF", b"PROMISE", &self.from, b"EPOCH", epoch, b"SENT", sent, b"MS", ms];
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
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
        let question = Question { epoch: number(epoch)?, sent: number(sent)? };
        Some(Promise { from: (*from).try_into().ok()?, question, ms: number(ms)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let question = Question { epoch: 7, sent: 123 };
        let entry = question.entry();
        let message = entry.split(|&byte| byte == b'\n').nth(4).expect("it has a message");
        assert_eq!(Question::parse(message.trim_ascii_end()), Some(question));
        for other in
            ["", "dunlin-ask:1", "dunlin-ask:1:x", "dunlin-epoch:7", "ask:1:2", "dunlin-ask:1:2:3"]
        {
            assert_eq!(Question::parse(other.as_bytes()), None, "{other}");
        }
        let promise = Promise { from: [b'b'; 40], question, ms: 2000 };
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
