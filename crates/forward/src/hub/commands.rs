//! The table of commands, as all threads of a process have it.

use spec::{CommandTable, Flags, NotRun, Resolved, Row};
use std::sync::Arc;

/// The commands of the table.
pub struct Commands {
    pub(super) table: CommandTable<NotRun>,
    /// By the rows' indexes: whether they only read.
    pub(super) reads: Vec<bool>,
    /// By the rows' indexes: whether a pause of writes holds them.
    pub(super) writes: Vec<bool>,
    /// The version of Redis whose commands they are.
    pub(super) redis_version: &'static str,
}

impl Commands {
    /// Of these rows, which are those of a version of Redis.
    pub fn new(rows: &[&'static Row<NotRun>], redis_version: &'static str) -> Arc<Commands> {
        let table = CommandTable::build(rows, &[]);
        let is_read = |row: &&Resolved<NotRun>| row.command.flags.has(Flags::READONLY);
        let reads = table.all().iter().map(|row| is_read(&row)).collect();
        // EXEC may run anything.
        let changing = Flags::WRITE.with(Flags::MAY_REPLICATE).with(Flags::RUNS_QUEUE);
        let writes = table.all().iter().map(|row| row.command.flags.any(changing)).collect();
        Arc::new(Commands { table, reads, writes, redis_version })
    }

    /// Returns whether there is a command of this name, or a subcommand, `config|set`.
    pub fn has(&self, full_name: &str) -> bool {
        self.table.by_full_name(full_name.as_bytes()).is_some()
    }

    /// Returns why a server refuses a request, whatever its keys are.
    pub(super) fn refusal(&self, words: &[&[u8]], is_in_multi: bool) -> Option<String> {
        match self.table.resolve(words) {
            Err(why) => Some(String::from_utf8_lossy(&why.line()).into_owned()),
            Ok(row) if is_in_multi && row.command.flags.has(Flags::NO_MULTI) => {
                Some(format!("ERR Command '{}' not allowed inside a transaction", row.full_name))
            }
            Ok(_) => None,
        }
    }
}
