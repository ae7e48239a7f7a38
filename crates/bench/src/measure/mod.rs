//! What is measured, and what it amounts to.

pub mod cost;
pub mod cycles;
pub mod noise;
pub mod owners;
pub mod recorder;
pub mod timeline;

use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Latencies are kept up to an hour, in nanoseconds.
pub const LONGEST_NS: u64 = 3_600_000_000_000;

/// An empty histogram of latencies in nanoseconds, exact to three digits.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are valid")
}

/// What became of the requests of one operation.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The operation's name.
    pub name: String,
    /// Latencies of all replies, of errors too, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Replies that were errors; MOVED and ASK are among them.
    pub errors: u64,
    /// Replies of reads without a value.
    pub misses: u64,
    /// Requests without a reply at the end; the time they had waited is among the latencies.
    pub unfinished: u64,
    /// The text of the first error, cut short.
    pub first_error: Option<String>,
    /// Whether misses mean anything.
    pub reads: bool,
}

/// Why there is no figure: every reply was an error, and how quickly a server refuses says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The server does not know the command; other errors may be the user's own.
    pub unsupported: bool,
    /// The first error's text.
    pub error: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.unsupported {
            "not supported by this server"
        } else {
            "every reply was an error"
        };
        write!(out, "{what}: {}", self.error)
    }
}

impl Tally {
    /// Nothing yet.
    pub fn new(name: &str, reads: bool) -> Tally {
        Tally {
            name: name.into(),
            latencies: latencies(),
            errors: 0,
            misses: 0,
            unfinished: 0,
            first_error: None,
            reads,
        }
    }

    /// Adds what another thread counted of the same operation.
    pub fn merge(&mut self, other: &Tally) {
        self.latencies.add(&other.latencies).expect("the bounds are the same");
        self.errors += other.errors;
        self.misses += other.misses;
        self.unfinished += other.unfinished;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }

    /// Notes an error reply.
    pub fn error(&mut self, text: &[u8]) {
        self.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(error_text(text));
        }
    }

    /// Why it has no rate and no latencies, if every reply was an error.
    pub fn refusal(&self) -> Option<Refusal> {
        let error = self.first_error.clone().filter(|_| self.errors == self.requests())?;
        Some(Refusal { unsupported: error.starts_with("ERR unknown command"), error })
    }

    /// Replies.
    pub fn requests(&self) -> u64 {
        self.latencies.len() - self.unfinished
    }
}

/// What is counted once for a whole run.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Error replies by text (cut short), at most [`KINDS`] of them.
    pub error_texts: BTreeMap<String, u64>,
    /// Replies that sent the client to another node.
    pub moved: u64,
    /// Replies that sent the client to another node for once.
    pub ask: u64,
    /// Connections that ended unasked.
    pub lost_connections: u64,
    /// Why the first was lost.
    pub first_loss: Option<String>,
    /// Why the run ended early.
    pub given_up: Option<String>,
    /// Connections made after the first ones, whatever for.
    pub reconnections: u64,
    /// Requests that were under way on lost connections.
    pub lost_requests: u64,
    /// Requests that were due or under way when the run was over; the time they had waited is among
    /// the latencies.
    pub unfinished: u64,
    /// Values that were compared with what they should be, and the first that was something else.
    pub checked: u64,
    /// Values that were not what they should be.
    pub wrong: u64,
    /// The first of them.
    pub first_wrong: Option<String>,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
}

/// An error as it is reported: without what was sent, which the user knows.
fn error_text(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.split(", with args beginning with:").next().unwrap_or_default().to_owned()
}

/// Kinds of errors that are told apart.
pub const KINDS: usize = 20;

impl Counts {
    /// Counts an error reply.
    pub fn note_error(&mut self, text: &[u8]) {
        if text.starts_with(b"MOVED ") {
            self.moved += 1;
        } else if text.starts_with(b"ASK ") {
            self.ask += 1;
        } else {
            let text = error_text(text);
            let known = self.error_texts.len();
            match self.error_texts.get_mut(&text) {
                Some(count) => *count += 1,
                None if known < KINDS => {
                    self.error_texts.insert(text, 1);
                }
                None => *self.error_texts.entry("(others)".into()).or_default() += 1,
            }
        }
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, other: &Counts) {
        for (text, count) in &other.error_texts {
            *self.error_texts.entry(text.clone()).or_default() += count;
        }
        self.moved += other.moved;
        self.ask += other.ask;
        self.lost_connections += other.lost_connections;
        self.reconnections += other.reconnections;
        self.lost_requests += other.lost_requests;
        self.unfinished += other.unfinished;
        self.checked += other.checked;
        self.wrong += other.wrong;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        if self.first_loss.is_none() {
            self.first_loss.clone_from(&other.first_loss);
        }
        if self.given_up.is_none() {
            self.given_up.clone_from(&other.given_up);
        }
        if self.first_wrong.is_none() {
            self.first_wrong.clone_from(&other.first_wrong);
        }
    }
}

