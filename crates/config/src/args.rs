//! The command line: `[CONFIG | -] [--directive value …]`, by Redis's rules.
//!
//! The options are turned into lines of a configuration that are read after the file and standard
//! input, so that later ones win, and an error shows the line it came from. An option's values
//! reach up to the next word that begins with `--`; the word right after an option name is a value
//! whatever it begins with. Name and values may also come as one word (`"--port 7000"`).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use structs::words::{quote_word, split_words};

/// What the command line asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The configuration file, as it was given.
    pub file: Option<PathBuf>,
    /// Read a configuration from standard input, after the file.
    pub reads_stdin: bool,
    /// The options as lines of a configuration.
    pub options: Vec<u8>,
}

impl Arguments {
    /// Reads the words after the program's name (and its subcommand).
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Arguments {
        let words: Vec<Vec<u8>> = words.into_iter().map(OsString::into_vec).collect();
        let mut arguments = Arguments::default();
        let mut first_option = 0;
        if let Some(file) = words.first().filter(|word| !word.starts_with(b"-")) {
            arguments.file = Some(PathBuf::from(std::ffi::OsStr::from_bytes(file)));
            first_option = 1;
        }
        let mut may_be_name = true;
        for at in first_option..words.len() {
            let (word, next) = (&words[at], words.get(at + 1));
            let is_last = next.is_none();
            if word == b"-" && (at == 0 || is_last) {
                arguments.reads_stdin = true;
            } else if let Some(name) = word.strip_prefix(b"--").filter(|_| may_be_name) {
                may_be_name = arguments.start_option(name, next);
            } else {
                arguments.options.extend(quote_word(word));
                arguments.options.push(b' ');
                may_be_name = true;
            }
        }
        arguments
    }

    /// Begins the line of an option; returns whether the next word may be another option's name.
    fn start_option(&mut self, name: &[u8], next: Option<&Vec<u8>>) -> bool {
        if !self.options.is_empty() {
            self.options.push(b'\n');
        }
        self.options.extend_from_slice(name);
        self.options.push(b' ');
        let has_value = split_words(name).is_none_or(|words| words.len() != 1);
        if has_value {
            return true;
        }
        // Programs that build a command line from a list leave `--save` bare when the list is
        // empty. Bare `--sentinel` has always been allowed.
        let is_bare = next.is_none_or(|next| next.starts_with(b"--"));
        if is_bare && name.eq_ignore_ascii_case(b"save") {
            self.options.extend_from_slice(b"\"\"");
            return true;
        }
        is_bare && name.eq_ignore_ascii_case(b"sentinel")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], file: Option<&str>, reads_stdin: bool, options: &str) {
        let parsed = Arguments::parse(words.iter().map(OsString::from));
        assert_eq!(parsed.file, file.map(PathBuf::from));
        assert_eq!(parsed.reads_stdin, reads_stdin);
        assert_eq!(String::from_utf8_lossy(&parsed.options), options);
    }

    #[test]
    fn options_become_lines() {
        check(&[], None, false, "");
        check(&["a.conf"], Some("a.conf"), false, "");
        check(&["--port", "7000"], None, false, "port \"7000\" ");
        check(
            &["a.conf", "--port", "7000", "--slaveof", "a", "b"],
            Some("a.conf"),
            false,
            "port \"7000\" \nslaveof \"a\" \"b\" ",
        );
        check(&["--port 7000", "--hz 5"], None, false, "port 7000 \nhz 5 ");
    }

    #[test]
    fn the_word_after_a_name_is_a_value() {
        check(&["--requirepass", "--secret"], None, false, "requirepass \"--secret\" ");
        check(&["--port", "--maxclients", "5"], None, false, "port \"--maxclients\" \"5\" ");
    }

    #[test]
    fn save_may_be_bare() {
        check(&["--save", "--port", "1"], None, false, "save \"\"\nport \"1\" ");
        check(&["--port", "1", "--save"], None, false, "port \"1\" \nsave \"\"");
        check(&["--save", ""], None, false, "save \"\" ");
        check(&["--save", "60", "1"], None, false, "save \"60\" \"1\" ");
    }

    #[test]
    fn a_dash_reads_standard_input() {
        check(&["-"], None, true, "");
        check(&["-", "--port", "1"], None, true, "port \"1\" ");
        check(&["a.conf", "--port", "1", "-"], Some("a.conf"), true, "port \"1\" ");
        check(&["--bind", "-", "a"], None, false, "bind \"-\" \"a\" ");
    }
}
