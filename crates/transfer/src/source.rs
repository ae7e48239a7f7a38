//! Replication from one primary: the handshake, a snapshot, and the stream of requests behind it.

use crate::place::{Address, Login, connect};
use client::Client;
use rustls::ClientConfig;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a primary may take to answer, and how long its stream may be silent: it sends a PING
/// each ten seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a read waits before something else is looked at.
const ROUND: Duration = Duration::from_millis(100);

/// How often the primary is told how far the stream has been applied.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(1);

/// Bytes of the mark behind a snapshot whose length was not known.
const MARK: usize = 40;

/// The most words of a request, as for clients.
const MAX_WORDS: usize = 1 << 20;

/// Why a transfer does not go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It may go better when it is tried again.
    Again(String),
    /// The same: slots of a cluster have no settled place.
    Moving(String),
    /// It needs a change of somebody.
    Final(String),
}

impl Problem {
    /// What to tell the user.
    pub fn text(&self) -> &str {
        let (Problem::Again(text) | Problem::Moving(text) | Problem::Final(text)) = self;
        text
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::Again(match error.kind() {
            io::ErrorKind::TimedOut => "there was no answer in time".into(),
            _ => error.to_string(),
        })
    }
}

/// A place in the stream of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// The history, `replid`.
    pub history: String,
    /// The bytes of its stream up to there.
    pub offset: u64,
}

/// How a primary answers PSYNC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// A snapshot follows.
    Full,
    /// The stream goes on where it was.
    Continues,
}

/// How the snapshot ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// After so many bytes.
    Known(u64),
    /// With a mark.
    Marked([u8; MARK]),
}

/// What the other side is told about us.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handshake<'a> {
    /// The version of the server whose snapshots can be read; empty for the oldest form.
    pub version: &'a str,
    /// The snapshot alone, without a stream behind it.
    pub snapshot_only: bool,
}

/// See the head of this file.
pub struct Source {
    link: Client,
    /// What was handed out of the stream goes so far.
    position: Position,
    /// What was told to the primary last, and when.
    told: (u64, Instant),
    heard: Instant,
}

impl Source {
    /// Connects and says what can be read.
    ///
    /// # Errors
    /// The primary cannot be reached, or refuses the login.
    pub fn open(
        (address, login): (&Address, &Login),
        rules: Option<&Arc<ClientConfig>>,
        handshake: Handshake<'_>,
    ) -> io::Result<Source> {
        let mut link = connect(address, login, rules, LIMIT)?;
        let mut say = |words: &[&str]| link.ask(&[&["REPLCONF"], words].concat());
        // A server that does not know one of these goes on without.
        say(&["capa", "eof", "capa", "psync2"])?;
        if !handshake.version.is_empty() {
            say(&["version", handshake.version])?;
        }
        if handshake.snapshot_only
            && let Some(text) = say(&["rdb-only", "1"])?.error()
        {
            return Err(io::Error::other(text.into_owned()));
        }
        let position = Position { history: String::new(), offset: 0 };
        let now = Instant::now();
        Ok(Source { link, told: (0, now), position, heard: now })
    }

