//! Expressions over the attributes of elements: VSIM's FILTER.
//!
//! ```text
//!  or, ||   and, &&   not, !   == != < <= > >= in   + -   * / %   **   (…)
//!  .field   1.5   "text" 'text'   true false null   [1, "a"]
//! ```
//!
//! An expression becomes operations in postfix order, which need a stack but no recursion. An
//! element without attributes, with such that are no JSON, or without a field that is used and
//! decides, does not match.

use serde_json::Value as Json;

/// The longest expression in bytes.
const MAX_LEN: usize = 64 << 10;
/// The deepest nesting.
const MAX_DEPTH: usize = 100;

/// An expression that can be applied.
#[derive(Clone, Debug)]
pub struct Filter(Vec<Op>);

/// An expression that is none, with the place in it from which on it is not understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidFilter(pub usize);

#[derive(Clone, Debug)]
enum Op {
    Push(Item),
    Field(String),
    List(usize),
    Not,
    Binary(Binary),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Binary {
    Or,
    And,
    Equal,
    Differ,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Plus,
    Minus,
    Times,
    Divided,
    Modulo,
    Power,
}

/// The operators by precedence, the weakest first; of one that begins another the longer is first.
const OPERATORS: &[&[(&str, Binary)]] = &[
    &[("||", Binary::Or), ("or", Binary::Or)],
    &[("&&", Binary::And), ("and", Binary::And)],
    &[
        ("==", Binary::Equal),
        ("!=", Binary::Differ),
        (">=", Binary::GreaterOrEqual),
        ("<=", Binary::LessOrEqual),
        (">", Binary::Greater),
        ("<", Binary::Less),
        ("in", Binary::In),
    ],
    &[("+", Binary::Plus), ("-", Binary::Minus)],
    &[("*", Binary::Times), ("/", Binary::Divided), ("%", Binary::Modulo)],
    &[("**", Binary::Power)],
];

#[derive(Clone, PartialEq, Debug)]
enum Item {
    Null,
    Number(f64),
    Text(String),
    List(Vec<Item>),
}

impl Filter {
    /// Reads an expression.
    ///
    /// # Errors
    /// It is none, or it is too long or too deep.
    pub fn parse(text: &[u8]) -> Result<Filter, InvalidFilter> {
        if text.len() > MAX_LEN {
            return Err(InvalidFilter(MAX_LEN));
        }
        let mut parser = Parser { text, at: 0, depth: 0, ops: Vec::new() };
        parser.binary(0)?;
        parser.space();
        if parser.at == text.len() { Ok(Filter(parser.ops)) } else { Err(parser.error()) }
    }

    /// Returns whether attributes, a JSON text, match.
    pub fn accepts(&self, attributes: &[u8]) -> bool {
        let Ok(Json::Object(fields)) = serde_json::from_slice(attributes) else { return false };
        let mut stack: Vec<Item> = Vec::new();
        for op in &self.0 {
            let item = match op {
                Op::Push(item) => Some(item.clone()),
                Op::Field(name) => fields.get(name).and_then(item),
                Op::List(len) => Some(Item::List(stack.split_off(stack.len() - len))),
                Op::Not => stack.pop().map(|item| truth(!item.is_true())),
                Op::Binary(op) => match (stack.pop(), stack.pop()) {
                    (Some(right), Some(left)) => apply(*op, &left, &right),
                    _ => None,
                },
            };
            match item {
                Some(item) => stack.push(item),
                None => return false,
            }
        }
        stack.pop().is_some_and(|item| item.is_true())
    }
}

/// Returns a value of a document. Objects are none that expressions know.
fn item(json: &Json) -> Option<Item> {
    Some(match json {
        Json::Null => Item::Null,
        Json::Bool(value) => truth(*value),
        Json::Number(number) => Item::Number(number.as_f64()?),
        Json::String(text) => Item::Text(text.clone()),
        Json::Array(items) => Item::List(items.iter().map(item).collect::<Option<_>>()?),
        Json::Object(_) => return None,
    })
}

fn truth(value: bool) -> Item {
    Item::Number(f64::from(u8::from(value)))
}

impl Item {
    fn is_true(&self) -> bool {
        match self {
            Item::Null => false,
            Item::Number(number) => *number != 0.0,
            Item::Text(text) => !text.is_empty(),
            Item::List(items) => !items.is_empty(),
        }
    }

