//! Cookies.

use axum::http::{HeaderMap, HeaderValue, header};

/// Returns the value of a cookie of a request.
pub fn value_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split("; "))
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// Makes the header that gives a browser a cookie. Scripts do not see it, and other sites do not
/// send it.
pub fn cookie(name: &str, token: &str, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).expect("a token has letters and digits")
}

/// Makes the header that takes a cookie away.
pub fn clear(name: &str) -> HeaderValue {
    let text = format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    HeaderValue::from_str(&text).expect("a name has letters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(value_of(&headers, "dunlin"), None);
        headers.append(header::COOKIE, HeaderValue::from_static("a=b; dunlins=c"));
        headers.append(header::COOKIE, HeaderValue::from_static("d=e; dunlin=f_-"));
        assert_eq!(value_of(&headers, "dunlin"), Some("f_-"));
        assert!(clear("dunlin").to_str().unwrap().starts_with("dunlin=;"));
    }
}
