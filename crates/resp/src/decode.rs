//! Whole replies: where one ends in a stream that arrives in pieces, and its values as a tree.
//!
//! A client of another server keeps what it has received in a buffer and a [`Scanner`] beside it.
//! The scanner finds the end of the first reply and remembers how far it came, so that a reply of a
//! million elements that arrives in a thousand pieces is not read a thousand times. [`decode`] then
//! makes [`Value`]s of it; [`Incoming`](crate::Incoming) is all three. A reader that makes values of
//! its own takes the [tokens](crate::token) instead.
//!
//! Limits of length and depth hold while the scanner reads, before anything is allocated: a peer
//! that announces two billion elements gets no memory for them until they have come.

use crate::token::{
    Aggregate, InvalidReply, NoToken, ReplyLimits, Token, next_token, string_header,
};
use crate::value::Value;

/// What [`Scanner::scan`] found at the start of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// A whole reply of so many bytes.
    Reply {
        /// Its length.
        len: usize,
    },
    /// Not a whole reply; at least so many more bytes have to come.
    Incomplete {
        /// A lower bound, never 0.
        missing: usize,
    },
}

/// Finds the ends of replies; see the module.
#[derive(Debug)]
pub struct Scanner {
    limits: ReplyLimits,
    /// Bytes of the first reply that have been read.
    at: usize,
    /// Values that each of the open aggregates still lacks, the outermost first.
    open: Vec<usize>,
    /// Of a string that is passed on in parts: the bytes that have not come, its end included.
    body: usize,
}

/// What became of bytes that were passed on: see [`Scanner::pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// So many bytes at the start of the input belong to the reply, and are done with.
    pub bytes: usize,
    /// Whether the reply ends with them.
    pub is_whole: bool,
}

impl Scanner {
    /// A scanner for a new connection.
    pub fn new(limits: ReplyLimits) -> Scanner {
        Scanner { limits, at: 0, open: Vec::new(), body: 0 }
    }

    /// Looks for the end of the first reply of `input`, which must start with the same bytes as at
    /// the last call if that found an incomplete one.
    ///
    /// # Errors
    /// The input does not start with a reply, or with one beyond the limits.
    pub fn scan(&mut self, input: &[u8]) -> Result<Scanned, InvalidReply> {
        loop {
            let (token, len) = match next_token(&input[self.at..], self.limits) {
                Ok(found) => found,
                Err(NoToken::Incomplete { missing }) => return Ok(Scanned::Incomplete { missing }),
                Err(NoToken::Invalid(why)) => return Err(why),
            };
            self.at += len;
            if self.ends_with(token)? {
                return Ok(Scanned::Reply { len: std::mem::take(&mut self.at) });
            }
        }
    }

    /// Goes on with a reply that [`Scanner::scan`] has found incomplete, without having to see it
    /// whole: the input is to go on behind the bytes that are done with. Until the reply is whole,
    /// only this may be called.
    ///
    /// # Errors
    /// The input does not go on with the reply.
    pub fn pass(&mut self, input: &[u8]) -> Result<Passed, InvalidReply> {
        let mut at = std::mem::take(&mut self.at);
        loop {
            let rest = &input[at..];
            if self.body > 2 {
                let len = rest.len().min(self.body - 2);
                self.body -= len;
                at += len;
            }
            if self.body > 0 {
                let rest = &input[at..];
                if self.body > 2 || rest.len() < 2 {
                    return Ok(Passed { bytes: at, is_whole: false });
                }
                if !rest.starts_with(b"\r\n") {
                    return Err(InvalidReply("string longer than its length"));
                }
                self.body = 0;
                at += 2;
                if self.ends_with(Token::Bulk(b""))? {
                    return Ok(Passed { bytes: at, is_whole: true });
                }
                continue;
            }
            match next_token(rest, self.limits) {
                Ok((token, len)) => {
                    at += len;
                    if self.ends_with(token)? {
                        return Ok(Passed { bytes: at, is_whole: true });
                    }
                }
                Err(NoToken::Incomplete { .. }) => match string_header(rest, self.limits)? {
                    Some((header, len)) => {
                        self.body = len + 2;
                        at += header;
                    }
                    None => return Ok(Passed { bytes: at, is_whole: false }),
                },
                Err(NoToken::Invalid(why)) => return Err(why),
            }
        }
    }

