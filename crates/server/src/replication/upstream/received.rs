//! What has come over the link and was not applied yet: lines of the handshake, then the stream.
//!
//! The bytes of a piece that is being applied are shared with it. What comes meanwhile goes into other
//! memory, where the beginning of an entry that has not come whole is copied to.

use super::{PIECE, TOGETHER};
use engine::Engine;
use engine::follow::Piece;
use replication::Corrupt;
use replication::replica::framing::Framer;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Default)]
pub struct Received {
    bytes: Arc<Vec<u8>>,
    begin: usize,
    end: usize,
    framer: Framer,
    /// Memory that a piece was in.
    spare: Arc<Vec<u8>>,
}

/// Why there is nothing to apply.
#[derive(Debug)]
pub enum Missing {
    /// At least so many bytes have to come.
    Bytes(usize),
    /// The stream makes no sense.
    Sense(Corrupt),
}

impl From<Vec<u8>> for Received {
    fn from(bytes: Vec<u8>) -> Received {
        let end = bytes.len();
        Received { bytes: Arc::new(bytes), end, ..Received::default() }
    }
}

impl Received {
    /// What has come and was not taken.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// Takes bytes of the rest away.
    pub fn take(&mut self, bytes: usize) {
        self.begin += bytes;
    }

    /// Reads into room for at least so many bytes.
    ///
    /// # Errors
    /// Of the socket.
    pub fn read(&mut self, socket: &mut impl Read, missing: usize) -> io::Result<usize> {
        // A length that is a lie must not make room for more than comes.
        let rest = self.end - self.begin;
        let room = missing.clamp(PIECE, (2 * rest).max(PIECE));
        let bytes = self.make_room(rest + room);
        let read = socket.read(&mut bytes[rest..])?;
        self.end += read;
        Ok(read)
    }

    /// Reads what there is, without waiting for more.
    ///
    /// # Errors
    /// Of the socket; there may be nothing.
    pub fn read_at_once(&mut self, socket: &mut TcpStream) -> io::Result<usize> {
        socket.set_nonblocking(true)?;
        let outcome = self.read(socket, 0);
        socket.set_nonblocking(false)?;
        outcome
    }

    /// Memory of at least so many bytes, which begins with the rest.
    fn make_room(&mut self, len: usize) -> &mut Vec<u8> {
        let rest = self.begin..self.end;
        (self.begin, self.end) = (0, rest.len());
        if Arc::get_mut(&mut self.bytes).is_some() {
            let bytes = Arc::make_mut(&mut self.bytes);
            bytes.copy_within(rest, 0);
        } else {
            let mut other = std::mem::take(&mut self.spare);
            if Arc::get_mut(&mut other).is_none_or(|bytes| bytes.len() < rest.len()) {
                other = Arc::new(vec![0; len]);
            }
            Arc::make_mut(&mut other)[..rest.len()].copy_from_slice(&self.bytes[rest]);
            self.bytes = other;
        }
        let bytes = Arc::make_mut(&mut self.bytes);
        if bytes.len() < len {
            bytes.resize(len, 0);
        } else if bytes.len() > 4 * len {
            bytes.truncate(len);
            bytes.shrink_to_fit();
        }
        bytes
    }

    /// Takes whole entries of the stream.
    ///
    /// # Errors
    /// There is none.
    pub fn piece(&mut self, engine: &Engine) -> Result<Piece, Missing> {
        let parsed = self.framer.parse(&self.bytes[self.begin..self.end], TOGETHER);
        if self.framer.entries().is_empty() {
            return Err(parsed.map_or_else(Missing::Sense, Missing::Bytes));
        }
        let entries = self.framer.take();
        let taken = entries.bytes();
        let piece = Piece::new(engine, &self.bytes, self.begin, entries);
        self.begin += taken;
        Ok(piece)
    }

    /// The piece was applied: its memory can be used again.
    pub fn reuse(&mut self, piece: Piece) {
        let bytes = piece.into_bytes();
        if Arc::ptr_eq(&bytes, &self.bytes) {
            return;
        }
        // That of a large value is not worth keeping.
        self.spare = if bytes.len() > 4 * PIECE { Arc::default() } else { bytes };
    }
}
