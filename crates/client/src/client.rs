//! A connection that sends requests and waits for their replies.

use crate::address::Address;
use crate::dial::{Dial, Family, dial};
use crate::stream::{Stream, is_timeout};
use net::TlsClient;
use resp::bulk::push_request;
use resp::token::MAX_LINE;
use resp::{Incoming, InvalidReply, ReplyLimits, Value};
use std::io::{self, ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes that are read at a time, and that the buffer for sending keeps.
const CHUNK: usize = 128 << 10;

/// How long to wait for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as it takes. A signal that interrupts the wait is an error.
    Forever,
    /// So long for connecting, and for each reply.
    Each(Duration),
    /// Until then for all there is.
    Until(Instant),
}

impl Patience {
    /// Returns when something that begins now has failed.
    fn deadline(self) -> Option<Instant> {
        match self {
            Patience::Forever => None,
            Patience::Each(limit) => Some(Instant::now() + limit),
            Patience::Until(deadline) => Some(deadline),
        }
    }
}

/// Returns what is left until then; `None` if there is no end.
fn left(deadline: Option<Instant>) -> io::Result<Option<Duration>> {
    let Some(deadline) = deadline else { return Ok(None) };
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(timed_out()),
        left => Ok(Some(left)),
    }
}

fn timed_out() -> io::Error {
    // The system would say "Resource temporarily unavailable".
    io::Error::new(ErrorKind::TimedOut, "timed out")
}

/// A user and its password.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// Empty for the default user.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
}

impl<'a> Login<'a> {
    /// Returns the words of AUTH. Servers before Redis 6 know the default user alone.
    pub fn words(&self) -> Vec<&'a str> {
        let words = ["AUTH", self.user, self.password];
        words.into_iter().filter(|word| !word.is_empty()).collect()
    }
}

/// How to open connections.
#[derive(Clone, Copy, Debug)]
pub struct Connector<'a> {
    /// How long to wait.
    pub patience: Patience,
    /// When connecting has failed, if that is not said by the patience.
    pub connect_until: Option<Instant>,
    /// Which addresses of a host come first.
    pub family: Family,
    /// Says why an address of a host must not be connected to.
    pub check: Option<fn(IpAddr) -> io::Result<()>>,
    /// Encryption, if it is wanted.
    pub tls: Option<&'a TlsClient>,
    /// How to log in. Nothing is sent without a password.
    pub login: Login<'a>,
    /// The bytes of the longest reply that is read.
    pub max_reply: usize,
}

impl Connector<'_> {
    /// Waits so long, without encryption and login, for replies of a gigabyte.
    pub fn plain(patience: Patience) -> Self {
        let login = Login { user: "", password: "" };
        Connector {
            patience,
            connect_until: None,
            check: None,
            family: Family::Any,
            tls: None,
            login,
            max_reply: 1 << 30,
        }
    }

    /// Connects and logs in.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the login with its text.
    pub fn open(&self, address: &Address) -> io::Result<Client> {
        let deadline = self.connect_until.or_else(|| self.patience.deadline());
        let mut stream: Stream = match address {
            Address::Unix(path) => UnixStream::connect(path)?.into(),
            Address::Tcp { host, port } => {
                let how = Dial { deadline, family: self.family, source: None, check: self.check };
                dial(host, *port, &how)?.into()
            }
        };
        if let Some(tls) = self.tls {
            stream.encrypt(tls)?;
            stream.shake_hands(deadline, || true)?;
        }
        let mut client = Client::over(stream, self.patience, self.max_reply);
        if !self.login.password.is_empty() {
            client.order(&self.login.words())?;
        }
        Ok(client)
    }
}

/// See the head of this file. After an error it is of no use any more, but where it says so.
pub struct Client {
    stream: Stream,
    incoming: Incoming,
    out: Vec<u8>,
    patience: Patience,
}

impl Client {
    /// Makes a client of a connection that there is.
    pub fn over(stream: Stream, patience: Patience, max_reply: usize) -> Client {
        let incoming = Incoming::new(ReplyLimits::PEER, max_reply);
        Client { stream, incoming, out: Vec::new(), patience }
    }

