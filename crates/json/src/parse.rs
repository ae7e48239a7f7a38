//! From text to a tree.
//!
//! `serde_json` reads the text; this is what it calls for each value. Children are collected on two
//! stacks that all containers share, so that each container's block is allocated once, in its final
//! size, and an array's elements are known before its form is chosen.

use crate::MAX_DEPTH;
use crate::array::{ArrayParts, Element};
use crate::document::{Document, release_names};
use crate::error::ParseError;
use crate::names::{MAX_NAME_LEN, NameId, Names};
use crate::node::Node;
use crate::object::{Member, Object};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::de::Read;
use std::fmt;

/// Children that the stacks have place for from the beginning: most documents need more than none.
const FIRST_CHILDREN: usize = 16;

/// What a text may have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of text.
    pub max_bytes: usize,
    /// Containers inside each other, at most [`MAX_DEPTH`].
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_bytes: u32::MAX as usize, max_depth: MAX_DEPTH }
    }
}

impl Document {
    /// Parses a text.
    ///
    /// # Errors
    /// It is no JSON, or beyond the limits.
    pub fn parse(text: &[u8], limits: &Limits) -> Result<Document, ParseError> {
        parse(text, limits)
    }
}

fn parse(text: &[u8], limits: &Limits) -> Result<Document, ParseError> {
    if text.len() > limits.max_bytes.min(u32::MAX as usize) {
        return Err(ParseError(format!("document is longer than {} bytes", limits.max_bytes)));
    }
    // One look at the whole costs less than one at each string.
    match std::str::from_utf8(text) {
        Ok(text) => read(serde_json::Deserializer::from_str(text), limits),
        // The reader says where the bytes are.
        Err(_) => read(serde_json::Deserializer::from_slice(text), limits),
    }
}

fn read<'t, R: Read<'t>>(
    mut reader: serde_json::Deserializer<R>,
    limits: &Limits,
) -> Result<Document, ParseError> {
    let mut builder = Builder {
        names: Names::new(),
        elements: Vec::with_capacity(FIRST_CHILDREN),
        members: Vec::with_capacity(FIRST_CHILDREN),
        met: Vec::with_capacity(FIRST_CHILDREN),
        last_name: 0,
        objects: 0,
        depth_left: limits.max_depth.min(MAX_DEPTH),
    };
    reader.disable_recursion_limit();
    let root = Seed(&mut builder)
        .deserialize(&mut reader)
        .and_then(|root| reader.end().map(|()| root.into_node()))
        .map_err(|error| ParseError(error.to_string()))?;
    Ok(Document::new(root, builder.names))
}

struct Builder {
    names: Names,
    /// Elements of the arrays that are being read, the innermost last.
    elements: Vec<Element>,
    /// Members of the objects that are being read, the innermost last.
    members: Vec<Member>,
    /// For each name where it was met last.
    met: Vec<Met>,
    /// The name that was read last.
    last_name: NameId,
    objects: u32,
    depth_left: usize,
}

/// Where a name was met last.
#[derive(Clone, Copy, Default)]
struct Met {
    /// The number of the object.
    object: u32,
    /// The name that came after it. Objects of a list mostly have the same names in the same order.
    next: NameId,
}

impl Builder {
    fn enter<E: Error>(&mut self) -> Result<(), E> {
        self.depth_left =
            self.depth_left.checked_sub(1).ok_or_else(|| E::custom("recursion limit exceeded"))?;
        Ok(())
    }

    fn name<E: Error>(&mut self, name: &str) -> Result<NameId, E> {
        if name.len() > MAX_NAME_LEN {
            return Err(E::custom("name of a member is too long"));
        }
        let expected = self.met.get(self.last_name as usize).map(|met| met.next);
        let id = match expected {
            Some(id) if self.names.has(id, name) => {
                self.names.count(id);
                id
            }
            _ => self.names.intern(name),
        };
        if self.met.len() <= id as usize {
            self.met.resize(id as usize + 1, Met::default());
        }
        self.met[self.last_name as usize].next = id;
        self.last_name = id;
        Ok(id)
    }

    /// Returns the place of a name among the members from `first` on. A name that this object had
    /// is marked with its number, or with that of an object that began later.
    fn duplicate(&self, name: NameId, object: u32, first: usize) -> Option<usize> {
        if self.met[name as usize].object < object {
            return None;
        }
        let place = self.members[first..].iter().position(|member| member.name == name);
        place.map(|place| first + place)
    }
}

