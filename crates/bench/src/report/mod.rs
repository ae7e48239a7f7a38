//! What is told: printed at once for every run, and written to files in the end.

pub mod csv;
pub mod document;
pub mod hdr;
pub mod html;
pub mod machine;
pub mod progress;
pub mod table;

use crate::End;
use crate::measure::{Measured, Tally};
use crate::options::{Job, Load, Output, Target};
use document::{Document, Run};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Everything that one invocation measures, and where it goes.
pub struct Session {
    output: Output,
    out: Box<dyn Write>,
    /// What files will say.
    pub document: Document,
    csv_begun: bool,
    usual: bool,
    clean: bool,
    interrupted: bool,
}

impl Session {
    /// Opens what is written to from the start.
    pub fn new(job: &Job) -> Result<Session, String> {
        let session = Session::open(&job.output, &job.command_line)?;
        Ok(Session { usual: job.usual, ..session })
    }

    /// The same without a job: tests are the experiment's choice, not the user's.
    pub fn open(output: &Output, command_line: &str) -> Result<Session, String> {
        let out: Box<dyn Write> = match &output.file {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(
                File::create(path).map_err(|error| format!("{}: {error}", path.display()))?,
            ),
        };
        Ok(Session {
            output: output.clone(),
            out,
            document: Document::new(command_line),
            csv_begun: false,
            usual: true,
            clean: true,
            interrupted: false,
        })
    }

    /// Prints a run and keeps its figures.
    pub fn run(&mut self, target: &Target, load: &Load, measured: Measured) {
        let text = if self.output.csv {
            let head = if self.csv_begun { String::new() } else { csv::head() };
            self.csv_begun = true;
            head + &csv::rows(&measured, self.output.precision)
        } else if self.output.quiet {
            table::line(&measured, self.output.precision)
        } else {
            table::table(target, load, &measured, &self.output)
        };
        self.print(&text);
        self.keep(target, load, &measured);
    }

    /// Keeps a run's figures for the files without printing them.
    pub fn keep(&mut self, target: &Target, load: &Load, measured: &Measured) {
        self.clean &= measured.clean(self.usual);
        self.interrupted |= measured.interrupted;
        if let Some(prefix) = &self.output.hdr_prefix
            && let Err(error) = hdr::write(prefix, measured)
        {
            self.note(format!("{prefix}: {error}"));
        }
        for text in measured.tallies.iter().filter_map(misses) {
            if !self.document.notes.contains(&text) {
                self.note(text);
            }
        }
        self.document.runs.push(Run::new(target, load, measured));
    }

    /// Prints text that belongs to the result. A reader that has gone away is no failure.
    pub fn print(&mut self, text: &str) {
        if let Err(error) = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush())
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            eprintln!("dunlin bench: the result cannot be printed: {error}");
            self.clean = false;
        }
    }

    /// Says something that the user must know; it also stands in the files.
    pub fn note(&mut self, text: String) {
        eprintln!("dunlin bench: {text}");
        self.document.notes.push(text);
    }

    /// Drops what was kept: the tests run again.
    pub fn forget(&mut self) {
        self.document.runs.clear();
    }

    /// Writes the files; how it all ended.
    pub fn finish(self) -> Result<End, String> {
        if let Some(path) = &self.output.json {
            let mut text =
                serde_json::to_string_pretty(&self.document).map_err(|e| e.to_string())?;
            text.push('\n');
            write_file(path, &text)?;
        }
        if let Some(path) = &self.output.report {
            write_file(path, &html::page(&self.document)?)?;
        }
        Ok(match (self.interrupted, self.clean) {
            (true, _) => End::Interrupted,
            (false, true) => End::Clean,
            (false, false) => End::Unclean,
        })
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// What to say of reads that found nothing: such figures are those of an empty server.
fn misses(tally: &Tally) -> Option<String> {
    let share = tally.misses as f64 / tally.requests().max(1) as f64;
    (tally.reads && share >= MANY_MISSES).then(|| {
        format!(
            "{}: {:.0} % of the reads found no key. Write the same names first: the tests (-t) \
             name keys key:000000000007, --key-prefix and --ratio name them PREFIX7",
            tally.name,
            (share * 100.0).floor().min(100.0)
        )
    })
}

/// The share of misses from which on a result says so.
const MANY_MISSES: f64 = 0.1;
