//! The small encoding: members and scores in turn in a listpack, in order. Everything is O(n).
//!
//! A score is an integer where [`f64_as_integer`] says so, else the text [`format_f64`] prints: the
//! bytes are Redis's, and so is that negative zero becomes zero here.

use crate::listpack::{Element, Listpack, Needle, Run};
use crate::numbers::{F64_MAX_LEN, INT_MAX_LEN, f64_as_integer, format_f64, format_i64, parse_f64};

/// The score an element stands for; `None` if it is not a number, which only foreign bytes can be.
#[inline]
pub(super) fn parse_score(element: Element<'_>) -> Option<f64> {
    match element {
        Element::Int(value) => Some(value as f64),
        Element::Bytes(text) => parse_f64(text),
    }
}

#[inline]
fn score_of(element: Element<'_>) -> f64 {
    parse_score(element).expect("scores are checked when a listpack is taken")
}

/// Members with scores, from both ends.
#[inline]
pub(super) fn pairs(run: Run<'_>) -> impl DoubleEndedIterator<Item = (Element<'_>, f64)> + Clone {
    run.pairs().map(|(member, score)| (member, score_of(score)))
}

#[inline]
pub(super) fn score(run: Run<'_>, member: &[u8]) -> Option<f64> {
    run.find_value(member).map(score_of)
}

pub(super) fn rank(run: Run<'_>, member: &[u8]) -> Option<(usize, f64)> {
    let needle = Needle::new(member);
    let (rank, (_, score)) =
        run.pairs().enumerate().find(|(_, (other, _))| needle.matches(*other))?;
    Some((rank, score_of(score)))
}

/// Number of members for which `before` holds, as far as it holds without a gap.
pub(super) fn count_while(run: Run<'_>, mut before: impl FnMut(Element<'_>, f64) -> bool) -> usize {
    pairs(run).take_while(|(member, score)| before(*member, *score)).count()
}

/// Inserts a member that is not there in its place.
pub(super) fn insert(listpack: &mut Listpack, member: &[u8], score: f64) {
    // A member that comes last is common, and the search from the back finds that at once.
    let behind = pairs(listpack.run())
        .rev()
        .take_while(|(other, other_score)| {
            *other_score > score
                || (*other_score == score && other.with_bytes(|other| other > member))
        })
        .count();
    let mut cursor = match behind {
        0 => listpack.cursor_end_mut(),
        behind => listpack
            .cursor_at_mut(-2 * behind as i64)
            .expect("as many elements have just been seen"),
    };
    cursor.insert_before(member);
    match f64_as_integer(score) {
        Some(int) => cursor.insert_before(format_i64(&mut [0; INT_MAX_LEN], int)),
        None => cursor.insert_before(format_f64(&mut [0; F64_MAX_LEN], score)),
    }
}

/// Removes a member with its score.
pub(super) fn remove(listpack: &mut Listpack, member: &[u8]) {
    if let Some(mut cursor) = listpack.find_mut(member, 2) {
        cursor.delete(2);
    }
}
