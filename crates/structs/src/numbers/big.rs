//! A natural number of any size, with the few operations that decimal text needs.

use super::{INT_MAX_LEN, format_u64};
use std::cmp::Ordering;

/// Whether bits were dropped below a significand.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Exactness {
    Exact,
    Truncated,
}

/// A big natural number: 32-bit limbs, least significant first, no leading zero limbs.
#[derive(Clone, Default)]
pub(super) struct Big {
    limbs: Vec<u32>,
}

impl From<u64> for Big {
    fn from(value: u64) -> Self {
        let mut big = Self { limbs: vec![value as u32, (value >> 32) as u32] };
        big.trim();
        big
    }
}

impl Big {
    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }

    fn bit_len(&self) -> u32 {
        self.limbs.last().map_or(0, |top| 32 * self.limbs.len() as u32 - top.leading_zeros())
    }

    pub(super) fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for limb in &mut self.limbs {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry != 0 {
            self.limbs.push(carry as u32);
        }
    }

    pub(super) fn multiply_by_power_of_ten(&mut self, power: u32) {
        for _ in 0..power / 9 {
            self.multiply_add(1_000_000_000, 0);
        }
        self.multiply_add(10u32.pow(power % 9), 0);
    }

    pub(super) fn shift_left(&mut self, bits: u32) {
        if !bits.is_multiple_of(32) {
            self.multiply_add(1 << (bits % 32), 0);
        }
        self.limbs.splice(0..0, std::iter::repeat_n(0, bits as usize / 32));
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_len = self.limbs.len().cmp(&other.limbs.len());
        by_len.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }

    /// `self -= other`, which must not be larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = 0i64;
        for (idx, limb) in self.limbs.iter_mut().enumerate() {
            let taken = other.limbs.get(idx).copied().unwrap_or(0);
            let difference = i64::from(*limb) - i64::from(taken) + borrow;
            *limb = difference as u32;
            borrow = difference >> 32;
        }
        self.trim();
    }

    /// The uppermost (up to 128) bits, the power of two they are scaled by, and what was cut off.
    pub(super) fn leading_bits(&self) -> (u128, i32, Exactness) {
        let skip = self.limbs.len().saturating_sub(4);
        let (cut, kept) = self.limbs.split_at(skip);
        let bits = kept.iter().rev().fold(0u128, |bits, &limb| bits << 32 | u128::from(limb));
        let exact = cut.iter().all(|&limb| limb == 0);
        let exactness = if exact { Exactness::Exact } else { Exactness::Truncated };
        (bits, 32 * skip as i32, exactness)
    }

    /// `self / divisor` as a significand of 67 or 68 bits, whose lowest bit stands for any
    /// remainder, and the power of two it is scaled by.
    pub(super) fn divide(mut self, divisor: &Self) -> (u128, i32) {
        const BITS: i32 = 67;
        let scale = self.bit_len() as i32 - divisor.bit_len() as i32;
        // Align so that the quotient lies in [2^66, 2^68), then long division bit by bit.
        let mut divisor = divisor.clone();
        if scale >= 0 {
            divisor.shift_left(scale as u32);
        } else {
            self.shift_left(-scale as u32);
        }
        let mut quotient = 0u128;
        for _ in 0..=BITS {
            quotient <<= 1;
            if self.compare(&divisor) != Ordering::Less {
                self.subtract(&divisor);
                quotient |= 1;
            }
            self.multiply_add(2, 0);
        }
        let sticky = u128::from(!self.limbs.is_empty());
        (quotient << 1 | sticky, scale - BITS - 1)
    }

    /// Appends the decimal digits; destroys the number.
    pub(super) fn push_decimal(mut self, out: &mut Vec<u8>) {
        const GROUP: u64 = 1_000_000_000;
        let mut groups = Vec::new();
        while !self.limbs.is_empty() {
            let mut remainder = 0u64;
            for limb in self.limbs.iter_mut().rev() {
                let value = remainder << 32 | u64::from(*limb);
                *limb = (value / GROUP) as u32;
                remainder = value % GROUP;
            }
            groups.push(remainder);
            self.trim();
        }
        let mut buf = [0; INT_MAX_LEN];
        out.extend_from_slice(format_u64(&mut buf, groups.pop().unwrap_or(0)));
        for group in groups.into_iter().rev() {
            // A tenth digit in front keeps the group's leading zeros.
            out.extend_from_slice(&format_u64(&mut buf, group + GROUP)[1..]);
        }
    }
}
