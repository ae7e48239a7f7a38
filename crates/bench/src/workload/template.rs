//! Requests that are written once and then only patched.
//!
//! A template is compiled from the words of a command. Words may hold placeholders:
//!
//! | placeholder | is replaced by |
//! |---|---|
//! | `__rand_int__` | 12 digits, random below `-r` (or counting, with `--sequential`) |
//! | `__rand_1st__` … `__rand_9th__` | the same, but equal within one request |
//! | `__rand_field__` | 12 digits, random below `--field-space` |
//! | `__key__` | the key that the key pattern chooses, with its prefix |
//! | `__data__` | a value |
//! | `__expiry__` | a number of seconds within `--expiry-range` |
//! | `{tag}` | with `--cluster`: a tag of a slot that this connection's node serves |
//!
//! Runs of words whose length is always the same become one piece of bytes with places to write
//! digits into; only words of varying length are measured and encoded for every request.

use super::digits::{DIGITS, append_number, decimal, write_digits};
use super::keys::{Cursor, Pattern};
use super::values::Values;
use std::sync::atomic::{AtomicU64, Ordering};
use structs::random::Rng;

/// What placeholders stand for in one workload.
#[derive(Debug)]
pub struct Placeholders {
    /// `__rand_int__` is below this; without it the placeholder is left as it is.
    pub space: Option<u64>,
    /// Numbers count instead of being drawn.
    pub sequential: bool,
    /// `__rand_field__` is below this.
    pub field_space: u64,
    /// `__expiry__`, both included.
    pub expiry: (u64, u64),
    /// `{tag}` is a placeholder.
    pub tagged: bool,
    /// The keys' prefix.
    pub prefix: Vec<u8>,
    /// Keys are numbers of 12 digits instead of as many as needed.
    pub padded: bool,
    /// What `__data__` stands for.
    pub values: Values,
    /// The counters of `--sequential`, shared by all threads: `__rand_int__`, then 1st to 9th.
    pub counters: [AtomicU64; 10],
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    Fresh,
    Shared(u8),
    Field,
    Key,
    Tag,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(Vec<u8>),
    /// Of fixed width: digits or a tag.
    Number(Source),
    /// The number of a key, in as many digits as it has.
    Key,
    Data,
    Expiry,
}

#[derive(Clone, Debug)]
enum TemplateStep {
    Fixed { bytes: Vec<u8>, patches: Vec<(usize, Source)> },
    Word(Vec<Piece>),
}

/// A compiled command.
#[derive(Clone, Debug)]
pub struct Template {
    steps: Vec<TemplateStep>,
    keys: u32,
    /// There are numbers that are equal within a request.
    shares: bool,
}

/// Appends a value for the key with this number.
pub type ValueWriter<'a> = dyn FnMut(u64, &mut Vec<u8>) + 'a;

/// What a request is drawn from: the state of one connection and one operation.
pub struct Draw<'a> {
    /// The connection's random numbers.
    pub rng: &'a mut Rng,
    /// The walk through the operation's keys.
    pub cursor: &'a mut Cursor,
    /// The operation's key pattern.
    pub pattern: &'a Pattern,
    /// In a cluster: which keys this connection may use, and its tag.
    pub route: Option<Route<'a>>,
    /// Where to note the numbers of the keys drawn, for the check of the replies.
    pub drawn: Option<&'a mut Vec<u64>>,
    /// Writes what `__data__` stands for, given the number of the key before it; else the values
    /// do.
    pub value: Option<&'a mut ValueWriter<'a>>,
}

/// The part of a cluster that a connection leads to.
pub struct Route<'a> {
    /// Whether the node serves the slot of a key.
    pub serves: &'a dyn Fn(&[u8]) -> bool,
    /// Three characters whose slot the node serves.
    pub tag: [u8; 3],
}

/// How often a key is drawn again because another node serves it, before it is sent all the same
/// (and answered by MOVED, which is counted): more than any cluster needs whose slots are covered.
const TRIES: usize = 100_000;

