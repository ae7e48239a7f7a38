//! Requests for slots that move key by key (CLUSTER SETSLOT): ASK, ASKING, TRYAGAIN.
//!
//! While a slot leaves, keys that are not here any more are at the other primary. So the look for
//! them has to be one step with the request: it is made under the locks, or holds, of the request's
//! keys, before the command runs. The gate only says that such a look is needed. A request that
//! finds all its keys runs here; one that finds none is sent on with ASK; one that finds some of
//! them is to be tried again, since its other keys are about to follow.

use crate::args::Args;
use crate::command::Flags;
use crate::cx::Cx;
use crate::error::Error;
use crate::membership::{Open, Published};
use crate::request_keys::{RequestKey, RequestKeys};
use crate::table::Resolved;
use crate::transaction;
use keyspace::{DbIndex, Key};
use spec::Databases;

const MOVING: &str = "TRYAGAIN The slot is about to move";
const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

/// Whether ASKING holds for this request. It ends with it, or with the transaction that begins.
#[cold]
pub(super) fn is_asking(cx: &mut Cx<'_>, row: &Resolved) -> bool {
    let goes_on = match cx.session.multi() {
        Some(_) => !row.command.flags.has(Flags::RUNS_QUEUE),
        // What stands outside a queue, and neither runs nor watches anything, begins one.
        None => row.command.flags.has(Flags::NOT_QUEUED) && !row.command.flags.has(Flags::WATCHES),
    };
    cx.session.asking = goes_on;
    true
}

/// Whether a request for a key of another primary is answered here: the key has arrived, or arrives
/// and the sender knows that.
pub(super) fn is_arriving(open: Option<Open>, is_asking: bool) -> bool {
    match open {
        Some(Open::Arriving) => is_asking,
        Some(Open::Arrived) => true,
        _ => false,
    }
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
    if let Some(number) = cx.session.import() {
        return crate::importing::check_wanted(cx, number);
    }
    let Some(published) = cx.membership() else { return Ok(()) };
    let moves = &cx.engine.membership.moves;
    let is_closed =
        |key: &RequestKey| key.slot(&cx.engine.keyspace).is_some_and(|slot| moves.is_closed(slot));
    if moves.any_closed() && cx.keys.iter().any(is_closed) {
        // It passed its gate before requests for the slot began to wait, and runs on a background
        // thread.
        return Err(Error::Elsewhere(MOVING.into()));
    }
    if !published.has_open() {
        return Ok(());
    }
    let keys = match cx.session.multi() {
        Some(multi) if row.command.flags.has(Flags::RUNS_QUEUE) => {
            let (mut db, databases) = (cx.db.index, cx.engine.keyspace.databases());
            let of_each = multi.queue().iter().map(|queued| {
                let words = queued.words();
                db = transaction::selected_by(queued.row, &words, databases).unwrap_or(db);
                look(cx, &published, (db, queued.row), &words)
            });
            of_each.fold(Found::default(), Found::with)
        }
        _ => look(cx, &published, (cx.db.index, row), args.words()),
    };
    let watched = cx.session.watching.as_ref().filter(|_| row.command.flags.has(Flags::RUNS_QUEUE));
    let watched = watched.into_iter().flat_map(|watching| watching.keys.iter());
    let found = watched
        .fold(keys, |found, (db, key)| found.with(look_at(cx, &published, (*db, Key::new(key)))));
    found.outcome(cx, &published)
}

type TwoKeys = (Box<[u8]>, Box<[u8]>);

/// What was found of a request's keys.
#[derive(Default)]
struct Found {
    /// The slot of a key that leaves, and the number of the shard that it moves to.
    leaving: Option<(u16, u16)>,
    /// A key's slot is arriving.
    arriving: bool,
    present: usize,
    absent: usize,
    /// How many keys are named; one that is named again counts once more only if another is
    /// between.
    distinct: usize,
    last: Option<u64>,
    /// The rule that comes has no slot for this key, which is not here.
    homeless: Option<Box<[u8]>>,
    /// While the rule changes: a key, and the shard that has it then.
    future: Option<(Box<[u8]>, Option<u16>)>,
    /// Two keys that the rule that comes puts on two shards.
    parted: Option<TwoKeys>,
    /// While the rule changes: keys that leave and are here.
    to_send: Vec<Box<[u8]>>,
    /// A command reaches what may have moved or not without its keys: another database than the
    /// selected one, where it makes a key that is expected to be absent, or keys that it does not
    /// name.
    crosses: bool,
}

impl Found {
    fn with(mut self, other: Found) -> Found {
        let is_same = self.last.is_some() && self.last == other.last;
        if let (Some((one, here)), Some((two, there))) = (&self.future, &other.future)
            && here != there
        {
            self.parted = self.parted.or(Some((one.clone(), two.clone())));
        }
        self.to_send.extend(other.to_send);
        Found {
            leaving: self.leaving.or(other.leaving),
            arriving: self.arriving || other.arriving,
            present: self.present + other.present,
            absent: self.absent + other.absent,
            distinct: self.distinct + other.distinct - usize::from(is_same),
            last: other.last.or(self.last),
            homeless: self.homeless.or(other.homeless),
            future: self.future.or(other.future),
            parted: self.parted.or(other.parted),
            to_send: self.to_send,
            crosses: self.crosses || other.crosses,
        }
    }

