//! Requests to copies: a connection for a few commands, with a limit for all of them together.

use crate::settings::Wrong;
use crate::site::Login;
use client::{Address, Connector, Patience, Renewed};
use net::{NameCheck, TlsClient, TlsSettings};
use resp::Value;
use rustls::ClientConfig;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The longest reply.
const MAX_BYTES: usize = 16 << 20;

/// How long a copy may take to answer a question that a job or a page waits for.
pub const ANSWER: Duration = Duration::from_secs(1);

/// Why a database with TLS cannot be on a machine.
pub const NO_CERTIFICATES: &str = "this machine has no certificates for a database with TLS: they come with an etcd of \
    `dunlin cluster up` that has TLS, or with --etcd-cacert, --etcd-cert and --etcd-key";

/// Files with certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificates {
    /// The authorities that others' certificates must come from.
    pub ca_cert_file: String,
    /// What is shown.
    pub cert_file: String,
    /// Its key.
    pub key_file: String,
}

/// A reply as text, for what is text: elements of lists are lines of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A text, number or list.
    Text(String),
    /// An error.
    Error(String),
}

impl From<&Value> for Answer {
    fn from(reply: &Value) -> Answer {
        if let Some(why) = reply.error() {
            return Answer::Error(why.into_owned());
        }
        let mut text = reply.text();
        for part in reply.items() {
            if let Answer::Text(part) = part.into() {
                text.push_str(&part);
                text.push('\n');
            }
        }
        Answer::Text(text)
    }
}

/// Does the same for each of some copies at the same time, in a thread each. Returns what came of
/// it, in their order.
///
/// # Panics
/// One of the threads panics.
pub fn side_by_side<T: Send, R: Send>(
    copies: impl IntoIterator<Item = T>,
    act: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let act = &act;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            copies.into_iter().map(|copy| scope.spawn(move || act(copy))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a panic ends the process")).collect()
    })
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
    Ok(replies.iter().map(Answer::from).collect())
}

/// Sends commands to a copy. Returns its replies as they are, with keys that need not be text.
///
/// # Errors
/// There is no answer in time.
pub fn ask_whole(
    (host, port): (&str, u16),
    login: Login<'_>,
    commands: &[&[&str]],
    limit: Duration,
) -> io::Result<Vec<Value>> {
    let tls = login.is_tls.then(|| {
        let rules = rules().ok_or_else(|| io::Error::other(NO_CERTIFICATES))?;
        TlsClient::new(rules, host)
    });
    let tls = tls.transpose()?;
    let connector = Connector {
        tls: tls.as_ref(),
        login: client::Login { user: login.user, password: login.password },
        max_reply: MAX_BYTES,
        ..Connector::plain(Patience::Until(Instant::now() + limit))
    };
    let mut client = connector.open(&Address::tcp(host, port))?;
    commands.iter().for_each(|words| client.queue(words));
    client.flush()?;
    commands.iter().map(|_| client.reply()).collect()
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

/// Makes a connection one to the copy itself. Behind one address a copy answers for all of them
/// otherwise.
pub const AS_COPY: &[&str] = &["CLIENT", "CAPA", "cluster", "node"];

/// Returns what a copy says of itself in these sections of INFO.
///
/// # Errors
/// There is no answer in time, or it is an error.
pub fn info(
    address: (&str, u16),
    login: Login<'_>,
    sections: &[&str],
    limit: Duration,
) -> io::Result<String> {
    let question = [&["INFO"], sections].concat();
    match ask(address, login, &[AS_COPY, &question], limit)?.pop() {
        Some(Answer::Text(text)) => Ok(text),
        Some(Answer::Error(why)) => Err(io::Error::other(why)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The rules of TLS towards copies; one machine is one process.
static RULES: OnceLock<Renewed> = OnceLock::new();

/// From now on copies that speak TLS are known by these certificates, as they are in the files.
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
    let rules = Renewed::read(settings, NameCheck::Any).map_err(|why| Wrong(why.to_string()))?;
    RULES.get_or_init(|| rules);
    Ok(())
}

/// Returns the rules of TLS for a connection to a copy that is made now, if this machine has
/// certificates.
pub fn rules() -> Option<Arc<ClientConfig>> {
    RULES.get().map(Renewed::current)
}

/// Returns whether this machine has certificates.
pub fn has_certificates() -> bool {
    RULES.get().is_some()
}

/// Returns a field of INFO.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(value).map(str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
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

    const LOGIN: Login<'static> = Login { user: "", password: "", is_tls: false };
    const LIMIT: Duration = Duration::from_secs(30);

    fn reply(bytes: &'static [u8]) -> io::Result<Vec<Answer>> {
        ask(("127.0.0.1", serve(bytes)), LOGIN, &[&["X"]], LIMIT)
    }

    #[test]
    fn copies_are_asked_at_the_same_time_and_answer_in_order() {
        let together = std::sync::Barrier::new(3);
        let answers = side_by_side(1..=3, |copy| {
            together.wait();
            copy * 10
        });
        assert_eq!(answers, [10, 20, 30]);
    }

    #[test]
    fn keys_that_are_no_text_stay_what_they_are() {
        let port = serve(b"$3\r\na\xffb\r\n");
        let replies = ask_whole(("127.0.0.1", port), LOGIN, &[&["RANDOMKEY"]], LIMIT).unwrap();
        assert_eq!(replies, [Value::Bulk(b"a\xffb".to_vec())]);
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
    fn a_server_that_says_nothing_is_named_in_plain_words() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ("127.0.0.1", silent.local_addr().unwrap().port());
        let error = ask(address, LOGIN, &[&["X"]], Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("timed out"), "{error}");
    }

    #[test]
    fn fields_of_info_are_found() {
        let info = "# Server\r\nrole:master\r\nused_memory:7\r\n";
        assert_eq!((field(info, "role"), field(info, "used")), (Some("master"), None));
    }
}
