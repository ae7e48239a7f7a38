//! The commands of vector sets.
//!
//! The journal gets the requests as they are: chance follows from a state in the value.

mod add;
mod answers;
mod attributes;
mod members;
mod numbers;
mod similar;

use engine::{Args, Class, Command, Db, Event, Flags, Group, KeyFlags, KeySpec, event};
use rdb::module::Module;
use vectors::VectorSet;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &add::VADD,
    &answers::VCARD,
    &answers::VDIM,
    &answers::VEMB,
    &attributes::VGETATTR,
    &answers::VINFO,
    &members::VISMEMBER,
    &answers::VLINKS,
    &members::VRANDMEMBER,
    &members::VRANGE,
    &add::VREM,
    &attributes::VSETATTR,
    &similar::VSIM,
];

const ADDED: Event = event(Class::MODULE, "vadd");
const REMOVED: Event = event(Class::MODULE, "vrem");
const ATTRIBUTES_SET: Event = event(Class::MODULE, "vsetattr");

/// Dimensions that are multiplied in one unit of effort.
const UNIT_DIM: usize = 1000;

/// What the rows of reading commands have in common.
const READS: Command = Command {
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Module,
    categories: &["vector"],
    since: "8.0.0",
    ..Command::ROW
};

/// Returns the set of a request's key for an estimate: without counting the read.
fn estimated<'d>(db: &'d Db<'_>, args: Args<'_>) -> Option<&'d VectorSet> {
    db.lookup_no_effects(args.key(1))?.object::<Module>()?.get()
}