impl Template {
    /// Compiles a command from its words.
    pub fn new(words: &[Vec<u8>], places: &Placeholders) -> Template {
        let mut steps = Vec::new();
        let mut keys = 0;
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        let mut patches = Vec::new();
        for word in words {
            let pieces = pieces(word, places);
            keys += pieces
                .iter()
                .filter(|piece| matches!(piece, Piece::Key | Piece::Number(Source::Key)))
                .count() as u32;
            let width: Option<usize> = pieces.iter().map(|piece| piece.width(places)).sum();
            let Some(width) = width else {
                if !bytes.is_empty() {
                    let (bytes, patches) =
                        (std::mem::take(&mut bytes), std::mem::take(&mut patches));
                    steps.push(TemplateStep::Fixed { bytes, patches });
                }
                steps.push(TemplateStep::Word(pieces));
                continue;
            };
            bytes.extend_from_slice(format!("${width}\r\n").as_bytes());
            for piece in pieces {
                match piece {
                    Piece::Text(text) => bytes.extend_from_slice(&text),
                    Piece::Number(source) => {
                        patches.push((bytes.len(), source));
                        bytes.resize(bytes.len() + source.width(), b'0');
                    }
                    Piece::Data => {
                        bytes.resize(bytes.len() + places.values.sizes.largest() as usize, b'x')
                    }
                    Piece::Key | Piece::Expiry => unreachable!("has no fixed width"),
                }
            }
            bytes.extend_from_slice(b"\r\n");
        }
        if !bytes.is_empty() {
            steps.push(TemplateStep::Fixed { bytes, patches });
        }
        let shares = words
            .iter()
            .flat_map(|word| pieces(word, places))
            .any(|piece| matches!(piece, Piece::Number(Source::Shared(_))));
        Template { steps, keys, shares }
    }

    /// Bytes that are sent as they are, such as an inline command.
    pub fn raw(bytes: &[u8]) -> Template {
        Template {
            steps: vec![TemplateStep::Fixed { bytes: bytes.to_vec(), patches: Vec::new() }],
            keys: 0,
            shares: false,
        }
    }

    /// How many keys of the pattern a request has.
    pub fn keys(&self) -> u32 {
        self.keys
    }

    /// Appends `count` requests.
    pub fn append(
        &self,
        out: &mut Vec<u8>,
        places: &Placeholders,
        draw: &mut Draw<'_>,
        count: u64,
    ) {
        if count > 0
            && let [TemplateStep::Fixed { bytes, patches }] = &self.steps[..]
            && let [(at, source @ (Source::Key | Source::Fresh))] = patches[..]
            && let Some(numbers) = draw.plain(source, places)
        {
            return append_alike(out, bytes, at, count, numbers);
        }
        let mut shared = [None; 9];
        for _ in 0..count {
            self.append_one(out, places, draw, &mut shared);
            if self.shares {
                shared = [None; 9];
            }
        }
    }

    #[inline]
    fn append_one(
        &self,
        out: &mut Vec<u8>,
        places: &Placeholders,
        draw: &mut Draw<'_>,
        shared: &mut [Option<u64>; 9],
    ) {
        let mut last_key = 0;
        for step in &self.steps {
            match step {
                TemplateStep::Fixed { bytes, patches } => {
                    let start = out.len();
                    out.extend_from_slice(bytes);
                    for &(at, source) in patches {
                        let at = start + at;
                        if source == Source::Tag {
                            let tag = draw.route.as_ref().map_or(*b"tag", |route| route.tag);
                            out[at..at + tag.len()].copy_from_slice(&tag);
                            continue;
                        }
                        let number = draw.number(source, places, shared);
                        if source == Source::Key {
                            last_key = number;
                        }
                        write_digits(&mut out[at..at + DIGITS], number);
                    }
                }
                TemplateStep::Word(pieces) => {
                    append_word(out, pieces, places, draw, shared, &mut last_key);
                }
            }
        }
    }
}

