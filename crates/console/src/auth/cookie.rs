//! Cookies: that of a session, and others.

use axum::http::{HeaderMap, HeaderValue, header};

const NAME: &str = "dunlin-console";

/// The token in the request's cookie.
pub fn token_of(headers: &HeaderMap) -> Option<&str> {
    value_of(headers, NAME)
}

/// The value of a cookie.
pub fn value_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split("; "))
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// The header that gives a browser its session.
pub fn session_cookie(token: &str, is_secure: bool) -> HeaderValue {
    cookie(NAME, token, is_secure)
}

/// The header that gives a browser a cookie, which scripts do not see and other sites do not send.
pub fn cookie(name: &str, token: &str, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).expect("a token has letters and digits")
}

/// The header that takes it away.
pub fn clear_cookie() -> HeaderValue {
    clear(NAME)
}

/// The header that takes a cookie away.
pub fn clear(name: &str) -> HeaderValue {
    let text = format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    HeaderValue::from_str(&text).expect("a name has letters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        assert_eq!(token_of(&headers), None);
        headers.append(header::COOKIE, HeaderValue::from_static("a=b; dunlin-consoles=c"));
        headers.append(header::COOKIE, HeaderValue::from_static("d=e; dunlin-console=f_-"));
        assert_eq!(token_of(&headers), Some("f_-"));
        assert!(clear_cookie().to_str().unwrap().starts_with(&format!("{NAME}=;")));
    }
}
