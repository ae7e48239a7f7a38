//! Tokens of browsers that have logged in, for a port whose requests have their credentials each
//! time. A token replaces no password: it tells a browser that knew it from one that guesses.

use super::cookie::{cookie, value_of};
use super::random_token;
use super::sessions::{Digest, digest};
use axum::http::{HeaderMap, HeaderValue};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use structs::sync::lock;

/// A token ends when it was not shown for so long.
const MAX_SILENCE: Duration = Duration::from_secs(8 * 3600);
/// Tokens there can be; the one that was not shown for longest makes way.
const MAX_TOKENS: usize = 512;

/// See the head of this file.
pub struct Tokens {
    cookie: &'static str,
    kept: Mutex<HashMap<Digest, Instant>>,
}

impl Tokens {
    /// There are none. Browsers keep theirs in a cookie of this name.
    pub fn new(cookie: &'static str) -> Tokens {
        Tokens { cookie, kept: Mutex::default() }
    }

    /// Returns whether a request comes from a browser that has logged in.
    pub fn know(&self, headers: &HeaderMap) -> bool {
        let Some(token) = value_of(headers, self.cookie) else { return false };
        let mut kept = lock(&self.kept);
        kept.retain(|_, shown| shown.elapsed() < MAX_SILENCE);
        kept.get_mut(&digest(token)).map(|shown| *shown = Instant::now()).is_some()
    }

    /// Makes a token for a browser that has just logged in. Returns the header that gives it.
    pub fn add(&self) -> HeaderValue {
        let token = random_token();
        let mut kept = lock(&self.kept);
        if kept.len() >= MAX_TOKENS
            && let Some((&oldest, _)) = kept.iter().min_by_key(|(_, shown)| **shown)
        {
            kept.remove(&oldest);
        }
        kept.insert(digest(&token), Instant::now());
        cookie(self.cookie, &token, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header;

    #[test]
    fn a_browser_shows_the_token_that_it_was_given() {
        let tokens = Tokens::new("a");
        let given = tokens.add();
        let pair = given.to_str().unwrap().split(';').next().unwrap();
        let knows = |line: &str| {
            let headers = HeaderMap::from_iter([(header::COOKIE, line.parse().unwrap())]);
            tokens.know(&headers)
        };
        assert!(knows(pair) && knows(&format!("b=c; {pair}")));
        assert!(!knows("a=b") && !knows("a=") && !tokens.know(&HeaderMap::new()));
    }
}
