//! `KEYS pattern`
//!
//! Over a big keyspace it runs on the background thread, which locks one stripe at a time, so that
//! nobody waits for it; it then returns, like SCAN, every key that is there throughout. Inside MULTI
//! it runs in place, in a world that stands still.

use engine::Db;
use engine::blocking::{Resumption, Suspension, TimeoutReply};
use engine::mailbox::Message;
use engine::{
    Arg, ArgKind, Args, Command, Cx, DbIndex, Engine, Flags, Group, Millis, Outcome, Protocol,
};
use resp::Reply;
use structs::glob::{self, Case};

/// `KEYS`.
pub static KEYS: Command = Command {
    name: "keys",
    arity: 2,
    flags: Flags::READONLY.with(Flags::WALKS),
    group: Group::Generic,
    categories: &["dangerous"],
    since: "1.0.0",
    complexity: "O(N) with N being the number of keys in the database, under the \
        assumption that the key names in the database and the given pattern have limited \
        length.",
    summary: "Returns all key names that match a pattern.",
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    args: &[Arg::new("pattern", ArgKind::Pattern)],
    run: keys,
    ..Command::ROW
};

/// Keyspaces of at most so many keys are searched in place.
const IN_PLACE: usize = 20_000;

fn keys(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let pattern = args[1];
    if cx.in_transaction || cx.engine.key_count(cx.db.index, &cx.db) <= IN_PLACE {
        let now = cx.now();
        search(&cx.db, cx.db.index, now, pattern, &mut cx.reply);
        return Ok(());
    }
    let engine = cx.thread.engine;
    let (db, protocol) = (cx.db.index, cx.reply.protocol());
    let (client, thread) = (cx.session.id(), cx.session.client.thread);
    let token = cx.thread.suspend(cx.session, Suspension::background(TimeoutReply::NullArray));
    let pattern = pattern.to_vec();
    engine.background.run(
        engine,
        Box::new(move |engine| {
            let reply = in_background(engine, db, protocol, &pattern);
            let resumption = Resumption { token: Some(token), reply };
            engine.mailboxes[thread].post(Message::Resume(client, resumption));
        }),
    );
    Ok(())
}

fn in_background(
    engine: &'static Engine,
    db: DbIndex,
    protocol: Protocol,
    pattern: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    engine::worker::with_background_db(engine, |view| {
        let now = view.now();
        search(view, db, now, pattern, &mut Reply::new(&mut out, protocol));
    });
    out
}

fn search(view: &Db<'_>, db: DbIndex, now: Millis, pattern: &[u8], reply: &mut Reply<'_>) {
    let mut count = 0;
    let place = reply.deferred();
    let all = pattern == b"*";
    view.for_each_stripe(|_, stripe| {
        for entry in stripe.db(db).entries().iter() {
            let matches = all || glob::matches(pattern, entry.key(), Case::Sensitive);
            if matches && !entry.is_expired(now) {
                reply.bulk(entry.key());
                count += 1;
            }
        }
    });
    reply.finish_array(place, count);
}
