//! Collections that are stored element by element, built from as many pieces as they come in.

use super::{Decoder, ziplist};
use crate::encode::{NEVER, NODE_PACKED, NODE_PLAIN};
use crate::{Error, Kind, Limits, Object};
use structs::hash::Hash;
use structs::list::{List, ListBuilder};
use structs::listpack::Listpack;
use structs::set::Set;
use structs::zset::{Change, Zset};

/// A collection in the making.
pub struct Builder {
    limits: Limits,
    state: BuildState,
}

enum BuildState {
    List(ListBuilder),
    /// Of ziplists.
    Quicklist(ListBuilder),
    /// Of listpacks and single elements.
    Quicklist2(ListBuilder),
    /// With the number of members, while there is none.
    Set(Option<Set>, usize),
    Hash(Hash),
    TimedHash(Hash),
    Zset(Zset, Score),
    /// Members of a sorted set that may become a listpack.
    Small(Vec<(Vec<u8>, f64)>, Score),
}

#[derive(Clone, Copy)]
enum Score {
    Text,
    Binary,
}

impl Builder {
    /// A collection of `count` elements; `None` if the type is not stored element by element. The
    /// caller has made sure that the input can hold so many: room is made for them.
    pub fn new(kind: Kind, count: usize, limits: &Limits) -> Option<Self> {
        let zset = |score| {
            if count > limits.zset.max_listpack_entries {
                BuildState::Zset(Zset::with_capacity(count, 0, &limits.zset), score)
            } else {
                // The encoding must be known before the first member goes in: a listpack, even
                // one that is given up later, forgets the sign of zero.
                BuildState::Small(Vec::with_capacity(count), score)
            }
        };
        let state = match kind {
            Kind::List => BuildState::List(List::builder()),
            Kind::ListQuicklist => BuildState::Quicklist(List::builder()),
            Kind::ListQuicklist2 => BuildState::Quicklist2(List::builder()),
            Kind::Set => BuildState::Set(None, count),
            Kind::Hash => BuildState::Hash(Hash::with_capacity(count, &limits.hash)),
            Kind::TimedHash => BuildState::TimedHash(Hash::with_capacity(count, &limits.hash)),
            Kind::Zset => zset(Score::Text),
            Kind::Zset2 => zset(Score::Binary),
            _ => return None,
        };
        Some(Self { limits: *limits, state })
    }

    /// The fewest bytes that an element of such a type takes.
    pub(crate) fn least(kind: Kind) -> usize {
        match kind {
            Kind::Hash | Kind::Zset | Kind::ListQuicklist2 => 2,
            Kind::Zset2 => 9,
            Kind::TimedHash => 10,
            _ => 1,
        }
    }

    /// Reads `count` elements.
    pub fn add(&mut self, input: &mut Decoder<'_>, count: usize) -> Result<(), Error> {
        let limits = &self.limits;
        for _ in 0..count {
            match &mut self.state {
                BuildState::List(list) => list.append(&input.string()?, &limits.list),
                BuildState::Quicklist(list) => {
                    list.append_listpack(ziplist::to_listpack(&input.string()?)?);
                }
                BuildState::Quicklist2(list) => match input.length()? {
                    NODE_PLAIN => match input.string()? {
                        // No element has a node of its own without a reason.
                        element if element.is_empty() => {
                            return Err(Error::Corrupt("quicklist node"));
                        }
                        element => list.append_plain(&element),
                    },
                    NODE_PACKED => list.append_listpack(input.listpack("Listpack")?),
                    _ => return Err(Error::Corrupt("quicklist container")),
                },
                BuildState::Set(set, count) => {
                    let member = input.string()?;
                    let set = set.get_or_insert_with(|| Set::new(&member, *count, &limits.set));
                    if !set.insert(&member, &limits.set) {
                        return Err(Error::Corrupt("duplicate set member"));
                    }
                }
                BuildState::Hash(hash) => {
                    let field = input.string()?;
                    if !hash.set(&field, &input.string()?, &limits.hash) {
                        return Err(Error::Corrupt("duplicate hash field"));
                    }
                }
                BuildState::TimedHash(hash) => {
                    let (field, value) = (input.string()?, input.string()?);
                    let expiry = match i64::from_le_bytes(input.array()?) {
                        NEVER => None,
                        expiry @ 0.. => Some(expiry),
                        _ => return Err(Error::Corrupt("hash field expiry")),
                    };
                    set_field(hash, &field, &value, expiry, limits)?;
                }
                BuildState::Zset(zset, score) => {
                    let member = input.string()?;
                    insert(zset, &member, score.read(input)?, limits)?;
                }
                BuildState::Small(members, score) => {
                    members.push((input.string()?.into_owned(), score.read(input)?));
                }
            }
        }
        Ok(())
    }

