//! What the proxy answers itself inside a transaction: HELLO, AUTH, and CLIENT about the client's
//! own connection.
//!
//! A server queues them as any other command. Here the server is sent a PING in such a request's
//! place, so positions in EXEC's reply are those of the client's requests. When EXEC has run, each
//! request is carried out here, in its turn, and its reply takes the place of the PING's. Nothing
//! is carried out if EXEC runs nothing.

use super::client::Client;
use super::hops::is_introduction;
use super::{Conn, Hub};
use crate::policy::Policy;
use crate::wire::{Id, Wire};
use resp::bulk::push_header;
use route::raw;
use spec::{Local, Way};

/// What concerns other clients, or connections to servers, while EXEC's reply is awaited.
const OUTSIDE_ONLY: [&[u8]; 8] =
    [b"LIST", b"KILL", b"UNBLOCK", b"PAUSE", b"UNPAUSE", b"REPLY", b"TRACKING", b"CACHING"];

/// Returns whether a queued request is answered by the proxy when EXEC has run.
pub(super) fn is_answered_here(words: &[&[u8]], way: Way) -> bool {
    match way {
        Way::Local(Local::Hello | Local::Auth) => true,
        Way::Local(Local::Client) => {
            let is_sub =
                |sub: &&[u8]| words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(sub));
            !OUTSIDE_ONLY.iter().any(is_sub) && !is_introduction(words)
        }
        _ => false,
    }
}

impl<P: Policy> Hub<P> {
    /// Returns the reply to EXEC in which what is answered here has its place: `requests`, by their
    /// positions, in order.
    pub(super) fn spliced<W: Wire>(
        &mut self,
        wire: &mut W,
        id: Id,
        requests: &[(usize, Vec<u8>)],
        reply: &[u8],
    ) -> Option<Vec<u8>> {
        if requests.is_empty() || !reply.starts_with(b"*") {
            return None;
        }
        let done = raw::elements(reply)?;
        let Some(Conn::Client(mut client)) = self.take_conn(id) else { return None };
        let mut out = Vec::with_capacity(reply.len());
        push_header(&mut out, b'*', done.len());
        let mut requests = requests.iter().peekable();
        for (at, element) in done.into_iter().enumerate() {
            match requests.next_if(|request| request.0 == at) {
                Some((_, request)) => self.answer_queued(wire, &mut client, request, &mut out),
                None => out.extend_from_slice(element),
            }
        }
        self.put(id, Conn::Client(client));
        Some(out)
    }

    fn answer_queued<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        request: &[u8],
        out: &mut Vec<u8>,
    ) {
        let words = raw::words(request).unwrap_or_default();
        let way = self.commands.table.lookup(&words).map(|row| row.way_of(&words));
        match way {
            Some(Way::Local(Local::Hello)) => self.hello(client, &words, out),
            Some(Way::Local(Local::Auth)) => self.auth(client, &words, out),
            _ => self.about_itself(wire.now(), client, &words, out),
        }
    }
}
