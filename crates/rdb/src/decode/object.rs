//! Reading values of every type and encoding.

use super::{Decoder, ziplist, zipmap};
use crate::encode::{NODE_PACKED, NODE_PLAIN};
use crate::{Error, Kind, Limits, Object};
use std::borrow::Cow;
use structs::hash::Hash;
use structs::intset::Intset;
use structs::list::List;
use structs::listpack::Listpack;
use structs::set::Set;
use structs::zset::{Change, Zset};

impl Decoder<'_> {
    /// A value with its type byte.
    pub fn object(&mut self, limits: &Limits) -> Result<Object, Error> {
        let byte = self.byte()?;
        let kind = Kind::from_byte(byte).ok_or(Error::UnsupportedType(byte))?;
        self.value(kind, limits)
    }

    /// A value whose type has been read.
    pub fn value(&mut self, kind: Kind, limits: &Limits) -> Result<Object, Error> {
        match kind {
            Kind::String => self.string().map(Cow::into_owned).map(Object::String),
            Kind::List => self.list(limits).map(Object::List),
            Kind::ListZiplist => {
                let mut list = List::builder();
                list.append_listpack(self.ziplist()?);
                not_empty(list.finish(&limits.list)).map(Object::List)
            }
            Kind::ListQuicklist => {
                let mut list = List::builder();
                for _ in 0..self.elements(1)? {
                    list.append_listpack(self.ziplist()?);
                }
                not_empty(list.finish(&limits.list)).map(Object::List)
            }
            Kind::ListQuicklist2 => self.quicklist(limits).map(Object::List),
            Kind::Set => self.set(limits).map(Object::Set),
            Kind::SetIntset => {
                let intset =
                    Intset::from_bytes(&self.string()?).map_err(|_| Error::Corrupt("intset"))?;
                Ok(Object::Set(Set::from_intset(intset, &limits.set)))
            }
            Kind::SetListpack => {
                let listpack = self.listpack()?;
                set_of(listpack, limits).map(Object::Set)
            }
            Kind::Hash => self.hash(limits).map(Object::Hash),
            Kind::HashZipmap => hash_of_zipmap(&self.string()?, limits).map(Object::Hash),
            Kind::HashZiplist => hash_of(self.ziplist()?, limits).map(Object::Hash),
            Kind::HashListpack => hash_of(self.listpack()?, limits).map(Object::Hash),
            Kind::Zset => self.zset(Self::text_double, 2, limits).map(Object::Zset),
            Kind::Zset2 => self.zset(Self::binary_double, 9, limits).map(Object::Zset),
            Kind::ZsetZiplist => zset_of(self.ziplist()?, limits).map(Object::Zset),
            Kind::ZsetListpack => zset_of(self.listpack()?, limits).map(Object::Zset),
        }
    }

    /// The number of a collection's elements, which is not 0.
    fn elements(&mut self, least: usize) -> Result<usize, Error> {
        match self.count(least)? {
            0 => Err(Error::Empty),
            count => Ok(count),
        }
    }

    fn listpack(&mut self) -> Result<Listpack, Error> {
        Listpack::from_bytes(&self.string()?).map_err(|_| Error::Corrupt("listpack"))
    }

    /// A ziplist, as the listpack that has taken its place.
    fn ziplist(&mut self) -> Result<Listpack, Error> {
        ziplist::to_listpack(&self.string()?)
    }

    fn list(&mut self, limits: &Limits) -> Result<List, Error> {
        let mut list = List::builder();
        for _ in 0..self.elements(1)? {
            list.append(&self.string()?, &limits.list);
        }
        Ok(list.finish(&limits.list))
    }

    fn quicklist(&mut self, limits: &Limits) -> Result<List, Error> {
        let mut list = List::builder();
        for _ in 0..self.elements(2)? {
            match self.length()? {
                NODE_PLAIN => list.append_plain(&self.string()?),
                NODE_PACKED => list.append_listpack(self.listpack()?),
                _ => return Err(Error::Corrupt("quicklist container")),
            }
        }
        not_empty(list.finish(&limits.list))
    }

    fn set(&mut self, limits: &Limits) -> Result<Set, Error> {
        let count = self.elements(1)?;
        let first = self.string()?;
        let mut set = Set::new(&first, count, &limits.set);
        set.insert(&first, &limits.set);
        for _ in 1..count {
            if !set.insert(&self.string()?, &limits.set) {
                return Err(Error::Corrupt("duplicate set member"));
            }
        }
        Ok(set)
    }

    fn hash(&mut self, limits: &Limits) -> Result<Hash, Error> {
        let count = self.elements(2)?;
        let mut hash = Hash::with_capacity(count, &limits.hash);
        for _ in 0..count {
            let field = self.string()?;
            if !hash.set(&field, &self.string()?, &limits.hash) {
                return Err(Error::Corrupt("duplicate hash field"));
            }
        }
        Ok(hash)
    }

    fn zset(
        &mut self,
        score: fn(&mut Self) -> Result<f64, Error>,
        least: usize,
        limits: &Limits,
    ) -> Result<Zset, Error> {
        let count = self.elements(least)?;
        if count > limits.zset.max_listpack_entries {
            let mut zset = Zset::with_capacity(count, 0, &limits.zset);
            for _ in 0..count {
                let member = self.string()?;
                add(&mut zset, &member, score(self)?, limits)?;
            }
            return Ok(zset);
        }
        // The encoding must be known before the first member goes in: a listpack, even one that
        // is given up later, forgets the sign of zero.
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            members.push((self.string()?, score(self)?));
        }
        let longest = members.iter().map(|(member, _)| member.len()).max().unwrap_or(0);
        let mut zset = Zset::with_capacity(count, longest, &limits.zset);
        for (member, score) in members {
            add(&mut zset, &member, score, limits)?;
        }
        Ok(zset)
    }
}

