//! Requests for slots that move key by key (CLUSTER SETSLOT): ASK, ASKING, TRYAGAIN.
//!
//! While a slot leaves, keys that are not here any more are at the other primary. So the look for them has to be one
//! step with the request: it is made under the locks, or holds, of the request's keys, before the command runs. The gate
//! only says that such a look is needed. A request that finds all its keys runs here; one that finds none is sent on with
//! ASK; one that finds some of them is to be tried again, since its other keys are about to follow.

use crate::args::Args;
use crate::command::Flags;
use crate::cx::Cx;
use crate::error::Error;
use crate::membership::{Open, Published};
use crate::request_keys::RequestKeys;
use crate::table::Resolved;
use keyspace::Key;

const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

/// Whether ASKING holds for this request. It ends with it, or with the transaction that begins.
#[cold]
pub(super) fn is_asking(cx: &mut Cx<'_>, row: &Resolved) -> bool {
    let goes_on = match cx.session.multi {
        Some(_) => !row.command.flags.has(Flags::RUNS_QUEUE),
        // What stands outside a queue, and neither runs nor watches anything, begins one.
        None => row.command.flags.has(Flags::NOT_QUEUED) && !row.command.flags.has(Flags::WATCHES),
    };
    cx.session.asking = goes_on;
    true
}

/// Whether a request for a slot of another primary is answered here, because its keys arrive here and it knows that.
#[cold]
pub(super) fn is_arriving(
    published: Option<&Published>,
    slot: u16,
    is_asking: bool,
    row: &Resolved,
) -> bool {
    let is_open = published
        .is_some_and(|published| published.leads && published.open(slot) == Some(Open::Arriving));
    is_open && (is_asking || row.command.flags.has(Flags::ASKING))
}

/// Looks whether a request's keys are here. Its locks, or holds, are taken.
///
/// # Errors
/// Where to ask instead.
#[cold]
pub(super) fn check(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Error> {
    // What moves keys finds out itself which of them are here.
    if row.command.flags.has(Flags::ASKS_PEER) {
        return Ok(());
    }
    let Some(published) = cx.membership() else { return Ok(()) };
    let keys = match &cx.session.multi {
        Some(multi) if row.command.flags.has(Flags::RUNS_QUEUE) => {
            let queue = multi.queue().iter();
            let of_each = queue.map(|queued| {
                let words: Vec<Box<[u8]>> = queued.words().into_iter().map(Box::from).collect();
                let views: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
                let keys = RequestKeys::of(&cx.engine.keyspace, queued.row.command, &views);
                look(cx, &published, &keys, &views)
            });
            of_each.fold(Found::default(), Found::with)
        }
        _ => {
            let words = args.words();
            let keys = RequestKeys::of(&cx.engine.keyspace, row.command, words);
            look(cx, &published, &keys, words)
        }
    };
    let watched = cx.session.watching.as_ref().filter(|_| row.command.flags.has(Flags::RUNS_QUEUE));
    let watched = watched.map(|watching| watching.keys.iter().map(|key| Key::new(&key.1)));
    let found = watched
        .into_iter()
        .flatten()
        .fold(keys, |found, key| found.with(look_at(cx, &published, key)));
    match (found.leaving, found.arriving) {
        (Some((slot, to)), _) if found.absent > 0 => {
            if found.present > 0 {
                return Err(Error::Elsewhere(TRY_AGAIN.into()));
            }
            let node =
                published.primary_of(to, cx.asker()).ok_or(Error::text(super::slots::DOWN))?;
            Err(Error::Elsewhere(format!("ASK {slot} {}:{}", node.endpoint, node.port)))
        }
        (_, true) if found.absent > 0 && found.distinct > 1 => {
            Err(Error::Elsewhere(TRY_AGAIN.into()))
        }
        _ => Ok(()),
    }
}

/// What was found of a request's keys.
#[derive(Default)]
struct Found {
    /// The slot of a key that leaves, and the number of the shard that it moves to.
    leaving: Option<(u16, u16)>,
    /// A key's slot is arriving.
    arriving: bool,
    present: usize,
    absent: usize,
    /// How many keys are named; one that is named again counts once more only if another is between.
    distinct: usize,
    last: Option<u64>,
}

impl Found {
    fn with(self, other: Found) -> Found {
        let is_same = self.last.is_some() && self.last == other.last;
        Found {
            leaving: self.leaving.or(other.leaving),
            arriving: self.arriving || other.arriving,
            present: self.present + other.present,
            absent: self.absent + other.absent,
            distinct: self.distinct + other.distinct - usize::from(is_same),
            last: other.last.or(self.last),
        }
    }
}

fn look(cx: &Cx<'_>, published: &Published, keys: &RequestKeys, words: &[&[u8]]) -> Found {
    let each = keys.iter().map(|key| look_at(cx, published, key.key(words)));
    each.fold(Found::default(), Found::with)
}

fn look_at(cx: &Cx<'_>, published: &Published, key: Key<'_>) -> Found {
    let slot = cx.engine.keyspace.slot_of(key.hash).map(|slot| slot.number());
    let open = slot.and_then(|slot| Some((slot, published.open(slot)?)));
    let (leaving, arriving) = match open {
        // A key of another slot is as good as one that is here.
        None => (None, false),
        Some((slot, Open::Leaving(to))) => (Some((slot, to)), false),
        Some((_, Open::Arriving)) => (None, true),
    };
    let is_present = open.is_none() || cx.db.lookup_no_effects(key).is_some();
    let (present, absent) = (usize::from(is_present), usize::from(!is_present));
    Found { leaving, arriving, present, absent, distinct: 1, last: Some(key.hash) }
}

/// Whether a key that a script asks for may be at another primary: it is not here, its slot leaves, and the script has
/// not declared it. Declared keys were here when the script began.
pub(super) fn lacks_any(
    cx: &Cx<'_>,
    published: Option<&Published>,
    keys: &RequestKeys,
    args: Args<'_>,
) -> bool {
    let Some(published) = published.filter(|published| published.has_open()) else { return false };
    let declared = cx.attempt.as_ref().map_or(&[][..], |attempt| &attempt.declared_keys);
    keys.iter().any(|key| {
        let leaves = key
            .slot(&cx.engine.keyspace)
            .is_some_and(|slot| matches!(published.open(slot.number()), Some(Open::Leaving(_))));
        // Without the lock the script is about to begin again with it.
        leaves
            && cx.db.locks.held().covers(key.stripe())
            && !declared.contains(&key.hash)
            && cx.db.lookup_no_effects(key.key(args.words())).is_none()
    })
}
