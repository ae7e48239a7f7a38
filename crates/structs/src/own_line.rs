//! A value that has its cache lines to itself.
//!
//! What one core writes and another reads moves from cache to cache, and with it all that lies on
//! the same line. This keeps a value that is written often, or read by all, apart from its
//! neighbours. It takes two lines of 64 bytes, since processors fetch them in pairs.

use std::ops::{Deref, DerefMut};

/// The value.
#[repr(align(128))]
#[derive(Default, Debug)]
pub struct OwnLine<T>(T);

const _: () = assert!(size_of::<OwnLine<u64>>() == 128, "it shares no line with a neighbour");

impl<T> OwnLine<T> {
    /// Gives a value lines of its own.
    pub const fn new(value: T) -> OwnLine<T> {
        OwnLine(value)
    }
}

impl<T> Deref for OwnLine<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for OwnLine<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_have_different_lines() {
        let mut values = [OwnLine::new(1u8), OwnLine::new(2)];
        let distance = (&raw const values[1]).addr() - (&raw const values[0]).addr();
        assert_eq!(distance, 128);
        *values[1] += *values[0];
        assert_eq!(*values[1], 3);
    }
}
