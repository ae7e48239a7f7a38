//! A user, and the rules that make it: `on`, `>password`, `~*`, `+@all` and so on.
//!
//! Passwords are kept as SHA-256 hashes and compared in constant time.
//!
//! A user of this version may do everything or nothing. Rules that ask for something between (a
//! key pattern, a single command, a selector) are refused with a text that says so, and so is a
//! change that would leave the user without some permission: nothing is accepted that would not
//! be enforced.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 hash of a password.
#[derive(Clone, Copy)]
pub struct PasswordHash([u8; 32]);

impl PasswordHash {
    /// The hash of a password.
    pub fn of(password: &[u8]) -> PasswordHash {
        PasswordHash(Sha256::digest(password).into())
    }

    /// The hash that these 64 lower-case hexadecimal digits spell.
    fn parse(digits: &[u8]) -> Option<PasswordHash> {
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(PasswordHash(bytes))
    }

    /// Its digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn is(&self, other: &PasswordHash) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

/// A user.
#[derive(Clone)]
pub struct User {
    /// Whether it can authenticate at all.
    pub is_on: bool,
    /// Whether any password will do.
    pub needs_no_password: bool,
    /// The passwords that will do otherwise.
    pub passwords: Vec<PasswordHash>,
    may: Permissions,
}

/// What a user may reach: all or nothing of each. A user in force has all of all.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Permissions {
    keys: bool,
    channels: bool,
    databases: bool,
    commands: bool,
}

const EVERYTHING: Permissions =
    Permissions { keys: true, channels: true, databases: true, commands: true };

/// Why a rule is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Syntax,
    NoSuchPassword,
    BadHash,
    KeysAfterAll,
    ChannelsAfterAll,
    TooFine,
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
            Refusal::TooFine => {
                "This version has no rules for single commands, categories, keys, channels or \
                 databases, and no selectors: a user may do everything"
            }
        }
    }
}

impl Default for User {
    /// The default user as it is at first: on, without a password, allowed everything.
    fn default() -> User {
        User { is_on: true, needs_no_password: true, passwords: Vec::new(), may: EVERYTHING }
    }
}

impl User {
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

    /// The user after these rules; the error says which is wrong, without a code.
    pub(super) fn with_rules(&self, rules: &[&[u8]]) -> Result<User, String> {
        let mut user = self.clone();
        let mut rules = rules.iter();
        while let Some(&rule) = rules.next() {
            let mut rule = rule.to_vec();
            if rule.starts_with(b"(") {
                // A selector may be spread over several words.
                let start = rule.clone();
                while !rule.ends_with(b")") {
                    let next = rules.next().ok_or_else(|| unmatched(&start))?;
                    rule.push(b' ');
                    rule.extend_from_slice(next);
                }
            }
            user.apply(&rule).map_err(|refusal| {
                let rule = String::from_utf8_lossy(&rule);
                format!("Error in ACL SETUSER modifier '{rule}': {}", refusal.text())
            })?;
        }
        if user.may != EVERYTHING {
            return Err("ACL SETUSER would leave the user without some permission, and in this \
                        version a user may do everything: add '~* &* alldbs +@all'"
                .to_owned());
        }
        Ok(user)
    }

    fn apply(&mut self, rule: &[u8]) -> Result<(), Refusal> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" | b"sanitize-payload" | b"skip-sanitize-payload" | b"clearselectors" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => self.set_passwords(true),
            b"resetpass" => self.set_passwords(false),
            b"allkeys" | b"~*" => self.may.keys = true,
            b"resetkeys" => self.may.keys = false,
            b"allchannels" | b"&*" => self.may.channels = true,
            b"resetchannels" => self.may.channels = false,
            b"alldbs" => self.may.databases = true,
            b"resetdbs" => self.may.databases = false,
            b"allcommands" | b"+@all" => self.may.commands = true,
            b"nocommands" | b"-@all" => self.may.commands = false,
            b"reset" => {
                self.is_on = false;
                self.set_passwords(false);
                self.may =
                    Permissions { keys: false, channels: false, databases: true, commands: false };
            }
            _ => self.apply_with_value(rule)?,
        }
        Ok(())
    }

    fn apply_with_value(&mut self, rule: &[u8]) -> Result<(), Refusal> {
        let value = &rule[1..];
        let hash = || PasswordHash::parse(value).ok_or(Refusal::BadHash);
        match rule[0] {
            b'>' => self.add_password(PasswordHash::of(value)),
            b'#' => self.add_password(hash()?),
            b'<' => self.remove_password(&PasswordHash::of(value))?,
            b'!' => self.remove_password(&hash()?)?,
            b'~' | b'%' if self.may.keys => return Err(Refusal::KeysAfterAll),
            b'&' if self.may.channels => return Err(Refusal::ChannelsAfterAll),
            b'~' | b'%' | b'&' | b'+' | b'-' | b'(' => return Err(Refusal::TooFine),
            _ if rule.len() > 3 && rule[..3].eq_ignore_ascii_case(b"db=") => {
                return Err(Refusal::TooFine);
            }
            _ => return Err(Refusal::Syntax),
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
    pub fn describe(&self) -> String {
        let passwords = self.passwords.iter().map(|hash| format!("#{} ", hash.hex()));
        format!("{} {}~* &* +@all", self.flags().join(" "), passwords.collect::<String>())
    }
}

fn unmatched(start: &[u8]) -> String {
    let start = String::from_utf8_lossy(start);
    format!("Unmatched parenthesis in acl selector starting at '{start}'.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH_OF_A: &str = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";

    /// The description of a user after some rules, or why they are refused.
    #[track_caller]
    fn check(rules: &str, expected: &str) {
        let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
        let found = match User::default().with_rules(&rules) {
            Ok(user) => user.describe(),
            Err(text) => text,
        };
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn passwords_are_kept_as_hashes() {
        check(">a", &format!("on #{HASH_OF_A} ~* &* +@all"));
        check(&format!("off #{HASH_OF_A} >a"), &format!("off #{HASH_OF_A} ~* &* +@all"));
        check(">a nopass", "on nopass ~* &* +@all");
        check(">a resetpass", "on ~* &* +@all");
        check(">a <a", "on ~* &* +@all");
        check(&format!(">a !{HASH_OF_A}"), "on ~* &* +@all");
        check("<a", "modifier '<a': The password you are trying to remove from the user does not");
        check("#ABC", "modifier '#ABC': The password hash must be exactly 64 characters");
    }

    #[test]
    fn permissions_are_all_or_nothing() {
        check("ALLKEYS &* allcommands +@all alldbs sanitize-payload clearselectors ", "on nopass");
        check("resetkeys resetchannels nocommands resetdbs ~* &* alldbs +@all", "on nopass");
        check("reset on >a ~* &* +@all", &format!("on #{HASH_OF_A} ~* &* +@all"));
        check("reset", "without some permission");
        check("-@all", "without some permission");
    }

    #[test]
    fn what_is_between_is_refused() {
        check(
            "~a*",
            "modifier '~a*': Adding a pattern after the * pattern (or the 'allkeys' flag)",
        );
        check("&a*", "Adding a pattern after the * pattern (or the 'allchannels' flag)");
        check("resetkeys %R~a", "modifier '%R~a': This version has no rules for single");
        check("-get", "modifier '-get': This version has no rules for single");
        check("(~a +get)", "modifier '(~a +get)': This version has no rules for single");
        check("(~a +get", "Unmatched parenthesis in acl selector starting at '(~a'.");
        check("db=1", "modifier 'db=1': This version has no rules for single");
        check("nonsense", "modifier 'nonsense': Syntax error");
    }
}
