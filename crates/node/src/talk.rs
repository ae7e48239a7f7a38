//! Requests to copies: a connection for a few commands, with a limit for all of them together.

use crate::copies::files::{Certificates, NO_CERTIFICATES};
use crate::settings::Wrong;
use crate::site::Login;
use net::{NameCheck, TlsSettings, client_rules, shake_hands};
use rustls::ClientConfig;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The longest reply.
const MAX_BYTES: usize = 16 << 20;

/// A reply as far as it matters here: elements of lists are lines of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A text, number or list.
    Text(String),
    /// An error.
    Error(String),
}

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A text or number; none is empty.
    Text(String),
    /// An error.
    Error(String),
    /// A list.
    List(Vec<Reply>),
}

impl Reply {
    /// The parts of a list; a text has none.
    pub fn parts(&self) -> &[Reply] {
        match self {
            Reply::List(parts) => parts,
            _ => &[],
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Reply::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        match reply {
            Reply::Text(text) => Answer::Text(text),
            Reply::Error(why) => Answer::Error(why),
            Reply::List(parts) => {
                let mut text = String::new();
                for part in parts {
                    if let Answer::Text(part) = part.into() {
                        text.push_str(&part);
                        text.push('\n');
                    }
                }
                Answer::Text(text)
            }
        }
    }
}

/// Sends commands to a copy.
///
/// # Errors
/// There is no answer in time.
pub fn ask(
    address: (&str, u16),
    login: Login<'_>,
    commands: &[&[&str]],
    limit: Duration,
) -> io::Result<Vec<Answer>> {
    let replies = ask_whole(address, login, commands, limit)?;
    Ok(replies.into_iter().map(Answer::from).collect())
}

/// Names a limit of time that has passed: the system says "Resource temporarily unavailable".
fn named(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "timed out"),
        _ => error,
    }
}

/// The same, with replies as they are.
///
/// # Errors
/// There is no answer in time.
pub fn ask_whole(
    (host, port): (&str, u16),
    login: Login<'_>,
    commands: &[&[&str]],
    limit: Duration,
) -> io::Result<Vec<Reply>> {
    let deadline = Instant::now() + limit;
    let socket = connect(host, port, deadline)?;
    let control = socket.try_clone()?;
    let mut stream = open(host, socket, login.is_tls, deadline)?;
    let auth = ["AUTH", login.user, login.password];
    let words: &[&str] = if login.user.is_empty() { &["AUTH", login.password] } else { &auth };
    let login: &[&[&str]] = if login.password.is_empty() { &[] } else { &[words] };
    let mut request = Vec::new();
    for words in login.iter().chain(commands) {
        write!(request, "*{}\r\n", words.len())?;
        for word in *words {
            write!(request, "${}\r\n{word}\r\n", word.len())?;
        }
    }
    control.set_write_timeout(Some(limit))?;
    stream.write_all(&request).map_err(named)?;
    let mut reader = BufReader::new(stream);
    let mut answers = Vec::new();
    for number in 0..login.len() + commands.len() {
        let answer = read(&mut reader, &control, deadline, 0).map_err(named)?;
        match (number < login.len(), &answer) {
            (true, Reply::Error(why)) => return Err(io::Error::other(why.clone())),
            (true, _) => {}
            (false, _) => answers.push(answer),
        }
    }
    Ok(answers)
}

/// Sends a command about the node that a copy is. A copy that answers for all keys knows such
/// commands only on connections that say so.
///
/// # Errors
/// There is no answer in time.
pub fn ask_node(
    address: (&str, u16),
    login: Login<'_>,
    command: &[&str],
    limit: Duration,
) -> io::Result<Answer> {
    let mut answers = ask(address, login, &[&["CLIENT", "CAPA", "cluster"], command], limit)?;
    answers.pop().ok_or(io::ErrorKind::UnexpectedEof.into())
}

fn connect(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut error = io::Error::other("the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(failed) => error = failed,
        }
    }
    Err(error)
}

/// A connection, with or without TLS.
trait Stream: io::Read + io::Write {}

impl<S: io::Read + io::Write> Stream for S {}

/// The rules of TLS towards copies; one machine is one process.
static RULES: OnceLock<Arc<ClientConfig>> = OnceLock::new();

