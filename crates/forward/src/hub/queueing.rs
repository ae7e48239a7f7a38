//! Requests between MULTI and EXEC: where they go, and which of them are refused.

use super::Hub;
use super::client::{Client, Flow, ReplyPlace};
use super::setting::database;
use super::splicing::is_answered_here;
use super::tag::Purpose;
use crate::failure::Failure;
use crate::policy::{Audience, Policy};
use crate::wire::Wire;
use route::plan::{self, Course, Placement, Plan, Request};
use spec::{Local, Session, Way};

impl<P: Policy> Hub<P> {
    /// A request between MULTI and EXEC.
    pub(super) fn in_multi<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
        keys: &[usize],
        way: Way,
    ) -> Flow {
        match way {
            Way::Session(Session::Exec) => return self.exec(wire, client, request),
            Way::Session(Session::Discard) => return self.discard(wire, client, request),
            Way::Local(local @ (Local::Quit | Local::Reset)) => {
                return self.local(wire, client, local, words, request);
            }
            _ => {}
        }
        if let Some(why) = self.refusal_in_multi(client, words, way) {
            self.refuse(wire, client, &why);
            return Flow::Done;
        }
        let has_slots = self.pools[client.pool].has_slots();
        let place = match self.place_in_multi(client, words, keys, way) {
            Ok(place) => place,
            Err(why) => {
                self.refuse(wire, client, &why);
                return Flow::Done;
            }
        };
        if let (Some(multi), Some(&first)) = (client.multi.as_mut(), keys.first())
            && has_slots
            && multi.first_key.is_none()
        {
            multi.first_key = Some(words[first].to_vec());
        }
        let most = self.pools[client.pool].shared.config.limits.server_queue;
        let is_kept = place.is_none() || has_slots;
        let is_answered_here = !P::IS_CHECKED && is_answered_here(words, way);
        if (is_kept || is_answered_here)
            && client.multi.as_ref().is_some_and(|multi| multi.bytes > most)
        {
            self.refuse(wire, client, &Failure::TransactionFull.text());
            return Flow::Done;
        }
        let attached = match place {
            Some((server, group)) => self.attach(wire, client, server, group),
            None => Ok(true),
        };
        match attached {
            Ok(true) => {}
            Ok(false) => return self.come_again(client),
            Err(why) => {
                self.refuse(wire, client, &why.text());
                return Flow::Done;
            }
        }
        let request = match client.multi.as_mut() {
            Some(multi) if is_answered_here => multi.keep_to_answer(request),
            _ => request,
        };
        if let Some(multi) = client.multi.as_mut() {
            let is_select = way == Way::Local(Local::Select);
            let db = if is_select { words.get(1).and_then(|word| database(word)) } else { None };
            multi.selects.extend(db.map(|db| (multi.queued, db)));
            multi.queued += 1;
            if is_kept {
                multi.requests.push(request.to_vec());
                multi.bytes += request.len();
            }
        }
        match client.multi.as_ref().and_then(|multi| multi.server) {
            Some(_) if has_slots => self.send_own(wire, client, request, Purpose::Queued),
            Some(server) => self.forward(wire, client, server, request, ReplyPlace::Waiting),
            None => client.answer(wire, b"+QUEUED\r\n"),
        }
        Flow::Done
    }

    /// Why a command cannot be in a transaction.
    fn refusal_in_multi(&self, client: &Client, words: &[&[u8]], way: Way) -> Option<String> {
        let name = || String::from_utf8_lossy(words[0]).to_lowercase();
        // The process has looked at the whole transaction before: it is for one server.
        if P::IS_CHECKED {
            return None;
        }
        if let Some(why) = plan::refusal(way) {
            return Some(format!("ERR '{}' does not work through the proxy: {why}", name()));
        }
        match way {
            Way::Session(Session::Subscribe | Session::Unsubscribe) => {
                Some(format!("ERR proxy: '{}' does not work inside a transaction", name()))
            }
            Way::Local(Local::Client) if !is_answered_here(words, way) => {
                let sub = words.get(1).map(|sub| String::from_utf8_lossy(sub).to_lowercase());
                let sub = sub.unwrap_or_default();
                Some(format!(
                    "ERR proxy: 'client {sub}' does not work inside a transaction; send it before MULTI \
                     or behind EXEC"
                ))
            }
            Way::All { .. } | Way::Scan | Way::OneServer
                if self.pools[client.pool].servers() > 1 =>
            {
                let name = name();
                Some(format!("ERR proxy: '{name}' is for all servers, a transaction for one"))
            }
            _ => None,
        }
    }

    /// The server of a queued request, and the group of its keys; nothing if it is not known yet.
    fn place_in_multi(
        &self,
        client: &Client,
        words: &[&[u8]],
        keys: &[usize],
        way: Way,
    ) -> Result<Option<(usize, Option<usize>)>, String> {
        let Some(multi) = &client.multi else { return Ok(None) };
        let local = &self.pools[client.pool];
        let is_message = P::AUDIENCE == Audience::All && way == Way::Message;
        let Some(first) = keys.first().filter(|_| !is_message) else {
            return Ok(multi.server.map(|server| (server, multi.group)));
        };
        let group = local.group_of(words[*first]);
        let course = Course::by(Way::Keys);
        let keyed = Request { words, keys, course, allows_split_writes: false };
        match route::plan(&keyed, local) {
            Plan::One(server) | Plan::Exclusive(server) => Ok(Some((server, group))),
            Plan::Refuse(why) => Err(why),
            _ => Ok(None),
        }
    }
}
