//! Reads a snapshot from the link: the bytes up to its end, and nothing after it.

use replication::wire::{MARK_LEN, SnapshotEnd};
use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

/// Observes the reading of a snapshot for the link's owner, between two pieces.
pub trait Watcher {
    /// Reports that `bytes` bytes of the snapshot have arrived so far. An error ends the snapshot.
    ///
    /// # Errors
    /// The snapshot is not wanted any more.
    fn came(&mut self, bytes: u64) -> io::Result<()>;
}

/// The reader of a snapshot. The module's documentation describes it.
pub struct SnapshotInput<'s, R, W> {
    socket: &'s mut R,
    watcher: &'s mut W,
    end: SnapshotEnd,
    /// Bytes that have arrived and were not read. If a mark ends the snapshot, the last bytes of
    /// its length are kept back, because they may be the mark.
    held: Vec<u8>,
    read: usize,
    /// Bytes of the stream that had arrived already.
    behind: Vec<u8>,
    /// Number of bytes that have arrived, of the snapshot and its mark.
    came: u64,
    is_over: bool,
    timeout: Duration,
}

impl<'s, R: Read, W: Watcher> SnapshotInput<'s, R, W> {
    /// Begins to read a snapshot whose first bytes have arrived already. A read from the socket may
    /// time out. It is an error if nothing arrives for `timeout`.
    pub fn new(
        socket: &'s mut R,
        watcher: &'s mut W,
        end: SnapshotEnd,
        first: Vec<u8>,
        timeout: Duration,
    ) -> Self {
        let (mut held, mut behind) = (first, Vec::new());
        if let SnapshotEnd::Length(bytes) = end
            && let Ok(bytes) = usize::try_from(bytes)
            && bytes < held.len()
        {
            behind = held.split_off(bytes);
        }
        let came = held.len() as u64;
        let mut input =
            Self { socket, watcher, end, held, behind, read: 0, came, is_over: false, timeout };
        input.look_for_end();
        input
    }

    fn look_for_end(&mut self) {
        self.is_over = match &self.end {
            SnapshotEnd::Length(bytes) => self.came >= *bytes,
            SnapshotEnd::Mark(mark) => self.held[self.read..].ends_with(mark),
        };
    }

    /// Returns the number of bytes that can be read now.
    fn readable(&self) -> usize {
        let held = self.held.len() - self.read;
        match &self.end {
            SnapshotEnd::Length(_) => held,
            SnapshotEnd::Mark(_) => held.saturating_sub(MARK_LEN),
        }
    }

    /// Waits for more bytes.
    fn fill(&mut self) -> io::Result<()> {
        self.held.drain(..self.read);
        self.read = 0;
        let room = match &self.end {
            SnapshotEnd::Length(bytes) => (bytes - self.came).min(PIECE as u64) as usize,
            SnapshotEnd::Mark(_) => PIECE,
        };
        let begin = self.held.len();
        let since = Instant::now();
        loop {
            self.held.resize(begin + room, 0);
            let outcome = self.socket.read(&mut self.held[begin..]);
            self.held.truncate(begin + *outcome.as_ref().unwrap_or(&0));
            match outcome {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.came += read as u64;
                    self.look_for_end();
                    return self.watcher.came(self.came);
                }
                Err(error) if is_nothing(&error) => {
                    self.watcher.came(self.came)?;
                    if since.elapsed() > self.timeout {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the snapshot's end. The snapshot itself has been read. Returns the bytes of the stream
    /// that have arrived after it.
    ///
    /// # Errors
    /// There is more than the end.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        let mut byte = [0];
        match self.read(&mut byte)? {
            0 => Ok(self.behind),
            _ => Err(io::Error::new(ErrorKind::InvalidData, "there are bytes behind its end")),
        }
    }
}

/// Returns whether an error only says that nothing has arrived for a while.
pub fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

impl<R: Read, W: Watcher> Read for SnapshotInput<'_, R, W> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.readable() == 0 && !self.is_over && !into.is_empty() {
            self.fill()?;
        }
        let now = self.readable().min(into.len());
        into[..now].copy_from_slice(&self.held[self.read..][..now]);
        self.read += now;
        Ok(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns its bytes in pieces of this size, and nothing every other time.
    struct Slow<'b>(&'b [u8], usize, bool);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let now = self.1.min(into.len()).min(self.0.len());
            into[..now].copy_from_slice(&self.0[..now]);
            self.0 = &self.0[now..];
            Ok(now)
        }
    }

    struct Unwatched;

    impl Watcher for Unwatched {
        fn came(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    fn read(end: SnapshotEnd, first: &[u8], rest: &[u8], piece: usize) -> io::Result<Vec<u8>> {
        let (mut socket, mut watcher) = (Slow(rest, piece, false), Unwatched);
        let timeout = Duration::from_secs(9);
        let mut input = SnapshotInput::new(&mut socket, &mut watcher, end, first.to_vec(), timeout);
        let mut all = Vec::new();
        input.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn a_snapshot_ends_with_its_mark_wherever_that_is_cut() {
        // Like the random marks: no prefix of this mark is also a suffix of the bytes before it.
        let mark: [u8; MARK_LEN] = std::array::from_fn(|at| b'a' + at as u8);
        let bytes = [&b"snapshot a"[..], &mark].concat();
        for piece in 1..60 {
            for first in [0, 5, 20, bytes.len()] {
                let (first, rest) = bytes.split_at(first);
                let end = SnapshotEnd::Mark(mark);
                assert_eq!(read(end, first, rest, piece).ok().as_deref(), Some(&b"snapshot a"[..]));
            }
        }
    }

    #[test]
    fn a_snapshot_with_a_length_leaves_the_stream_alone() {
        let mut socket = Slow(b"hot*1\r\n", 100, false);
        let end = SnapshotEnd::Length(8);
        let timeout = Duration::from_secs(9);
        let mut watcher = Unwatched;
        let mut input =
            SnapshotInput::new(&mut socket, &mut watcher, end, b"snaps".to_vec(), timeout);
        let mut all = Vec::new();
        input.read_to_end(&mut all).expect("it comes");
        assert_eq!((all.as_slice(), input.finish().expect("it ends")), (&b"snapshot"[..], vec![]));
        assert_eq!(socket.0, b"*1\r\n");
    }

    #[test]
    fn what_came_of_the_stream_is_not_of_the_snapshot() {
        let (mut socket, mut watcher) = (Slow(b"", 1, false), Unwatched);
        let (end, timeout) = (SnapshotEnd::Length(3), Duration::from_secs(9));
        let first = b"abc*1\r\n".to_vec();
        let mut input = SnapshotInput::new(&mut socket, &mut watcher, end, first, timeout);
        let mut all = Vec::new();
        input.read_to_end(&mut all).expect("it is there");
        assert_eq!(
            (all.as_slice(), input.finish().expect("it ends")),
            (&b"abc"[..], b"*1\r\n".to_vec())
        );
    }

    #[test]
    fn a_link_that_ends_is_an_error() {
        for end in [SnapshotEnd::Length(9), SnapshotEnd::Mark([b'm'; MARK_LEN])] {
            let error = read(end, b"ab", b"c", 1).expect_err("it is cut");
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }
}
