//! A small line protocol on top of the reactor, which lets a test provoke whatever it wants to see,
//! and a server that runs it on either back-end.
//!
//! ```text
//! echo TEXT      TEXT                         big N          N bytes and a line end
//! id             this connection's id         quit           bye, then close when sent
//! hang           close at once                pause          nothing is processed until resumed
//! later N        a reply after N retries      block MS       the thread sleeps
//! memory ID      that connection's buffers    tell ID TEXT   TEXT to that connection
//! hold TEXT      TEXT, when the position that was written with it has been released
//! $N             N raw bytes follow: their sum
//! @N             N raw bytes and a line end follow, a long word: their `digest`
//! ```
#![allow(dead_code)] // Each test program uses its own part of this.
#![allow(clippy::unwrap_used)] // A test's helpers are tests.

pub mod authority;

use net::{
    Address, Backend, Close, ConnId, ConnIo, Consumed, Cx, Gate, Handler, Kind, ListenSpec, Net,
    NetOptions, NextInput, PeerInfo, Problem, Reactor, Tag,
};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs a test on both back-ends, each as a test of its own.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod uring {
            $(#[test] fn $name() {
                match net::Backend::probe() {
                    Ok(()) => super::$name(net::Backend::Uring),
                    Err(why) => println!("SKIPPED: {why}"),
                }
            })*
        }
        mod epoll {
            $(#[test] fn $name() { super::$name(net::Backend::Epoll); })*
        }
    };
}

/// What happened to a connection, or went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    Opened { id: ConnId, kind: Kind, cert_name: Option<String>, local: bool },
    Closed(ConnId, Close),
    Problem(String),
}

/// A message from the test to a reactor.
#[derive(Debug, Clone)]
pub enum Message {
    Resume(ConnId),
    Say(ConnId, String),
    Hang(ConnId),
}

/// What the test and all threads see.
#[derive(Default)]
pub struct Watch {
    notes: Mutex<Vec<Note>>,
    changed: Condvar,
    mail: Mutex<Vec<(usize, Message)>>,
    /// Messages to connections that had gone.
    lost: Mutex<usize>,
    woken: Mutex<usize>,
    /// What replies that are held wait for: the number of them so far.
    pub written: AtomicU64,
}

impl Watch {
    fn note(&self, note: Note) {
        self.notes.lock().unwrap().push(note);
        self.changed.notify_all();
    }

    /// Waits until the notes satisfy a condition.
    pub fn until<T>(&self, mut found: impl FnMut(&[Note]) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut notes = self.notes.lock().unwrap();
        loop {
            if let Some(value) = found(&notes) {
                return value;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing of the kind in {:?}", *notes);
            notes = self.changed.wait_timeout(notes, left).unwrap().0;
        }
    }

    pub fn closed(&self, id: ConnId) -> Close {
        self.until(|notes| {
            notes.iter().find_map(|note| match note {
                Note::Closed(closed, why) if *closed == id => Some(*why),
                _ => None,
            })
        })
    }

    pub fn problem(&self) -> String {
        self.until(|notes| {
            notes.iter().find_map(|note| match note {
                Note::Problem(text) => Some(text.clone()),
                _ => None,
            })
        })
    }

    pub fn lost(&self) -> usize {
        *self.lost.lock().unwrap()
    }
}

pub struct Lines {
    watch: Arc<Watch>,
}

#[derive(Default)]
pub struct Client {
    id: Option<ConnId>,
    retries: u32,
}

/// A number that depends on each byte and its place.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

impl Lines {
    /// Runs a request with a long word of `len` bytes; `body` is the input behind its line.
    fn run_word(
        io: &mut ConnIo<'_>,
        body: &[u8],
        header: usize,
        len: usize,
    ) -> Result<usize, Consumed> {
        let (digest, used) = match io.take_word() {
            Some(word) => (digest(word.as_slice()), 0),
            None if body.len() > len => (digest(&body[..len]), len),
            None => {
                let next = NextInput::Word { arrived: body.len(), len, behind: 1 };
                return Err(Consumed { bytes: 0, next });
            }
        };
        assert_eq!(body[used], b'\n', "the input goes on behind the word");
        drop(writeln!(io.out().plain_mut(), "{digest}"));
        Ok(header + used + 1)
    }

