//! The numbers of value types.

/// How a value is encoded; the byte in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A string.
    String = 0,
    /// Elements one by one.
    List = 1,
    /// Members one by one.
    Set = 2,
    /// Members with scores in text.
    Zset = 3,
    /// Fields with values.
    Hash = 4,
    /// Members with binary scores.
    Zset2 = 5,
    /// A value of a type that Redis has in a module.
    Module = 7,
    /// The hash encoding before Redis 2.6.
    HashZipmap = 9,
    /// A ziplist of elements.
    ListZiplist = 10,
    /// An intset.
    SetIntset = 11,
    /// A ziplist of members and scores.
    ZsetZiplist = 12,
    /// A ziplist of fields and values.
    HashZiplist = 13,
    /// Several ziplists of elements.
    ListQuicklist = 14,
    /// A stream without what Redis 7 added.
    StreamListpacks = 15,
    /// A listpack of fields and values.
    HashListpack = 16,
    /// A listpack of members and scores.
    ZsetListpack = 17,
    /// Several listpacks of elements, or large elements alone.
    ListQuicklist2 = 18,
    /// A stream with what Redis 7.0 added.
    StreamListpacks2 = 19,
    /// A listpack of members.
    SetListpack = 20,
    /// A stream with what Redis 7.2 added.
    StreamListpacks3 = 21,
    /// Fields with values and expiries, as Valkey 9 has them. Redis used the number, and the next,
    /// for something else before it released anything.
    TimedHash = 22,
    /// The earliest expiry, and fields with values and expiries after that (Redis 7.4).
    RedisTimedHash = 24,
    /// The earliest expiry and a listpack of fields, values and expiries (Redis 7.4).
    RedisTimedListpack = 25,
}

/// The first number whose meaning depends on whose file or payload it is in.
const FIRST_DIVERGED: u8 = 22;

impl Kind {
    /// The type with this number, if it is supported.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::String,
            1 => Self::List,
            2 => Self::Set,
            3 => Self::Zset,
            4 => Self::Hash,
            5 => Self::Zset2,
            7 => Self::Module,
            9 => Self::HashZipmap,
            10 => Self::ListZiplist,
            11 => Self::SetIntset,
            12 => Self::ZsetZiplist,
            13 => Self::HashZiplist,
            14 => Self::ListQuicklist,
            15 => Self::StreamListpacks,
            16 => Self::HashListpack,
            17 => Self::ZsetListpack,
            18 => Self::ListQuicklist2,
            19 => Self::StreamListpacks2,
            20 => Self::SetListpack,
            21 => Self::StreamListpacks3,
            22 => Self::TimedHash,
            24 => Self::RedisTimedHash,
            25 => Self::RedisTimedListpack,
            _ => return None,
        })
    }
    /// The same in a file or payload of Valkey's or Redis's, which have numbers of their own.
    pub fn in_dialect(byte: u8, is_valkey: bool) -> Option<Self> {
        let is_fine = byte < FIRST_DIVERGED || is_valkey == (byte == Self::TimedHash as u8);
        Self::from_byte(byte).filter(|_| is_fine)
    }
}
