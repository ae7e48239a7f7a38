//! What the proxy answers itself.

use super::Hub;
use super::about::{name_error, raw_line, subcommand};
use super::client::{Client, Flow, Replies, ReplyPlace};
use super::setting::database;
use super::tag::{Purpose, Tag};
use super::tracking::choose_caching;
use crate::failure::Failure;
use crate::policy::Policy;
use crate::pool::Session;
use crate::wire::Wire;
use resp::Protocol;
use resp::bulk::{push_bulk, push_header};
use route::plan::Placement;
use route::raw;
use spec::Local;

impl<P: Policy> Hub<P> {
    /// A command that needs no server.
    pub(super) fn local<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        local: Local,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        let mut out = Vec::new();
        match local {
            Local::Ping if words.len() > 2 => {
                raw::push_error(&mut out, "ERR wrong number of arguments for 'ping' command");
            }
            Local::Ping => ping(client, words.get(1).copied(), &mut out),
            Local::Echo => push_bulk(&mut out, words[1]),
            Local::Quit => {
                client.answer(wire, b"+OK\r\n");
                client.is_leaving = true;
                if client.is_idle() {
                    wire.finish(client.id);
                }
                return Flow::Done;
            }
            Local::Reset => return self.reset(wire, client),
            Local::Hello => {
                if !client.is_idle() {
                    return self.come_again(client);
                }
                self.hello(client, words, &mut out);
            }
            Local::Auth => self.auth(client, words, &mut out),
            Local::Select => return self.select(wire, client, words[1], request),
            Local::Client => return self.about_client(wire, client, words, request),
            Local::Asking => raw_line(&mut out, "+OK"),
            Local::Command => match route::plan::Placement::any(&self.pools[client.pool]) {
                Some(server) => {
                    let slot = super::client::ReplyPlace::Waiting;
                    self.forward(wire, client, server, request, slot);
                    return Flow::Done;
                }
                None => raw::push_error(&mut out, &Failure::NoServer.text()),
            },
        }
        client.answer(wire, &out);
        Flow::Done
    }

    fn reset<W: Wire>(&mut self, wire: &mut W, client: &mut Client) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        self.end_subscriptions(wire, client);
        self.abandon(wire, client);
        client.tracking = None;
        client.caching = None;
        self.release(wire, client);
        let config = &self.pools[client.pool].shared.config;
        client.session = Session { db: config.db, ..Session::default() };
        client.name.clear();
        client.is_authenticated = config.client_login.is_none();
        // It ends CLIENT REPLY OFF, but is itself the request whose reply SKIP skips.
        client.is_muted &= client.replies != Replies::Off;
        client.replies = Replies::On;
        client.answer(wire, b"+RESET\r\n");
        Flow::Done
    }

    fn about_client<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        let mut out = Vec::new();
        let sub = subcommand(words);
        let argument = words.get(2).copied().unwrap_or_default();
        match (&sub[..], words.len()) {
            ("SETNAME", 3) if name_error("Client names", argument).is_none() => {
                match self.introduced(client, argument) {
                    Ok(Flow::Done) => self.about_itself(wire.now(), client, words, &mut out),
                    Ok(Flow::Later) => return Flow::Later,
                    Err(why) => raw::push_error(&mut out, &why),
                }
            }
            ("LIST" | "KILL" | "UNBLOCK" | "PAUSE" | "UNPAUSE", _) => {
                return self.administer(wire, client, &sub, words);
            }
            ("REPLY", 3) => {
                match &argument.to_ascii_uppercase()[..] {
                    b"ON" => {
                        (client.replies, client.is_muted) = (Replies::On, false);
                        raw_line(&mut out, "+OK");
                    }
                    b"OFF" => client.replies = Replies::Off,
                    b"SKIP" if client.replies == Replies::On => client.replies = Replies::Skip,
                    b"SKIP" => {}
                    _ => raw::push_error(&mut out, "ERR syntax error"),
                }
                if out.is_empty() {
                    return Flow::Done;
                }
            }
            ("TRACKING", 3..) => return self.track(wire, client, words),
            ("CACHING", 3) => choose_caching(client, argument, request, &mut out),
            _ => self.about_itself(wire.now(), client, words, &mut out),
        }
        client.answer(wire, &out);
        Flow::Done
    }
}

fn ping(client: &Client, argument: Option<&[u8]>, out: &mut Vec<u8>) {
    let is_subscribed = client.subscriptions.as_ref().is_some_and(|subs| !subs.is_empty());
    match argument {
        _ if is_subscribed && client.session.protocol == Protocol::Resp2 => {
            push_header(out, b'*', 2);
            push_bulk(out, b"pong");
            push_bulk(out, argument.unwrap_or_default());
        }
        Some(word) => push_bulk(out, word),
        None => raw_line(out, "+PONG"),
    }
}

impl<P: Policy> Hub<P> {
    /// SELECT. A database that no client has selected yet is for a server to find.
    fn select<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        number: &[u8],
        request: &[u8],
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        let db = database(number);
        let local = &self.pools[client.pool];
        if let Some(db) = db.filter(|&db| local.shared.is_selectable(db)) {
            client.session.db = db;
            client.answer(wire, b"+OK\r\n");
            return Flow::Done;
        }
        let own = client.own.first().map(|own| own.0);
        let Some(server) = own.or_else(|| local.any()) else {
            client.answer(wire, &Failure::NoServer.reply());
            return Flow::Done;
        };
        match self.acquire_own(wire, client, server) {
            Ok(id) => {
                self.bring_in_step(wire, client, id);
                let seq = client.push(ReplyPlace::Waiting);
                let purpose = Purpose::Select(db);
                let tag = Tag { client: client.id, seq, part: 0, bytes: 0, purpose };
                self.send_on(wire, id, request, tag);
            }
            Err(why) => client.answer(wire, &why.reply()),
        }
        self.settle_soon(client);
        Flow::Done
    }
}