    /// The collection, when all elements have been read.
    pub fn finish(self) -> Result<Object, Error> {
        let limits = &self.limits;
        Ok(match self.state {
            BuildState::List(list) | BuildState::Quicklist(list) | BuildState::Quicklist2(list) => {
                let list = list.finish(&limits.list);
                if list.is_empty() {
                    return Err(Error::Empty);
                }
                Object::List(list)
            }
            BuildState::Set(set, _) => Object::Set(set.ok_or(Error::Empty)?),
            BuildState::Hash(hash) | BuildState::TimedHash(hash) => {
                if hash.is_empty() {
                    return Err(Error::Empty);
                }
                Object::Hash(hash)
            }
            BuildState::Zset(zset, _) => Object::Zset(zset),
            BuildState::Small(members, _) => {
                let longest = members.iter().map(|(member, _)| member.len()).max();
                let longest = longest.ok_or(Error::Empty)?;
                let mut zset = Zset::with_capacity(members.len(), longest, &limits.zset);
                for (member, score) in members {
                    insert(&mut zset, &member, score, limits)?;
                }
                Object::Zset(zset)
            }
        })
    }
}

impl Score {
    fn read(self, input: &mut Decoder<'_>) -> Result<f64, Error> {
        match self {
            Score::Text => input.text_double(),
            Score::Binary => input.binary_double(),
        }
    }
}

fn insert(zset: &mut Zset, member: &[u8], score: f64, limits: &Limits) -> Result<(), Error> {
    if score.is_nan() {
        return Err(Error::Corrupt("score"));
    }
    match zset.update(member, &limits.zset, |old| old.is_none().then_some(score)) {
        Change::Added => Ok(()),
        _ => Err(Error::Corrupt("duplicate sorted set member")),
    }
}

/// Adds a field that expires, or does not.
pub(super) fn set_field(
    hash: &mut Hash,
    field: &[u8],
    value: &[u8],
    expiry: Option<i64>,
    limits: &Limits,
) -> Result<(), Error> {
    let is_new = match expiry {
        None => hash.set(field, value, &limits.hash),
        Some(expiry) => hash.set_timed(field, value, expiry),
    };
    if is_new { Ok(()) } else { Err(Error::Corrupt("duplicate hash field")) }
}

impl Decoder<'_> {
    /// A collection that is stored element by element.
    pub(super) fn collection(&mut self, kind: Kind, limits: &Limits) -> Result<Object, Error> {
        let count = match self.count(Builder::least(kind))? {
            0 => return Err(Error::Empty),
            count => count,
        };
        let mut builder = Builder::new(kind, count, limits).ok_or(Error::Corrupt("type"))?;
        builder.add(self, count)?;
        builder.finish()
    }

    /// `what` it is for errors.
    pub(super) fn listpack(&mut self, what: &'static str) -> Result<Listpack, Error> {
        Listpack::from_bytes(&self.string()?).map_err(|_| Error::Corrupt(what))
    }
}
