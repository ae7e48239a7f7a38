//! What nodes have to know of servers without being one. The program hands it over when it starts.

use spec::{CommandTable, NotRun};
use std::sync::OnceLock;

/// Checks the rules of a user; the error says which is wrong.
pub type CheckRules = fn(&[&[u8]]) -> Result<(), String>;

static SERVERS: OnceLock<(CommandTable<NotRun>, CheckRules)> = OnceLock::new();

/// Sets the commands of servers, and what checks users' rules by them, once.
pub fn set_commands(table: CommandTable<NotRun>, check_rules: CheckRules) {
    // The second call of a test is the same.
    let _ = SERVERS.set((table, check_rules));
}

/// The commands of servers, if the program has told them.
pub fn commands() -> Option<&'static CommandTable<NotRun>> {
    SERVERS.get().map(|(table, _)| table)
}

/// Checks the rules of a user before a database has it: a copy does not start with wrong ones.
///
/// # Errors
/// What is wrong.
pub fn check_rules<'r>(rules: impl Iterator<Item = &'r str>) -> Result<(), String> {
    let rules: Vec<&[u8]> = rules.map(str::as_bytes).collect();
    SERVERS.get().map_or(Ok(()), |(_, check)| check(&rules))
}
