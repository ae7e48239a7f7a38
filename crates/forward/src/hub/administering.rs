//! CLIENT LIST, KILL, UNBLOCK and PAUSE: what one client asks of all clients of its pool, whichever
//! threads these belong to.
//!
//! Each thread has a mailbox. An order goes to the mailboxes of all threads, the own one too, so the
//! asking client is in the table like any other when the order is carried out. Each thread answers
//! with a letter, and the parts become one reply as those of servers do. A pause is a mark that all
//! threads look at, without letters.

use super::about::line;
use super::client::{Client, Flow, ReplyPlace};
use super::filters::Filters;
use super::mailbox::{Letter, Order, Return, What};
use super::tag::{Purpose, Tag};
use super::{Conn, Hub};
use crate::policy::Policy;
use crate::pool::{Pause, Session};
use crate::wire::{Id, NOBODY, Wire};
use resp::bulk::push_bulk;
use route::{Joining, raw};
use spec::Merge;
use std::sync::Arc;
use structs::numbers;

const NO_SUCH_CLIENT: &[u8] = b"-ERR No such client\r\n";

impl<P: Policy> Hub<P> {
    /// `CLIENT LIST|KILL|UNBLOCK|PAUSE|UNPAUSE …`
    pub(super) fn administer<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        sub: &str,
        words: &[&[u8]],
    ) -> Flow {
        let user = self.user_of(client);
        let what = match (sub, words) {
            ("LIST", _) => Filters::parse(&words[2..], &user).map(What::List),
            ("KILL", [_, _, address]) => {
                Ok(What::KillAt(String::from_utf8_lossy(address).into_owned()))
            }
            ("KILL", [_, _, _, _, ..]) => Filters::parse(&words[2..], &user).map(What::Kill),
            // Words behind the reason are passed over, as servers do.
            ("UNBLOCK", [_, _, id, more @ ..]) => unblock(id, more.first().copied()),
            ("PAUSE", [_, _, ms, mode @ ..]) => {
                let done = self.pause(wire, client, ms, mode);
                let reply = done.map_or_else(raw::error, |()| b"+OK\r\n".to_vec());
                client.answer(wire, &reply);
                return Flow::Done;
            }
            ("UNPAUSE", [_, _]) => {
                self.pools[client.pool].shared.pause.end();
                client.answer(wire, b"+OK\r\n");
                return Flow::Done;
            }
            _ => Err(format!(
                "ERR wrong number of arguments for 'client|{}' command",
                sub.to_lowercase()
            )),
        };
        match what {
            Ok(what) => self.order(client, what),
            Err(why) => client.answer(wire, &raw::error(&why)),
        }
        Flow::Done
    }

    /// The user that the pool's clients are.
    fn user_of(&self, client: &Client) -> String {
        let login = self.pools[client.pool].shared.config.client_login.as_ref();
        let user = login.and_then(|login| login.user.clone());
        user.unwrap_or_else(|| "default".to_owned())
    }

    /// Gives an order to all threads.
    fn order(&mut self, client: &mut Client, what: What) {
        let merge = match what {
            What::List(_) => Merge::Text,
            What::Kill(_) => Merge::Sum,
            What::KillAt(_) => Merge::AnyGood,
            What::Unblock(..) => Merge::Max,
        };
        let pool = self.pools[client.pool].shared.config.name.clone();
        let order = Arc::new(Order { what, pool, asker: client.number });
        let mailboxes = self.common.mailboxes();
        let joining = Joining::new(merge, mailboxes.len());
        let seq = client.push(ReplyPlace::Joining(Box::new(joining)));
        for (mailbox, part) in mailboxes.iter().zip(0..) {
            let back = Return { mailbox: self.mailbox.clone(), client: client.id, seq, part };
            mailbox.put(Letter::Order(order.clone(), back));
        }
        self.common.wake();
    }

    /// Carries out the orders that have come, and takes answers.
    pub(super) fn read_letters<W: Wire>(&mut self, wire: &mut W) {
        loop {
            let letters = self.mailbox.take();
            if letters.is_empty() {
                return;
            }
            for letter in letters {
                match letter {
                    Letter::Order(order, back) => self.carry_out(wire, &order, back),
                    Letter::Answer(to, reply) => {
                        let purpose = Purpose::Client;
                        let Return { client, seq, part, .. } = to;
                        self.deliver(wire, Tag { client, seq, part, bytes: 0, purpose }, &reply);
                    }
                }
            }
        }
    }

    fn carry_out<W: Wire>(&mut self, wire: &mut W, order: &Order, back: Return) {
        let reply = match &order.what {
            What::List(filters) => {
                let now = wire.now();
                let mut lines = String::new();
                for client in self.chosen(order, |client, user| {
                    filters.allow(client, user, order.asker, false, now)
                }) {
                    if let Some(client) = self.client(client.0) {
                        lines.push_str(&line(client, now));
                    }
                }
                let mut reply = Vec::new();
                push_bulk(&mut reply, lines.as_bytes());
                reply
            }
            What::Kill(filters) => {
                let now = wire.now();
                let chosen = self.chosen(order, |client, user| {
                    filters.allow(client, user, order.asker, true, now)
                });
                let reply = format!(":{}\r\n", chosen.len());
                self.kill(wire, order, chosen);
                reply.into_bytes()
            }
            What::KillAt(address) => {
                let mut chosen = self.chosen(order, |client, _| client.peer == *address);
                chosen.truncate(1);
                let reply: &[u8] = if chosen.is_empty() { NO_SUCH_CLIENT } else { b"+OK\r\n" };
                self.kill(wire, order, chosen);
                reply.to_vec()
            }
            What::Unblock(number, word) => match self.ask_to_unblock(wire, order, *number, word) {
                Some(relay) => {
                    self.relays.insert(relay, back);
                    return;
                }
                None => b":0\r\n".to_vec(),
            },
        };
        self.answer_letter(back, reply);
    }

    fn answer_letter(&self, back: Return, reply: Vec<u8>) {
        let mailbox = back.mailbox.clone();
        mailbox.put(Letter::Answer(back, reply));
        if !Arc::ptr_eq(&mailbox, &self.mailbox) {
            self.common.wake();
        }
    }

    /// The clients of the order's pool for which something holds, with their numbers.
    fn chosen(&self, order: &Order, is_it: impl Fn(&Client, &str) -> bool) -> Vec<(Id, u64)> {
        let mut chosen = Vec::new();
        for conn in self.conns.iter().flatten() {
            let Conn::Client(client) = conn else { continue };
            let is_of_pool = self.pools[client.pool].shared.config.name == order.pool;
            if is_of_pool && is_it(client, &self.user_of(client)) {
                chosen.push((client.id, client.number));
            }
        }
        chosen
    }

    fn kill<W: Wire>(&mut self, wire: &mut W, order: &Order, chosen: Vec<(Id, u64)>) {
        for (id, number) in chosen {
            if number != order.asker {
                self.drop_client(wire, id);
            } else if let Some(client) = self.client(id) {
                // It gets its reply first.
                client.is_leaving = true;
            }
        }
    }

    /// Asks the server at which a client of this thread waits to unblock it. Returns the number of
    /// the question; `None` if the client does not wait, or is not of this thread.
    fn ask_to_unblock<W: Wire>(
        &mut self,
        wire: &mut W,
        order: &Order,
        number: u64,
        word: &[u8],
    ) -> Option<u64> {
        let (id, _) = self.chosen(order, |client, _| client.number == number).pop()?;
        let client = self.client(id)?;
        if !client.is_blocked {
            return None;
        }
        let (pool, turn) = (client.pool, client.turn);
        let session = Session { db: 0, ..client.session };
        let own = client.own.clone();
        let waits = own.into_iter().find_map(|(server, own)| {
            let up = self.upstream(own).filter(|up| up.link.pending() > 0)?;
            Some((server, up.server_id.filter(|id| *id > 0)?))
        });
        let (server, server_id) = waits?;
        let key = self.pools[pool].link_key(session, turn, server);
        let link = self.shared(wire, pool, server, key).ok()?;
        let server_id = server_id.to_string();
        let request = raw::request(&[b"CLIENT", b"UNBLOCK", server_id.as_bytes(), word]);
        self.last_relay += 1;
        let purpose = Purpose::Relay(self.last_relay);
        self.send_on(
            wire,
            link,
            &request,
            Tag { client: NOBODY, seq: 0, part: 0, bytes: 0, purpose },
        );
        Some(self.last_relay)
    }

    /// A server has answered such a question.
    #[cold]
    pub(super) fn relayed(&mut self, number: u64, reply: &[u8]) {
        let Some(back) = self.relays.remove(&number) else { return };
        let reply = if raw::integer(reply).is_some() { reply } else { b":0\r\n" };
        self.answer_letter(back, reply.to_vec());
    }

    /// `CLIENT PAUSE ms [WRITE|ALL]`
    fn pause<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &Client,
        ms: &[u8],
        mode: &[&[u8]],
    ) -> Result<(), &'static str> {
        let is_all = match mode {
            [] => true,
            [mode] if mode.eq_ignore_ascii_case(b"ALL") => true,
            [mode] if mode.eq_ignore_ascii_case(b"WRITE") => false,
            _ => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL"),
        };
        let ms = numbers::parse_i64(ms).ok_or("ERR timeout is not an integer or out of range")?;
        let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
        if ms > Pause::LONGEST_MS {
            return Err("ERR timeout is out of range");
        }
        let now_ms = self.elapsed_ms(wire);
        self.pools[client.pool].shared.pause.begin(now_ms, ms, is_all);
        Ok(())
    }

    fn elapsed_ms<W: Wire>(&self, wire: &mut W) -> u64 {
        wire.now().saturating_duration_since(self.common.started).as_millis() as u64
    }

    /// Returns whether a request has to wait for the end of a pause; `writes` says whether it may
    /// change something. The client then waits.
    #[cold]
    pub(super) fn is_held_by_pause<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        writes: bool,
    ) -> bool {
        let now_ms = self.elapsed_ms(wire);
        let is_held = self.pools[client.pool].shared.pause.holds(now_ms, writes);
        if is_held && !client.is_held {
            client.is_held = true;
            self.held.push(client.id);
        }
        is_held
    }

    /// Lets clients go on whose pause has ended.
    pub(super) fn end_pauses<W: Wire>(&mut self, wire: &mut W) {
        if self.held.is_empty() {
            return;
        }
        let now_ms = self.elapsed_ms(wire);
        for id in std::mem::take(&mut self.held) {
            let Some(pool) = self.client(id).map(|client| client.pool) else { continue };
            if self.pools[pool].shared.pause.holds(now_ms, true) {
                self.held.push(id);
            } else if let Some(client) = self.client(id) {
                client.is_held = false;
                wire.resume(id);
            }
        }
    }
}

/// `CLIENT UNBLOCK id [TIMEOUT|ERROR]`
fn unblock(id: &[u8], word: Option<&[u8]>) -> Result<What, String> {
    let word: &[u8] = match word {
        None => b"TIMEOUT",
        Some(word) if word.eq_ignore_ascii_case(b"TIMEOUT") => b"TIMEOUT",
        Some(word) if word.eq_ignore_ascii_case(b"ERROR") => b"ERROR",
        Some(_) => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".to_owned()),
    };
    let id = numbers::parse_i64(id);
    let id = id.ok_or_else(|| "ERR value is not an integer or out of range".to_owned())?;
    // No client has the number 0.
    Ok(What::Unblock(u64::try_from(id).unwrap_or(0), word))
}
