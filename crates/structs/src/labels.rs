//! Labels of values, and an index that finds keys by them.
//!
//! An index has the labels of each of its keys itself, so it answers for values that are not in
//! memory. For each name and value of a label it has the ascending numbers of the keys that have
//! it. A query takes the numbers of its most selective test, and looks at the labels for the
//! others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A name and its value.
pub type Label = (Box<[u8]>, Box<[u8]>);

/// Names and values, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Vec<Label>);

impl Labels {
    /// Returns these labels. Of several with one name, the first counts.
    pub fn new(mut labels: Vec<Label>) -> Labels {
        let mut names = HashSet::new();
        let is_new: Vec<bool> = labels.iter().map(|(name, _)| names.insert(&**name)).collect();
        let mut is_new = is_new.into_iter();
        labels.retain(|_| is_new.next().unwrap_or(true));
        Labels(labels)
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the value of a name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(of, _)| *of == name).map(|(_, value)| value)
    }

    /// Returns the bytes of the blocks.
    pub fn allocated_bytes(&self) -> usize {
        let texts: usize = self.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.0.capacity() * size_of::<Label>() + texts
    }
}

/// What the value of a label has to be. An empty list of values means a missing label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// One of these.
    Is(Vec<Box<[u8]>>),
    /// None of these.
    IsNot(Vec<Box<[u8]>>),
}

/// A test of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its name.
    pub name: Box<[u8]>,
    /// What its value has to be.
    pub test: Test,
}

impl Filter {
    /// Returns whether labels pass.
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.name);
        let is_in = |values: &Vec<Box<[u8]>>| match value {
            None => values.is_empty(),
            Some(value) => values.iter().any(|it| &**it == value),
        };
        match &self.test {
            Test::Is(values) => is_in(values),
            Test::IsNot(values) => !is_in(values),
        }
    }

    /// Returns whether it says of some values that the label has one of them.
    pub fn is_selective(&self) -> bool {
        matches!(&self.test, Test::Is(values) if !values.is_empty())
    }
}

/// A key and its labels.
#[derive(Debug)]
struct Listed {
    key: Box<[u8]>,
    labels: Arc<Labels>,
}

/// The ascending numbers of the keys that have a label, by its value.
type ByValue = HashMap<Box<[u8]>, Vec<u32>>;

/// Indexes of the process.
static INDEXES: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of indexes in the process: 0 if no key has labels.
pub fn indexes() -> usize {
    INDEXES.load(Relaxed)
}

/// Counts an index as long as it lives.
#[derive(Debug)]
struct Counted;

impl Default for Counted {
    fn default() -> Counted {
        INDEXES.fetch_add(1, Relaxed);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        INDEXES.fetch_sub(1, Relaxed);
    }
}

/// An index of keys by labels.
#[derive(Debug, Default)]
pub struct LabelIndex {
    _count: Counted,
    listed: Vec<Option<Listed>>,
    free: Vec<u32>,
    by_key: HashMap<Box<[u8]>, u32>,
    by_label: HashMap<Box<[u8]>, ByValue>,
}

impl LabelIndex {
    /// Returns whether no key is listed.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Lists a key with labels, in place of those that it was listed with.
    pub fn list(&mut self, key: &[u8], labels: &Arc<Labels>) {
        self.remove(key);
        let number = self.free.pop().unwrap_or_else(|| {
            self.listed.push(None);
            (self.listed.len() - 1) as u32
        });
        for (name, value) in labels.iter() {
            let values = self.by_label.entry(name.into()).or_default();
            let numbers = values.entry(value.into()).or_default();
            if let Err(at) = numbers.binary_search(&number) {
                numbers.insert(at, number);
            }
        }
        self.by_key.insert(key.into(), number);
        self.listed[number as usize] = Some(Listed { key: key.into(), labels: labels.clone() });
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &[u8]) {
        let Some(number) = self.by_key.remove(key) else { return };
        let Some(listed) = self.listed[number as usize].take() else { return };
        for (name, value) in listed.labels.iter() {
            let Some(values) = self.by_label.get_mut(name) else { continue };
            if let Some(numbers) = values.get_mut(value) {
                if let Ok(at) = numbers.binary_search(&number) {
                    numbers.remove(at);
                }
                if numbers.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.by_label.remove(name);
            }
        }
        self.free.push(number);
    }

