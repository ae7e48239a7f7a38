//! Log-ins at a port: what requests show, and what keeps others from guessing it.
//!
//! ```text
//!   mod       passwords in headers, random names
//!   cookie    what a browser shows
//!   tokens    browsers that have logged in, where a port has one user
//!   limiter   log-ins that fail wait for their turn
//! ```

mod cookie;
mod limiter;
mod tokens;

pub use cookie::{clear, cookie, value_of};
pub use limiter::Limiter;
pub use tokens::Tokens;

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// A user and the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The password, as it is.
    pub password: String,
}

/// Draws a name that cannot be guessed.
pub fn random_token() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// A digest of a secret.
pub type Digest = [u8; 32];

/// Returns what a secret is found by. It takes the same time for any guess.
pub fn digest(text: &str) -> Digest {
    Sha256::digest(text.as_bytes()).into()
}

/// Reads the credentials in the `Authorization` header. An empty name stands for the default user.
pub fn basic(headers: &HeaderMap) -> Option<Credentials> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    let user = if user.is_empty() { "default" } else { user };
    Some(Credentials { user: user.to_owned(), password: password.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers.insert(header::HOST, "a.example:80".parse().unwrap());
        headers
    }

    #[test]
    fn basic_credentials_may_have_colons_in_the_password() {
        // alice:a:b
        let found = basic(&headers(header::AUTHORIZATION, "Basic YWxpY2U6YTpi")).unwrap();
        assert_eq!((found.user.as_str(), found.password.as_str()), ("alice", "a:b"));
        // :a
        assert_eq!(basic(&headers(header::AUTHORIZATION, "basic OmE=")).unwrap().user, "default");
        for bad in ["Basic", "Basic !", "Bearer YTpi", "Basic YQ=="] {
            assert!(basic(&headers(header::AUTHORIZATION, bad)).is_none(), "{bad}");
        }
    }
}
