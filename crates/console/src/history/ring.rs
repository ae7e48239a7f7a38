//! A ring of samples at equal distances.

use super::columns::Fold;
use std::collections::VecDeque;
use std::sync::Arc;

/// The values of all columns at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since 1970.
    pub at: u64,
    /// One for each column.
    pub values: Vec<f32>,
}

/// The last samples.
pub struct Ring {
    step: u64,
    len: usize,
    /// How the values of a column are joined, one for each.
    folds: Arc<[Fold]>,
    samples: VecDeque<Sample>,
    /// Samples that are to become one.
    open: Option<(Sample, u32)>,
}

impl Ring {
    /// For so many samples, so many seconds apart.
    pub fn new(step: u64, len: usize, folds: &Arc<[Fold]>) -> Ring {
        Ring { step, len, folds: Arc::clone(folds), samples: VecDeque::new(), open: None }
    }

    /// Seconds between samples.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Seconds that it can look back.
    pub fn reach(&self) -> u64 {
        self.step * self.len as u64
    }

    /// Takes a sample in.
    pub fn add(&mut self, sample: &Sample) {
        let is_same = |open: &Sample| open.at / self.step == sample.at / self.step;
        match &mut self.open {
            Some((open, count)) if is_same(open) => {
                fold(&self.folds, open, sample, *count);
                *count += 1;
            }
            open => {
                if let Some((whole, _)) = open.replace((sample.clone(), 1)) {
                    if self.samples.len() == self.len {
                        self.samples.pop_front();
                    }
                    self.samples.push_back(whole);
                }
            }
        }
    }

    /// The samples since then, the last one as far as it is known.
    pub fn since(&self, at: u64) -> Vec<Sample> {
        let all = self.samples.iter().chain(self.open.as_ref().map(|(sample, _)| sample));
        all.filter(|sample| sample.at > at).cloned().collect()
    }
}

/// Joins another sample to one that stands for `count`.
fn fold(folds: &[Fold], open: &mut Sample, sample: &Sample, count: u32) {
    let count = count as f32;
    for (fold, (kept, value)) in folds.iter().zip(open.values.iter_mut().zip(&sample.values)) {
        match fold {
            Fold::Mean => *kept = (*kept * count + value) / (count + 1.0),
            Fold::Max => *kept = kept.max(*value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_fold_by_their_column() {
        let folds = [Fold::Mean, Fold::Max].into();
        let mut ring = Ring::new(10, 2, &folds);
        for at in [0, 1, 9, 10, 20, 30] {
            ring.add(&Sample { at, values: vec![at as f32; 2] });
        }
        let samples = ring.since(0);
        assert_eq!(samples.iter().map(|sample| sample.at).collect::<Vec<_>>(), [10, 20, 30]);
        let mut ring = Ring::new(10, 2, &folds);
        for at in [10, 11, 18] {
            ring.add(&Sample { at, values: vec![at as f32; 2] });
        }
        assert_eq!(ring.since(0)[0].values, [13.0, 18.0]);
    }
}
