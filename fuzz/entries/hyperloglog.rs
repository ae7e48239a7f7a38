//! Strings that say they are HyperLogLogs, as clients can make them with SET and RESTORE: no panic,
//! and the registers are those that a simple reader finds, before and after elements are added.

use structs::hyperloglog::{
    Encoding, REGISTERS, Registers, encoding, estimate, merge, place, raise, to_dense,
};

const HEADER: usize = 16;
const DENSE_BYTES: usize = REGISTERS / 4 * 3;

/// The registers as the format describes them; `None` if they are damaged.
fn read(bytes: &[u8]) -> Option<Vec<u8>> {
    let body = &bytes[HEADER..];
    if bytes[4] == Encoding::Dense as u8 {
        let bit = |at: usize| body[at / 8] >> (at % 8) & 1;
        let register = |index| (0..6).map(|at| bit(6 * index + at) << at).sum();
        return Some((0..REGISTERS).map(register).collect());
    }
    let mut registers = Vec::new();
    let mut rest = body.iter();
    while let Some(&first) = rest.next() {
        let (value, count) = match first >> 6 {
            0 => (0, usize::from(first) + 1),
            1 => (0, (usize::from(first & 63) << 8) + usize::from(*rest.next()?) + 1),
            _ => ((first >> 2 & 31) + 1, usize::from(first & 3) + 1),
        };
        registers.extend(std::iter::repeat_n(value, count));
    }
    (registers.len() == REGISTERS).then_some(registers)
}

fn registers_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut registers: Registers = [0; REGISTERS];
    merge(&mut registers, bytes).ok().map(|()| registers.to_vec())
}

/// Adds elements, each to a copy with this limit for sparse ones.
fn add(bytes: &[u8], before: Option<&Vec<u8>>, max_sparse: usize) {
    let mut bytes = bytes.to_vec();
    let mut expected = before.cloned();
    for element in 0..50u32 {
        let (index, value) = place(&element.to_le_bytes());
        let len = bytes.len();
        let raised = raise(&mut bytes, (index, value), max_sparse);
        // One that is damaged may be found out, or not.
        let Some(expected) = &mut expected else { continue };
        assert_eq!(raised, Ok(expected[index] < value));
        expected[index] = expected[index].max(value);
        let is_dense = bytes[4] == Encoding::Dense as u8;
        assert!(is_dense || bytes.len() <= max_sparse.max(len), "a sparse one is too long");
    }
    assert!(expected.is_none() || registers_of(&bytes) == expected, "an element went elsewhere");
}

/// An odd first byte makes it dense; what follows is the cached count and the registers.
pub fn check(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let mut bytes = vec![b'H', b'Y', b'L', b'L', 1 - (first & 1), 0, 0, 0];
    bytes.extend_from_slice(rest);
    let shortest = if first & 1 == 1 { HEADER + DENSE_BYTES } else { HEADER };
    if bytes.len() < shortest || first & 1 == 1 {
        // A short one is repeated, so that few bytes reach all registers.
        let body: Vec<u8> = bytes.split_off(8.min(bytes.len()));
        let body = if body.is_empty() { vec![0] } else { body };
        bytes.extend(body.iter().cycle().take(shortest - 8));
    }
    assert!(encoding(&bytes).is_ok());
    let before = read(&bytes);
    assert!(registers_of(&bytes) == before, "the registers are others");
    if let Some(registers) = before.as_ref().and_then(|list| list.first_chunk::<REGISTERS>()) {
        estimate(registers);
    }
    let mut dense = bytes.clone();
    match to_dense(&mut dense) {
        Ok(_) => assert!(registers_of(&dense) == before, "the dense form is another"),
        Err(_) => assert!(before.is_none()),
    }
    for max_sparse in [0, 3000, 16_000] {
        add(&bytes, before.as_ref(), max_sparse);
    }
}
