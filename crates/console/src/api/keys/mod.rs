//! Keys: browsing, viewing page by page, editing.

mod edit;
mod scan;
mod value;

use super::Route;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use web::rest::ApiError;

pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/databases", "Databases with how many keys they have", scan::databases),
        Route::get("/keys", "Keys by pattern and type, page by page", scan::keys),
        Route::get("/tree", "Keys under a prefix, grouped by the next separator", scan::tree),
        Route::get("/key", "A key with a page of its value", value::key),
        Route::post("/key", "Change a key", edit::edit).of_value(),
        Route::post("/keys/delete", "Delete keys", edit::delete),
    ]
}

/// A name that is given as text or, if it is none, in base64.
fn name(text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, ApiError> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => {
            STANDARD.decode(base64).map_err(|why| ApiError::bad(why.to_string()))
        }
        _ => Err(ApiError::bad("a name is given either as text or in base64")),
    }
}

/// A pattern that matches a prefix and whatever follows.
pub fn prefix_pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for &byte in prefix {
        if b"*?[]\\^".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_taken_literally() {
        assert_eq!(prefix_pattern(b"a[1]*:"), b"a\\[1\\]\\*:*");
        assert_eq!(prefix_pattern(b""), b"*");
        assert!(name(None, None).is_err());
        assert_eq!(name(None, Some("/wA=".into())).unwrap(), [0xff, 0]);
    }
}
