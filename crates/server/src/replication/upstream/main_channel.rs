//! The main channel while a snapshot arrives over another connection. A thread reads the stream and
//! keeps it, so that it takes no memory of the primary, and regularly tells the primary that the
//! link is alive.
//!
//! The kept bytes are limited. Beyond the limit the socket is not read, and the rest waits at the
//! primary.

use super::input::is_nothing;
use super::kept::Kept;
use crate::log;
use crate::socket::{ROUND, Socket};
use engine::Engine;
use process::{os_error, thread};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use structs::sync::lock;

/// Bytes that are read at a time.
const PIECE: usize = 128 << 10;
/// Longest wait for bytes. After it the thread checks whether it has to end.
const LOOK: Duration = Duration::from_millis(10);
/// Time between two signs of life.
const ALIVE_PERIOD: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    kept: Mutex<Kept>,
    failure: Mutex<Option<String>>,
}

/// The main channel. The module's documentation describes it. The thread ends when this value is
/// dropped.
pub struct MainChannel {
    socket: Option<Socket>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl MainChannel {
    /// Starts to keep the stream, beginning with `first`, which has arrived already.
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
    pub fn start(engine: &'static Engine, socket: Socket, first: &[u8]) -> io::Result<MainChannel> {
        let shared = Arc::new(Shared::default());
        lock(&shared.kept).push(first);
        let own = Arc::clone(&shared);
        let mut reader = Reader {
            engine,
            socket: socket.try_clone()?,
            limit: limit(engine),
            timeout: Duration::from_secs(engine.config.repl_timeout().into()),
            alive: Instant::now(),
        };
        socket.with(|socket| socket.set_read_timeout(Some(LOOK)))?;
        let thread = thread::spawn("main-channel", move || {
            if let Err(error) = reader.run(&own) {
                *lock(&own.failure) = Some(os_error(&error));
            }
        })?;
        Ok(MainChannel { socket: Some(socket), shared, thread: Some(thread) })
    }

    /// Returns why no more bytes arrive, if that is so.
    pub fn failure(&self) -> Option<String> {
        lock(&self.shared.failure).clone()
    }

    /// Ends the thread. Returns the socket and the kept bytes.
    ///
    /// # Errors
    /// An error of the socket.
    pub fn finish(mut self) -> io::Result<(Socket, Kept)> {
        self.end();
        let socket = self.socket.take().expect("it is there until now");
        socket.with(|socket| socket.set_read_timeout(Some(ROUND)))?;
        let kept = std::mem::take(&mut *lock(&self.shared.kept));
        Ok((socket, kept))
    }

    fn end(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic ends the process");
        }
    }
}

impl Drop for MainChannel {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the number of bytes of the stream that may be kept.
fn limit(engine: &Engine) -> usize {
    let own = engine.config.replica_full_sync_buffer_limit();
    let limit = if own == 0 { engine.replica_allowance() } else { own };
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The state of the thread.
struct Reader {
    engine: &'static Engine,
    socket: Socket,
    limit: usize,
    timeout: Duration,
    alive: Instant,
}

impl Reader {
    fn run(&mut self, shared: &Shared) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut heard = Instant::now();
        let mut has_said = false;
        self.engine.upstream.note_kept(lock(&shared.kept).len() as u64);
        while !shared.is_over.load(SeqCst) {
            self.keep_alive()?;
            let room = self.limit.saturating_sub(lock(&shared.kept).len()).min(PIECE);
            if room == 0 {
                if !std::mem::replace(&mut has_said, true) {
                    log!(
                        Notice,
                        "Replication buffer limit reached ({} bytes), stopping buffering. The rest of the stream \
                         waits on the master.",
                        self.limit
                    );
                }
                heard = Instant::now();
                std::thread::sleep(LOOK);
                continue;
            }
            match self.socket.read(&mut piece[..room]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    heard = Instant::now();
                    let mut kept = lock(&shared.kept);
                    kept.push(&piece[..read]);
                    self.engine.upstream.note_kept(kept.len() as u64);
                }
                Err(error) if is_nothing(&error) && heard.elapsed() < self.timeout => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn keep_alive(&mut self) -> io::Result<()> {
        if self.alive.elapsed() < ALIVE_PERIOD {
            return Ok(());
        }
        self.alive = Instant::now();
        self.socket.write_all(b"\n")
    }
}