    /// Counts a token; says whether the reply ends with it.
    fn ends_with(&mut self, token: Token<'_>) -> Result<bool, InvalidReply> {
        match token {
            Token::Start(Aggregate::Attribute, count) => {
                // The value that the attribute is about follows, in its place.
                self.enter(count + 1)?;
                return Ok(false);
            }
            Token::Start(_, count) if count > 0 => {
                self.enter(count)?;
                return Ok(false);
            }
            _ => {}
        }
        while let Some(lacking) = self.open.last_mut() {
            *lacking -= 1;
            if *lacking > 0 {
                return Ok(false);
            }
            self.open.pop();
        }
        Ok(true)
    }

    fn enter(&mut self, lacking: usize) -> Result<(), InvalidReply> {
        if self.open.len() == self.limits.depth {
            return Err(InvalidReply("too many levels"));
        }
        self.open.push(lacking);
        Ok(())
    }
}

/// The values of one reply, which is all of `input`.
///
/// # Errors
/// The input is not exactly one reply within the limits.
pub fn decode(input: &[u8], limits: ReplyLimits) -> Result<Value, InvalidReply> {
    let mut rest = input;
    let value = take_value(&mut rest, limits, limits.depth)?;
    if rest.is_empty() { Ok(value) } else { Err(InvalidReply("bytes behind the reply")) }
}

fn take_token<'a>(rest: &mut &'a [u8], limits: ReplyLimits) -> Result<Token<'a>, InvalidReply> {
    match next_token(rest, limits) {
        Ok((token, len)) => {
            *rest = &rest[len..];
            Ok(token)
        }
        Err(NoToken::Incomplete { .. }) => Err(InvalidReply("incomplete")),
        Err(NoToken::Invalid(why)) => Err(why),
    }
}

/// The first value of `rest`, with as many levels as there may be.
fn take_value(
    rest: &mut &[u8],
    limits: ReplyLimits,
    mut levels: usize,
) -> Result<Value, InvalidReply> {
    loop {
        let (kind, count) = match take_token(rest, limits)? {
            Token::Simple(text) => return Ok(Value::Simple(text.to_vec())),
            Token::Error(text) => return Ok(Value::Error(text.to_vec())),
            Token::Integer(number) => return Ok(Value::Integer(number)),
            Token::Bulk(text) => return Ok(Value::Bulk(text.to_vec())),
            Token::Verbatim(_, text) => return Ok(Value::Verbatim(text.to_vec())),
            Token::Null => return Ok(Value::Null),
            Token::Double(_, text) => return Ok(Value::Double(text.to_vec())),
            Token::Boolean(value) => return Ok(Value::Boolean(value)),
            Token::BigNumber(digits) => return Ok(Value::BigNumber(digits.to_vec())),
            Token::Start(kind, count) => (kind, count),
        };
        let is_attribute = kind == Aggregate::Attribute;
        if count > 0 || is_attribute {
            levels = levels.checked_sub(1).ok_or(InvalidReply("too many levels"))?;
        }
        let values = take_values(rest, limits, levels, count)?;
        match kind {
            Aggregate::Array => return Ok(Value::Array(values)),
            Aggregate::Set => return Ok(Value::Set(values)),
            Aggregate::Push => return Ok(Value::Push(values)),
            Aggregate::Map => return Ok(Value::Map(pairs(values))),
            // The value that it is about follows.
            Aggregate::Attribute => {}
        }
    }
}

fn take_values(
    rest: &mut &[u8],
    limits: ReplyLimits,
    levels: usize,
    count: usize,
) -> Result<Vec<Value>, InvalidReply> {
    // A value takes three bytes at least, so what has come bounds what is allocated.
    let mut values = Vec::with_capacity(count.min(rest.len() / 3));
    for _ in 0..count {
        values.push(take_value(rest, limits, levels)?);
    }
    Ok(values)
}

