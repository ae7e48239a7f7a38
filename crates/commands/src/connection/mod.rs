//! The commands of the group `connection`, one file each or a tight family.

mod auth;
mod echo;
mod hello;
mod names;
mod ping;
mod quit;
mod reset;
mod select;

use engine::Command;

pub(crate) use select::parse_db;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &auth::AUTH,
    &hello::HELLO,
    &reset::RESET,
    &quit::QUIT,
    &select::SELECT,
    &echo::ECHO,
    &ping::PING,
];
