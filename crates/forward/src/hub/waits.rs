//! WAIT and WAITAOF of a node's client at the primaries of several shards.
//!
//! A wait that ends at one primary before it has what it waits for, because its time is over or
//! CLIENT UNBLOCK has ended it, ends at the others, too. CLIENT UNBLOCK may have looked for it there
//! when it was still on its way. So the connections on which it waits are closed, and the servers
//! are asked how far their replicas are, without waiting.

use super::client::Client;
use super::common::Commands;
use super::upstream::{Purpose, Tag};
use super::wire::{Id, Wire};
use super::{Conn, Hub};
use crate::policy::Policy;
use crate::pool::Session;
use route::raw;
use spec::Way;

/// What a client waits for: WAIT for so many replicas, WAITAOF for the primary's own log and those of
/// so many replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acks {
    wanted: Vec<i64>,
    /// The request that is answered at once by how far they are.
    question: Vec<u8>,
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
    fn is_satisfied_by(&self, reply: &[u8]) -> bool {
        let there = raw::elements(reply).unwrap_or_else(|| vec![reply]);
        let there = there.iter().map(|it| raw::integer(it).unwrap_or(-1));
        there.zip(&self.wanted).all(|(there, wanted)| there >= *wanted)
    }
}

impl<P: Policy> Hub<P> {
    /// One server has answered a client that waits at several.
    #[cold]
    pub(super) fn wait_answered<W: Wire>(&mut self, wire: &mut W, id: Id, reply: &[u8]) {
        let Some(Conn::Client(mut client)) = self.take_conn(id) else { return };
        let awaited = client.awaited.take();
        match awaited {
            Some(acks) if !acks.is_satisfied_by(reply) => {
                self.end_waits(wire, &mut client, &acks);
            }
            awaited if !client.is_idle() => client.awaited = awaited,
            _ => {}
        }
        self.put(id, Conn::Client(client));
    }

    /// Ends a client's wait at the servers that have not answered.
    fn end_waits<W: Wire>(&mut self, wire: &mut W, client: &mut Client, acks: &Acks) {
        for (server, own) in std::mem::take(&mut client.own) {
            if self.upstream(own).is_none_or(|up| up.link.pending() == 0) {
                client.own.push((server, own));
                continue;
            }
            let Some(Conn::Upstream(mut up)) = self.take_conn(own) else { continue };
            wire.abort(own);
            self.upstream_dropped(&mut up);
            self.exclusive_ended(up.pool);
            let (sent, unsent, _) = up.link.take_all();
            let waiting = sent.into_iter().chain(unsent);
            for tag in waiting.filter(|tag| tag.purpose != Purpose::Discard) {
                let tag = Tag { bytes: 0, purpose: Purpose::Client, ..tag };
                let session = Session { db: 0, ..client.session };
                let key = self.pools[up.pool].link_key(session, client.turn, server);
                match self.shared(wire, up.pool, server, key) {
                    Ok(link) => self.send_on(wire, link, &acks.question, tag),
                    Err(why) => client.take(wire, tag.seq, tag.part, &why.reply()),
                }
            }
        }
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
