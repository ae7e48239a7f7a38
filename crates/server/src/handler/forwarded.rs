//! Clients whose requests other nodes answer: what of their output has to wait, and what comes of
//! it.

use super::{Client, Conn, ReactorHandler, TURN_OUTPUT, check_output, client_of, hold_back, now};
use crate::forward::{Event, Forwarder, Inbox, listening};
use engine::session::{Fate, Session};
use net::{Close, ConnId, ConnIo, Consumed, Cx};
use resp::Protocol;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Client {
    /// Whether replies of other nodes are missing.
    #[inline]
    pub(super) fn has_gaps(&self) -> bool {
        self.gaps.as_ref().is_some_and(|gaps| gaps.is_open())
    }

    /// Whether so much waits behind a gap that no more of its requests are run.
    pub(super) fn is_behind(&self) -> bool {
        self.gaps.as_ref().is_some_and(|gaps| gaps.is_open() && gaps.bytes() > TURN_OUTPUT)
    }

    /// Its input is looked at again when all replies of other nodes have come.
    #[cold]
    pub(super) fn wait_for_gaps(&mut self, io: &mut ConnIo<'_>) {
        self.gaps.get_or_insert_default().waits = true;
        let is_blocked = self.session.forwarding.as_ref().is_some_and(|f| f.is_blocked);
        match is_blocked {
            // A client that hangs up ends what it waits for.
            true if io.has_ended() => io.close_after_flush(),
            true => io.pause(),
            false => io.hold_back(),
        }
    }

    /// Nothing more is read of it. Returns whether it stays for replies that are still to come.
    pub(super) fn end_behind_gaps(&mut self) -> bool {
        let is_blocked = self.session.forwarding.as_ref().is_some_and(|f| f.is_blocked);
        match &mut self.gaps {
            Some(gaps) if gaps.is_open() && !is_blocked => {
                gaps.ends = true;
                true
            }
            _ => false,
        }
    }
}

/// Tells another node that this server carries nothing more out on its link, and ends the link.
pub(super) fn end_link(session: &mut Session, io: &mut ConnIo<'_>) {
    if session.fate == Fate::Open {
        session.fate = Fate::CloseAfterReplies;
        io.out().extend_from_slice(route::raw::GOES_DOWN);
        io.close_after_flush();
    }
}

impl ReactorHandler {
    /// Sends the requests that the client's input had for other nodes.
    #[cold]
    pub(super) fn forward(&mut self, conn: &mut Client, io: &mut ConnIo<'_>) {
        let Some(forwarder) = &mut self.forwarder else { return };
        let Some(forwarding) = &conn.session.forwarding else { return };
        let gaps = conn.gaps.get_or_insert_default();
        let was_open = gaps.is_open();
        gaps.open(io.out(), &forwarding.requests);
        gaps.told = gaps.told.max(conn.session.told);
        let (requests, bytes) = (forwarding.requests.len(), forwarding.bytes.len());
        self.engine.rate_limits.charge(&mut conn.session, requests, bytes);
        let id = io.id();
        forwarder.submit(io, id, &mut conn.session);
        if !was_open && !io.out().is_empty() {
            // What is in front of the first gap leaves now. What is behind it is looked at again.
            let by_primary = conn.session.answered_by_primary;
            hold_back(self.engine, &mut conn.session, io);
            conn.session.answered_by_primary = by_primary;
        }
    }

    /// Bytes have come on a link to another node.
    pub(super) fn link_data(&mut self, io: &mut ConnIo<'_>, input: &[u8]) -> Consumed {
        let id = io.id();
        let forwarder = self.forwarder.as_mut();
        Consumed::read(forwarder.map_or(input.len(), |forwarder| forwarder.data(io, id, input)))
    }

