//! Users: their credentials, the requests that they may send, and the log of what was refused.
//!
//! This is the one place that knows credentials and permissions. `requirepass` is a rule like any
//! other here: setting the option replaces the default user's passwords, and the option does not
//! follow when ACL SETUSER changes them, as in Redis.
//!
//! A [`User`] never changes. A change puts a new one into the list and raises the *generation*; a
//! session keeps the user that it last saw, and looks again when the generation has changed. So a
//! change takes effect on connected clients with their next request, and a request pays for one
//! load. While every user may do everything ([`Acl::is_restricting`]) it does not pay at all.

pub mod category;
mod commands;
mod file;
pub mod log;
pub mod password;
pub mod rules;
pub mod selector;
mod shared;

use crate::table::{CommandTable, Resolved};
use config::{AclPubsubDefault, Config};
use log::AclLog;
use password::PasswordHash;
pub use rules::User;
pub use selector::Request;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use structs::flags::Flag;
use structs::sync::lock;

/// The name of the user of clients that have not authenticated.
pub const DEFAULT_USER: &str = "default";

/// What of a request is denied. A selector that denies a later one came nearer to allowing it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denial {
    /// A database.
    Database,
    /// The command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
}

impl Denial {
    /// What ACL LOG calls it.
    pub fn name(self) -> &'static str {
        match self {
            Denial::Command => "command",
            Denial::Key => "key",
            Denial::Channel => "channel",
            Denial::Database => "database",
        }
    }

    /// What a user is told of a request for this command, without a code.
    pub fn text(self, user: &str, row: &Resolved) -> String {
        match self {
            Denial::Command => {
                let name = &row.full_name;
                format!("User {user} has no permissions to run the '{name}' command")
            }
            Denial::Key => "No permissions to access a key".to_owned(),
            Denial::Channel => "No permissions to access a channel".to_owned(),
            Denial::Database => "No permissions to access database".to_owned(),
        }
    }
}

type Users = BTreeMap<String, Arc<User>>;

/// Users and their credentials.
pub struct Acl {
    table: &'static CommandTable,
    users: Mutex<Users>,
    generation: AtomicU64,
    /// Follows from the default user; asked for every command of a client that has not
    /// authenticated.
    is_open: AtomicBool,
    is_restricting: Flag,
    config: Arc<Config>,
    /// What was refused.
    pub log: AclLog,
}

/// The user that a session acts as.
#[derive(Clone)]
pub struct SessionUser {
    user: Arc<User>,
    generation: u64,
}

impl SessionUser {
    /// The user as it is now; one that was deleted stays as it was until its clients are closed.
    pub fn current(&mut self, acl: &Acl) -> &Arc<User> {
        let generation = acl.generation.load(Acquire);
        if self.generation != generation {
            self.generation = generation;
            if let Some(user) = acl.user(self.user.name.as_bytes()) {
                self.user = user;
            }
        }
        &self.user
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.user.name
    }

    /// Whether nothing is denied to it, as far as the session knows.
    pub fn may_do_everything(&self) -> bool {
        self.user.may_do_everything()
    }
}

impl Acl {
    /// The default user, with the password of `requirepass` or with none if that is empty.
    pub fn new(table: &'static CommandTable, config: &Arc<Config>) -> Acl {
        Acl::with_flag(table, config, Flag::default())
    }

    /// The same. `flag` is the bit of restricted users among the special states of the server.
    pub(crate) fn with_flag(table: &'static CommandTable, config: &Arc<Config>, flag: Flag) -> Acl {
        let default = Arc::new(User::everything(table, DEFAULT_USER));
        let acl = Acl {
            table,
            users: Mutex::new(Users::from([(DEFAULT_USER.to_owned(), default)])),
            generation: AtomicU64::new(0),
            is_open: AtomicBool::new(true),
            is_restricting: flag,
            config: Arc::clone(config),
            log: AclLog::default(),
        };
        acl.require_password(&config.requirepass());
        acl
    }

