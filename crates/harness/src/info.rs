//! What INFO says, field by field.

use crate::client::Client;
use crate::reply::Reply;

/// A field of a reply to INFO; `None` if it is not there.
pub fn find(reply: &Reply, name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(reply.text()?);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned())
}

/// Fields of whatever sections of INFO, as they are at one moment.
///
/// # Panics
/// If the server does not answer or does not know them: it is for tests.
#[track_caller]
pub fn fields<const N: usize>(client: &mut Client, names: [&str; N]) -> [String; N] {
    let reply = client.command(&["INFO", "everything"]).expect("INFO is answered");
    names.map(|name| find(&reply, name).unwrap_or_else(|| panic!("no {name} in {reply:?}")))
}

/// As [`fields`], of one.
///
/// # Panics
/// As [`fields`] does.
#[track_caller]
pub fn field(client: &mut Client, name: &str) -> String {
    let [value] = fields(client, [name]);
    value
}

/// As [`field`], of a number.
///
/// # Panics
/// Also if it is none.
#[track_caller]
pub fn number(client: &mut Client, name: &str) -> u64 {
    let value = field(client, name);
    value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}"))
}
