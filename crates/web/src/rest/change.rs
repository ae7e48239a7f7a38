//! What requests that change something may say beside their body: a name, by which the same request
//! sent again is known, and that they are only to be planned.

use super::ApiError;
use super::route::Route;
use axum::http::HeaderMap;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The longest name of a request.
pub const MAX_REQUEST_NAME: usize = 128;

/// Returns how the sender names a request, by its header `Idempotency-Key`; empty if it does not.
///
/// # Errors
/// The name is too long, or no plain text.
pub fn request_name(headers: &HeaderMap) -> Result<String, ApiError> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(String::new()) };
    let text = value.to_str().ok().map(str::trim);
    let text = text.filter(|text| (1..=MAX_REQUEST_NAME).contains(&text.len()));
    text.map(str::to_owned).ok_or_else(|| {
        ApiError::bad(format!("Idempotency-Key has 1 to {MAX_REQUEST_NAME} plain characters"))
    })
}

/// Returns what a request asks for, as short text: requests that are the same have the same.
pub fn fingerprint<C>(route: &Route<C>, body: &[u8]) -> String {
    let mut text = format!("{} {} ", route.method, route.path);
    for byte in Sha256::digest(body) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns whether the query asks only for the plan of a change.
///
/// # Errors
/// It has another parameter.
pub fn only_plans(query: &str) -> Result<bool, ApiError> {
    let mut wanted = false;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        wanted = match pair {
            "dry_run=true" | "dry_run=1" | "dry_run" => true,
            "dry_run=false" | "dry_run=0" => false,
            _ => return Err(ApiError::bad(format!("There is no parameter '{pair}'"))),
        };
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::super::{Done, Nothing};
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_request_has_a_short_plain_name_or_none() {
        let of = |value: &[u8]| {
            let value = HeaderValue::from_bytes(value).expect("a header");
            let headers = HeaderMap::from_iter([("idempotency-key".parse().unwrap(), value)]);
            request_name(&headers).ok()
        };
        assert_eq!(request_name(&HeaderMap::new()).ok().as_deref(), Some(""));
        assert_eq!(of(b" a b ").as_deref(), Some("a b"));
        assert_eq!(of(&[b'a'; MAX_REQUEST_NAME]).map(|name| name.len()), Some(MAX_REQUEST_NAME));
        for wrong in [&b""[..], b"  ", &[b'a'; MAX_REQUEST_NAME + 1], b"a\xe9"] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_the_same_request_has_the_same_fingerprint() {
        async fn done((): (), _: Nothing) -> Result<Done, ApiError> {
            Ok(Done::new())
        }
        let [a, b] = ["/a", "/b"].map(|path| Route::post(path, "A route", done));
        assert_eq!(fingerprint(&a, b"{}"), fingerprint(&a, b"{}"));
        assert_ne!(fingerprint(&a, b"{}"), fingerprint(&b, b"{}"));
        assert_ne!(fingerprint(&a, b"{}"), fingerprint(&a, b"{} "));
    }

    #[test]
    fn a_query_says_that_a_change_is_only_planned() {
        for (query, wanted) in [
            ("", Some(false)),
            ("dry_run", Some(true)),
            ("dry_run=1", Some(true)),
            ("dry_run=true&dry_run=0", Some(false)),
            ("dry-run=1", None),
            ("dry_run=yes", None),
        ] {
            assert_eq!(only_plans(query).ok(), wanted, "{query}");
        }
    }
}
