//! A hash as files and snapshots take it.

use super::field::Field;
use super::{Hash, HashContents, Repr, View};
use crate::either::Either;
use crate::table::Item;
use std::borrow::Cow;

impl Hash {
    /// The hash as RDB files have it: fields, values and times.
    pub fn contents(&self) -> HashContents<'_, impl Iterator<Item = (&[u8], &[u8], Option<i64>)>> {
        match &self.repr {
            Repr::Listpack(listpack) => HashContents::Listpack(Cow::Borrowed(listpack.as_bytes())),
            Repr::Inline(inline) => {
                HashContents::Listpack(Cow::Owned(inline.to_listpack().as_bytes().to_vec()))
            }
            Repr::Table(table) => HashContents::Table(Either::First(table.iter().map(as_element))),
            Repr::Timed(timed) => {
                HashContents::Timed(Either::First(timed.table().iter().map(as_element)))
            }
            Repr::Few(few) => HashContents::Timed(Either::<_, _, std::iter::Empty<_>>::Second(
                few.fields().iter().map(as_element),
            )),
        }
    }

    /// Lets `take` see every field that is here now with its value and time, once and as they are
    /// now, while the hash goes on changing: see [`Hash::step_watch`]. `false` for a listpack or an
    /// array, which are small.
    pub fn watch(&self, mut take: impl FnMut(&[u8], &[u8], Option<i64>) + Send + 'static) -> bool {
        let View::Table(table) = self.view() else { return false };
        table.watch(Box::new(move |item| take(item.key(), item.value(), item.expiry())));
        true
    }

    /// Lets the watch see some more fields; `false` if it has seen all.
    pub fn step_watch(&self) -> bool {
        matches!(self.view(), View::Table(table) if table.step())
    }

    /// Lets changes of the hash show the watch so many groups of fields more from now on, so that
    /// no thread has to step; how many they have not used of what they were allowed before.
    pub fn allow_watch(&self, groups: usize) -> usize {
        match self.view() {
            View::Table(table) => table.allow(groups),
            View::Listpack(_) | View::Few(_) | View::Inline(_) => 0,
        }
    }

    /// Ends the watch before it has seen all.
    pub fn unwatch(&self) {
        if let View::Table(table) = self.view() {
            table.unwatch();
        }
    }
}

#[inline]
fn as_element(item: &Field) -> (&[u8], &[u8], Option<i64>) {
    (item.key(), item.value(), item.expiry())
}
