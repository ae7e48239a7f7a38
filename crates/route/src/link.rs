//! One shared connection to a server: what is sent on it, and which reply belongs to which request.
//!
//! ```text
//!   closed ─ opened ─▶ setting up (HELLO, AUTH, SELECT: one at a time) ─▶ ready
//! ```
//!
//! Requests of any clients are written one behind the other; the server answers in order, so a
//! queue of tags is all there is to match. What must not get out of step is the set-up, because an
//! error there changes the meaning of all that follows: each of its requests is sent alone, and its
//! reply awaited, before any client's request goes out. Requests that come meanwhile wait here, and
//! are known to be *unsent* when the connection fails. A set-up can come later, too
//! ([`Link::set_up`]): it waits for the replies to all requests before it.
//!
//! A link does no I/O: bytes to send go into a buffer, bytes received come in. It never recovers:
//! after an error its owner closes the connection and drops the link, and what [`Link::take_all`]
//! returns is answered with an error. So a reply can never reach a request that it does not belong
//! to.

use crate::raw::{self, plain_reply};
use resp::{ReplyLimits, Scanned, Scanner};
use std::collections::VecDeque;

/// One request of the set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupRequest {
    /// What is sent.
    pub request: Vec<u8>,
    /// Whether an error reply is no reason to give the connection up, unless it is about the log-in or
    /// begins with [`raw::LOOP_CODE`].
    pub may_fail: bool,
}

/// Why a link is of no more use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The server refused the set-up with this error.
    Refused(String),
    /// What it sent is no reply.
    Invalid(&'static str),
    /// It answered more than it was asked.
    Unasked,
}

/// A message, if it is not one of the set-up, and how many bytes it takes.
pub type Found<'a, T> = (Option<Received<'a, T>>, usize);

