//! Regular expressions of paths, of bounded size. They are those of the crate `regex`, whose time
//! is linear in the text.

use regex::{Regex, RegexBuilder};

/// Bytes of a pattern.
const MAX_PATTERN_LEN: usize = 4096;
/// Bytes of a compiled pattern.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern that is to match the whole text, or a part of it. Nothing if it is
    /// invalid or too large.
    pub(crate) fn new(pattern: &str, whole: bool) -> Option<Pattern> {
        if pattern.len() > MAX_PATTERN_LEN {
            return None;
        }
        let anchored;
        let pattern = if whole {
            anchored = format!("^(?:{pattern})$");
            &anchored
        } else {
            pattern
        };
        let regex = RegexBuilder::new(pattern)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .nest_limit(64)
            .build();
        regex.ok().map(Pattern)
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}
