//! Splitting a line into words, and quoting bytes, by the rules of redis-cli.

/// Splits a line into words. A word may have parts in quotes: within double quotes `\n`, `\xff` and
/// the like are escapes, within single quotes only `\'`. A closing quote must end its word. Returns
/// nothing if a quote is left open or is followed by more.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        if at >= line.len() {
            return Some(words);
        }
        let mut word = Vec::new();
        loop {
            match line.get(at) {
                None => break,
                Some(byte) if is_space(*byte) || *byte == 0 => break,
                Some(b'"') => {
                    at = double_quoted(line, at + 1, &mut word)?;
                    break;
                }
                Some(b'\'') => {
                    at = single_quoted(line, at + 1, &mut word)?;
                    break;
                }
                Some(byte) => {
                    word.push(*byte);
                    at += 1;
                }
            }
        }
        if line.get(at) == Some(&0) {
            words.push(word);
            return Some(words);
        }
        words.push(word);
    }
}

/// Reads the rest of a part in double quotes; returns the place after it.
fn double_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at)? {
            b'\\' => match (line.get(at + 1), hex(line.get(at + 2)), hex(line.get(at + 3))) {
                (Some(b'x'), Some(high), Some(low)) => {
                    word.push(high * 16 + low);
                    at += 4;
                }
                (Some(&escaped), _, _) => {
                    word.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'a' => 7,
                        other => other,
                    });
                    at += 2;
                }
                (None, _, _) => return None,
            },
            b'"' => return ends_word(line, at + 1),
            byte => {
                word.push(byte);
                at += 1;
            }
        }
    }
}

fn single_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match (*line.get(at)?, line.get(at + 1)) {
            (b'\\', Some(b'\'')) => {
                word.push(b'\'');
                at += 2;
            }
            (b'\'', _) => return ends_word(line, at + 1),
            (byte, _) => {
                word.push(byte);
                at += 1;
            }
        }
    }
}

fn ends_word(line: &[u8], at: usize) -> Option<usize> {
    line.get(at).is_none_or(|byte| is_space(*byte)).then_some(at)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0b | 0x0c)
}

fn hex(byte: Option<&u8>) -> Option<u8> {
    (*byte? as char).to_digit(16).map(|digit| digit as u8)
}

/// Appends bytes in double quotes; all that is not printable ASCII becomes an escape.
pub fn quote(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            7 => out.extend(b"\\a"),
            8 => out.extend(b"\\b"),
            0x20..=0x7e => out.push(byte),
            _ => out.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
    out.push(b'"');
}

/// The one word that a quoted string is. A string without quotes is taken as it is.
pub fn unquote(word: &[u8]) -> Option<Vec<u8>> {
    let mut words = split(word)?;
    if words.len() == 1 { words.pop() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split(line.as_bytes())?;
        Some(words.into_iter().map(|word| String::from_utf8_lossy(&word).into_owned()).collect())
    }

    #[test]
    fn quotes_and_escapes_are_read() {
        assert_eq!(words("  set a  b ").unwrap(), ["set", "a", "b"]);
        assert_eq!(words(r#"set "a b" 'c "d'"#).unwrap(), ["set", "a b", "c \"d"]);
        assert_eq!(words(r#""\x41\n\"\q" '\'\n'"#).unwrap(), ["A\n\"q", "'\\n"]);
        assert_eq!(words(r#"a"b""#).unwrap(), ["ab"]);
        assert_eq!(words("''").unwrap(), [""]);
        assert_eq!(words("").unwrap(), [""; 0]);
    }

    #[test]
    fn a_quote_that_is_open_or_followed_by_more_is_refused() {
        for line in [r#"set "a"#, "set 'a", r#""a"b"#, "'a'b", r#""a\"#] {
            assert_eq!(words(line), None, "{line}");
        }
    }

    #[test]
    fn quoting_escapes_what_is_not_printable() {
        let mut out = Vec::new();
        quote(&mut out, b"a\"\\\n\x00\xff");
        assert_eq!(String::from_utf8(out).unwrap(), r#""a\"\\\n\x00\xff""#);
    }
}