/// What the generator itself used.
#[derive(Clone, Debug, Default)]
pub struct OwnCost {
    /// CPU seconds of its threads.
    pub cpu_seconds: f64,
    /// The busiest thread's share of the run, 0 to 1.
    pub busiest: f64,
    /// Open loop: how late requests were sent although a connection had room, in nanoseconds; 99th
    /// percentile.
    pub late_p99_ns: Option<u64>,
}

/// A thread above this share was the limit of what was measured.
pub const BUSY: f64 = 0.9;

/// The outcome of one run of one workload on one server.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The workload's name.
    pub name: String,
    /// From the first request to the last reply.
    pub seconds: f64,
    /// What became of each operation's requests.
    pub tallies: Vec<Tally>,
    /// What was counted once.
    pub counts: Counts,
    /// Per second.
    pub seconds_of_run: Vec<timeline::Second>,
    /// What the generator used.
    pub own: OwnCost,
    /// What the server used, where that can be known.
    pub server: Option<cost::ServerCost>,
    /// It ended by Ctrl-C.
    pub interrupted: bool,
}

impl Measured {
    /// Replies.
    pub fn requests(&self) -> u64 {
        self.tallies.iter().map(Tally::requests).sum()
    }

    /// Replies a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.requests() as f64 / self.seconds } else { 0.0 }
    }

    /// Why there is no figure, if every reply of every operation was an error.
    pub fn refusal(&self) -> Option<Refusal> {
        self.total().refusal()
    }

    /// Latencies of all operations.
    pub fn total(&self) -> Tally {
        let mut total = Tally::new("total", self.tallies.iter().any(|tally| tally.reads));
        for tally in &self.tallies {
            total.merge(tally);
        }
        total
    }

    /// Error replies, MOVED and ASK among them.
    pub fn errors(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.errors).sum()
    }

    /// The server's CPU per request in microseconds.
    pub fn server_us(&self) -> Option<f64> {
        let cost = self.server.as_ref()?;
        (self.requests() > 0).then(|| cost.cpu_seconds * 1e6 / self.requests() as f64)
    }

    /// The server's processor cycles per request, where they were counted.
    pub fn server_cycles(&self) -> Option<f64> {
        match self.server.as_ref()?.cycles {
            Some(cycles::Cycles::Counted { cycles, .. }) if self.requests() > 0 => {
                Some(cycles as f64 / self.requests() as f64)
            }
            _ => None,
        }
    }

    /// The generator's CPU per request in microseconds.
    pub fn own_us(&self) -> f64 {
        self.own.cpu_seconds * 1e6 / self.requests().max(1) as f64
    }

    /// Whether the generator kept the figures down rather than the server.
    pub fn generator_was_the_limit(&self) -> bool {
        self.own.busiest > BUSY
    }

    /// Whether anything went wrong that a script should notice. `usual`: the user did not name this
    /// very test, so that a server may lack its command.
    pub fn clean(&self, usual: bool) -> bool {
        let counts = &self.counts;
        let lacking = usual && self.refusal().is_some_and(|refusal| refusal.unsupported);
        (lacking || self.errors() == 0) && counts.lost_connections + counts.wrong == 0
    }

    /// Adds the outcome of the same work done once more.
    pub fn merge(&mut self, other: &Measured) {
        self.seconds += other.seconds;
        for (tally, other) in self.tallies.iter_mut().zip(&other.tallies) {
            tally.merge(other);
        }
        self.counts.merge(&other.counts);
        let offset = self.seconds_of_run.len() as u64;
        self.seconds_of_run.extend(
            other
                .seconds_of_run
                .iter()
                .map(|second| timeline::Second { at: second.at + offset, ..second.clone() }),
        );
        self.own.cpu_seconds += other.own.cpu_seconds;
        self.own.busiest = self.own.busiest.max(other.own.busiest);
        self.own.late_p99_ns = self.own.late_p99_ns.max(other.own.late_p99_ns);
        self.server = match (self.server.take(), &other.server) {
            (Some(mut cost), Some(other)) => {
                cost.merge(other);
                Some(cost)
            }
            _ => None,
        };
        self.interrupted |= other.interrupted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_are_a_refusal() {
        let mut tally = Tally::new("XADD", false);
        assert_eq!(tally.refusal(), None, "nothing was asked");
        tally.latencies.record(5).unwrap();
        tally.error(b"ERR unknown command 'XADD', with args beginning with: 'mystream' ");
        let refusal = tally.refusal().unwrap();
        assert!(refusal.unsupported);
        let text = "not supported by this server: ERR unknown command 'XADD'";
        assert_eq!(refusal.to_string(), text);
        tally.latencies.record(5).unwrap();
        assert_eq!(tally.refusal(), None, "one was answered");
        tally.error(b"ERR something else");
        assert_eq!(tally.refusal().unwrap().error, "ERR unknown command 'XADD'");
        let mut tally = Tally::new("INCR", false);
        tally.latencies.record(5).unwrap();
        tally.error(b"ERR value is not an integer or out of range");
        assert!(!tally.refusal().unwrap().unsupported);
    }
}
