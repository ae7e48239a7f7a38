//! `oom-score-adj`: telling the kernel what to kill first when memory runs out.

use crate::log;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The `oom-score-adj` option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `no`: leave the score alone.
    No,
    /// `relative` or `yes`: add the value to the score the process was started with.
    Relative,
    /// `absolute`: the value is the score.
    Absolute,
}

/// Which of the three `oom-score-adj-values` applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A primary.
    Primary = 0,
    /// A replica.
    Replica = 1,
    /// A child process. Dunlin has none; the value is kept for CONFIG GET.
    Child = 2,
}

/// The process's score, which remembers what it was before it was first changed.
#[derive(Debug)]
pub struct OomScore {
    file: PathBuf,
    /// The score to go back to when the option is switched off again.
    original: Option<i32>,
}

impl OomScore {
    /// The score of this process, on the machine below `root`.
    pub fn new(root: &Path) -> Self {
        Self { file: root.join("proc/self/oom_score_adj"), original: None }
    }

    /// Makes the score what the options say. A failure (lowering it takes privileges) is logged and
    /// returned, for CONFIG SET to fail with.
    pub fn apply(&mut self, mode: Mode, values: [i32; 3], class: Class) -> io::Result<()> {
        let value = values[class as usize];
        let score = match mode {
            Mode::No => match self.original {
                Some(original) => original,
                None => return Ok(()),
            },
            Mode::Relative => value.saturating_add(self.remember()?),
            Mode::Absolute => {
                self.remember()?;
                value
            }
        };
        self.write(score.clamp(-1000, 1000))?;
        if mode == Mode::No {
            self.original = None;
        }
        Ok(())
    }

    /// The score before the first change.
    fn remember(&mut self) -> io::Result<i32> {
        if let Some(original) = self.original {
            return Ok(original);
        }
        let read = fs::read_to_string(&self.file)
            .and_then(|text| text.trim().parse().map_err(io::Error::other))
            .inspect_err(|error| {
                log!(Warning, "Unable to read oom_score_adj: {}", super::os_error(error));
            });
        self.original = Some(read?);
        self.remember()
    }

    fn write(&self, score: i32) -> io::Result<()> {
        fs::write(&self.file, format!("{score}\n")).inspect_err(|error| {
            log!(Warning, "Unable to write oom_score_adj: {}", super::os_error(error));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    struct Machine(Directory);

    impl Machine {
        fn new(score: &str) -> Self {
            let directory = Directory::new("oom");
            directory.file("proc/self/oom_score_adj", score);
            Self(directory)
        }

        fn score(&self) -> String {
            let text = fs::read_to_string(self.0.path().join("proc/self/oom_score_adj"));
            text.unwrap().trim().to_owned()
        }
    }

    #[test]
    fn relative_absolute_and_back_again() {
        let machine = Machine::new("22\n");
        let mut score = OomScore::new(machine.0.path());
        score.apply(Mode::No, [9, 9, 9], Class::Primary).unwrap();
        assert_eq!(machine.score(), "22");
        score.apply(Mode::Relative, [9, 200, 800], Class::Primary).unwrap();
        assert_eq!(machine.score(), "31");
        score.apply(Mode::Relative, [9, 200, 800], Class::Replica).unwrap();
        assert_eq!(machine.score(), "222");
        score.apply(Mode::Absolute, [9, 200, 800], Class::Primary).unwrap();
        assert_eq!(machine.score(), "9");
        score.apply(Mode::No, [9, 200, 800], Class::Primary).unwrap();
        assert_eq!(machine.score(), "22");
        // From now on the option is off: what others set stays.
        machine.0.file("proc/self/oom_score_adj", "77");
        score.apply(Mode::No, [1, 1, 1], Class::Primary).unwrap();
        assert_eq!(machine.score(), "77");
    }

    #[test]
    fn the_kernel_s_range_is_kept_and_failures_are_returned() {
        let machine = Machine::new("900");
        let mut score = OomScore::new(machine.0.path());
        score.apply(Mode::Relative, [2000, 0, 0], Class::Primary).unwrap();
        assert_eq!(machine.score(), "1000");
        score.apply(Mode::Absolute, [-2000, 0, 0], Class::Primary).unwrap();
        assert_eq!(machine.score(), "-1000");
        let mut nowhere = OomScore::new(Path::new("/nonexistent-folder"));
        assert!(nowhere.apply(Mode::Relative, [0; 3], Class::Primary).is_err());
    }
}
