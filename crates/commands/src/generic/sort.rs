//! `SORT key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC | DESC] [ALPHA] [STORE key]`
//! and `SORT_RO`
//!
//! Which keys the patterns of BY and GET name is known only when the elements are read, so a
//! request with such a pattern runs in a stopped world; any other locks its own keys. In a cluster
//! these keys must be in the slot of `key`: a hash tag before the `*` makes sure of that.
//!
//! A big collection that needs nothing but itself is sorted on a background thread.

mod keys;
mod order;
mod pattern;

use crate::limits;
use engine::dispatch;
use engine::{
    Arg, ArgKind, Args, Begin, Class, Command, Cx, Db, Effort, Error, Event, Find, Flags, Group,
    Key, KeyFlags, KeySpec, Outcome, event,
};
use keyspace::{Entry, Kind, Value};
use order::{Order, Strings, Weights};
use pattern::Pattern;
use resp::Reply;
use std::ops::Range;
use structs::give_way::give_way;
use structs::list::List;
use structs::set::Set;
use structs::zset::Zset;

// Patterns stand for the keys of the second specification.
const BY: Arg = Arg {
    key_spec: Some(1),
    ..Arg::new("by-pattern", ArgKind::Pattern).after("BY").optional().shown_as("pattern")
};
const GET: Arg = Arg {
    key_spec: Some(1),
    ..Arg::new("get-pattern", ArgKind::Pattern)
        .after("GET")
        .optional()
        .multiple_token()
        .shown_as("pattern")
};
const LIMIT: Arg = Arg::block(
    "limit",
    &[Arg::new("offset", ArgKind::Integer), Arg::new("count", ArgKind::Integer)],
)
.after("LIMIT")
.optional();
const ORDER: Arg =
    Arg::one_of("order", &[Arg::token("asc", "ASC"), Arg::token("desc", "DESC")]).optional();
const ALPHA: Arg = Arg::token("sorting", "ALPHA").optional();

const COLLECTION: KeySpec = KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS));
const NAMED_BY_PATTERNS: KeySpec =
    KeySpec::new(KeyFlags::RO.with(KeyFlags::ACCESS), Begin::Unknown, Find::Unknown).note(
        "For the optional BY/GET keyword. It is marked 'unknown' because \
          the key names derive from the content of the key we sort",
    );

/// `SORT`.
pub static SORT: Command = Command {
    name: "sort",
    arity: -2,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        COLLECTION,
        NAMED_BY_PATTERNS,
        KeySpec::new(KeyFlags::OW.with(KeyFlags::UPDATE), Begin::Unknown, Find::Unknown).note(
            "For the optional STORE keyword. It is marked 'unknown' because the \
              keyword can appear anywhere in the argument array",
        ),
    ],
    group: Group::Generic,
    categories: &["-keyspace", "set", "sortedset", "list", "dangerous"],
    since: "1.0.0",
    complexity: "O(N+M*log(M)) for N elements of which M are returned, O(N) if they are not sorted",
    effort: Effort::Estimate(estimate),
    summary: "Puts the elements of a collection in order; can keep the result.",
    find_keys: Some(keys::find_keys),
    key_prefixes: Some(keys::find_prefixes),
    args: &[
        Arg::key("key", 0),
        BY,
        LIMIT,
        GET,
        ORDER,
        ALPHA,
        Arg::key("destination", 2).after("STORE").optional(),
    ],
    run: sort,
    ..Command::ROW
};

/// `SORT_RO`.
pub static SORT_RO: Command = Command {
    name: "sort_ro",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[COLLECTION, NAMED_BY_PATTERNS],
    group: Group::Generic,
    categories: &["-keyspace", "set", "sortedset", "list", "dangerous"],
    since: "7.0.0",
    complexity: "O(N+M*log(M)) for N elements of which M are returned, O(N) if they are not sorted",
    effort: Effort::Estimate(estimate),
    summary: "Puts the elements of a collection in order, for reading.",
    find_keys: Some(keys::find_keys_ro),
    key_prefixes: Some(keys::find_prefixes),
    args: &[Arg::key("key", 0), BY, LIMIT, GET, ORDER, ALPHA],
    run: sort_ro,
    ..Command::ROW
};

