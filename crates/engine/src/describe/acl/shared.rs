//! Users that all nodes of a cluster have alike: the text of an ACL file, which is kept at the
//! coordinator. A change is made to the text first, and to the users in force when the text is read
//! again.
//!
//! The user by which nodes log in to each other is each node's own, and in no such text.

use super::{Acl, DEFAULT_USER, NOT_A_NAME, User, name_of};
use std::sync::Arc;

/// The text's name in errors.
const PLACE: &str = "the users of the cluster";

impl Acl {
    /// Returns the text of the users in force, but for the node's own.
    pub fn shared_text(&self, own: &[u8]) -> Vec<u8> {
        text_of(self.locked().iter().filter(|(name, _)| name.as_bytes() != own))
    }

    /// Returns the text with a user changed or added, as ACL SETUSER does it.
    ///
    /// # Errors
    /// What is wrong, without a code.
    pub fn set_in_text(
        &self,
        text: &[u8],
        name: &[u8],
        rules: &[Vec<u8>],
    ) -> Result<Vec<u8>, String> {
        let mut users = self.read(text, PLACE)?;
        let name = name_of(name).ok_or(NOT_A_NAME)?;
        let all_channels = self.all_channels();
        let new = || Arc::new(User::nothing(name, all_channels));
        let user = users.get(name).map_or_else(new, Arc::clone);
        let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
        let user = user.with_rules(self.table, &rules, all_channels)?;
        users.insert(name.to_owned(), Arc::new(user));
        Ok(text_of(users.iter()))
    }

    /// Returns the text without these users, and how many of them there were. The default user
    /// stays.
    ///
    /// # Errors
    /// The text cannot be read.
    pub fn remove_from_text(
        &self,
        text: &[u8],
        names: &[Vec<u8>],
    ) -> Result<(Vec<u8>, i64), String> {
        let mut users = self.read(text, PLACE)?;
        let before = users.len();
        let is_named = |name: &str| names.iter().any(|other| other == name.as_bytes());
        users.retain(|name, _| name == DEFAULT_USER || !is_named(name));
        Ok((text_of(users.iter()), (before - users.len()) as i64))
    }

    /// Puts the users of the text into force, beside the node's own. Returns the names of those
    /// that are not as they were.
    ///
    /// # Errors
    /// The text cannot be read; nothing was changed.
    pub fn load_shared(&self, text: &[u8], own: &[u8]) -> Result<Vec<String>, String> {
        let mut loaded = self.read(text, PLACE)?;
        if let Some(own) = self.user(own) {
            loaded.insert(own.name.clone(), own);
        }
        Ok(self.take(loaded))
    }
}

fn text_of<'u>(users: impl Iterator<Item = (&'u String, &'u Arc<User>)>) -> Vec<u8> {
    let line = |(name, user): (&String, &Arc<User>)| {
        [b"user ", name.as_bytes(), b" ", user.describe().as_slice(), b"\n"].concat()
    };
    users.flat_map(line).collect()
}
