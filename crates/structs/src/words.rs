//! Splitting a line of `redis.conf` (or an inline command, or a script's first line) into words,
//! and quoting a word so that it splits back to itself.
//!
//! Inside double quotes `\n \r \t \b \a`, `\xHH` and a backslash before any other byte are
//! escapes; inside single quotes only `\'` is. A quote may open in the middle of a word, and the
//! byte after a closing quote must be a blank or the end of the line.

/// The blanks of C's `isspace`, which Rust's `is_ascii_whitespace` lacks one of (vertical tab).
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Splits a line into words; `None` if its quotes are not balanced.
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
        rest = &rest[blanks..];
        if rest.first().is_none_or(|byte| *byte == 0) {
            return Some(words);
        }
        let (word, after) = take_word(rest)?;
        words.push(word);
        rest = after;
    }
}

/// Reads one word off the front of a line that does not begin with a blank.
fn take_word(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' | 0 => break,
            b'"' | b'\'' => {
                at = take_quoted(line, at + 1, byte, &mut word)?;
                if line.get(at).is_some_and(|next| *next != 0 && !is_blank(*next)) {
                    return None;
                }
                break;
            }
            other => word.push(other),
        }
        at += 1;
    }
    Some((word, &line[at..]))
}

/// Reads up to the closing quote and returns the position after it.
fn take_quoted(line: &[u8], mut at: usize, quote: u8, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        let byte = *line.get(at)?;
        at += 1;
        if byte == quote {
            return Some(at);
        }
        if byte != b'\\' {
            word.push(byte);
        } else if quote == b'\'' {
            if line.get(at) == Some(&b'\'') {
                word.push(b'\'');
                at += 1;
            } else {
                word.push(b'\\');
            }
        } else if let Some(value) = hex_escape(&line[at..]) {
            word.push(value);
            at += 3;
        } else if let Some(&escaped) = line.get(at) {
            word.push(unescape(escaped));
            at += 1;
        } else {
            word.push(b'\\');
        }
    }
}

/// The value of `xHH` at the front of `text`.
fn hex_escape(text: &[u8]) -> Option<u8> {
    let [b'x', high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// Quotes a word so that [`split_words`] gives it back, in the form Redis writes into its files.
pub fn quote_word(word: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for &byte in word {
        match byte {
            b'\\' | b'"' => quoted.extend([b'\\', byte]),
            b'\n' => quoted.extend(b"\\n"),
            b'\r' => quoted.extend(b"\\r"),
            b'\t' => quoted.extend(b"\\t"),
            0x07 => quoted.extend(b"\\a"),
            0x08 => quoted.extend(b"\\b"),
            b' '..=b'~' => quoted.push(byte),
            _ => quoted.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(line: &str, words: &[&str]) {
        let expected: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(split_words(line.as_bytes()), Some(expected), "{line}");
    }

    #[test]
    fn splits_as_redis_does() {
        check("port 6379", &["port", "6379"]);
        check("  a\t b\x0b ", &["a", "b\x0b"]);
        check("save \"\"", &["save", ""]);
        check(r#"a "b c" 'd e'"#, &["a", "b c", "d e"]);
        check(r#""\x41\n\t\"\q""#, &["A\n\t\"q"]);
        check(r"'it\'s \n'", &[r"it's \n"]);
        check(r#"pre"fix quoted""#, &["prefix quoted"]);
        check(r#""\xZZ""#, &["xZZ"]);
        check("", &[]);
        check("a\0b", &["a"]);
    }

    #[test]
    fn refuses_unbalanced_quotes() {
        for line in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\\", "\"a\\\""] {
            assert_eq!(split_words(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn quoting_reads_back(words in proptest::collection::vec(any::<Vec<u8>>(), 0..5)) {
            let line = words.iter().map(|word| quote_word(word)).collect::<Vec<_>>().join(&b' ');
            prop_assert_eq!(split_words(&line), Some(words));
        }

        #[test]
        fn never_panics(line in any::<Vec<u8>>()) {
            let _ = split_words(&line);
        }
    }
}
