//! A reply as a tree that owns its bytes, and reading it whichever protocol it came by.

use std::borrow::Cow;

/// A value of a reply. Attributes, which no client asks for, are left out.
///
/// Texts are bytes, and numbers that are no integers the text that the server wrote: what a server
/// said is shown and compared as it was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `+OK`.
    Simple(Vec<u8>),
    /// An error: its text, which starts with its code.
    Error(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// A string that had a format, which is left out.
    Verbatim(Vec<u8>),
    /// Null of any type.
    Null,
    /// A double.
    Double(Vec<u8>),
    /// A boolean.
    Boolean(bool),
    /// An integer of any length, as digits with or without a sign.
    BigNumber(Vec<u8>),
    /// Values in order.
    Array(Vec<Value>),
    /// Keys with their values.
    Map(Vec<(Value, Value)>),
    /// Values without an order.
    Set(Vec<Value>),
    /// A message that answers no request.
    Push(Vec<Value>),
}

impl Value {
    /// Returns the bytes of a string of any type.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(text) | Value::Bulk(text) | Value::Verbatim(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a string or a number as text; empty for all else. Bytes that are no UTF-8 are
    /// replaced, so keys and values are [`Value::bytes`].
    pub fn text(&self) -> String {
        match self {
            Value::Integer(number) => number.to_string(),
            Value::Boolean(is_true) => is_true.to_string(),
            Value::Double(text) | Value::BigNumber(text) => lossy(text).into_owned(),
            other => other.bytes().map(lossy).unwrap_or_default().into_owned(),
        }
    }

    /// Returns the text of an error, or that of all else: see [`Value::text`].
    pub fn text_or_error(&self) -> String {
        self.error().map_or_else(|| self.text(), Cow::into_owned)
    }

    /// Returns an integer, also one that is written as a string.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            Value::Boolean(is_true) => Some(i64::from(*is_true)),
            Value::Double(text) | Value::BigNumber(text) => {
                std::str::from_utf8(text).ok()?.parse().ok()
            }
            other => std::str::from_utf8(other.bytes()?).ok()?.parse().ok(),
        }
    }

    /// Returns a number, also one that is written as a string.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            other => other.text().parse().ok(),
        }
    }

    /// Returns the values of an array, a set or a push; none of all else.
    pub fn items(&self) -> &[Value] {
        match self {
            Value::Array(values) | Value::Set(values) | Value::Push(values) => values,
            _ => &[],
        }
    }

    /// Returns keys with their values, of a map or of an array in which they alternate.
    pub fn pairs(&self) -> Vec<(&Value, &Value)> {
        match self {
            Value::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
            // RESP3 replies of some commands are arrays of pairs.
            Value::Array(values) if values.iter().all(|value| value.items().len() == 2) => {
                values.iter().map(|pair| (&pair.items()[0], &pair.items()[1])).collect()
            }
            other => other.items().chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        }
    }

    /// Returns the value of a key, in a map or in an array in which keys and values alternate.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let is_named = |key: &Value| key.bytes() == Some(name.as_bytes());
        match self {
            Value::Map(pairs) => {
                pairs.iter().find(|(key, _)| is_named(key)).map(|(_, value)| value)
            }
            other => {
                other.items().chunks_exact(2).find(|pair| is_named(&pair[0])).map(|pair| &pair[1])
            }
        }
    }

    /// Returns the text of an error.
    pub fn error(&self) -> Option<Cow<'_, str>> {
        match self {
            Value::Error(text) => Some(lossy(text)),
            _ => None,
        }
    }

    /// Returns the text of the first error in it: of itself, or of a value of an aggregate, as EXEC
    /// has them.
    pub fn refusal(&self) -> Option<Cow<'_, str>> {
        self.error().or_else(|| self.items().iter().find_map(Value::refusal))
    }

    /// Returns whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn pairs_are_found_in_both_protocols() {
        let map = Value::Map(vec![(bulk("a"), Value::Integer(1)), (bulk("b"), bulk("2"))]);
        let flat = Value::Array(vec![bulk("a"), Value::Integer(1), bulk("b"), bulk("2")]);
        for value in [map, flat] {
            assert_eq!(value.get("b").and_then(Value::integer), Some(2));
            assert_eq!(value.get("2"), None);
            assert_eq!(value.pairs().len(), 2);
        }
        let nested = Value::Array(vec![Value::Array(vec![bulk("a"), Value::Integer(1)])]);
        assert_eq!(nested.pairs(), [(&bulk("a"), &Value::Integer(1))]);
    }

    #[test]
    fn numbers_are_read_from_any_type() {
        assert_eq!((bulk("7").integer(), bulk("x").integer()), (Some(7), None));
        assert_eq!(Value::Double(b"1.50".to_vec()).number(), Some(1.5));
        assert_eq!(Value::Double(b"1.50".to_vec()).text(), "1.50");
        assert_eq!(Value::BigNumber(b"12".to_vec()).integer(), Some(12));
        assert_eq!((Value::Null.text(), Value::Null.number()), (String::new(), None));
    }
}
