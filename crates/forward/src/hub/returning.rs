//! Requests for slots that are about to move, which a cluster's node gives back
//! (`-TRYAGAIN PAUSED`) instead of letting those of other clients wait behind them. It does so on
//! connections that clients share ([`LinkKey::gives_back`](crate::pool::LinkKey)).
//!
//! Behind such a request the server gives back all others on the same connection that concern its
//! slots, so that none of the same client runs before it. It goes on when it is told that nothing
//! is under way which was sent before ([`raw::AGAIN`]). Therefore new requests take another
//! connection until all on this one are answered. The client's next requests wait meanwhile, and
//! those that came back are sent again one after the other.

use super::Hub;
use super::tag::{Aim, Purpose, Tag};
use super::upstream::Upstream;
use crate::policy::Policy;
use crate::wire::Wire;
use route::raw;
use std::time::Duration;

/// How long a request waits that came back for the first time. Each time doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// How long it waits at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl<P: Policy> Hub<P> {
    /// Hands a reply to its request, or keeps the request, if the server gives it back.
    #[inline]
    pub(super) fn replied<W: Wire>(
        &mut self,
        wire: &mut W,
        up: &mut Upstream,
        tag: Tag,
        reply: &[u8],
    ) {
        self.answering = up.server;
        if matches!(tag.purpose, Purpose::Select(_) | Purpose::Exec) {
            self.selected(up, &tag, reply);
        }
        if tag.purpose == Purpose::Identify {
            up.server_id = raw::integer(reply);
            return;
        }
        let error = reply.strip_prefix(b"-");
        match error.is_some_and(|text| text.starts_with(raw::PAUSED.as_bytes())) {
            true => self.came_back(wire, up, tag, reply),
            false => self.reply(wire, tag, reply),
        }
    }

    #[cold]
    fn came_back<W: Wire>(&mut self, wire: &mut W, up: &mut Upstream, tag: Tag, reply: &[u8]) {
        up.has_returned = true;
        self.set_aside(up);
        let now = wire.now();
        let Purpose::Redirectable(mut kept) = tag.purpose else {
            return self.reply(wire, tag, reply);
        };
        let Some(client) = self.client(tag.client) else { return };
        client.waits_for_all = true;
        client.repeats_in_order = true;
        let pool = client.pool;
        let pause = LONGEST_PAUSE.min(FIRST_PAUSE * (1 << kept.returns.min(8)));
        let longest = self.pools[pool].shared.config.timeout;
        if longest.is_some_and(|longest| pause * kept.returns > longest) {
            return self.reply(wire, Tag { purpose: Purpose::Client, ..tag }, reply);
        }
        kept.returns += 1;
        kept.is_asking = false;
        kept.server = match kept.aim {
            Aim::Server => u16::try_from(up.server).ok(),
            Aim::Key | Aim::Slot(_) => None,
        };
        let tag = Tag { purpose: Purpose::Redirectable(kept), ..tag };
        self.queue_again(pool, now + pause, tag);
    }

    /// Hands a reply to the request that it belongs to.
    #[inline]
    pub(super) fn reply<W: Wire>(&mut self, wire: &mut W, tag: Tag, reply: &[u8]) {
        match tag.purpose {
            Purpose::Client | Purpose::Select(_) | Purpose::Keyed(_) => {}
            Purpose::Redirectable(_) if reply[0] != b'-' => {}
            Purpose::Discard | Purpose::Identify => return,
            Purpose::Relay(number) => return self.relayed(number, reply),
            Purpose::Learn(name) => return self.learned(wire, tag.seq as usize, name, reply),
            Purpose::Redirectable(kept) => {
                let tag = Tag { purpose: Purpose::Client, ..tag };
                return self.redirected(wire, tag, kept, reply);
            }
            Purpose::Streamed => return self.streamed(wire, tag, reply),
            Purpose::Queued | Purpose::Requeued => return self.queued(wire, tag, reply),
            Purpose::Exec => return self.executed(wire, tag, reply),
        }
        self.deliver(wire, tag, reply);
    }
}
