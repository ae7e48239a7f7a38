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

#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    Text(String),
    Base64 { base64: String },
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        match Given::deserialize(deserializer)? {
            Given::Text(text) => Ok(Blob::whole(text)),
            Given::Base64 { base64 } => {
                STANDARD.decode(base64).map(Blob::whole).map_err(serde::de::Error::custom)
            }
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
}
