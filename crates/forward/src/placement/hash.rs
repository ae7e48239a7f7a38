//! Twemproxy's twelve hash functions. They take bytes as C's signed `char` where Twemproxy does, so
//! that keys with bytes above 127 land where they did.

use md5::{Digest, Md5};
use structs::crc16;
use structs::murmur::murmur2;

/// A hash function, by Twemproxy's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the functions of the same names")]
pub enum Hash {
    OneAtATime,
    Md5,
    Crc16,
    Crc32,
    Crc32a,
    Fnv1_64,
    #[default]
    Fnv1a64,
    Fnv1_32,
    Fnv1a32,
    Hsieh,
    Murmur,
    Jenkins,
}

/// The functions and what a configuration calls them.
pub static NAMES: &[(&str, Hash)] = &[
    ("one_at_a_time", Hash::OneAtATime),
    ("md5", Hash::Md5),
    ("crc16", Hash::Crc16),
    ("crc32", Hash::Crc32),
    ("crc32a", Hash::Crc32a),
    ("fnv1_64", Hash::Fnv1_64),
    ("fnv1a_64", Hash::Fnv1a64),
    ("fnv1_32", Hash::Fnv1_32),
    ("fnv1a_32", Hash::Fnv1a32),
    ("hsieh", Hash::Hsieh),
    ("murmur", Hash::Murmur),
    ("jenkins", Hash::Jenkins),
];

impl Hash {
    /// The function of this name.
    pub fn named(name: &str) -> Option<Hash> {
        NAMES.iter().find(|line| line.0 == name).map(|line| line.1)
    }

    /// The hash of a key.
    pub fn of(self, key: &[u8]) -> u32 {
        match self {
            Hash::OneAtATime => one_at_a_time(key),
            Hash::Md5 => {
                let [a, b, c, d, ..] = md5(key);
                u32::from_le_bytes([a, b, c, d])
            }
            Hash::Crc16 => unmasked_crc16(key),
            // As libmemcached shortens it.
            Hash::Crc32 => (crc32(key) >> 16) & 0x7fff,
            Hash::Crc32a => crc32(key),
            Hash::Fnv1_64 => {
                let init = 0xcbf2_9ce4_8422_2325u64;
                let step = |hash: u64, byte: &u8| {
                    hash.wrapping_mul(0x0100_0000_01b3) ^ (*byte as i8 as u64)
                };
                key.iter().fold(init, step) as u32
            }
            // The 64-bit constants, cut to 32 bits.
            Hash::Fnv1a64 => fnv1a(key, 0x8422_2325, 0x01b3),
            Hash::Fnv1_32 => {
                let step = |hash: u32, byte: &u8| hash.wrapping_mul(FNV_32_PRIME) ^ signed(*byte);
                key.iter().fold(FNV_32_INIT, step)
            }
            Hash::Fnv1a32 => fnv1a(key, FNV_32_INIT, FNV_32_PRIME),
            Hash::Hsieh => hsieh(key),
            Hash::Murmur => murmur(key),
            Hash::Jenkins => jenkins(key),
        }
    }
}

const FNV_32_INIT: u32 = 0x811c_9dc5;
const FNV_32_PRIME: u32 = 0x0100_0193;

/// A byte as C's `char` becomes an unsigned number on the machines that Twemproxy runs on.
fn signed(byte: u8) -> u32 {
    byte as i8 as u32
}

/// The MD5 digest.
pub fn md5(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

fn fnv1a(key: &[u8], init: u32, prime: u32) -> u32 {
    key.iter().fold(init, |hash, byte| (hash ^ signed(*byte)).wrapping_mul(prime))
}

fn one_at_a_time(key: &[u8]) -> u32 {
    let mut hash = 0u32;
    for byte in key {
        hash = hash.wrapping_add(signed(*byte));
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// The bits that a CRC of 16 bits would lose stay, as in Twemproxy.
fn unmasked_crc16(key: &[u8]) -> u32 {
    let table = |index: u32| u32::from(crc16::crc16(&[index as u8]));
    key.iter().fold(0u32, |crc, byte| (crc << 8) ^ table(((crc >> 8) ^ u32::from(*byte)) & 0xff))
}

fn crc32(key: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in key {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Paul Hsieh's SuperFastHash, beginning with 0.
fn hsieh(key: &[u8]) -> u32 {
    let half = |pair: &[u8]| u32::from(u16::from_le_bytes([pair[0], pair[1]]));
    let mut hash = 0u32;
    let blocks = key.chunks_exact(4);
    let rest = blocks.remainder();
    for block in blocks {
        hash = hash.wrapping_add(half(block));
        let mixed = (half(&block[2..]) << 11) ^ hash;
        hash = (hash << 16) ^ mixed;
        hash = hash.wrapping_add(hash >> 11);
    }
    match *rest {
        [a, b, c] => {
            hash = hash.wrapping_add(half(&[a, b]));
            hash ^= hash << 16;
            hash ^= signed(c) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [a, b] => {
            hash = hash.wrapping_add(half(&[a, b]));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [a] => {
            hash = hash.wrapping_add(u32::from(a));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}

/// MurmurHash2, seeded with the length.
fn murmur(key: &[u8]) -> u32 {
    murmur2(key, 0xdead_beefu32.wrapping_mul(key.len() as u32))
}

/// Bob Jenkins' lookup3, little-endian, with the initial value 13.
fn jenkins(key: &[u8]) -> u32 {
    let init = 0xdead_beefu32.wrapping_add(key.len() as u32).wrapping_add(13);
    let [mut a, mut b, mut c] = [init; 3];
    let word = |bytes: &[u8]| {
        bytes.iter().take(4).rev().fold(0u32, |word, byte| (word << 8) | u32::from(*byte))
    };
    let mut rest = key;
    while rest.len() > 12 {
        a = a.wrapping_add(word(rest));
        b = b.wrapping_add(word(&rest[4..]));
        c = c.wrapping_add(word(&rest[8..]));
        for (turn, from) in [(4, 2), (6, 0), (8, 1), (16, 2), (19, 0), (4, 1)] {
            // Each step takes one word out of another and mixes it with the third.
            let (x, y, z) = match from {
                2 => (&mut a, &mut c, &mut b),
                0 => (&mut b, &mut a, &mut c),
                _ => (&mut c, &mut b, &mut a),
            };
            *x = x.wrapping_sub(*y) ^ y.rotate_left(turn);
            *y = y.wrapping_add(*z);
        }
        rest = &rest[12..];
    }
    if rest.is_empty() {
        return c;
    }
    a = a.wrapping_add(word(rest));
    b = b.wrapping_add(word(rest.get(4..).unwrap_or_default()));
    c = c.wrapping_add(word(rest.get(8..).unwrap_or_default()));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}