    /// Whether the request runs here, and where it is sent otherwise.
    fn outcome(self, cx: &Cx<'_>, published: &Published) -> Result<(), Error> {
        if let Some(key) = &self.homeless {
            return Err(Error::unmatched(key));
        }
        match (self.leaving, self.arriving) {
            (leaving, arriving) if self.crosses && (leaving.is_some() || arriving) => {
                Err(Error::Elsewhere(TRY_AGAIN.into()))
            }
            (Some(_), _) if self.absent > 0 && self.parted.is_some() => {
                let (one, other) = self.parted.unwrap_or_default();
                Err(super::one_address::apart(published, &one, &other))
            }
            (Some((slot, to)), _) if self.absent > 0 => {
                if self.present > 0 {
                    cx.engine.membership.rehash.send_first(cx.db.index, self.to_send);
                    return Err(Error::Elsewhere(TRY_AGAIN.into()));
                }
                let node =
                    published.primary_of(to, cx.asker()).ok_or(Error::text(super::slots::DOWN))?;
                Err(Error::Elsewhere(format!("ASK {slot} {}:{}", node.endpoint, node.port)))
            }
            (_, true) if self.absent > 0 && self.distinct > 1 => {
                Err(Error::Elsewhere(TRY_AGAIN.into()))
            }
            _ => Ok(()),
        }
    }
}

/// Looks for the keys of a request for this database.
fn look(
    cx: &Cx<'_>,
    published: &Published,
    (db, row): (DbIndex, &Resolved),
    words: &[&[u8]],
) -> Found {
    let keys = RequestKeys::of(&cx.engine.keyspace, row.command, words);
    let each = keys.iter().map(|key| look_at(cx, published, (db, key.key(words))));
    let mut found = each.fold(Found::default(), Found::with);
    found.crosses = spec::keys::reads_unnamed(row.command, words);
    if let Databases::Named(find) = row.command.databases {
        let databases = cx.engine.keyspace.databases();
        find(words, &mut |word| {
            let named = words.get(word).and_then(|word| transaction::database(word, databases));
            found.crosses |= named.is_some_and(|named| named != db);
        });
    }
    found
}

fn look_at(cx: &Cx<'_>, published: &Published, (db, key): (DbIndex, Key<'_>)) -> Found {
    let mut found = Found { distinct: 1, last: Some(key.hash), ..Found::default() };
    let Some(slot) = published.slot_of(key) else {
        found.homeless = Some(key.bytes.into());
        return found;
    };
    let changes_rule = published.next().is_some();
    if changes_rule {
        found.future = Some((key.bytes.into(), published.future_shard_of(slot, key.bytes)));
    }
    let open = published.open_key(slot, key.bytes);
    let is_here = || cx.db.lookup_no_effects_in(db, key).is_some();
    let is_present = match open {
        // A key of another slot is as good as one that is here.
        None | Some(Open::Arrived) => true,
        Some(Open::Leaving(to)) => {
            found.leaving = Some((slot, to));
            is_here()
        }
        Some(Open::Left(to)) => {
            found.leaving = Some((slot, to));
            false
        }
        // By a change of the rule all that is absent here is nowhere: the sender was there.
        Some(Open::Arriving) if changes_rule => true,
        Some(Open::Arriving) => {
            found.arriving = true;
            is_here()
        }
        Some(Open::Homeless) => {
            let is_here = is_here();
            found.homeless = (!is_here).then(|| key.bytes.into());
            is_here
        }
    };
    let is_unsure = !is_present && cx.engine.membership.rehash.is_unsure(key.hash);
    if changes_rule && is_present && found.leaving.is_some() {
        found.to_send.push(key.bytes.into());
    }
    // Until this server's replicas know that the key has gone, nobody changes it elsewhere.
    let is_present = is_present || is_unsure;
    (found.present, found.absent) = (usize::from(is_present), usize::from(!is_present));
    if is_unsure {
        found.absent += 1;
    }
    found
}

/// Whether a key that a script asks for may be at another primary: it is not here, its slot leaves,
/// and the script has not declared it. Declared keys were here when the script began. Keys without
/// a name may be anywhere while their slot moves.
pub(super) fn lacks_any(
    cx: &Cx<'_>,
    published: Option<&Published>,
    row: &Resolved,
    keys: &RequestKeys,
    args: Args<'_>,
) -> bool {
    let Some(published) = published.filter(|published| published.has_open()) else { return false };
    let declared = cx.attempt.as_ref().map_or(&[][..], |attempt| &attempt.declared_keys);
    let reads_unnamed = spec::keys::reads_unnamed(row.command, args.words());
    keys.iter().any(|key| {
        let name = key.key(args.words());
        let open = published.slot_of(name).and_then(|slot| published.open_key(slot, name.bytes));
        let leaves = matches!(open, Some(Open::Leaving(_) | Open::Left(_)));
        if reads_unnamed && open.is_some() {
            return true;
        }
        // Without the lock the script is about to begin again with it.
        leaves
            && cx.db.locks.held().covers(key.stripe())
            && !declared.contains(&key.hash)
            && (matches!(open, Some(Open::Left(_))) || cx.db.lookup_no_effects(name).is_none())
    })
}
