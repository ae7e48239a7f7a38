//! What a row of the option table says, and the constructors that keep a row to a line or two.

use crate::choices::{Choice, ShutdownOptions};

/// Whether setting an option changes anything in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The option does what its documentation says.
    Live,
    /// Accepted, reported and rewritten, but nothing reads it yet.
    NotYet,
}

/// The type of an option: how its words are read and its value is written.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A decimal number between two bounds, both included.
    Int {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
    /// An octal number between two bounds, both included.
    Octal {
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
    /// A size in bytes; see [`crate::parse_memory`].
    Memory {
        /// The least value; if negative, values below zero are given as plain numbers.
        min: i64,
        /// The greatest value.
        max: u64,
    },
    /// A size in bytes or a percentage of `maxmemory`.
    MemoryOrPercent,
    /// One of a few words.
    Enum(&'static [Choice]),
    /// Any of the words that select what a signal does.
    Shutdown,
    /// Any string the check lets pass.
    Text {
        /// Refuses what cannot be meant, with the reason for the user.
        check: Check,
        /// An empty string means that the option is not set, and `CONFIG REWRITE` leaves it out.
        nullable: bool,
    },
    /// The working directory.
    Directory,
    /// The letters of `notify-keyspace-events`.
    Events,
    /// The points of `save`: pairs of seconds and changes.
    Save,
    /// The groups of `client-output-buffer-limit`: class, hard limit, soft limit, seconds.
    OutputLimits,
    /// The three scores of `oom-score-adj-values`.
    OomScores,
    /// The percentiles of `latency-tracking-info-percentiles`.
    Percentiles,
    /// Addresses to listen on.
    Addresses,
    /// The host and port of a primary, or `no one`.
    ReplicaOf,
}

/// A check of a text option: the reason why a value is refused.
pub type Check = fn(&[u8]) -> Result<(), &'static str>;

/// One option of the configuration: a row of [`crate::OPTIONS`].
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) effect: Effect,
    pub(crate) flags: u8,
    pub(crate) frozen: Option<&'static str>,
}

const IMMUTABLE: u8 = 1;
const PROTECTED: u8 = 2;
const SENSITIVE: u8 = 4;
const HIDDEN: u8 = 8;
const VOLATILE: u8 = 16;
const NOT_WHILE_LOADING: u8 = 32;

impl Spec {
    /// The name under which the option is documented.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Older names of the same option.
    pub fn aliases(&self) -> &'static [&'static str] {
        self.aliases
    }

    /// The type of the value.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The default, as it would be written in `redis.conf`.
    pub fn default(&self) -> &'static str {
        self.default
    }

    /// What the option is for, in one line.
    pub fn doc(&self) -> &'static str {
        self.doc
    }

    /// Whether the option does anything yet.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Whether only a restart can change the option.
    pub fn is_immutable(&self) -> bool {
        self.flags & IMMUTABLE != 0
    }

    /// Whether `enable-protected-configs` must allow `CONFIG SET` first.
    pub fn is_protected(&self) -> bool {
        self.flags & PROTECTED != 0
    }

    /// Whether the value is a secret, which no log and no reply may show.
    pub fn is_sensitive(&self) -> bool {
        self.flags & SENSITIVE != 0
    }

    /// Whether `CONFIG GET` reports the option only when it is asked for by its full name.
    pub fn is_hidden(&self) -> bool {
        self.flags & HIDDEN != 0
    }

    /// Whether `CONFIG SET` applies the option even to the value it has (a file may have changed).
    pub fn is_volatile(&self) -> bool {
        self.flags & VOLATILE != 0
    }

    /// Whether `CONFIG SET` is refused while the data set is being loaded.
    pub fn is_denied_while_loading(&self) -> bool {
        self.flags & NOT_WHILE_LOADING != 0
    }

    /// Whether the value is a list of words rather than one.
    pub fn takes_many_words(&self) -> bool {
        matches!(
            self.kind,
            Kind::Shutdown
                | Kind::Save
                | Kind::OutputLimits
                | Kind::OomScores
                | Kind::Percentiles
                | Kind::Addresses
                | Kind::ReplicaOf
        )
    }

    pub(crate) fn answers_to(&self, name: &[u8]) -> bool {
        self.names().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    pub(crate) const fn alias(mut self, aliases: &'static [&'static str]) -> Spec {
        self.aliases = aliases;
        self
    }

    pub(crate) const fn immutable(self) -> Spec {
        self.with(IMMUTABLE)
    }

    pub(crate) const fn protected(self) -> Spec {
        self.with(PROTECTED)
    }

    pub(crate) const fn sensitive(self) -> Spec {
        self.with(SENSITIVE)
    }

    pub(crate) const fn hidden(self) -> Spec {
        self.with(HIDDEN)
    }

    pub(crate) const fn volatile(self) -> Spec {
        self.with(VOLATILE)
    }

    pub(crate) const fn not_while_loading(self) -> Spec {
        self.with(NOT_WHILE_LOADING)
    }

    pub(crate) const fn not_yet(mut self) -> Spec {
        self.effect = Effect::NotYet;
        self
    }

    /// `CONFIG SET` to another value fails with this reason.
    pub(crate) const fn frozen(mut self, reason: &'static str) -> Spec {
        self.frozen = Some(reason);
        self
    }

    pub(crate) const fn checked(mut self, check: Check) -> Spec {
        self.kind = match self.kind {
            Kind::Text { nullable, .. } => Kind::Text { check, nullable },
            _ => panic!("only a text option has a check"),
        };
        self
    }

    const fn with(mut self, flag: u8) -> Spec {
        self.flags |= flag;
        self
    }
}

