//! The requests that clients really send, parsed in one go.
//!
//! Nearly every request has fewer than ten words of fewer than ten thousand bytes, and has arrived
//! whole. Such a one needs none of the [`Parser`](crate::Parser)'s state, and its words go straight
//! to where they are used. There is one way to spell it, so that what a client sent can go into the
//! journal as it is.

/// `$`, one digit, and the line's end, as four bytes read at once; the digit's place left free.
const ONE_DIGIT: u32 = u32::from_le_bytes([b'$', 0, b'\r', b'\n']);
/// `$`, two digits, and half of the line's end.
const TWO_DIGITS: u32 = u32::from_le_bytes([b'$', 0, 0, b'\r']);

/// Appends the words of the request at `at` to `words` and returns where it ends. `None`, with
/// `words` as before, if it is incomplete, malformed or out of the ordinary: ask the parser.
#[inline]
pub fn plain<'i>(input: &'i [u8], at: usize, words: &mut Vec<&'i [u8]>) -> Option<usize> {
    let [b'*', count @ b'1'..=b'9', b'\r', b'\n'] = *input.get(at..)?.first_chunk()? else {
        return None;
    };
    let (before, count) = (words.len(), usize::from(count - b'0'));
    words.reserve(count);
    let mut at = at + 4;
    for _ in 0..count {
        let Some((word, end)) = word(input, at) else {
            words.truncate(before);
            return None;
        };
        words.push(word);
        at = end;
    }
    Some(at)
}

/// The word whose length stands at `at`, and where what follows begins.
#[inline]
fn word(input: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let (len, start) = length(input, at)?;
    let rest = &input[start..];
    (rest.get(len..len + 2)? == b"\r\n").then(|| (&rest[..len], start + len + 2))
}

/// The length that stands at `at`, and where what it counts begins.
#[inline]
fn length(input: &[u8], at: usize) -> Option<(usize, usize)> {
    let [head @ .., last] = *input.get(at..)?.first_chunk::<5>()?;
    let bits = u32::from_le_bytes(head);
    let tens = usize::from(head[1].wrapping_sub(b'0'));
    if bits & 0xffff_00ff == ONE_DIGIT && tens < 10 {
        return Some((tens, at + 4));
    }
    let ones = usize::from(head[2].wrapping_sub(b'0'));
    if bits & 0xff00_00ff == TWO_DIGITS && last == b'\n' {
        return ((1..10).contains(&tens) && ones < 10).then_some((tens * 10 + ones, at + 5));
    }
    longer_length(input, at)
}

/// The same for a length of up to four digits.
fn longer_length(input: &[u8], at: usize) -> Option<(usize, usize)> {
    let [b'$', first @ b'1'..=b'9', rest @ ..] = input.get(at..)? else { return None };
    let mut len = usize::from(first - b'0');
    let mut digits = 1;
    while let digit @ 0..10 = rest.get(digits - 1)?.wrapping_sub(b'0') {
        len = len * 10 + usize::from(digit);
        digits += 1;
        if digits > 4 {
            return None;
        }
    }
    rest[digits - 1..].starts_with(b"\r\n").then_some((len, at + 1 + digits + 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Parsed, Parser};
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { words: 1 << 20, bulk_len: 1 << 20 };

    fn encode(words: &[Vec<u8>]) -> Vec<u8> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        request
    }

    /// What is found plain must be what the parser finds.
    fn agrees(input: &[u8], at: usize) -> bool {
        let mut words: Vec<&[u8]> = vec![b"before"];
        let end = plain(input, at, &mut words);
        let Some(end) = end else {
            assert_eq!(words, [b"before"]);
            return false;
        };
        let mut parser = Parser::new();
        let outcome = parser.next(&input[at..], LIMITS);
        let Parsed::Request { consumed } = outcome else { panic!("{outcome:?}") };
        assert_eq!(at + consumed, end);
        let expected: Vec<&[u8]> = parser.words().iter().map(|w| &input[at..][w.clone()]).collect();
        assert_eq!(&words[1..], expected);
        let owned: Vec<Vec<u8>> = expected.iter().map(|word| word.to_vec()).collect();
        assert_eq!(&input[at..end], encode(&owned), "not as the journal spells it");
        true
    }

    #[test]
    fn lengths_of_up_to_four_digits_are_plain() {
        for len in (0..1200).chain(9990..10_000) {
            let words = vec![b"SET".to_vec(), vec![b'k'; len], vec![b'v'; 9999 - len]];
            assert!(agrees(&encode(&words), 0), "{len}");
        }
        assert!(!agrees(&encode(&[vec![b'k'; 10_000]]), 0));
        assert!(agrees(&encode(&vec![vec![b'k'; 9]; 9]), 0));
        assert!(!agrees(&encode(&vec![vec![b'k'; 9]; 10]), 0));
    }

    #[test]
    fn the_rest_is_for_the_parser() {
        for input in [
            &b"*0\r\n"[..],
            b"*1\r\n$04\r\nPING\r\n",
            b"*1\r\n$-1\r\nPING\r\n",
            b"PING\r\n",
            b"",
            b"*",
            b"*1\n$4\r\nPING\r\n",
            b"*1\r\n:4\r\nPING\r\n",
            b"*1\r\n$4 \rPING\r\n",
            b"*01\r\n$4\r\nPING\r\n",
            b"*1\r\n$4\r\nPING\rx",
            b"*1\r\n$4\r\nPINGx\n",
            b"*1\r\n$4\rxPING\r\n",
            b"*1\r\n$400\r\nPING\r\n",
            b"*1\r\n$4a0\r\nPING\r\n",
            b"*1\r\n$40000\r\nPING\r\n",
            b"*1\r\n$400\rxPING\r\n",
        ] {
            assert!(!agrees(input, 0), "{:?}", String::from_utf8_lossy(input));
        }
        let whole = encode(&[b"GET".to_vec(), b"key".to_vec()]);
        for end in 0..whole.len() {
            assert!(!agrees(&whole[..end], 0));
        }
    }

    proptest! {
        #[test]
        fn plain_agrees_with_the_parser(
            words in prop::collection::vec(
                prop_oneof![
                    9 => prop::collection::vec(any::<u8>(), 0..110),
                    1 => prop::collection::vec(any::<u8>(), 0..1100),
                ],
                1..12,
            ),
            changed in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            before in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let mut input = encode(&words);
            if let Some((at, byte)) = changed {
                let at = at.index(input.len());
                input[at] = byte;
            }
            let at = before.len();
            agrees(&[before, input].concat(), at);
        }
    }
}
