//! What a client waits for with WAIT and WAITAOF. [`waits`](super::waits) works on it.

use super::commands::Commands;
use route::raw;
use spec::Way;

/// What a client waits for: WAIT for so many replicas, WAITAOF for the primary's own log and those of
/// so many replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acks {
    wanted: Vec<i64>,
    /// The request that is answered at once by how far they are.
    pub(super) question: Vec<u8>,
}

impl Acks {
    /// What a request waits for. `None`: it is none that waits so, or is refused.
    pub(super) fn of(commands: &Commands, request: &[u8]) -> Option<Acks> {
        let words = raw::words(request)?;
        let row = commands.table.resolve(&words).ok()?;
        let Way::Written(_) = row.way else { return None };
        // The last word is how long it waits.
        let [name, wanted @ .., _] = &words[..] else { return None };
        let number = |word: &&[u8]| std::str::from_utf8(word).ok()?.parse().ok();
        let at_once: Vec<&[u8]> = words[1..].iter().map(|_| &b"0"[..]).collect();
        Some(Acks {
            wanted: wanted.iter().map(number).collect::<Option<_>>()?,
            question: raw::request(&[&[*name], &at_once[..]].concat()),
        })
    }

    /// Whether a reply says that there is what was waited for.
    pub(super) fn is_satisfied_by(&self, reply: &[u8]) -> bool {
        let there = raw::elements(reply).unwrap_or_else(|| vec![reply]);
        let there = there.iter().map(|it| raw::integer(it).unwrap_or(-1));
        there.zip(&self.wanted).all(|(there, wanted)| there >= *wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_awaited_is_read_from_the_request_and_found_in_the_reply() {
        let commands = super::super::tests::every_command();
        let of = |words: &[&[u8]]| Acks::of(&commands, &raw::request(words));
        let wait = of(&[b"wait", b"2", b"0"]).expect("it is a WAIT");
        assert_eq!(wait.question, raw::request(&[b"wait", b"0", b"0"]));
        assert!(wait.is_satisfied_by(b":2\r\n") && !wait.is_satisfied_by(b":1\r\n"));
        assert!(!wait.is_satisfied_by(b"-UNBLOCKED it was unblocked\r\n"));
        let logs = of(&[b"WAITAOF", b"1", b"2", b"0"]).expect("it is one");
        assert_eq!(logs.wanted, [1, 2]);
        assert!(logs.is_satisfied_by(b"*2\r\n:1\r\n:2\r\n"));
        assert!(!logs.is_satisfied_by(b"*2\r\n:0\r\n:2\r\n"));
        assert_eq!(of(&[b"WAIT", b"x", b"0"]), None);
        assert_eq!(of(&[b"CLIENT", b"LIST"]), None);
    }
}