const SORT_STORE: Event = event(Class::LIST, "sortstore");

/// A request, taken apart.
struct Request<'a> {
    by: By<'a>,
    gets: Vec<Pattern<'a>>,
    descending: bool,
    alpha: bool,
    offset: i64,
    /// Negative: all.
    count: i64,
    /// The word that names the destination.
    store: Option<usize>,
    /// The first option whose pattern stands for any key.
    reaches_any_key: Option<&'static str>,
    /// A script asks, whose result must not depend on how a set lies in memory.
    is_script: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By<'a> {
    Element,
    /// BY a pattern that is the same for all: they stay as they lie.
    Nothing,
    Pattern(Pattern<'a>),
}

/// What was read of the collection.
struct Loaded {
    elements: Strings,
    /// The part of them that is asked for.
    range: Range<usize>,
    /// How to sort them; `None` if they stay as they are.
    order: Option<Order>,
}

/// The elements that are asked for, as indexes, in the order that is asked for.
struct Sorted {
    elements: Strings,
    indexes: Vec<usize>,
}

impl<'a> Request<'a> {
    fn parse(args: Args<'a>, may_store: bool) -> Result<Request<'a>, Error> {
        let mut request = Request {
            by: By::Element,
            gets: Vec::new(),
            descending: false,
            alpha: false,
            offset: 0,
            count: -1,
            store: None,
            reaches_any_key: None,
            is_script: false,
        };
        let mut at = 2;
        while at < args.len() {
            let left = args.len() - at - 1;
            if args.is(at, "asc") {
                request.descending = false;
            } else if args.is(at, "desc") {
                request.descending = true;
            } else if args.is(at, "alpha") {
                request.alpha = true;
            } else if args.is(at, "limit") && left >= 2 {
                request.offset = args.integer(at + 1)?;
                request.count = args.integer(at + 2)?;
                at += 2;
            } else if may_store && args.is(at, "store") && left >= 1 {
                request.store = Some(at + 1);
                at += 1;
            } else if args.is(at, "by") && left >= 1 {
                // One constant pattern among several is enough.
                if request.by != By::Nothing {
                    request.by = match Pattern::by(args[at + 1]) {
                        Pattern::Constant => By::Nothing,
                        pattern => {
                            request.reaches_any_key.get_or_insert("BY");
                            By::Pattern(pattern)
                        }
                    };
                }
                at += 1;
            } else if args.is(at, "get") && left >= 1 {
                request.reaches_any_key.get_or_insert("GET");
                request.gets.push(Pattern::get(args[at + 1]));
                at += 1;
            } else {
                return Err(Error::Syntax);
            }
            at += 1;
        }
        Ok(request)
    }

    /// The places that LIMIT asks for among `len`.
    fn range(&self, len: usize) -> Range<usize> {
        let clamp = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX).min(len);
        let start = clamp(self.offset);
        let count = if self.count < 0 { len } else { clamp(self.count) };
        start..(start + count).min(len)
    }

