//! What a command script expects of a reply, and whether a reply is that.
//!
//! An expectation is written once, in RESP3's types, and holds for RESP2 too, where the same reply
//! is *lowered*: a map is a flat array of pairs, a set an array, a double and a big number a bulk
//! string, a boolean 0 or 1, a push an array, a verbatim string a bulk string, and `(nil)` is `$-1`
//! where RESP3 has `_`. Only where a command's RESP2 reply is something else (`ZRANGE …
//! WITHSCORES`) does a script need two expectations.

use crate::reply::{Protocol, Reply};
use regex_lite::Regex;
use std::collections::HashMap;

/// Text that is compared.
#[derive(Clone, Debug)]
pub enum Text {
    /// Exactly these bytes.
    Exact(Vec<u8>),
    /// Anything the regular expression matches somewhere.
    Pattern(Regex),
    /// Bound to a name at first, compared with what it was bound to later.
    Bound(String),
}

/// An integer that is compared.
#[derive(Clone, Debug)]
pub enum Number {
    /// Between the two, both included.
    Between(i64, i64),
    /// Bound to a name, as [`Text::Bound`].
    Bound(String),
}

/// One expected reply; each variant's doc is how it is written in a script.
#[allow(missing_docs)]
#[derive(Clone, Debug)]
pub enum Expect {
    /// `(any)`: one reply of any type
    Any,
    /// `${name}`: any reply with text or a number, bound to the name
    Bound(String),
    /// A simple string
    Simple(Text),
    /// `(error)`
    Error(Text),
    /// `(integer)`
    Integer(Number),
    /// `"text"`
    Bulk(Text),
    /// `(nil)`
    Nil,
    /// `(nil-array)`: RESP2's `*-1`
    NilArray,
    /// `(true)` and `(false)`
    Boolean(bool),
    /// `(double)`
    Double(Text),
    /// `(big)`
    BigNumber(Text),
    /// `(verbatim txt) "text"`
    Verbatim(Vec<u8>, Text),
    /// `[…]`; `open` if it ends with `...`, for any further elements
    Array { items: Vec<Expect>, open: bool },
    /// `(unordered) […]`: an array in any order
    Unordered(Vec<Expect>),
    /// `(pairs) […]`: a flat array of pairs, the pairs in any order
    Pairs(Vec<(Expect, Expect)>),
    /// `(set) […]`
    Set(Vec<Expect>),
    /// `{"key": value}`; `open` as in an array
    Map { pairs: Vec<(Expect, Expect)>, open: bool },
    /// `(push) […]`
    Push(Vec<Expect>),
    /// `(no reply)`: nothing is read
    NoReply,
    /// `(nothing)`: nothing has arrived after a short while
    Nothing,
    /// `(closed)`: the server closes the connection
    Closed,
}

/// The names a script has bound so far.
pub type Bindings = HashMap<String, Vec<u8>>;

impl Text {
    fn holds(&self, text: &[u8], names: &mut Bindings) -> bool {
        match self {
            Text::Exact(bytes) => bytes == text,
            Text::Pattern(pattern) => pattern.is_match(&String::from_utf8_lossy(text)),
            Text::Bound(name) => bind(name, text, names),
        }
    }
}

fn bind(name: &str, text: &[u8], names: &mut Bindings) -> bool {
    match names.get(name) {
        Some(bound) => bound == text,
        None => {
            names.insert(name.to_owned(), text.to_vec());
            true
        }
    }
}

impl Expect {
    /// Whether `reply`, received under `protocol`, is what was expected. Names are bound on the
    /// way.
    pub fn holds(&self, reply: &Reply, protocol: Protocol, names: &mut Bindings) -> bool {
        let resp2 = protocol == Protocol::Resp2;
        match (self, reply) {
            (Expect::Any, _) => true,
            (Expect::Bound(name), Reply::Integer(number)) => {
                bind(name, number.to_string().as_bytes(), names)
            }
            (Expect::Bound(name), reply) => match reply.text() {
                Some(text) => bind(name, text, names),
                None => false,
            },
            (Expect::Simple(text), Reply::Simple(bytes))
            | (Expect::Error(text), Reply::Error(bytes))
            | (Expect::Bulk(text), Reply::Bulk(bytes))
            | (Expect::Double(text), Reply::Double(bytes))
            | (Expect::BigNumber(text), Reply::BigNumber(bytes)) => text.holds(bytes, names),
            (
                Expect::Double(text) | Expect::BigNumber(text) | Expect::Verbatim(_, text),
                Reply::Bulk(bytes),
            ) if resp2 => text.holds(bytes, names),
            (Expect::Integer(Number::Between(low, high)), Reply::Integer(number)) => {
                (low..=high).contains(&number)
            }
            (Expect::Integer(Number::Bound(name)), Reply::Integer(number)) => {
                bind(name, number.to_string().as_bytes(), names)
            }
            (Expect::Boolean(value), Reply::Boolean(flag)) => value == flag,
            (Expect::Boolean(value), Reply::Integer(number)) if resp2 => {
                *number == i64::from(*value)
            }
            (Expect::Nil, Reply::Nil) => true,
            (Expect::NilArray, Reply::NilArray) => true,
            (Expect::NilArray, Reply::Nil) => !resp2,
            (Expect::Verbatim(format, text), Reply::Verbatim(given, bytes)) => {
                format == given && text.holds(bytes, names)
            }
            (Expect::Array { items, open }, Reply::Array(given)) => {
                in_order(items, given, *open, protocol, names)
            }
            (Expect::Push(items), Reply::Push(given)) => {
                in_order(items, given, false, protocol, names)
            }
            (Expect::Push(items), Reply::Array(given)) if resp2 => {
                in_order(items, given, false, protocol, names)
            }
            (Expect::Unordered(items), Reply::Array(given))
            | (Expect::Set(items), Reply::Set(given)) => {
                any_order(items, given, |item, reply| item.holds(reply, protocol, names))
            }
            (Expect::Set(items), Reply::Array(given)) if resp2 => {
                any_order(items, given, |item, reply| item.holds(reply, protocol, names))
            }
            (Expect::Map { pairs, open }, Reply::Map(given)) => {
                (*open || pairs.len() == given.len())
                    && any_order_within(pairs, given, |(key, value), (name, reply)| {
                        key.holds(name, protocol, names) && value.holds(reply, protocol, names)
                    })
            }
            (Expect::Map { pairs, open }, Reply::Array(given)) if resp2 => {
                (*open || pairs.len() * 2 == given.len())
                    && flat_pairs(pairs, given, protocol, names)
            }
            (Expect::Pairs(pairs), Reply::Array(given)) => {
                pairs.len() * 2 == given.len() && flat_pairs(pairs, given, protocol, names)
            }
            _ => false,
        }
    }

