//! The ACL file: a line `user NAME RULES…` for each user.

use super::{Acl, DEFAULT_USER, NOT_A_NAME, User, Users, name_of};
use std::sync::Arc;

impl Acl {
    /// ACL LOAD: makes the users those of a file's text, or, if a line is wrong, changes nothing.
    /// `file` is the name to blame. Returns the names of the users that are not as they were.
    ///
    /// # Errors
    /// What is wrong with each line.
    pub fn load(&self, text: &[u8], file: &str) -> Result<Vec<String>, String> {
        let loaded = self.read(text, file)?;
        Ok(self.take(loaded))
    }

    /// Reads the text of an ACL file.
    pub(super) fn read(&self, text: &[u8], file: &str) -> Result<Users, String> {
        let mut errors = String::new();
        let mut loaded = Users::new();
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            match self.read_line(line.trim_ascii(), &loaded) {
                Ok(None) => {}
                Ok(Some(user)) => {
                    loaded.insert(user.name.clone(), Arc::new(user));
                }
                Err(Fault::Duplicate(name)) => {
                    errors += &format!("WARNING: Duplicate user '{name}' found on line {number}. ");
                }
                Err(Fault::Other(why)) => errors += &format!("{file}:{number}{why}. "),
            }
        }
        if !errors.is_empty() {
            return Err(format!(
                "{errors}WARNING: ACL errors detected, no change to the previously active ACL rules \
                 was performed"
            ));
        }
        // A file that does not mention the default user makes it what it is at first.
        loaded
            .entry(DEFAULT_USER.to_owned())
            .or_insert_with(|| Arc::new(User::everything(self.table, DEFAULT_USER)));
        Ok(loaded)
    }

    /// Puts these users into force. Returns the names of those that are not as they were.
    pub(super) fn take(&self, loaded: Users) -> Vec<String> {
        let users = self.locked();
        let is_changed = |name: &&String| {
            let describe = |of: &Users| of.get(*name).map(|user| user.describe());
            describe(&users) != describe(&loaded)
        };
        let changed = users.keys().filter(is_changed).cloned().collect();
        self.publish(users, loaded);
        changed
    }

    fn read_line(&self, line: &[u8], loaded: &Users) -> Result<Option<User>, Fault> {
        let words: Vec<&[u8]> =
            line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
        match words[..] {
            [] => Ok(None),
            [b"user", name, ref rules @ ..] => {
                let name = name_of(name).ok_or_else(|| Fault::Other(format!(": {NOT_A_NAME}")))?;
                if loaded.contains_key(name) {
                    return Err(Fault::Duplicate(name.to_owned()));
                }
                let all_channels = self.all_channels();
                User::nothing(name, all_channels)
                    .with_rules(self.table, rules, all_channels)
                    .map(Some)
                    .map_err(|why| Fault::Other(format!(": {why}")))
            }
            _ => Err(Fault::Other(
                " should start with user keyword followed by the username".to_owned(),
            )),
        }
    }

    /// ACL SAVE: the text of a file with the users as they are.
    pub fn file_text(&self) -> Vec<u8> {
        self.lines().into_iter().flat_map(|line| [&b"user "[..], &line, b"\n"].concat()).collect()
    }
}

enum Fault {
    Duplicate(String),
    Other(String),
}
