//! A reply to INFO, read line by line.

/// A line of a reply: a field in its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The section's title.
    pub section: &'a str,
    /// The field's name.
    pub name: &'a str,
    /// Its value.
    pub value: &'a str,
}

impl Field<'_> {
    /// The value as a number; words for success and failure are 1 and 0.
    pub fn number(&self) -> Option<f64> {
        match self.value {
            "ok" | "true" => Some(1.0),
            "err" | "fail" | "false" => Some(0.0),
            number => number.parse().ok(),
        }
    }
}

/// The fields of a reply in order.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    all: Vec<Field<'a>>,
    /// Titles of sections, and where their fields begin.
    sections: Vec<(&'a str, usize)>,
}

impl<'a> Fields<'a> {
    /// Reads a reply.
    pub fn parse(text: &'a str) -> Fields<'a> {
        let (mut all, mut sections) = (Vec::new(), vec![("", 0)]);
        let mut section = "";
        for line in text.lines().map(str::trim) {
            if let Some(title) = line.strip_prefix("# ") {
                section = title;
                sections.push((title, all.len()));
            } else if let Some((name, value)) = line.split_once(':') {
                all.push(Field { section, name, value });
            }
        }
        Fields { all, sections }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Field<'a>> {
        self.all.iter()
    }

    /// Those of a section.
    pub fn of(&self, section: &str) -> impl Iterator<Item = &Field<'a>> + use<'_, 'a> {
        let number = self.sections.iter().position(|(title, _)| *title == section);
        let start = |number: usize| self.sections.get(number).map_or(self.all.len(), |(_, at)| *at);
        let range = number.map_or(0..0, |number| start(number)..start(number + 1));
        self.all.get(range).unwrap_or_default().iter()
    }

    /// The databases of SELECT that have keys, with their values.
    pub fn databases(&self) -> impl Iterator<Item = (u32, &'a str)> {
        self.all.iter().filter_map(|field| Some((database(field.name)?, field.value)))
    }

    /// The value of a field; empty if it is not there.
    pub fn text(&self, name: &str) -> &'a str {
        self.find(name).unwrap_or_default()
    }

    /// The value of a field, if it is there.
    pub fn find(&self, name: &str) -> Option<&'a str> {
        self.all.iter().find(|field| field.name == name).map(|field| field.value)
    }
}

/// The database that a field is about, if that is what its name says.
pub fn database(name: &str) -> Option<u32> {
    name.strip_prefix("db")?.parse().ok()
}

/// A part of a value of the form `a=1,b=2`.
pub fn part<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value
        .split(',')
        .find_map(|part| part.split_once('=').filter(|(other, _)| *other == name))
        .map(|(_, text)| text)
}

/// The parts of such a value that are numbers.
pub fn numbers(value: &str) -> impl Iterator<Item = (&str, f64)> {
    value.split(',').filter_map(|part| {
        let (name, number) = part.split_once('=')?;
        Some((name, number.parse().ok()?))
    })
}

/// A part that is a number.
pub fn number(value: &str, name: &str) -> Option<f64> {
    part(value, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_parts_are_found() {
        let fields =
            Fields::parse("# A\r\nx:1\r\n\r\n# Keyspace\r\ndb0:keys=3,expires=1\r\nstatus:ok\r\n");
        assert_eq!(fields.text("x"), "1");
        assert_eq!(fields.find("y"), None);
        let of_database = fields.of("Keyspace").next().map(|field| field.value).unwrap_or_default();
        assert_eq!((number(of_database, "expires"), number(of_database, "no")), (Some(1.0), None));
        assert_eq!(fields.databases().collect::<Vec<_>>(), [(0, "keys=3,expires=1")]);
        assert_eq!(fields.all().last().and_then(Field::number), Some(1.0));
    }
}
