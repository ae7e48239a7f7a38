//! What a node of a cluster asks of its hub: its clients' requests come one by one, and where they
//! belong may be known.

use super::acks::Acks;
use super::client::ReplyPlace;
use super::sending::Answers;
use super::{Conn, Hub};
use crate::failure::Failure;
use crate::policy::Policy;
use crate::pool::Session;
use crate::wire::{Done, Id, Wire};
use route::code;

impl<P: Policy> Hub<P> {
    /// A client is about to send requests, or a new one. The cluster knows it by the number
    /// `origin`. Its user is given by [number](Hub::number_of_user).
    pub fn present<W: Wire>(
        &mut self,
        wire: &mut W,
        id: Id,
        (peer, origin): (&str, u64),
        session: Session,
    ) {
        if self.client(id).is_none() {
            self.accepted(wire, id, 0, peer);
        }
        if let Some(client) = self.client(id) {
            client.session = session;
            client.origin = origin;
        }
    }

    /// The number of a user that may not do everything. Requests of its clients have connections of
    /// their own, on which scripts, SORT and EXEC may do what the user may.
    pub fn number_of_user(&mut self, name: &[u8]) -> u32 {
        let at = self.users.iter().position(|user| **user == *name).unwrap_or_else(|| {
            self.users.push(name.into());
            self.users.len() - 1
        });
        at as u32 + 1
    }

    /// A request that several servers answer side by side, by connections of the client's own,
    /// because it may wait there or must not wait behind others. Returns whether it was taken; if
    /// not it is to be presented again when the client resumes.
    pub fn ask_apart<W: Wire>(
        &mut self,
        wire: &mut W,
        id: Id,
        servers: &[u16],
        request: &[u8],
        answers: Answers<'_>,
    ) -> bool {
        let Some(Conn::Client(mut client)) = self.take_conn(id) else { return true };
        let is_taken = !client.is_stalled() && client.is_idle();
        match answers.own {
            Some(own) if is_taken && servers.is_empty() => {
                client.answer(wire, &code::for_client(own.to_vec()));
            }
            _ if is_taken => {
                let servers = servers.iter().map(|&server| usize::from(server)).collect();
                client.awaited = Acks::of(&self.commands, request);
                self.send_apart(wire, &mut client, servers, request, answers);
            }
            _ => {}
        }
        self.put(id, Conn::Client(client));
        is_taken
    }

    /// A whole transaction, from MULTI to EXEC, for the server of a slot. What is not taken is to
    /// be presented as [data](Hub::data) when the client resumes.
    pub fn transaction<W: Wire>(
        &mut self,
        wire: &mut W,
        id: Id,
        slot: u16,
        requests: &[u8],
    ) -> Done {
        if let Some(client) = self.client(id) {
            client.slot_of_queue = Some(usize::from(slot));
        }
        self.data(wire, id, requests)
    }

    /// Requests whose keys are each at the server of one slot. Returns how many were taken; the
    /// others are to be presented as [data](Hub::data) when the client resumes.
    pub fn keyed<'r, W: Wire>(
        &mut self,
        wire: &mut W,
        id: Id,
        requests: impl Iterator<Item = (u16, &'r [u8])>,
    ) -> usize {
        let Some(Conn::Client(mut client)) = self.take_conn(id) else { return requests.count() };
        let mut taken = 0;
        for (slot, request) in requests {
            if client.is_stalled() {
                break;
            }
            match self.pools[client.pool].server_of_slot(slot) {
                Some(server) => {
                    self.forward(wire, &mut client, server, request, ReplyPlace::Waiting);
                    client.caching = None;
                }
                None => client.answer(wire, &Failure::NoServer.reply()),
            }
            taken += 1;
        }
        self.put(id, Conn::Client(client));
        taken
    }
}
