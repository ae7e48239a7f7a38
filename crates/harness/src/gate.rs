//! A link between a replica and its primary that can be held at a point of the synchronisation.
//!
//! It forwards whatever the replica says at once, and reads what the primary says to find the
//! point: lines until `+FULLRESYNC` or `+CONTINUE`, the header of the snapshot, the snapshot, the
//! stream. Where it is to hold, nothing more is forwarded until it is told to go on, and the test
//! does what it is about.

use crate::replicas::send_on;
use crate::wait::eventually;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The length of the mark behind a snapshot.
const MARK: usize = 40;

/// A point of a synchronisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// The answer to PSYNC has come and was not forwarded.
    Answer,
    /// `+FULLRESYNC` was forwarded, and nothing behind it.
    Header,
    /// So many bytes of the snapshot were forwarded, or all of it.
    Snapshot(usize),
    /// All of the snapshot was forwarded, and nothing of the stream.
    End,
    /// So many bytes of the stream were forwarded.
    Stream(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Pass,
    HoldAt(Point),
    Held,
}

/// See the module's documentation.
pub struct Gate {
    port: u16,
    state: Arc<State>,
}

struct State {
    order: Mutex<Order>,
    changed: Condvar,
    sockets: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn cut(&self) {
        for socket in lock(&self.sockets).drain(..) {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Stands still if this is the point.
    fn hold_if(&self, is_it: impl Fn(Point) -> bool) {
        let mut order = lock(&self.order);
        if !matches!(*order, Order::HoldAt(point) if is_it(point)) {
            return;
        }
        *order = Order::Held;
        self.changed.notify_all();
        while *order == Order::Held {
            order = self.changed.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Bytes that may be forwarded before the gate has to be asked again, of a part of which `done`
    /// were.
    fn most(&self, done: usize, of: impl Fn(Point) -> Option<usize>) -> usize {
        match *lock(&self.order) {
            Order::HoldAt(point) => of(point).map_or(usize::MAX, |at| at.saturating_sub(done)),
            _ => usize::MAX,
        }
        .max(1)
    }
}

impl Gate {
    /// A link to a server.
    ///
    /// # Errors
    /// There is no port to listen on.
    pub fn to(target: SocketAddr) -> io::Result<Gate> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State {
            order: Mutex::new(Order::Pass),
            changed: Condvar::new(),
            sockets: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let own = Arc::clone(&state);
        thread::spawn(move || {
            for replica in listener.incoming() {
                if own.is_over.load(SeqCst) {
                    break;
                }
                // Where the primary is not there, the replica is to find that out by itself.
                let (Ok(replica), Ok(primary)) = (replica, TcpStream::connect(target)) else {
                    continue;
                };
                let Ok(()) = forward(&own, replica, primary) else { continue };
            }
        });
        Ok(Gate { port, state })
    }

    /// Where to connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Holds when the point comes next, in whichever connection.
    pub fn hold_at(&self, point: Point) {
        *lock(&self.state.order) = Order::HoldAt(point);
    }

    /// Waits until it holds.
    #[track_caller]
    pub fn until_held(&self) {
        eventually("the point is reached", || *lock(&self.state.order) == Order::Held);
    }

    /// Goes on.
    pub fn release(&self) {
        *lock(&self.state.order) = Order::Pass;
        self.state.changed.notify_all();
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.state.cut();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.state.is_over.store(true, SeqCst);
        self.release();
        self.state.cut();
        // The thread that listens finds out.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// Starts the two directions of a connection.
fn forward(state: &Arc<State>, replica: TcpStream, primary: TcpStream) -> io::Result<()> {
    lock(&state.sockets).extend([replica.try_clone()?, primary.try_clone()?]);
    send_on(replica.try_clone()?, primary.try_clone()?);
    let state = Arc::clone(state);
    thread::spawn(move || {
        let (end, other) = (replica.try_clone(), primary.try_clone());
        // An error ends the connection, as its end does.
        let _ = Down { state, replica, primary, input: Vec::new() }.run();
        for socket in [end, other].into_iter().flatten() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    });
    Ok(())
}

/// The direction from the primary to the replica.
struct Down {
    state: Arc<State>,
    replica: TcpStream,
    primary: TcpStream,
    /// What has come and was not forwarded.
    input: Vec<u8>,
}

impl Down {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let line = self.line()?;
            let is_full = line.starts_with(b"+FULLRESYNC");
            if is_full || line.starts_with(b"+CONTINUE") {
                self.state.hold_if(|point| point == Point::Answer);
                self.replica.write_all(&line)?;
                if is_full {
                    self.snapshot()?;
                }
                return self.stream();
            }
            self.replica.write_all(&line)?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 4096];
        match self.primary.read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.input.extend_from_slice(&piece[..read]);
                Ok(())
            }
        }
    }

    /// The next line, with its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
                return Ok(self.input.drain(..=end).collect());
            }
            self.fill()?;
        }
    }

    fn snapshot(&mut self) -> io::Result<()> {
        self.state.hold_if(|point| point == Point::Header);
        let header = loop {
            let line = self.line()?;
            self.replica.write_all(&line)?;
            if line.starts_with(b"$") {
                break line.trim_ascii_end().to_vec();
            }
        };
        match header.strip_prefix(b"$EOF:") {
            Some(mark) => self.marked(&mark[..MARK.min(mark.len())])?,
            None => {
                let length = String::from_utf8_lossy(&header[1..]).parse().unwrap_or(0);
                self.bytes(length)?;
            }
        }
        self.state.hold_if(|point| matches!(point, Point::Snapshot(_) | Point::End));
        Ok(())
    }

    fn snapshot_limit(point: Point) -> Option<usize> {
        if let Point::Snapshot(at) = point { Some(at) } else { None }
    }

    fn hold_in_snapshot(&self, done: usize) {
        self.state.hold_if(|point| Self::snapshot_limit(point).is_some_and(|at| done >= at));
    }

    /// A snapshot of so many bytes.
    fn bytes(&mut self, length: usize) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            if self.input.is_empty() {
                self.fill()?;
            }
            let most = self.state.most(done, Self::snapshot_limit).min(length - done);
            done += self.forward(most)?;
            self.hold_in_snapshot(done);
        }
        Ok(())
    }

    /// A snapshot that ends with a mark.
    fn marked(&mut self, mark: &[u8]) -> io::Result<()> {
        let mut done = 0;
        loop {
            let found = self.input.windows(MARK).position(|window| window == mark);
            let length = match found {
                Some(at) => at + MARK,
                // The rest may be the beginning of the mark.
                None => self.input.len().saturating_sub(MARK),
            };
            let end = done + length;
            while done < end {
                let most = self.state.most(done, Self::snapshot_limit).min(end - done);
                done += self.forward(most)?;
                self.hold_in_snapshot(done);
            }
            if found.is_some() {
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn stream(&mut self) -> io::Result<()> {
        let limit = |point| if let Point::Stream(at) = point { Some(at) } else { None };
        let mut done = 0;
        loop {
            if self.input.is_empty() {
                self.fill()?;
            }
            let most = self.state.most(done, limit);
            done += self.forward(most)?;
            self.state.hold_if(|point| limit(point).is_some_and(|at| done >= at));
        }
    }

    /// Forwards at most so many of the bytes that have come.
    fn forward(&mut self, most: usize) -> io::Result<usize> {
        let now = most.min(self.input.len());
        self.replica.write_all(&self.input[..now])?;
        self.input.drain(..now);
        Ok(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connects through a gate to something that says this, and returns what comes up to the point.
    fn until(said: &[u8], point: Point) -> Vec<u8> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let gate = Gate::to(listener.local_addr().expect("it has one")).expect("a port");
        gate.hold_at(point);
        let mut replica =
            TcpStream::connect((Ipv4Addr::LOCALHOST, gate.port())).expect("it listens");
        let (mut primary, _) = listener.accept().expect("it connects");
        primary.write_all(said).expect("it is there");
        gate.until_held();
        gate.cut();
        gate.release();
        let mut got = Vec::new();
        // A cut may look like an error.
        let _ = replica.read_to_end(&mut got);
        got
    }

    #[test]
    fn it_holds_at_each_point() {
        let mark = "m".repeat(MARK);
        let marked = format!("+PONG\r\n+FULLRESYNC x 1\r\n\n$EOF:{mark}\r\nsnapshot{mark}*1\r\n");
        let sized = "+PONG\r\n+FULLRESYNC x 1\r\n\n$8\r\nsnapshot*1\r\n".to_owned();
        let end = format!("snapshot{mark}");
        for (text, end) in [(marked, end.as_str()), (sized, "snapshot")] {
            let behind = |part: &str| text.find(part).expect("it is there") + part.len();
            let points = [
                (Point::Answer, behind("+PONG\r\n")),
                (Point::Header, behind("x 1\r\n")),
                (Point::Snapshot(3), behind("\r\nsna")),
                (Point::Snapshot(1000), behind(end)),
                (Point::End, behind(end)),
                (Point::Stream(2), behind("*1")),
            ];
            for (point, at) in points {
                let got = until(text.as_bytes(), point);
                assert_eq!(String::from_utf8_lossy(&got), text[..at], "{point:?}");
            }
        }
    }
}