/// What a link received.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a, T> {
    /// The reply to the request with this tag.
    Reply(T, &'a [u8]),
    /// A message that answers no request.
    Push(&'a [u8]),
}

/// See the module.
#[derive(Debug)]
pub struct Link<T> {
    steps: VecDeque<SetupRequest>,
    is_open: bool,
    /// Requests without a reply that were sent before the set-up; it begins when there is none.
    before: usize,
    /// Requests that wait for the set-up.
    unsent: Vec<u8>,
    unsent_tags: usize,
    tags: VecDeque<T>,
    scanner: Scanner,
    is_scanning: bool,
    sent: u64,
    answered: u64,
}

impl<T> Link<T> {
    /// A link whose connection is being opened.
    pub fn new(steps: Vec<SetupRequest>) -> Link<T> {
        Link {
            steps: steps.into(),
            is_open: false,
            before: 0,
            unsent: Vec::new(),
            unsent_tags: 0,
            tags: VecDeque::new(),
            scanner: Scanner::new(ReplyLimits::PEER),
            is_scanning: false,
            sent: 0,
            answered: 0,
        }
    }

    /// Returns whether requests go out at once.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.is_open && self.steps.is_empty()
    }

    /// Requests without a reply.
    pub fn pending(&self) -> usize {
        self.tags.len()
    }

    /// The tags of the requests without a reply, the oldest first.
    pub fn tags(&self) -> impl Iterator<Item = &T> {
        self.tags.iter()
    }

    /// Returns how many requests it was given so far; their numbers are below this.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns how many of them have been answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Bytes of requests that wait for the set-up.
    pub fn waiting_bytes(&self) -> usize {
        self.unsent.len()
    }

    /// The connection is there. `out` gets what is to be sent.
    pub fn opened(&mut self, out: &mut impl FnMut(&[u8])) {
        self.is_open = true;
        self.next_step(out);
    }

    /// Changes what the connection is set to. The steps are sent behind the requests that were
    /// given before; those that are given from now on wait until the last step is answered.
    pub fn set_up(&mut self, steps: Vec<SetupRequest>, out: &mut impl FnMut(&[u8])) {
        let was_ready = self.is_ready();
        self.steps.extend(steps);
        if was_ready && !self.is_ready() {
            self.before = self.tags.len();
            if self.before == 0 {
                self.next_step(out);
            }
        }
    }

    fn next_step(&mut self, out: &mut impl FnMut(&[u8])) {
        if let Some(step) = self.steps.front() {
            out(&step.request);
        } else {
            out(&self.unsent);
            self.unsent = Vec::new();
            self.unsent_tags = 0;
        }
    }

    /// Sends a request, now or when the set-up is over.
    #[inline]
    pub fn send(&mut self, request: &[u8], tag: T, out: &mut impl FnMut(&[u8])) {
        self.tags.push_back(tag);
        self.sent += 1;
        if self.is_ready() {
            out(request);
        } else {
            self.unsent.extend_from_slice(request);
            self.unsent_tags += 1;
        }
    }

    /// Sends more bytes of the request that was given last.
    pub fn send_more(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) {
        if self.is_ready() {
            out(bytes);
        } else {
            self.unsent.extend_from_slice(bytes);
        }
    }

    /// The next whole message at the start of `input`, and how many bytes it takes. `None`: more
    /// bytes have to come; `input` must then start with the same bytes at the next call.
    ///
    /// # Errors
    /// The connection is to be closed.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        input: &'a [u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<Option<Found<'a, T>>, Broken> {
        let plain = if self.is_scanning { None } else { plain_reply(input) };
        let len = match plain {
            Some(len) => len,
            None if input.is_empty() => return Ok(None),
            None => match self.scanner.scan(input) {
                Ok(Scanned::Reply { len }) => len,
                Ok(Scanned::Incomplete { .. }) => {
                    self.is_scanning = true;
                    return Ok(None);
                }
                Err(why) => return Err(Broken::Invalid(why.0)),
            },
        };
        self.is_scanning = false;
        let reply = &input[..len];
        if reply[0] == b'>' {
            return Ok(Some((Some(Received::Push(reply)), len)));
        }
        if !self.steps.is_empty() && self.before == 0 {
            self.stepped(reply, out)?;
            return Ok(Some((None, len)));
        }
        let tag = self.answer(out)?;
        Ok(Some((Some(Received::Reply(tag, reply)), len)))
    }

    /// Takes the tag of the oldest request, whose reply has come.
    #[inline]
    fn answer(&mut self, out: &mut impl FnMut(&[u8])) -> Result<T, Broken> {
        let Some(tag) = self.tags.pop_front() else { return Err(Broken::Unasked) };
        self.answered += 1;
        if self.before > 0 {
            self.before -= 1;
            if self.before == 0 {
                self.next_step(out);
            }
        }
        Ok(tag)
    }

    /// Goes on with a reply that [`Link::receive`] has found incomplete, without having to see it
    /// whole. Returns how many bytes at the start of the input are of it and done with, and its tag
    /// if it ends with them. Until then only this may be called.
    ///
    /// # Errors
    /// The connection is to be closed.
    pub fn pass(
        &mut self,
        input: &[u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, Option<T>), Broken> {
        let passed = self.scanner.pass(input).map_err(|why| Broken::Invalid(why.0))?;
        if !passed.is_whole {
            return Ok((passed.bytes, None));
        }
        self.is_scanning = false;
        Ok((passed.bytes, Some(self.answer(out)?)))
    }

    fn stepped(&mut self, reply: &[u8], out: &mut impl FnMut(&[u8])) -> Result<(), Broken> {
        let step = self.steps.pop_front().ok_or(Broken::Unasked)?;
        if raw::is_error(reply) {
            let text = String::from_utf8_lossy(&reply[1..]).trim_end().to_owned();
            if !step.may_fail || is_loop(&text) || raw::is_about_login(&text) {
                return Err(Broken::Refused(text));
            }
        }
        self.next_step(out);
        Ok(())
    }

    /// Ends the link: the tags of requests that may have reached the server, and of those that
    /// certainly have not, with their bytes one behind the other.
    pub fn take_all(&mut self) -> (Vec<T>, Vec<T>, Vec<u8>) {
        let unsent = self.tags.split_off(self.tags.len() - self.unsent_tags);
        self.unsent_tags = 0;
        let tags = std::mem::take(&mut self.tags);
        (tags.into(), unsent.into(), std::mem::take(&mut self.unsent))
    }
}

