//! `--pipe`: sends standard input as it is, and counts the replies.

use super::scan::fail;
use crate::session::describe;
use crate::session::{Session, emit};
use client::Client;
use resp::Value;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How much of the input is held at most.
const HELD: usize = 64 * 1024;

struct Pipe {
    errors: u64,
    replies: u64,
    /// What the last request asks for; there once the input has ended.
    mark: Option<Vec<u8>>,
    /// When bytes last went to the server or came from it.
    active: Instant,
}

/// Sends and counts. The status is 1 if there was an error among the replies.
pub fn run(session: &mut Session) -> ExitCode {
    let limit = session.options.pipe_timeout;
    let link = session.connected();
    let mut pipe = Pipe { errors: 0, replies: 0, mark: None, active: Instant::now() };
    let result = link.set_waiting(false).and_then(|()| pipe.transfer(link, limit));
    if let Err(error) = result {
        fail(&format!("Error reading from the server: {}", describe(&error)));
    }
    emit(format!("errors: {}, replies: {}\n", pipe.errors, pipe.replies).as_bytes());
    if pipe.errors > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Pipe {
    fn transfer(&mut self, link: &mut Client, limit: u64) -> io::Result<()> {
        let mut input = io::stdin().lock();
        let mut buffer = vec![0; HELD];
        loop {
            if link.queued() == 0 && self.mark.is_none() {
                let count = input.read(&mut buffer)?;
                link.queue_raw(&buffer[..count]);
                if count == 0 {
                    self.finish(link);
                }
            }
            let before = link.queued();
            let is_sent = link.try_flush()?;
            if link.queued() < before {
                self.active = Instant::now();
            }
            let before = self.replies;
            while let Some(reply) = link.try_value()? {
                if self.note(&reply) {
                    return Ok(());
                }
            }
            if self.replies > before {
                self.active = Instant::now();
            }
            if is_sent && self.mark.is_some() {
                if limit > 0 && self.active.elapsed() > Duration::from_secs(limit) {
                    eprintln!("No replies for {limit} seconds: exiting.");
                    self.errors += 1;
                    return Ok(());
                }
                crate::interrupt::wait_readable([link.as_raw_fd(), -1], 100);
            } else if !is_sent {
                crate::interrupt::wait_writable(link.as_raw_fd());
            }
        }
    }

    /// After the input: a request whose reply is known from all others.
    fn finish(&mut self, link: &mut Client) {
        let nanos = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let mark = format!("{:020x}{:08x}", nanos, std::process::id()).into_bytes();
        // An empty line first: the input may have ended within one.
        link.queue_raw(b"\r\n");
        link.queue(&[b"ECHO", &*mark]);
        self.mark = Some(mark);
        self.active = Instant::now();
        emit(b"All data transferred. Waiting for the last reply...\n");
    }

    /// Counts a reply; returns whether it is the last.
    fn note(&mut self, reply: &Value) -> bool {
        match reply {
            Value::Push(_) => return false,
            Value::Error(_) => {
                eprintln!("{}", reply.text_or_error());
                self.errors += 1;
            }
            Value::Bulk(text) if self.mark.as_ref() == Some(text) => {
                emit(b"Last reply received from server.\n");
                return true;
            }
            _ => {}
        }
        self.replies += 1;
        false
    }
}
