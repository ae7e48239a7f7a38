//! Samples as differences, after Gorilla (Pelkonen and others, 2015), with a form for decimals.
//!
//! ```text
//!  first sample: as it is, beside the bits
//!  each other:   | time | value |
//!
//!  time     the difference of the differences of times, as a number
//!  value    Decimal  the difference of the values times 10^scale, as a number
//!           Xor      0                        the value before
//!                    10 bits                  its difference in bits, where that of before was
//!                    11 leading:5 len-1:6 bits  its difference in bits
//!  number   zigzag; 0, 10, 110, 1110, 11110 or 11111, then as many bits as the class has
//! ```
//!
//! Gauges are decimals: 21.4 and 21.5 differ in 50 bits as doubles, and by 1 in tenths. So a run
//! begins as decimals, with as many digits as its values have, and becomes doubles when a value
//! does not fit. Whether a value fits is tested by computing it back: nothing is rounded.

use crate::Sample;
use crate::bits::Bits;

/// Bits of the classes of differences of time.
const TIME_CLASSES: [u32; 6] = [0, 7, 10, 16, 32, 64];
/// Bits of the classes of differences of decimals.
const VALUE_CLASSES: [u32; 6] = [0, 3, 6, 12, 24, 64];
/// Digits behind the point that decimals may have, at most.
const MAX_SCALE: u8 = 9;
/// Decimals are below this, so that a double has them exactly.
const MAX_DECIMAL: f64 = 9_007_199_254_740_992.0;
const POWERS: [f64; MAX_SCALE as usize + 1] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// As whole numbers of this many digits behind the point.
    Decimal(u8),
    /// As differences of bits.
    Xor,
}

/// What the next sample is a difference to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    time: u64,
    delta: i64,
    /// The value as a whole number, or its bits.
    value: u64,
    /// The last difference in bits: zeros in front, bits.
    leading: u32,
    significant: u32,
}

/// A run of samples, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    first: Sample,
    form: Form,
    state: State,
    bits: Bits,
    count: u32,
}

/// Returns the whole number that is the value with the point moved, if it is that exactly.
fn decimal(value: f64, scale: u8) -> Option<i64> {
    let moved = (value * POWERS[scale as usize]).round();
    if moved.is_nan() || moved.abs() >= MAX_DECIMAL {
        return None;
    }
    let number = moved as i64;
    (from_decimal(number, scale).to_bits() == value.to_bits()).then_some(number)
}

#[inline]
fn from_decimal(number: i64, scale: u8) -> f64 {
    number as f64 / POWERS[scale as usize]
}

/// Returns the least number of digits that the value has, if it is a decimal.
fn scale_of(value: f64) -> Option<u8> {
    (0..=MAX_SCALE).find(|&scale| decimal(value, scale).is_some())
}

#[inline]
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

#[inline]
fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Appends a number: the class in ones, then its bits.
#[inline]
fn push_number(bits: &mut Bits, number: u64, classes: &[u32; 6]) {
    let needed = u64::BITS - number.leading_zeros();
    let class = classes.iter().position(|&bits| needed <= bits).unwrap_or(5);
    match class {
        5 => bits.push(0b11111, 5),
        class => bits.push(((1 << class) - 1) << 1, class as u32 + 1),
    }
    bits.push(number, classes[class]);
}

/// Reads a number and moves the place behind it.
#[inline]
fn read_number(bits: &Bits, at: &mut usize, classes: &[u32; 6]) -> u64 {
    let word = bits.peek(*at);
    let class = word.leading_ones().min(5);
    let prefix = if class == 5 { 5 } else { class + 1 };
    let count = classes[class as usize];
    let number = if prefix + count <= u64::BITS {
        let rest = word << prefix;
        if count == 0 { 0 } else { rest >> (u64::BITS - count) }
    } else {
        bits.read(*at + prefix as usize, count)
    };
    *at += (prefix + count) as usize;
    number
}

