//! Proxies one behind the other, and those that lead to themselves.
//!
//! A proxy begins its connections with `CLIENT SETNAME dunlin-proxy-ID`, by the random number of
//! its process, and `dunlin-proxy-ID-N` on those for requests that have come through N proxies
//! before. A proxy that hears its own number, or that would be one too many, answers LOOP and the
//! connection is refused. The count ends loops through other proxies: A to B to A.
//!
//! The count is part of a client's [session](crate::pool::Session), so requests share a connection
//! if they have come through equally many proxies: there are few such connections however many
//! proxies there are in front. Rejected: the numbers of all proxies on the way in the name, which
//! needs a connection for each of them.

use route::raw;
use structs::numbers;

/// So many proxies may be one behind the other.
pub(super) const MAX_HOPS: u8 = 8;

pub(super) const PREFIX: &str = "dunlin-proxy-";

/// Digits of the process's number.
const ID_LEN: usize = 16;

/// The name of the connections of a process.
pub(super) fn link_name(process: u64) -> String {
    format!("{PREFIX}{process:016x}")
}

/// Returns the request that gives a connection its name. `hops`: the proxies that its requests have
/// come through before.
pub fn introduction(link_name: &str, hops: u8) -> Vec<u8> {
    let name = match hops {
        0 => link_name.to_owned(),
        hops => format!("{link_name}-{hops}"),
    };
    raw::request(&[b"CLIENT", b"SETNAME", name.as_bytes()])
}

/// Returns how many proxies requests have come through, by their connection's name: 0 if it is not
/// the name of a proxy's.
pub(super) fn hops_of(name: &[u8]) -> u8 {
    let Some((_, rest)) = name
        .strip_prefix(PREFIX.as_bytes())
        .and_then(|numbers| numbers.split_at_checked(ID_LEN))
        .filter(|(id, _)| id.iter().all(u8::is_ascii_hexdigit))
    else {
        return 0;
    };
    match rest.strip_prefix(b"-").map(numbers::parse_u64) {
        None if rest.is_empty() => 1,
        Some(Some(before)) => u8::try_from(before).unwrap_or(u8::MAX).saturating_add(1),
        _ => 0,
    }
}

/// Returns whether a request is how a proxy begins a connection.
pub(super) fn is_introduction(words: &[&[u8]]) -> bool {
    let [command, sub, name] = words else { return false };
    command.eq_ignore_ascii_case(b"CLIENT")
        && sub.eq_ignore_ascii_case(b"SETNAME")
        && hops_of(name) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_many_proxies_there_were() {
        let name = link_name(0xabc);
        assert_eq!(hops_of(name.as_bytes()), 1);
        for (rest, hops) in [("-1", 2), ("-8", 9), ("-254", 255), ("-255", 255), ("-999999", 255)] {
            assert_eq!(hops_of(format!("{name}{rest}").as_bytes()), hops, "{rest}");
        }
        for other in ["", "dunlin-proxy-", "dunlin-proxy-000000000000zzzz", "x"] {
            assert_eq!(hops_of(other.as_bytes()), 0, "{other}");
        }
        for rest in ["1", "-", "--1", "-x", "-1-1"] {
            assert_eq!(hops_of(format!("{name}{rest}").as_bytes()), 0, "{rest}");
        }
        let words: [&[u8]; 3] = [b"client", b"setname", name.as_bytes()];
        assert!(is_introduction(&words) && !is_introduction(&words[..2]));
    }
}