    /// Tells states of the users apart.
    pub fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    fn locked(&self) -> MutexGuard<'_, Users> {
        lock(&self.users)
    }

    /// Puts changed users into force.
    fn publish(&self, mut users: MutexGuard<'_, Users>, changed: Users) {
        *users = changed;
        let is_open =
            users.get(DEFAULT_USER).is_some_and(|user| user.is_on && user.needs_no_password);
        let is_restricting = users.values().any(|user| !user.may_do_everything());
        self.is_open.store(is_open, Relaxed);
        // Once there was a restricted user, one of its clients may still be connected.
        if is_restricting {
            self.is_restricting.set(true);
        }
        self.generation.fetch_add(1, AcqRel);
    }

    fn replace(&self, users: MutexGuard<'_, Users>, user: User) {
        let mut changed = users.clone();
        changed.insert(user.name.clone(), Arc::new(user));
        self.publish(users, changed);
    }

    /// Whether a new user may use all channels.
    fn all_channels(&self) -> bool {
        self.config.acl_pubsub_default() == AclPubsubDefault::AllChannels
    }

    /// The user of this name, as it is now.
    pub fn user(&self, name: &[u8]) -> Option<Arc<User>> {
        self.locked().get(name_of(name)?).map(Arc::clone)
    }

    /// The user of this name, as it is now. If there is none, one that may do nothing.
    pub(crate) fn rights_of(&self, name: &[u8]) -> Arc<User> {
        let nothing = || Arc::new(User::nothing(&String::from_utf8_lossy(name), false));
        self.user(name).unwrap_or_else(nothing)
    }

    /// A session's user, for one that is known to exist.
    fn session_user(&self, name: &[u8]) -> Option<SessionUser> {
        let generation = self.generation.load(Acquire);
        self.user(name).map(|user| SessionUser { user, generation })
    }

    /// The user of a client that has not authenticated.
    pub fn default_user(&self) -> SessionUser {
        self.session_user(DEFAULT_USER.as_bytes()).expect("the default user cannot be removed")
    }

    /// The user of the server's own connections, which may do everything and is in no list. No user
    /// can be given its name, which has a space.
    pub fn watcher(&self) -> SessionUser {
        let rules: [&[u8]; 4] = [b"on", b"~*", b"&*", b"+@all"];
        let user = User::nothing("the server", true)
            .with_rules(self.table, &rules, true)
            .expect("the rules are in order");
        SessionUser { user: Arc::new(user), generation: self.generation.load(Acquire) }
    }

    /// The user for which a node sends requests. If there is none of that name it may do nothing.
    pub fn user_of_link(&self, name: &[u8]) -> SessionUser {
        // Such a user may not do everything, whether this node has heard of one or not.
        self.is_restricting.set(true);
        let generation = self.generation.load(Acquire);
        SessionUser { user: self.rights_of(name), generation }
    }

    /// Returns whether a user may be a node's: it may do everything, or has `+@nodes` and all keys
    /// and channels. Others that happen to be allowed as much are clients.
    pub fn may_be_node(&self, user: &User) -> bool {
        user.is_of_nodes(self.table)
    }

    /// The names of all users, in alphabetical order.
    pub fn names(&self) -> Vec<String> {
        self.locked().keys().cloned().collect()
    }

    /// Whether a client may run commands without having authenticated.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// Whether there is, or was, a user that may not do everything.
    #[inline]
    pub fn is_restricting(&self) -> bool {
        self.is_restricting.is_set()
    }

    /// Whether any password will do for the default user, should it be on.
    pub fn needs_no_password(&self) -> bool {
        self.user(DEFAULT_USER.as_bytes()).is_some_and(|user| user.needs_no_password)
    }

    /// The user that these credentials are of, if they let their client in.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<SessionUser> {
        // Hashed before the lock is taken, and even for a user that does not exist.
        let hash = PasswordHash::of(password);
        self.session_user(name).filter(|found| found.user.accepts(&hash))
    }

    /// The user of a client whose certificate has proved its name, if that user is on.
    pub fn certified(&self, name: &str) -> Option<SessionUser> {
        self.session_user(name.as_bytes()).filter(|found| found.user.is_on)
    }

    /// `requirepass`: the default user's only password; an empty one means none is needed.
    pub fn require_password(&self, password: &[u8]) {
        let users = self.locked();
        let user = users[DEFAULT_USER].with_only_password(password);
        self.replace(users, user);
    }

    /// ACL SETUSER: applies rules to a user, which is created if need be, all or none.
    ///
    /// # Errors
    /// What is wrong, without a code.
    pub fn change(&self, name: &[u8], rules: &[&[u8]]) -> Result<(), String> {
        let all_channels = self.all_channels();
        let name = name_of(name).ok_or(NOT_A_NAME)?;
        let users = self.locked();
        let user = match users.get(name) {
            Some(user) => user.with_rules(self.table, rules, all_channels)?,
            None => {
                User::nothing(name, all_channels).with_rules(self.table, rules, all_channels)?
            }
        };
        self.replace(users, user);
        Ok(())
    }

    /// What a configuration file says of a user: the same, beginning with a user that may do
    /// nothing.
    ///
    /// # Errors
    /// What is wrong, without a code.
    pub fn define(&self, name: &[u8], rules: &[&[u8]]) -> Result<(), String> {
        let from_nothing: Vec<&[u8]> =
            [&b"reset"[..]].into_iter().chain(rules.iter().copied()).collect();
        self.change(name, &from_nothing)
    }

    /// ACL DELUSER: removes a user other than the default one; `false` if there is none of this
    /// name.
    pub fn remove(&self, name: &[u8]) -> bool {
        let users = self.locked();
        let mut changed = users.clone();
        let is_there = name_of(name).is_some_and(|name| changed.remove(name).is_some());
        if is_there {
            self.publish(users, changed);
        }
        is_there
    }

    /// The users as a configuration file has them, without the word `user`.
    pub fn lines(&self) -> Vec<Vec<u8>> {
        let line =
            |user: &Arc<User>| [user.name.as_bytes(), b" ", user.describe().as_slice()].concat();
        self.locked().values().map(line).collect()
    }
}

/// Whether ACL rules could not be written down with this name: they are words between blanks.
pub fn has_blanks(name: &[u8]) -> bool {
    name.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

/// What is said of a name that is none.
const NOT_A_NAME: &str = "Usernames must be valid UTF-8";

/// A user's name. Bytes that are no text name no user: shown with replacement characters, two of
/// them would be one.
fn name_of(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()
}

#[cfg(test)]
mod tests;