impl Packed {
    /// Returns a run of one sample.
    pub fn new(first: Sample) -> Packed {
        let form = scale_of(first.value).map_or(Form::Xor, Form::Decimal);
        Packed::in_form(first, form)
    }

    /// Returns a run of one sample, which the form can represent.
    fn in_form(first: Sample, form: Form) -> Packed {
        let value = match form {
            Form::Decimal(scale) => decimal(first.value, scale).unwrap_or(0).cast_unsigned(),
            Form::Xor => first.value.to_bits(),
        };
        let state = State { time: first.time, delta: 0, value, leading: 0, significant: 0 };
        Packed { first, form, state, bits: Bits::default(), count: 1 }
    }

    /// Returns the samples as one run, or nothing if there are none. They ascend in time.
    pub fn of(samples: &[Sample]) -> Option<Packed> {
        let (&first, rest) = samples.split_first()?;
        let scales = samples.iter().map(|sample| scale_of(sample.value));
        let scale = scales.collect::<Option<Vec<u8>>>().and_then(|scales| scales.into_iter().max());
        let fits = |scale: u8| samples.iter().all(|sample| decimal(sample.value, scale).is_some());
        let form = scale.filter(|&scale| fits(scale)).map_or(Form::Xor, Form::Decimal);
        let mut packed = Packed::in_form(first, form);
        for &sample in rest {
            packed.push(sample);
        }
        packed.bits.shrink();
        Some(packed)
    }

    /// Returns the first sample.
    pub fn first(&self) -> Sample {
        self.first
    }

    /// Returns the last sample.
    pub fn last(&self) -> Sample {
        Sample { time: self.state.time, value: self.value() }
    }

    /// Returns the number of samples.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the bytes of the samples.
    pub fn bytes(&self) -> usize {
        size_of::<Sample>() + self.bits.len().div_ceil(8)
    }

    /// Returns the bytes of the block beside this struct.
    pub fn allocated_bytes(&self) -> usize {
        self.bits.allocated_bytes()
    }

    /// Frees what is allocated beyond the samples.
    pub fn shrink(&mut self) {
        self.bits.shrink();
    }

    /// Appends a sample that is later than the last.
    pub fn push(&mut self, sample: Sample) {
        debug_assert!(sample.time > self.state.time, "samples ascend");
        let value = match self.form {
            Form::Xor => sample.value.to_bits(),
            Form::Decimal(scale) => match decimal(sample.value, scale) {
                Some(number) => number.cast_unsigned(),
                None => return self.change_form(sample),
            },
        };
        let delta = sample.time.wrapping_sub(self.state.time).cast_signed();
        let change = delta.wrapping_sub(self.state.delta);
        push_number(&mut self.bits, zigzag(change), &TIME_CLASSES);
        match self.form {
            Form::Decimal(_) => {
                let change = value.wrapping_sub(self.state.value).cast_signed();
                push_number(&mut self.bits, zigzag(change), &VALUE_CLASSES);
            }
            Form::Xor => self.push_xor(value ^ self.state.value),
        }
        self.state.time = sample.time;
        self.state.delta = delta;
        self.state.value = value;
        self.count += 1;
    }

    /// Writes all samples anew in a form that has this one, too.
    #[cold]
    fn change_form(&mut self, sample: Sample) {
        let mut samples = Vec::with_capacity(self.count() + 1);
        self.visit(|sample| {
            samples.push(sample);
            true
        });
        samples.push(sample);
        if let Some(packed) = Packed::of(&samples) {
            *self = packed;
        }
    }

    fn push_xor(&mut self, xor: u64) {
        if xor == 0 {
            return self.bits.push(0, 1);
        }
        let (leading, trailing) = (xor.leading_zeros().min(31), xor.trailing_zeros());
        let State { leading: old, significant, .. } = self.state;
        if significant != 0 && leading >= old && trailing >= u64::BITS - old - significant {
            self.bits.push(0b10, 2);
            return self.bits.push(xor >> (u64::BITS - old - significant), significant);
        }
        let significant = u64::BITS - leading - trailing;
        self.bits.push(0b11, 2);
        self.bits.push(u64::from(leading), 5);
        self.bits.push(u64::from(significant - 1), 6);
        self.bits.push(xor >> trailing, significant);
        self.state.leading = leading;
        self.state.significant = significant;
    }

