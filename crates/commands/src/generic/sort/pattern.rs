//! The patterns of BY and GET: which key, or field of a hash, belongs to an element.
//!
//! The first `*` stands for the element. Behind it, `->` separates the name of a hash from one of
//! its fields. A pattern ends for these purposes at a zero byte, as a C string does, though what
//! follows it still belongs to the names made from it.

use keyspace::{Entry, Millis};
use structs::hash::Hash;
use structs::listpack::IntBuf;

/// Looks a key up, and tells before which time fields of it are gone.
pub(super) type Find<'d> = dyn Fn(&[u8]) -> Option<(&'d Entry, Millis)> + 'd;

/// What BY or GET asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pattern<'a> {
    /// `#`: the element itself. Only GET knows it.
    Element,
    /// No `*`: the same for every element, which means that there is nothing.
    Constant,
    /// The value of a string, or of a hash's field.
    Value { before: &'a [u8], after: &'a [u8], field: Option<&'a [u8]> },
}

impl<'a> Pattern<'a> {
    /// BY's pattern.
    pub fn by(text: &'a [u8]) -> Pattern<'a> {
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        let Some(star) = text[..end].iter().position(|&byte| byte == b'*') else {
            return Pattern::Constant;
        };
        let (before, rest) = (&text[..star], &text[star + 1..]);
        let arrow = text[star + 1..end].windows(2).position(|pair| pair == b"->");
        match arrow {
            // With nothing behind it, an arrow is part of the key's name.
            Some(arrow) if star + 1 + arrow + 2 < end => {
                let (after, field) = (&rest[..arrow], Some(&rest[arrow + 2..]));
                Pattern::Value { before, after, field }
            }
            _ => Pattern::Value { before, after: rest, field: None },
        }
    }

    /// GET's pattern.
    pub fn get(text: &'a [u8]) -> Pattern<'a> {
        let is_element = text == b"#" || text.starts_with(b"#\0");
        if is_element { Pattern::Element } else { Pattern::by(text) }
    }

    /// Calls `visit` with what belongs to an element. `name` is room for the key's name.
    pub fn visit<R>(
        self,
        find: &Find<'_>,
        element: &[u8],
        name: &mut Vec<u8>,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> R {
        let (before, after, field) = match self {
            Pattern::Element => return visit(Some(element)),
            Pattern::Constant => return visit(None),
            Pattern::Value { before, after, field } => (before, after, field),
        };
        name.clear();
        for part in [before, element, after] {
            name.extend_from_slice(part);
        }
        let Some((entry, horizon)) = find(name) else { return visit(None) };
        let mut digits = IntBuf::default();
        match field {
            None => visit(entry.string().map(|string| string.bytes(&mut digits))),
            Some(field) => {
                let hash = entry.view::<Hash>();
                let value = hash.as_ref().and_then(|hash| hash.live(horizon.0).get(field));
                visit(value.as_ref().map(|value| value.as_bytes(&mut digits)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, before: &str, after: &str, field: Option<&str>) {
        let expected = Pattern::Value {
            before: before.as_bytes(),
            after: after.as_bytes(),
            field: field.map(str::as_bytes),
        };
        assert_eq!(Pattern::get(text.as_bytes()), expected);
    }

    #[test]
    fn the_first_star_stands_for_the_element() {
        check("w*", "w", "", None);
        check("*", "", "", None);
        check("a*b*c", "a", "b*c", None);
        check("a->b*c", "a->b", "c", None);
    }

    #[test]
    fn an_arrow_behind_it_names_a_field() {
        check("h*->f", "h", "", Some("f"));
        check("h*:x->f->g", "h", ":x", Some("f->g"));
        check("h*->", "h", "->", None);
        check("*->\0f", "", "->\0f", None);
        check("*\0->f", "", "\0->f", None);
        check("*->f\0g", "", "", Some("f\0g"));
    }

    #[test]
    fn without_a_star_there_is_nothing() {
        assert_eq!(Pattern::get(b"w"), Pattern::Constant);
        assert_eq!(Pattern::get(b"w\0*"), Pattern::Constant);
        assert_eq!(Pattern::get(b""), Pattern::Constant);
        assert_eq!(Pattern::get(b"#"), Pattern::Element);
        assert_eq!(Pattern::get(b"##"), Pattern::Constant);
        assert_eq!(Pattern::by(b"#"), Pattern::Constant);
    }
}
