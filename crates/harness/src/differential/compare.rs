//! Whether two servers' replies to the same request are the same as far as Redis promises.

use crate::reply::Reply;

/// How the replies to a request are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// They are equal; sets and maps in any order.
    Equal,
    /// Arrays have the same elements in any order.
    Unordered,
    /// A flat array has the same pairs in any order.
    Pairs,
    /// Times in seconds differ by two at most; -1 and -2 are equal.
    Seconds,
    /// Times in milliseconds differ by two seconds at most; -1 and -2 are equal.
    Millis,
    /// A random selection: the same shape, and every element is in the other server's value.
    Random,
    /// RANDOMKEY: both nil, or the key is in the other server.
    RandomKey,
    /// SPOP: what one server popped is removed from the other.
    Pop,
    /// A cursor command: the whole iterations find the same elements.
    Scan,
    /// DUMP: each server restores the other's payload.
    Dump,
    /// SORT: they are equal. The reference unpacks a sorted set for good when it sorts it, so both
    /// servers are made to pack it again.
    Sort,
    /// XINFO GROUPS: they are equal but for a lag. The reference counts below zero where a group is
    /// said to have read more than was ever added.
    Groups,
}

/// How far clocks may be apart when a time is asked for, in milliseconds.
const CLOCKS_MS: i64 = 2000;

impl Compare {
    /// By the name used in `grammar.txt`.
    pub fn named(name: &str) -> Compare {
        match name {
            "unordered" => Compare::Unordered,
            "pairs" => Compare::Pairs,
            "seconds" => Compare::Seconds,
            "millis" => Compare::Millis,
            "random" => Compare::Random,
            "randomkey" => Compare::RandomKey,
            "pop" => Compare::Pop,
            "scan" => Compare::Scan,
            "dump" => Compare::Dump,
            "sort" => Compare::Sort,
            "groups" => Compare::Groups,
            other => unreachable!("grammar.txt: unknown comparison {other}"),
        }
    }

    /// Whether the request is the same for both servers and the replies alone tell; only such a
    /// request makes sense in a transaction.
    pub fn can_be_queued(self) -> bool {
        use Compare::{Equal, Groups, Millis, Pairs, Seconds, Unordered};
        matches!(self, Equal | Unordered | Pairs | Seconds | Millis | Groups)
    }

    /// Whether the reply of the tested server is the same as that of the reference.
    pub fn same(self, a: &Reply, b: &Reply) -> bool {
        match (self, a, b) {
            (Compare::Unordered, Reply::Array(a), Reply::Array(b)) => sorted(a) == sorted(b),
            (Compare::Pairs, Reply::Array(a), Reply::Array(b)) => {
                sorted_by(a.chunks(2)) == sorted_by(b.chunks(2))
            }
            (Compare::Seconds, Reply::Integer(a), Reply::Integer(b)) => {
                near(*a, *b, CLOCKS_MS / 1000)
            }
            (Compare::Millis, Reply::Integer(a), Reply::Integer(b)) => near(*a, *b, CLOCKS_MS),
            // The times of several fields or entries, beside texts.
            (Compare::Seconds | Compare::Millis, Reply::Array(a), Reply::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.same(a, b))
            }
            (Compare::Seconds | Compare::Millis, Reply::Map(a), Reply::Map(b)) => {
                let same = |((a, x), (b, y)): (&(Reply, Reply), &(Reply, Reply))| {
                    a == b && self.same(x, y)
                };
                a.len() == b.len() && a.iter().zip(b).all(same)
            }
            (Compare::Random, a, b) => shape(a) == shape(b),
            (Compare::Groups, Reply::Array(a), Reply::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_group(a, b))
            }
            _ => equal(a, b),
        }
    }
}

fn near(a: i64, b: i64, tolerance: i64) -> bool {
    a == b || (a >= 0 && b >= 0 && a.abs_diff(b) <= tolerance.unsigned_abs())
}

fn same_group(a: &Reply, b: &Reply) -> bool {
    let (a, b) = (fields(a), fields(b));
    let is_below_zero = |value: &Reply| value.integer().is_some_and(|number| number < 0);
    a.len() == b.len()
        && a.iter().zip(&b).all(|((name, value), (other, of_reference))| {
            let is_mended = name.text() == Some(&b"lag"[..])
                && is_below_zero(of_reference)
                && !is_below_zero(value);
            name == other && (value == of_reference || is_mended)
        })
}

/// The names and values of a map, or of a list of both.
fn fields(reply: &Reply) -> Vec<(Reply, Reply)> {
    match reply {
        Reply::Map(pairs) => pairs.clone(),
        other => {
            let pairs = other.elements().unwrap_or_default().chunks_exact(2);
            pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        }
    }
}

/// Equal, where RESP3's own unordered types are compared as such at any depth.
fn equal(a: &Reply, b: &Reply) -> bool {
    match (a, b) {
        (Reply::Set(a), Reply::Set(b)) => sorted(a) == sorted(b),
        (Reply::Map(a), Reply::Map(b)) => sorted_by(a.iter()) == sorted_by(b.iter()),
        (Reply::Array(a), Reply::Array(b)) | (Reply::Push(a), Reply::Push(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        _ => a == b,
    }
}

fn sorted(items: &[Reply]) -> Vec<String> {
    sorted_by(items.iter())
}

fn sorted_by<T: std::fmt::Debug>(items: impl Iterator<Item = T>) -> Vec<String> {
    let mut texts: Vec<String> = items.map(|item| format!("{item:?}")).collect();
    texts.sort();
    texts
}

/// A reply's types and lengths without its texts and numbers.
fn shape(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::Nil | Reply::NilArray | Reply::Boolean(_) => format!("{reply:?}"),
        Reply::Array(items) => format!("{:?}", items.iter().map(shape).collect::<Vec<_>>()),
        Reply::Set(items) => format!("set of {}", items.len()),
        Reply::Map(pairs) => format!("map of {}", pairs.len()),
        Reply::Push(items) => format!("push of {}", items.len()),
        Reply::Simple(_) => "simple".to_owned(),
        Reply::Integer(_) => "integer".to_owned(),
        Reply::Bulk(_) => "bulk".to_owned(),
        Reply::Double(_) => "double".to_owned(),
        Reply::BigNumber(_) => "big".to_owned(),
        Reply::Verbatim(..) => "verbatim".to_owned(),
    }
}

/// Every text and number in a reply, as text.
pub fn texts(reply: &Reply) -> Vec<Vec<u8>> {
    match reply {
        Reply::Integer(number) => vec![number.to_string().into()],
        Reply::Map(pairs) => {
            pairs.iter().flat_map(|(key, value)| [texts(key), texts(value)].concat()).collect()
        }
        other => match other.elements() {
            Some(items) => items.iter().flat_map(texts).collect(),
            None => other.text().map(<[u8]>::to_vec).into_iter().collect(),
        },
    }
}
