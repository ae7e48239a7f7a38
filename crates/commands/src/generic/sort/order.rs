//! Sorting: the elements in one block of memory, what they are sorted by, and their order.

use engine::Error;
use std::cmp::Ordering;
use std::ops::Range;
use structs::give_way::give_way;
use structs::listpack::Element;
use structs::numbers;

/// Byte strings, one behind the other.
#[derive(Default)]
pub(super) struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    pub fn push_element(&mut self, element: Element<'_>) {
        element.append_to(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }
}

/// What the elements are sorted by.
pub(super) enum Weights {
    /// Numbers, one for each element.
    Numbers(Vec<f64>),
    /// The elements' own bytes.
    Elements,
    /// Texts of other keys, one for each element; those that lack one have the empty text and
    /// are marked.
    Texts { texts: Strings, missing: Vec<bool> },
}

/// How to sort.
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub descending: bool,
    /// Whether texts are compared to their end. The reference does so only for STORE; else it
    /// compares them as C strings, which end at a zero byte.
    pub whole_texts: bool,
    /// Whether the elements lie in an order that means something (that of a list or sorted set),
    /// and which those that compare equal keep. A set's do not: there the bytes decide, so that
    /// the result does not depend on how the set happens to lie in memory.
    pub keeps_equals: bool,
}

/// The number that a text spells, up to its end or a zero byte.
pub(super) fn number(text: &[u8]) -> Result<f64, Error> {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    numbers::parse_f64(&text[..end])
        .ok_or(Error::text("ERR One or more scores can't be converted into double"))
}

/// Items that are sorted without a look at whether anybody still wants them: some ten milliseconds.
const CHUNK: usize = 1 << 16;

/// The indexes of the elements that come at the places of `range` once all are sorted; any, if
/// they turn out to be unwanted in between.
pub(super) fn sort(
    elements: &Strings,
    weights: &Weights,
    order: Order,
    range: Range<usize>,
    is_wanted: impl Fn() -> bool,
) -> Vec<usize> {
    let directed =
        |ordering: Ordering| if order.descending { ordering.reverse() } else { ordering };
    let last = |a: usize, b: usize| {
        let by_bytes =
            if order.keeps_equals { Ordering::Equal } else { elements.get(a).cmp(elements.get(b)) };
        by_bytes.then(a.cmp(&b))
    };
    match weights {
        Weights::Numbers(numbers) => {
            // The numbers are moved with the indexes: most comparisons look at nothing else.
            let items = numbers.iter().copied().enumerate().map(|(index, number)| (number, index));
            let sorted = arrange(items.collect(), range, is_wanted, |&(x, a), &(y, b)| {
                // There is no NaN among them.
                let by_number = x.partial_cmp(&y).unwrap_or(Ordering::Equal);
                let by_both = by_number.then_with(|| elements.get(a).cmp(elements.get(b)));
                directed(by_both).then_with(|| a.cmp(&b))
            });
            sorted.into_iter().map(|(_, index)| index).collect()
        }
        Weights::Elements => {
            arrange((0..elements.len()).collect(), range, is_wanted, |&a: &usize, &b: &usize| {
                let by_text = compare(elements.get(a), elements.get(b), order);
                directed(by_text).then_with(|| last(a, b))
            })
        }
        Weights::Texts { texts, missing } => {
            arrange((0..elements.len()).collect(), range, is_wanted, |&a: &usize, &b: &usize| {
                let by_text = match (missing[a], missing[b]) {
                    (false, false) => compare(texts.get(a), texts.get(b), order),
                    (a_misses, b_misses) => b_misses.cmp(&a_misses),
                };
                directed(by_text).then_with(|| last(a, b))
            })
        }
    }
}

fn compare(a: &[u8], b: &[u8], order: Order) -> Ordering {
    if order.whole_texts {
        return a.cmp(b);
    }
    // Only where both hold a zero byte before they differ does it matter that C strings end there.
    let differ = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    if a[..differ].contains(&0) { Ordering::Equal } else { c_order(&a[differ..], &b[differ..]) }
}

/// The order of two C strings that differ in their first byte, or of which one is empty.
fn c_order(a: &[u8], b: &[u8]) -> Ordering {
    a.first().unwrap_or(&0).cmp(b.first().unwrap_or(&0))
}

