//! Where a line of the configuration stands, for messages.

use std::fmt;
use std::path::PathBuf;

/// What a line was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineSource {
    /// A configuration file, by its path.
    File(PathBuf),
    /// Standard input.
    StandardInput,
    /// The command line, each option of which is a line.
    CommandLine,
    /// A text that was read from nowhere.
    Text,
}

/// A line of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What it was read from.
    pub place: LineSource,
    /// The number of the line there, from 1.
    pub number: usize,
    /// The line without the blanks around it.
    pub line: Vec<u8>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number;
        match &self.place {
            LineSource::File(path) => {
                write!(f, "Reading the configuration file {}, at line {number}", path.display())
            }
            LineSource::StandardInput => {
                write!(f, "Reading the configuration from standard input, at line {number}")
            }
            LineSource::CommandLine => write!(f, "Reading the command line"),
            LineSource::Text => write!(f, "Reading the configuration file, at line {number}"),
        }?;
        write!(f, "\n>>> '{}'", String::from_utf8_lossy(&self.line))
    }
}
