//! The letters of `notify-keyspace-events`.

/// Which keyspace events are published, one bit a class. The first 15 bits are Redis's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeyspaceEvents(u32);

/// The letters of the classes, in the order in which `CONFIG GET` reports them.
const CLASSES: [(u8, KeyspaceEvents); 18] = [
    (b'g', KeyspaceEvents::GENERIC),
    (b'$', KeyspaceEvents::STRING),
    (b'l', KeyspaceEvents::LIST),
    (b's', KeyspaceEvents::SET),
    (b'h', KeyspaceEvents::HASH),
    (b'z', KeyspaceEvents::ZSET),
    (b'x', KeyspaceEvents::EXPIRED),
    (b'e', KeyspaceEvents::EVICTED),
    (b't', KeyspaceEvents::STREAM),
    (b'd', KeyspaceEvents::MODULE),
    (b'n', KeyspaceEvents::NEW),
    (b'K', KeyspaceEvents::KEYSPACE),
    (b'E', KeyspaceEvents::KEYEVENT),
    (b'm', KeyspaceEvents::KEY_MISS),
    (b'S', KeyspaceEvents::SUBKEYSPACE),
    (b'T', KeyspaceEvents::SUBKEYEVENT),
    (b'I', KeyspaceEvents::SUBKEYSPACE_ITEM),
    (b'V', KeyspaceEvents::SUBKEYSPACE_EVENT),
];

impl KeyspaceEvents {
    /// `K`: publish on `__keyspace@<db>__:<key>`.
    pub const KEYSPACE: Self = Self(1 << 0);
    /// `E`: publish on `__keyevent@<db>__:<event>`.
    pub const KEYEVENT: Self = Self(1 << 1);
    /// `g`: commands of every type, such as DEL and EXPIRE.
    pub const GENERIC: Self = Self(1 << 2);
    /// `$`: string commands.
    pub const STRING: Self = Self(1 << 3);
    /// `l`: list commands.
    pub const LIST: Self = Self(1 << 4);
    /// `s`: set commands.
    pub const SET: Self = Self(1 << 5);
    /// `h`: hash commands.
    pub const HASH: Self = Self(1 << 6);
    /// `z`: sorted set commands.
    pub const ZSET: Self = Self(1 << 7);
    /// `x`: a key expired.
    pub const EXPIRED: Self = Self(1 << 8);
    /// `e`: a key was evicted.
    pub const EVICTED: Self = Self(1 << 9);
    /// `t`: stream commands.
    pub const STREAM: Self = Self(1 << 10);
    /// `m`: a key that was asked for is not there; not part of `A`.
    pub const KEY_MISS: Self = Self(1 << 11);
    /// `d`: events of module types.
    pub const MODULE: Self = Self(1 << 13);
    /// `n`: a key came into being; not part of `A`.
    pub const NEW: Self = Self(1 << 14);
    /// `S`: publish fields on `__subkeyspace@<db>__:<key>`.
    pub const SUBKEYSPACE: Self = Self(1 << 16);
    /// `T`: publish keys and fields on `__subkeyevent@<db>__:<event>`.
    pub const SUBKEYEVENT: Self = Self(1 << 17);
    /// `I`: publish events on `__subkeyspaceitem@<db>__:<key>\n<field>`.
    pub const SUBKEYSPACE_ITEM: Self = Self(1 << 18);
    /// `V`: publish fields on `__subkeyspaceevent@<db>__:<event>|<key>`.
    pub const SUBKEYSPACE_EVENT: Self = Self(1 << 19);
    /// `A`: what the letters `g$lshzxetd` stand for together.
    pub const ALL: Self = Self(0b10_0111_1111_1100);

    /// Reads the letters; `None` if one is unknown.
    pub fn parse(letters: &[u8]) -> Option<Self> {
        letters.iter().try_fold(Self::default(), |flags, letter| {
            let class = match letter {
                b'A' => Self::ALL,
                letter => CLASSES.iter().find(|(name, _)| name == letter)?.1,
            };
            Some(Self(flags.0 | class.0))
        })
    }

    /// The letters, `A` standing for all it covers.
    ///
    /// As in Valkey `n` is lost beside `A`; the event class stays enabled.
    pub fn letters(self) -> String {
        let all = self.contains(Self::ALL);
        let mut letters = String::new();
        if all {
            letters.push('A');
        }
        for (letter, class) in CLASSES {
            let covered = all && (Self::ALL.contains(class) || class == Self::NEW);
            if self.contains(class) && !covered {
                letters.push(char::from(letter));
            }
        }
        letters
    }

    /// Whether every class of `other` is enabled.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether one of the letters `STIV` is set. They need no letter of a class beside them.
    pub fn publishes_fields(self) -> bool {
        let all = Self::SUBKEYSPACE.0 | Self::SUBKEYEVENT.0;
        self.0 & (all | Self::SUBKEYSPACE_ITEM.0 | Self::SUBKEYSPACE_EVENT.0) != 0
    }

    /// Whether anything at all is to be published.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn from_number(number: u64) -> Self {
        Self(number as u32)
    }

    pub(crate) fn number(self) -> u64 {
        u64::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_valkeys() {
        for (given, reported) in [
            ("", ""),
            ("gx", "gx"),
            ("KEA", "AKE"),
            ("AnKEm", "AKEm"),
            ("Am", "Am"),
            ("En", "nE"),
            ("g$lshzxetd", "A"),
            ("g$lshzxetdnKEm", "AKEm"),
            ("VITSKEA", "AKESTIV"),
        ] {
            let flags = KeyspaceEvents::parse(given.as_bytes()).expect(given);
            assert_eq!(flags.letters(), reported, "{given}");
        }
        assert_eq!(KeyspaceEvents::parse(b"q"), None);
        assert!(KeyspaceEvents::parse(b"An").unwrap().contains(KeyspaceEvents::NEW));
    }
}