/// An option of any kind.
pub(crate) const fn special(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Spec {
    Spec { name, aliases: &[], kind, default, doc, effect: Effect::Live, flags: 0, frozen: None }
}

/// A `yes` or `no` option.
pub(crate) const fn flag(name: &'static str, default: &'static str, doc: &'static str) -> Spec {
    special(name, Kind::Bool, default, doc)
}

/// A number with bounds.
pub(crate) const fn int(
    name: &'static str,
    (min, max): (i64, i64),
    default: &'static str,
    doc: &'static str,
) -> Spec {
    special(name, Kind::Int { min, max }, default, doc)
}

/// A size in bytes with bounds.
pub(crate) const fn memory(
    name: &'static str,
    (min, max): (i64, u64),
    default: &'static str,
    doc: &'static str,
) -> Spec {
    special(name, Kind::Memory { min, max }, default, doc)
}

/// One of a few words.
pub(crate) const fn choice(
    name: &'static str,
    choices: &'static [Choice],
    default: &'static str,
    doc: &'static str,
) -> Spec {
    special(name, Kind::Enum(choices), default, doc)
}

/// A string that always has a value, be it an empty one.
pub(crate) const fn text(name: &'static str, default: &'static str, doc: &'static str) -> Spec {
    special(name, Kind::Text { check: accept, nullable: false }, default, doc)
}

/// A string that is not set unless someone sets it.
pub(crate) const fn optional(name: &'static str, doc: &'static str) -> Spec {
    special(name, Kind::Text { check: accept, nullable: true }, "", doc)
}

/// What a signal that stops the server does.
pub(crate) const fn on_signal(name: &'static str, doc: &'static str) -> Spec {
    special(name, Kind::Shutdown, ShutdownOptions::CHOICES[0].0, doc)
}

fn accept(_: &[u8]) -> Result<(), &'static str> {
    Ok(())
}

/// The ranges that many numbers share.
pub(crate) mod range {
    pub(crate) const PORT: (i64, i64) = (0, 65535);
    pub(crate) const COUNT: (i64, i64) = (0, i32::MAX as i64);
    pub(crate) const POSITIVE: (i64, i64) = (1, i32::MAX as i64);
    pub(crate) const LEASE: (i64, i64) = (1, 60);
    pub(crate) const ANY_INT: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);
    pub(crate) const LONG: (i64, i64) = (0, i64::MAX);
    pub(crate) const ANY_SIZE: (i64, u64) = (0, u64::MAX);
    pub(crate) const SIZE: (i64, u64) = (0, i64::MAX as u64);
}
