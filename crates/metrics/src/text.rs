//! The text format of Prometheus, version 0.0.4: families, each with its help and type, and their
//! samples.

use crate::go_number::special;
use std::collections::BTreeMap;
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

/// Joins the texts of several servers into one, in which each family is once. Samples get the
/// labels of their server before their own.
pub fn join<'a, L: AsRef<[Label<'a>]>>(servers: &[(L, &str)]) -> String {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut families: Vec<String> = Vec::new();
    for (labels, text) in servers {
        let mut own = String::new();
        write_labels(&mut own, labels.as_ref());
        let (mut place, mut is_new) = (0, false);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let name = rest.split(' ').next().unwrap_or_default();
                is_new = !places.contains_key(name);
                place = *places.entry(name).or_insert(families.len());
                families.resize(families.len().max(place + 1), String::new());
            }
            let Some(family) = families.get_mut(place) else { continue };
            if line.starts_with('#') {
                // The first server's head is that of all.
                if is_new {
                    *family += line;
                    family.push('\n');
                }
            } else {
                push_labelled(family, line, &own);
            }
        }
    }
    families.concat()
}

/// Writes a sample with more labels: `labels` as they stand between the braces.
fn push_labelled(out: &mut String, sample: &str, labels: &str) {
    let end = sample.find(['{', ' ']).unwrap_or(sample.len());
    let (name, rest) = sample.split_at(end);
    // Writing to a string cannot fail.
    let _ = match rest.strip_prefix('{') {
        Some(rest) => writeln!(out, "{name}{{{labels},{rest}"),
        None => writeln!(out, "{name}{{{labels}}}{rest}"),
    };
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
        if !labels.is_empty() {
            self.out.push('{');
            write_labels(self.out, labels);
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

/// Writes labels as they stand between the braces.
fn write_labels(out: &mut String, labels: &[Label<'_>]) {
    for (number, (label, text)) in labels.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        out.push_str(label);
        out.push_str("=\"");
        escape(out, text, true);
        out.push('"');
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
    fn servers_are_joined_by_family() {
        let text = |calls: f64, has_up: bool| {
            let mut text = Exposition::default();
            let mut family = text.family("calls", Kind::Counter, "Calls.");
            family.sample(&[("cmd", "a b{")], calls);
            family.suffixed("_sum", &[], 2.0);
            if has_up {
                text.single("up", Kind::Gauge, "Up.", 1.0);
            }
            text.into_text()
        };
        let (first, second) = ([("database", "d"), ("shard", "0")], [("database", "e\"")]);
        let texts = [text(1.0, false), text(7.0, true)];
        assert_eq!(
            join(&[(&first[..], &*texts[0]), (&second[..], &*texts[1])]),
            "# HELP calls Calls.\n# TYPE calls counter\n\
             calls{database=\"d\",shard=\"0\",cmd=\"a b{\"} 1\n\
             calls_sum{database=\"d\",shard=\"0\"} 2\n\
             calls{database=\"e\\\"\",cmd=\"a b{\"} 7\ncalls_sum{database=\"e\\\"\"} 2\n\
             # HELP up Up.\n# TYPE up gauge\nup{database=\"e\\\"\"} 1\n"
        );
    }

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
