//! Replies of a server, with their types kept.

/// A reply. Attributes are read and left out.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+`
    Status(Vec<u8>),
    /// `-` and `!`
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `,` as the server wrote it.
    Double(Vec<u8>),
    /// `(` as the server wrote it.
    Big(Vec<u8>),
    /// `$`
    Text(Vec<u8>),
    /// `=` without its format.
    Verbatim(Vec<u8>),
    /// No value, of any protocol.
    Nil,
    /// `#`
    Bool(bool),
    /// `*`
    Array(Vec<Reply>),
    /// `~`
    Set(Vec<Reply>),
    /// `%`: keys and values in turn.
    Map(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
}

impl Reply {
    /// The bytes of a text of any kind.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Reply::Status(text)
            | Reply::Error(text)
            | Reply::Text(text)
            | Reply::Verbatim(text)
            | Reply::Double(text)
            | Reply::Big(text) => Some(text),
            _ => None,
        }
    }

    /// The same as a string; empty if it is no text.
    pub fn string(&self) -> String {
        String::from_utf8_lossy(self.text().unwrap_or_default()).into_owned()
    }

    /// The number of an integer or of a text that is one.
    pub fn number(&self) -> Option<i64> {
        match self {
            Reply::Integer(number) => Some(*number),
            _ => std::str::from_utf8(self.text()?).ok()?.parse().ok(),
        }
    }

    /// The elements of an aggregate.
    pub fn elements(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(list) | Reply::Set(list) | Reply::Map(list) | Reply::Push(list) => {
                Some(list)
            }
            _ => None,
        }
    }

    /// The value that follows a key in a map, or in a list of keys and values.
    pub fn get(&self, key: &str) -> Option<&Reply> {
        let pairs = self.elements()?.chunks_exact(2);
        pairs.into_iter().find(|pair| pair[0].text() == Some(key.as_bytes())).map(|pair| &pair[1])
    }

    /// Whether this is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }
}