    /// Runs one request: how many bytes it had, or what is to be done instead.
    fn run(
        &mut self,
        conn: &mut Client,
        io: &mut ConnIo<'_>,
        input: &[u8],
    ) -> Result<usize, Consumed> {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return Err(Consumed::read(0));
        };
        let line = String::from_utf8_lossy(&input[..end]).into_owned();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let number = || rest.parse::<usize>().unwrap_or(0);
        if let Some(len) = word.strip_prefix('$') {
            let len: usize = len.parse().unwrap_or(0);
            let body = &input[end + 1..];
            if body.len() < len {
                return Err(Consumed::need(0, len - body.len()));
            }
            let sum: u64 = body[..len].iter().map(|byte| u64::from(*byte)).sum();
            let _ = writeln!(io.out().plain_mut(), "{sum}");
            return Ok(end + 1 + len);
        }
        if let Some(len) = word.strip_prefix('@') {
            return Self::run_word(io, &input[end + 1..], end + 1, len.parse().unwrap_or(0));
        }
        match word {
            "echo" => drop(writeln!(io.out().plain_mut(), "{rest}")),
            "hold" => {
                drop(writeln!(io.out().plain_mut(), "{rest}"));
                let position = self.watch.written.fetch_add(1, SeqCst) + 1;
                drop(self.watch.notes.lock().unwrap());
                self.watch.changed.notify_all();
                io.hold_until(Gate::Released, position);
            }
            "big" => {
                let len = io.out().plain_mut().len() + number();
                io.out().plain_mut().resize(len, b'x');
                io.out().plain_mut().push(b'\n');
            }
            "id" => {
                let id = io.id().as_u64();
                drop(writeln!(io.out().plain_mut(), "{id}"));
            }
            "quit" => {
                drop(writeln!(io.out().plain_mut(), "bye"));
                io.close_after_flush();
            }
            "hang" => io.close(),
            "pause" => io.pause(),
            "later" => {
                if (conn.retries as usize) < number() {
                    conn.retries += 1;
                    return Err(Consumed::retry(0));
                }
                drop(writeln!(io.out().plain_mut(), "after {}", std::mem::take(&mut conn.retries)));
            }
            "block" => std::thread::sleep(Duration::from_millis(number() as u64)),
            "memory" => {
                let id = ConnId::from_u64(rest.parse().unwrap_or(0));
                let bytes = io.other(id).map_or(0, |other| other.output_size().chunk_memory);
                drop(writeln!(io.out().plain_mut(), "{bytes}"));
            }
            "tell" => {
                let (id, text) = rest.split_once(' ').unwrap_or((rest, ""));
                match io.other(ConnId::from_u64(id.parse().unwrap_or(0))) {
                    Some(mut other) => drop(writeln!(other.out().plain_mut(), "{text}")),
                    None => drop(writeln!(io.out().plain_mut(), "nobody")),
                }
            }
            _ => drop(writeln!(io.out().plain_mut(), "what?")),
        }
        Ok(end + 1)
    }
}

impl Handler for Lines {
    type Conn = Client;
    fn opened(&mut self, peer: &PeerInfo, io: &mut ConnIo<'_>) -> Option<Client> {
        assert_eq!((peer.id, peer.fd), (io.id(), io.fd()));
        self.watch.note(Note::Opened {
            id: peer.id,
            kind: peer.kind,
            cert_name: peer.cert_name.clone(),
            local: peer.is_local(),
        });
        Some(Client { id: Some(peer.id), retries: 0 })
    }

    fn data(&mut self, conn: &mut Client, io: &mut ConnIo<'_>, input: &[u8]) -> Consumed {
        assert_eq!(conn.id, Some(io.id()), "the state belongs to the connection");
        let mut at = 0;
        while at < input.len() && !io.is_paused() && !io.is_closing() {
            match self.run(conn, io, &input[at..]) {
                Ok(len) => at += len,
                Err(mut consumed) => {
                    consumed.bytes += at;
                    return consumed;
                }
            }
        }
        Consumed::read(at)
    }

    fn closed(&mut self, id: ConnId, conn: Client, why: Close, _cx: &mut Cx<'_, Client>) {
        assert_eq!(conn.id, Some(id));
        self.watch.note(Note::Closed(id, why));
    }

