//! What INFO says: fields by name, and lines of fields.

use metrics::info::{Fields, database, number, numbers, part};
use std::collections::HashMap;

/// A reply to INFO.
#[derive(Clone, Debug, Default)]
pub struct Info {
    fields: HashMap<String, String>,
    /// Names in the order of the reply, each with its section.
    order: Vec<(String, String)>,
}

impl Info {
    /// Reads a reply.
    pub fn parse(text: &str) -> Info {
        let mut info = Info::default();
        for field in Fields::parse(text).all() {
            info.order.push((field.section.to_owned(), field.name.to_owned()));
            info.fields.insert(field.name.to_owned(), field.value.to_owned());
        }
        info
    }

    /// A field as text; empty if it is not there.
    pub fn text(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// A field as a number; 0 if it is none.
    pub fn number(&self, name: &str) -> f64 {
        self.find(name).unwrap_or(0.0)
    }

    /// A field as a number, if it is there.
    pub fn find(&self, name: &str) -> Option<f64> {
        self.fields.get(name)?.trim_end_matches('%').parse().ok()
    }

    /// Whether a field is 1.
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name) == "1"
    }

    /// All fields in order: section, name, value.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.order.iter().map(|(section, name)| (section.as_str(), name.as_str(), self.text(name)))
    }

    /// The fields whose names are a prefix and something, in order: that something, and the parts
    /// of the value.
    pub fn lines<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, Parts<'a>)> {
        self.all()
            .filter_map(move |(_, name, value)| Some((name.strip_prefix(prefix)?, Parts(value))))
    }

    /// The parts of a field; it has none if it is not there.
    pub fn parts(&self, name: &str) -> Parts<'_> {
        Parts(self.text(name))
    }

    /// Sums a part over the lines of databases.
    pub fn sum_of_databases(&self, part: &str) -> f64 {
        self.all()
            .filter(|(_, name, _)| database(name).is_some())
            .map(|(.., value)| Parts(value).number(part))
            .sum()
    }
}

/// A value of the form `a=1,b=2`.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a>(&'a str);

impl<'a> Parts<'a> {
    /// A part as text; empty if it is not there.
    pub fn text(&self, name: &str) -> &'a str {
        part(self.0, name).unwrap_or_default()
    }

    /// The parts that are numbers, in order, with their names.
    pub fn numbers(&self) -> impl Iterator<Item = (&'a str, f64)> {
        numbers(self.0)
    }

    /// A part as a number; 0 if it is none.
    pub fn number(&self, name: &str) -> f64 {
        number(self.0, name).unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_parts_are_found() {
        let info = Info::parse(
            "# A\r\nused:5\r\nshare:7.5%\r\n\r\n# Keyspace\r\ndb0:keys=3,expires=1\r\ndb9:keys=4\r\n",
        );
        assert_eq!((info.number("used"), info.number("share"), info.number("no")), (5.0, 7.5, 0.0));
        assert_eq!(info.sum_of_databases("keys"), 7.0);
        assert_eq!(info.all().nth(2), Some(("Keyspace", "db0", "keys=3,expires=1")));
    }
}
