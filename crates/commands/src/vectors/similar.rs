//! `VSIM key (ELE element | FP32 blob | VALUES num number…) [WITHSCORES] [WITHATTRIBS]
//! [COUNT count] [EPSILON delta] [EF ef] [FILTER expression] [FILTER-EF effort] [TRUTH] [NOTHREAD]`
//!
//! Whether a search runs on another thread follows from its effort; NOTHREAD changes nothing.

use super::{READS, numbers};
use crate::typed;
use engine::{Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Flags, Outcome};
use structs::numbers::{parse_f64, parse_i64};
use vectors::{Filter, Search, VectorSet};

/// `VSIM`.
pub static VSIM: Command = Command {
    name: "vsim",
    arity: -4,
    flags: Flags::READONLY,
    complexity: "O(log(N)), where N is the number of elements",
    effort: Effort::Estimate(effort),
    summary: "Returns the elements that are most similar to a vector or an element.",
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "format",
            &[Arg::new("element", ArgKind::String).after("ELE"), numbers::BLOB, numbers::VALUES],
        ),
        Arg::token("withscores", "WITHSCORES").optional(),
        Arg::token("withattribs", "WITHATTRIBS").optional(),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
        Arg::new("max-distance", ArgKind::Double).after("EPSILON").optional(),
        Arg::new("search-exploration-factor", ArgKind::Integer).after("EF").optional(),
        Arg::new("expression", ArgKind::String).after("FILTER").optional(),
        Arg::new("max-filtering-effort", ArgKind::Integer).after("FILTER-EF").optional(),
        Arg::token("truth", "TRUTH").optional(),
        Arg::token("nothread", "NOTHREAD").optional(),
    ],
    run: vsim,
    ..READS
};

const DEFAULT_COUNT: usize = 10;
const DEFAULT_EF: usize = 100;
/// Elements that a filter may look at, for each one that is asked for.
const FILTER_EF_PER_RESULT: usize = 100;

/// What a request asks for behind its vector.
struct VsimOptions<'a> {
    with_scores: bool,
    with_attributes: bool,
    count: usize,
    ef: usize,
    epsilon: f64,
    /// The expression, which only the search itself reads.
    filter: Option<&'a [u8]>,
    filter_ef: Option<usize>,
    exact: bool,
}

/// What is looked for.
enum Query<'a> {
    Element(&'a [u8]),
    Numbers(Vec<f32>),
}

fn vsim(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let set = typed::read::<VectorSet>(&cx.db, args.key(1))?;
    let (query, at) = query(args)?;
    let options = parse(args, at)?;
    let parsed = |text| Filter::parse(text).map_err(|why| unreadable(text, why.0));
    let filter = options.filter.map(parsed).transpose()?;
    let Some(set) = set else {
        if options.is_map(cx.reply.is_resp3()) {
            cx.reply.map(0)
        } else {
            cx.reply.array(0)
        }
        return Ok(());
    };
    let vector = match query {
        Query::Element(name) => {
            let found = set.vector(name).ok_or(Error::text("ERR element not found in set"))?;
            found.0.clone()
        }
        Query::Numbers(numbers) => {
            numbers::check(set, &numbers)?;
            set.form(numbers).0
        }
    };
    let search = Search {
        count: options.count,
        ef: options.ef,
        filter: filter.as_ref(),
        filter_ef: options.filter_ef(),
        exact: options.exact,
    };
    let mut found = set.search(&vector, &search);
    found.retain(|found| found.score >= 1.0 - options.epsilon);
    let columns = 1 + usize::from(options.with_scores) + usize::from(options.with_attributes);
    let is_resp3 = cx.reply.is_resp3();
    if options.is_map(is_resp3) {
        cx.reply.map(found.len());
    } else {
        cx.reply.array(found.len() * columns);
    }
    for found in found {
        cx.reply.bulk(found.name);
        if is_resp3 && columns == 3 {
            cx.reply.array(2);
        }
        if options.with_scores {
            cx.reply.double(found.score);
        }
        if options.with_attributes {
            cx.reply.bulk_or_null(found.attributes);
        }
    }
    Ok(())
}

