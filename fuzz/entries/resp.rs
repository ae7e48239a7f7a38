//! The RESP parser: however a stream is cut into pieces, the requests are the same and end at the
//! same error; and no request is complete before the bytes have come that were announced as
//! missing.

use resp::parser::{Limits, Parsed, Parser};

/// Lines and headers longer than 64 KiB are refused when they are seen to be, which depends on the
/// pieces; shorter streams have none.
const LONGEST: usize = 32 * 1024;
const USUAL: Limits = Limits { words: 1024 * 1024, bulk_len: 512 * 1024 * 1024 };

#[derive(Debug, PartialEq)]
enum Seen {
    Request(Vec<Vec<u8>>),
    Error(String),
}

/// The first two bytes say where the rest is cut and which limits hold.
pub fn check(data: &[u8]) {
    let Some((&[seed, limits], stream)) = data.split_first_chunk::<2>() else { return };
    if stream.len() > LONGEST {
        return;
    }
    let limits = if limits & 1 == 0 { USUAL } else { Limits::UNAUTHENTICATED };
    let whole = parse(stream, [stream.len()], limits);
    let mut step = u64::from(seed);
    let mut end = 0;
    let pieces = std::iter::from_fn(|| {
        step = step.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let piece = 1 + (step >> 56) as usize % (1 + usize::from(seed) % 40);
        (end < stream.len()).then(|| {
            end = (end + piece).min(stream.len());
            end
        })
    });
    assert_eq!(parse(stream, pieces, limits), whole, "in pieces");
    // Without authentication requests are short, so that every byte alone costs little.
    if stream.len() < 512 {
        assert_eq!(parse(stream, 1..=stream.len(), limits), whole, "byte by byte");
    }
}

/// Parses a stream of which more has come up to each of the ends.
fn parse(stream: &[u8], ends: impl IntoIterator<Item = usize>, limits: Limits) -> Vec<Seen> {
    let mut parser = Parser::new();
    let mut seen = Vec::new();
    let (mut start, mut announced) = (0, 0);
    for end in ends {
        while start < end {
            let input = &stream[start..end];
            match parser.next(input, limits) {
                Parsed::Request { consumed } => {
                    assert!((1..=input.len()).contains(&consumed), "{consumed} bytes consumed");
                    assert!(end >= announced, "complete although bytes were missing");
                    let source = if parser.is_inline() { parser.owned_words() } else { input };
                    let words = parser.words().iter().map(|word| source[word.clone()].to_vec());
                    seen.push(Seen::Request(words.collect()));
                    start += consumed;
                    announced = 0;
                }
                Parsed::Incomplete { missing } => {
                    assert!(missing > 0, "incomplete, but nothing is missing");
                    announced = end + missing;
                    break;
                }
                Parsed::Error(text) => {
                    seen.push(Seen::Error(text));
                    return seen;
                }
            }
        }
    }
    seen
}
