//! Connections to the servers that MIGRATE sends keys to. One that was used with success is kept
//! for some seconds, since a tool that moves keys asks again at once.
//!
//! A kept connection belongs to the one command that takes it. Before it is used again it is looked
//! at: the other side may have closed it, or sent what no request has asked for. A thread closes
//! those that nothing has asked for; it ends with the last of them.

use crate::bus::{self, Way};
use crate::socket::Socket;
use cluster::id::Id;
use engine::Engine;
use engine::peer::Peer;
use process::thread;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;

/// Connections that are kept at most.
const MAX_KEPT: usize = 64;
/// For how long each is.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Bytes that the other side has to accept within the timeout.
const PIECE: usize = 64 << 10;
/// The longest answer.
const LONGEST_LINE: usize = 4 << 10;
/// Longer timeouts make no difference.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The connections that are kept.
#[derive(Default)]
pub struct Peers {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    /// In the order of their last use.
    connections: Vec<(Instant, Connection)>,
    has_sweeper: bool,
}

impl Peers {
    /// A connection that is kept, or a new one.
    ///
    /// # Errors
    /// There is no such server, or it cannot be reached in time.
    pub fn connect(
        &self,
        engine: &Engine,
        host: &[u8],
        port: &[u8],
        timeout: Duration,
    ) -> io::Result<Box<dyn Peer>> {
        let (host, port) = place(host, port)?;
        let way = bus::way(engine, &host, port, engine.config.tls_cluster());
        self.connect_by(engine, way.map_err(io::Error::other)?, timeout)
    }

    /// The same to a copy of the database. `place`: where it is if the bus is not used.
    ///
    /// # Errors
    /// Those of [`Self::connect`], or it is to be reached by the bus, and that is not known.
    pub fn connect_to_copy(
        &self,
        engine: &Engine,
        copy: Id,
        place: (&str, u16),
        timeout: Duration,
    ) -> io::Result<Box<dyn Peer>> {
        let way = bus::way_to(engine, Some(copy), place, engine.config.tls_cluster());
        self.connect_by(engine, way.map_err(io::Error::other)?, timeout)
    }

    fn connect_by(
        &self,
        engine: &Engine,
        name: Way,
        timeout: Duration,
    ) -> io::Result<Box<dyn Peer>> {
        let timeout = timeout.min(LONGEST_TIMEOUT);
        while let Some(mut connection) = self.take(&name) {
            if connection.is_quiet() {
                connection.timeout = timeout;
                return Ok(Box::new(connection));
            }
        }
        let rules = name.rules(&engine.config).map_err(io::Error::other)?;
        let socket = Socket::open(&name.host, name.port, None, timeout, rules, || true)?;
        let home = Arc::clone(&self.kept);
        Ok(Box::new(Connection { socket, name, timeout, input: Vec::new(), selected: None, home }))
    }

    /// How many are kept.
    pub fn kept(&self) -> usize {
        lock(&self.kept).connections.len()
    }

    fn take(&self, name: &Way) -> Option<Connection> {
        let connections = &mut lock(&self.kept).connections;
        let at = connections.iter().rposition(|(_, connection)| connection.name == *name)?;
        Some(connections.remove(at).1)
    }
}

/// Closes connections when they are old, until none is left.
fn sweep(home: &Mutex<Kept>) {
    loop {
        std::thread::sleep(KEPT_FOR / 10);
        let mut kept = lock(home);
        kept.connections.retain(|(since, _)| since.elapsed() < KEPT_FOR);
        if kept.connections.is_empty() {
            kept.has_sweeper = false;
            return;
        }
    }
}

/// Reads a host and a port.
fn place(host: &[u8], port: &[u8]) -> io::Result<(String, u16)> {
    let invalid = |_| io::Error::from(ErrorKind::InvalidInput);
    let host = std::str::from_utf8(host).map_err(invalid)?;
    let port = std::str::from_utf8(port).map_err(invalid)?;
    let port = port.parse::<u16>().map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    Ok((host.to_owned(), port))
}

struct Connection {
    socket: Socket,
    name: Way,
    timeout: Duration,
    /// What has come behind the last line.
    input: Vec<u8>,
    selected: Option<i64>,
    home: Arc<Mutex<Kept>>,
}

impl Connection {
    /// Whether it is open, and nothing has come that was not asked for.
    fn is_quiet(&mut self) -> bool {
        let mut look = || {
            self.socket.with(|socket| socket.set_nonblocking(true))?;
            let came = self.socket.read(&mut [0]);
            self.socket.with(|socket| socket.set_nonblocking(false))?;
            came
        };
        let came = look();
        self.input.is_empty() && came.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// What is left until then.
    ///
    /// # Errors
    /// Nothing.
    fn left(until: Instant) -> io::Result<Duration> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// An interrupted call is made again; what the system calls "would block" is the timeout.
fn may_go_on(error: io::Error) -> io::Result<usize> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(0),
        ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        _ => Err(error),
    }
}

impl Peer for Connection {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            let until = Instant::now() + self.timeout;
            let mut sent = 0;
            while sent < piece.len() {
                let left = Connection::left(until)?;
                self.socket.with(|socket| socket.set_write_timeout(Some(left)))?;
                sent += match self.socket.write(&piece[sent..]) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(bytes) => bytes,
                    Err(error) => may_go_on(error)?,
                };
            }
        }
        Ok(())
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let until = Instant::now() + self.timeout;
        let mut searched = 0;
        loop {
            if let Some(end) = self.input[searched..].iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.input.drain(..=searched + end).collect();
                line.truncate(line.len() - if line.ends_with(b"\r\n") { 2 } else { 1 });
                return Ok(line);
            }
            searched = self.input.len();
            if searched > LONGEST_LINE {
                return Err(ErrorKind::InvalidData.into());
            }
            let left = Connection::left(until)?;
            self.socket.with(|socket| socket.set_read_timeout(Some(left)))?;
            let mut piece = [0; 4096];
            match self.socket.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.input.extend_from_slice(&piece[..bytes]),
                Err(error) => _ = may_go_on(error)?,
            }
        }
    }

    fn keep(self: Box<Self>) {
        let home = Arc::clone(&self.home);
        let mut kept = lock(&home);
        if kept.connections.len() == MAX_KEPT {
            kept.connections.remove(0);
        }
        kept.connections.push((Instant::now(), *self));
        if !kept.has_sweeper {
            let home = Arc::clone(&home);
            // Without the thread they are closed when there are too many.
            kept.has_sweeper = thread::spawn("peers-close", move || sweep(&home)).is_ok();
        }
    }

    fn selected(&mut self) -> &mut Option<i64> {
        &mut self.selected
    }
}
