//! Replies that own their bytes, and reading them whichever protocol they came by.

use resp::Value;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+OK`.
    Simple(Vec<u8>),
    /// An error: its text, which starts with its code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// A string with its format of three letters.
    Verbatim(String, Vec<u8>),
    /// Null of any type.
    Null,
    /// A double.
    Double(f64),
    /// A boolean.
    Boolean(bool),
    /// An integer of any length.
    BigNumber(String),
    /// Values in order.
    Array(Vec<Reply>),
    /// Keys with their values.
    Map(Vec<(Reply, Reply)>),
    /// Values without an order.
    Set(Vec<Reply>),
    /// A message that answers no request.
    Push(Vec<Reply>),
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl From<Value<'_>> for Reply {
    fn from(value: Value<'_>) -> Reply {
        let all = |values: Vec<Value<'_>>| values.into_iter().map(Reply::from).collect();
        match value {
            Value::Simple(text) => Reply::Simple(text.to_vec()),
            Value::Error(text) => Reply::Error(string(text)),
            Value::Integer(number) => Reply::Integer(number),
            Value::Bulk(text) => Reply::Bulk(text.to_vec()),
            Value::Verbatim { format, text } => Reply::Verbatim(string(format), text.to_vec()),
            Value::Null => Reply::Null,
            Value::Double(number) => Reply::Double(number),
            Value::Boolean(is_true) => Reply::Boolean(is_true),
            Value::BigNumber(digits) => Reply::BigNumber(string(digits)),
            Value::Array(values) => Reply::Array(all(values)),
            Value::Set(values) => Reply::Set(all(values)),
            Value::Push(values) => Reply::Push(all(values)),
            Value::Map(pairs) => Reply::Map(
                pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
            ),
        }
    }
}

impl Reply {
    /// The bytes of a string of any type.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Simple(text) | Reply::Bulk(text) | Reply::Verbatim(_, text) => Some(text),
            _ => None,
        }
    }

    /// A string or a number, as text; empty for all else.
    pub fn text(&self) -> String {
        match self {
            Reply::Integer(number) => number.to_string(),
            Reply::Double(number) => number.to_string(),
            Reply::BigNumber(digits) => digits.clone(),
            Reply::Boolean(is_true) => is_true.to_string(),
            other => other.bytes().map(string).unwrap_or_default(),
        }
    }

    /// An integer, also one that is written as a string; 0 for all else.
    pub fn integer(&self) -> i64 {
        match self {
            Reply::Integer(number) => *number,
            Reply::Boolean(is_true) => i64::from(*is_true),
            other => other.text().parse().unwrap_or(0),
        }
    }

    /// A number, also one that is written as a string.
    pub fn number(&self) -> Option<f64> {
        match self {
            Reply::Integer(number) => Some(*number as f64),
            Reply::Double(number) => Some(*number),
            other => other.text().parse().ok(),
        }
    }

    /// The values of an array, a set or a push; none of all else.
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(values) | Reply::Set(values) | Reply::Push(values) => values,
            _ => &[],
        }
    }

    /// Keys with their values, of a map or of an array in which they alternate.
    pub fn pairs(&self) -> Vec<(&Reply, &Reply)> {
        match self {
            Reply::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
            // RESP3 replies of some commands are arrays of pairs.
            Reply::Array(values) if values.iter().all(|value| value.items().len() == 2) => {
                values.iter().map(|pair| (&pair.items()[0], &pair.items()[1])).collect()
            }
            other => other.items().chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        }
    }

    /// The value of a key, as [`Reply::pairs`] finds it.
    pub fn get(&self, name: &str) -> Option<&Reply> {
        let is_named = |key: &Reply| key.bytes() == Some(name.as_bytes());
        match self {
            Reply::Map(pairs) => {
                pairs.iter().find(|(key, _)| is_named(key)).map(|(_, value)| value)
            }
            other => {
                other.items().chunks_exact(2).find(|pair| is_named(&pair[0])).map(|pair| &pair[1])
            }
        }
    }

    /// The text of an error.
    pub fn error(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    #[test]
    fn pairs_are_found_in_both_protocols() {
        let map = Reply::Map(vec![(bulk("a"), Reply::Integer(1)), (bulk("b"), bulk("2"))]);
        let flat = Reply::Array(vec![bulk("a"), Reply::Integer(1), bulk("b"), bulk("2")]);
        for reply in [map, flat] {
            assert_eq!(reply.get("b").map(Reply::integer), Some(2));
            assert_eq!(reply.get("2"), None);
            assert_eq!(reply.pairs().len(), 2);
        }
    }
}