impl VsimOptions<'_> {
    /// Returns whether the reply of names with what belongs to them is a map.
    fn is_map(&self, is_resp3: bool) -> bool {
        is_resp3 && (self.with_scores || self.with_attributes)
    }

    /// Returns how many elements the filter may look at. 0 in the request is all.
    fn filter_ef(&self) -> usize {
        let usual = || self.count.saturating_mul(FILTER_EF_PER_RESULT);
        match self.filter_ef.unwrap_or_else(usual) {
            0 => usize::MAX,
            most => most,
        }
    }
}

fn query(args: Args<'_>) -> Result<(Query<'_>, usize), Error> {
    if args.is(2, "ele") {
        let name = args.get(3).ok_or(numbers::INVALID)?;
        return Ok((Query::Element(name), 4));
    }
    let (numbers, end) = numbers::read(args, 2)?;
    Ok((Query::Numbers(numbers), end))
}

fn parse(args: Args<'_>, mut at: usize) -> Result<VsimOptions<'_>, Error> {
    let mut options = VsimOptions {
        with_scores: false,
        with_attributes: false,
        count: DEFAULT_COUNT,
        ef: DEFAULT_EF,
        epsilon: 2.0,
        filter: None,
        filter_ef: None,
        exact: false,
    };
    while at < args.len() {
        let next = args.get(at + 1);
        let number = next.and_then(parse_i64);
        let positive = number.filter(|&number| number > 0).map(|number| number as usize);
        let has_value = next.is_some();
        if args.is(at, "withscores") {
            options.with_scores = true;
        } else if args.is(at, "withattribs") {
            options.with_attributes = true;
        } else if args.is(at, "truth") {
            options.exact = true;
        } else if args.is(at, "nothread") {
        } else if args.is(at, "count") && has_value {
            options.count = positive.ok_or(Error::text("ERR invalid COUNT"))?;
            at += 1;
        } else if args.is(at, "ef") && has_value {
            options.ef = positive.ok_or(Error::text("ERR invalid EF"))?;
            at += 1;
        } else if args.is(at, "epsilon") && has_value {
            let epsilon = next.and_then(parse_f64).filter(|&epsilon| epsilon > 0.0);
            options.epsilon = epsilon.ok_or(Error::text("ERR invalid EPSILON"))?;
            at += 1;
        } else if args.is(at, "filter-ef") && has_value {
            let effort = number.and_then(|number| usize::try_from(number).ok());
            options.filter_ef = Some(effort.ok_or(Error::text("ERR invalid FILTER-EF"))?);
            at += 1;
        } else if let Some(text) = next.filter(|_| args.is(at, "filter")) {
            options.filter = Some(text);
            at += 1;
        } else {
            return Err(Error::text("ERR syntax error in VSIM command"));
        }
        at += 1;
    }
    Ok(options)
}

/// Returns the error of an expression that is not understood from a place on.
fn unreadable(text: &[u8], at: usize) -> Error {
    let rest = String::from_utf8_lossy(&text[at.min(text.len())..]);
    let shown: String = rest.chars().filter(|sign| !sign.is_control()).take(64).collect();
    Error::format(format!("ERR syntax error in FILTER expression near: {shown}"))
}

/// A search compares with `ef` elements and the neighbours of each; with all if it is exact.
fn effort(db: &Db<'_>, args: Args<'_>) -> usize {
    let Some(set) = super::estimated(db, args) else { return 0 };
    let Some(at) = numbers::end(args, 2) else { return 0 };
    let Ok(options) = parse(args, at) else { return 0 };
    let ef = options.ef.max(options.count);
    let mut compared = if options.exact { set.len() } else { ef.saturating_mul(set.links()) };
    if options.filter.is_some() {
        // Parsing attributes takes longer than a distance.
        compared = compared.max(options.filter_ef()).saturating_mul(10);
    }
    compared.min(set.len().saturating_mul(10)).saturating_mul(1 + set.dim() / super::UNIT_DIM)
}
