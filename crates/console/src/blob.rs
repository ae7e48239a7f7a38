//! Strings of any bytes in JSON: text where it is text, else base64; long ones are cut.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// Bytes of a string that are shown in a list.
pub const MAX_LISTED: usize = 4 << 10;
/// Bytes of a string that are shown by itself.
pub const MAX_SHOWN: usize = 64 << 10;

/// A string of any bytes. In JSON it is a string if it is UTF-8, else `{"base64": …}`; one that was
/// cut is `{"text": …, "size": bytes}` or `{"base64": …, "size": bytes}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The bytes, or the first of them.
    pub bytes: Vec<u8>,
    /// How many there are in all.
    pub size: usize,
}

impl Blob {
    /// All of a string.
    pub fn whole(bytes: impl Into<Vec<u8>>) -> Blob {
        let bytes = bytes.into();
        Blob { size: bytes.len(), bytes }
    }

    /// At most the first so many bytes; fewer where a character would be cut.
    pub fn cut(bytes: &[u8], most: usize) -> Blob {
        Blob::part(&bytes[..bytes.len().min(most)], bytes.len())
    }

    /// The first bytes of a string of so many.
    pub fn part(bytes: &[u8], size: usize) -> Blob {
        let mut end = bytes.len();
        if size > end
            && let Err(error) = std::str::from_utf8(bytes)
            && error.error_len().is_none()
        {
            end = error.valid_up_to();
        }
        Blob { bytes: bytes[..end].to_vec(), size }
    }

    /// Whether bytes are missing.
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.size
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Blob {
        Blob::cut(bytes, MAX_LISTED)
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(&self.bytes);
        if let (Ok(text), false) = (text, self.is_cut()) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(None)?;
        match text {
            Ok(text) => map.serialize_entry("text", text)?,
            Err(_) => map.serialize_entry("base64", &STANDARD.encode(&self.bytes))?,
        }
        if self.is_cut() {
            map.serialize_entry("size", &self.size)?;
        }
        map.end()
    }
}

/// A string as a request has it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a string is text, or {\"base64\": …} with all of its bytes")]
enum Given {
    Text(String),
    Shown(Shown),
}

/// A string as an answer has it where it is not simply text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    text: Option<String>,
    base64: Option<String>,
    size: Option<usize>,
}

impl<'de> Deserialize<'de> for Blob {
    /// Takes whole strings only. A shortened name would be the name of something else.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        let wrong = |why: String| serde::de::Error::custom(why);
        let (bytes, size) = match Given::deserialize(deserializer)? {
            Given::Text(text) => return Ok(Blob::whole(text)),
            Given::Shown(Shown { text: Some(text), base64: None, size }) => {
                (text.into_bytes(), size)
            }
            Given::Shown(Shown { text: None, base64: Some(base64), size }) => {
                (STANDARD.decode(base64).map_err(|why| wrong(why.to_string()))?, size)
            }
            Given::Shown(_) => return Err(wrong("a string is either text or base64".into())),
        };
        match size {
            Some(size) if size != bytes.len() => Err(wrong(format!(
                "the string is shortened: it has {} of {size} bytes. Send all of them",
                bytes.len()
            ))),
            _ => Ok(Blob::whole(bytes)),
        }
    }
}

impl JsonSchema for Blob {
    fn schema_name() -> Cow<'static, str> {
        "Blob".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A string of any bytes: text, or base64 where it is not UTF-8; with its size where it was cut.",
            "oneOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": {
                        "text": { "type": "string" },
                        "base64": { "type": "string", "contentEncoding": "base64" },
                        "size": { "type": "integer", "description": "bytes of the whole string" }
                    }
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_binary_and_long_strings() {
        let json = |blob: &Blob| serde_json::to_string(blob).unwrap();
        assert_eq!(json(&Blob::whole("é")), r#""é""#);
        assert_eq!(json(&Blob::whole([0xff, 0])), r#"{"base64":"/wA="}"#);
        assert_eq!(json(&Blob::cut("aé".as_bytes(), 2)), r#"{"text":"a","size":3}"#);
        assert_eq!(json(&Blob::cut(&[0xff, 0, 1], 2)), r#"{"base64":"/wA=","size":3}"#);
        for blob in [Blob::whole("é"), Blob::whole([0xff, 0])] {
            assert_eq!(serde_json::from_str::<Blob>(&json(&blob)).unwrap(), blob);
        }
    }

    #[test]
    fn a_shortened_string_is_not_taken_for_the_whole() {
        let read = |json: &str| serde_json::from_str::<Blob>(json).map_err(|why| why.to_string());
        for long in [&[0xff; 5000][..], &[b'a'; 5000]] {
            let json = serde_json::to_string(&Blob::from(long)).unwrap();
            let why = read(&json).unwrap_err();
            assert!(why.starts_with("the string is shortened: it has 4096 of 5000 bytes"), "{why}");
        }
        assert_eq!(read(r#"{"base64":"/wA=","size":2}"#), Ok(Blob::whole([0xff, 0])));
        assert_eq!(read(r#"{"text":"ab","size":2}"#), Ok(Blob::whole("ab")));
        for wrong in [r#"{"base64":"/wA=","size":1}"#, r#"{"text":"a","base64":"YQ=="}"#, "{}", "7"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
