//! Rows of the command table that are run in place: what [`spec`] says of a command, and the
//! function that runs it.

use crate::args::Args;
use crate::cx::Cx;
use crate::db::Db;
use crate::error::Error;
pub use spec::{
    Arg, ArgKind, Begin, Channels, Databases, Find, FindKeys, FindWords, Flags, Group, InvalidKeys,
    KeyFlags, KeySpec, NeedsWorld, ScriptName, Streamed,
};

/// What `run` returns: the reply is in `cx.reply`, or an error that becomes the reply.
pub type Outcome = Result<(), Error>;

/// Runs a command whose gates are passed and whose stripes are locked.
pub type Run = fn(&mut Cx<'_>, Args<'_>) -> Outcome;

/// Commands are run by functions of the context.
#[derive(Clone, Copy, Debug)]
pub struct InPlace;

impl spec::Runner for InPlace {
    type Run = Run;
    type Estimate = fn(&Db<'_>, Args<'_>) -> usize;
    const NOTHING: Run = |_, _| Err(Error::Syntax);
}

/// One row of the command table.
pub type Command = spec::Row<InPlace>;

/// What a command's effort depends on.
pub type Effort = spec::Effort<fn(&Db<'_>, Args<'_>) -> usize>;
