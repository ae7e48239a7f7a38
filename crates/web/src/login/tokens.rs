//! The log-ins of browsers at a port that has one user, whose programs send the password each time.

use super::cookie::{cookie, value_of};
use super::{Digest, digest, random_token};
use axum::http::{HeaderMap, HeaderValue};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use structs::sync::lock;

/// A token ends when it was not shown for so long.
const MAX_SILENCE: Duration = Duration::from_secs(8 * 3600);
/// Tokens there can be; the one that was not shown for longest makes way.
const MAX_TOKENS: usize = 512;

/// A browser that has logged in.
struct Kept {
    shown: Instant,
    /// The secret that its page sends with each request that changes something.
    csrf: String,
}

/// See the head of this file.
pub struct Tokens {
    cookie: &'static str,
    is_secure: bool,
    kept: Mutex<HashMap<Digest, Kept>>,
}

impl Tokens {
    /// There are none. Browsers keep theirs in a cookie of this name, which they send over TLS only
    /// if it is secure.
    pub fn new(cookie: &'static str, is_secure: bool) -> Tokens {
        Tokens { cookie, is_secure, kept: Mutex::default() }
    }

    /// Returns the secret of the browser's page, if the request comes from one that has logged in.
    pub fn csrf_of(&self, headers: &HeaderMap) -> Option<String> {
        let token = value_of(headers, self.cookie)?;
        let mut kept = lock(&self.kept);
        kept.retain(|_, it| it.shown.elapsed() < MAX_SILENCE);
        let found = kept.get_mut(&digest(token))?;
        found.shown = Instant::now();
        Some(found.csrf.clone())
    }

    /// Makes a token for a browser that has just logged in. Returns the header that gives it, and
    /// the secret of its page.
    pub fn add(&self) -> (HeaderValue, String) {
        let (token, csrf) = (random_token(), random_token());
        let mut kept = lock(&self.kept);
        if kept.len() >= MAX_TOKENS
            && let Some((&oldest, _)) = kept.iter().min_by_key(|(_, it)| it.shown)
        {
            kept.remove(&oldest);
        }
        kept.insert(digest(&token), Kept { shown: Instant::now(), csrf: csrf.clone() });
        (cookie(self.cookie, &token, self.is_secure), csrf)
    }

    /// Ends the log-in of a browser.
    pub fn end(&self, headers: &HeaderMap) {
        if let Some(token) = value_of(headers, self.cookie) {
            lock(&self.kept).remove(&digest(token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header;

    #[test]
    fn a_browser_shows_the_token_that_it_was_given() {
        let tokens = Tokens::new("a", false);
        let (given, csrf) = tokens.add();
        let pair = given.to_str().unwrap().split(';').next().unwrap();
        let of = |line: &str| HeaderMap::from_iter([(header::COOKIE, line.parse().unwrap())]);
        let knows = |line: &str| tokens.csrf_of(&of(line)).is_some_and(|known| known == csrf);
        assert!(knows(pair) && knows(&format!("b=c; {pair}")));
        assert!(!knows("a=b") && !knows("a=") && tokens.csrf_of(&HeaderMap::new()).is_none());
        tokens.end(&of(pair));
        assert!(!knows(pair));
    }

    #[test]
    fn the_cookie_of_an_encrypted_port_is_sent_over_tls_only() {
        for is_secure in [false, true] {
            let (given, _) = Tokens::new("a", is_secure).add();
            let has_it = given.to_str().unwrap().split("; ").any(|part| part == "Secure");
            assert_eq!(has_it, is_secure);
        }
    }
}
