//! Which commands a selector allows: a bit for each row of the command table, and the rules that
//! made them, for ACL LIST.

use super::category::Category;
use super::rules::Refusal;
use crate::table::{CommandTable, Resolved};
use structs::glob::{self, Case};

/// The commands of a selector.
#[derive(Clone, Default)]
pub(super) struct AllowedCommands {
    bits: Vec<u64>,
    /// All commands, those of later versions included, but for what the rules take away.
    begins_with_all: bool,
    /// No rule has taken a command away.
    is_all: bool,
    rules: Vec<String>,
    /// Commands that are allowed with these first arguments only, which is deprecated.
    first_args: Vec<(usize, Vec<u8>)>,
}

impl AllowedCommands {
    /// `+@all`.
    pub fn all(table: &CommandTable) -> AllowedCommands {
        let bits = vec![u64::MAX; table.all().len().div_ceil(64)];
        AllowedCommands { bits, begins_with_all: true, is_all: true, ..AllowedCommands::default() }
    }

    /// Whether there is nothing that is not allowed.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// Whether a category is allowed by its name, or as all commands are, and none of its commands
    /// was taken away.
    pub fn has_category(&self, table: &CommandTable, category: Category) -> bool {
        let rule = format!("+@{}", category.name());
        let mut rows = table.all().iter().filter(|row| category.has(row));
        self.is_all || (self.rules.contains(&rule) && rows.all(|row| self.has_bit(row)))
    }

    /// Whether every request of this row is allowed.
    #[inline]
    pub fn has_bit(&self, row: &Resolved) -> bool {
        self.bits.get(row.index / 64).is_some_and(|bits| bits >> (row.index % 64) & 1 == 1)
    }

    /// Whether a request of this row is allowed.
    pub fn allow(&self, row: &Resolved, words: &[&[u8]]) -> bool {
        let is_this = |(index, first): &(usize, Vec<u8>)| {
            *index == row.index && words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(first))
        };
        self.has_bit(row) || self.first_args.iter().any(is_this)
    }

    fn set(&mut self, row: &Resolved, allowed: bool) {
        let at = row.index / 64;
        if self.bits.len() <= at {
            self.bits.resize(at + 1, 0);
        }
        let bit = 1 << (row.index % 64);
        if allowed {
            self.bits[at] |= bit;
        } else {
            self.bits[at] &= !bit;
            self.is_all = false;
        }
        self.first_args.retain(|(index, _)| *index != row.index);
    }

    /// Applies `+name`, `-name`, `+@category`, `-name|sub`, `+name|first-argument`.
    pub fn apply(
        &mut self,
        table: &CommandTable,
        name: &[u8],
        allowed: bool,
    ) -> Result<(), Refusal> {
        let name = std::str::from_utf8(name).map_err(|_| Refusal::UnknownCommand)?;
        let name = name.to_ascii_lowercase();
        match name.strip_prefix('@') {
            Some("all") => {
                *self = if allowed { Self::all(table) } else { Self::default() };
                return Ok(());
            }
            Some(category) => {
                let category =
                    Category::named(category.as_bytes()).ok_or(Refusal::UnknownCommand)?;
                let rows = table.all().iter().filter(|row| category.has(row));
                rows.for_each(|row| self.set(row, allowed));
            }
            None => self.apply_command(table, &name, allowed)?,
        }
        self.note(&name, allowed);
        Ok(())
    }

    fn apply_command(
        &mut self,
        table: &CommandTable,
        name: &str,
        allowed: bool,
    ) -> Result<(), Refusal> {
        if let Some(row) = row_named(table, name) {
            self.set(row, allowed);
            let container = row.command;
            let subcommands = table
                .all()
                .iter()
                .filter(|sub| sub.parent.is_some_and(|parent| std::ptr::eq(parent, container)));
            subcommands.for_each(|sub| self.set(sub, allowed));
            return Ok(());
        }
        let (command, first) = name.split_once('|').ok_or(Refusal::UnknownCommand)?;
        let row = row_named(table, command).ok_or(Refusal::UnknownCommand)?;
        match first.split_once('|') {
            Some((sub, arg)) if allowed && !arg.contains('|') => {
                let is_subcommand = row_named(table, &format!("{command}|{sub}")).is_some();
                return Err(if is_subcommand {
                    Refusal::FirstArgOfSubcommand
                } else {
                    Refusal::UnknownCommand
                });
            }
            None if allowed && !first.is_empty() && row.command.subcommands.is_empty() => {}
            _ => return Err(Refusal::UnknownCommand),
        }
        self.first_args.push((row.index, first.as_bytes().to_vec()));
        Ok(())
    }

    /// Keeps a rule, which replaces those about the same command and its subcommands.
    fn note(&mut self, name: &str, allowed: bool) {
        self.rules.retain(|rule| {
            let about = &rule[1..];
            about != name && !about.strip_prefix(name).is_some_and(|rest| rest.starts_with('|'))
        });
        let sign = if allowed { '+' } else { '-' };
        self.rules.push(format!("{sign}{name}"));
    }

    /// The rules that make it.
    pub fn describe(&self) -> String {
        let base = if self.begins_with_all { "+@all" } else { "-@all" };
        let rules = self.rules.iter().map(|rule| format!(" {rule}"));
        format!("{base}{}", rules.collect::<String>())
    }
}

fn row_named<'t>(table: &'t CommandTable, name: &str) -> Option<&'t Resolved> {
    table.all().iter().find(|row| row.full_name == name)
}

/// Whether a channel is allowed: one of a subscription by pattern must be a rule itself.
pub(super) fn allows_channel(patterns: &[Vec<u8>], channel: &[u8], is_pattern: bool) -> bool {
    patterns.iter().any(|pattern| {
        if is_pattern {
            pattern == channel
        } else {
            glob::matches(pattern, channel, Case::Sensitive)
        }
    })
}
