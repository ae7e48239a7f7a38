//! Out-of-band messages in the form that their client reads.

use crate::cx::Cx;
use crate::engine::Engine;
use crate::mailbox::Push;
use crate::pubsub::Space;
use crate::session::{ReplyMode, Session};
use resp::Reply;

/// Messages that a command caused for its own client follow its reply at once, as if they had been
/// written while it ran but after it.
pub(super) fn deliver_own_pushes(cx: &mut Cx<'_>) {
    // A look at all that waits for others is not for nothing.
    let session = &cx.session;
    if !(session.is_subscribed() || session.is_monitor() || session.tracking().is_some()) {
        return;
    }
    deliver_posted(cx);
}

/// For a command that has just ended what messages come from, before it replies: what was posted
/// until then, since nothing may follow the reply. Within a transaction, whose reply has begun, the
/// messages have to wait until that is complete.
pub fn deliver_last_pushes(cx: &mut Cx<'_>) {
    if !cx.in_transaction {
        deliver_posted(cx);
    }
}

fn deliver_posted(cx: &mut Cx<'_>) {
    let mailbox = &cx.engine.mailboxes[cx.thread.index];
    if !mailbox.has_mail() {
        return;
    }
    for push in mailbox.take_pushes(cx.session.id()) {
        write_push(cx.engine, cx.session, &push, &mut cx.reply);
    }
}

/// Encodes an out-of-band message for a client, if that can still take it for what it is. What it
/// tells of may have to be on the disk before.
pub(crate) fn write_push(
    engine: &Engine,
    session: &mut Session,
    push: &Push,
    reply: &mut Reply<'_>,
) {
    let is_taken = match push {
        // CLIENT REPLY is about replies; MONITOR's lines are such.
        Push::Monitor(_) => session.is_monitor() && session.reply_mode() == ReplyMode::On,
        Push::Message { .. } | Push::PatternMessage { .. } | Push::ShardMessage { .. } => {
            reply.is_resp3() || session.is_subscribed()
        }
        // Under RESP2 there is a way to tell only subscribers that this was redirected to.
        Push::Invalidate { is_redirected, .. } => {
            reply.is_resp3() || (*is_redirected && session.is_subscribed())
        }
        Push::TrackingRedirBroken(_) | Push::Notice(_) => reply.is_resp3(),
        Push::ShardUnsubscribed { channel } => end_subscription(engine, session, channel),
    };
    if !is_taken {
        return;
    }
    // MONITOR tells what was asked, not what was done: it goes on beside a stuck disk.
    if engine.safe.holds_replies() && !matches!(push, Push::Monitor(_) | Push::Notice(_)) {
        session.seen = session.seen.max(engine.journal.position());
    }
    match push {
        Push::Message { channel, payload } => {
            reply.push(3);
            reply.bulk(b"message");
            reply.bulk(channel);
            reply.bulk_of(payload, 0..payload.len());
        }
        Push::PatternMessage { pattern, channel, payload } => {
            reply.push(4);
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
            reply.bulk(channel);
            reply.bulk_of(payload, 0..payload.len());
        }
        Push::ShardMessage { channel, payload } => {
            reply.push(3);
            reply.bulk(b"smessage");
            reply.bulk(channel);
            reply.bulk_of(payload, 0..payload.len());
        }
        Push::ShardUnsubscribed { channel } => {
            reply.push(3);
            reply.bulk(b"sunsubscribe");
            reply.bulk(channel);
            reply.integer(session.subscriptions().shard_channels.len() as i64);
        }
        Push::Invalidate { keys, .. } => write_invalidation(keys.as_deref(), reply),
        Push::TrackingRedirBroken(client) => {
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.integer(*client as i64);
        }
        Push::Notice(notice) => reply.raw(notice),
        Push::Monitor(line) => {
            reply.raw(b"+");
            reply.raw(line);
            reply.raw(b"\r\n");
        }
    }
}

/// Ends a subscription to a shard channel whose slot has moved. Returns whether there was one.
fn end_subscription(engine: &Engine, session: &mut Session, channel: &[u8]) -> bool {
    let was_there = session.change_subscriptions(|all| all.shard_channels.remove(channel));
    if was_there {
        engine.pubsub.unsubscribe(Space::ShardChannels, channel, session.id());
        session.discount_subscription(channel);
    }
    was_there
}

fn write_invalidation(keys: Option<&[Box<[u8]>]>, reply: &mut Reply<'_>) {
    if reply.is_resp3() {
        reply.push(2);
        reply.bulk(b"invalidate");
    } else {
        reply.push(3);
        reply.bulk(b"message");
        reply.bulk(b"__redis__:invalidate");
    }
    match keys {
        None => reply.null_array(),
        Some(keys) => {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
    }
}