    fn woken(&mut self, cx: &mut Cx<'_, Client>) {
        *self.watch.woken.lock().unwrap() += 1;
        let mail: Vec<_> = {
            let mut mail = self.watch.mail.lock().unwrap();
            let (mine, others) = mail.drain(..).partition(|(thread, _)| *thread == cx.thread());
            *mail = others;
            mine
        };
        for (_, message) in mail {
            let (Message::Resume(id) | Message::Say(id, _) | Message::Hang(id)) = &message;
            match (cx.get(*id), message) {
                (Some((_, mut io)), Message::Resume(_)) => io.resume(),
                (Some((_, mut io)), Message::Say(_, text)) => {
                    drop(writeln!(io.out().plain_mut(), "{text}"))
                }
                (Some((_, mut io)), Message::Hang(_)) => io.close(),
                (None, _) => *self.watch.lost.lock().unwrap() += 1,
            }
        }
    }

    fn tick(&mut self, _cx: &mut Cx<'_, Client>) -> Duration {
        // Nothing may depend on it.
        Duration::from_secs(3600)
    }

    fn problem(&mut self, problem: Problem<'_>) {
        self.watch.note(Note::Problem(problem.to_string()));
    }
}

/// A running server.
pub struct Server {
    pub net: Arc<Net>,
    pub watch: Arc<Watch>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    pub fn start(backend: Backend, threads: usize) -> Self {
        Self::with(NetOptions { backend, threads, ..NetOptions::default() }, |_| {
            vec![Self::anywhere(Kind::Tcp)]
        })
    }

    /// A listener on a port the system chooses.
    pub fn anywhere(kind: Kind) -> ListenSpec {
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
        ListenSpec { kind, address, optional: false, tag: Tag::default() }
    }

    pub fn with(options: NetOptions, specs: impl FnOnce(&Net) -> Vec<ListenSpec>) -> Self {
        Self::after(options, specs, |_| {})
    }

    /// Lets the test do something between the listeners' opening and the first acceptance.
    pub fn after(
        options: NetOptions,
        specs: impl FnOnce(&Net) -> Vec<ListenSpec>,
        before_accepting: impl FnOnce(SocketAddr),
    ) -> Self {
        let net = Net::new(options).unwrap();
        net.rebind(&specs(&net)).unwrap();
        if let Some(address) = net.addresses().first() {
            before_accepting(*address);
        }
        let watch = Arc::new(Watch::default());
        let thread = |thread| {
            let (net, watch) = (net.clone(), watch.clone());
            std::thread::spawn(move || {
                let reactor = Reactor::new(&net, thread, Lines { watch }).unwrap();
                reactor.run().unwrap();
            })
        };
        let threads = (0..net.threads()).map(thread).collect();
        Self { net, watch, threads }
    }

    pub fn addr(&self) -> SocketAddr {
        self.net.addresses()[0]
    }

    pub fn connect(&self) -> Peer {
        Peer::new(TcpStream::connect(self.addr()).unwrap())
    }

    pub fn send(&self, message: Message) {
        let (Message::Resume(id) | Message::Say(id, _) | Message::Hang(id)) = &message;
        let thread = id.thread();
        self.watch.mail.lock().unwrap().push((thread, message));
        self.net.waker(thread).wake();
    }

    pub fn stop(&mut self) {
        self.net.stop();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// The client's end of a connection.
pub struct Peer<S: Read + Write = TcpStream> {
    pub stream: BufReader<S>,
}

impl Peer<TcpStream> {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub fn tcp(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

impl<S: Read + Write> Peer<S> {
    pub fn over(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    pub fn say(&mut self, text: &str) -> &mut Self {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
        self.stream.get_mut().flush().unwrap();
        self
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the connection ended after {line:?}");
        line.pop();
        line
    }

    pub fn ask(&mut self, text: &str) -> String {
        self.say(text).say("\n").line()
    }

    pub fn id(&mut self) -> ConnId {
        ConnId::from_u64(self.ask("id").parse().unwrap())
    }

    /// True when the server has closed the connection; says what it did instead, if it did not.
    pub fn ended(&mut self) -> bool {
        let mut byte = [0];
        // Unlike `read` it goes on when it is interrupted, as it is while the kernel takes apart an
        // io_uring that this thread has dropped.
        match self.stream.read_exact(&mut byte) {
            Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return true;
            }
            Err(e) => eprintln!("the connection has not ended: {e}"),
            Ok(()) => eprintln!("the server has sent {:?}", byte.escape_ascii().to_string()),
        }
        false
    }
}
