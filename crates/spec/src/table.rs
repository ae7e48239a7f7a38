//! Finding a command's row by its name, quickly: a small perfect-enough hash table built once.

use crate::key_spec::{Begin, Find, KeyFlags};
use crate::keys;
use crate::name::PackedName;
use crate::routing::{About, Applied, Waits, Way};
use crate::row::{Channels, Flags, Row, Runner, ScriptName};

/// A row with what can be worked out from it beforehand.
#[derive(Debug)]
pub struct Resolved<R: Runner> {
    /// The row.
    pub command: &'static Row<R>,
    /// The container, of a subcommand.
    pub parent: Option<&'static Row<R>>,
    /// `client|kill`; a plain command's own name.
    pub full_name: String,
    /// Place in the per-command statistics.
    pub index: usize,
    /// The word of the only key, where every request has exactly one at the same place; else 0.
    pub single_key: usize,
    /// What a request does at most with its only key, if it has one at a fixed place and names no
    /// channel. A user that may do that with the key may send the request, whatever its other words
    /// are.
    pub most_access: Option<KeyFlags>,
    /// When it runs with the world stopped.
    pub world: WorldUse,
    /// Whether each of its requests has one key and does nothing but look at it or change it.
    pub is_local: bool,
    /// Where its requests go; see [`Resolved::way_of`].
    pub way: Way,
    /// Which of its requests may wait.
    pub waits: Waits,
    /// What a target of several shards does with a request of a stream.
    pub applied: Applied,
}

/// When a command runs with the world stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorldUse {
    /// Never: it touches the keys that its requests name, or none.
    Never,
    /// If the request asks for it: see [`Resolved::needs_world`].
    ByRequest,
    /// Always.
    Always,
}

impl WorldUse {
    fn of<R: Runner>(command: &Row<R>) -> WorldUse {
        // A script that MULTI has queued cannot begin again, so nothing may be missing.
        if command.flags.has(Flags::WORLD) || command.script.is_some() {
            WorldUse::Always
        } else if command.needs_world.is_some()
            || command.key_prefixes.is_some()
            || command.flags.has(Flags::RUNS_QUEUE)
        {
            WorldUse::ByRequest
        } else {
            WorldUse::Never
        }
    }
}

impl<R: Runner> Resolved<R> {
    /// Returns whether each of its requests goes to the server of its only key, and does not wait.
    #[inline]
    pub fn goes_to_one_key(&self) -> bool {
        self.single_key > 0 && matches!((self.way, self.waits), (Way::Keys, Waits::Never))
    }

    /// Where this request goes.
    pub fn way_of(&self, words: &[&[u8]]) -> Way {
        match self.way {
            Way::Split { .. } if self.command.routing.whole_if.is_some_and(|ask| ask(words)) => {
                Way::Keys
            }
            way => way,
        }
    }

    /// Returns whether a node of a cluster may have to send such requests for its clients: they are
    /// about keys, or about what several nodes have, or a script that it sends may run them. What
    /// is about one server it answers itself.
    pub fn travels(&self) -> bool {
        match self.way {
            Way::OneServer | Way::Refused(_) | Way::All { about: About::Server, .. } => {
                let command = self.command;
                let has_keys = !command.keys.is_empty() || command.find_keys.is_some();
                let is_for_scripts = !command.flags.has(Flags::NOSCRIPT);
                (has_keys || is_for_scripts) && !command.flags.has(Flags::ADMIN)
            }
            Way::Keys
            | Way::Split { .. }
            | Way::All { .. }
            | Way::Scan
            | Way::Message
            | Way::Written(_)
            | Way::Local(_)
            | Way::Session(_) => true,
        }
    }

    /// Returns whether this request may wait, so that it needs a connection of its own.
    pub fn may_wait(&self, words: &[&[u8]]) -> bool {
        match self.waits {
            Waits::Never => false,
            Waits::Always => true,
            Waits::If(ask) => ask(words),
        }
    }

    /// Whether this request of a command that runs no queue needs the world stopped.
    pub fn needs_world(&self, words: &[&[u8]]) -> bool {
        self.world == WorldUse::Always
            || keys::reads_unnamed(self.command, words)
            || self.command.needs_world.is_some_and(|ask| ask(words))
    }
}

/// The word of the only key of a command's requests, and what they do with it, where each has
/// exactly one at the same place.
fn single_key<R: Runner>(command: &Row<R>) -> Option<(usize, KeyFlags)> {
    let [spec] = command.keys else { return None };
    let is_certain = !spec.flags.any(KeyFlags::NOT_KEY.with(KeyFlags::INCOMPLETE));
    match (spec.begin, spec.find) {
        (Begin::Index(at), Find::Range { last: 0, .. }) if is_certain => Some((at, spec.flags)),
        _ => None,
    }
}

