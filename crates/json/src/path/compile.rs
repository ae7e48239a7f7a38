//! From the text of a path to its tree: a parser by recursive descent, one function for each rule
//! of the grammar in `ast.rs`.

use super::ast::{Arithmetic, Comparison, Expression, Function, NameRef, Query, Selector, Step};
use super::limits::{MAX_FILTERS, MAX_NESTING, MAX_PATH_LEN, MAX_RECURSIVE_STEPS};
use super::pattern::Pattern;
use super::result::PathError;
use crate::Limits;
use crate::document::Document;
use std::collections::HashMap;

type Result<T> = std::result::Result<T, PathError>;

/// What a text compiles to.
pub(crate) struct Compiled {
    pub(crate) expression: Expression,
    pub(crate) names: Vec<Box<str>>,
    pub(crate) legacy: bool,
}

/// Compiles a path of either language.
pub(crate) fn compile(text: &str) -> Result<Compiled> {
    if text.len() > MAX_PATH_LEN {
        return Err(PathError(format!("path is longer than {MAX_PATH_LEN} bytes")));
    }
    let expression = || {
        let mut parser = Parser::new(text);
        let expression = parser.whole_expression()?;
        Ok(Compiled { expression, names: parser.names, legacy: false })
    };
    if text.trim_start().starts_with('$') || is_expression(text) {
        return expression();
    }
    let mut parser = Parser::new(text);
    match parser.legacy() {
        Ok(expression) => Ok(Compiled { expression, names: parser.names, legacy: true }),
        // `1 + $.a` is no legacy path.
        Err(error) if text.contains('$') => expression().map_err(|_| error),
        Err(error) => Err(error),
    }
}

/// Returns whether a text that does not begin with `$` is an expression with paths: it begins with
/// a bracket, an operator before one or before `$`, or a call.
fn is_expression(text: &str) -> bool {
    let text = text.trim_start();
    let name_len = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    if name_len > 0 && text[name_len..].starts_with('(') {
        return Function::find(&text[..name_len]).is_some();
    }
    let behind = text.trim_start_matches(['-', '+', '!', ' ']);
    behind.starts_with('(') || behind.len() < text.len() && behind.starts_with('$')
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    names: Vec<Box<str>>,
    known_names: HashMap<String, NameRef>,
    recursive_steps: usize,
    /// Brackets, calls and operators of one operand inside each other.
    nesting: usize,
    filters: usize,
}