    fn value(&self) -> f64 {
        value_of(&self.state, self.form)
    }

    /// Calls `visit` with each sample, in order, until it returns false. Returns whether it never
    /// did.
    #[inline]
    pub fn visit(&self, mut visit: impl FnMut(Sample) -> bool) -> bool {
        if !visit(self.first) {
            return false;
        }
        let mut state = Packed::in_form(self.first, self.form).state;
        let mut at = 0;
        for _ in 1..self.count {
            advance(&mut state, self.form, &self.bits, &mut at);
            if !visit(Sample { time: state.time, value: value_of(&state, self.form) }) {
                return false;
            }
        }
        true
    }

    /// Returns the form as files have it, the first sample, the count and the bits.
    pub fn parts(&self) -> (u64, Sample, usize, &Bits) {
        let form = match self.form {
            Form::Decimal(scale) => u64::from(scale),
            Form::Xor => u64::MAX,
        };
        (form, self.first, self.count(), &self.bits)
    }

    /// Returns the run that a file describes, or nothing if it describes none: the bits have to be
    /// those of `count` samples that ascend.
    pub fn from_parts(form: u64, first: Sample, count: usize, bits: Bits) -> Option<Packed> {
        let form = match form {
            u64::MAX => Form::Xor,
            scale => Form::Decimal(u8::try_from(scale).ok().filter(|&it| it <= MAX_SCALE)?),
        };
        if let Form::Decimal(scale) = form {
            decimal(first.value, scale)?;
        }
        // Each sample has at least two bits.
        if count == 0 || bits.len() / 2 < count - 1 || !is_sample(first) {
            return None;
        }
        let count = u32::try_from(count).ok()?;
        let mut packed = Packed { bits, count, ..Packed::in_form(first, form) };
        let mut state = packed.state;
        let mut at = 0;
        for _ in 1..count {
            let before = state.time;
            advance(&mut state, form, &packed.bits, &mut at);
            let sample = Sample { time: state.time, value: value_of(&state, form) };
            if at > packed.bits.len() || sample.time <= before || !is_sample(sample) {
                return None;
            }
            if state.leading + state.significant > u64::BITS {
                return None;
            }
        }
        packed.state = state;
        (at == packed.bits.len()).then_some(packed)
    }
}

/// Returns whether a sample may be in a series.
pub fn is_sample(sample: Sample) -> bool {
    sample.time <= i64::MAX as u64 && !sample.value.is_infinite()
}

#[inline]
fn value_of(state: &State, form: Form) -> f64 {
    match form {
        Form::Decimal(scale) => from_decimal(state.value.cast_signed(), scale),
        Form::Xor => f64::from_bits(state.value),
    }
}

/// Returns the number of a decimal and the bits of its sample at the start of a word, if the sample
/// comes as long after its predecessor as that did, and the word has all of it. Nearly all samples
/// of a gauge are such, and cost one access to the bits.
#[inline]
fn on_time(word: u64) -> Option<(u64, usize)> {
    let rest = word << 1;
    let class = rest.leading_ones();
    if word >> 63 != 0 || class >= 5 {
        return None;
    }
    let (prefix, count) = (class + 1, VALUE_CLASSES[class as usize]);
    // In two steps, since the count may be 0.
    let number = rest << prefix >> 1 >> (u64::BITS - 1 - count);
    Some((number, (1 + prefix + count) as usize))
}