    /// Calls `found` with each key whose labels pass all filters.
    pub fn find(&self, filters: &[Filter], mut found: impl FnMut(&[u8], &Arc<Labels>)) {
        let mut visit = |listed: &Listed| {
            if filters.iter().all(|filter| filter.matches(&listed.labels)) {
                found(&listed.key, &listed.labels);
            }
        };
        let candidates = filters.iter().filter_map(|filter| self.candidates(filter));
        match candidates.min_by_key(|lists| lists.iter().map(|list| list.len()).sum::<usize>()) {
            None => self.listed.iter().flatten().for_each(visit),
            Some(lists) => {
                for &number in lists.into_iter().flatten() {
                    self.listed[number as usize].as_ref().into_iter().for_each(&mut visit);
                }
            }
        }
    }

    /// Returns the numbers of the keys that a selective filter accepts: a label has one value, so
    /// no number is in two of the lists.
    fn candidates(&self, filter: &Filter) -> Option<Vec<&Vec<u32>>> {
        let Test::Is(wanted) = &filter.test else { return None };
        if wanted.is_empty() {
            return None;
        }
        let mut wanted: Vec<_> = wanted.iter().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let values = self.by_label.get(&filter.name);
        Some(wanted.into_iter().filter_map(|value| values?.get(value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[(&str, &str)]) -> Arc<Labels> {
        let pair =
            |&(name, value): &(&str, &str)| (name.as_bytes().into(), value.as_bytes().into());
        Arc::new(Labels::new(of.iter().map(pair).collect()))
    }

    fn filter(name: &str, test: fn(Vec<Box<[u8]>>) -> Test, values: &[&str]) -> Filter {
        let values = values.iter().map(|value| value.as_bytes().into()).collect();
        Filter { name: name.as_bytes().into(), test: test(values) }
    }

    fn found(index: &LabelIndex, filters: &[Filter]) -> Vec<String> {
        let mut keys = Vec::new();
        index.find(filters, |key, _| keys.push(String::from_utf8_lossy(key).into_owned()));
        keys.sort();
        keys
    }

    #[test]
    fn keys_are_found_by_their_labels() {
        let mut index = LabelIndex::default();
        index.list(b"a", &labels(&[("type", "temp"), ("room", "study")]));
        index.list(b"b", &labels(&[("type", "temp")]));
        index.list(b"c", &labels(&[("type", "rain"), ("room", "garden")]));
        let is_temp = filter("type", Test::Is, &["temp"]);
        assert_eq!(found(&index, std::slice::from_ref(&is_temp)), ["a", "b"]);
        assert_eq!(found(&index, &[is_temp.clone(), filter("room", Test::Is, &[])]), ["b"]);
        assert_eq!(found(&index, &[is_temp.clone(), filter("room", Test::IsNot, &[])]), ["a"]);
        let either = filter("type", Test::Is, &["rain", "temp", "rain"]);
        assert_eq!(found(&index, std::slice::from_ref(&either)), ["a", "b", "c"]);
        let not_study = filter("room", Test::IsNot, &["study"]);
        assert_eq!(found(&index, &[either.clone(), not_study]), ["b", "c"]);
        index.list(b"a", &labels(&[("type", "rain")]));
        index.remove(b"c");
        assert_eq!(found(&index, &[is_temp]), ["b"]);
        index.remove(b"b");
        index.remove(b"a");
        assert!(index.is_empty() && index.by_label.is_empty());
        assert!(found(&index, &[]).is_empty());
    }
}
