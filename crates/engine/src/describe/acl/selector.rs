//! A selector: commands, and the keys, channels and databases that they may reach. A user has one
//! of its own and may have more; a request passes if any of them allows it as a whole.

use super::Denial;
use super::category::NODES;
use super::commands::{AllowedCommands, allows_channel};
use super::rules::Refusal;
use crate::command::{Channels, Databases, Flags, KeyFlags};
use crate::request_keys::RequestKey;
use crate::table::{CommandTable, Resolved};
use keyspace::DbIndex;
use structs::glob::Case;
use structs::{glob, numbers};

/// A request as a selector looks at it.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// Its row.
    pub row: &'r Resolved,
    /// Its words.
    pub words: &'r [&'r [u8]],
    /// Its keys.
    pub keys: &'r [RequestKey],
    /// The selected database, or the one that will be when a queued request runs.
    pub db: DbIndex,
    /// Number of databases.
    pub databases: u32,
}

/// The first word that names a database which is not allowed. Where one of the words names no
/// database at all, the command itself refuses the request.
fn denied_database(
    allowed: &[u32],
    request: &Request<'_>,
    find: impl FnOnce(&mut dyn FnMut(usize)),
) -> Option<usize> {
    let (mut denied, mut is_possible) = (None, true);
    find(&mut |word| {
        let number = request.words.get(word).and_then(|word| numbers::parse_i64(word));
        let db = number.and_then(|number| u32::try_from(number).ok());
        match db.filter(|&db| db < request.databases) {
            Some(db) if denied.is_none() && !allowed.contains(&db) => denied = Some(word),
            Some(_) => {}
            None => is_possible = false,
        }
    });
    denied.filter(|_| is_possible)
}

/// What may be done with keys of a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Access {
    read: bool,
    write: bool,
}

#[derive(Clone)]
struct KeyPattern {
    pattern: Vec<u8>,
    access: Access,
    /// The pattern is a prefix and a star, which most are: comparing bytes is cheaper than
    /// matching.
    is_prefix: bool,
}

impl KeyPattern {
    fn new(pattern: &[u8], access: Access) -> KeyPattern {
        let is_prefix = pattern.strip_suffix(b"*").is_some_and(|prefix| !glob::is_pattern(prefix));
        KeyPattern { pattern: pattern.to_vec(), access, is_prefix }
    }

    fn matches(&self, key: &[u8]) -> bool {
        if self.is_prefix {
            key.starts_with(&self.pattern[..self.pattern.len() - 1])
        } else {
            glob::matches(&self.pattern, key, Case::Sensitive)
        }
    }

    fn describe(&self) -> Vec<u8> {
        let sign: &[u8] = match (self.access.read, self.access.write) {
            (true, true) => b"~",
            (true, false) => b"%R~",
            _ => b"%W~",
        };
        [sign, &self.pattern].concat()
    }
}

/// See the module.
#[derive(Clone, Default)]
pub struct Selector {
    pub(super) commands: AllowedCommands,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
    /// `None`: all of them.
    databases: Option<Vec<u32>>,
}

impl Selector {
    /// Allows everything.
    pub(super) fn everything(table: &CommandTable) -> Selector {
        let commands = AllowedCommands::all(table);
        Selector { commands, all_keys: true, all_channels: true, ..Selector::default() }
    }

    /// Allows nothing, but for the channels of `acl-pubsub-default`.
    pub(super) fn nothing(all_channels: bool) -> Selector {
        Selector { all_channels, ..Selector::default() }
    }

    /// Whether it allows every request.
    pub(super) fn is_everything(&self) -> bool {
        self.commands.is_all() && self.all_keys && self.all_channels && self.databases.is_none()
    }

    /// Whether it allows all that nodes of a cluster send each other.
    pub(super) fn is_of_nodes(&self, table: &CommandTable) -> bool {
        let has_all = self.all_keys && self.all_channels && self.databases.is_none();
        has_all && self.commands.has_category(table, NODES)
    }

