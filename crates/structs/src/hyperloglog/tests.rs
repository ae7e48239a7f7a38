//! HyperLogLogs beside a plain array of registers.

use super::*;
use proptest::prelude::*;

fn registers_of(bytes: &[u8]) -> Box<Registers> {
    let mut registers = Box::new([0; REGISTERS]);
    merge(&mut registers, bytes).expect("it is sound");
    registers
}

#[test]
fn the_bytes_are_those_of_redis() {
    let mut bytes = empty();
    for element in [&b"a"[..], b"b", b"c"] {
        raise(&mut bytes, place(element), 3000).expect("it is sound");
    }
    let expected =
        b"HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80`\xf3\x80P\xb1\x84K\xfb\x80BZ";
    assert_eq!(bytes, expected);
    assert_eq!(estimate(&registers_of(&bytes)), 3);
    let decoded = sparse::describe(&bytes[HEADER..]).expect("it is sound");
    assert!(decoded.starts_with("Z:8436 v:1,1 Z:"), "{decoded}");
}

#[test]
fn counts_are_near_the_truth() {
    let mut bytes = empty();
    for number in 0..100_000u64 {
        raise(&mut bytes, place(&number.to_le_bytes()), 3000).expect("it is sound");
        if [10, 1000, 99_999].contains(&number) {
            let (count, truth) = (estimate(&registers_of(&bytes)) as f64, number as f64 + 1.0);
            assert!((count - truth).abs() <= truth * 0.04, "{count} for {truth}");
        }
    }
    assert_eq!(encoding(&bytes), Ok(Encoding::Dense));
}

#[test]
fn damage_is_found() {
    let mut short = empty();
    short.pop();
    assert_eq!(merge(&mut [0; REGISTERS], &short), Err(Corrupted));
    assert_eq!(raise(&mut short, (5, 3), 3000), Err(Corrupted));
    let mut long = empty();
    long.push(0);
    assert_eq!(merge(&mut [0; REGISTERS], &long), Err(Corrupted));
    assert_eq!(encoding(b"HYLL"), Err(NotHyperLogLog));
    assert_eq!(encoding(&[b"HYLL\x00".as_slice(), &[0; 100]].concat()), Err(NotHyperLogLog));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn encodings_agree_with_an_array(
        changes in prop::collection::vec((0..REGISTERS, 1u8..52), 1..600),
        neighbors in prop::collection::vec((0..40usize, 1u8..8), 0..200),
        max_sparse in 0..3000usize,
    ) {
        let mut model = [0u8; REGISTERS];
        let mut bytes = empty();
        for (index, value) in changes.into_iter().chain(neighbors) {
            let is_raised = raise(&mut bytes, (index, value), max_sparse).expect("it is sound");
            prop_assert_eq!(is_raised, model[index] < value);
            model[index] = model[index].max(value);
        }
        prop_assert_eq!(&*registers_of(&bytes), &model);
        to_dense(&mut bytes).expect("it is sound");
        prop_assert_eq!(&*registers_of(&bytes), &model);
        for (index, &value) in model.iter().enumerate() {
            prop_assert_eq!(dense::get(&bytes[HEADER..], index), value);
        }
    }

    #[test]
    fn hostile_registers_end_in_an_error_or_a_count(
        encoded in prop::collection::vec(any::<u8>(), 0..200), index in 0..REGISTERS
    ) {
        let mut bytes = empty();
        bytes.truncate(HEADER);
        bytes.extend_from_slice(&encoded);
        let _ = merge(&mut [0; REGISTERS], &bytes);
        let _ = sparse::describe(&bytes[HEADER..]);
        let _ = raise(&mut bytes, (index, 7), 3000);
    }
}
