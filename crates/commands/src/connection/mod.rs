//! The commands of the group `connection`, one file each or a tight family.

mod auth;
mod client;
mod echo;
mod hello;
pub(crate) mod list_line;
mod names;
mod ping;
mod quit;
mod reset;
mod select;

use engine::Command;

pub(crate) use client::close;
pub use list_line::line as client_line;
pub(crate) use select::parse_db;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &client::CLIENT,
    &auth::AUTH,
    &hello::HELLO,
    &reset::RESET,
    &quit::QUIT,
    &select::SELECT,
    &echo::ECHO,
    &ping::PING,
];
