//! From registers to a count: Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog
//! sketches" (2017), algorithm 6. The sums are made in Redis's order, so the results are equal.

use super::{REGISTERS, RUN_BITS, Registers};

const ALPHA_INFINITY: f64 = 0.721_347_520_444_481_7;

/// How many different elements were seen, about: the standard error is 0.81 %.
pub fn estimate(registers: &Registers) -> u64 {
    let counts = histogram(registers);
    let m = REGISTERS as f64;
    let mut z = m * tau((m - counts[RUN_BITS as usize + 1] as f64) / m);
    for value in (1..=RUN_BITS as usize).rev() {
        z = 0.5 * (z + counts[value] as f64);
    }
    z += m * sigma(counts[0] as f64 / m);
    (ALPHA_INFINITY * m * m / z).round() as u64
}

/// How many registers have each value. Four tables, so that equal neighbors do not wait for each
/// other.
fn histogram(registers: &Registers) -> [u32; 64] {
    let mut tables = [[0u32; 64]; 4];
    let (groups, _) = registers.as_chunks::<4>();
    for group in groups {
        for (table, &value) in tables.iter_mut().zip(group) {
            table[usize::from(value & 63)] += 1;
        }
    }
    std::array::from_fn(|value| tables.iter().map(|table| table[value]).sum())
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}
