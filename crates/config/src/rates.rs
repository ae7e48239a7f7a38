//! `rate-limits`: what a user, or an address, may ask for in a second.

use crate::memory::parse_memory;
use ipnet::IpNet;

/// The connections that are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateSubject {
    /// All connections of a user.
    User(Box<[u8]>),
    /// All connections from an address, for each address of a network.
    Address(IpNet),
}

/// A limit; 0 is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The connections that it is for.
    pub subject: RateSubject,
    /// Requests a second.
    pub requests: u64,
    /// Bytes of requests and replies a second.
    pub bytes: u64,
}

const FORM: &str = "rate-limits are groups of three words: user:NAME or address:NETWORK \
                    (10.0.0.0/8), requests a second, bytes a second (10mb); 0 is no limit";

/// Reads groups of three words: `user:batch 1000 10mb address:10.0.0.0/8 0 50mb`. The error is the
/// reason for the user.
pub fn parse_rate_limits(text: &[u8]) -> Result<Vec<RateLimit>, &'static str> {
    let words: Vec<&[u8]> =
        text.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    let groups = words.chunks(3).map(|group| match group {
        [subject, requests, bytes] => Some(RateLimit {
            subject: parse_subject(subject)?,
            requests: std::str::from_utf8(requests).ok()?.parse().ok()?,
            bytes: parse_memory(bytes)?,
        }),
        _ => None,
    });
    groups.collect::<Option<_>>().ok_or(FORM)
}

fn parse_subject(word: &[u8]) -> Option<RateSubject> {
    if let Some(name) = word.strip_prefix(b"user:") {
        return (!name.is_empty()).then(|| RateSubject::User(name.into()));
    }
    let network = std::str::from_utf8(word.strip_prefix(b"address:")?).ok()?;
    let address = network.parse().map(|address: std::net::IpAddr| IpNet::from(address));
    network.parse().or(address).ok().map(RateSubject::Address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_three_words_are_read() {
        let text = b"user:batch 1000 10mb  address:10.0.0.0/8 0 5k address:::1 7 0";
        let limits = parse_rate_limits(text).expect("they are right");
        let network = |text: &str| RateSubject::Address(text.parse().expect("a network"));
        let expected = [
            (RateSubject::User((*b"batch").into()), 1000, 10 << 20),
            (network("10.0.0.0/8"), 0, 5000),
            (network("::1/128"), 7, 0),
        ];
        let found = limits.into_iter().map(|limit| (limit.subject, limit.requests, limit.bytes));
        assert!(found.eq(expected));
        assert_eq!(parse_rate_limits(b""), Ok(Vec::new()));
    }

    #[test]
    fn other_words_are_refused() {
        for text in [
            "user:batch 1000",
            "user: 1 1",
            "batch 1 1",
            "address:10.0.0.0/33 1 1",
            "address:example.org 1 1",
            "user:batch -1 1",
            "user:batch 1 ten",
            "user:batch 1 1 user:other",
        ] {
            assert_eq!(parse_rate_limits(text.as_bytes()), Err(FORM), "{text}");
        }
    }
}
