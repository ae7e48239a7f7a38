//! `--scan`, and the walk through all keys that other modes are made of.

use crate::format::Format;
use crate::session::{Session, emit};
use resp::Value;
use std::process::{ExitCode, exit};

/// A walk through the keys.
pub struct Walk {
    cursor: Vec<u8>,
    done: bool,
    turns: u64,
}

/// After how many SCANs the modes that look at keys pause.
const TURNS_BETWEEN_PAUSES: u64 = 100;

impl Walk {
    /// Begins where the options say.
    pub fn new(session: &Session) -> Walk {
        let cursor = session.options.cursor.to_string().into_bytes();
        Walk { cursor, done: false, turns: 0 }
    }

    /// Returns the keys of the next SCAN; nothing at the end. Errors end the program.
    pub fn next(&mut self, session: &mut Session) -> Option<Vec<Vec<u8>>> {
        if self.done {
            return None;
        }
        let mut words = vec![b"SCAN".to_vec(), self.cursor.clone()];
        if let Some(pattern) = &session.options.pattern {
            words.extend([b"MATCH".to_vec(), pattern.clone()]);
        }
        if session.options.count != 10 {
            words.extend([b"COUNT".to_vec(), session.options.count.to_string().into_bytes()]);
        }
        let reply = session.ask(&words);
        let parts = match &reply {
            Value::Error(_) => fail(&format!("ERROR: {}", reply.text_or_error())),
            reply => reply.items(),
        };
        let page = |[cursor, keys]: &[Value; 2]| {
            let keys = keys.items().iter().map(|key| key.bytes().map(<[u8]>::to_vec));
            Some((cursor.bytes()?.to_vec(), keys.collect::<Option<Vec<_>>>()?))
        };
        let Some((cursor, keys)) = parts.try_into().ok().and_then(page) else {
            fail("ERROR: SCAN did not return a cursor and keys")
        };
        self.cursor = cursor;
        self.done = self.cursor == b"0";
        self.turns += 1;
        Some(keys)
    }

    /// Pauses now and then, if the options say so.
    pub fn pause(&self, session: &Session) {
        if self.turns.is_multiple_of(TURNS_BETWEEN_PAUSES)
            && let Some(interval) = session.options.interval
        {
            std::thread::sleep(interval);
        }
    }
}

/// Says what went wrong and ends the program.
pub fn fail(text: &str) -> ! {
    eprintln!("{text}");
    exit(1)
}

/// Sends requests together and returns their replies.
pub fn ask_all(session: &mut Session, requests: &[Vec<Vec<u8>>]) -> Vec<Value> {
    let link = session.connected();
    requests.iter().for_each(|words| link.queue(words));
    let mut replies = link.flush().map(|()| Vec::with_capacity(requests.len()));
    for _ in requests {
        replies = replies.and_then(|mut list| {
            list.push(link.value()?);
            Ok(list)
        });
    }
    replies.unwrap_or_else(|error| fail(&format!("Error: {}", crate::session::describe(&error))))
}

/// Prints the keys.
pub fn run(session: &mut Session) -> ExitCode {
    let mut walk = Walk::new(session);
    while let Some(keys) = walk.next(session) {
        let mut out = Vec::new();
        for key in keys {
            if session.options.style.format == Format::People {
                crate::words::quote(&mut out, &key);
            } else {
                out.extend(key);
            }
            out.push(b'\n');
        }
        emit(&out);
        if let Some(interval) = session.options.interval {
            std::thread::sleep(interval);
        }
    }
    ExitCode::SUCCESS
}
