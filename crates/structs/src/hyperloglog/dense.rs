//! Dense registers: six bits each, so eight of them are six bytes.
//!
//! Eight at a time are taken apart with a few shifts of one 64-bit word; where the processor has
//! AVX2, 32 at a time ([`super::wide`]).

use super::{REGISTERS, Registers};

const BITS: usize = 6;
/// The largest value of a register.
const MAX: u8 = (1 << BITS) - 1;
/// Bytes of all registers.
pub const BYTES: usize = REGISTERS * BITS / 8;

/// The value of one register.
pub fn get(packed: &[u8], index: usize) -> u8 {
    let (at, shift) = (index * BITS / 8, index * BITS % 8);
    let low = packed[at] >> shift;
    // The last register ends with the last byte.
    let high = packed.get(at + 1).map_or(0, |&byte| u16::from(byte) << (8 - shift));
    (u16::from(low) | high) as u8 & MAX
}

fn set(packed: &mut [u8], index: usize, value: u8) {
    let (at, shift) = (index * BITS / 8, index * BITS % 8);
    let mask = u16::from(MAX) << shift;
    let bits = u16::from(value) << shift;
    packed[at] = packed[at] & !(mask as u8) | bits as u8;
    if mask > 0xff {
        packed[at + 1] = packed[at + 1] & !((mask >> 8) as u8) | (bits >> 8) as u8;
    }
}

/// Raises a register; says whether it was lower.
pub fn raise(packed: &mut [u8], index: usize, value: u8) -> bool {
    let is_lower = get(packed, index) < value;
    if is_lower {
        set(packed, index, value);
    }
    is_lower
}

/// Eight registers of six bytes, a byte each.
#[inline]
fn unpack_8(packed: &[u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = *packed;
    let mut word = u64::from_le_bytes([a, b, c, 0, d, e, f, 0]);
    word = word & 0x0000_0fff_0000_0fff | (word & 0x00ff_f000_00ff_f000) << 4;
    word = word & 0x003f_003f_003f_003f | (word & 0x0fc0_0fc0_0fc0_0fc0) << 2;
    word.to_le_bytes()
}

#[inline]
fn pack_8(registers: &[u8; 8]) -> [u8; 6] {
    let mut word = u64::from_le_bytes(*registers);
    word = word & 0x003f_003f_003f_003f | (word & 0x3f00_3f00_3f00_3f00) >> 2;
    word = word & 0x0000_0fff_0000_0fff | (word & 0x0fff_0000_0fff_0000) >> 4;
    let [a, b, c, _, d, e, f, _] = word.to_le_bytes();
    [a, b, c, d, e, f]
}

/// Raises registers to packed ones.
#[allow(unsafe_code)] // The wide form asks for a processor that has been looked at.
pub fn merge(registers: &mut Registers, packed: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { super::wide::merge(registers, packed) };
    }
    merge_words(registers, packed);
}

/// [`merge`], eight registers at a time.
pub fn merge_words(registers: &mut [u8], packed: &[u8]) {
    let (groups, _) = packed.as_chunks::<6>();
    let (targets, _) = registers.as_chunks_mut::<8>();
    for (target, group) in targets.iter_mut().zip(groups) {
        let values = unpack_8(group);
        for (register, value) in target.iter_mut().zip(values) {
            *register = value.max(*register);
        }
    }
}

/// Packs registers.
pub fn pack(registers: &Registers, packed: &mut [u8]) {
    let (groups, _) = packed.as_chunks_mut::<6>();
    let (sources, _) = registers.as_chunks::<8>();
    for (group, source) in groups.iter_mut().zip(sources) {
        *group = pack_8(source);
    }
}