/// Ends the name of a member that is written without quotes.
fn ends_name(byte: u8) -> bool {
    byte <= b' ' || b".[]()<>=!'\"&|,~*?".contains(&byte)
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Parser<'t> {
        Parser {
            text,
            at: 0,
            names: Vec::new(),
            known_names: HashMap::new(),
            recursive_steps: 0,
            nesting: 0,
            filters: 0,
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Passes over a token if it comes next.
    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect<T>(&self, what: &str) -> Result<T> {
        Err(PathError(format!(
            "Error occurred on position {}, expected {what}",
            self.text[..self.at].chars().count() + 1
        )))
    }

    fn require(&mut self, token: &str) -> Result<()> {
        self.skip_spaces();
        if self.eat(token) { Ok(()) } else { self.expect(&format!("\"{token}\"")) }
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting == MAX_NESTING {
            return Err(PathError("path has too many nested expressions".to_owned()));
        }
        self.nesting += 1;
        let parsed = parse(self)?;
        self.nesting -= 1;
        Ok(parsed)
    }

    /// `.a.b[0]`, `a.b`, `["a"]`, `.`: the root need not be written.
    fn legacy(&mut self) -> Result<Expression> {
        self.skip_spaces();
        let mut steps = Vec::new();
        let alone = self.rest().trim_end() == ".";
        if alone {
            self.at += 1;
        } else if self.peek().is_some_and(|byte| byte != b'.' && byte != b'[') {
            steps.push(self.dot_step(false)?);
        }
        let expression = self.steps(true, steps)?;
        self.skip_spaces();
        match (self.peek(), expression) {
            (None, Expression::Query(query)) if alone || !query.steps.is_empty() => {
                Ok(Expression::Query(query))
            }
            _ => self.expect("a path"),
        }
    }

    fn whole_expression(&mut self) -> Result<Expression> {
        let expression = self.or()?;
        self.skip_spaces();
        if self.at < self.text.len() { self.expect("the end of the path") } else { Ok(expression) }
    }

    fn or(&mut self) -> Result<Expression> {
        self.list("||", Self::and, Expression::Or)
    }

    fn and(&mut self) -> Result<Expression> {
        self.list("&&", Self::not, Expression::And)
    }

    fn list(
        &mut self,
        operator: &str,
        operand: fn(&mut Self) -> Result<Expression>,
        make: fn(Box<[Expression]>) -> Expression,
    ) -> Result<Expression> {
        let first = operand(self)?;
        let mut operands = vec![first];
        loop {
            self.skip_spaces();
            if !self.eat(operator) {
                break;
            }
            operands.push(operand(self)?);
        }
        Ok(if operands.len() == 1 { operands.remove(0) } else { make(operands.into()) })
    }

    fn not(&mut self) -> Result<Expression> {
        self.skip_spaces();
        if self.peek() == Some(b'!') && !self.rest().starts_with("!=") {
            self.at += 1;
            return Ok(Expression::Not(Box::new(self.nested(Self::not)?)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expression> {
        let left = self.sum()?;
        let Some(operator) = self.comparison_operator() else { return Ok(left) };
        let right = self.sum()?;
        if operator == Comparison::Matches
            && let Expression::Literal(literal) = &right
        {
            let pattern = literal.root().as_str().and_then(|text| Pattern::new(text, false));
            return Ok(Expression::Matches(Box::new(left), pattern));
        }
        Ok(Expression::Compare(operator, Box::new((left, right))))
    }

    fn comparison_operator(&mut self) -> Option<Comparison> {
        const SIGNS: [(&str, Comparison); 7] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            ("<", Comparison::Less),
            (">=", Comparison::GreaterOrEqual),
            (">", Comparison::Greater),
            ("=~", Comparison::Matches),
        ];
        const WORDS: [(&str, Comparison); 8] = [
            ("in", Comparison::In),
            ("nin", Comparison::NotIn),
            ("subsetof", Comparison::SubsetOf),
            ("anyof", Comparison::AnyOf),
            ("noneof", Comparison::NoneOf),
            ("sizeof", Comparison::SizeOf),
            ("size", Comparison::SizeOf),
            ("empty", Comparison::Empty),
        ];
        self.skip_spaces();
        if let Some((_, operator)) = SIGNS.iter().find(|(sign, _)| self.eat(sign)) {
            return Some(*operator);
        }
        let word = &self.rest()[..self.word_len()];
        let (word, operator) = WORDS.iter().find(|(known, _)| *known == word)?;
        self.at += word.len();
        Some(*operator)
    }

    /// Returns the length of the word of letters that comes next.
    fn word_len(&self) -> usize {
        self.rest().bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
    }

    fn sum(&mut self) -> Result<Expression> {
        let operators = [("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
        self.arithmetic(&operators, Self::product)
    }

    fn product(&mut self) -> Result<Expression> {
        let operators =
            [("*", Arithmetic::Multiply), ("/", Arithmetic::Divide), ("%", Arithmetic::Remainder)];
        self.arithmetic(&operators, Self::unary)
    }

    fn arithmetic(
        &mut self,
        operators: &[(&str, Arithmetic)],
        operand: fn(&mut Self) -> Result<Expression>,
    ) -> Result<Expression> {
        let mut left = operand(self)?;
        let mut depth = 0;
        loop {
            self.skip_spaces();
            let Some((_, operator)) = operators.iter().find(|(sign, _)| self.eat(sign)) else {
                return Ok(left);
            };
            // A chain is evaluated as deeply as it is long.
            depth += 1;
            if depth > MAX_NESTING {
                return Err(PathError("path has too many operators in a row".to_owned()));
            }
            let right = operand(self)?;
            left = Expression::Arithmetic(*operator, Box::new((left, right)));
        }
    }

    fn unary(&mut self) -> Result<Expression> {
        self.skip_spaces();
        let is_number = |rest: &str| rest[1..].starts_with(|c: char| c.is_ascii_digit());
        match self.peek() {
            Some(b'-') if !is_number(self.rest()) => {
                self.at += 1;
                Ok(Expression::Negative(Box::new(self.nested(Self::unary)?)))
            }
            Some(b'+') => {
                self.at += 1;
                Ok(Expression::Positive(Box::new(self.nested(Self::unary)?)))
            }
            _ => self.postfix(),
        }
    }

    fn postfix(&mut self) -> Result<Expression> {
        let mut expression = self.primary()?;
        let mut calls = 0;
        while self.rest().starts_with('.') {
            let start = self.at;
            self.at += 1;
            calls += 1;
            if calls > MAX_NESTING {
                return Err(PathError("path has too many calls in a row".to_owned()));
            }
            expression = match self.call(Some(expression))? {
                Some(call) => call,
                None => {
                    self.at = start;
                    return self.expect("a function");
                }
            };
        }
        if self.eat("~") {
            if matches!(expression, Expression::Call(..)) {
                self.at -= 1;
                return self.expect("the end of the expression");
            }
            expression = Expression::Keys(Box::new(expression));
        }
        Ok(expression)
    }

    /// Parses `name(…)`, with what stands before its dot as the first argument. Nothing if there is
    /// no bracket behind the name.
    fn call(&mut self, receiver: Option<Expression>) -> Result<Option<Expression>> {
        let len = self.word_len();
        let name = &self.rest()[..len];
        if len == 0 || !self.rest()[len..].starts_with('(') {
            return Ok(None);
        }
        let Some(function) = Function::find(name) else { return self.expect("a function") };
        self.at += len + 1;
        let mut arguments: Vec<Expression> = receiver.into_iter().collect();
        self.nested(|parser| {
            parser.skip_spaces();
            if parser.eat(")") {
                return Ok(());
            }
            loop {
                arguments.push(parser.or()?);
                parser.skip_spaces();
                if parser.eat(")") {
                    return Ok(());
                }
                parser.require(",")?;
            }
        })?;
        Ok(Some(call_of(function, arguments)))
    }

    fn primary(&mut self) -> Result<Expression> {
        self.skip_spaces();
        match self.peek() {
            Some(byte @ (b'$' | b'@')) => {
                self.at += 1;
                self.steps(byte == b'$', Vec::new())
            }
            Some(b'(') => {
                self.at += 1;
                let expression = self.nested(Self::or)?;
                self.require(")")?;
                Ok(expression)
            }
            Some(b'\'' | b'"') => {
                let text = self.quoted()?;
                Ok(Expression::Literal(Document::string(&text)))
            }
            Some(b'[' | b'{' | b'-' | b'0'..=b'9') => self.literal(),
            _ => {
                if let Some(call) = self.call(None)? {
                    return Ok(call);
                }
                match &self.rest()[..self.word_len()] {
                    "true" | "false" | "null" => self.literal(),
                    _ => self.expect("a path, a value or a function"),
                }
            }
        }
    }

    /// Parses a literal in JSON's syntax.
    fn literal(&mut self) -> Result<Expression> {
        let len = match self.peek() {
            Some(b'[' | b'{') => self.container_len(),
            Some(b'-' | b'0'..=b'9') => self.number_len(),
            _ => self.word_len(),
        };
        let text = &self.text[self.at..self.at + len];
        match Document::parse(
            text.as_bytes(),
            &Limits { max_depth: MAX_NESTING, ..Limits::default() },
        ) {
            Ok(document) => {
                self.at += len;
                Ok(Expression::Literal(document))
            }
            Err(error) => self.expect(&format!("a value ({error})")),
        }
    }

    fn number_len(&self) -> usize {
        let bytes = self.rest().as_bytes();
        let mut len = 1;
        while let Some(&byte) = bytes.get(len) {
            let sign_of_exponent =
                matches!(byte, b'+' | b'-') && matches!(bytes[len - 1], b'e' | b'E');
            if !byte.is_ascii_digit() && !matches!(byte, b'.' | b'e' | b'E') && !sign_of_exponent {
                break;
            }
            len += 1;
        }
        len
    }

    /// Returns the length up to the bracket that closes the first one.
    fn container_len(&self) -> usize {
        let mut open = 0_usize;
        let mut in_string = false;
        let mut escaped = false;
        for (at, byte) in self.rest().bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'[' | b'{' => open += 1,
                b']' | b'}' => {
                    open -= 1;
                    if open == 0 {
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        self.rest().len()
    }

    /// Parses the steps of a path, up to a method call or anything that is no step.
    fn steps(&mut self, absolute: bool, mut steps: Vec<Step>) -> Result<Expression> {
        loop {
            let start = self.at;
            if self.eat("..") {
                self.recursive_steps += 1;
                if self.recursive_steps > MAX_RECURSIVE_STEPS {
                    let text = format!("path has more than {MAX_RECURSIVE_STEPS} recursive steps");
                    return Err(PathError(text));
                }
                steps.push(if self.rest().starts_with('[') {
                    self.bracket_step(true)?
                } else {
                    self.dot_step(true)?
                });
            } else if self.eat(".") {
                let word_len = self.word_len();
                if word_len > 0 && self.rest()[word_len..].starts_with('(') {
                    self.at = start;
                    break;
                }
                // `.["a"]` is a form of `["a"]`.
                steps.push(if self.rest().starts_with('[') {
                    self.bracket_step(false)?
                } else {
                    self.dot_step(false)?
                });
            } else if self.rest().starts_with('[') {
                steps.push(self.bracket_step(false)?);
            } else {
                break;
            }
        }
        Ok(Expression::Query(Query::new(absolute, steps)))
    }

    fn dot_step(&mut self, recursive: bool) -> Result<Step> {
        if self.eat("*") {
            return Ok(Step { recursive, selector: Selector::Wildcard });
        }
        let len = self.rest().bytes().take_while(|&byte| !ends_name(byte)).count();
        if len == 0 {
            return self.expect("a name or \"*\"");
        }
        let name = &self.rest()[..len];
        self.at += len;
        let selector = Selector::Name(self.name(name));
        Ok(Step { recursive, selector })
    }

    fn bracket_step(&mut self, recursive: bool) -> Result<Step> {
        self.require("[")?;
        let mut selectors = Vec::new();
        loop {
            selectors.push(self.selector()?);
            self.skip_spaces();
            if self.eat("]") {
                break;
            }
            if !self.eat(",") {
                return self.expect("\"]\" or \",\"");
            }
        }
        let selector = if selectors.len() == 1 {
            selectors.remove(0)
        } else {
            Selector::Union(selectors.into())
        };
        Ok(Step { recursive, selector })
    }

    fn selector(&mut self) -> Result<Selector> {
        self.skip_spaces();
        match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Ok(Selector::Wildcard)
            }
            Some(b'\'' | b'"') => {
                let name = self.quoted()?;
                Ok(Selector::Name(self.name(&name)))
            }
            Some(b'?') => {
                self.at += 1;
                self.filters += 1;
                if self.filters > MAX_FILTERS {
                    let text =
                        format!("path has more than {MAX_FILTERS} filters inside each other");
                    return Err(PathError(text));
                }
                let expression = self.nested(Self::or)?;
                self.filters -= 1;
                Ok(Selector::Filter(expression))
            }
            _ => self.index_or_slice(),
        }
    }

    fn index_or_slice(&mut self) -> Result<Selector> {
        let start = self.integer()?;
        self.skip_spaces();
        if !self.eat(":") {
            return match start {
                Some(index) => Ok(Selector::Index(index)),
                None => self.expect("a name in quotes, an index, a slice, \"*\" or a filter"),
            };
        }
        let end = self.integer()?;
        self.skip_spaces();
        let step = if self.eat(":") { self.integer()?.unwrap_or(1) } else { 1 };
        if step == 0 {
            return self.expect("a step that is not 0");
        }
        Ok(Selector::Slice { start, end, step })
    }

    fn integer(&mut self) -> Result<Option<i64>> {
        self.skip_spaces();
        let rest = self.rest();
        let sign = usize::from(rest.starts_with(['-', '+']));
        let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if sign + digits == 0 {
            return Ok(None);
        }
        match rest[..sign + digits].parse() {
            Ok(integer) => {
                self.at += sign + digits;
                Ok(Some(integer))
            }
            Err(_) => self.expect("an integer"),
        }
    }

    /// Parses text in single or double quotes, with the escapes of JSON and that of either quote.
    fn quoted(&mut self) -> Result<String> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else { return self.expect("a quote") };
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let plain =
                self.rest().bytes().take_while(|&byte| byte != quote && byte != b'\\').count();
            text.push_str(&self.rest()[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => {
                    self.at += 1;
                    return Ok(text);
                }
                None => {
                    self.at = start;
                    return self.expect("a closing quote");
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let Some(escaped) = self.rest()[1..].chars().next() else {
            return self.expect("an escaped character");
        };
        let plain = match escaped {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => return self.unicode_escape(),
            other => other,
        };
        self.at += 1 + escaped.len_utf8();
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char> {
        let unit = |rest: &str| {
            let digits = rest.strip_prefix("\\u").and_then(|digits| digits.get(..4))?;
            digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
            u16::from_str_radix(digits, 16).ok()
        };
        let units = [unit(self.rest()), self.rest().get(6..).and_then(unit)];
        for count in 1..=2 {
            let known: Option<Vec<u16>> = units[..count].iter().copied().collect();
            let decoded = known.and_then(|units| char::decode_utf16(units).next()?.ok());
            if let Some(decoded) = decoded {
                self.at += 6 * count;
                return Ok(decoded);
            }
        }
        self.expect("four hexadecimal digits of a character")
    }

    fn name(&mut self, name: &str) -> NameRef {
        if let Some(&known) = self.known_names.get(name) {
            return known;
        }
        let new = self.names.len() as NameRef;
        self.names.push(name.into());
        self.known_names.insert(name.to_owned(), new);
        new
    }
}

/// Returns the expression of a call. Patterns that are literals are compiled here, once.
fn call_of(function: Function, mut arguments: Vec<Expression>) -> Expression {
    let whole = match function {
        Function::Match => true,
        Function::Search => false,
        _ => return Expression::Call(function, arguments.into()),
    };
    match &arguments[..] {
        [_, Expression::Literal(literal)] => {
            let pattern = literal.root().as_str().and_then(|text| Pattern::new(text, whole));
            Expression::Matches(Box::new(arguments.remove(0)), pattern)
        }
        _ => Expression::Call(function, arguments.into()),
    }
}