fn add(zset: &mut Zset, member: &[u8], score: f64, limits: &Limits) -> Result<(), Error> {
    if score.is_nan() {
        return Err(Error::Corrupt("score"));
    }
    match zset.update(member, &limits.zset, |old| old.is_none().then_some(score)) {
        Change::Added => Ok(()),
        _ => Err(Error::Corrupt("duplicate sorted set member")),
    }
}

fn not_empty(list: List) -> Result<List, Error> {
    if list.is_empty() { Err(Error::Empty) } else { Ok(list) }
}

fn set_of(listpack: Listpack, limits: &Limits) -> Result<Set, Error> {
    if listpack.is_empty() {
        return Err(Error::Empty);
    }
    Set::from_listpack(listpack, &limits.set).map_err(|_| Error::Corrupt("set members"))
}

fn hash_of(listpack: Listpack, limits: &Limits) -> Result<Hash, Error> {
    if listpack.is_empty() {
        return Err(Error::Empty);
    }
    Hash::from_listpack(listpack, &limits.hash).map_err(|_| Error::Corrupt("hash fields"))
}

fn zset_of(listpack: Listpack, limits: &Limits) -> Result<Zset, Error> {
    if listpack.is_empty() {
        return Err(Error::Empty);
    }
    Zset::from_listpack(listpack, &limits.zset).map_err(|_| Error::Corrupt("sorted set members"))
}

/// A hash in the oldest encoding. hash encoding.
fn hash_of_zipmap(bytes: &[u8], limits: &Limits) -> Result<Hash, Error> {
    let fields = zipmap::fields(bytes)?;
    if fields.is_empty() {
        return Err(Error::Empty);
    }
    let mut hash = Hash::with_capacity(fields.len(), &limits.hash);
    for (field, value) in fields {
        if !hash.set(field, value, &limits.hash) {
            return Err(Error::Corrupt("duplicate hash field"));
        }
    }
    Ok(hash)
}
