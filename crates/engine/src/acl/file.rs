//! The ACL file: a line `user NAME RULES…` for each user.

use super::{Acl, DEFAULT_USER};

impl Acl {
    /// ACL LOAD: makes the users those of a file's text, or, if a line is wrong, changes nothing
    /// and says what is. `file` is the name to blame.
    pub fn load(&self, text: &[u8], file: &str) -> Result<(), String> {
        let mut errors = String::new();
        let mut rules_of_default: Option<Vec<&[u8]>> = None;
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            let line = line.trim_ascii();
            let words: Vec<&[u8]> =
                line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
            match words[..] {
                [] => {}
                [b"user", name, ref rules @ ..] if name == DEFAULT_USER.as_bytes() => {
                    if rules_of_default.replace(rules.to_vec()).is_some() {
                        errors += &format!(
                            "WARNING: Duplicate user '{DEFAULT_USER}' found on line {number}. "
                        );
                    }
                }
                [b"user", name, ..] => {
                    let name = String::from_utf8_lossy(name);
                    errors += &format!(
                        "{file}:{number}: this version has no user but 'default', not '{name}'. "
                    );
                }
                _ => {
                    errors += &format!(
                        "{file}:{number} should start with user keyword followed by the username. "
                    );
                }
            }
        }
        if errors.is_empty() {
            let defined = match rules_of_default {
                Some(rules) => self.define(DEFAULT_USER.as_bytes(), &rules),
                // A file that does not mention the default user makes it what it is at first.
                None => self.define(
                    DEFAULT_USER.as_bytes(),
                    &[b"on", b"nopass", b"~*", b"&*", b"alldbs", b"+@all"],
                ),
            };
            match defined {
                Ok(()) => return Ok(()),
                Err(why) => errors = format!("{file}: {why}. "),
            }
        }
        Err(format!(
            "{errors}WARNING: ACL errors detected, no change to the previously active ACL rules \
             was performed"
        ))
    }

    /// ACL SAVE: the text of a file with the users as they are.
    pub fn file_text(&self) -> Vec<u8> {
        self.lines().into_iter().flat_map(|line| [&b"user "[..], &line, b"\n"].concat()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_can_be_loaded() {
        let acl = Acl::new(b"secret");
        let text = acl.file_text();
        let other = Acl::new(b"");
        other.load(&text, "users.acl").unwrap();
        assert!(!other.is_open());
        assert!(other.authenticate(b"default", b"secret"));
        other.load(b"\n  \n", "users.acl").unwrap();
        assert!(other.is_open());
    }

    #[test]
    fn a_wrong_line_changes_nothing() {
        let acl = Acl::new(b"secret");
        let text = b"user default on nopass ~* &* +@all\nuser bob on\n\nbob on\n";
        let error = acl.load(text, "users.acl").unwrap_err();
        assert!(error.starts_with("users.acl:2: this version has no user but"), "{error}");
        assert!(error.contains("users.acl:4 should start with user keyword"), "{error}");
        assert!(!acl.is_open());
    }
}
