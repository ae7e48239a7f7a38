//! SCAN over several servers: the number of a server in the walk is inside the cursor, which stays a decimal
//! number of 64 bits, as some clients demand.

/// A place in the walk over all servers: a server and its own cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The server's number in the walk.
    pub number: usize,
    /// The cursor to send there.
    pub at: u64,
}

/// The place that a client's cursor leads to. Any number is a cursor.
pub fn decode(cursor: u64, radix: usize) -> Cursor {
    let radix = radix.max(1) as u64;
    Cursor { number: (cursor % radix) as usize, at: cursor / radix }
}

/// The cursor for the client after a server answered with `next`; `following` is the number
/// behind its own. 0 when the last server is done. `None`: the server's cursor is too large to carry a
/// number with it.
pub fn encode(number: usize, next: u64, radix: usize, following: Option<usize>) -> Option<u64> {
    if next > 0 {
        return next.checked_mul(radix.max(1) as u64)?.checked_add(number as u64);
    }
    Some(following.map_or(0, |following| following as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_comes_back(server in 0usize..64, next in 1u64..1 << 57, more in 1usize..64) {
            let servers = server + more;
            let cursor = encode(server, next, servers, None).expect("it fits");
            prop_assert_ne!(cursor, 0);
            prop_assert_eq!(decode(cursor, servers), Cursor { number: server, at: next });
        }

        #[test]
        fn a_walk_visits_every_server_once(pages in prop::collection::vec(1u64..5, 1..9)) {
            let servers = pages.len();
            let (mut cursor, mut seen) = (0, Vec::new());
            loop {
                let place = decode(cursor, servers);
                seen.push((place.number, place.at));
                let next = if place.at + 1 < pages[place.number] { place.at + 1 } else { 0 };
                let following = Some(place.number + 1).filter(|at| *at < servers);
                cursor = encode(place.number, next, servers, following).expect("it fits");
                if cursor == 0 {
                    break;
                }
            }
            let expected: Vec<_> = pages
                .iter()
                .enumerate()
                .flat_map(|(server, &count)| (0..count).map(move |page| (server, page)))
                .collect();
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn a_cursor_that_is_too_large_is_refused() {
        assert_eq!(encode(1, u64::MAX, 2, None), None);
        assert_eq!(encode(0, u64::MAX, 1, None), Some(u64::MAX));
    }
}