/// Reads one value.
struct Seed<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Element;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Element, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Element, E> {
        Ok(Element::Node(Node::NULL))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Element, E> {
        Ok(Element::Node(Node::bool(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Element, E> {
        Ok(Element::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Element, E> {
        Ok(i64::try_from(value).map_or_else(|_| Element::Node(Node::uint(value)), Element::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Element, E> {
        Ok(Element::Double(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Element, E> {
        Ok(Element::Node(Node::string(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Element, A::Error> {
        let builder = self.0;
        builder.enter()?;
        let first = builder.elements.len();
        while let Some(element) = elements.next_element_seed(Seed(builder))? {
            builder.elements.push(element);
        }
        builder.depth_left += 1;
        Ok(Element::Node(ArrayParts::new(builder.elements.drain(first..)).into_node()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Element, A::Error> {
        let builder = self.0;
        builder.enter()?;
        builder.objects += 1;
        let object = builder.objects;
        let first = builder.members.len();
        while let Some(name) = members.next_key_seed(NameSeed(builder))? {
            let duplicate = builder.duplicate(name, object, first);
            let value = members.next_value_seed(Seed(builder))?.into_node();
            // A nested object may have had the name meanwhile: the mark only has to be at least
            // ours.
            let mark = &mut builder.met[name as usize].object;
            *mark = (*mark).max(object);
            match duplicate {
                None => builder.members.push(Member { name, value }),
                Some(place) => {
                    let old = std::mem::replace(&mut builder.members[place].value, value);
                    builder.names.release(name);
                    release_names(&old, &mut builder.names);
                }
            }
        }
        builder.depth_left += 1;
        Ok(Element::Node(Node::object(Object::new(builder.members.drain(first..)))))
    }
}

/// Reads the name of a member.
struct NameSeed<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = NameId;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<NameId, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed<'_> {
    type Value = NameId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<NameId, E> {
        self.0.name(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match Document::parse(text.as_bytes(), &Limits::default()) {
            Ok(document) => document.root().to_string(),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn texts_come_back() {
        for text in [
            "null",
            "true",
            "false",
            "0",
            "-12.5",
            r#""""#,
            r#""a longer string, with \"quotes\", \\ and \n""#,
            r#""\u0000\u001f""#,
            "[]",
            "{}",
            "[1,2,3]",
            "[1,2.5,\"x\",null,[true],{}]",
            r#"{"a":{"b":[1,{"a":2}]},"c":"d"}"#,
            r#"{"":0}"#,
            "[1.0,1e308,1e16,0.1,-0.0]",
            r#"{"é":"日本"}"#,
        ] {
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown(" [ 1 , 2 ]\n"), "[1,2]");
        assert_eq!(shown(r#""\u00e9\/\ud83d\ude00""#), "\"é/😀\"");
        assert_eq!(shown("9223372036854775808"), "9223372036854775808");
        assert_eq!(shown("[18446744073709551615,1]"), "[18446744073709551615,1]");
        assert_eq!(shown("18446744073709551616"), "1.8446744073709552e19");
        assert_eq!(shown("123456789012345678901234567890"), "1.2345678901234568e29");
    }

    #[test]
    fn the_last_of_equal_names_wins() {
        assert_eq!(shown(r#"{"a":1,"b":2,"a":3}"#), r#"{"a":3,"b":2}"#);
        assert_eq!(
            shown(r#"{"a":{"a":1},"b":{"a":{"b":7},"a":2},"a":{"c":{"a":0}},"b":5}"#),
            r#"{"a":{"c":{"a":0}},"b":5}"#
        );
        // A name that is expected next may have been forgotten with a value that was replaced.
        assert_eq!(
            shown(r#"{"x":{"a":1,"":2},"x":0,"x":1,"":3,"a":{"x":{"a":4}}}"#),
            r#"{"x":1,"":3,"a":{"x":{"a":4}}}"#
        );
        assert_eq!(
            shown(r#"[{"x":{"a":1},"x":{"":2}},{"x":{"":5}}]"#),
            r#"[{"x":{"":2}},{"x":{"":5}}]"#
        );
        let text: Vec<String> = (0..300).map(|at| format!("\"k{}\":{at}", at % 200)).collect();
        let document =
            Document::parse(format!("{{{}}}", text.join(",")).as_bytes(), &Limits::default());
        let document = document.unwrap();
        let object = document.root().as_object().unwrap();
        assert_eq!(object.len(), 200);
        assert_eq!(object.get("k99").unwrap().to_string(), "299");
        assert_eq!(object.get("k100").unwrap().to_string(), "100");
    }

    #[test]
    fn errors_have_a_place() {
        assert_eq!(shown(""), "error: EOF while parsing a value at line 1 column 0");
        assert_eq!(shown("{\"a\":}"), "error: expected value at line 1 column 6");
        assert_eq!(shown("[1,\n2,]"), "error: trailing comma at line 2 column 3");
        assert_eq!(shown("1 2"), "error: trailing characters at line 1 column 3");
        assert_eq!(shown("1e400"), "error: number out of range at line 1 column 5");
        for text in ["\"\\ud800\"", "\"\\ud800\\u0041\"", "nan", "'a'", "{1:2}", "\"\u{1}\"", "tru"]
        {
            assert!(shown(text).starts_with("error: "), "{text}");
        }
        let bad_utf8 = Document::parse(b"\"\xff\"", &Limits::default());
        assert!(bad_utf8.is_err());
        let long = Document::parse(b"[1,2]", &Limits { max_bytes: 4, ..Limits::default() });
        assert_eq!(long.unwrap_err().to_string(), "document is longer than 4 bytes");
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(shown(&nested(128)), nested(128));
        assert!(
            shown(&nested(129)).starts_with("error: recursion limit exceeded at line 1 column")
        );
        assert!(shown(&nested(1_000_000)).starts_with("error: recursion limit"));
        assert!(shown(&"{\"a\":".repeat(129)).starts_with("error: recursion limit"));
        // What was left again does not count.
        let wide = format!("[{}]", vec![nested(127); 10].join(","));
        assert_eq!(shown(&wide), wide);
    }
}