/// Returns whether a proxy says by an error that proxies lead to themselves.
fn is_loop(error: &str) -> bool {
    error.split(' ').next() == Some(raw::LOOP_CODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(text: &str) -> SetupRequest {
        SetupRequest { request: text.as_bytes().to_vec(), may_fail: false }
    }

    #[test]
    fn the_set_up_goes_alone() {
        let mut sent = Vec::new();
        let mut link = Link::new(vec![step("A"), step("B")]);
        link.send(b"1", 1, &mut |bytes| sent.push(bytes.to_vec()));
        assert!(sent.is_empty());
        link.opened(&mut |bytes| sent.push(bytes.to_vec()));
        assert_eq!(sent, [b"A"]);
        let mut out = |bytes: &[u8]| sent.push(bytes.to_vec());
        assert_eq!(link.receive(b"+OK\r\n", &mut out), Ok(Some((None, 5))));
        assert_eq!(link.receive(b"+OK\r\n", &mut out), Ok(Some((None, 5))));
        link.send(b"2", 2, &mut out);
        assert_eq!(sent, [&b"A"[..], b"B", b"1", b"2"]);
    }

    #[test]
    fn a_later_set_up_waits_for_what_was_sent_before_and_holds_what_comes_behind() {
        let mut sent = Vec::new();
        let mut link = Link::new(Vec::new());
        link.opened(&mut |bytes| sent.extend_from_slice(bytes));
        link.send(b"1", 1, &mut |bytes| sent.extend_from_slice(bytes));
        link.set_up(vec![step("A")], &mut |bytes| sent.extend_from_slice(bytes));
        link.set_up(vec![step("B")], &mut |bytes| sent.extend_from_slice(bytes));
        let mut out = |bytes: &[u8]| sent.extend_from_slice(bytes);
        link.send(b"2", 2, &mut out);
        let reply = link.receive(b"-ERR 1\r\n", &mut out).expect("it is valid");
        assert_eq!(reply, Some((Some(Received::Reply(1, &b"-ERR 1\r\n"[..])), 8)));
        for _ in 0..2 {
            assert_eq!(link.receive(b"+OK\r\n", &mut out), Ok(Some((None, 5))));
        }
        link.set_up(vec![step("C")], &mut out);
        link.send(b"3", 3, &mut out);
        let reply = link.receive(b":2\r\n", &mut out).expect("it is valid");
        assert_eq!(reply, Some((Some(Received::Reply(2, &b":2\r\n"[..])), 4)));
        let refused = link.receive(b"-NO\r\n", &mut out);
        assert_eq!(refused, Err(Broken::Refused("NO".into())));
        assert_eq!(link.take_all(), (vec![], vec![3], b"3".to_vec()));
        assert_eq!(sent, b"1AB2C");
    }

    #[test]
    fn a_refused_set_up_leaves_all_unsent() {
        let mut link = Link::new(vec![step("AUTH x")]);
        link.send(b"1", 1, &mut |_| {});
        link.opened(&mut |_| {});
        let refused = link.receive(b"-WRONGPASS no\r\n", &mut |_| {});
        assert_eq!(refused, Err(Broken::Refused("WRONGPASS no".into())));
        assert_eq!(link.take_all(), (vec![], vec![1], b"1".to_vec()));
    }

    #[test]
    fn what_may_fail_does_not_unless_nothing_would_work() {
        let received = |reply: &[u8]| {
            let step = SetupRequest { request: b"A".to_vec(), may_fail: true };
            let mut link = Link::<u8>::new(vec![step]);
            link.opened(&mut |_| {});
            link.receive(reply, &mut |_| {}).map(|_| ())
        };
        assert_eq!(received(b"-NOPERM no\r\n"), Ok(()));
        assert_eq!(received(b"-LOOPS no\r\n"), Ok(()));
        for text in ["NOAUTH Authentication required.", "WRONGPASS no", raw::LOOP, "LOOP too many"]
        {
            let reply = format!("-{text}\r\n");
            assert_eq!(received(reply.as_bytes()), Err(Broken::Refused(text.into())));
        }
    }

    #[test]
    fn a_reply_too_many_breaks_it() {
        let mut link = Link::<u8>::new(Vec::new());
        link.opened(&mut |_| {});
        assert_eq!(link.receive(b"+OK\r\n", &mut |_| {}), Err(Broken::Unasked));
    }

    proptest! {
        /// Requests and replies in any interleaving and any pieces: every reply meets its request.
        #[test]
        fn replies_meet_their_requests(
            replies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 1..60),
            cuts in prop::collection::vec(1usize..70, 1..60),
        ) {
            let mut link = Link::new(Vec::new());
            link.opened(&mut |_| {});
            let mut stream = Vec::new();
            for (tag, bytes) in replies.iter().enumerate() {
                link.send(b"x", tag, &mut |_| {});
                if tag % 7 == 3 {
                    stream.extend_from_slice(b">1\r\n+push\r\n");
                }
                resp::bulk::push_bulk(&mut stream, bytes);
            }
            let (mut have, mut start, mut seen, mut cuts) = (0, 0, 0, cuts.iter().cycle());
            while seen < replies.len() {
                have = (have + cuts.next().expect("endless")).min(stream.len());
                while let Some((found, len)) =
                    link.receive(&stream[start..have], &mut |_| {}).expect("valid")
                {
                    if let Some(Received::Reply(tag, reply)) = found {
                        prop_assert_eq!(tag, seen);
                        prop_assert_eq!(raw::text(reply), Some(&replies[seen][..]));
                        seen += 1;
                    }
                    start += len;
                }
            }
            prop_assert_eq!(start, stream.len());
            prop_assert_eq!(link.pending(), 0);
        }
    }
}