    /// A link has ended.
    pub(super) fn link_closed(&mut self, id: ConnId, why: Close, cx: &mut Cx<'_, Conn>) {
        let why = match why {
            Close::Failed(errno) => Some(std::io::Error::from_raw_os_error(errno).to_string()),
            Close::Tls => Some("the TLS session broke".to_owned()),
            Close::Eof | Close::Asked | Close::Stopping => None,
        };
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.closed(cx, id, why.as_deref());
        }
    }

    /// Ends the links of other nodes, unless a request of theirs waits or runs.
    pub(super) fn end_links(cx: &mut Cx<'_, Conn>) {
        cx.for_each(|conn, io| {
            let Conn::Client(conn) = conn else { return };
            let session = &mut conn.session;
            if session.is_link && session.suspension.is_none() {
                end_link(session, io);
            }
        });
    }

    /// Sends a request to the other nodes that lead a shard.
    pub(super) fn spread(&mut self, cx: &mut Cx<'_, Conn>, request: &[u8]) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.spread(cx, request);
        }
    }

    /// Listens to other nodes for clients that have begun to.
    pub(super) fn listen(&mut self, cx: &mut Cx<'_, Conn>) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.listen(cx);
        }
    }

    /// Gives clients what other nodes have answered.
    pub(super) fn end_turn_of_forwarder(&mut self, cx: &mut Cx<'_, Conn>) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.end_of_turn(cx);
        }
        while let Some(inbox) = self.forwarder.as_mut().and_then(Forwarder::take_events) {
            let Inbox { bytes, events } = &inbox;
            for events in events.chunk_by(Forwarder::belong_together) {
                let Some((id, event)) = events.first() else { continue };
                let connection = Forwarder::connection_of(cx.thread(), *id);
                match event {
                    Event::Heard(place) => listening::hear(self.engine, &bytes[place.clone()]),
                    Event::Reply(_) => {
                        let replies = Forwarder::replies(events);
                        self.answer(cx, connection, replies.map(|place| &bytes[place]));
                    }
                    Event::Finish => {
                        if let Some(mut io) = cx.io(connection) {
                            io.close_after_flush();
                        }
                    }
                    Event::Resume => {
                        if let Some(forwarder) = &mut self.forwarder {
                            forwarder.present_again(cx, *id);
                        }
                    }
                }
            }
            if let Some(forwarder) = &mut self.forwarder {
                forwarder.recycle(inbox);
            }
        }
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.look_for_confirmations(cx);
        }
    }

    /// Gives a client replies, or messages, of other nodes.
    fn answer<'r>(
        &mut self,
        cx: &mut Cx<'_, Conn>,
        id: ConnId,
        replies: impl Iterator<Item = &'r [u8]>,
    ) {
        let Some((conn, mut io)) = client_of(cx, id) else { return };
        let before = io.pending_output();
        for reply in replies {
            if reply.first() == Some(&b'>') {
                // Between two replies. A client that has gone back to RESP2 hears none.
                if conn.session.protocol != Protocol::Resp2 {
                    io.out().extend_from_slice(reply);
                }
                continue;
            }
            let Some(gaps) = &mut conn.gaps else { return };
            if !gaps.fill(&conn.session.reply_from_elsewhere(reply), io.out()) {
                continue;
            }
            self.engine.rate_limits.charge(&mut conn.session, 0, reply.len());
            conn.session.told = conn.session.told.max(gaps.told);
            if conn.session.answered_elsewhere() {
                if gaps.ends {
                    io.close_after_flush();
                }
                if std::mem::take(&mut gaps.waits) && conn.session.suspension.is_none() {
                    io.resume();
                }
            }
        }
        hold_back(self.engine, &mut conn.session, &mut io);
        let written = io.pending_output().saturating_sub(before) as u64;
        self.worker.context().stats().net_out.add_own(written);
        let live = &conn.session.client.live;
        live.net_out.store(live.net_out.load(Relaxed) + written, Relaxed);
        check_output(self.engine, conn, &mut io);
    }

    /// Time has passed.
    pub(super) fn tick_of_forwarder(&mut self, cx: &mut Cx<'_, Conn>, most: Duration) -> Duration {
        let thread = self.thread();
        let Some(forwarder) = &mut self.forwarder else { return most };
        // It looks at all its connections each time.
        let left = self.forwarding.left(cx.now());
        if left > Duration::ZERO {
            return most.min(left);
        }
        if thread == 0 {
            forwarder.tick_of_listening(cx, now());
            forwarder.end_forbidden_waits(cx);
        }
        let pause = forwarder.tick(cx);
        self.forwarding.set(cx.now() + pause);
        most.min(pause)
    }

    /// A client has gone.
    pub(super) fn client_left(&mut self, id: ConnId, conn: &Client, cx: &mut Cx<'_, Conn>) {
        if conn.session.forwarding.is_some()
            && let Some(forwarder) = &mut self.forwarder
        {
            forwarder.left(cx, id);
        }
    }
}
