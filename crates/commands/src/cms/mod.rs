//! The commands of the group `cms`: count-min sketches.

mod counts;
mod init;
mod merge;

use engine::{Class, Command, Error, Event, event};

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &init::CMS_INITBYDIM,
    &init::CMS_INITBYPROB,
    &counts::CMS_INCRBY,
    &counts::CMS_QUERY,
    &counts::CMS_INFO,
    &merge::CMS_MERGE,
];

const CREATED: Event = event(Class::MODULE, "cms.init");
const COUNTED: Event = event(Class::MODULE, "cms.incrby");
const MERGED: Event = event(Class::MODULE, "cms.merge");

const NO_KEY: Error = Error::text("CMS: key does not exist");
