//! A hash as it is at a moment: fields whose time has come are absent.
//!
//! Where no field can have expired, which one comparison tells, this costs what the hash itself
//! does.

use super::field::Field;
use super::{Hash, View, as_pair, few};
use crate::either::Either;
use crate::hashing::hash;
use crate::listpack::Element;
use crate::random::Rng;
use crate::sampling::select;
use crate::scan::scan_table;
use crate::table::{Item, Salted};

/// Draws of a random field before all are looked at for one that has not expired.
const DRAWS: usize = 32;

/// See the module's documentation.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    hash: &'a Hash,
    /// Fields that expire before it are absent; the least number where there are none.
    time: i64,
}

impl Hash {
    /// The hash without the fields that expire before this time.
    #[inline]
    pub fn live(&self, time: i64) -> Live<'_> {
        let may_have_expired = self.expiry_bound().is_some_and(|bound| bound < time);
        Live { hash: self, time: if may_have_expired { time } else { i64::MIN } }
    }
}

impl Hash {
    /// Whether there is such a field and it expires before this time.
    #[inline]
    pub fn has_expired(&self, field: &[u8], time: i64) -> bool {
        self.expiry_bound().is_some_and(|bound| bound < time)
            && self.expiry(field).flatten().is_some_and(|expiry| expiry < time)
    }
}

impl<'a> Live<'a> {
    #[inline]
    fn has(self, field: &Field) -> bool {
        self.time == i64::MIN || field.expiry().is_none_or(|expiry| expiry >= self.time)
    }

    fn is_all(self) -> bool {
        self.time == i64::MIN
    }

    /// Number of fields. Takes time in proportion to them if some may have expired.
    pub fn count(self) -> usize {
        if self.is_all() { self.hash.len() } else { self.iter().count() }
    }

    /// The value of a field.
    #[inline]
    pub fn get(self, field: &[u8]) -> Option<Element<'a>> {
        match self.hash.view() {
            View::Listpack(listpack) => listpack.find_value(field),
            View::Table(table) => {
                let item = table.get(hash(field), field).filter(|item| self.has(item))?;
                Some(Element::Bytes(item.value()))
            }
            View::Few(fields) => {
                let item = few::find(fields, field).filter(|item| self.has(item))?;
                Some(Element::Bytes(item.value()))
            }
            View::Inline(inline) => inline.find_value(field),
        }
    }

    /// Whether there is such a field.
    #[inline]
    pub fn contains(self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// When a field expires; the outer `None` says that there is no such field.
    pub fn expiry(self, field: &[u8]) -> Option<Option<i64>> {
        let expiry = self.hash.expiry(field)?;
        expiry.is_none_or(|expiry| expiry >= self.time).then_some(expiry)
    }

    /// All fields with their values, in no particular order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = (Element<'a>, Element<'a>)> {
        match self.hash.view() {
            View::Listpack(listpack) => Either::First(listpack.pairs()),
            View::Table(table) => {
                let fields = table.iter().filter(move |item| self.has(item)).map(as_pair);
                Either::Second(fields)
            }
            View::Few(fields) => {
                Either::Third(fields.iter().filter(move |item| self.has(item)).map(as_pair))
            }
            View::Inline(inline) => Either::Fourth(inline.pairs()),
        }
    }

    /// As [`Hash::scan`].
    pub fn scan(
        self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) -> u64 {
        let View::Table(table) = self.hash.view() else {
            self.iter().for_each(|(field, value)| visit(field, value));
            return 0;
        };
        scan_table::<Field, Salted>(table, cursor, count, |item| {
            if self.has(item) {
                visit(Element::Bytes(item.key()), Element::Bytes(item.value()));
            }
        })
    }

    /// As [`Hash::random`].
    pub fn random(self, rng: &mut Rng) -> Option<(Element<'a>, Element<'a>)> {
        if self.is_all() {
            return self.hash.random(rng);
        }
        if let View::Table(table) = self.hash.view() {
            for _ in 0..DRAWS {
                let item = table.sample(|| rng.next_u64())?;
                if self.has(item) {
                    return Some(as_pair(item));
                }
            }
        }
        let fields: Vec<_> = self.iter().collect();
        (!fields.is_empty()).then(|| fields[rng.index(fields.len())])
    }

    /// As [`Hash::sample_distinct`].
    pub fn sample_distinct(
        self,
        count: usize,
        rng: &mut Rng,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) {
        if self.is_all() {
            return self.hash.sample_distinct(count, rng, visit);
        }
        select(self.iter(), count, self.count(), rng, |(field, value)| visit(field, value));
    }

    /// As [`Hash::sample_repeated`].
    pub fn sample_repeated(
        self,
        count: usize,
        rng: &mut Rng,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) {
        if self.is_all() {
            return self.hash.sample_repeated(count, rng, visit);
        }
        let fields: Vec<_> = self.iter().collect();
        for _ in 0..if fields.is_empty() { 0 } else { count } {
            let (field, value) = fields[rng.index(fields.len())];
            visit(field, value);
        }
    }
}