    /// Returns the number that an item is in a sum or comparison.
    fn number(&self) -> f64 {
        match self {
            Item::Number(number) => *number,
            Item::Text(text) => text.trim().parse().unwrap_or(0.0),
            Item::Null | Item::List(_) => 0.0,
        }
    }
}

fn equal(left: &Item, right: &Item) -> bool {
    match (left, right) {
        (Item::Text(_), Item::Text(_)) | (Item::List(_), Item::List(_)) => left == right,
        (Item::Null, _) | (_, Item::Null) => left == right,
        _ => left.number() == right.number(),
    }
}

/// Returns what an operator makes of two items; nothing if it does not apply to them.
fn apply(op: Binary, left: &Item, right: &Item) -> Option<Item> {
    let (a, b) = (left.number(), right.number());
    Some(match op {
        Binary::Or => truth(left.is_true() || right.is_true()),
        Binary::And => truth(left.is_true() && right.is_true()),
        Binary::Equal => truth(equal(left, right)),
        Binary::Differ => truth(!equal(left, right)),
        Binary::Less => truth(a < b),
        Binary::LessOrEqual => truth(a <= b),
        Binary::Greater => truth(a > b),
        Binary::GreaterOrEqual => truth(a >= b),
        Binary::In => match (left, right) {
            (_, Item::List(items)) => truth(items.iter().any(|other| equal(left, other))),
            (Item::Text(part), Item::Text(whole)) => truth(whole.contains(part.as_str())),
            _ => return None,
        },
        Binary::Plus => Item::Number(a + b),
        Binary::Minus => Item::Number(a - b),
        Binary::Times => Item::Number(a * b),
        Binary::Divided => Item::Number(a / b),
        Binary::Modulo => Item::Number(a % b),
        Binary::Power => Item::Number(a.powf(b)),
    })
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    ops: Vec<Op>,
}

type Parsed = Result<(), InvalidFilter>;

impl Parser<'_> {
    fn error(&self) -> InvalidFilter {
        InvalidFilter(self.at)
    }

    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at += self.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }

    /// Passes a word or sign if it is next. A word ends where no letter follows.
    fn passes(&mut self, word: &str) -> bool {
        self.space();
        let rest = self.rest();
        let is_word = word.as_bytes()[0].is_ascii_alphabetic();
        let follows = rest.get(word.len()).is_some_and(|byte| is_of_name(*byte));
        let is_next = rest.starts_with(word.as_bytes()) && !(is_word && follows);
        if is_next {
            self.at += word.len();
        }
        is_next
    }

    fn operator(&mut self, level: usize) -> Option<Binary> {
        self.space();
        if level == 4 && self.rest().starts_with(b"**") {
            return None;
        }
        OPERATORS[level].iter().find(|(word, _)| self.passes(word)).map(|&(_, op)| op)
    }

    /// Reads operands joined by operators of a level or of stronger ones.
    fn binary(&mut self, level: usize) -> Parsed {
        if level == OPERATORS.len() {
            return self.unary();
        }
        self.binary(level + 1)?;
        while let Some(op) = self.operator(level) {
            self.binary(level + 1)?;
            self.ops.push(Op::Binary(op));
        }
        Ok(())
    }

    fn unary(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error());
        }
        let is_not = self.passes("not") || (!self.rest().starts_with(b"!=") && self.passes("!"));
        if is_not {
            self.unary()?;
            self.ops.push(Op::Not);
        } else if self.passes("(") {
            self.binary(0)?;
            if !self.passes(")") {
                return Err(self.error());
            }
        } else {
            self.operand()?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn operand(&mut self) -> Parsed {
        self.space();
        match self.rest().first().copied() {
            Some(b'.') => {
                self.at += 1;
                let len = self.rest().iter().take_while(|byte| is_of_name(**byte)).count();
                if len == 0 {
                    return Err(self.error());
                }
                let name = String::from_utf8_lossy(&self.rest()[..len]).into_owned();
                self.at += len;
                self.ops.push(Op::Field(name));
                Ok(())
            }
            Some(b'[') => self.list(),
            Some(b'"' | b'\'') => self.quoted(),
            _ => {
                let words = [("true", 1.0), ("false", 0.0)];
                if let Some((_, value)) = words.into_iter().find(|(word, _)| self.passes(word)) {
                    self.ops.push(Op::Push(Item::Number(value)));
                    return Ok(());
                }
                if self.passes("null") {
                    self.ops.push(Op::Push(Item::Null));
                    return Ok(());
                }
                self.number()
            }
        }
    }

    fn list(&mut self) -> Parsed {
        self.at += 1;
        let mut len = 0;
        if !self.passes("]") {
            loop {
                self.unary()?;
                len += 1;
                if self.passes("]") {
                    break;
                }
                if !self.passes(",") {
                    return Err(self.error());
                }
            }
        }
        self.ops.push(Op::List(len));
        Ok(())
    }

    fn quoted(&mut self) -> Parsed {
        let start = self.at;
        let quote = self.text[start];
        let mut bytes = Vec::new();
        let mut at = start + 1;
        loop {
            match self.text.get(at) {
                None => return Err(InvalidFilter(start)),
                Some(&byte) if byte == quote => break,
                Some(b'\\') => {
                    at += 1;
                    match self.text.get(at) {
                        None => return Err(InvalidFilter(start)),
                        Some(b'n') => bytes.push(b'\n'),
                        Some(b't') => bytes.push(b'\t'),
                        Some(b'r') => bytes.push(b'\r'),
                        Some(&byte) => bytes.push(byte),
                    }
                }
                Some(&byte) => bytes.push(byte),
            }
            at += 1;
        }
        self.at = at + 1;
        self.ops.push(Op::Push(Item::Text(String::from_utf8_lossy(&bytes).into_owned())));
        Ok(())
    }

    fn number(&mut self) -> Parsed {
        let rest = self.rest();
        let sign = usize::from(rest.first().is_some_and(|byte| matches!(byte, b'-' | b'+')));
        let mut len = sign;
        while let Some(byte) = rest.get(len) {
            let is_exponent_sign =
                matches!(byte, b'-' | b'+') && len > sign && matches!(rest[len - 1], b'e' | b'E');
            if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E') || is_exponent_sign) {
                break;
            }
            len += 1;
        }
        let number = str::from_utf8(&rest[..len]).ok().and_then(|text| text.parse().ok());
        let Some(number) = number else { return Err(self.error()) };
        self.at += len;
        self.ops.push(Op::Push(Item::Number(number)));
        Ok(())
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(filter: &str) -> bool {
        let attributes = br#"{"year":1984,"name":"Alien","tags":["a","b"],"ok":true,"no":null}"#;
        Filter::parse(filter.as_bytes()).expect(filter).accepts(attributes)
    }

    #[test]
    fn expressions_mean_what_they_say() {
        for filter in [
            ".year == 1984",
            ".year >= 1980 and .year < 1990",
            ".year > 2000 || .name == 'Alien'",
            "not (.year > 2000)",
            "!(.year > 2000) && .ok",
            "'a' in .tags",
            ".year in [1, 1984]",
            "\"lie\" in .name",
            ".year % 2 == 0",
            "1 + 2 * 3 ** 2 == 19",
            ".no == null",
            "-1 < 0",
            "[1, 'a'] == [1, \"a\"]",
        ] {
            assert!(accepts(filter), "{filter}");
        }
        for filter in [".missing == 1", ".year == 1", "'c' in .tags", "not .ok", "0", "''"] {
            assert!(!accepts(filter), "{filter}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for filter in ["", "(", ".a ==", ".", "'x", "1 2", ".a in [1", "and", "[1,]"] {
            assert!(Filter::parse(filter.as_bytes()).is_err(), "{filter}");
        }
        assert!(Filter::parse(&[b'('; 10_000]).is_err());
        assert!(Filter::parse(&[b'!'; 10_000]).is_err());
        assert!(Filter::parse(&[b'['; 10_000]).is_err());
        let chain = ["1"; 10_000].join("+");
        assert!(Filter::parse(chain.as_bytes()).expect("flat").accepts(b"{}"));
    }
}