/// Reads the next sample into the state. What is read behind the end are zeros.
#[inline]
fn advance(state: &mut State, form: Form, bits: &Bits, at: &mut usize) {
    if let Form::Decimal(_) = form
        && let Some((change, used)) = on_time(bits.peek(*at))
    {
        state.time = state.time.wrapping_add(state.delta.cast_unsigned());
        state.value = state.value.wrapping_add(unzigzag(change).cast_unsigned());
        *at += used;
        return;
    }
    let change = unzigzag(read_number(bits, at, &TIME_CLASSES));
    state.delta = state.delta.wrapping_add(change);
    state.time = state.time.wrapping_add(state.delta.cast_unsigned());
    match form {
        Form::Decimal(_) => {
            let change = unzigzag(read_number(bits, at, &VALUE_CLASSES));
            state.value = state.value.wrapping_add(change.cast_unsigned());
        }
        Form::Xor => read_xor(state, bits, at),
    }
}

#[inline]
fn read_xor(state: &mut State, bits: &Bits, at: &mut usize) {
    let head = bits.peek(*at);
    if head >> 63 == 0 {
        *at += 1;
        return;
    }
    if head >> 62 == 0b10 {
        *at += 2;
    } else {
        state.leading = (head << 2 >> 59) as u32;
        state.significant = (head << 7 >> 58) as u32 + 1;
        *at += 13;
    }
    let significant = state.significant;
    let trailing = u64::BITS.saturating_sub(state.leading + significant);
    if significant != 0 {
        state.value ^= bits.read(*at, significant) << trailing;
    }
    *at += significant as usize;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(packed: &Packed) -> Vec<(u64, u64)> {
        let mut samples = Vec::new();
        packed.visit(|sample| {
            samples.push((sample.time, sample.value.to_bits()));
            true
        });
        samples
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            (-1000i32..1000).prop_map(f64::from),
            (-100_000i32..100_000).prop_map(|tenths| f64::from(tenths) / 10.0),
            any::<f64>().prop_filter("finite", |value| !value.is_infinite()),
            Just(-0.0),
        ]
    }

    proptest! {
        #[test]
        fn samples_come_back(
            steps in prop::collection::vec((1u64..1 << 40, value()), 1..100),
        ) {
            let mut time = 0;
            let samples: Vec<Sample> = steps.iter().map(|&(step, value)| {
                time += step;
                Sample { time, value }
            }).collect();
            let mut grown = Packed::new(samples[0]);
            samples[1..].iter().for_each(|&sample| grown.push(sample));
            let expected: Vec<_> = samples.iter().map(|it| (it.time, it.value.to_bits())).collect();
            prop_assert_eq!(all(&grown), expected.clone());
            let whole = Packed::of(&samples).expect("there are some");
            prop_assert_eq!(all(&whole), expected.clone());
            prop_assert_eq!(grown.last().time, time);
            let (form, first, count, bits) = grown.parts();
            let bits = Bits::from_bytes(&bits.to_bytes(), bits.len()).expect("its bytes");
            let read = Packed::from_parts(form, first, count, bits).expect("its parts");
            prop_assert_eq!(all(&read), expected);
        }

        #[test]
        fn hostile_bits_are_refused_or_read(
            form in prop_oneof![0u64..12, Just(u64::MAX)],
            count in 0usize..200,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let bits = Bits::from_bytes(&bytes, bytes.len() * 8).expect("whole bytes");
            let first = Sample { time: 5, value: 1.0 };
            if let Some(mut packed) = Packed::from_parts(form, first, count, bits) {
                prop_assert_eq!(all(&packed).len(), count);
                if packed.last().time < i64::MAX as u64 {
                    packed.push(Sample { time: i64::MAX as u64, value: 0.1 });
                    prop_assert_eq!(all(&packed).len(), count + 1);
                }
            }
        }
    }

    #[test]
    fn a_regular_gauge_takes_less_than_two_bytes() {
        let mut samples = Vec::new();
        for at in 0..10_000u64 {
            let value = 215 + (at * 7919 % 13) as i64 - 6;
            samples
                .push(Sample { time: 1_700_000_000_000 + at * 1000, value: value as f64 / 10.0 });
        }
        let packed = Packed::of(&samples).expect("there are some");
        assert!(packed.bytes() < 2 * samples.len(), "{} bytes", packed.bytes());
    }
}