    /// Reads the elements. Of a list or sorted set that is not to be sorted, only those that are
    /// asked for.
    fn load(&self, db: &Db<'_>, entry: Option<&Entry>) -> Result<Loaded, Error> {
        let mut elements = Strings::default();
        let mut range = self.range(entry.map_or(0, len));
        let sorts = self.by != By::Nothing;
        let order = Order {
            descending: self.descending,
            whole_texts: self.store.is_some(),
            keeps_equals: true,
        };
        let mut order = sorts.then_some(order);
        let Some(entry) = entry else { return Ok(Loaded { elements, range, order }) };
        if let Some(list) = entry.view::<List>() {
            if sorts {
                let all = list.iter().take_while(|_| db.is_wanted());
                all.for_each(|element| elements.push_element(element));
            } else if !range.is_empty() {
                let iter = if self.descending {
                    list.iter_back_from(list.len() - 1 - range.start)
                } else {
                    list.iter_from(range.start)
                };
                iter.take(range.len()).for_each(|element| elements.push_element(element));
                range = 0..range.len();
            }
        } else if let Some(set) = entry.view::<Set>() {
            let all = set.iter().take_while(|_| db.is_wanted());
            all.for_each(|element| elements.push_element(element));
            // What is stored must not depend on how the set happens to lie in memory.
            let stores = self.store.is_some();
            if sorts || stores || self.is_script {
                order = Some(Order {
                    descending: self.descending,
                    whole_texts: stores,
                    keeps_equals: false,
                });
            }
        } else if let Some(zset) = entry.view::<Zset>() {
            if sorts {
                let all = zset.iter().take_while(|_| db.is_wanted());
                all.for_each(|(element, _)| elements.push_element(element));
            } else if self.descending {
                let ranks = zset.len() - range.end..zset.len() - range.start;
                zset.range(ranks).rev().for_each(|(element, _)| elements.push_element(element));
                range = 0..range.len();
            } else {
                let part = zset.range(range.clone());
                part.for_each(|(element, _)| elements.push_element(element));
                range = 0..range.len();
            }
        } else {
            return Err(Error::WrongType);
        }
        Ok(Loaded { elements, range, order })
    }

    /// The elements, sorted; `None` if they are no longer wanted.
    fn sorted(
        &self,
        db: &Db<'_>,
        args: Args<'_>,
        find: &pattern::Find<'_>,
    ) -> Result<Option<Sorted>, Error> {
        let loaded = self.load(db, db.lookup_read(args.key(1)))?;
        if !db.is_wanted() {
            // It may be only a part.
            return Ok(None);
        }
        let sorted = self.sort(db, loaded, find)?;
        Ok(db.is_wanted().then_some(sorted))
    }

    fn sort(&self, db: &Db<'_>, loaded: Loaded, find: &pattern::Find<'_>) -> Result<Sorted, Error> {
        let Loaded { elements, range, order } = loaded;
        let indexes = match order {
            None => range.collect(),
            Some(order) => {
                let weights = self.weigh(&elements, find)?;
                order::sort(&elements, &weights, order, range, || db.is_wanted())
            }
        };
        Ok(Sorted { elements, indexes })
    }

    fn weigh(&self, elements: &Strings, find: &pattern::Find<'_>) -> Result<Weights, Error> {
        let all = (0..elements.len()).map(|index| {
            if index % 1024 == 1023 {
                give_way();
            }
            elements.get(index)
        });
        let By::Pattern(pattern) = self.by else {
            // A set whose order is forced is sorted by its members' bytes.
            return Ok(if self.alpha || self.by == By::Nothing {
                Weights::Elements
            } else {
                Weights::Numbers(all.map(order::number).collect::<Result<_, _>>()?)
            });
        };
        let mut name = Vec::new();
        if self.alpha {
            let (mut texts, mut missing) = (Strings::default(), Vec::new());
            for element in all {
                pattern.visit(find, element, &mut name, |text| {
                    texts.push(text.unwrap_or_default());
                    missing.push(text.is_none());
                });
            }
            return Ok(Weights::Texts { texts, missing });
        }
        let number = |text: Option<&[u8]>| text.map_or(Ok(0.0), order::number);
        let numbers = all.map(|element| pattern.visit(find, element, &mut name, number));
        Ok(Weights::Numbers(numbers.collect::<Result<_, _>>()?))
    }

    /// Number of values in the result.
    fn values(&self, sorted: &Sorted) -> usize {
        sorted.indexes.len() * self.gets.len().max(1)
    }

    /// Calls `visit` with every value of the result.
    fn for_each_value(
        &self,
        sorted: &Sorted,
        find: &pattern::Find<'_>,
        mut visit: impl FnMut(Option<&[u8]>),
    ) {
        let mut name = Vec::new();
        for &index in &sorted.indexes {
            let element = sorted.elements.get(index);
            if self.gets.is_empty() {
                visit(Some(element));
            }
            for get in &self.gets {
                get.visit(find, element, &mut name, &mut visit);
            }
        }
    }