    /// Whether this is a reply at all, which is read from the connection.
    pub fn is_reply(&self) -> bool {
        !matches!(self, Expect::NoReply | Expect::Nothing | Expect::Closed)
    }
}

fn in_order(
    items: &[Expect],
    given: &[Reply],
    open: bool,
    protocol: Protocol,
    names: &mut Bindings,
) -> bool {
    (given.len() == items.len() || (open && given.len() > items.len()))
        && items.iter().zip(given).all(|(item, reply)| item.holds(reply, protocol, names))
}

fn flat_pairs(
    pairs: &[(Expect, Expect)],
    given: &[Reply],
    protocol: Protocol,
    names: &mut Bindings,
) -> bool {
    let given: Vec<&[Reply]> = given.chunks(2).collect();
    any_order_within(pairs, &given, |(key, value), pair| {
        pair.len() == 2
            && key.holds(&pair[0], protocol, names)
            && value.holds(&pair[1], protocol, names)
    })
}

fn any_order<I, G>(items: &[I], given: &[G], holds: impl FnMut(&I, &G) -> bool) -> bool {
    items.len() == given.len() && any_order_within(items, given, holds)
}

/// Whether every item finds a given of its own. Greedy from the first to the last: a script lists
/// patterns after the exact texts they could swallow.
fn any_order_within<I, G>(items: &[I], given: &[G], mut holds: impl FnMut(&I, &G) -> bool) -> bool {
    let mut taken = vec![false; given.len()];
    items.iter().all(|item| {
        let found = (0..given.len()).find(|at| !taken[*at] && holds(item, &given[*at]));
        if let Some(at) = found {
            taken[at] = true;
        }
        found.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::parse_expect;
    use crate::reply::decode;

    fn check(expect: &str, resp2: &[u8], resp3: &[u8]) {
        let expect = parse_expect(expect, &Bindings::new()).unwrap();
        for (bytes, protocol) in [(resp2, Protocol::Resp2), (resp3, Protocol::Resp3)] {
            let (reply, _) = decode(bytes, protocol).unwrap().unwrap();
            assert!(expect.holds(&reply, protocol, &mut Bindings::new()), "{protocol} {reply:?}");
        }
    }

    #[test]
    fn resp3_types_hold_for_their_resp2_forms() {
        check("{\"a\": 1}", b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n");
        check(
            "(set) [\"b\", \"a\"]",
            b"*2\r\n$1\r\na\r\n$1\r\nb\r\n",
            b"~2\r\n$1\r\na\r\n$1\r\nb\r\n",
        );
        check("(double) 1.5", b"$3\r\n1.5\r\n", b",1.5\r\n");
        check("(nil)", b"$-1\r\n", b"_\r\n");
        check("(nil-array)", b"*-1\r\n", b"_\r\n");
        check("(true)", b":1\r\n", b"#t\r\n");
        check("(push) [\"x\", (nil)]", b"*2\r\n$1\r\nx\r\n$-1\r\n", b">2\r\n$1\r\nx\r\n_\r\n");
        check("(verbatim txt) \"x\"", b"$1\r\nx\r\n", b"=5\r\ntxt:x\r\n");
    }

    #[test]
    fn types_are_told_apart() {
        for (expect, reply) in [
            ("OK", Reply::Bulk(b"OK".to_vec())),
            ("\"1\"", Reply::Integer(1)),
            ("(nil)", Reply::NilArray),
            ("(set) [1]", Reply::Set(vec![Reply::Integer(1), Reply::Integer(1)])),
            ("[\"a\", \"b\"]", Reply::Array(vec![Reply::Bulk(b"a".to_vec())])),
            ("(double) 1", Reply::Double(b"1.0".to_vec())),
        ] {
            let expect = parse_expect(expect, &Bindings::new()).unwrap();
            assert!(!expect.holds(&reply, Protocol::Resp2, &mut Bindings::new()), "{expect:?}");
        }
    }
}
