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
pub struct Fields<'a>(Vec<Field<'a>>);

impl<'a> Fields<'a> {
    /// Reads a reply.
    pub fn parse(text: &'a str) -> Fields<'a> {
        let mut section = "";
        let read = |line: &'a str| {
            if let Some(title) = line.strip_prefix("# ") {
                section = title;
                return None;
            }
            let (name, value) = line.split_once(':')?;
            Some(Field { section, name, value })
        };
        Fields(text.lines().map(str::trim).filter_map(read).collect())
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Field<'a>> {
        self.0.iter()
    }

    /// Those of a section.
    pub fn of<'b>(&'b self, section: &'b str) -> impl Iterator<Item = &'b Field<'a>> {
        self.0.iter().filter(move |field| field.section == section)
    }

    /// The value of a field; empty if it is not there.
    pub fn text(&self, name: &str) -> &'a str {
        self.find(name).unwrap_or_default()
    }

    /// The value of a field, if it is there.
    pub fn find(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|field| field.name == name).map(|field| field.value)
    }
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
        assert_eq!(fields.all().last().and_then(Field::number), Some(1.0));
    }
}
