//! `XREAD [COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK milliseconds] STREAMS key [key …]
//! id [id …]`
//!
//! MAXSIZE counts the bytes of fields and values. The first entry is sent whatever its size, or a
//! reader could never go on.

use super::read_options::{self, StreamReadOptions, names_block};
use super::xreadgroup::XREADGROUP;
use super::{entries, ids};
use engine::blocking::TimeoutReply;
use engine::routing::Routing;
use engine::{
    Arg, ArgKind, Args, Begin, Command, Cx, Db, Effort, Error, Find, Flags, Group, KeyFlags,
    KeySpec, Outcome,
};
use std::ops::ControlFlow;
use structs::stream::{Range, Stream, StreamId};

/// `XREAD`.
pub static XREAD: Command = Command {
    name: "xread",
    arity: -4,
    flags: Flags::READONLY.with(Flags::BLOCKING),
    keys: &[KeySpec::new(
        KeyFlags::RO.with(KeyFlags::ACCESS),
        Begin::Keyword("STREAMS", 1),
        Find::Range { last: -1, step: 1, limit: 2 },
    )],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "",
    effort: Effort::Estimate(effort),
    summary: "Entries behind the given IDs; can wait for some.",
    args: &[
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
        Arg::new("maxcount", ArgKind::Integer).after("MAXCOUNT").optional().since("8.10.0"),
        Arg::new("maxsize", ArgKind::Integer).after("MAXSIZE").optional().since("8.10.0"),
        Arg::new("milliseconds", ArgKind::Integer).after("BLOCK").optional(),
        Arg::block(
            "streams",
            &[Arg::key("key", 0).multiple(), Arg::new("id", ArgKind::String).multiple()],
        )
        .after("STREAMS"),
    ],
    routing: Routing::USUAL.waits_if(names_block),
    run: xread,
    ..Command::ROW
};

/// How much XREAD and XREADGROUP may read.
pub(super) fn effort(db: &Db<'_>, args: Args<'_>) -> usize {
    // Only keys that the specification finds are locked.
    let mut keys = Vec::new();
    let row = if args.is(0, "xread") { &XREAD } else { &XREADGROUP };
    let found = engine::keys::for_each_key(row, args.words(), |word, _| keys.push(word));
    let Some(&first) = keys.first().filter(|_| found.is_ok()) else { return 0 };
    let count =
        (1..first).find(|&at| args.is(at, "count")).and_then(|at| args.integer(at + 1).ok());
    let most = match usize::try_from(count.unwrap_or(0)) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(count) => count,
    };
    let sizes = keys.iter().map(|&key| db.size(args.key(key)).min(most));
    sizes.fold(0usize, usize::saturating_add).saturating_mul(EACH)
}

/// What an entry of a few fields takes.
const EACH: usize = 6;

fn xread(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = read_options::parse(cx, args, false)?;
    let mut starts = Vec::with_capacity(options.keys);
    for index in 0..options.keys {
        starts.push(start(cx, args, &options, index)?);
    }
    let place = cx.reply.deferred();
    let mut served = 0;
    let mut left = Left::of(&options);
    for (index, &after) in starts.iter().enumerate() {
        served += usize::from(serve(cx, args, &options, index, after, &mut left)?);
    }
    if served > 0 {
        finish(cx, place, served);
        return Ok(());
    }
    let Some(deadline) = options.block else {
        cx.reply.null_array();
        return Ok(());
    };
    // When it runs again, `$` still means what it means now; `+` does not.
    let mut words: Vec<Box<[u8]>> = args.words().iter().map(|&word| word.into()).collect();
    for (index, id) in starts.iter().enumerate() {
        let at = options.keys_at + options.keys + index;
        if args[at] == b"+" {
            continue;
        }
        words[at] = id.with_text(|text| text.into());
    }
    let keys = &args.words()[options.keys_at..options.keys_at + options.keys];
    cx.block_as(keys, deadline, TimeoutReply::NullArray, words)
}

/// Ends the reply: pairs of a key and its entries.
pub(super) fn finish(cx: &mut Cx<'_>, place: resp::Deferred, served: usize) {
    if cx.reply.is_resp3() {
        cx.reply.finish_map(place, served);
    } else {
        cx.reply.finish_array(place, served);
    }
}

/// Begins a key's part of the reply.
pub(super) fn begin_key(cx: &mut Cx<'_>, key: &[u8]) {
    if !cx.reply.is_resp3() {
        cx.reply.array(2);
    }
    cx.reply.bulk(key);
}

/// The ID that a stream is read after. For `+` it is the one in front of the last ID that was ever
/// given: an entry that has been deleted since, or an ID that XSETID has set, is the last one, too.
fn start(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    options: &StreamReadOptions<'_>,
    index: usize,
) -> Result<StreamId, Error> {
    let stream = cx.db.read::<Stream>(options.key(args, index))?;
    let last = stream.map_or(StreamId::MIN, |stream| stream.counters().last_id);
    Ok(match options.id(args, index) {
        b"$" => last,
        b"+" => last.previous().unwrap_or(StreamId::MIN),
        b">" => {
            return Err(Error::text(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                 <group> <consumer> option.",
            ));
        }
        word => ids::strict(word, 0)?,
    })
}

/// What the streams that follow may still add to the reply.
struct Left {
    entries: usize,
    bytes: usize,
    is_first: bool,
}

impl Left {
    fn of(options: &StreamReadOptions<'_>) -> Left {
        let (entries, bytes) = (options.most_entries, options.most_bytes);
        let all = |most: Option<usize>| most.unwrap_or(usize::MAX);
        Left { entries: all(entries), bytes: all(bytes), is_first: true }
    }

    /// Takes the entries of a range that may go into the reply, `count` at most. Returns how many.
    fn take(&mut self, stream: &Stream, range: Range, count: usize) -> usize {
        let count = count.min(self.entries);
        if self.entries == usize::MAX && self.bytes == usize::MAX {
            return count;
        }
        let mut taken = 0;
        stream.walk(range, |_, fields| {
            let sizes = fields
                .map(|(name, value)| name.with_bytes(<[u8]>::len) + value.with_bytes(<[u8]>::len));
            let size: usize = sizes.sum();
            if taken == count {
                return ControlFlow::Break(());
            }
            if size > self.bytes && !self.is_first {
                // Nor may a smaller entry of another stream overtake this one.
                self.entries = taken;
                return ControlFlow::Break(());
            }
            self.bytes = self.bytes.saturating_sub(size);
            self.is_first = false;
            taken += 1;
            ControlFlow::Continue(())
        });
        self.entries -= taken;
        taken
    }
}

/// Writes a key's entries; `false` if there are none.
fn serve(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    options: &StreamReadOptions<'_>,
    index: usize,
    after: StreamId,
    left: &mut Left,
) -> Result<bool, Error> {
    let key = options.key(args, index);
    let Some(stream) = cx.db.object_for_write::<Stream>(key)? else { return Ok(false) };
    if stream.edge(true).is_none_or(|last| last <= after) {
        return Ok(false);
    }
    let range = Range::between(after.next().unwrap_or(StreamId::MAX), StreamId::MAX);
    let count = left.take(stream, range, options.limit());
    if count == 0 {
        return Ok(false);
    }
    begin_key(cx, key.bytes);
    let Cx { db, reply, .. } = cx;
    if let Some(stream) = db.object_for_write::<Stream>(key)? {
        entries::write_range(reply, stream, range, count);
    }
    Ok(true)
}