/// Those items that come at the places of `range` once all are sorted. No two may be equal.
fn arrange<T: Copy>(
    mut items: Vec<T>,
    range: Range<usize>,
    is_wanted: impl Fn() -> bool,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Vec<T> {
    if range.is_empty() {
        return Vec::new();
    }
    let mut compared = 0_u32;
    let mut compare = |a: &T, b: &T| {
        compared = compared.wrapping_add(1);
        if compared.is_multiple_of(1024) {
            give_way();
        }
        compare(a, b)
    };
    // Only what LIMIT asks for gets sorted; the rest is merely put on its side.
    if range.end < items.len() {
        items.select_nth_unstable_by(range.end - 1, &mut compare);
        items.truncate(range.end);
    }
    if range.start > 0 {
        items.select_nth_unstable_by(range.start, &mut compare);
        items.drain(..range.start);
    }
    sort_in_parts(items, is_wanted, compare)
}

/// Sorts: many items in parts of about [`CHUNK`], so that it can end early. The bounds of the parts
/// come from a sample; that takes as many comparisons as sorting all at once.
fn sort_in_parts<T: Copy>(
    mut items: Vec<T>,
    is_wanted: impl Fn() -> bool,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Vec<T> {
    /// Items of the sample for each part, so that the parts are about equal.
    const SAMPLED: usize = 8;
    if items.len() <= CHUNK {
        items.sort_unstable_by(compare);
        return items;
    }
    let parts = items.len() / CHUNK + 1;
    let step = items.len() / (parts * SAMPLED);
    let mut sample: Vec<T> = items.iter().copied().step_by(step).collect();
    sample.sort_unstable_by(&mut compare);
    let bounds: Vec<T> = sample.into_iter().skip(SAMPLED).step_by(SAMPLED).collect();
    let mut parts: Vec<Vec<T>> = vec![Vec::new(); bounds.len() + 1];
    for chunk in items.chunks(CHUNK) {
        if !is_wanted() {
            break;
        }
        for item in chunk {
            let part = bounds.partition_point(|bound| compare(bound, item) == Ordering::Less);
            parts[part].push(*item);
        }
    }
    items.clear();
    for mut part in parts {
        if !is_wanted() {
            break;
        }
        part.sort_unstable_by(&mut compare);
        items.append(&mut part);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use structs::random::Rng;

    const PLAIN: Order = Order { descending: false, whole_texts: false, keeps_equals: true };

    fn strings(texts: &[&[u8]]) -> Strings {
        let mut strings = Strings::default();
        texts.iter().for_each(|text| strings.push(text));
        strings
    }

    #[test]
    fn texts_compare_as_c_strings_unless_they_are_stored() {
        let less =
            [("", "a"), ("a", "b"), ("a", "aa"), ("a\0z", "aa"), ("Z", "a"), ("a", "\u{e4}")];
        for (a, b) in less {
            assert_eq!(compare(a.as_bytes(), b.as_bytes(), PLAIN), Ordering::Less, "{a:?} {b:?}");
            assert_eq!(compare(b.as_bytes(), a.as_bytes(), PLAIN), Ordering::Greater);
        }
        for (a, b) in [("a", "a"), ("a\0b", "a\0c"), ("a", "a\0"), ("\0", "")] {
            assert_eq!(compare(a.as_bytes(), b.as_bytes(), PLAIN), Ordering::Equal, "{a:?} {b:?}");
        }
        let whole = Order { whole_texts: true, ..PLAIN };
        assert_eq!(compare(b"a\0b", b"a\0c", whole), Ordering::Less);
    }

    /// Whatever part is asked for, it is that part of the whole.
    #[test]
    fn a_part_is_a_part_of_the_whole() {
        let mut rng = Rng::seeded(7);
        for len in [1usize, 2, 5, 40] {
            let texts: Vec<Vec<u8>> =
                (0..len).map(|_| (rng.next_u64() % 9).to_string().into_bytes()).collect();
            let elements = strings(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let scores = texts.iter().map(|text| number(text).expect("a digit")).collect();
            for weights in [Weights::Numbers(scores), Weights::Elements] {
                for descending in [false, true] {
                    let order = Order { descending, ..PLAIN };
                    let whole = sort(&elements, &weights, order, 0..len, || true);
                    for start in 0..=len {
                        for end in start..=len {
                            let part = sort(&elements, &weights, order, start..end, || true);
                            assert_eq!(part, whole[start..end]);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn equals_keep_their_order_in_both_directions() {
        let elements = strings(&[b"c", b"a", b"b", b"d"]);
        let weights = || Weights::Texts {
            texts: strings(&[b"x", b"", b"x", b""]),
            missing: vec![false, true, false, true],
        };
        assert_eq!(sort(&elements, &weights(), PLAIN, 0..4, || true), [1, 3, 0, 2]);
        let order = Order { descending: true, ..PLAIN };
        assert_eq!(sort(&elements, &weights(), order, 0..4, || true), [0, 2, 1, 3]);
        let order = Order { keeps_equals: false, ..order };
        assert_eq!(sort(&elements, &weights(), order, 0..4, || true), [2, 0, 1, 3]);
    }

    #[test]
    fn numbers_end_at_a_zero_byte() {
        assert_eq!(number(b"1\0x"), Ok(1.0));
        assert_eq!(number(b"-inf"), Ok(f64::NEG_INFINITY));
        for text in ["", "\0", "nan", " 1", "1 ", "0x1", "1e400"] {
            assert!(number(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn parts_make_the_whole_and_none_is_sorted_in_vain() {
        let mut rng = Rng::seeded(7);
        let few = |rng: &mut Rng| rng.next_u64() % 5;
        let any = |rng: &mut Rng| rng.next_u64();
        let items: [Vec<(u64, usize)>; 3] = [
            (0..CHUNK * 3).map(|index| (any(&mut rng), index)).collect(),
            (0..CHUNK * 3).map(|index| (few(&mut rng), index)).collect(),
            (0..CHUNK * 3).map(|index| (index as u64, index)).collect(),
        ];
        for items in items {
            let mut sorted = items.clone();
            sorted.sort_unstable();
            assert!(sort_in_parts(items, || true, Ord::cmp) == sorted);
        }
        let comparisons = std::cell::Cell::new(0);
        let compare = |a: &usize, b: &usize| {
            comparisons.set(comparisons.get() + 1);
            a.cmp(b)
        };
        let part =
            sort_in_parts((0..CHUNK * 100).collect(), || comparisons.get() < 50_000, compare);
        assert!(part.len() < CHUNK * 100 && comparisons.get() < CHUNK * 10);
    }
}
