//! A plain client that waits for its replies: for what has to be asked beside the load (INFO,
//! CLUSTER SLOTS, reading back).

use crate::options::Target;
use crate::transport::Transport;
use resp::ReplyLimits;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// How long to wait for a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A string of either kind.
    Text(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// No value.
    Nil,
    /// An error's text.
    Error(String),
    /// An aggregate; maps are lists of keys and values in turn.
    List(Vec<Reply>),
}

/// A connection.
pub struct Client {
    transport: Transport,
    input: Vec<u8>,
    at: usize,
}

/// Appends a request.
pub fn encode(out: &mut Vec<u8>, words: &[impl AsRef<[u8]>]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

impl Client {
    /// Connects, logs in and selects the database.
    pub fn connect(target: &Target) -> io::Result<Client> {
        let transport = Transport::connect(target, PATIENCE)?;
        let mut client = Client { transport, input: Vec::new(), at: 0 };
        let (greeting, replies) = target.greeting();
        client.send(&greeting)?;
        for _ in 0..replies {
            if let Reply::Error(text) = client.receive()? {
                return Err(io::Error::other(text));
            }
        }
        Ok(client)
    }

    /// One request and its reply.
    pub fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        let mut request = Vec::new();
        encode(&mut request, words);
        self.send(&request)?;
        self.receive()
    }

    /// One request whose reply is a text.
    pub fn text(&mut self, words: &[&str]) -> io::Result<String> {
        match self.ask(words)? {
            Reply::Text(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Reply::Error(text) => Err(io::Error::other(text)),
            other => Err(io::Error::other(format!("an unexpected reply to {words:?}: {other:?}"))),
        }
    }

    /// Sends requests that are encoded already.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.transport.send(bytes)?;
            bytes = &bytes[sent..];
        }
        self.transport.push()
    }

    /// The next reply; pushes are skipped.
    pub fn receive(&mut self) -> io::Result<Reply> {
        loop {
            let push = self.peek()? == b'>';
            let reply = self.element(ReplyLimits::PEER.depth)?;
            if !push {
                return Ok(reply);
            }
        }
    }

    /// Reads a reply with at most so many levels.
    fn element(&mut self, levels: usize) -> io::Result<Reply> {
        let line = self.line()?;
        let text = String::from_utf8_lossy(&line[1..]).into_owned();
        let count = || text.parse::<i64>().map_err(|_| malformed(&line));
        match line[0] {
            b'+' | b',' | b'#' | b'(' => Ok(Reply::Text(line[1..].to_vec())),
            b':' => Ok(Reply::Integer(count()?)),
            b'_' => Ok(Reply::Nil),
            b'-' => Ok(Reply::Error(text)),
            b'$' | b'=' | b'!' => {
                let Ok(length) = usize::try_from(count()?) else { return Ok(Reply::Nil) };
                let bytes = self.bytes(length)?;
                Ok(match line[0] {
                    b'!' => Reply::Error(String::from_utf8_lossy(&bytes).into_owned()),
                    b'=' => Reply::Text(bytes.get(4..).unwrap_or_default().to_vec()),
                    _ => Reply::Text(bytes),
                })
            }
            b'*' | b'~' | b'>' | b'%' => {
                let Ok(count) = usize::try_from(count()?) else { return Ok(Reply::Nil) };
                let count = if line[0] == b'%' { 2 * count } else { count };
                let below = levels.checked_sub(1).ok_or_else(|| malformed(&line))?;
                (0..count).map(|_| self.element(below)).collect::<io::Result<_>>().map(Reply::List)
            }
            b'|' => {
                let below = levels.checked_sub(1).ok_or_else(|| malformed(&line))?;
                for _ in 0..count()?.saturating_mul(2) {
                    self.element(below)?;
                }
                self.element(below)
            }
            _ => Err(malformed(&line)),
        }
    }

    fn peek(&mut self) -> io::Result<u8> {
        while self.at == self.input.len() {
            self.fill()?;
        }
        Ok(self.input[self.at])
    }

    /// A header line without its end; not empty.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let rest = &self.input[self.at..];
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let line = rest[..end].to_vec();
                self.at += end + 2;
                return if line.is_empty() { Err(malformed(&line)) } else { Ok(line) };
            }
            self.fill()?;
        }
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.input.len() - self.at < length + 2 {
            self.fill()?;
        }
        let bytes = self.input[self.at..self.at + length].to_vec();
        self.at += length + 2;
        Ok(bytes)
    }

    fn fill(&mut self) -> io::Result<()> {
        self.input.drain(..self.at);
        self.at = 0;
        let start = self.input.len();
        self.input.resize(start + 64 * 1024, 0);
        let received = loop {
            match self.transport.receive(&mut self.input[start..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        self.input.truncate(start + *received.as_ref().unwrap_or(&0));
        match received {
            Ok(0) => {
                Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer"))
            }
            Err(error) => Err(error),
        }
    }
}

fn malformed(line: &[u8]) -> io::Error {
    io::Error::other(format!("the reply is no RESP: {:?}", String::from_utf8_lossy(line)))
}