    /// Adds a request to what the next [`Client::flush`] sends.
    pub fn queue<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        push_request(&mut self.out, words);
    }

    /// Adds encoded requests.
    pub fn queue_raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Returns how many bytes wait to be sent.
    pub fn queued(&self) -> usize {
        self.out.len()
    }

    /// Sends all that was queued.
    ///
    /// # Errors
    /// The connection is lost, or takes nothing for as long as there is patience.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.set_write_timeout(left(self.patience.deadline())?)?;
        let sent = self.stream.write_all(&self.out).and_then(|()| self.stream.flush());
        self.out.clear();
        self.out.shrink_to(CHUNK);
        sent.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => timed_out(),
            _ => error,
        })
    }

    /// Waits for the next reply or push.
    ///
    /// # Errors
    /// The connection is lost, what comes is no reply, or nothing comes for as long as there is
    /// patience: then it may be waited for again.
    pub fn value(&mut self) -> io::Result<Value> {
        let mut deadline = None;
        loop {
            if let Some(value) = self.arrived()? {
                return Ok(value);
            }
            let until = *deadline.get_or_insert_with(|| self.patience.deadline());
            self.receive(left(until)?)?;
        }
    }

    /// Waits for the next reply; pushes are left out.
    ///
    /// # Errors
    /// As [`Client::value`].
    pub fn reply(&mut self) -> io::Result<Value> {
        loop {
            let value = self.value()?;
            if !matches!(value, Value::Push(_)) {
                return Ok(value);
            }
        }
    }

    /// Returns the next reply or push if all of it has come. For a socket that does not wait.
    ///
    /// # Errors
    /// The connection is lost, or what comes is no reply.
    pub fn try_value(&mut self) -> io::Result<Option<Value>> {
        loop {
            if let Some(value) = self.arrived()? {
                return Ok(Some(value));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// As [`Client::flush`].
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        self.queue(words);
        self.flush()
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// As [`Client::value`].
    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Value> {
        self.send(words)?;
        self.reply()
    }

    /// Sends a request and waits for its reply, which is to be no error and to have none in it.
    ///
    /// # Errors
    /// As [`Client::value`], or the server refuses it, with its text. Then it may be asked again.
    pub fn order<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Value> {
        let reply = self.ask(words)?;
        match reply.refusal() {
            Some(text) => Err(io::Error::other(text.into_owned())),
            None => Ok(reply),
        }
    }

    /// Waits for bytes. Returns whether there are more.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn receive(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        self.stream.set_read_timeout(limit)?;
        self.read()
    }

    fn read(&mut self) -> io::Result<bool> {
        let buffer = self.incoming.buffer();
        let len = buffer.len();
        buffer.resize(len + CHUNK, 0);
        let read = self.stream.receive(&mut buffer[len..]);
        buffer.truncate(len + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => {
                let why = "the server has closed the connection";
                Err(io::Error::new(ErrorKind::UnexpectedEof, why))
            }
            Ok(_) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error)
                if error.kind() == ErrorKind::Interrupted && self.patience != Patience::Forever =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn arrived(&mut self) -> io::Result<Option<Value>> {
        self.incoming.take().map_err(|InvalidReply(why)| {
            let start = self.incoming.bytes();
            let start = String::from_utf8_lossy(&start[..start.len().min(32)]);
            let text = format!("the reply is no RESP, {why}: {start:?}");
            io::Error::new(ErrorKind::InvalidData, text)
        })
    }

    /// Returns the bytes that have come and were not used.
    pub fn bytes(&self) -> &[u8] {
        self.incoming.bytes()
    }

    /// Uses so many of them, where no reply is.
    pub fn consume(&mut self, count: usize) {
        self.incoming.consume(count);
    }

    /// Takes a line without its end, if it has come.
    ///
    /// # Errors
    /// It is longer than a reply's line may be.
    pub fn line(&mut self) -> io::Result<Option<String>> {
        let bytes = self.bytes();
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return match bytes.len() > MAX_LINE {
                true => Err(io::Error::new(ErrorKind::InvalidData, "the server's line has no end")),
                false => Ok(None),
            };
        };
        let line = String::from_utf8_lossy(&bytes[..end]).trim_end_matches('\r').to_owned();
        self.consume(end + 1);
        Ok(Some(line))
    }

    /// Returns whether there is something to read without waiting for the socket.
    pub fn has_input(&mut self) -> bool {
        if self.bytes().is_empty() {
            let mut decrypted = [0; 1024];
            let count = self.stream.take_decrypted(&mut decrypted);
            self.incoming.buffer().extend_from_slice(&decrypted[..count]);
        }
        !self.bytes().is_empty()
    }

    /// Sets whether the socket waits. One that does not has [`Client::try_value`] and
    /// [`Client::try_flush`].
    ///
    /// # Errors
    /// The socket is closed.
    pub fn set_waiting(&mut self, waits: bool) -> io::Result<()> {
        self.stream.set_waiting(waits)
    }

    /// Sends as much of what was queued as there is room for. Returns whether that was all.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn try_flush(&mut self) -> io::Result<bool> {
        let would_wait = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock => Ok(0),
            _ => Err(error),
        };
        self.stream.push().map(|()| 0).or_else(would_wait)?;
        if !self.out.is_empty() {
            let sent = self.stream.send(&self.out).or_else(would_wait)?;
            self.out.drain(..sent);
        }
        Ok(self.out.is_empty() && !self.stream.holds_output())
    }
}

