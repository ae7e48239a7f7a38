//! The text format of Prometheus, version 0.0.4: families, each with its help and type, and their
//! samples.

use crate::go_number::special;
use std::fmt::Write as _;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// May go up and down.
    Gauge,
    /// Goes up, and falls to 0 when it is reset.
    Counter,
    /// Counts by size: samples named `_bucket`, `_sum` and `_count`.
    Histogram,
    /// Percentiles: samples with the label `quantile`, and those named `_sum` and `_count`.
    Summary,
}

impl Kind {
    /// As the format names it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        }
    }
}

/// A label and its value.
pub type Label<'a> = (&'a str, &'a str);

/// Writes families one after the other.
#[derive(Debug, Default)]
pub struct Exposition {
    out: String,
}

impl Exposition {
    /// The text.
    pub fn into_text(self) -> String {
        self.out
    }

    /// Begins a family. It is left out if it gets no sample.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &'a str) -> Family<'a> {
        Family { out: &mut self.out, name, kind, help, is_begun: false }
    }

    /// A family of one sample without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help).sample(&[], value);
    }
}

/// A family that is being written.
#[derive(Debug)]
pub struct Family<'a> {
    out: &'a mut String,
    name: &'a str,
    kind: Kind,
    help: &'a str,
    is_begun: bool,
}

impl Family<'_> {
    /// Writes a sample.
    pub fn sample(&mut self, labels: &[Label<'_>], value: f64) {
        self.suffixed("", labels, value);
    }

    /// Writes a sample whose name is the family's and `suffix`.
    pub fn suffixed(&mut self, suffix: &str, labels: &[Label<'_>], value: f64) {
        self.begin();
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        for (number, (label, text)) in labels.iter().enumerate() {
            self.out.push_str(if number == 0 { "{" } else { "," });
            self.out.push_str(label);
            self.out.push_str("=\"");
            escape(self.out, text, true);
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        self.out.push(' ');
        number(self.out, value);
        self.out.push('\n');
    }

    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let _ = write!(self.out, "# HELP {} ", self.name);
        escape(self.out, self.help, false);
        let _ = write!(self.out, "\n# TYPE {} {}\n", self.name, self.kind.name());
    }
}

/// Writes a number. Most are whole, and as such written in a fifth of the time.
fn number(out: &mut String, value: f64) {
    const EXACT: f64 = (1_u64 << 53) as f64;
    // Writing to a string cannot fail.
    let _ = if !value.is_finite() {
        out.write_str(special(value))
    } else if value.fract() == 0.0 && value.abs() < EXACT {
        write!(out, "{}", value as i64)
    } else {
        write!(out, "{value}")
    };
}

/// Writes a text whose backslashes and line ends, and quotes in a label, are escaped.
fn escape(out: &mut String, text: &str, is_label: bool) {
    let is_special = |c: char| matches!(c, '\\' | '\n') || (is_label && c == '"');
    if !text.bytes().any(|byte| is_special(char::from(byte))) {
        out.push_str(text);
        return;
    }
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            c if is_special(c) => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_and_escaped() {
        let mut text = Exposition::default();
        text.family("none", Kind::Gauge, "Left out.");
        text.single("up", Kind::Gauge, "Line\nbreak \"and\" \\", 1.0);
        let mut family = text.family("calls", Kind::Counter, "Calls.");
        family.sample(&[("cmd", "a\"\\\n"), ("db", "0")], 2.5);
        family.suffixed("_sum", &[], f64::NAN);
        let mut label = String::new();
        escape(&mut label, "a\"b\\c\n", true);
        assert_eq!(label, "a\\\"b\\\\c\\n");
        assert_eq!(
            text.into_text(),
            "# HELP up Line\\nbreak \"and\" \\\\\n# TYPE up gauge\nup 1\n\
             # HELP calls Calls.\n# TYPE calls counter\ncalls{cmd=\"a\\\"\\\\\\n\",db=\"0\"} 2.5\n\
             calls_sum NaN\n"
        );
    }
}
