//! The ACL categories of a command: implied by its flags and group, corrected by its row.

use crate::command::{Command, Flags, Group};
use crate::table::Resolved;

/// A category, as ACL rules name it with an `@` in front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Category(&'static str);

/// The categories of Redis's own commands.
static CATEGORIES: [Category; 21] = [
    Category("keyspace"),
    Category("read"),
    Category("write"),
    Category("set"),
    Category("sortedset"),
    Category("list"),
    Category("hash"),
    Category("string"),
    Category("bitmap"),
    Category("hyperloglog"),
    Category("geo"),
    Category("stream"),
    Category("pubsub"),
    Category("admin"),
    Category("fast"),
    Category("slow"),
    Category("blocking"),
    Category("dangerous"),
    Category("connection"),
    Category("transaction"),
    Category("scripting"),
];

/// What nodes and copies of a cluster send each other: requests of clients that travel, and those
/// whose rows have this category. It is Dunlin's own, and in no list, so that lists are Redis's.
pub(super) const NODES: Category = Category("nodes");

/// Returns all categories in the order in which they are shown: those of module types are last.
pub fn categories() -> impl Iterator<Item = Category> {
    let of_modules = datatypes::MODULES.iter().flat_map(|module| module.categories);
    CATEGORIES.into_iter().chain(of_modules.map(|&name| Category(name)))
}

impl Category {
    /// The category of this name, in any case.
    pub fn named(name: &[u8]) -> Option<Category> {
        categories()
            .chain([NODES])
            .find(|category| name.eq_ignore_ascii_case(category.0.as_bytes()))
    }

    /// Its name, without the `@`.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Whether a row of the table belongs to it.
    pub fn has(self, row: &Resolved) -> bool {
        self.contains(row.command) || (self == NODES && row.travels())
    }

    /// Whether a command belongs to it. What travels is known by its row in the table only.
    pub fn contains(self, command: &Command) -> bool {
        let corrected = |sign: &str| {
            command.categories.iter().any(|name| name.strip_prefix(sign) == Some(self.0))
        };
        corrected("") || (self.is_implied(command) && !corrected("-"))
    }

    fn is_implied(self, command: &Command) -> bool {
        let flags = command.flags;
        // A container is no command of its group: only its subcommands do something.
        let group = command.subcommands.is_empty().then_some(command.group);
        match self.0 {
            "read" => flags.has(Flags::READONLY) && command.group != Group::Scripting,
            "write" => flags.has(Flags::WRITE),
            "admin" | "dangerous" => flags.has(Flags::ADMIN),
            "fast" => flags.has(Flags::FAST),
            "slow" => !flags.has(Flags::FAST),
            "blocking" => flags.has(Flags::BLOCKING),
            "pubsub" => flags.has(Flags::PUBSUB) || group == Some(Group::Pubsub),
            name => group.and_then(category_of_group) == Some(name),
        }
    }
}

fn category_of_group(group: Group) -> Option<&'static str> {
    Some(match group {
        Group::Bitmap => "bitmap",
        Group::Connection => "connection",
        Group::Generic => "keyspace",
        Group::Geo => "geo",
        Group::Hash => "hash",
        Group::Hyperloglog => "hyperloglog",
        Group::List => "list",
        Group::Pubsub => "pubsub",
        Group::Scripting => "scripting",
        Group::Set => "set",
        Group::SortedSet => "sortedset",
        Group::Stream => "stream",
        Group::String => "string",
        Group::Transactions => "transaction",
        Group::Cluster | Group::Module | Group::Server => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: Command, expected: &[&str]) {
        let names = categories().filter(|category| category.contains(&command));
        assert_eq!(names.map(|category| category.name()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn implied_by_flags_and_group() {
        let flags = Flags::WRITE.with(Flags::FAST);
        check(
            Command { flags, group: Group::SortedSet, ..Command::ROW },
            &["write", "sortedset", "fast"],
        );
        let group = Group::Server;
        check(
            Command { group, flags: Flags::ADMIN, ..Command::ROW },
            &["admin", "slow", "dangerous"],
        );
    }

    #[test]
    fn corrected_by_the_row() {
        check(
            Command { categories: &["-keyspace", "dangerous"], ..Command::ROW },
            &["slow", "dangerous"],
        );
    }

    #[test]
    fn containers_belong_to_no_group() {
        static SUBCOMMANDS: &[&Command] = &[&Command { ..Command::ROW }];
        check(Command { subcommands: SUBCOMMANDS, ..Command::ROW }, &["slow"]);
    }

    #[test]
    fn names_in_any_case() {
        assert_eq!(Category::named(b"SortedSet").map(Category::name), Some("sortedset"));
        assert_eq!(Category::named(b"@read"), None);
    }
}