/// Why a request has no row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unresolved {
    /// The command of this name does not have so many words.
    Arity(String),
    /// There is no such command or subcommand; the error that says so.
    Unknown(Vec<u8>),
}

impl Unresolved {
    /// The error as it is sent, without the leading `-` and the line end.
    pub fn line(&self) -> Vec<u8> {
        match self {
            Self::Arity(name) => {
                format!("ERR wrong number of arguments for '{name}' command").into_bytes()
            }
            Self::Unknown(text) => text.clone(),
        }
    }
}

/// All commands; see [`CommandTable::build`].
pub struct CommandTable<R: Runner> {
    all: Vec<Resolved<R>>,
    /// Open addressing over the hash of the name.
    slots: Vec<Option<Slot>>,
    /// The names that are too long to be packed, with their indexes in `all`.
    long: Vec<(String, usize)>,
    /// Names in force for top-level commands (`rename-command` may differ from the row's).
    names: Vec<String>,
    /// The commands, by their indexes in `all`, whose name in force is not the row's.
    renamed: Vec<usize>,
}

/// A top-level command's name, and its index in `all`.
type Slot = (PackedName, u16);

impl<R: Runner> CommandTable<R> {
    /// Builds the table. `renamed` maps a command's own name to another; an empty one hides it.
    pub fn build(rows: &[&'static Row<R>], renamed: &[(String, String)]) -> CommandTable<R> {
        let mut table = CommandTable {
            all: Vec::new(),
            slots: Vec::new(),
            long: Vec::new(),
            names: Vec::new(),
            renamed: Vec::new(),
        };
        let mut top = Vec::new();
        for row in rows {
            let name = renamed
                .iter()
                .rev()
                .find(|(from, _)| from.eq_ignore_ascii_case(row.name))
                .map_or(row.name, |(_, to)| to.as_str())
                .to_ascii_lowercase();
            top.push((table.all.len(), name));
            table.add(row, None);
            for sub in row.subcommands {
                table.add(sub, Some(row));
            }
        }
        table.slots = vec![None; (top.len() * 4).next_power_of_two()];
        table.names = vec![String::new(); table.all.len()];
        for (index, name) in top {
            if name != table.all[index].command.name {
                table.renamed.push(index);
            }
            if name.is_empty() {
                continue;
            }
            if let Some(packed) = PackedName::new(name.as_bytes()) {
                let mut slot = table.home(packed);
                while table.slots[slot].is_some() {
                    slot = (slot + 1) % table.slots.len();
                }
                table.slots[slot] = Some((packed, index as u16));
            } else {
                table.long.push((name.clone(), index));
            }
            table.names[index] = name;
        }
        table
    }

    fn add(&mut self, command: &'static Row<R>, parent: Option<&'static Row<R>>) {
        let full_name = match parent {
            Some(parent) => format!("{}|{}", parent.name, command.name),
            None => command.name.to_owned(),
        };
        let (single_key, access) = single_key(command).unzip();
        let mut row = Resolved {
            command,
            parent,
            full_name,
            index: self.all.len(),
            single_key: single_key.unwrap_or(0),
            most_access: access.filter(|_| matches!(command.channels, Channels::None)),
            world: WorldUse::of(command),
            way: command.way(parent),
            waits: command.waits(),
            applied: command.applied(parent),
            is_local: false,
        };
        row.is_local = row.goes_to_one_key()
            && row.world == WorldUse::Never
            && !command.flags.any(Flags::BEYOND_KEY);
        self.all.push(row);
    }

    /// Every command and subcommand, in the order of their indexes.
    pub fn all(&self) -> &[Resolved<R>] {
        &self.all
    }

    /// The top-level commands that clients can name, in the order of the rows.
    pub fn reachable(&self) -> impl Iterator<Item = &Resolved<R>> {
        self.all.iter().filter(|row| !self.names[row.index].is_empty())
    }

    /// The top-level command of this name, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Resolved<R>> {
        let Some(packed) = PackedName::new(name) else { return self.find_long(name) };
        let mut slot = self.home(packed);
        loop {
            let (other, index) = self.slots[slot]?;
            if other == packed {
                return Some(&self.all[usize::from(index)]);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    #[cold]
    fn find_long(&self, name: &[u8]) -> Option<&Resolved<R>> {
        let is_it = |long: &str| name.eq_ignore_ascii_case(long.as_bytes());
        let (_, index) = self.long.iter().find(|(long, _)| is_it(long))?;
        Some(&self.all[*index])
    }

    /// Where the search for a name begins.
    #[inline]
    fn home(&self, name: PackedName) -> usize {
        (name.hash() >> 32) as usize & (self.slots.len() - 1)
    }

    /// The subcommands of a container; of any other command none.
    pub fn subcommands(&self, container: &Resolved<R>) -> impl Iterator<Item = &Resolved<R>> {
        let subs = container.command.subcommands.len();
        self.all[container.index + 1..=container.index + subs].iter()
    }

    /// A subcommand of a container, in any case.
    pub fn subcommand(&self, container: &Resolved<R>, name: &[u8]) -> Option<&Resolved<R>> {
        self.subcommands(container)
            .find(|sub| name.eq_ignore_ascii_case(sub.command.name.as_bytes()))
    }

    /// The row that a request is for, whatever the number of its words.
    pub fn lookup(&self, argv: &[&[u8]]) -> Option<&Resolved<R>> {
        let found = self.find(argv.first()?)?;
        match argv.get(1) {
            Some(name) if !found.command.subcommands.is_empty() => self.subcommand(found, name),
            _ => Some(found),
        }
    }

    /// The command that does the same as this one with a script that is named in another way.
    pub fn named_by(&self, row: &Resolved<R>, name: ScriptName) -> Option<&Resolved<R>> {
        let is_read_only = |row: &Resolved<R>| row.command.flags.has(Flags::READONLY);
        let is_same = |other: &&Resolved<R>| {
            other.command.script == Some(name) && is_read_only(other) == is_read_only(row)
        };
        self.all.iter().find(is_same)
    }

    /// By full name, `client|kill` or `get`, as ACL rules and COMMAND INFO write it.
    pub fn by_full_name(&self, name: &[u8]) -> Option<&Resolved<R>> {
        match name.iter().position(|&b| b == b'|') {
            Some(bar) => self.subcommand(self.find(&name[..bar])?, &name[bar + 1..]),
            None => self.find(name),
        }
    }

    /// The row that a request is for: command or subcommand, with the number of words checked.
    #[inline]
    pub fn resolve(&self, argv: &[&[u8]]) -> Result<&Resolved<R>, Unresolved> {
        self.checked(argv, argv.first().and_then(|name| self.find(name)))
    }

    /// The same for a request of a log. There a command that is called otherwise now, or hidden
    /// from clients, also has its own name: from before it was renamed, or because the server wrote
    /// it.
    pub fn resolve_logged(&self, argv: &[&[u8]]) -> Result<&Resolved<R>, Unresolved> {
        let find = |name: &&[u8]| self.find(name).or_else(|| self.find_renamed(name));
        self.checked(argv, argv.first().and_then(find))
    }

    fn find_renamed(&self, name: &[u8]) -> Option<&Resolved<R>> {
        let mut renamed = self.renamed.iter().map(|&index| &self.all[index]);
        renamed.find(|row| name.eq_ignore_ascii_case(row.command.name.as_bytes()))
    }

    #[inline]
    fn checked<'t>(
        &'t self,
        argv: &[&[u8]],
        found: Option<&'t Resolved<R>>,
    ) -> Result<&'t Resolved<R>, Unresolved> {
        let Some(found) = found else { return Err(unknown(argv)) };
        let found = if found.command.subcommands.is_empty() || argv.len() < 2 {
            found
        } else {
            match self.subcommand(found, argv[1]) {
                Some(sub) => sub,
                None => return Err(unknown_subcommand(found, argv[1])),
            }
        };
        if !found.command.accepts(argv.len()) {
            return Err(Unresolved::Arity(found.full_name.clone()));
        }
        Ok(found)
    }
}

/// Redis's text for a command it does not know; quotes what was sent, within limits.
#[cold]
fn unknown(argv: &[&[u8]]) -> Unresolved {
    // The reference prints words as C strings: they end at a NUL.
    fn until_nul(word: &[u8]) -> &[u8] {
        word.split(|&byte| byte == 0).next().unwrap_or_default()
    }
    let mut text = b"ERR unknown command '".to_vec();
    let name = until_nul(argv.first().copied().unwrap_or_default());
    text.extend_from_slice(&name[..name.len().min(128)]);
    text.extend_from_slice(b"', with args beginning with: ");
    let mut room = 128usize;
    for word in &argv[1.min(argv.len())..] {
        if room == 0 {
            break;
        }
        let word = until_nul(word);
        let shown = &word[..word.len().min(room)];
        text.push(b'\'');
        text.extend_from_slice(shown);
        text.extend_from_slice(b"' ");
        room = room.saturating_sub(shown.len() + 3);
    }
    Unresolved::Unknown(text)
}

#[cold]
fn unknown_subcommand<R: Runner>(container: &Resolved<R>, name: &[u8]) -> Unresolved {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(&name[..name.len().min(128)]);
    text.extend_from_slice(b"'. Try ");
    text.extend_from_slice(container.command.name.to_ascii_uppercase().as_bytes());
    text.extend_from_slice(b" HELP.");
    Unresolved::Unknown(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::NotRun;

    type Command = Row<NotRun>;
    type CommandTable = super::CommandTable<NotRun>;

    static GET: Command = Command { name: "get", arity: 2, ..Command::ROW };
    static PING: Command = Command { name: "ping", arity: -1, ..Command::ROW };
    static KILL: Command = Command { name: "kill", arity: -3, ..Command::ROW };
    static LIST: Command = Command { name: "list", arity: 2, ..Command::ROW };
    static CLIENT: Command =
        Command { name: "client", arity: -2, subcommands: &[&KILL, &LIST], ..Command::ROW };
    static ROWS: &[&Command] = &[&GET, &CLIENT, &PING];

    #[track_caller]
    fn check(table: &CommandTable, request: &str, expected: &str) {
        let argv: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let found = match table.resolve(&argv) {
            Ok(row) => row.full_name.clone(),
            Err(error) => String::from_utf8_lossy(&error.line()).into_owned(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn requests_find_their_rows() {
        let table = CommandTable::build(ROWS, &[]);
        check(&table, "GeT a", "get");
        check(&table, "ping", "ping");
        check(&table, "ping a b c", "ping");
        check(&table, "CLIENT List", "client|list");
        check(&table, "client kill a", "client|kill");
        check(&table, "get", "ERR wrong number of arguments for 'get' command");
        check(&table, "get a b", "ERR wrong number of arguments for 'get' command");
        check(&table, "client", "ERR wrong number of arguments for 'client' command");
        check(&table, "client KILL", "ERR wrong number of arguments for 'client|kill' command");
        check(&table, "client x", "ERR unknown subcommand 'x'. Try CLIENT HELP.");
        check(&table, "ge", "ERR unknown command 'ge', with args beginning with: ");
        let unknown = "ERR unknown command 'gets', with args beginning with: 'a' 'b' ";
        check(&table, "gets a b", unknown);
        check(&table, "", "ERR unknown command '', with args beginning with: ");
    }

    #[test]
    fn the_request_before_changes_nothing() {
        let table: &'static CommandTable = Box::leak(Box::new(CommandTable::build(ROWS, &[])));
        let found = |row: Result<&Resolved<NotRun>, Unresolved>| {
            row.map(|row| row.index).map_err(|error| error.line())
        };
        let requests = [
            "get a",
            "GET a",
            "get",
            "get a b",
            "ping",
            "client list",
            "client kill a",
            "client",
            "x",
            "",
        ];
        let words =
            |request: &'static str| request.split(' ').map(str::as_bytes).collect::<Vec<_>>();
        for before in requests {
            for request in requests.map(words) {
                let mut recent = crate::Recent::default();
                let _ = table.resolve_after(&words(before), &mut recent);
                let after = found(table.resolve_after(&request, &mut recent));
                assert_eq!(after, found(table.resolve(&request)), "after {before:?}");
            }
        }
    }

    #[test]
    fn every_row_has_an_index_and_a_full_name() {
        let table = CommandTable::build(ROWS, &[]);
        for (index, row) in table.all().iter().enumerate() {
            assert_eq!(row.index, index);
            let found = table.by_full_name(row.full_name.to_ascii_uppercase().as_bytes());
            assert_eq!(found.map(|row| row.index), Some(index));
        }
        assert_eq!(table.all().len(), 5);
        assert!(table.by_full_name(b"get|a").is_none());
        assert_eq!(table.lookup(&[b"client"]).map(|row| row.index), Some(1));
        assert!(table.lookup(&[b"client", b"x"]).is_none());
        assert!(table.lookup(&[]).is_none());
    }

    #[test]
    fn commands_can_be_renamed_and_hidden() {
        let rename = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let renamed = [rename("GET", "Fetch"), rename("ping", "")];
        let table = CommandTable::build(ROWS, &renamed);
        check(&table, "FETCH a", "get");
        check(&table, "fetch", "ERR wrong number of arguments for 'get' command");
        check(&table, "get a", "ERR unknown command 'get', with args beginning with: 'a' ");
        check(&table, "ping", "ERR unknown command 'ping', with args beginning with: ");
        let logged = |words: &[&[u8]]| table.resolve_logged(words).ok().map(|row| &*row.full_name);
        assert_eq!(logged(&[b"fetch", b"a"]), Some("get"));
        assert_eq!(logged(&[b"Get", b"a"]), Some("get"));
        assert_eq!(logged(&[b"ping"]), Some("ping"));
        assert_eq!(logged(&[b"client", b"list"]), Some("client|list"));
        assert_eq!(logged(&[b"list"]), None);
        assert_eq!(logged(&[b""]), None);
        let reachable: Vec<&str> = table.reachable().map(|row| row.command.name).collect();
        assert_eq!(reachable, ["get", "client"]);
    }
}
