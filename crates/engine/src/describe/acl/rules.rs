//! A user, and the rules that make it: `on`, `>password`, `~pattern`, `+@category`, `(selector)`
//! and so on.

use super::Denial;
use super::password::PasswordHash;
use super::selector::{Request, Selector};
use crate::table::{CommandTable, Resolved};
use keyspace::DbIndex;
use subtle::Choice;

/// A user. It never changes: a change makes a new one.
#[derive(Clone)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Whether it can authenticate at all.
    pub is_on: bool,
    /// Whether any password will do.
    pub needs_no_password: bool,
    /// The passwords that will do otherwise.
    pub passwords: Vec<PasswordHash>,
    root: Selector,
    /// Further selectors.
    pub selectors: Vec<Selector>,
}

/// Why a rule is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Syntax,
    NoSuchPassword,
    BadHash,
    KeysAfterAll,
    ChannelsAfterAll,
    UnknownCommand,
    FirstArgOfSubcommand,
    DatabaseRange,
}

impl Refusal {
    fn text(self) -> &'static str {
        match self {
            Refusal::Syntax => "Syntax error",
            Refusal::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Refusal::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            Refusal::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Refusal::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid \
                 and does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            Refusal::UnknownCommand => "Unknown command or category name in ACL",
            Refusal::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            Refusal::DatabaseRange => "The provided database ID is out of range",
        }
    }
}

impl User {
    /// The default user as it is at first: on, without a password, allowed everything.
    pub(super) fn everything(table: &CommandTable, name: &str) -> User {
        User {
            is_on: true,
            needs_no_password: true,
            root: Selector::everything(table),
            ..User::nothing(name, false)
        }
    }

    /// A new user: off, allowed nothing.
    pub(super) fn nothing(name: &str, all_channels: bool) -> User {
        User {
            name: name.to_owned(),
            is_on: false,
            needs_no_password: false,
            passwords: Vec::new(),
            root: Selector::nothing(all_channels),
            selectors: Vec::new(),
        }
    }

    /// Whether a password of this hash lets a client in.
    pub(super) fn accepts(&self, hash: &PasswordHash) -> bool {
        let is_known = self
            .passwords
            .iter()
            .fold(Choice::from(0), |known, password| known | password.is(hash));
        self.is_on && (self.needs_no_password || bool::from(is_known))
    }

    /// The same user with this password alone, or with none if it is empty.
    pub(super) fn with_only_password(&self, password: &[u8]) -> User {
        let mut user = User { passwords: Vec::new(), ..self.clone() };
        user.needs_no_password = password.is_empty();
        if !password.is_empty() {
            user.passwords.push(PasswordHash::of(password));
        }
        user
    }

    /// Whether nothing is denied to it.
    pub fn may_do_everything(&self) -> bool {
        self.root.is_everything()
    }

    /// Whether it may do all that nodes of a cluster send each other.
    pub(super) fn is_of_nodes(&self, table: &CommandTable) -> bool {
        self.root.is_of_nodes(table)
    }

    /// The selector of the user itself.
    pub fn root(&self) -> &Selector {
        &self.root
    }

    /// Whether a request is allowed by any selector.
    ///
    /// # Errors
    /// What is denied, by the selector that came nearest, and the word that names it.
    pub fn check(&self, request: &Request<'_>) -> Result<(), (Denial, usize)> {
        let Err(mut nearest) = self.root.check(request) else { return Ok(()) };
        for selector in &self.selectors {
            let Err(denied) = selector.check(request) else { return Ok(()) };
            nearest = nearest.max(denied);
        }
        Err(nearest)
    }

    /// Whether a selector allows this request of a command with one key at a fixed place, whatever
    /// its options make of the key. `false` may also mean that only [`User::check`] can say.
    #[inline]
    pub(crate) fn allows_one_key(&self, row: &Resolved, words: &[&[u8]]) -> bool {
        let (Some(access), Some(key)) = (row.most_access, words.get(row.single_key)) else {
            return false;
        };
        let allows = |selector: &Selector| selector.allows_one_key(row, access, key);
        allows(&self.root) || self.selectors.iter().any(allows)
    }

    /// Whether a selector that allows the request allows to read every key.
    pub fn lets_read_any_key(&self, request: &Request<'_>) -> bool {
        let mut selectors = std::iter::once(&self.root).chain(&self.selectors);
        selectors.any(|selector| selector.lets_read_any_key() && selector.check(request).is_ok())
    }

    /// Whether a selector allows to read a key of this database.
    pub fn may_read(&self, key: &[u8], db: DbIndex) -> bool {
        let mut selectors = std::iter::once(&self.root).chain(&self.selectors);
        selectors.any(|selector| selector.may_read(key, db))
    }

