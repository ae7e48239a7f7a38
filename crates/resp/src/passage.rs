//! Requests that are passed on in parts, because they are too long to be kept: where they end.

use crate::decode::Passed;
use crate::parser::{Header, header};

/// Follows one request, from its first byte, without keeping any of it.
#[derive(Debug, Default)]
pub struct Passage {
    has_begun: bool,
    /// Words that have not come whole.
    words: usize,
    /// Of the word that is being passed on: the bytes that have not come, its end included.
    body: usize,
}

impl Passage {
    /// Before the first byte.
    pub fn new() -> Passage {
        Passage::default()
    }

    /// Goes on with the request: the input begins behind the bytes that are done with. What is left
    /// of it belongs to a length that is not complete, or to the next request. A word may have
    /// `longest` bytes.
    ///
    /// # Errors
    /// What is wrong with the request, as servers say it.
    pub fn pass(&mut self, input: &[u8], longest: usize) -> Result<Passed, &'static str> {
        let mut at = 0;
        loop {
            let len = (input.len() - at).min(self.body.saturating_sub(2));
            self.body -= len;
            at += len;
            let rest = &input[at..];
            if self.body > 0 {
                if self.body > 2 || rest.len() < 2 {
                    return Ok(Passed { bytes: at, is_whole: false });
                }
                if !rest.starts_with(b"\r\n") {
                    return Err("expected CRLF after a bulk string");
                }
                self.body = 0;
                at += 2;
                self.words -= 1;
            }
            if self.has_begun && self.words == 0 {
                return Ok(Passed { bytes: at, is_whole: true });
            }
            let rest = &input[at..];
            let Some(&kind) = rest.first() else {
                return Ok(Passed { bytes: at, is_whole: false });
            };
            if kind != if self.has_begun { b'$' } else { b'*' } {
                return Err("expected '$'");
            }
            let (number, used) = match header(rest, 1) {
                Header::Number(number, used) => (number, used),
                Header::Incomplete if rest.len() < 64 => {
                    return Ok(Passed { bytes: at, is_whole: false });
                }
                _ => return Err("invalid bulk length"),
            };
            let number = usize::try_from(number).map_err(|_| "invalid bulk length")?;
            if std::mem::replace(&mut self.has_begun, true) {
                if number > longest {
                    return Err("invalid bulk length");
                }
                self.body = number + 2;
            } else {
                self.words = number;
            }
            at += used;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::{push_bulk, push_header};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_request_ends_where_it_does_however_it_is_cut(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            cuts in prop::collection::vec(1usize..20, 1..30),
        ) {
            let mut stream = Vec::new();
            push_header(&mut stream, b'*', words.len());
            words.iter().for_each(|word| push_bulk(&mut stream, word));
            let end = stream.len();
            stream.extend_from_slice(b"*1\r\n");
            let mut passage = Passage::new();
            let (mut start, mut have, mut cuts) = (0, 0, cuts.iter().cycle());
            loop {
                have = (have + cuts.next().expect("endless")).min(stream.len());
                let passed = passage.pass(&stream[start..have], 100).expect("it is valid");
                start += passed.bytes;
                prop_assert!(start <= end);
                if passed.is_whole {
                    break;
                }
                prop_assert!(have < stream.len(), "the end was not found");
            }
            prop_assert_eq!(start, end);
        }
    }

    #[test]
    fn what_is_no_request_is_found_out() {
        let pass = |input: &[u8]| Passage::new().pass(input, 10);
        assert!(pass(b"*1\r\n$1\r\nabc").is_err());
        assert!(pass(b"*1\r\n$11\r\n").is_err());
        assert!(pass(b"*1\r\n:1\r\n").is_err());
        assert!(pass(b"*1\r\n$-1\r\n").is_err());
        assert_eq!(pass(b"*1\r\n$1"), Ok(Passed { bytes: 4, is_whole: false }));
    }
}
