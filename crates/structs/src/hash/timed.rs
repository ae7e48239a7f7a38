//! A hash in which fields expire: the table and the index over the times.

use super::few::{self, Few};
use super::field::Field;
use super::times::{Part, Times};
use super::{Hash, Repr, View};
use crate::hashing::hash;
use crate::listpack::Listpack;
use crate::size_class::block_size;
use crate::table::Item;
use crate::watched::Watched;

/// See the module's documentation.
pub(super) struct Timed {
    table: Watched<Field>,
    times: Times,
    /// See [`Hash::noted_time`].
    noted: Option<i64>,
}

impl Timed {
    fn new(table: Watched<Field>) -> Timed {
        let times = Times::new(table.len());
        Timed { table, times, noted: None }
    }

    /// The fields of an array that has become too small, with its note.
    fn of(few: Few) -> Timed {
        let noted = few.noted;
        let mut timed = Timed::new(few.into_table());
        let times: Vec<_> =
            timed.table.iter().map(|item| (hash(item.key()), item.expiry())).collect();
        times.into_iter().for_each(|(hash, expiry)| timed.note(hash, expiry));
        timed.noted = noted;
        timed
    }

    #[inline]
    pub(super) fn table(&self) -> &Watched<Field> {
        &self.table
    }

    /// Sets a field and its time; true if it is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8], expiry: Option<i64>) -> bool {
        let hash = hash(field);
        let is_new = match self.table.occupied(hash, field) {
            Some(mut slot) => {
                self.times.fields -= usize::from(slot.get().expiry().is_some());
                slot.update(|item| {
                    item.set_expiry(expiry);
                    item.set_value(value);
                });
                false
            }
            None => {
                self.table.insert_absent(hash, Field::with_expiry(field, value, expiry));
                true
            }
        };
        self.note(hash, expiry);
        is_new
    }

    /// A field with this hash has this time now.
    fn note(&mut self, hash: u64, expiry: Option<i64>) {
        if let Some(expiry) = expiry {
            self.times.fields += 1;
            self.times.fit(self.table.len());
            self.times.note(self.table.position_of(hash), expiry);
        }
    }

    pub(super) fn remove(&mut self, field: &[u8]) -> Option<Field> {
        let hash = hash(field);
        let item = self.table.occupied(hash, field)?.remove_hashed(hash);
        self.times.fields -= usize::from(item.expiry().is_some());
        Some(item)
    }

    /// Changes the time of a field; false if there is no such field.
    fn set_expiry(&mut self, field: &[u8], expiry: Option<i64>) -> bool {
        let hash = hash(field);
        let Some(mut slot) = self.table.occupied(hash, field) else { return false };
        self.times.fields -= usize::from(slot.get().expiry().is_some());
        slot.update(|item| item.set_expiry(expiry));
        self.note(hash, expiry);
        true
    }

    /// The names of the fields of a part whose time is before `time`; the bound of the part becomes
    /// the earliest of the other times.
    fn expired_in(&mut self, part: Part, time: i64, expired: &mut Vec<Box<[u8]>>) {
        let (mut at, mut bound) = (part.start(), None);
        let table = &self.table;
        loop {
            // Each field is a cache miss: together they take as long as one.
            table.prefetch_items_at(at);
            let next = table.scan(at, |item| {
                let is_of_part = part.has(table.position_of(hash(item.key())));
                match item.expiry().filter(|_| is_of_part) {
                    Some(expiry) if expiry < time => expired.push(Box::from(item.key())),
                    Some(expiry) => {
                        bound = Some(bound.map_or(expiry, |least: i64| least.min(expiry)))
                    }
                    None => {}
                }
            });
            match next {
                Some(next) if part.has(next) => at = next,
                _ => break,
            }
        }
        self.times.set(part, bound);
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        let own = block_size(size_of::<Timed>()) - block_size(size_of::<Watched<Field>>());
        own + self.table.allocated_bytes() + self.times.allocated_bytes()
    }

    /// A copy, of which no time is noted.
    pub(super) fn duplicate(&self) -> Box<Timed> {
        let mut copy = Timed::new(Watched::with_capacity(self.table.len()));
        for item in self.table.iter() {
            let (hash, expiry) = (hash(item.key()), item.expiry());
            let field = Field::with_expiry(item.key(), item.value(), expiry);
            copy.table.insert_absent(hash, field);
            copy.note(hash, expiry);
        }
        Box::new(copy)
    }
}

impl Hash {
    /// Number of fields that expire.
    #[inline]
    pub fn timed_fields(&self) -> usize {
        match &self.repr {
            Repr::Few(few) => few.timed(),
            Repr::Timed(timed) => timed.times.fields,
            _ => 0,
        }
    }

    /// Whether any field expires, or did until [`Hash::drop_times`] is called.
    #[inline]
    pub fn is_timed(&self) -> bool {
        matches!(self.repr, Repr::Few(_) | Repr::Timed(_))
    }

    /// A time that no field expires before, in milliseconds since the epoch of Unix; `None` if none
    /// expires. It may be too early.
    #[inline]
    pub fn expiry_bound(&self) -> Option<i64> {
        match &self.repr {
            Repr::Few(few) => few.bound(),
            Repr::Timed(timed) => (timed.times.fields > 0).then(|| timed.times.bound()),
            _ => None,
        }
    }

