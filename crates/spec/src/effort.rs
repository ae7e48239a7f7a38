//! What the running time of a command's requests depends on. The engine works it out.

/// What a command's effort depends on.
#[derive(Clone, Copy)]
pub enum Effort<E> {
    /// On nothing: it is always small.
    Small,
    /// On the elements of all its keys' values; so much for each.
    Elements(usize),
    /// On the smallest of its keys' values, for each of which something is done with every key.
    Intersection(usize),
    /// On the part of its only key's value that the request names; so much for each element. The
    /// function, which finds out how many that are, is asked only if the value is big.
    Part(usize, E),
    /// On the number of its words; so much for each.
    Words(usize),
    /// On what the function finds out.
    Estimate(E),
}

impl<E> Effort<E> {
    /// The same without what estimates it.
    pub(crate) fn described(&self) -> Effort<()> {
        match *self {
            Effort::Small => Effort::Small,
            Effort::Elements(each) => Effort::Elements(each),
            Effort::Intersection(each) => Effort::Intersection(each),
            Effort::Part(each, _) => Effort::Part(each, ()),
            Effort::Words(each) => Effort::Words(each),
            Effort::Estimate(_) => Effort::Estimate(()),
        }
    }
}

impl<E> std::fmt::Debug for Effort<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Effort::Small => f.write_str("Small"),
            Effort::Elements(each) => write!(f, "Elements({each})"),
            Effort::Intersection(each) => write!(f, "Intersection({each})"),
            Effort::Part(each, _) => write!(f, "Part({each})"),
            Effort::Words(each) => write!(f, "Words({each})"),
            Effort::Estimate(_) => f.write_str("Estimate"),
        }
    }
}