/// Appends requests with one uniformly drawn number each, at `at`: what nearly every test consists
/// of, so that nothing is decided once a request.
fn append_alike(
    out: &mut Vec<u8>,
    request: &[u8],
    at: usize,
    count: u64,
    (rng, first, range): (&mut Rng, u64, u64),
) {
    let start = out.len();
    let end = start + request.len() * count as usize;
    out.reserve(end - start);
    out.extend_from_slice(request);
    // Twice as many each time: a few long copies instead of many short ones.
    while out.len() < end {
        let more = (out.len() - start).min(end - out.len());
        out.extend_from_within(start..start + more);
    }
    for request in out[start..end].chunks_exact_mut(request.len()) {
        write_digits(&mut request[at..at + DIGITS], first + rng.below(range));
    }
}

fn append_word(
    out: &mut Vec<u8>,
    pieces: &[Piece],
    places: &Placeholders,
    draw: &mut Draw<'_>,
    shared: &mut [Option<u64>; 9],
    last_key: &mut u64,
) {
    // The length goes before the word, and is known after it: written behind, then turned round.
    let start = out.len();
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text),
            Piece::Number(Source::Tag) => {
                out.extend_from_slice(&draw.route.as_ref().map_or(*b"tag", |route| route.tag));
            }
            Piece::Number(source) => {
                let number = draw.number(*source, places, shared);
                if *source == Source::Key {
                    *last_key = number;
                }
                let at = out.len();
                out.resize(at + DIGITS, b'0');
                write_digits(&mut out[at..], number);
            }
            Piece::Key => {
                *last_key = draw.number(Source::Key, places, shared);
                append_number(out, *last_key);
            }
            Piece::Data => match &mut draw.value {
                Some(value) => value(*last_key, out),
                None => places.values.append(out, *last_key, draw.rng),
            },
            Piece::Expiry => {
                let (low, high) = places.expiry;
                append_number(out, low + draw.rng.below(high - low + 1));
            }
        }
    }
    let length = out.len() - start;
    let mut header = [0; 24];
    let size = header_of(length as u64, &mut header);
    out.extend_from_slice(&header[..size]);
    out[start..].rotate_right(size);
    out.extend_from_slice(b"\r\n");
}

fn header_of(length: u64, header: &mut [u8; 24]) -> usize {
    let mut digits = [0; 20];
    let digits = decimal(length, &mut digits);
    header[0] = b'$';
    header[1..=digits.len()].copy_from_slice(digits);
    header[digits.len() + 1..digits.len() + 3].copy_from_slice(b"\r\n");
    digits.len() + 3
}

impl Draw<'_> {
    /// If numbers from this source are uniform and neither noted nor chosen: what they are
    /// drawn with, from which on, and how many there are.
    #[inline]
    fn plain(&mut self, source: Source, places: &Placeholders) -> Option<(&mut Rng, u64, u64)> {
        if self.route.is_some() || self.drawn.is_some() {
            return None;
        }
        let (first, range) = match (source, self.pattern) {
            (Source::Key, Pattern::Uniform) => self.cursor.range(),
            (Source::Fresh, _) if !places.sequential => (0, places.space.unwrap_or(1)),
            _ => return None,
        };
        Some((self.rng, first, range))
    }

    #[inline]
    fn number(
        &mut self,
        source: Source,
        places: &Placeholders,
        shared: &mut [Option<u64>; 9],
    ) -> u64 {
        match source {
            Source::Fresh => self.fresh(places, 0),
            Source::Shared(index) => match shared[usize::from(index)] {
                Some(number) => number,
                None => {
                    let number = self.fresh(places, usize::from(index) + 1);
                    shared[usize::from(index)] = Some(number);
                    number
                }
            },
            Source::Field => self.rng.below(places.field_space),
            Source::Key => self.key(places),
            Source::Tag => 0,
        }
    }

    fn fresh(&mut self, places: &Placeholders, counter: usize) -> u64 {
        let space = places.space.unwrap_or(1);
        if places.sequential {
            places.counters[counter].fetch_add(1, Ordering::Relaxed) % space
        } else {
            self.rng.below(space)
        }
    }

    fn key(&mut self, places: &Placeholders) -> u64 {
        let mut number = self.cursor.draw(self.pattern, self.rng);
        if let Some(route) = &self.route
            && !places.tagged_prefix()
        {
            let mut name = Vec::with_capacity(places.prefix.len() + 20);
            for _ in 0..TRIES {
                name.clear();
                places.append_key(&mut name, number);
                if (route.serves)(&name) {
                    break;
                }
                number = self.cursor.draw(self.pattern, self.rng);
            }
        }
        if let Some(drawn) = &mut self.drawn {
            drawn.push(number);
        }
        number
    }
}

