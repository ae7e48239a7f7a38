//! Where a row says that the keys of its requests are.

/// Calls back with the word and flags of each key of a request.
pub type FindKeys = fn(&[&[u8]], &mut dyn FnMut(usize, KeyFlags)) -> Result<(), InvalidKeys>;

/// Calls back with the beginnings of the names of keys that a request reads beside those that its
/// words name.
pub type FindPrefixes = fn(&[&[u8]], &mut dyn FnMut(&[u8]));

/// The request does not have the form that its command's keys need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidKeys;

/// What a command does with the keys of one specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyFlags(pub u32);

impl KeyFlags {
    /// Reads the value, its type or its size.
    pub const RO: KeyFlags = KeyFlags(1 << 0);
    /// Changes the value in place.
    pub const RW: KeyFlags = KeyFlags(1 << 1);
    /// Overwrites the value without regard to the old one.
    pub const OW: KeyFlags = KeyFlags(1 << 2);
    /// Removes the key.
    pub const RM: KeyFlags = KeyFlags(1 << 3);
    /// Returns or uses the value's content.
    pub const ACCESS: KeyFlags = KeyFlags(1 << 4);
    /// The new value depends on the old one.
    pub const UPDATE: KeyFlags = KeyFlags(1 << 5);
    /// Adds data.
    pub const INSERT: KeyFlags = KeyFlags(1 << 6);
    /// Deletes data.
    pub const DELETE: KeyFlags = KeyFlags(1 << 7);
    /// Looks like a key but is none (a shard channel, say).
    pub const NOT_KEY: KeyFlags = KeyFlags(1 << 8);
    /// The specification misses some keys.
    pub const INCOMPLETE: KeyFlags = KeyFlags(1 << 9);
    /// The other flags may differ with the arguments.
    pub const VARIABLE: KeyFlags = KeyFlags(1 << 10);
    /// Ours: compares the value before the key is overwritten or removed.
    pub const COMPARES: KeyFlags = KeyFlags(1 << 11);

    /// Both sets.
    pub const fn with(self, other: KeyFlags) -> KeyFlags {
        KeyFlags(self.0 | other.0)
    }
    /// Whether all of `other` is in the set.
    pub const fn has(self, other: KeyFlags) -> bool {
        self.0 & other.0 == other.0
    }
    /// Whether any of `other` is in the set.
    pub const fn any(self, other: KeyFlags) -> bool {
        self.0 & other.0 != 0
    }
}

/// Where some of a command's keys are; the terms are those of COMMAND INFO.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// What happens to these keys.
    pub flags: KeyFlags,
    /// Where the search starts.
    pub begin: Begin,
    /// How the keys follow.
    pub find: Find,
    /// A remark for COMMAND DOCS.
    pub notes: &'static str,
}

/// Where a key specification starts.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// At this word (the command's name is word 0).
    Index(usize),
    /// After this keyword, searched from word `from` (negative: from the end, backwards).
    Keyword(&'static str, i32),
    /// Not expressible.
    Unknown,
}

/// How the keys follow the start.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// From the start to `last` relative to it (negative: from the end of the request), every
    /// `step` words; `limit` 2 means half of the remaining words, 0 and 1 all.
    Range {
        /// The last key, relative to the first.
        last: i32,
        /// Words from one key to the next.
        step: usize,
        /// The share of the remaining words that are keys.
        limit: usize,
    },
    /// The number of keys is the word at `index` after the start, the first key at `first`.
    KeyNum {
        /// The word that states the number, relative to the start.
        index: usize,
        /// The first key, relative to the start.
        first: usize,
        /// Words from one key to the next.
        step: usize,
    },
    /// Not expressible.
    Unknown,
}

impl KeySpec {
    /// A specification without a remark.
    pub const fn new(flags: KeyFlags, begin: Begin, find: Find) -> KeySpec {
        KeySpec { flags, begin, find, notes: "" }
    }
    /// The same, with a remark.
    pub const fn note(self, notes: &'static str) -> KeySpec {
        KeySpec { notes, ..self }
    }
    /// One key, the first argument.
    pub const fn one(flags: KeyFlags) -> KeySpec {
        KeySpec::at(1, flags)
    }
    /// One key at word `index`.
    pub const fn at(index: usize, flags: KeyFlags) -> KeySpec {
        KeySpec::new(flags, Begin::Index(index), Find::Range { last: 0, step: 1, limit: 0 })
    }
    /// All words from `index` to the end, every `step` words.
    pub const fn rest(index: usize, step: usize, flags: KeyFlags) -> KeySpec {
        KeySpec::new(flags, Begin::Index(index), Find::Range { last: -1, step, limit: 0 })
    }
    /// All words from `index` to the one before the last.
    pub const fn all_but_last(index: usize, flags: KeyFlags) -> KeySpec {
        KeySpec::new(flags, Begin::Index(index), Find::Range { last: -2, step: 1, limit: 0 })
    }
    /// `numkeys key [key …]`, with `numkeys` at word `index`.
    pub const fn counted(index: usize, flags: KeyFlags) -> KeySpec {
        KeySpec::new(flags, Begin::Index(index), Find::KeyNum { index: 0, first: 1, step: 1 })
    }
}
