//! Writing a file, in parts that any number of threads can encode: everything here appends to the
//! encoder's buffer, and the owner of the file puts the parts together and keeps the checksum
//! (`structs::crc64`).

use super::opcode;
use crate::{Encoder, Kind, ObjectRef, VALKEY_VERSION, VERSION};

/// What is known about a key's last use; written only where `maxmemory-policy` needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    #[default]
    Unknown,
    /// Seconds since the last access (LRU policies).
    IdleSeconds(u64),
    /// The logarithmic access counter (LFU policies).
    Frequency(u8),
}

/// What stands in front of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Milliseconds since the epoch of Unix.
    pub expiry_ms: Option<i64>,
    /// Its last use.
    pub access: Access,
}

impl Encoder {
    /// The first bytes of a file.
    pub fn file_header(&mut self) {
        self.file_header_of(VERSION);
    }

    /// The same for readers of this version at most.
    pub fn file_header_of(&mut self, version: u16) {
        let header = if version >= VALKEY_VERSION {
            format!("VALKEY{version:03}")
        } else {
            format!("REDIS{version:04}")
        };
        self.raw(header.as_bytes());
    }

    /// A field of metadata.
    pub fn aux(&mut self, name: &str, value: &[u8]) {
        self.byte(opcode::AUX);
        self.string(name.as_bytes());
        self.string(value);
    }

    /// A field of metadata that is a number.
    pub fn aux_integer(&mut self, name: &str, value: i64) {
        self.byte(opcode::AUX);
        self.string(name.as_bytes());
        self.integer(value);
    }

    /// A library of functions, by its source. Readers know it from version 10 on
    /// ([`FUNCTIONS_SINCE`](super::FUNCTIONS_SINCE)).
    pub fn function(&mut self, source: &[u8]) {
        self.byte(opcode::FUNCTION2);
        self.string(source);
    }

    /// What follows is in this database.
    pub fn select_db(&mut self, db: u32) {
        self.byte(opcode::SELECT_DB);
        self.length(u64::from(db));
    }

    /// How many keys the database has, and how many of them expire: a hint by which a loader makes
    /// room. It need not be exact.
    pub fn resize_db(&mut self, keys: u64, expiring: u64) {
        self.byte(opcode::RESIZE_DB);
        self.length(keys);
        self.length(expiring);
    }

    /// A key with its value.
    pub fn record(&mut self, head: &RecordHead<'_>, object: ObjectRef<'_>) {
        self.record_head(head, object.kind());
        self.value(object);
    }

    /// A key without its value, which the caller writes behind it, if need be in pieces: for a set,
    /// hash or sorted set [`Encoder::length`] and the elements by [`Encoder::string`] and
    /// [`Encoder::binary_double`] ([`Kind::Set`], [`Kind::Hash`], [`Kind::Zset2`]); for a list
    /// ([`Kind::ListQuicklist2`]) the number of chunks and [`Encoder::list_chunk`] for each.
    pub fn record_head(&mut self, head: &RecordHead<'_>, kind: Kind) {
        if let Some(expiry_ms) = head.expiry_ms {
            self.byte(opcode::EXPIRE_TIME_MS);
            self.raw(&expiry_ms.to_le_bytes());
        }
        match head.access {
            Access::Unknown => {}
            Access::IdleSeconds(seconds) => {
                self.byte(opcode::IDLE);
                self.length(seconds);
            }
            Access::Frequency(counter) => {
                self.byte(opcode::FREQ);
                self.byte(counter);
            }
        }
        self.kind(kind);
        self.string(head.key);
    }

    /// The mark of the end. Behind it comes [`Encoder::checksum`].
    pub fn end_of_file(&mut self) {
        self.byte(opcode::EOF);
    }

    /// The checksum of everything before it, the mark of the end included; 0 says there is none
    /// (`rdbchecksum no`).
    pub fn checksum(&mut self, checksum: u64) {
        self.raw(&checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compression;

    fn written(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut encoder = Encoder::new(Compression::Lzf);
        write(&mut encoder);
        encoder.into_bytes()
    }

    #[test]
    fn parts_have_the_bytes_of_the_format() {
        assert_eq!(written(Encoder::file_header), b"REDIS0011");
        assert_eq!(written(|e| e.aux("redis-bits", b"64")), b"\xfa\x0aredis-bits\xc0\x40");
        assert_eq!(written(|e| e.aux_integer("ctime", 1 << 40)), b"\xfa\x05ctime\x0d1099511627776");
        assert_eq!(written(|e| e.function(b"#!lua")), b"\xf5\x05#!lua");
        assert_eq!(written(|e| e.select_db(9)), b"\xfe\x09");
        assert_eq!(written(|e| e.resize_db(100, 2)), b"\xfb\x40\x64\x02");
        assert_eq!(written(Encoder::end_of_file), b"\xff");
        assert_eq!(written(|e| e.checksum(0x0102)), b"\x02\x01\0\0\0\0\0\0");
    }

    #[test]
    fn a_record_has_expiry_access_type_key_and_value_in_this_order() {
        let head = RecordHead { key: b"k", expiry_ms: None, access: Access::Unknown };
        assert_eq!(written(|e| e.record(&head, ObjectRef::Int(7))), b"\0\x01k\xc0\x07");
        let head = RecordHead { expiry_ms: Some(258), access: Access::IdleSeconds(70), ..head };
        assert_eq!(
            written(|e| e.record(&head, ObjectRef::String(b"v"))),
            b"\xfc\x02\x01\0\0\0\0\0\0\xf8\x40\x46\0\x01k\x01v"
        );
        let head = RecordHead { expiry_ms: None, access: Access::Frequency(255), ..head };
        assert_eq!(written(|e| e.record_head(&head, Kind::Hash)), b"\xf9\xff\x04\x01k");
    }
}