    fn write(&self, sorted: &Sorted, find: &pattern::Find<'_>, reply: &mut Reply<'_>) {
        reply.array(self.values(sorted));
        self.for_each_value(sorted, find, |value| reply.bulk_or_null(value));
    }
}

/// Number of elements of what can be sorted.
fn len(entry: &Entry) -> usize {
    if matches!(entry.kind(), Kind::List | Kind::Set | Kind::Zset) { entry.elements() } else { 0 }
}

/// How much there is to sort or, if nothing has to be sorted, to copy.
fn estimate(db: &Db<'_>, args: Args<'_>) -> usize {
    let Ok(request) = Request::parse(args, true) else { return 0 };
    let key = args.key(1);
    let is_set = db.lookup_no_effects(key).is_some_and(|entry| entry.kind() == Kind::Set);
    let len = db.size(key);
    if request.by == By::Nothing && !is_set {
        request.range(len).len().saturating_mul(2)
    } else {
        len.saturating_mul(8)
    }
}

fn sort(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut request = Request::parse(args, true)?;
    request.is_script = cx.script.is_some();
    check_patterns(cx, args, &request)?;
    match request.store {
        Some(destination) => store(cx, args, &request, args.key(destination)),
        None => answer(cx, args, &request),
    }
}

fn sort_ro(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let mut request = Request::parse(args, false)?;
    request.is_script = cx.script.is_some();
    check_patterns(cx, args, &request)?;
    answer(cx, args, &request)
}

/// Checks that the keys which patterns name may be read here. In a cluster they are in the slot of
/// the sorted key, however many shards there are now; and the user may read all keys.
fn check_patterns(cx: &mut Cx<'_>, args: Args<'_>, request: &Request<'_>) -> Outcome {
    let by = match request.by {
        By::Pattern(pattern) => Some(("BY", pattern)),
        _ => None,
    };
    let gets = request.gets.iter().map(|&pattern| ("GET", pattern));
    for (option, pattern) in by.into_iter().chain(gets) {
        if let Pattern::Value { before, .. } = pattern
            && !cx.shares_slot_with_all(args.key(1), before)
        {
            return Err(Error::format(format!(
                "ERR {option} option of SORT denied in Cluster mode when keys formed by the pattern \
                 may be in different slots."
            )));
        }
    }
    match request.reaches_any_key {
        Some(option) if !dispatch::may_read_any_key(cx, args) => Err(Error::format(format!(
            "ERR {option} option of SORT denied due to insufficient ACL permissions."
        ))),
        _ => Ok(()),
    }
}

fn answer(cx: &mut Cx<'_>, args: Args<'_>, request: &Request<'_>) -> Outcome {
    let db = &cx.db;
    let find = |name: &[u8]| Some((db.value(Key::new(name))?, db.horizon()));
    let Some(sorted) = request.sorted(db, args, &find)? else { return Ok(()) };
    request.write(&sorted, &find, &mut cx.reply);
    db.check_values()
}

fn store(cx: &mut Cx<'_>, args: Args<'_>, request: &Request<'_>, to: Key<'_>) -> Outcome {
    let limits = limits::list(&cx.engine.config, &cx.engine.debug);
    let db = &cx.db;
    let find = |name: &[u8]| Some((db.value(Key::new(name))?, db.horizon()));
    let Some(sorted) = request.sorted(db, args, &find)? else { return Ok(()) };
    let mut list = List::builder();
    request.for_each_value(&sorted, &find, |value| list.append(value.unwrap_or_default(), &limits));
    db.check_values()?;
    let values = request.values(&sorted);
    if values == 0 {
        cx.db.delete(to);
    } else {
        cx.db.put(to, Value::List(list.finish(&limits)), None);
        cx.db.changed_in(to, SORT_STORE, values as u64);
    }
    cx.reply.integer(values as i64);
    Ok(())
}
