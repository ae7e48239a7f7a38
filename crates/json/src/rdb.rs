//! Documents in RDB files: the payload of the type `ReJSON-RL`.
//!
//! Version 3, which Valkey writes and Redis reads, is one string of text. Version 0, of the first
//! RedisJSON, is a tree:
//!
//! ```text
//!   null     1
//!   string   2     string
//!   number   4     double
//!   integer  8     signed
//!   boolean  0x10  string "1" or "0"
//!   object   0x20  members unsigned, then for each: 0x80, string, value
//!   array    0x40  elements unsigned, then values
//! ```

use crate::array::{ArrayParts, Element};
use crate::document::{Document, release_names};
use crate::names::{MAX_NAME_LEN, Names};
use crate::node::Node;
use crate::object::{Member, Object};
use crate::{Limits, MAX_DEPTH};
use rdb::Error;
use rdb::module::{Reader, Writer};

/// The name of the type.
pub const TYPE_NAME: &str = "ReJSON-RL";
/// The version that is written: one text.
pub const TEXT: u16 = 3;
/// The version that is a tree.
pub const TREE: u16 = 0;

impl Document {
    /// Writes the payload of [`TEXT`].
    pub fn save(&self, to: &mut Writer<'_>) {
        let mut text = Vec::new();
        self.write(&mut text);
        to.string(&text);
    }

    /// Reads the payload of a version. It may be hostile.
    ///
    /// # Errors
    /// It is no document, or too deep.
    pub fn load(from: &mut Reader<'_, '_>, version: u16) -> Result<Document, Error> {
        match version {
            TEXT => Document::parse(&from.string()?, &Limits::default())
                .map_err(|_| Error::Corrupt("text of a document")),
            TREE => {
                let mut names = Names::new();
                let root = tree(from, &mut names, MAX_DEPTH)?.into_node();
                Ok(Document::new(root, names))
            }
            _ => Err(Error::Corrupt("version of a document")),
        }
    }
}

const NULL: u64 = 1;
const STRING: u64 = 2;
const NUMBER: u64 = 4;
const INTEGER: u64 = 8;
const BOOLEAN: u64 = 0x10;
const OBJECT: u64 = 0x20;
const ARRAY: u64 = 0x40;
const MEMBER: u64 = 0x80;

/// Elements that a vector is made for before they were read.
const MAX_AHEAD: usize = 1024;

/// Reads a value. Its names are counted.
fn tree(from: &mut Reader<'_, '_>, names: &mut Names, depth_left: usize) -> Result<Element, Error> {
    let inner_depth = || depth_left.checked_sub(1).ok_or(Error::Corrupt("depth of a document"));
    Ok(Element::Node(match from.unsigned()? {
        NULL => Node::NULL,
        STRING => Node::string(text(&from.string()?)?),
        NUMBER => match from.double()? {
            double if double.is_finite() => return Ok(Element::Double(double)),
            _ => return Err(Error::Corrupt("number of a document")),
        },
        INTEGER => return Ok(Element::Int(from.signed()?)),
        BOOLEAN => Node::bool(from.string()?.first() == Some(&b'1')),
        OBJECT => object(from, names, inner_depth()?)?,
        ARRAY => {
            let inner_depth = inner_depth()?;
            let count = from.count(1)?;
            let mut elements = Vec::with_capacity(count.min(MAX_AHEAD));
            for _ in 0..count {
                elements.push(tree(from, names, inner_depth)?);
            }
            ArrayParts::new(elements.into_iter()).into_node()
        }
        _ => return Err(Error::Corrupt("type in a document")),
    }))
}

fn object(from: &mut Reader<'_, '_>, names: &mut Names, depth_left: usize) -> Result<Node, Error> {
    let mut object = Object::new(std::iter::empty());
    for _ in 0..from.count(1)? {
        if from.unsigned()? != MEMBER {
            return Err(Error::Corrupt("member in a document"));
        }
        let name = from.string()?;
        let name = text(&name)?;
        if name.len() > MAX_NAME_LEN || !names.has_place(name.len()) {
            return Err(Error::Corrupt("name in a document"));
        }
        let value = tree(from, names, depth_left)?.into_node();
        let id = names.intern(name);
        match object.position(id).and_then(|place| object.value_mut(place)) {
            None => object.push(Member { name: id, value }),
            Some(old) => {
                let old = std::mem::replace(old, value);
                names.release(id);
                release_names(&old, names);
            }
        }
    }
    Ok(Node::object(object))
}

fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::Corrupt("text in a document"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::{Compression, Decoder, Encoder};

    fn loaded(version: u16, write: impl FnOnce(&mut Writer<'_>)) -> Result<String, Error> {
        let mut encoder = Encoder::new(Compression::Off);
        write(&mut Writer::new(&mut encoder));
        let bytes = encoder.into_bytes();
        let mut decoder = Decoder::new(&bytes);
        let document = Document::load(&mut Reader::new(&mut decoder), version)?;
        Ok(document.root().to_string())
    }

    #[test]
    fn text_comes_back() {
        let text = r#"{"a":[1,2.5,"x",null]}"#;
        let document = Document::parse(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(loaded(TEXT, |to| document.save(to)).unwrap(), text);
        assert!(loaded(TEXT, |to| to.string(b"{")).is_err());
        assert!(loaded(TEXT, |to| to.signed(1)).is_err());
        assert!(loaded(4, |to| to.string(b"{}")).is_err());
    }

    #[test]
    fn trees_are_read() {
        let tree = |to: &mut Writer<'_>| {
            to.unsigned(OBJECT);
            to.unsigned(3);
            for name in ["a", "b", "a"] {
                to.unsigned(MEMBER);
                to.string(name.as_bytes());
                to.unsigned(ARRAY);
                to.unsigned(5);
                to.unsigned(NULL);
                to.unsigned(STRING);
                to.string(b"text");
                to.unsigned(NUMBER);
                to.double(1.5);
                to.unsigned(INTEGER);
                to.signed(-7);
                to.unsigned(BOOLEAN);
                to.string(b"1");
            }
        };
        let expected = r#"{"a":[null,"text",1.5,-7,true],"b":[null,"text",1.5,-7,true]}"#;
        assert_eq!(loaded(TREE, tree).unwrap(), expected);
    }

    #[test]
    fn hostile_trees_are_refused() {
        let refused = |write: &dyn Fn(&mut Writer<'_>)| loaded(TREE, |to| write(to)).is_err();
        assert!(refused(&|to| to.unsigned(3)));
        assert!(refused(&|to| {
            to.unsigned(ARRAY);
            to.unsigned(u64::MAX);
        }));
        assert!(refused(&|to| {
            for _ in 0..100_000 {
                to.unsigned(ARRAY);
                to.unsigned(1);
            }
        }));
        assert!(refused(&|to| {
            to.unsigned(NUMBER);
            to.double(f64::NAN);
        }));
        assert!(refused(&|to| {
            to.unsigned(STRING);
            to.string(b"\xff");
        }));
        assert!(refused(&|to| {
            to.unsigned(OBJECT);
            to.unsigned(1);
            to.unsigned(STRING);
            to.string(b"a");
        }));
    }
}
