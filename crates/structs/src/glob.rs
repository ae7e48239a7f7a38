//! Redis's glob patterns: KEYS, SCAN MATCH, PSUBSCRIBE, CONFIG GET, ACL.
//!
//! `?` any byte, `*` any bytes, `[abc]`, `[a-c]`, `[^a]` one byte (not) of a set, `\x` the byte x.
//! Bytes, not characters. Broken patterns have a meaning too: a class that is not closed ends with
//! the pattern, a lone `\` at the end is itself.
//!
//! Matching is iterative. When something after a `*` fails, only the *last* star need take one more
//! byte: if the rest of the pattern matches nowhere after an earlier star's shortest match, giving
//! that star more cannot help. So the cost is at most pattern × text, where plain recursion is
//! exponential in the number of stars.

/// Whether letters must agree in case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// `a` is not `A`.
    Sensitive,
    /// ASCII letters match either case.
    Insensitive,
}

/// Whether the whole of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    if pattern == b"*" {
        return true;
    }
    let mut pattern = pattern;
    let mut text = text;
    // Where to resume if what follows the last star fails: the pattern after it, and the text that
    // has not been offered to that pattern yet.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        let advanced = match (pattern, text) {
            ([b'*', rest @ ..], _) => {
                if rest.is_empty() {
                    return true;
                }
                pattern = rest;
                star = Some((rest, text));
                continue;
            }
            ([], []) => return true,
            // Only a longer text could still match, and no star can make it longer.
            (_, []) => return false,
            ([], _) => None,
            (_, [byte, text_rest @ ..]) => {
                match_one(pattern, *byte, case).map(|pattern_rest| (pattern_rest, text_rest))
            }
        };
        match (advanced, star) {
            (Some(advanced), _) => (pattern, text) = advanced,
            (None, Some((after, [_, fewer @ ..]))) => {
                star = Some((after, fewer));
                (pattern, text) = (after, fewer);
            }
            (None, _) => return false,
        }
    }
}

/// Whether `pattern` holds a special byte, i.e. may match more than the one text equal to it.
pub fn is_pattern(pattern: &[u8]) -> bool {
    pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

/// Matches `byte` against the first item of a non-empty pattern that is not a star; returns the
/// rest of the pattern.
#[inline]
fn match_one(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let (literal, rest) = match pattern {
        [b'?', rest @ ..] => return Some(rest),
        [b'[', class @ ..] => return match_class(class, byte, case),
        [b'\\', escaped, rest @ ..] => (*escaped, rest),
        [literal, rest @ ..] => (*literal, rest),
        [] => return None,
    };
    same(literal, byte, case).then_some(rest)
}

/// `class` starts after the `[`.
fn match_class(class: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let (negated, mut class) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    loop {
        class = match class {
            // An escaped byte is compared as it is, whatever the case rule.
            [b'\\', escaped, rest @ ..] => {
                found |= *escaped == byte;
                rest
            }
            [b']', rest @ ..] => {
                class = rest;
                break;
            }
            [] => break,
            [from, b'-', to, rest @ ..] => {
                found |= in_range(*from, *to, byte, case);
                rest
            }
            [single, rest @ ..] => {
                found |= same(*single, byte, case);
                rest
            }
        };
    }
    (found != negated).then_some(class)
}

#[inline]
fn same(a: u8, b: u8, case: Case) -> bool {
    match case {
        Case::Sensitive => a == b,
        Case::Insensitive => a.eq_ignore_ascii_case(&b),
    }
}

/// The bounds may come in either order, and are put in order before case is folded. The reference
/// compares signed characters here, hence so do we.
fn in_range(from: u8, to: u8, byte: u8, case: Case) -> bool {
    let (from, to) = (from as i8, to as i8);
    let (low, high) = (from.min(to), from.max(to));
    let fold = |c: i8| match case {
        Case::Sensitive => c,
        Case::Insensitive => (c as u8).to_ascii_lowercase() as i8,
    };
    (fold(low)..=fold(high)).contains(&fold(byte as i8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_and_texts() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("**", "", true),
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("?", "", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h*llo", "hllo", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            // `a` to `]`, then an unclosed class.
            ("h[a-]llo", "h-llo", false),
            ("h[a-]llo", "h^", true),
            ("[", "a", false),
            ("[^", "a", true),
            ("[a", "a", true),
            ("[a-", "-", true),
            ("[]", "a", false),
            ("[]a]", "a]", false),
            ("[\\]]", "]", true),
            ("[\\", "\\", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("\\", "\\", true),
            ("a\\", "a\\", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxxcx", false),
            ("a*", "a", true),
            ("a**", "a", true),
            ("a*?", "a", false),
            ("*[", "x", false),
            ("*\\", "x\\", true),
            ("a", "A", false),
            ("[a-z]", "B", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes(), Case::Sensitive),
                expected,
                "{pattern:?} {text:?}"
            );
        }
    }

    #[test]
    fn case_can_be_ignored() {
        let matches = |pattern: &str, text: &str| {
            super::matches(pattern.as_bytes(), text.as_bytes(), Case::Insensitive)
        };
        assert!(matches("HeLLo", "hEllO"));
        assert!(matches("[A-C]x", "bX"));
        assert!(matches("[q]", "Q"));
        assert!(!matches("[\\q]", "Q"));
        assert!(matches("\\q", "Q"));
    }

    #[test]
    fn many_stars_are_not_exponential() {
        let pattern = "a*".repeat(500) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 10_000], Case::Sensitive));
    }

    /// The definition, exponential as it is.
    fn naive(pattern: &[u8], text: &[u8], case: Case) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => {
                (0..=text.len()).any(|skipped| naive(rest, &text[skipped..], case))
            }
            (_, [byte, rest @ ..]) => {
                match_one(pattern, *byte, case).is_some_and(|pattern| naive(pattern, rest, case))
            }
            _ => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?^\\[\\]\\\\-]{0,8}", text in "[abA\\]^-]{0,8}") {
            for case in [Case::Sensitive, Case::Insensitive] {
                prop_assert_eq!(
                    matches(pattern.as_bytes(), text.as_bytes(), case),
                    naive(pattern.as_bytes(), text.as_bytes(), case)
                );
            }
        }
    }
}
