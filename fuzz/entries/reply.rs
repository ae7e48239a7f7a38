//! The reader of replies: however a stream is cut into pieces, the replies are the same and end at
//! the same error; the tree is made of exactly what the scanner finds; nothing is complete before
//! the bytes have come that were announced as missing.

use resp::decode::{Scanned, Scanner, decode};
use resp::token::{InvalidReply, ReplyLimits};

/// A line longer than 64 KiB is refused when it is seen to be, which depends on the pieces; shorter
/// streams have none.
const LONGEST: usize = 32 * 1024;
const SMALL: ReplyLimits = ReplyLimits { depth: 5, bulk_len: 1000, elements: 100 };

#[derive(Debug, PartialEq)]
enum Seen {
    Reply(Vec<u8>),
    Error(InvalidReply),
}

/// The first two bytes say how the rest is cut and which limits hold.
pub fn check(data: &[u8]) {
    let Some((&[step, limits], stream)) = data.split_first_chunk::<2>() else { return };
    if stream.len() > LONGEST {
        return;
    }
    let limits = if limits & 1 == 0 { ReplyLimits::PEER } else { SMALL };
    let whole = scan(stream, 0..=0, limits);
    let step = 1 + usize::from(step);
    let pieces = (0..stream.len()).step_by(step);
    assert_eq!(scan(stream, pieces, limits), whole, "in pieces of {step}");
    if stream.len() < 512 {
        assert_eq!(scan(stream, 0..stream.len(), limits), whole, "byte by byte");
    }
    for seen in whole {
        if let Seen::Reply(reply) = seen {
            decode(&reply, limits).expect("the scanner found a reply");
            let beginning = decode(&reply[..reply.len() - 1], limits);
            assert_eq!(beginning, Err(InvalidReply("incomplete")));
        }
    }
    // Whatever it says, it must come to an end.
    let _ = decode(stream, limits);
}

/// The replies of a stream of which more has come up to each of the ends, and at last all of it.
fn scan(stream: &[u8], ends: impl Iterator<Item = usize>, limits: ReplyLimits) -> Vec<Seen> {
    let mut scanner = Scanner::new(limits);
    let mut seen = Vec::new();
    let (mut start, mut announced) = (0, 0);
    for end in ends.chain([stream.len()]) {
        while start < end {
            match scanner.scan(&stream[start..end]) {
                Ok(Scanned::Reply { len }) => {
                    assert!((1..=end - start).contains(&len), "a reply of {len} bytes");
                    assert!(end >= announced, "complete although bytes were missing");
                    seen.push(Seen::Reply(stream[start..start + len].to_vec()));
                    start += len;
                    announced = 0;
                }
                Ok(Scanned::Incomplete { missing }) => {
                    assert!(missing > 0, "incomplete, but nothing is missing");
                    announced = end + missing;
                    break;
                }
                Err(why) => {
                    seen.push(Seen::Error(why));
                    return seen;
                }
            }
        }
    }
    seen
}
