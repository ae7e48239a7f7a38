//! The client with the long commands.
//!
//! It sends a command and an ECHO behind it, and reads until the echo's answer ends the stream: a
//! reply of a million elements costs it no more than the reading.

use crate::client::{Client, encode};
use crate::info;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const MARK: &[u8] = b"$17\r\nend-of-the-answer\r\n";
const CHUNK: usize = 1 << 20;

/// The client; see the module's documentation.
pub struct Commander {
    stream: TcpStream,
    control: Client,
    chunk: Vec<u8>,
}

impl Commander {
    /// Connects twice: for the long commands and for questions about them.
    pub fn connect(address: SocketAddr) -> io::Result<Commander> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Commander { stream, control: Client::connect(address)?, chunk: vec![0; CHUNK] })
    }

    /// Runs a command and waits for the end of its answer; an error reply is an error.
    pub fn run<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Duration> {
        let mut request = encode(words);
        request.extend(encode(&["ECHO", "end-of-the-answer"]));
        let started = Instant::now();
        self.stream.write_all(&request)?;
        self.drain(words[0].as_ref())?;
        Ok(started.elapsed())
    }

    /// Sends requests that were encoded already, one ECHO behind them, and waits for the end.
    pub fn run_encoded(&mut self, requests: &[u8]) -> io::Result<Duration> {
        let started = Instant::now();
        self.stream.write_all(requests)?;
        self.stream.write_all(&encode(&["ECHO", "end-of-the-answer"]))?;
        self.drain(b"a batch")?;
        Ok(started.elapsed())
    }

    fn drain(&mut self, what: &[u8]) -> io::Result<()> {
        // The last bytes, which the mark may begin in.
        let mut tail: Vec<u8> = Vec::new();
        let mut is_first = true;
        loop {
            let read = self.stream.read(&mut self.chunk)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let fresh = &self.chunk[..read];
            if std::mem::take(&mut is_first) && fresh[0] == b'-' {
                let text = String::from_utf8_lossy(fresh);
                let line = text.lines().next().unwrap_or_default();
                let what = String::from_utf8_lossy(what);
                return Err(io::Error::other(format!("{what}: {line}")));
            }
            tail.extend_from_slice(&fresh[read.saturating_sub(MARK.len())..]);
            let surplus = tail.len().saturating_sub(MARK.len());
            tail.drain(..surplus);
            if tail == MARK {
                return Ok(());
            }
        }
    }

    /// A number from INFO.
    pub fn info(&mut self, field: &str) -> io::Result<u64> {
        let reply = self.control.command(&["INFO"])?;
        let number = info::find(&reply, field).and_then(|value| value.parse().ok());
        number.ok_or_else(|| io::Error::other(format!("INFO has no number {field}")))
    }

    /// The number of keys in database 0.
    pub fn dbsize(&mut self) -> io::Result<usize> {
        let reply = self.control.command(&["DBSIZE"])?;
        let count = reply.integer().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| io::Error::other("DBSIZE is no number"))
    }

    /// Waits until nothing is left to be freed in the background.
    pub fn wait_until_freed(&mut self) -> io::Result<()> {
        while self.info("lazyfree_pending_objects")? > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until no snapshot is being written.
    pub fn wait_until_saved(&mut self) -> io::Result<()> {
        while self.info("rdb_bgsave_in_progress")? > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A command whose reply is a string.
    pub fn bulk<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Vec<u8>> {
        let reply = self.control.command(words)?;
        let text = reply.text().map(<[u8]>::to_vec);
        text.ok_or_else(|| io::Error::other("the reply is no string"))
    }

    /// Runs `COMMAND key element …` for `count` elements, a thousand at a time.
    pub fn fill(
        &mut self,
        command: &str,
        key: &str,
        count: usize,
        element: impl Fn(usize) -> Vec<String>,
    ) -> io::Result<()> {
        for start in (0..count).step_by(1000) {
            let mut words = vec![command.to_owned(), key.to_owned()];
            (start..count.min(start + 1000)).for_each(|number| words.extend(element(number)));
            self.run(&words)?;
        }
        Ok(())
    }
}
