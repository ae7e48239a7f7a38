//! The commands of time series.
//!
//! A series that has rules writes to others. Their keys are not among the request's words: they are
//! [held](engine::Db::hold_also) beside its own, before anything changes. The journal gets what
//! they are changed to, so where history is repeated no rule runs.

mod add;
mod compaction;
mod create;
mod del;
mod gather;
mod get;
mod grouping;
mod incrby;
mod info;
mod mrange;
mod nrange;
mod options;
mod policy;
mod query;
mod queryindex;
mod range;
mod read;
pub(crate) mod renaming;
mod replies;
mod rules;
mod search;

use engine::{Class, Command, Error, Event, Flags, Group, KeyFlags, KeySpec, event};
use structs::numbers::parse_i64;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &create::CREATE,
    &create::ALTER,
    &add::ADD,
    &add::MADD,
    &incrby::INCRBY,
    &incrby::DECRBY,
    &del::DEL,
    &rules::CREATERULE,
    &rules::DELETERULE,
    &get::GET,
    &get::MGET,
    &range::RANGE,
    &range::REVRANGE,
    &mrange::MRANGE,
    &mrange::MREVRANGE,
    &nrange::NRANGE,
    &nrange::NREVRANGE,
    &read::READ,
    &info::INFO,
    &queryindex::QUERYINDEX,
    &queryindex::QUERYLABELS,
];

const NO_KEY: Error = Error::text("ERR TSDB: the key does not exist");
const BAD_TIME: Error = Error::text("ERR TSDB: invalid timestamp, must be a nonnegative integer");

/// Returns the event of a command.
const fn series_event(name: &'static str) -> Event {
    event(Class::MODULE, name)
}

/// What the rows of commands that change one series have in common.
const WRITES: Command = Command {
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::REACHES),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["timeseries"],
    since: "1.0.0",
    ..Command::ROW
};

/// What the rows of commands that read one series have in common.
const READS: Command = Command {
    flags: Flags::READONLY.with(Flags::REACHES),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["timeseries"],
    since: "1.0.0",
    ..Command::ROW
};

/// What the rows of commands that find series by labels have in common.
const FINDS: Command = Command {
    flags: Flags::READONLY.with(Flags::WALKS),
    group: Group::Module,
    categories: &["timeseries"],
    since: "1.0.0",
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    ..Command::ROW
};

/// Tips of what finds series, and whose replies are not simply put together.
const JOINED: &[&str] =
    &["request_policy:all_shards", "response_policy:special", "nondeterministic_output_order"];

/// Returns a word as a number that is not negative.
fn whole(word: &[u8]) -> Option<u64> {
    parse_i64(word).and_then(|number| u64::try_from(number).ok())
}