/// From now on copies that speak TLS are known by these certificates.
///
/// # Errors
/// A file cannot be used.
pub fn trust(certificates: &Certificates) -> Result<(), Wrong> {
    let settings = TlsSettings {
        ca_cert_file: certificates.ca_cert_file.clone(),
        cert_file: certificates.cert_file.clone(),
        key_file: certificates.key_file.clone(),
        ..TlsSettings::default()
    };
    let rules = client_rules(&settings, NameCheck::Any).map_err(|why| Wrong(why.to_string()))?;
    RULES.get_or_init(|| rules);
    Ok(())
}

/// Returns the rules of TLS towards copies, if this machine has certificates.
pub fn rules() -> Option<Arc<ClientConfig>> {
    RULES.get().map(Arc::clone)
}

/// Returns whether this machine has certificates.
pub fn has_certificates() -> bool {
    RULES.get().is_some()
}

fn open(
    host: &str,
    socket: TcpStream,
    is_tls: bool,
    deadline: Instant,
) -> io::Result<Box<dyn Stream>> {
    if !is_tls {
        return Ok(Box::new(socket));
    }
    let rules = RULES.get().ok_or_else(|| io::Error::other(NO_CERTIFICATES))?;
    socket.set_read_timeout(Some(left(deadline)?))?;
    let stream = shake_hands(Arc::clone(rules), host, socket, || Instant::now() < deadline)?;
    Ok(Box::new(stream))
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is none of a Redis server's")
}

fn read(
    reader: &mut BufReader<Box<dyn Stream>>,
    control: &TcpStream,
    deadline: Instant,
    depth: usize,
) -> io::Result<Reply> {
    control.set_read_timeout(Some(left(deadline)?))?;
    let mut line = String::new();
    reader.by_ref().take(MAX_BYTES as u64).read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or_else(broken)?;
    let rest = line.get(1..).ok_or_else(broken)?;
    let number = || rest.parse::<i64>().map_err(|_| broken());
    Ok(match line.as_bytes()[0] {
        b'-' => Reply::Error(rest.to_owned()),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Reply::Text(String::new()),
            Ok(len) if len > MAX_BYTES => return Err(broken()),
            Ok(len) => {
                let mut bytes = vec![0; len + 2];
                reader.read_exact(&mut bytes)?;
                bytes.truncate(len);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
        },
        b'*' if depth < 4 => {
            let parts = (0..number()?.max(0)).map(|_| read(reader, control, deadline, depth + 1));
            Reply::List(parts.collect::<io::Result<_>>()?)
        }
        b'+' | b':' => Reply::Text(rest.to_owned()),
        _ => return Err(broken()),
    })
}

/// Returns a field of INFO.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(value).map(str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers one connection with these bytes.
    fn serve(bytes: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The other side may have gone already.
            let _ = stream.write_all(bytes);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        port
    }

    fn reply(bytes: &'static [u8]) -> io::Result<Vec<Answer>> {
        let login = Login { user: "", password: "", is_tls: false };
        ask(("127.0.0.1", serve(bytes)), login, &[&["X"]], Duration::from_secs(30))
    }

    #[test]
    fn replies_are_read() {
        let text = |text: &str| vec![Answer::Text(text.into())];
        assert_eq!(reply(b"+PONG\r\n").unwrap(), text("PONG"));
        assert_eq!(reply(b"$4\r\na\r\nb\r\n").unwrap(), text("a\r\nb"));
        assert_eq!(reply(b"*3\r\n$1\r\na\r\n:7\r\n$-1\r\n").unwrap(), text("a\n7\n\n"));
        assert_eq!(reply(b"-ERR no\r\n").unwrap(), [Answer::Error("ERR no".into())]);
    }

    #[test]
    fn hostile_answers_are_errors() {
        let hostile: [&[u8]; 5] = [b"", b"HTTP/1.1\r\n", b"$99999999999\r\n", b"$x\r\n", b"\r\n"];
        for bytes in hostile {
            assert!(reply(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_server_that_says_nothing_is_named_in_plain_words() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ("127.0.0.1", silent.local_addr().unwrap().port());
        let login = Login { user: "", password: "", is_tls: false };
        let error = ask(address, login, &[&["X"]], Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("timed out"), "{error}");
    }

    #[test]
    fn fields_of_info_are_found() {
        let info = "# Server\r\nrole:master\r\nused_memory:7\r\n";
        assert_eq!((field(info, "role"), field(info, "used")), (Some("master"), None));
    }
}
