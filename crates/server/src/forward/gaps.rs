//! The replies of a client, of which some are to come from other nodes.
//!
//! ```text
//!   output of the connection │ gap │ written here │ gap │ gap │ written here
//! ```
//!
//! What is in front of the first gap has left. A reply that comes belongs to the first gap, because
//! the hub gives a client its replies in order.

use engine::clients::forwarding::Forward;
use std::collections::VecDeque;
use structs::output::Output;

enum Gap {
    /// The reply of another node.
    Awaited {
        /// Replies that come before it and are dropped.
        skipped: u32,
        /// It is dropped, too.
        is_muted: bool,
    },
    /// What was written here behind a gap.
    Written(Output),
}

impl Gap {
    /// The gap for the reply to a request.
    #[inline]
    fn awaited(request: &Forward) -> Gap {
        Gap::Awaited { skipped: request.skipped, is_muted: request.is_muted }
    }
}

/// See the module.
#[derive(Default)]
pub struct Gaps {
    queue: VecDeque<Gap>,
    /// The last [ticket](engine::Session::told) of what others have to be told before this leaves.
    pub told: u64,
    /// The next request waits until there is no gap.
    pub waits: bool,
    /// The connection is to be closed when there is no gap.
    pub ends: bool,
}

impl Gaps {
    /// Whether a reply is missing.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.queue.is_empty()
    }

    /// What is written now goes here.
    pub fn out(&mut self) -> &mut Output {
        if !matches!(self.queue.back(), Some(Gap::Written(_))) {
            self.queue.push_back(Gap::Written(Output::default()));
        }
        match self.queue.back_mut() {
            Some(Gap::Written(out)) => out,
            _ => unreachable!("it has just been put there"),
        }
    }

    /// Bytes of memory that wait.
    pub fn bytes(&self) -> usize {
        let written = |gap: &Gap| match gap {
            Gap::Written(out) => out.charge(),
            Gap::Awaited { .. } => 0,
        };
        self.queue.iter().map(written).sum()
    }

    /// Makes a gap for each of these requests, which were found while `out` was written, or
    /// [`Gaps::out`] if a reply was missing already.
    pub fn open(&mut self, out: &mut Output, requests: &[Forward]) {
        let mut own = match self.queue.pop_back() {
            Some(Gap::Written(own)) => Some(own),
            Some(gap) => {
                self.queue.push_back(gap);
                Some(Output::default())
            }
            None => None,
        };
        let out = own.as_mut().unwrap_or(out);
        let written = out.plain().len();
        if requests.iter().all(|request| request.place >= written) {
            // Nothing was written behind any of them.
            self.queue.extend(own.filter(|own| !own.is_empty()).map(Gap::Written));
            self.queue.extend(requests.iter().map(Gap::awaited));
            return;
        }
        let mut behind = VecDeque::new();
        for request in requests.iter().rev() {
            if request.place < out.plain().len() {
                behind.push_front(Gap::Written(out.split_off(request.place)));
            }
            behind.push_front(Gap::awaited(request));
        }
        if let Some(own) = own.filter(|own| !own.is_empty()) {
            self.queue.push_back(Gap::Written(own));
        }
        self.queue.append(&mut behind);
    }

    /// Takes a reply. Returns whether it was the last that its request has; then `out` has it, and
    /// what is behind it up to the next gap.
    ///
    /// # Panics
    /// None is awaited: replies would be out of step.
    pub fn fill(&mut self, reply: &[u8], out: &mut Output) -> bool {
        let Some(Gap::Awaited { skipped, is_muted }) = self.queue.front_mut() else {
            panic!("a reply to a request that was not forwarded");
        };
        if *skipped > 0 {
            *skipped -= 1;
            return false;
        }
        if !*is_muted {
            out.extend_from_slice(reply);
        }
        self.queue.pop_front();
        while let Some(Gap::Written(written)) = self.queue.front_mut() {
            out.append(written);
            self.queue.pop_front();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::clients::forwarding::Travel;

    fn request(place: usize) -> Forward {
        Forward { place, end: 0, skipped: 0, is_muted: false, travel: Travel::Slot(0) }
    }

    fn output(text: &str) -> Output {
        Output::from(text.as_bytes().to_vec())
    }

    #[test]
    fn replies_leave_in_the_order_of_the_requests() {
        let mut gaps = Gaps::default();
        let mut out = output("abc");
        gaps.open(&mut out, &[request(1), request(1), request(2)]);
        assert_eq!(out.plain(), b"a");
        gaps.out().extend_from_slice(b"de");
        let place = gaps.out().plain().len();
        gaps.open(&mut out, &[request(place - 1), Forward { skipped: 1, ..request(place) }]);
        assert!(gaps.fill(b"1", &mut out));
        assert_eq!(out.plain(), b"a1");
        assert!(gaps.fill(b"2", &mut out));
        assert_eq!(out.plain(), b"a12b");
        assert!(gaps.fill(b"3", &mut out));
        assert_eq!(out.plain(), b"a12b3cd");
        assert!(gaps.fill(b"4", &mut out));
        assert_eq!(out.plain(), b"a12b3cd4e");
        assert!(!gaps.fill(b"OK", &mut out));
        assert!(gaps.is_open());
        assert!(gaps.fill(b"5", &mut out));
        assert_eq!(out.plain(), b"a12b3cd4e5");
        assert!(!gaps.is_open());
    }

    #[test]
    fn a_muted_reply_leaves_no_trace() {
        let mut gaps = Gaps::default();
        let mut out = output("");
        let muted = Forward { is_muted: true, place: usize::MAX, ..request(0) };
        gaps.open(&mut out, &[muted]);
        gaps.out().extend_from_slice(b"x");
        assert_eq!(gaps.bytes(), 1);
        assert!(gaps.fill(b"OK", &mut out));
        assert_eq!(out.plain(), b"x");
    }
}