impl Placeholders {
    /// Appends the name of the key with a number.
    pub fn append_key(&self, out: &mut Vec<u8>, number: u64) {
        out.extend_from_slice(&self.prefix);
        if self.padded {
            let at = out.len();
            out.resize(at + DIGITS, b'0');
            write_digits(&mut out[at..], number);
        } else {
            append_number(out, number);
        }
    }

    /// The prefix names the slot, so any number will do.
    fn tagged_prefix(&self) -> bool {
        self.tagged && contains(&self.prefix, b"{tag}")
    }
}

impl Source {
    fn width(self) -> usize {
        if self == Source::Tag { 3 } else { DIGITS }
    }
}

impl Piece {
    /// Bytes, if always the same.
    fn width(&self, places: &Placeholders) -> Option<usize> {
        match self {
            Piece::Text(text) => Some(text.len()),
            Piece::Number(source) => Some(source.width()),
            Piece::Data => places.values.constant().map(|size| size as usize),
            Piece::Key | Piece::Expiry => None,
        }
    }
}

/// Cuts a word at its placeholders.
fn pieces(word: &[u8], places: &Placeholders) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    let mut rest = word;
    while !rest.is_empty() {
        let Some((length, found)) = placeholder(rest, places) else {
            text.push(rest[0]);
            rest = &rest[1..];
            continue;
        };
        for piece in found {
            if let Piece::Text(more) = piece {
                text.extend_from_slice(&more);
                continue;
            }
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(piece);
        }
        rest = &rest[length..];
    }
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(text));
    }
    pieces
}

/// The placeholder that `text` starts with: its length and what it stands for.
fn placeholder(text: &[u8], places: &Placeholders) -> Option<(usize, Vec<Piece>)> {
    const SHARED: [&str; 9] = ["1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th", "9th"];
    if places.tagged && text.starts_with(b"{tag}") {
        let brace = |byte: u8| Piece::Text(vec![byte]);
        return Some((5, vec![brace(b'{'), Piece::Number(Source::Tag), brace(b'}')]));
    }
    if !text.starts_with(b"__") {
        return None;
    }
    let is = |name: &str| text.starts_with(name.as_bytes());
    if is("__data__") {
        return Some((8, vec![Piece::Data]));
    }
    if is("__key__") {
        let mut found = pieces(&places.prefix, places);
        found.push(if places.padded { Piece::Number(Source::Key) } else { Piece::Key });
        return Some((7, found));
    }
    if is("__expiry__") {
        return Some((10, vec![Piece::Expiry]));
    }
    if is("__rand_field__") {
        return Some((14, vec![Piece::Number(Source::Field)]));
    }
    places.space?;
    if is("__rand_int__") {
        return Some((12, vec![Piece::Number(Source::Fresh)]));
    }
    let index = SHARED.iter().position(|ordinal| is(&format!("__rand_{ordinal}__")))?;
    Some((12, vec![Piece::Number(Source::Shared(index as u8))]))
}

