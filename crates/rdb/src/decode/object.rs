//! Reading values of every type and encoding.

use super::{Decoder, ziplist, zipmap};
use crate::{Error, Kind, Limits, Object};
use std::borrow::Cow;
use structs::hash::Hash;
use structs::intset::Intset;
use structs::list::List;
use structs::listpack::Listpack;
use structs::set::Set;
use structs::zset::Zset;

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
            Kind::List
            | Kind::ListQuicklist
            | Kind::ListQuicklist2
            | Kind::Set
            | Kind::Hash
            | Kind::Zset
            | Kind::Zset2 => self.collection(kind, limits),
            Kind::ListZiplist => {
                let mut list = List::builder();
                list.append_listpack(self.ziplist("List ziplist")?);
                not_empty(list.finish(&limits.list)).map(Object::List)
            }
            Kind::SetIntset => {
                let intset =
                    Intset::from_bytes(&self.string()?).map_err(|_| Error::Corrupt("Intset"))?;
                Ok(Object::Set(Set::from_intset(intset, &limits.set)))
            }
            Kind::SetListpack => {
                let what = "Set listpack";
                set_of(self.listpack(what)?, what, limits).map(Object::Set)
            }
            Kind::HashZipmap => hash_of_zipmap(&self.string()?, limits).map(Object::Hash),
            Kind::HashZiplist => {
                let what = "Hash ziplist";
                hash_of(self.ziplist(what)?, what, limits).map(Object::Hash)
            }
            Kind::HashListpack => {
                let what = "Hash listpack";
                hash_of(self.listpack(what)?, what, limits).map(Object::Hash)
            }
            Kind::ZsetZiplist => {
                let what = "Zset ziplist";
                zset_of(self.ziplist(what)?, what, limits).map(Object::Zset)
            }
            Kind::ZsetListpack => {
                let what = "Zset listpack";
                zset_of(self.listpack(what)?, what, limits).map(Object::Zset)
            }
        }
    }

    /// A ziplist, as the listpack that has taken its place; `what` it is for errors.
    fn ziplist(&mut self, what: &'static str) -> Result<Listpack, Error> {
        ziplist::to_listpack(&self.string()?).map_err(|_| Error::Corrupt(what))
    }
}

fn not_empty(list: List) -> Result<List, Error> {
    if list.is_empty() { Err(Error::Empty) } else { Ok(list) }
}

fn set_of(listpack: Listpack, what: &'static str, limits: &Limits) -> Result<Set, Error> {
    if listpack.is_empty() {
        return Err(Error::Empty);
    }
    Set::from_listpack(listpack, &limits.set).map_err(|_| Error::Duplicate(what))
}

fn hash_of(listpack: Listpack, what: &'static str, limits: &Limits) -> Result<Hash, Error> {
    if listpack.is_empty() {
        return Err(Error::Empty);
    }
    let is_even = listpack.count().is_multiple_of(2);
    Hash::from_listpack(listpack, &limits.hash)
        .map_err(|_| if is_even { Error::Duplicate(what) } else { Error::Corrupt(what) })
}

fn zset_of(listpack: Listpack, what: &'static str, limits: &Limits) -> Result<Zset, Error> {
    if listpack.is_empty() {
        return Err(Error::Empty);
    }
    Zset::from_listpack(listpack, &limits.zset).map_err(|_| Error::Corrupt(what))
}

/// A hash in the oldest encoding.
fn hash_of_zipmap(bytes: &[u8], limits: &Limits) -> Result<Hash, Error> {
    let fields = zipmap::fields(bytes)?;
    let mut hash = Hash::with_capacity(fields.len(), &limits.hash);
    for (field, value) in fields {
        if !hash.set(field, value, &limits.hash) {
            return Err(Error::Corrupt("duplicate hash field"));
        }
    }
    Ok(hash)
}