fn pairs(values: Vec<Value>) -> Vec<(Value, Value)> {
    let mut values = values.into_iter();
    std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output;
    use crate::reply::{Protocol, Reply};
    use proptest::prelude::*;

    const LIMITS: ReplyLimits = ReplyLimits { depth: 4, bulk_len: 100, elements: 100 };

    /// A value that owns its parts, for making them up.
    #[derive(Clone, Debug)]
    enum Made {
        Bulk(Vec<u8>),
        Error(String),
        Integer(i64),
        Double(f64),
        Boolean(bool),
        Null,
        Verbatim(Vec<u8>),
        Array(Vec<Made>),
        Set(Vec<Made>),
        Map(Vec<(Made, Made)>),
    }

    fn made() -> impl Strategy<Value = Made> {
        let leaf = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Made::Bulk),
            "[A-Z]{1,8} [ -~]{0,20}".prop_map(Made::Error),
            any::<i64>().prop_map(Made::Integer),
            (-1e300..1e300f64).prop_map(Made::Double),
            any::<bool>().prop_map(Made::Boolean),
            Just(Made::Null),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Made::Verbatim),
        ];
        leaf.prop_recursive(3, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Made::Array),
                prop::collection::vec(inner.clone(), 0..6).prop_map(Made::Set),
                prop::collection::vec((inner.clone(), inner), 0..3).prop_map(Made::Map),
            ]
        })
    }

    fn write(value: &Made, reply: &mut Reply<'_>) {
        match value {
            Made::Bulk(bytes) => reply.bulk(bytes),
            Made::Error(text) => reply.error(text),
            Made::Integer(number) => reply.integer(*number),
            Made::Double(number) => reply.double(*number),
            Made::Boolean(value) => reply.boolean(*value),
            Made::Null => reply.null(),
            Made::Verbatim(bytes) => reply.verbatim("txt", bytes),
            Made::Array(values) => {
                reply.array(values.len());
                values.iter().for_each(|value| write(value, reply));
            }
            Made::Set(values) => {
                reply.set(values.len());
                values.iter().for_each(|value| write(value, reply));
            }
            Made::Map(pairs) => {
                reply.map(pairs.len());
                for (key, value) in pairs {
                    write(key, reply);
                    write(value, reply);
                }
            }
        }
    }

    /// What a RESP3 client reads of it.
    fn read(value: &Made) -> Value {
        match value {
            Made::Bulk(bytes) => Value::Bulk(bytes.clone()),
            Made::Error(text) => Value::Error(text.clone().into_bytes()),
            Made::Integer(number) => Value::Integer(*number),
            Made::Double(_) => {
                let line = written(std::slice::from_ref(value), Protocol::Resp3);
                Value::Double(line[1..line.len() - 2].to_vec())
            }
            Made::Boolean(value) => Value::Boolean(*value),
            Made::Null => Value::Null,
            Made::Verbatim(text) => Value::Verbatim(text.clone()),
            Made::Array(values) => Value::Array(values.iter().map(read).collect()),
            Made::Set(values) => Value::Set(values.iter().map(read).collect()),
            Made::Map(pairs) => Value::Map(pairs.iter().map(|(k, v)| (read(k), read(v))).collect()),
        }
    }

    fn written(values: &[Made], protocol: Protocol) -> Vec<u8> {
        let mut out = Output::default();
        let mut reply = Reply::new(&mut out, protocol);
        values.iter().for_each(|value| write(value, &mut reply));
        out.into_bytes()
    }

    /// The replies of a stream of which more has come at each of the cuts.
    fn replies(stream: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
        let mut scanner = Scanner::new(LIMITS);
        let (mut start, mut announced, mut found) = (0, 0, Vec::new());
        for &end in cuts.iter().chain([&stream.len()]) {
            while start < end {
                match scanner.scan(&stream[start..end]).expect("the stream is valid") {
                    Scanned::Reply { len } => {
                        assert!(start + len >= announced, "complete although bytes were missing");
                        found.push(stream[start..start + len].to_vec());
                        start += len;
                    }
                    Scanned::Incomplete { missing } => {
                        announced = end + missing;
                        break;
                    }
                }
            }
        }
        assert_eq!(start, stream.len());
        found
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in made()) {
            let stream = written(std::slice::from_ref(&value), Protocol::Resp3);
            prop_assert_eq!(decode(&stream, LIMITS), Ok(read(&value)));
            for len in 0..stream.len() {
                prop_assert_eq!(decode(&stream[..len], LIMITS), Err(InvalidReply("incomplete")));
            }
        }

        #[test]
        fn replies_end_where_they_do_however_they_are_cut(
            values in prop::collection::vec(made(), 0..5),
            mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            is_resp3 in any::<bool>(),
        ) {
            let protocol = if is_resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
            let stream = written(&values, protocol);
            let mut at: Vec<usize> = cuts.drain(..).map(|cut| cut.index(stream.len() + 1)).collect();
            at.sort_unstable();
            let each: Vec<Vec<u8>> =
                values.iter().map(|value| written(std::slice::from_ref(value), protocol)).collect();
            prop_assert_eq!(replies(&stream, &at), each);
        }
    }

    proptest! {
        #[test]
        fn replies_that_are_passed_on_end_where_they_do(
            values in prop::collection::vec(made(), 1..4),
            cuts in prop::collection::vec(1usize..9, 1..30),
        ) {
            let stream = written(&values, Protocol::Resp3);
            let (mut scanner, mut start, mut have) = (Scanner::new(LIMITS), 0, 0);
            let mut cuts = cuts.iter().cycle();
            for value in &values {
                let end = start + written(std::slice::from_ref(value), Protocol::Resp3).len();
                let mut is_passed = false;
                while start < end {
                    let input = &stream[start..have];
                    let bytes = if is_passed {
                        scanner.pass(input).expect("it is valid").bytes
                    } else {
                        match scanner.scan(input).expect("it is valid") {
                            Scanned::Reply { len } => len,
                            Scanned::Incomplete { .. } => {
                                is_passed = true;
                                0
                            }
                        }
                    };
                    start += bytes;
                    prop_assert!(start <= end);
                    if start < end {
                        have = (have + cuts.next().expect("endless")).min(stream.len());
                    }
                }
            }
        }
    }

    fn scan(input: &[u8]) -> Result<Scanned, InvalidReply> {
        Scanner::new(LIMITS).scan(input)
    }

    #[test]
    fn attributes_stand_before_their_values() {
        let input = b"*2\r\n|1\r\n+ttl\r\n:3\r\n:1\r\n|0\r\n:2\r\n";
        assert_eq!(scan(input), Ok(Scanned::Reply { len: input.len() }));
        let expected = Value::Array(vec![Value::Integer(1), Value::Integer(2)]);
        assert_eq!(decode(input, LIMITS), Ok(expected));
        assert_eq!(scan(b"|1\r\n+a\r\n+b\r\n"), Ok(Scanned::Incomplete { missing: 3 }));
    }

    #[test]
    fn depth_is_limited() {
        let nested = |levels: usize| [b"*1\r\n".repeat(levels), b":1\r\n".to_vec()].concat();
        let (fits, too_deep) = (nested(LIMITS.depth), nested(LIMITS.depth + 1));
        assert!(decode(&fits, LIMITS).is_ok());
        assert_eq!(scan(&fits), Ok(Scanned::Reply { len: fits.len() }));
        assert_eq!(decode(&too_deep, LIMITS), Err(InvalidReply("too many levels")));
        assert_eq!(scan(&too_deep), Err(InvalidReply("too many levels")));
        let attributes = b"|0\r\n".repeat(LIMITS.depth + 1);
        assert_eq!(scan(&attributes), Err(InvalidReply("too many levels")));
        assert_eq!(decode(&attributes, LIMITS), Err(InvalidReply("too many levels")));
    }

    #[test]
    fn one_reply_is_all_of_the_input() {
        assert_eq!(decode(b"+OK\r\n+OK\r\n", LIMITS), Err(InvalidReply("bytes behind the reply")));
        assert_eq!(scan(b"+OK\r\n+OK\r\n"), Ok(Scanned::Reply { len: 5 }));
        assert_eq!(decode(b"+OK\r\n", LIMITS), Ok(Value::Simple(b"OK".to_vec())));
    }

    #[test]
    fn an_announced_element_costs_nothing_before_it_comes() {
        let input = b"*2147483647\r\n";
        assert_eq!(decode(input, ReplyLimits::PEER), Err(InvalidReply("incomplete")));
    }
}
