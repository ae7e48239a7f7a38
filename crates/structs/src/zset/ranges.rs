//! The bounds of range commands.

use std::ops::Bound;

/// A range of scores. Infinite bounds are ordinary values: `(+inf` leaves out infinite scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreRange {
    /// The lower bound.
    pub min: Bound<f64>,
    /// The upper bound.
    pub max: Bound<f64>,
}

impl ScoreRange {
    /// Whether `score` lies in the range.
    #[inline]
    pub fn contains(&self, score: f64) -> bool {
        !self.starts_after(score) && self.reaches(score)
    }

    /// Whether `score` is too low.
    #[inline]
    pub(super) fn starts_after(&self, score: f64) -> bool {
        match self.min {
            Bound::Included(min) => score < min,
            Bound::Excluded(min) => score <= min,
            Bound::Unbounded => false,
        }
    }

    /// Whether `score` is not too high.
    #[inline]
    pub(super) fn reaches(&self, score: f64) -> bool {
        match self.max {
            Bound::Included(max) => score <= max,
            Bound::Excluded(max) => score < max,
            Bound::Unbounded => true,
        }
    }
}

/// A bound in the order of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// `-`: below every member.
    Lowest,
    /// `+`: above every member.
    Highest,
    /// `[member`
    Included(&'a [u8]),
    /// `(member`
    Excluded(&'a [u8]),
}

/// A range of members, meant for sorted sets whose scores are all equal. With others the result is
/// some range of ranks, as unspecified as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LexRange<'a> {
    /// The lower bound.
    pub min: LexBound<'a>,
    /// The upper bound.
    pub max: LexBound<'a>,
}

impl LexRange<'_> {
    /// Whether `member` lies in the range.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        !self.starts_after(member) && self.reaches(member)
    }

    /// Whether `member` is too low.
    #[inline]
    pub(super) fn starts_after(&self, member: &[u8]) -> bool {
        match self.min {
            LexBound::Lowest => false,
            LexBound::Highest => true,
            LexBound::Included(min) => member < min,
            LexBound::Excluded(min) => member <= min,
        }
    }

    /// Whether `member` is not too high.
    #[inline]
    pub(super) fn reaches(&self, member: &[u8]) -> bool {
        match self.max {
            LexBound::Lowest => false,
            LexBound::Highest => true,
            LexBound::Included(max) => member <= max,
            LexBound::Excluded(max) => member < max,
        }
    }
}