    /// Applies one rule.
    pub(super) fn apply(&mut self, table: &CommandTable, rule: &[u8]) -> Result<(), Refusal> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            b"resetkeys" => {
                self.all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            b"resetchannels" => {
                self.all_channels = false;
                self.channels.clear();
            }
            b"alldbs" => self.databases = None,
            b"resetdbs" => self.databases = Some(Vec::new()),
            b"allcommands" => self.commands.apply(table, b"@all", true)?,
            b"nocommands" => self.commands.apply(table, b"@all", false)?,
            _ => self.apply_with_value(table, rule)?,
        }
        Ok(())
    }

    fn apply_with_value(&mut self, table: &CommandTable, rule: &[u8]) -> Result<(), Refusal> {
        match rule {
            [b'~', pattern @ ..] => self.add_keys(pattern, Access { read: true, write: true }),
            [b'%', access @ ..] => self.add_keys_with_access(access),
            [b'&', pattern @ ..] => self.add_channel(pattern),
            [b'+', name @ ..] if !name.is_empty() => self.commands.apply(table, name, true),
            [b'-', name @ ..] if !name.is_empty() => self.commands.apply(table, name, false),
            _ if rule.len() > 3 && rule[..3].eq_ignore_ascii_case(b"db=") => {
                let mut databases = Vec::new();
                for word in rule[3..].split(|&byte| byte == b',') {
                    let number = numbers::parse_i64(word).ok_or(Refusal::Syntax)?;
                    databases.push(u32::try_from(number).map_err(|_| Refusal::DatabaseRange)?);
                }
                databases.sort_unstable();
                databases.dedup();
                self.databases = Some(databases);
                Ok(())
            }
            _ => Err(Refusal::Syntax),
        }
    }

    fn add_keys_with_access(&mut self, rule: &[u8]) -> Result<(), Refusal> {
        if self.all_keys {
            return Err(Refusal::KeysAfterAll);
        }
        // Without `~` the pattern is empty, as in Redis.
        let at = rule.iter().position(|&byte| byte == b'~').unwrap_or(rule.len());
        let mut access = Access { read: false, write: false };
        for letter in &rule[..at] {
            match letter.to_ascii_uppercase() {
                b'R' if !access.read => access.read = true,
                b'W' if !access.write => access.write = true,
                _ => return Err(Refusal::Syntax),
            }
        }
        if !access.read && !access.write {
            return Err(Refusal::Syntax);
        }
        self.add_keys(rule.get(at + 1..).unwrap_or_default(), access)
    }

    fn add_keys(&mut self, pattern: &[u8], access: Access) -> Result<(), Refusal> {
        if self.all_keys {
            return Err(Refusal::KeysAfterAll);
        }
        if pattern.iter().any(|&byte| byte == 0 || byte.is_ascii_whitespace()) {
            return Err(Refusal::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.access.read |= access.read;
                known.access.write |= access.write;
            }
            None => self.keys.push(KeyPattern::new(pattern, access)),
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), Refusal> {
        if self.all_channels {
            return Err(Refusal::ChannelsAfterAll);
        }
        if pattern.iter().any(|&byte| byte == 0 || byte.is_ascii_whitespace()) {
            return Err(Refusal::Syntax);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    // ---- checking ---------------------------------------------------------------------------

    /// Whether the request as a whole is allowed.
    ///
    /// # Errors
    /// The first of it that is not, and the word that names it.
    pub(super) fn check(&self, request: &Request<'_>) -> Result<(), (Denial, usize)> {
        self.check_databases(request)?;
        let command = request.row.command;
        let is_always_allowed = command.flags.has(Flags::NO_AUTH);
        if !is_always_allowed && !self.commands.allow(request.row, request.words) {
            return Err((Denial::Command, 0));
        }
        for key in request.keys {
            if !self.allows_key(request.words[key.word()], key.flags) {
                return Err((Denial::Key, key.word()));
            }
        }
        self.check_channels(request)
    }

    /// Whether a request is allowed that does no more than `access` to this key, which is all that
    /// it names. `false` may also mean that only [`Selector::check`] can say.
    #[inline]
    pub(super) fn allows_one_key(&self, row: &Resolved, access: KeyFlags, key: &[u8]) -> bool {
        self.databases.is_none() && self.commands.has_bit(row) && self.allows_key(key, access)
    }

    fn allows_key(&self, key: &[u8], flags: KeyFlags) -> bool {
        const WRITES: KeyFlags = KeyFlags::INSERT.with(KeyFlags::DELETE).with(KeyFlags::UPDATE);
        let reads = flags.has(KeyFlags::ACCESS);
        let writes = flags.any(WRITES);
        self.all_keys
            || self.keys.iter().any(|known| {
                let is_enough = (!reads || known.access.read) && (!writes || known.access.write);
                is_enough && known.matches(key)
            })
    }

    /// Whether this key may be read in this database.
    pub(super) fn may_read(&self, key: &[u8], db: DbIndex) -> bool {
        let is_open = |databases: &Vec<u32>| databases.contains(&db.0);
        self.databases.as_ref().is_none_or(is_open) && self.allows_key(key, KeyFlags::ACCESS)
    }

    /// Whether all keys may be read.
    pub(super) fn lets_read_any_key(&self) -> bool {
        let is_all = |known: &KeyPattern| known.access.read && known.pattern == b"*";
        self.all_keys || self.keys.iter().any(is_all)
    }

    fn check_channels(&self, request: &Request<'_>) -> Result<(), (Denial, usize)> {
        let (words, is_pattern) = match request.row.command.channels {
            Channels::None => return Ok(()),
            Channels::First => (1..2, false),
            Channels::All => (1..request.words.len(), false),
            Channels::Patterns => (1..request.words.len(), true),
        };
        let denied = words.into_iter().find(|&word| {
            let is_allowed = |channel: &&[u8]| allows_channel(&self.channels, channel, is_pattern);
            !self.all_channels && !request.words.get(word).is_none_or(is_allowed)
        });
        denied.map_or(Ok(()), |word| Err((Denial::Channel, word)))
    }

    /// Whether a subscription is still allowed.
    pub(super) fn allows_subscription(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_channels || allows_channel(&self.channels, channel, is_pattern)
    }

    fn check_databases(&self, request: &Request<'_>) -> Result<(), (Denial, usize)> {
        let Some(databases) = &self.databases else { return Ok(()) };
        let command = request.row.command;
        // SELECT and SWAPDB have only to do with the databases that they name.
        let is_data = command.flags.any(Flags::WRITE.with(Flags::READONLY));
        let names_all = matches!(command.databases, Databases::Named(_) | Databases::Chosen);
        let touches_data = spec::keys::has_keys(command) || (is_data && !names_all);
        let denied = match command.databases {
            Databases::Selected => None,
            Databases::All => {
                (0..request.databases).any(|db| !databases.contains(&db)).then_some(0)
            }
            Databases::Chosen => denied_database(databases, request, |found| found(1)),
            Databases::Named(find) => {
                denied_database(databases, request, |found| find(request.words, found))
            }
        };
        let is_selected_denied = touches_data && !databases.contains(&request.db.0);
        match denied.or(is_selected_denied.then_some(0)) {
            Some(word) => Err((Denial::Database, word)),
            None => Ok(()),
        }
    }

    // ---- describing -------------------------------------------------------------------------

    /// The rules about commands.
    pub fn describe_commands(&self) -> String {
        self.commands.describe()
    }

    /// The rules about keys.
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let rules: Vec<Vec<u8>> = self.keys.iter().map(KeyPattern::describe).collect();
        rules.join(&b' ')
    }

    /// The rules about channels.
    pub fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let rule = |channel: &Vec<u8>| [b"&", channel.as_slice()].concat();
        self.channels.iter().map(rule).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about databases: nothing if none is allowed.
    pub fn describe_databases(&self) -> String {
        match &self.databases {
            None => "alldbs".to_owned(),
            Some(databases) if databases.is_empty() => String::new(),
            Some(databases) => {
                let numbers: Vec<String> = databases.iter().map(u32::to_string).collect();
                format!("db={}", numbers.join(","))
            }
        }
    }

    /// All rules, as ACL LIST shows them.
    pub(super) fn describe(&self) -> Vec<u8> {
        let channels: &[u8] = if self.all_channels { b"" } else { b"resetchannels" };
        let databases = match &self.databases {
            None => String::new(),
            Some(databases) if databases.is_empty() => "resetdbs".to_owned(),
            Some(_) => self.describe_databases(),
        };
        let mut rules = vec![
            self.describe_keys(),
            channels.to_vec(),
            self.describe_channels(),
            databases.into_bytes(),
            self.describe_commands().into_bytes(),
        ];
        rules.retain(|rule| !rule.is_empty());
        rules.join(&b' ')
    }
}