    /// When a field expires; the outer `None` says that there is no such field.
    pub fn expiry(&self, field: &[u8]) -> Option<Option<i64>> {
        match self.view() {
            View::Table(table) => table.get(hash(field), field).map(Field::expiry),
            View::Listpack(listpack) => listpack.find(field, 2).map(|_| None),
            View::Few(fields) => few::find(fields, field).map(Field::expiry),
            View::Inline(inline) => inline.find_value(field).map(|_| None),
        }
    }

    /// Lets a field expire then, or never; false if there is no such field.
    pub fn set_expiry(&mut self, field: &[u8], expiry: Option<i64>) -> bool {
        if expiry.is_none() && !self.is_timed() || !self.contains(field) {
            return self.contains(field);
        }
        self.become_few();
        match self.few_for(field, b"") {
            Some(few) => few.set_expiry(field, expiry),
            None => self.timed().set_expiry(field, expiry),
        }
    }

    /// Sets a field that expires then; true if it is new.
    pub fn set_timed(&mut self, field: &[u8], value: &[u8], expiry: i64) -> bool {
        self.become_few();
        match self.few_for(field, value) {
            Some(few) => few.set(field, value, Some(expiry)),
            None => self.timed().set(field, value, Some(expiry)),
        }
    }

    /// Removes fields whose time is before `time`, some more than `most` at most, and shows each to
    /// `removed`. If [`Hash::expiry_bound`] is before `time` afterwards there may be more of them.
    pub fn remove_expired(&mut self, time: i64, most: usize, mut removed: impl FnMut(&[u8])) {
        let timed = match &mut self.repr {
            Repr::Few(few) => return few.remove_expired(time, removed),
            Repr::Timed(timed) => timed,
            Repr::Listpack(_) | Repr::Table(_) | Repr::Inline(_) => return,
        };
        timed.times.fit(timed.table.len());
        let mut expired = Vec::new();
        let mut count = 0;
        while count < most
            && let Some(part) = timed.times.due(time)
        {
            timed.expired_in(part, time, &mut expired);
            count += 1 + expired.len();
            for field in expired.drain(..) {
                timed.remove(&field);
                removed(&field);
            }
        }
    }

    /// When the hash's owner looks for expired fields next, as it has noted here. A copy has no
    /// note.
    pub fn noted_time(&self) -> Option<i64> {
        match &self.repr {
            Repr::Few(few) => few.noted,
            Repr::Timed(timed) => timed.noted,
            _ => None,
        }
    }

    /// Notes that, if the hash is timed.
    pub fn note_time(&mut self, time: Option<i64>) {
        match &mut self.repr {
            Repr::Few(few) => few.noted = time,
            Repr::Timed(timed) => timed.noted = time,
            Repr::Listpack(_) | Repr::Table(_) | Repr::Inline(_) => {}
        }
    }

    /// Makes an array of a listpack with few and short fields: one of them is about to expire.
    fn become_few(&mut self) {
        if let Repr::Listpack(pairs) = &self.repr
            && let Some(few) = Few::of(pairs)
        {
            self.repr = Repr::Few(Box::new(few));
        }
    }

    /// The hash as an array, if it is one and this field may be set to this value there.
    #[inline]
    pub(super) fn few_for(&mut self, field: &[u8], value: &[u8]) -> Option<&mut Few> {
        match &mut self.repr {
            Repr::Few(few) if few.takes(field, value) => Some(few),
            _ => None,
        }
    }

    /// The hash as a table whose fields may expire.
    pub(super) fn timed(&mut self) -> &mut Timed {
        if matches!(self.repr, Repr::Listpack(_)) {
            self.become_table(0);
        }
        if let Some(few) = self.take_few() {
            self.repr = Repr::Timed(Box::new(Timed::of(few)));
        }
        if let Repr::Table(table) = &mut self.repr {
            let table = std::mem::replace(&mut **table, Watched::with_capacity(0));
            self.repr = Repr::Timed(Box::new(Timed::new(table)));
        }
        let Repr::Timed(timed) = &mut self.repr else { unreachable!("converted above") };
        timed
    }

    /// The array, if the hash is one; it is an empty listpack then.
    fn take_few(&mut self) -> Option<Few> {
        if !matches!(self.repr, Repr::Few(_)) {
            return None;
        }
        match std::mem::replace(&mut self.repr, Repr::Listpack(Listpack::new())) {
            Repr::Few(few) => Some(*few),
            _ => None,
        }
    }

    /// Frees the index if no field expires any more, with the note of its owner. The hash is a
    /// table from then on.
    pub fn drop_times(&mut self) {
        if self.timed_fields() == 0
            && let Some(few) = self.take_few()
        {
            self.repr = Repr::Table(Box::new(few.into_table()));
        }
        if let Repr::Timed(timed) = &mut self.repr
            && timed.times.fields == 0
        {
            let table = std::mem::replace(&mut timed.table, Watched::with_capacity(0));
            self.repr = Repr::Table(Box::new(table));
        }
    }

    /// The table, if the hash is one.
    #[inline]
    pub(super) fn table_mut(&mut self) -> Option<&mut Watched<Field>> {
        match &mut self.repr {
            Repr::Listpack(_) | Repr::Few(_) | Repr::Inline(_) => None,
            Repr::Table(table) => Some(table),
            Repr::Timed(timed) => Some(&mut timed.table),
        }
    }
}
