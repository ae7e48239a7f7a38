//! `shed-clients`: which clients count for least under overload.

use structs::glob::{Case, matches};

/// An attribute of a client, and a glob pattern for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPattern {
    /// For the name of CLIENT SETNAME.
    Name(Box<[u8]>),
    /// For the library of CLIENT SETINFO LIB-NAME.
    Library(Box<[u8]>),
}

impl ClientPattern {
    /// Returns whether a client with this name and library is meant. A client without the attribute
    /// is not.
    pub fn is_for(&self, name: &[u8], library: &[u8]) -> bool {
        let (pattern, text) = match self {
            ClientPattern::Name(pattern) => (pattern, name),
            ClientPattern::Library(pattern) => (pattern, library),
        };
        !text.is_empty() && matches(pattern, text, Case::Sensitive)
    }
}

const FORM: &str = "shed-clients are words like name:PATTERN (the name of CLIENT SETNAME) or \
                    lib:PATTERN (the library of CLIENT SETINFO), with blanks between them";

/// Reads words: `name:batch-* lib:redis-py*`. The error is the reason for the user.
pub fn parse_client_patterns(text: &[u8]) -> Result<Vec<ClientPattern>, &'static str> {
    let words = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    words.map(parse_pattern).collect::<Option<_>>().ok_or(FORM)
}

fn parse_pattern(word: &[u8]) -> Option<ClientPattern> {
    let pattern_behind = |attribute: &[u8]| {
        let pattern = word.strip_prefix(attribute)?;
        (!pattern.is_empty()).then(|| pattern.into())
    };
    let of_library = || pattern_behind(b"lib:").map(ClientPattern::Library);
    pattern_behind(b"name:").map(ClientPattern::Name).or_else(of_library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_say_which_attribute_they_are_for() {
        let patterns = parse_client_patterns(b" name:batch-*  lib:redis-py*").expect("right");
        let is_for = |name: &str, library: &str| {
            patterns.iter().any(|pattern| pattern.is_for(name.as_bytes(), library.as_bytes()))
        };
        assert!(is_for("batch-7", "") && is_for("", "redis-py(rq)") && is_for("x", "redis-py"));
        assert!(!is_for("redis-py", "batch-7") && !is_for("a-batch-7", "") && !is_for("", ""));
        let all = parse_client_patterns(b"name:*").expect("right");
        assert!(all[0].is_for(b"x", b"") && !all[0].is_for(b"", b"x"), "one has no name");
        assert_eq!(parse_client_patterns(b""), Ok(Vec::new()));
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["batch-*", "name:", "lib:", "user:batch", "name:a b", "Name:a"] {
            assert_eq!(parse_client_patterns(text.as_bytes()), Err(FORM), "{text}");
        }
    }
}
