//! Encodes a snapshot's entries as the commands that recreate them. This is the base of an
//! append-only file if `aof-use-rdb-preamble` is off.

mod stream;

use engine::snapshot::Encode;
use keyspace::Millis;
use keyspace::snapshot::record::{Form, Head, NEVER, Token, Tokens};
use resp::bulk::{push_bulk, push_header};
use structs::intset::Intset;
use structs::listpack::{Element, Listpack};
use structs::numbers::{push_f64, push_i64};

/// Greatest number of elements in one command.
const ELEMENTS: usize = 64;

/// One thread's encoder.
#[derive(Default)]
pub struct AofRecords {
    key: Vec<u8>,
    form: Option<Form>,
    expiry: Option<Millis>,
    /// The words of the next command after its key, and their number.
    words: Vec<u8>,
    word_count: usize,
    /// Whether the next string is a packed chunk of a list.
    is_packed: bool,
    /// A string that arrives in parts.
    parts: Parts,
    /// A field and its value, kept until the field's expiry is known.
    field: Vec<Vec<u8>>,
    /// The present stream.
    stream: stream::StreamRecords,
}

#[derive(Default)]
enum Parts {
    #[default]
    None,
    /// The parts are joined: the bytes so far, and the total length.
    Joined(Vec<u8>, usize),
    /// The parts are written as they arrive. The number of bytes left.
    Passed(u64),
}

/// Appends a request.
pub(super) fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    push_header(out, b'*', words.len());
    words.iter().for_each(|bytes| push_bulk(out, bytes));
}

impl AofRecords {
    fn head(&mut self, head: &Head<'_>, out: &mut Vec<u8>) {
        self.end(out);
        self.key.clear();
        self.key.extend_from_slice(head.key);
        self.form = Some(head.form);
        self.expiry = head.expiry;
    }

    /// Returns the command that creates this form, and the number of words per element.
    fn maker(&self) -> (&'static [u8], usize) {
        match self.form {
            None | Some(Form::String) => (b"SET", 1),
            Some(Form::List) => (b"RPUSH", 1),
            Some(Form::SetIntset | Form::SetListpack | Form::Set) => (b"SADD", 1),
            Some(Form::HashListpack | Form::Hash | Form::TimedHash) => (b"HMSET", 2),
            Some(Form::ZsetListpack | Form::Zset) => (b"ZADD", 2),
            // The time to live and the payload.
            Some(Form::Module) => (b"RESTORE", 2),
            Some(Form::Stream) => unreachable!("its parts are commands already"),
        }
    }

