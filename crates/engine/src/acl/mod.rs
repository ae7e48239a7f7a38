//! Who may connect: users, their passwords, and the log of who was refused.
//!
//! This is the one place that knows credentials. Everybody else asks: [`Acl::is_open`] (may a new
//! connection run commands without AUTH?), [`Acl::authenticate`], [`Acl::change`]. `requirepass` is
//! a rule like any other here: setting the option replaces the default user's passwords, and the
//! option does not follow when ACL SETUSER changes them, as in Redis.
//!
//! There is one user so far, `default`, who may do everything; see [`rules`] for what is refused.

mod file;
pub mod log;
pub mod rules;

use log::AclLog;
use rules::{PasswordHash, User};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use structs::sync::lock;

/// The name of the only user.
pub const DEFAULT_USER: &str = "default";

/// Users and their credentials.
pub struct Acl {
    default: Mutex<User>,
    /// Follows from `default`; asked for every command of a client that has not authenticated.
    is_open: AtomicBool,
    /// Who was refused.
    pub log: AclLog,
}

impl Acl {
    /// The default user with this password (`requirepass`), or with none if it is empty.
    pub fn new(password: &[u8]) -> Acl {
        let acl = Acl {
            default: Mutex::new(User::default()),
            is_open: AtomicBool::new(true),
            log: AclLog::default(),
        };
        acl.require_password(password);
        acl
    }

    fn locked(&self) -> MutexGuard<'_, User> {
        lock(&self.default)
    }

    fn replace(&self, mut user: MutexGuard<'_, User>, new: User) {
        self.is_open.store(new.is_on && new.needs_no_password, Relaxed);
        *user = new;
    }

    /// The user of this name, as it is now.
    pub fn user(&self, name: &[u8]) -> Option<User> {
        (name == DEFAULT_USER.as_bytes()).then(|| self.locked().clone())
    }

    /// The names of all users.
    pub fn names(&self) -> &'static [&'static str] {
        &[DEFAULT_USER]
    }

    /// Whether a client may run commands without having authenticated.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// Whether any password will do for the default user, should it be on.
    pub fn needs_no_password(&self) -> bool {
        self.locked().needs_no_password
    }

    /// Whether these credentials let their client in.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> bool {
        // Hashed before the lock is taken, and even for a user that does not exist.
        let hash = PasswordHash::of(password);
        let accepts = self.locked().accepts(&hash);
        name == DEFAULT_USER.as_bytes() && accepts
    }

    /// `requirepass`: the default user's only password; an empty one means none is needed.
    pub fn require_password(&self, password: &[u8]) {
        let user = self.locked();
        let new = user.with_only_password(password);
        self.replace(user, new);
    }

    /// ACL SETUSER: applies rules to a user, all or none. The error is what is wrong, without a
    /// code.
    pub fn change(&self, name: &[u8], rules: &[&[u8]]) -> Result<(), String> {
        if name != DEFAULT_USER.as_bytes() {
            return Err(format!(
                "ACL SETUSER can't create user '{}': this version has no user but 'default'",
                String::from_utf8_lossy(name)
            ));
        }
        let user = self.locked();
        let new = user.with_rules(rules)?;
        self.replace(user, new);
        Ok(())
    }

    /// What a configuration file says of a user: the same, beginning with a user that may do
    /// nothing.
    pub fn define(&self, name: &[u8], rules: &[&[u8]]) -> Result<(), String> {
        let from_nothing: Vec<&[u8]> =
            [&b"reset"[..]].into_iter().chain(rules.iter().copied()).collect();
        self.change(name, &from_nothing)
    }

    /// The users as a configuration file has them, without the word `user`.
    pub fn lines(&self) -> Vec<Vec<u8>> {
        vec![format!("{DEFAULT_USER} {}", self.locked().describe()).into_bytes()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(acl: &Acl, rules: &str) -> Result<(), String> {
        let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
        acl.change(b"default", &rules)
    }

    #[test]
    fn without_a_password_everybody_is_in() {
        let acl = Acl::new(b"");
        assert!(acl.is_open());
        assert!(acl.authenticate(b"default", b"whatever"));
        assert!(!acl.authenticate(b"bob", b"whatever"));
    }

    #[test]
    fn the_option_and_the_rules_are_about_the_same_passwords() {
        let acl = Acl::new(b"first");
        assert!(!acl.is_open());
        change(&acl, ">second").unwrap();
        for password in [b"first".as_slice(), b"second"] {
            assert!(acl.authenticate(b"default", password));
        }
        acl.require_password(b"third");
        assert!(acl.authenticate(b"default", b"third"));
        assert!(!acl.authenticate(b"default", b"second"));
        change(&acl, "nopass").unwrap();
        assert!(acl.is_open());
        acl.require_password(b"");
        assert!(acl.is_open());
    }

    #[test]
    fn who_is_off_stays_out() {
        let acl = Acl::new(b"");
        change(&acl, "off").unwrap();
        assert!(!acl.is_open());
        assert!(acl.needs_no_password());
        assert!(!acl.authenticate(b"default", b""));
        change(&acl, "on").unwrap();
        assert!(acl.is_open());
    }

    #[test]
    fn rules_are_applied_all_or_none() {
        let acl = Acl::new(b"a");
        assert!(change(&acl, ">b <c").is_err());
        assert!(!acl.authenticate(b"default", b"b"));
        assert!(acl.change(b"bob", &[b"on"]).is_err());
    }

    #[test]
    fn a_definition_begins_with_nothing() {
        let acl = Acl::new(b"a");
        acl.define(b"default", &[b"on", b">b", b"~*", b"&*", b"+@all"]).unwrap();
        assert!(acl.authenticate(b"default", b"b"));
        assert!(!acl.authenticate(b"default", b"a"));
        assert!(acl.define(b"default", &[b"on", b"nopass"]).is_err());
    }
}
