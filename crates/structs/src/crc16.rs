//! CRC-16/XMODEM and the cluster's key-to-slot rule.

/// Hash slots in a cluster.
pub const SLOTS: u16 = 16384;

/// `TABLES[n][byte]`: the checksum of this byte with `n` bytes of zero behind it.
static TABLES: [[u16; 256]; 4] = {
    let mut tables = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 32 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
            if bit % 8 == 0 {
                tables[bit / 8 - 1][byte] = crc;
            }
        }
        byte += 1;
    }
    tables
};

/// The checksum of `data` (polynomial 0x1021, start 0, nothing reflected).
///
/// Every request of a cluster's node asks for it. Four bytes at a time, because one byte at a time
/// waits for the table four times ("slicing").
#[inline]
pub fn crc16(data: &[u8]) -> u16 {
    let (fours, rest) = data.as_chunks::<4>();
    let crc = fours.iter().fold(0u16, |crc, &[a, b, c, d]| {
        let [high, low] = crc.to_be_bytes();
        let at = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
        at(3, a ^ high) ^ at(2, b ^ low) ^ at(1, c) ^ at(0, d)
    });
    rest.iter().fold(crc, |crc, &byte| crc << 8 ^ TABLES[0][usize::from((crc >> 8) as u8 ^ byte)])
}

/// The hash slot of `key`: of the text between the first `{` and the next `}` when that is not
/// empty, else of the whole key.
#[inline]
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// The part of `key` that decides its slot.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

/// The slot of all keys that begin with `prefix`, if they are in one: the tag is in the prefix.
pub fn prefix_slot(prefix: &[u8]) -> Option<u16> {
    let tag = hash_tag(prefix);
    (tag.len() < prefix.len()).then(|| crc16(tag) % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
        assert_eq!(crc16(b"a"), 0x7c87);
    }

    #[test]
    fn any_length_is_as_by_single_bits() {
        let by_bits = |data: &[u8]| {
            data.iter().fold(0u16, |crc, &byte| {
                (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| match crc & 0x8000 {
                    0 => crc << 1,
                    _ => crc << 1 ^ 0x1021,
                })
            })
        };
        let data: Vec<u8> = (0..70u32).map(|at| (at * at * 37 + 201) as u8).collect();
        for len in 0..data.len() {
            assert_eq!(crc16(&data[..len]), by_bits(&data[..len]), "{len} bytes");
        }
    }

    #[test]
    fn slots_as_cluster_keyslot_answers() {
        assert_eq!(key_slot(b"foo"), 12182);
        assert_eq!(key_slot(b"bar"), 5061);
        assert_eq!(key_slot(b""), 0);
        assert_eq!(key_slot(b"a{foo}b"), 12182);
        assert_eq!(key_slot(b"a{foo}{bar}"), 12182);
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar"), b"foo{bar");
        assert_eq!(hash_tag(b"}foo{bar}"), b"bar");
    }

    #[test]
    fn a_prefix_has_a_slot_if_the_tag_is_in_it() {
        for prefix in ["{foo}", "{foo}x", "x{foo}{bar}", "}{foo}"] {
            assert_eq!(prefix_slot(prefix.as_bytes()), Some(12182), "{prefix}");
        }
        for prefix in ["", "foo", "{foo", "{}{foo}", "foo}"] {
            assert_eq!(prefix_slot(prefix.as_bytes()), None, "{prefix}");
        }
    }
}
