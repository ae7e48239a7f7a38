//! One iterator out of four, for types with that many encodings.

/// An iterator that is one of four kinds.
pub(crate) enum Either<A, B, C, D = std::iter::Empty<<A as Iterator>::Item>>
where
    A: Iterator,
{
    First(A),
    Second(B),
    Third(C),
    Fourth(D),
}

impl<T, A, B, C, D> Iterator for Either<A, B, C, D>
where
    A: Iterator<Item = T>,
    B: Iterator<Item = T>,
    C: Iterator<Item = T>,
    D: Iterator<Item = T>,
{
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match self {
            Self::First(iter) => iter.next(),
            Self::Second(iter) => iter.next(),
            Self::Third(iter) => iter.next(),
            Self::Fourth(iter) => iter.next(),
        }
    }

    // The kind is looked at once, not at every element.
    #[inline]
    fn fold<R, F: FnMut(R, T) -> R>(self, init: R, f: F) -> R {
        match self {
            Self::First(iter) => iter.fold(init, f),
            Self::Second(iter) => iter.fold(init, f),
            Self::Third(iter) => iter.fold(init, f),
            Self::Fourth(iter) => iter.fold(init, f),
        }
    }
}