    /// Whether a subscription that a client has is allowed.
    pub fn allows_subscription(&self, channel: &[u8], is_pattern: bool) -> bool {
        let mut selectors = std::iter::once(&self.root).chain(&self.selectors);
        selectors.any(|selector| selector.allows_subscription(channel, is_pattern))
    }

    /// The user after these rules; the error says which is wrong, without a code.
    pub(super) fn with_rules(
        &self,
        table: &CommandTable,
        rules: &[&[u8]],
        all_channels: bool,
    ) -> Result<User, String> {
        let mut user = self.clone();
        for rule in joined(rules)? {
            user.apply(table, &rule, all_channels).map_err(|refusal| {
                let rule = String::from_utf8_lossy(&rule);
                format!("Error in ACL SETUSER modifier '{rule}': {}", refusal.text())
            })?;
        }
        Ok(user)
    }

    fn apply(
        &mut self,
        table: &CommandTable,
        rule: &[u8],
        all_channels: bool,
    ) -> Result<(), Refusal> {
        match rule.to_ascii_lowercase().as_slice() {
            // Payloads of RESTORE are checked for every user.
            b"" | b"sanitize-payload" | b"skip-sanitize-payload" => {}
            b"clearselectors" => self.selectors.clear(),
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => self.set_passwords(true),
            b"resetpass" => self.set_passwords(false),
            b"reset" => *self = User::nothing(&self.name, all_channels),
            _ => self.apply_with_value(table, rule, all_channels)?,
        }
        Ok(())
    }

    fn apply_with_value(
        &mut self,
        table: &CommandTable,
        rule: &[u8],
        all_channels: bool,
    ) -> Result<(), Refusal> {
        let value = &rule[1..];
        let hash = || PasswordHash::parse(value).ok_or(Refusal::BadHash);
        match rule[0] {
            b'>' => self.add_password(PasswordHash::of(value)),
            b'#' => self.add_password(hash()?),
            b'<' => self.remove_password(&PasswordHash::of(value))?,
            b'!' => self.remove_password(&hash()?)?,
            b'(' => {
                let mut selector = Selector::nothing(all_channels);
                let inside = value.strip_suffix(b")").ok_or(Refusal::Syntax)?;
                let words = inside.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
                for word in words {
                    selector.apply(table, word)?;
                }
                self.selectors.push(selector);
            }
            _ => self.root.apply(table, rule)?,
        }
        Ok(())
    }

    fn set_passwords(&mut self, needs_none: bool) {
        self.needs_no_password = needs_none;
        self.passwords.clear();
    }

    fn add_password(&mut self, hash: PasswordHash) {
        self.needs_no_password = false;
        if !self.passwords.iter().any(|known| bool::from(known.is(&hash))) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: &PasswordHash) -> Result<(), Refusal> {
        let before = self.passwords.len();
        self.passwords.retain(|known| !bool::from(known.is(hash)));
        if self.passwords.len() < before { Ok(()) } else { Err(Refusal::NoSuchPassword) }
    }

    /// The names of its flags.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        flags
    }

    /// The rules that make it.
    pub fn describe(&self) -> Vec<u8> {
        let mut text = self.flags().join(" ").into_bytes();
        for hash in &self.passwords {
            text.extend_from_slice(format!(" #{}", hash.hex()).as_bytes());
        }
        text.push(b' ');
        text.append(&mut self.root.describe());
        for selector in &self.selectors {
            text.extend_from_slice(&[b" (", selector.describe().as_slice(), b")"].concat());
        }
        text
    }
}

/// Checks the rules of a new user.
///
/// # Errors
/// What is wrong with the first that ACL SETUSER would refuse.
pub fn check(table: &CommandTable, rules: &[&[u8]]) -> Result<(), String> {
    User::nothing("", false).with_rules(table, rules, false).map(drop)
}

/// The rules, those of a selector that is spread over several words joined to one.
fn joined(rules: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
    let mut joined = Vec::new();
    let mut rules = rules.iter();
    while let Some(&rule) = rules.next() {
        let mut rule = rule.to_vec();
        if rule.starts_with(b"(") {
            let start = rule.clone();
            while !rule.ends_with(b")") {
                let next = rules.next().ok_or_else(|| unmatched(&start))?;
                rule.push(b' ');
                rule.extend_from_slice(next);
            }
        }
        joined.push(rule);
    }
    Ok(joined)
}

fn unmatched(start: &[u8]) -> String {
    let start = String::from_utf8_lossy(start);
    format!("Unmatched parenthesis in acl selector starting at '{start}'.")
}