impl AsRawFd for Client {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    /// Answers one connection with these bytes, and returns what the client has sent.
    fn serve(bytes: Vec<u8>) -> (Address, std::thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The other side may have gone already.
            let _ = stream.write_all(&bytes);
            let mut sent = Vec::new();
            let _ = stream.read_to_end(&mut sent);
            sent
        });
        (Address::tcp("127.0.0.1", port), served)
    }

    const LONG: Patience = Patience::Each(Duration::from_secs(60));

    fn bulk(bytes: &[u8]) -> Value {
        Value::Bulk(bytes.to_vec())
    }

    #[test]
    fn requests_and_replies_are_bytes() {
        let (address, served) =
            serve(b"+OK\r\n>1\r\n+news\r\n$3\r\n\xff\0\n\r\n-ERR no\r\n".to_vec());
        let login = Login { user: "bob", password: "pw" };
        let mut client = Connector { login, ..Connector::plain(LONG) }.open(&address).unwrap();
        assert_eq!(client.ask(&[&b"GET"[..], b"\xfe"]).unwrap(), bulk(b"\xff\0\n"));
        assert_eq!(client.order(&["X"]).unwrap_err().to_string(), "ERR no");
        drop(client);
        let sent = b"*3\r\n$4\r\nAUTH\r\n$3\r\nbob\r\n$2\r\npw\r\n\
            *2\r\n$3\r\nGET\r\n$1\r\n\xfe\r\n*1\r\n$1\r\nX\r\n";
        assert_eq!(served.join().unwrap(), sent);
    }

    #[test]
    fn a_refused_login_is_an_error() {
        let (address, _served) = serve(b"-WRONGPASS no\r\n".to_vec());
        let login = Login { user: "", password: "pw" };
        let error = Connector { login, ..Connector::plain(LONG) }.open(&address).err().unwrap();
        assert_eq!(error.to_string(), "WRONGPASS no");
    }

    #[test]
    fn streams_and_replies_take_turns() {
        let (address, _served) = serve(b"+CONTINUE\r\n\n$4\r\nab\r\n+OK\r\n".to_vec());
        let mut client = Connector::plain(LONG).open(&address).unwrap();
        assert_eq!(client.value().unwrap(), Value::Simple(b"CONTINUE".to_vec()));
        while client.bytes().len() < 14 {
            assert!(client.receive(Some(Duration::from_secs(60))).unwrap());
        }
        assert_eq!(client.line().unwrap().as_deref(), Some(""));
        assert_eq!(client.line().unwrap().as_deref(), Some("$4"));
        client.consume(4);
        assert!(client.has_input());
        client.set_waiting(false).unwrap();
        assert_eq!(client.try_value().unwrap(), Some(Value::Simple(b"OK".to_vec())));
        assert_eq!(client.try_value().unwrap(), None);
        client.queue(&["PING"]);
        assert!(client.try_flush().unwrap());
    }

    #[test]
    fn a_hostile_server_gets_an_error() {
        let deep = b"*1\r\n".repeat(1_000_000);
        let endless = [&b"*2147483647\r\n"[..], &b":1\r\n".repeat(1000)].concat();
        let hostile: [&[u8]; 6] =
            [b"HTTP/1.1\r\n", b"$99999999999\r\n", b"$x\r\n", b"\r\n", &deep, &endless];
        for bytes in hostile {
            let (address, _served) = serve(bytes.to_vec());
            let connector = Connector { max_reply: 2000, ..Connector::plain(LONG) };
            let error = connector.open(&address).unwrap().reply().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        }
    }

    #[test]
    fn silence_is_named_in_plain_words() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::tcp("127.0.0.1", silent.local_addr().unwrap().port());
        let limit = Duration::from_millis(300);
        for patience in [Patience::Each, |limit| Patience::Until(Instant::now() + limit)] {
            let patience = patience(limit);
            let mut client = Connector::plain(patience).open(&address).unwrap();
            assert_eq!(client.ask(&["PING"]).unwrap_err().to_string(), "timed out");
        }
    }
}
