//! A small hash in which fields expire: an array of fields with their values and times.
//!
//! A table would take some 300 bytes for three fields. Clients are told that it is one, as in the
//! reference. A search compares names one after the other; with more than [`MAX_FIELDS`] fields, or
//! longer ones, the hash becomes a table with an index over the times ([`super::timed`]).

use super::field::Field;
use crate::hashing::hash;
use crate::listpack::Listpack;
use crate::size_class::block_size;
use crate::table::Item;
use crate::watched::{Measured, Watched};

/// Fields that it holds at most.
pub(super) const MAX_FIELDS: usize = 24;
/// Bytes of a field or value, at most.
const MAX_LEN: usize = 255;
/// The array grows by so many places.
const PLACES: usize = 4;
/// The bound where nothing expires. A field may have this time, too.
const NEVER: i64 = i64::MAX;

/// See the module's documentation.
pub(super) struct Few {
    fields: Vec<Field>,
    /// No field expires before this time, which may be too early.
    bound: i64,
    /// Fields that expire.
    timed: usize,
    /// See [`super::Hash::noted_time`].
    pub(super) noted: Option<i64>,
}

/// The field with this name.
#[inline]
pub(super) fn find<'f>(fields: &'f [Field], name: &[u8]) -> Option<&'f Field> {
    fields.iter().find(|field| field.key() == name)
}

fn is_short(field: &[u8], value: &[u8]) -> bool {
    field.len() <= MAX_LEN && value.len() <= MAX_LEN
}

impl Few {
    /// The pairs of a listpack, none of which expires; `None` if they are too many or too long.
    pub(super) fn of(pairs: &Listpack) -> Option<Few> {
        let count = pairs.count() / 2;
        let mut fields = Vec::with_capacity(count.min(MAX_FIELDS));
        for (field, value) in pairs.pairs().take(MAX_FIELDS + 1) {
            let are_short = field.with_bytes(|field| {
                value.with_bytes(|value| {
                    fields.push(Field::new(field, value));
                    is_short(field, value)
                })
            });
            if !are_short {
                return None;
            }
        }
        (count <= MAX_FIELDS).then_some(Few { fields, bound: NEVER, timed: 0, noted: None })
    }

    /// The fields, in no particular order.
    #[inline]
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Number of fields that expire.
    #[inline]
    pub(super) fn timed(&self) -> usize {
        self.timed
    }

    /// A time that no field expires before; `None` if none expires.
    #[inline]
    pub(super) fn bound(&self) -> Option<i64> {
        (self.timed > 0).then_some(self.bound)
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        self.fields.iter().position(|field| field.key() == name)
    }

    /// Whether this field may be set to this value here.
    pub(super) fn takes(&self, field: &[u8], value: &[u8]) -> bool {
        is_short(field, value) && (self.fields.len() < MAX_FIELDS || self.position(field).is_some())
    }

    /// A field has this time now.
    fn note(&mut self, expiry: Option<i64>) {
        if let Some(expiry) = expiry {
            self.timed += 1;
            self.bound = self.bound.min(expiry);
        }
    }

    /// Sets a field and its time; true if it is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8], expiry: Option<i64>) -> bool {
        let found = self.position(field);
        match found {
            Some(at) => {
                let item = &mut self.fields[at];
                self.timed -= usize::from(item.expiry().is_some());
                item.set_expiry(expiry);
                item.set_value(value);
            }
            None => {
                if self.fields.len() == self.fields.capacity() {
                    self.fields.reserve_exact(PLACES);
                }
                self.fields.push(Field::with_expiry(field, value, expiry));
            }
        }
        self.note(expiry);
        found.is_none()
    }

    /// Changes the time of a field; false if there is no such field.
    pub(super) fn set_expiry(&mut self, field: &[u8], expiry: Option<i64>) -> bool {
        let Some(at) = self.position(field) else { return false };
        let item = &mut self.fields[at];
        self.timed -= usize::from(item.expiry().is_some());
        item.set_expiry(expiry);
        self.note(expiry);
        true
    }

    /// Takes a field out.
    pub(super) fn remove(&mut self, field: &[u8]) -> Option<Field> {
        let item = self.fields.swap_remove(self.position(field)?);
        self.timed -= usize::from(item.expiry().is_some());
        Some(item)
    }

    /// Removes the fields whose time is before `time`, and shows each to `removed`.
    pub(super) fn remove_expired(&mut self, time: i64, mut removed: impl FnMut(&[u8])) {
        let (mut timed, mut bound) = (0, NEVER);
        self.fields.retain(|field| match field.expiry() {
            Some(expiry) if expiry < time => {
                removed(field.key());
                false
            }
            Some(expiry) => {
                timed += 1;
                bound = bound.min(expiry);
                true
            }
            None => true,
        });
        (self.timed, self.bound) = (timed, bound);
    }

    /// The fields in a table.
    pub(super) fn into_table(self) -> Watched<Field> {
        let mut table = Watched::with_capacity(self.fields.len());
        for field in self.fields {
            table.insert_absent(hash(field.key()), field);
        }
        table
    }

    /// Bytes allocated. Takes time in proportion to the fields, which are few.
    pub(super) fn allocated_bytes(&self) -> usize {
        let places = self.fields.capacity() * size_of::<Field>();
        let fields: usize = self.fields.iter().map(Measured::allocated_bytes).sum();
        block_size(size_of::<Few>()) + if places == 0 { 0 } else { block_size(places) } + fields
    }

    /// A copy, of which no time is noted.
    pub(super) fn duplicate(&self) -> Few {
        let copy = |field: &Field| Field::with_expiry(field.key(), field.value(), field.expiry());
        let fields = self.fields.iter().map(copy).collect();
        Few { fields, noted: None, ..*self }
    }
}
