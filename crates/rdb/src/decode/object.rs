//! Reading values of every type and encoding.

use super::build::set_field;
use super::{Decoder, ziplist, zipmap};
use crate::module::Module;
use crate::{Error, Kind, Limits, Object};
use std::borrow::Cow;
use structs::hash::Hash;
use structs::intset::Intset;
use structs::list::List;
use structs::listpack::Listpack;
use structs::set::Set;
use structs::zset::Zset;

impl Decoder<'_> {
    /// A value with its type byte, as Valkey or Redis writes it.
    pub fn object(&mut self, is_valkey: bool, limits: &Limits) -> Result<Object, Error> {
        let byte = self.byte()?;
        let kind = Kind::in_dialect(byte, is_valkey).ok_or(Error::UnsupportedType(byte))?;
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
            | Kind::TimedHash
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
                set_of(self.packed_listpack("Set listpack")?, limits).map(Object::Set)
            }
            Kind::HashZipmap => hash_of_zipmap(&self.string()?, limits).map(Object::Hash),
            Kind::HashZiplist => {
                hash_of(self.packed_ziplist("Hash ziplist")?, limits).map(Object::Hash)
            }
            Kind::HashListpack => {
                hash_of(self.packed_listpack("Hash listpack")?, limits).map(Object::Hash)
            }
            Kind::RedisTimedHash => self.redis_timed_hash(limits).map(Object::Hash),
            Kind::RedisTimedListpack => self.redis_timed_listpack(limits).map(Object::Hash),
            Kind::ZsetZiplist => {
                zset_of(self.packed_ziplist("Zset ziplist")?, limits).map(Object::Zset)
            }
            Kind::StreamListpacks | Kind::StreamListpacks2 | Kind::StreamListpacks3 => {
                self.stream(kind)
            }
            Kind::Module => Module::load(self, limits.types).map(Object::Module),
            Kind::ZsetListpack => {
                zset_of(self.packed_listpack("Zset listpack")?, limits).map(Object::Zset)
            }
        }
    }

    /// A ziplist, as the listpack that has taken its place; `what` it is for errors.
    fn ziplist(&mut self, what: &'static str) -> Result<Listpack, Error> {
        ziplist::to_listpack(&self.string()?).map_err(|_| Error::Corrupt(what))
    }

    /// The earliest expiry; a number of fields, and each with what it expires later, plus one, or 0
    /// if it does not expire.
    fn redis_timed_hash(&mut self, limits: &Limits) -> Result<Hash, Error> {
        let earliest = i64::from_le_bytes(self.array()?);
        let count = self.count(3)?;
        let mut hash = Hash::with_capacity(count, &limits.hash);
        for _ in 0..count {
            let later = self.length()?;
            let (field, value) = (self.string()?, self.string()?);
            let expiry = match later.checked_sub(1) {
                None => None,
                Some(later) => {
                    let expiry = earliest.checked_add_unsigned(later);
                    Some(expiry.filter(|&expiry| expiry >= 0).ok_or(BAD_EXPIRY)?)
                }
            };
            set_field(&mut hash, &field, &value, expiry, limits)?;
        }
        if hash.is_empty() { Err(Error::Empty) } else { Ok(hash) }
    }

    /// The earliest expiry, and a listpack of fields, values and expiries, 0 for a field without
    /// one.
    fn redis_timed_listpack(&mut self, limits: &Limits) -> Result<Hash, Error> {
        self.bytes(size_of::<i64>())?;
        let packed = self.packed_listpack("Hash listpack")?;
        let count = packed.elements.count();
        if !count.is_multiple_of(3) {
            return Err(Error::Corrupt(packed.what));
        }
        let mut hash = Hash::with_capacity(count / 3, &limits.hash);
        let mut elements = packed.elements.iter();
        while let Some(field) = elements.next() {
            let (Some(value), Some(expiry)) = (elements.next(), elements.next()) else {
                return Err(Error::Corrupt(packed.what));
            };
            let expiry = expiry.to_int().filter(|&expiry| expiry >= 0).ok_or(BAD_EXPIRY)?;
            let expiry = (expiry != 0).then_some(expiry);
            set_field(&mut hash, &field.to_vec(), &value.to_vec(), expiry, limits)
                .map_err(|_| Error::Duplicate(packed.what))?;
        }
        Ok(hash)
    }

    fn packed_ziplist(&mut self, what: &'static str) -> Result<Packed, Error> {
        Packed::new(self.ziplist(what)?, what)
    }

    fn packed_listpack(&mut self, what: &'static str) -> Result<Packed, Error> {
        Packed::new(self.listpack(what)?, what)
    }
}

const BAD_EXPIRY: Error = Error::Corrupt("hash field expiry");

/// The elements of a small value, of which there is at least one, and what it is for errors.
struct Packed {
    elements: Listpack,
    what: &'static str,
}

impl Packed {
    fn new(elements: Listpack, what: &'static str) -> Result<Packed, Error> {
        if elements.is_empty() { Err(Error::Empty) } else { Ok(Packed { elements, what }) }
    }
}

fn not_empty(list: List) -> Result<List, Error> {
    if list.is_empty() { Err(Error::Empty) } else { Ok(list) }
}

fn set_of(packed: Packed, limits: &Limits) -> Result<Set, Error> {
    let what = packed.what;
    Set::from_listpack(packed.elements, &limits.set).map_err(|_| Error::Duplicate(what))
}

fn hash_of(packed: Packed, limits: &Limits) -> Result<Hash, Error> {
    let (what, is_even) = (packed.what, packed.elements.count().is_multiple_of(2));
    Hash::from_listpack(packed.elements, &limits.hash)
        .map_err(|_| if is_even { Error::Duplicate(what) } else { Error::Corrupt(what) })
}

fn zset_of(packed: Packed, limits: &Limits) -> Result<Zset, Error> {
    let what = packed.what;
    Zset::from_listpack(packed.elements, &limits.zset).map_err(|_| Error::Corrupt(what))
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