    /// Adds a word to the present command. The command ends when it is full.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        push_bulk(&mut self.words, bytes);
        self.word_count += 1;
        let (_, words_each) = self.maker();
        if self.word_count == ELEMENTS * words_each {
            self.flush(out);
        }
    }

    fn push_element(&mut self, element: Element<'_>, out: &mut Vec<u8>) {
        element.with_bytes(|bytes| self.push(bytes, out));
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if self.word_count > 0 {
            let (name, _) = self.maker();
            push_header(out, b'*', self.word_count + 2);
            push_bulk(out, name);
            push_bulk(out, &self.key);
            out.append(&mut self.words);
            self.word_count = 0;
        }
    }

    fn string(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        // The blocks are the server's own. They were copied under their lock.
        const OURS: &str = "a snapshot's listpack is well-formed";
        match self.form {
            Some(Form::SetIntset) => {
                for number in Intset::from_bytes(bytes).expect(OURS).iter() {
                    self.push_element(Element::Int(number), out);
                }
            }
            Some(Form::SetListpack | Form::HashListpack) => {
                let listpack = Listpack::from_bytes(bytes).expect(OURS);
                listpack.iter().for_each(|element| self.push_element(element, out));
            }
            Some(Form::ZsetListpack) => {
                // ZADD expects the score first.
                for (member, score) in Listpack::from_bytes(bytes).expect(OURS).pairs() {
                    self.push_element(score, out);
                    self.push_element(member, out);
                }
            }
            Some(Form::List) if std::mem::take(&mut self.is_packed) => {
                let listpack = Listpack::from_bytes(bytes).expect(OURS);
                listpack.iter().for_each(|element| self.push_element(element, out));
            }
            // A member is kept until its score arrives.
            Some(Form::Zset) => self.parts = Parts::Joined(bytes.to_vec(), bytes.len()),
            Some(Form::TimedHash) => self.field.push(bytes.to_vec()),
            Some(Form::Module) => {
                self.push(b"0", out);
                self.push(&rdb::module::payload(bytes), out);
            }
            _ => self.push(bytes, out),
        }
    }

    fn integer(&mut self, number: i64, out: &mut Vec<u8>) {
        if self.form != Some(Form::TimedHash) {
            return self.push_element(Element::Int(number), out);
        }
        let field = std::mem::take(&mut self.field);
        if number == NEVER {
            return field.iter().for_each(|word| self.push(word, out));
        }
        let mut at = Vec::new();
        push_i64(&mut at, number);
        let mut words: Vec<&[u8]> = vec![b"HSETEX", &self.key, b"PXAT", &at, b"FIELDS", b"1"];
        words.extend(field.iter().map(Vec::as_slice));
        command(out, &words);
    }

    fn score(&mut self, score: f64, out: &mut Vec<u8>) {
        let Parts::Joined(member, _) = std::mem::take(&mut self.parts) else { return };
        let mut text = Vec::new();
        push_f64(&mut text, score);
        self.push(&text, out);
        self.push(&member, out);
    }

    fn long(&mut self, len: u64, out: &mut Vec<u8>) {
        let is_whole = match self.form {
            Some(Form::String) => true,
            Some(Form::List) => !self.is_packed,
            _ => false,
        };
        if !is_whole {
            self.parts = Parts::Joined(Vec::with_capacity(len as usize), len as usize);
            return;
        }
        self.flush(out);
        let (name, _) = self.maker();
        push_header(out, b'*', 3);
        push_bulk(out, name);
        push_bulk(out, &self.key);
        push_header(out, b'$', len as usize);
        self.parts = Parts::Passed(len);
    }

    fn part(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match std::mem::take(&mut self.parts) {
            Parts::None => {}
            Parts::Joined(mut joined, len) => {
                joined.extend_from_slice(bytes);
                if joined.len() < len {
                    self.parts = Parts::Joined(joined, len);
                } else {
                    self.string(&joined, out);
                }
            }
            Parts::Passed(left) => {
                out.extend_from_slice(bytes);
                match left.saturating_sub(bytes.len() as u64) {
                    0 => out.extend_from_slice(b"\r\n"),
                    left => self.parts = Parts::Passed(left),
                }
            }
        }
    }

    /// Ends the present value.
    fn end(&mut self, out: &mut Vec<u8>) {
        self.flush(out);
        self.stream.finish(&self.key, out);
        if let Some(Millis(at)) = self.expiry.take() {
            let mut text = Vec::new();
            push_i64(&mut text, at);
            command(out, &[b"PEXPIREAT", &self.key, &text]);
        }
        self.form = None;
    }
}

impl Encode for AofRecords {
    fn encode(&mut self, tokens: Tokens<'_>, out: &mut Vec<u8>) {
        for token in tokens {
            match token {
                Token::Head(head) => self.head(&head, out),
                Token::Bytes(bytes) => self.string(bytes, out),
                Token::Int(number) => self.integer(number, out),
                Token::Score(score) => self.score(score, out),
                Token::Chunk { is_packed } => self.is_packed = is_packed,
                Token::Long(len) => self.long(len, out),
                Token::Part(bytes) => self.part(bytes, out),
                Token::Cold(_) => unreachable!("the snapshot has read cold values"),
                Token::Stream(part) => self.stream.part(&self.key, part, out),
            }
        }
    }

    fn end_of_value(&mut self, out: &mut Vec<u8>) {
        self.end(out);
    }
}