/// Whether `needle` occurs in `text`.
pub fn contains(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::super::values::{Content, Sizes};
    use super::*;

    fn places(space: Option<u64>, padded: bool, sizes: Sizes) -> Placeholders {
        Placeholders {
            space,
            sequential: false,
            field_space: 1,
            expiry: (7, 7),
            tagged: true,
            prefix: b"k-".to_vec(),
            padded,
            values: Values::new(sizes, Content::Plain, 0, 9),
            counters: Default::default(),
        }
    }

    #[track_caller]
    fn check(places: &Placeholders, command: &str, expected: &str) {
        let words: Vec<Vec<u8>> = command.split(' ').map(Into::into).collect();
        let template = Template::new(&words, places);
        let (mut rng, mut out) = (Rng::seeded(1), Vec::new());
        let pattern = Pattern::Sequential;
        let mut cursor = Cursor::new(&pattern, 41, 50, 0, 1);
        let serves = |key: &[u8]| key.ends_with(b"2");
        let route = Some(Route { serves: &serves, tag: *b"abc" });
        let mut draw = Draw {
            rng: &mut rng,
            cursor: &mut cursor,
            pattern: &pattern,
            route,
            drawn: None,
            value: None,
        };
        template.append(&mut out, places, &mut draw, 1);
        assert_eq!(String::from_utf8(out).unwrap().replace("\r\n", " "), expected);
    }

    #[test]
    fn placeholders_are_replaced() {
        let fixed = places(Some(1), true, Sizes::Fixed(3));
        check(&fixed, "SET __key__ __data__", "*3 $3 SET $14 k-000000000042 $3 xxx ");
        check(
            &fixed,
            "a:__rand_int__:b __rand_field__",
            "*2 $16 a:000000000000:b $12 000000000000 ",
        );
        check(&fixed, "{tag}:x {tag", "*2 $7 {abc}:x $4 {tag ");
        let varying = places(None, false, Sizes::Range(2, 2));
        check(
            &varying,
            "SET __key__ <__data__> EX __expiry__",
            "*5 $3 SET $4 k-42 $4 <xx> $2 EX $1 7 ",
        );
        check(&varying, "GET __rand_int__ __ __x", "*4 $3 GET $12 __rand_int__ $2 __ $3 __x ");
    }

    #[test]
    fn requests_written_together_are_the_same_as_one_by_one() {
        let places = places(Some(1000), true, Sizes::Fixed(3));
        for command in ["SET __key__ __data__", "INCR counter:__rand_int__"] {
            let words: Vec<Vec<u8>> = command.split(' ').map(Into::into).collect();
            let template = Template::new(&words, &places);
            let (pattern, mut numbers) = (Pattern::Uniform, Vec::new());
            let written = |drawn, calls: u64| {
                let (mut rng, mut out) = (Rng::seeded(5), b"before".to_vec());
                let mut cursor = Cursor::new(&pattern, 7, 7000, 0, 1);
                let (rng, cursor) = (&mut rng, &mut cursor);
                let (route, value, pattern) = (None, None, &pattern);
                let mut draw = Draw { rng, cursor, pattern, route, drawn, value };
                (0..calls).for_each(|_| template.append(&mut out, &places, &mut draw, 60 / calls));
                String::from_utf8(out).unwrap()
            };
            // Numbers that are noted are drawn one by one.
            let one_by_one = written(Some(&mut numbers), 60);
            assert_eq!(written(None, 60), one_by_one);
            assert_eq!(written(None, 2), one_by_one);
        }
    }

    #[test]
    fn shared_numbers_are_equal_within_a_request() {
        let mut places = places(Some(5), true, Sizes::Fixed(1));
        places.sequential = true;
        check(&places, "__rand_1st__ __rand_1st__", "*2 $12 000000000000 $12 000000000000 ");
        check(&places, "__rand_1st__ __rand_int__", "*2 $12 000000000001 $12 000000000000 ");
        check(&places, "__rand_int__ __rand_int__", "*2 $12 000000000001 $12 000000000002 ");
    }
}
