//! Bytes that have arrived over the link and were not applied yet: lines of the handshake, then the
//! stream.
//!
//! A piece that is being applied shares its bytes with this buffer. New bytes then go into other
//! memory, and the beginning of an incomplete entry is copied there.

use super::{PIECE, TOGETHER};
use engine::Engine;
use engine::follow::Piece;
use replication::Corrupt;
use replication::replica::framing::Framer;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;

/// The receive buffer. The module's documentation describes it.
#[derive(Default)]
pub struct Received {
    bytes: Arc<Vec<u8>>,
    begin: usize,
    end: usize,
    framer: Framer,
    /// Memory of an applied piece, for reuse.
    spare: Arc<Vec<u8>>,
}

/// Why there is nothing to apply.
#[derive(Debug)]
pub enum Missing {
    /// At least this many bytes have to arrive first.
    Bytes(usize),
    /// The stream is corrupt.
    Sense(Corrupt),
}

impl From<Vec<u8>> for Received {
    fn from(bytes: Vec<u8>) -> Received {
        let end = bytes.len();
        Received { bytes: Arc::new(bytes), end, ..Received::default() }
    }
}

impl Received {
    /// Returns the bytes that have arrived and were not taken.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// Removes bytes from the beginning of the rest.
    pub fn take(&mut self, bytes: usize) {
        self.begin += bytes;
    }

    /// Reads bytes. The buffer is enlarged for `missing` bytes. Returns the number of bytes read.
    ///
    /// # Errors
    /// An error of the socket.
    pub fn read(&mut self, socket: &mut impl Read, missing: usize) -> io::Result<usize> {
        // A false length must not enlarge the buffer beyond twice the bytes that have arrived.
        let rest = self.end - self.begin;
        let room = missing.clamp(PIECE, (2 * rest).max(PIECE));
        let bytes = self.make_room(rest + room);
        let read = socket.read(&mut bytes[rest..])?;
        self.end += read;
        Ok(read)
    }

    /// Reads the available bytes without waiting for more.
    ///
    /// # Errors
    /// An error of the socket, or nothing is available.
    pub fn read_at_once(&mut self, socket: &mut TcpStream) -> io::Result<usize> {
        socket.set_nonblocking(true)?;
        let outcome = self.read(socket, 0);
        socket.set_nonblocking(false)?;
        outcome
    }

    /// Returns a buffer of at least `len` bytes, which begins with the rest.
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
    /// There is no whole entry.
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

    /// Takes the memory of an applied piece for reuse.
    pub fn reuse(&mut self, piece: Piece) {
        let bytes = piece.into_bytes();
        if Arc::ptr_eq(&bytes, &self.bytes) {
            return;
        }
        // Memory of a large value is not kept.
        self.spare = if bytes.len() > 4 * PIECE { Arc::default() } else { bytes };
    }
}
