//! A run of samples of a series, compressed or not.

use crate::Sample;
use crate::packed::{Packed, is_sample};

/// A run of samples that ascend in time; at least one.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    /// Compressed.
    Packed(Packed),
    /// As they are.
    Plain(Vec<Sample>),
}

impl Chunk {
    /// Returns a chunk of one sample.
    pub fn new(first: Sample, is_compressed: bool) -> Chunk {
        if is_compressed { Chunk::Packed(Packed::new(first)) } else { Chunk::Plain(vec![first]) }
    }

    /// Returns a chunk of samples, or nothing if there are none.
    pub fn of(samples: &[Sample], is_compressed: bool) -> Option<Chunk> {
        if is_compressed {
            return Packed::of(samples).map(Chunk::Packed);
        }
        (!samples.is_empty()).then(|| Chunk::Plain(samples.to_vec()))
    }

    /// Returns samples from a file, or nothing if they are none that may be in a chunk.
    pub fn plain(samples: Vec<Sample>) -> Option<Chunk> {
        let ascends = samples.windows(2).all(|pair| pair[0].time < pair[1].time);
        let is_sound = !samples.is_empty() && ascends && samples.iter().all(|&it| is_sample(it));
        is_sound.then_some(Chunk::Plain(samples))
    }

    /// Returns the first sample.
    pub fn first(&self) -> Sample {
        match self {
            Chunk::Packed(packed) => packed.first(),
            Chunk::Plain(samples) => samples[0],
        }
    }

    /// Returns the last sample.
    pub fn last(&self) -> Sample {
        match self {
            Chunk::Packed(packed) => packed.last(),
            Chunk::Plain(samples) => samples[samples.len() - 1],
        }
    }

    /// Returns the number of samples.
    pub fn count(&self) -> usize {
        match self {
            Chunk::Packed(packed) => packed.count(),
            Chunk::Plain(samples) => samples.len(),
        }
    }

    /// Returns the bytes of the samples.
    pub fn bytes(&self) -> usize {
        match self {
            Chunk::Packed(packed) => packed.bytes(),
            Chunk::Plain(samples) => samples.len() * size_of::<Sample>(),
        }
    }

    /// Returns the bytes of its blocks.
    pub fn allocated_bytes(&self) -> usize {
        let samples = match self {
            Chunk::Packed(packed) => packed.allocated_bytes(),
            Chunk::Plain(samples) => samples.capacity() * size_of::<Sample>(),
        };
        size_of::<Chunk>() + samples
    }

    /// Appends a sample that is later than the last.
    pub fn push(&mut self, sample: Sample) {
        match self {
            Chunk::Packed(packed) => packed.push(sample),
            Chunk::Plain(samples) => samples.push(sample),
        }
    }

    /// Frees what is allocated beyond the samples: no more are appended.
    pub fn shrink(&mut self) {
        match self {
            Chunk::Packed(packed) => packed.shrink(),
            Chunk::Plain(samples) => samples.shrink_to_fit(),
        }
    }

    /// Calls `visit` with each sample, in order, until it returns false. Returns whether it never
    /// did.
    #[inline]
    pub fn visit(&self, mut visit: impl FnMut(Sample) -> bool) -> bool {
        match self {
            Chunk::Packed(packed) => packed.visit(visit),
            Chunk::Plain(samples) => samples.iter().all(|&sample| visit(sample)),
        }
    }

    /// Returns all samples.
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::with_capacity(self.count());
        self.visit(|sample| {
            samples.push(sample);
            true
        });
        samples
    }
}