    /// Asks for the stream behind `wanted`, or for everything.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn ask(&mut self, wanted: Option<&Position>) -> io::Result<()> {
        match wanted {
            Some(position) => {
                let next = (position.offset + 1).to_string();
                self.link.queue(&["PSYNC", &position.history, &next]);
                self.position = position.clone();
            }
            None => self.link.queue(&["PSYNC", "?", "-1"]),
        }
        self.heard = Instant::now();
        self.link.flush()
    }

    /// Waits until the primary has answered, or `goes_on` says no.
    ///
    /// # Errors
    /// It refuses, or the connection is lost.
    pub fn answer(&mut self, goes_on: &dyn Fn() -> bool) -> Result<Option<Begun>, Problem> {
        while goes_on() {
            let Some(line) = self.line()? else { continue };
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("+FULLRESYNC") => {
                    let (history, offset) = (words.next(), words.next());
                    let offset = offset.and_then(|text| text.parse().ok());
                    let (Some(history), Some(offset)) = (history, offset) else {
                        return Err(Problem::Again(format!("the primary answers '{line}'")));
                    };
                    self.position = Position { history: history.to_owned(), offset };
                    return Ok(Some(Begun::Full));
                }
                Some("+CONTINUE") => {
                    if let Some(history) = words.next() {
                        self.position.history = history.to_owned();
                    }
                    return Ok(Some(Begun::Continues));
                }
                Some(_) => {
                    let text = line.trim_start_matches('-');
                    return Err(Problem::Again(format!("the primary answers '{text}'")));
                }
                // It is alive, and prepares the snapshot.
                None => {}
            }
        }
        Ok(None)
    }

    /// Waits for the head of the snapshot.
    ///
    /// # Errors
    /// It makes no sense, or the connection is lost.
    pub fn size(&mut self, goes_on: &dyn Fn() -> bool) -> Result<Option<Size>, Problem> {
        while goes_on() {
            let Some(line) = self.line()? else { continue };
            let mark = line.strip_prefix("$EOF:").and_then(|mark| mark.as_bytes().try_into().ok());
            let len = line.strip_prefix('$').and_then(|len| len.parse().ok());
            match (mark, len) {
                (Some(mark), _) => return Ok(Some(Size::Marked(mark))),
                (_, Some(len)) => return Ok(Some(Size::Known(len))),
                _ if line.is_empty() => {}
                _ => return Err(Problem::Again(format!("the primary sends '{line}' as snapshot"))),
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> Result<Option<String>, Problem> {
        if let Some(line) = self.link.line()? {
            self.heard = Instant::now();
            return Ok(Some(line));
        }
        self.receive()?;
        Ok(None)
    }

    /// The bytes that have arrived.
    pub fn bytes(&self) -> &[u8] {
        self.link.bytes()
    }

    /// So many of them were used as part of the snapshot.
    pub fn consume(&mut self, count: usize) {
        self.link.consume(count);
    }

    /// Waits a moment for more. Returns whether something came.
    ///
    /// # Errors
    /// The connection is lost, or was silent for too long.
    pub fn receive(&mut self) -> Result<bool, Problem> {
        let came = self.link.receive(Some(ROUND))?;
        if came {
            self.heard = Instant::now();
        } else if self.heard.elapsed() > LIMIT {
            return Err(Problem::Again("the primary was silent for a minute".into()));
        }
        Ok(came)
    }

    /// The snapshot ends here: its mark is taken. Returns whether it has arrived.
    ///
    /// # Errors
    /// Something else stands there.
    pub fn end_of_snapshot(&mut self, size: Size) -> Result<bool, Problem> {
        let Size::Marked(mark) = size else { return Ok(true) };
        match self.link.bytes().get(..MARK) {
            None => Ok(false),
            Some(bytes) if bytes == mark => {
                self.link.consume(MARK);
                Ok(true)
            }
            Some(_) => Err(Problem::Again("the snapshot does not end where it should".into())),
        }
    }

    /// How far the stream was handed out.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Tells the primary how far the stream was applied, now and then or at once.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn acknowledge(&mut self, applied: u64, at_once: bool) -> Result<(), Problem> {
        let (_, when) = self.told;
        if at_once || when.elapsed() >= ACKNOWLEDGEMENT {
            self.link.queue(&["REPLCONF", "ACK", &applied.to_string()]);
            self.link.flush()?;
            self.told = (applied, Instant::now());
        }
        Ok(())
    }

    /// Returns the places of the words of the next request in [`Source::bytes`], and its length, if
    /// it has arrived.
    ///
    /// # Errors
    /// It is none.
    pub fn request(&self, words: &mut Vec<Range<usize>>) -> Result<Option<usize>, Problem> {
        let bytes = self.link.bytes();
        let found = request(bytes, words);
        found.map_err(|()| {
            let front = &bytes[..bytes.len().min(40)];
            Problem::Again(format!("the stream makes no sense: '{}'", front.escape_ascii()))
        })
    }

    /// A request of so many bytes was taken.
    pub fn pass(&mut self, len: usize) {
        self.link.consume(len);
        self.position.offset += len as u64;
    }
}

/// Finds the words of a request at the front. An empty line is one without words.
fn request(bytes: &[u8], words: &mut Vec<Range<usize>>) -> Result<Option<usize>, ()> {
    words.clear();
    match bytes.first() {
        None => return Ok(None),
        Some(b'\n') => return Ok(Some(1)),
        Some(b'\r') => return Ok(bytes.get(1).map(|_| 2)),
        Some(b'*') => {}
        Some(_) => return Err(()),
    }
    let Some((count, mut at)) = number(bytes, 1)? else { return Ok(None) };
    if count > MAX_WORDS {
        return Err(());
    }
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(()),
        }
        let Some((len, begin)) = number(bytes, at + 1)? else { return Ok(None) };
        at = begin + len + 2;
        if bytes.len() < at {
            return Ok(None);
        }
        words.push(begin..begin + len);
    }
    Ok(Some(at))
}

/// Reads a number and the end of its line. Returns it and the place behind.
fn number(bytes: &[u8], from: usize) -> Result<Option<(usize, usize)>, ()> {
    let rest = &bytes[from.min(bytes.len())..];
    let Some(end) = rest.iter().take(24).position(|byte| *byte == b'\n') else {
        return if rest.len() >= 24 { Err(()) } else { Ok(None) };
    };
    let digits = rest[..end].strip_suffix(b"\r").ok_or(())?;
    let text = std::str::from_utf8(digits).map_err(|_| ())?;
    // No server sends words of more than some gigabytes.
    let number: u32 = text.parse().map_err(|_| ())?;
    Ok(Some((number as usize, from + end + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::type_complexity)]
    fn words(bytes: &[u8]) -> Result<Option<(Vec<Vec<u8>>, usize)>, ()> {
        let mut places = Vec::new();
        let len = request(bytes, &mut places)?;
        let texts = places.into_iter().map(|place| bytes[place].to_vec()).collect();
        Ok(len.map(|len| (texts, len)))
    }

    #[test]
    fn requests_are_cut() {
        let whole = b"*2\r\n$3\r\nDEL\r\n$1\r\na\r\n*1";
        let expected = (vec![b"DEL".to_vec(), b"a".to_vec()], whole.len() - 2);
        assert_eq!(words(whole), Ok(Some(expected)));
        for end in 0..whole.len() - 2 {
            assert_eq!(words(&whole[..end]), Ok(None), "{end}");
        }
        assert_eq!(words(b"\n*1"), Ok(Some((vec![], 1))));
        for nonsense in
            [&b"DEL a\r\n"[..], b"*x\r\n", b"*1\r\n+a\r\n", b"*1\n", b"*99999999999999999999999999"]
        {
            assert_eq!(words(nonsense), Err(()));
        }
    }
}
