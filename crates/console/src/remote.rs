//! `dunlin console --url …`: the console of a server elsewhere, whichever it is.

use crate::Port;
use crate::host::{Boxed, Host, Peer, Purpose, Stream, ThreadTime};
use clap::{CommandFactory as _, Parser};
use client::tls::TlsOptions;
use client::{Address, Credentials, Login, Scheme, Url};
use process::{audit, facts};
use resp::bulk::push_request;
use resp::{Incoming, ReplyLimits, Value};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsConnector;

/// Shows servers that speak RESP in a browser.
#[derive(Parser)]
#[command(
    name = "dunlin console",
    version = facts::VERSION,
    after_help = "The guide: docs/console.md"
)]
struct RemoteOptions {
    /// A server: redis://[USER[:PASSWORD]@]HOST[:PORT], rediss://… for TLS, or unix:///PATH.
    /// Name and password are for watching; users log in with their own. Several times for several
    /// servers
    #[arg(long, default_value = "redis://127.0.0.1:6379")]
    url: Vec<String>,
    /// Port of the console
    #[arg(long, default_value_t = 8379)]
    port: u16,
    /// Addresses that the console listens on
    #[arg(long, default_values_t = ["127.0.0.1".to_owned(), "-::1".to_owned()])]
    bind: Vec<String>,
    /// Names under which a default user without a password is answered, beside addresses and
    /// localhost; .NAME is all names below NAME
    #[arg(long, value_name = "NAME")]
    hosts: Vec<String>,
    /// File with the certificates of authorities, in place of the system's
    #[arg(long)]
    cacert: Option<PathBuf>,
    /// URL that gets a POST with JSON when a problem of a server has begun, and when it is over
    #[arg(long, value_name = "URL", env = "DUNLIN_WEBHOOK", hide_env_values = true)]
    webhook: Option<String>,
    /// File for a line of JSON for each request that changes something, and each log-in that fails
    #[arg(long, value_name = "PATH")]
    audit_log: Option<PathBuf>,
}

/// Servers that a console shows: each is looked at each second.
const MAX_SERVERS: usize = 32;

/// Where a server is, and its watcher.
#[derive(Clone)]
struct RemotePlace {
    address: Address,
    user: String,
    password: Option<String>,
    is_tls: bool,
}

/// Reads a URL.
fn parse(text: &str) -> Result<RemotePlace, String> {
    let url = Url::parse(text).map_err(|why| why.to_string())?;
    if url.scheme == Scheme::Sentinel || url.hosts.len() > 1 {
        let text = "a URL is of one server: take redis, rediss or unix, and --url several times";
        return Err(text.into());
    }
    let address = url.address("127.0.0.1", 6379);
    let (user, password) = match url.credentials {
        None => (String::new(), None),
        Some(Credentials::Word(user)) => (user, None),
        Some(Credentials::Pair(user, password)) => (user, Some(password)),
    };
    Ok(RemotePlace { address, user, password, is_tls: url.is_tls })
}

/// A server elsewhere.
struct Remote {
    place: RemotePlace,
    /// What `--hosts` says, with blanks between.
    trusted_names: String,
    tls: Option<Arc<ClientConfig>>,
}

/// Opens a connection to a server elsewhere.
///
/// # Errors
/// There is none.
pub async fn open(
    address: &Address,
    tls: Option<Arc<ClientConfig>>,
) -> io::Result<Box<dyn Stream>> {
    let (host, port) = match address {
        Address::Unix(path) => return Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        Address::Tcp { host, port } => (host, *port),
    };
    let socket = tokio::net::TcpStream::connect((host.as_str(), port)).await?;
    socket.set_nodelay(true)?;
    let Some(rules) = tls else { return Ok(Box::new(socket)) };
    let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(rules).connect(name, socket).await?))
}

/// Authenticates on a connection that has just been opened. An empty name is the default user.
///
/// # Errors
/// The server refuses it, or does not answer.
pub async fn authenticate(stream: &mut Box<dyn Stream>, login: Login<'_>) -> io::Result<()> {
    order(stream, &login.words()).await
}

/// Sends a request on a connection on which no other waits for its reply.
///
/// # Errors
/// The server refuses it, or does not answer.
pub async fn order(stream: &mut Box<dyn Stream>, words: &[&str]) -> io::Result<()> {
    let mut request = Vec::new();
    push_request(&mut request, words);
    stream.write_all(&request).await?;
    let mut incoming = Incoming::new(ReplyLimits::PEER, 1024);
    loop {
        let reply = incoming.take().map_err(io::Error::other)?;
        match reply.as_ref().map(Value::error) {
            Some(None) => return Ok(()),
            Some(Some(why)) => return Err(io::Error::other(why.into_owned())),
            None => incoming.buffer().push(stream.read_u8().await?),
        }
    }
}

impl Host for Remote {
    fn open(&self, purpose: Purpose) -> Boxed<io::Result<Box<dyn Stream>>> {
        let (place, tls) = (self.place.clone(), self.tls.clone());
        Box::pin(async move {
            let mut stream = open(&place.address, tls).await?;
            // The URL's name and password are for watching.
            if purpose == Purpose::Watching
                && let Some(password) = &place.password
            {
                let user = if place.user == "default" { "" } else { &*place.user };
                authenticate(&mut stream, Login { user, password }).await?;
            }
            Ok(stream)
        })
    }

    fn readiness(&self) -> Boxed<Result<(), String>> {
        let opening = self.open(Purpose::Watching);
        Box::pin(async move { opening.await.map(drop).map_err(|error| error.to_string()) })
    }

    fn refuses(&self, _: Peer) -> bool {
        false
    }

    fn trusted_names(&self) -> String {
        self.trusted_names.clone()
    }

    fn tls(&self) -> Option<Arc<ServerConfig>> {
        None
    }

    fn threads(&self) -> Vec<ThreadTime> {
        Vec::new()
    }

    fn name(&self) -> String {
        self.place.address.to_string()
    }

    fn log(&self, line: &str) {
        println!("{line}");
    }
}

/// Returns the command line of `dunlin console`, for completions.
pub fn command() -> clap::Command {
    RemoteOptions::command()
}

/// Runs `dunlin console` with these arguments, the program's name left out.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let name = OsString::from("dunlin console");
    let options = match RemoteOptions::try_parse_from([name].into_iter().chain(args)) {
        Ok(options) => options,
        Err(why) => {
            let code = if why.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
            // There is no place left to report to if standard error is closed.
            let _ = why.print();
            return code;
        }
    };
    match start(&options) {
        Ok(()) => loop {
            std::thread::park();
        },
        Err(why) => {
            eprintln!("dunlin console: {why}");
            ExitCode::FAILURE
        }
    }
}

fn start(options: &RemoteOptions) -> Result<(), String> {
    if options.url.len() > MAX_SERVERS {
        return Err(format!("--url: a console shows at most {MAX_SERVERS} servers"));
    }
    let files = TlsOptions { cacert: options.cacert.clone(), ..TlsOptions::default() };
    let trusted_names = options.hosts.join(" ");
    let host = |url: &String| -> Result<Arc<dyn Host>, String> {
        let place = parse(url)?;
        let tls = place.is_tls.then(|| client::tls::rules(&files)).transpose()?;
        Ok(Arc::new(Remote { place, trusted_names: trusted_names.clone(), tls }))
    };
    let hosts = options.url.iter().map(host).collect::<Result<_, _>>()?;
    if let Some(path) = &options.audit_log {
        audit::start(path, audit::Source::Console, &options.port.to_string())?;
    }
    let webhook = options.webhook.as_deref().unwrap_or_default();
    let log = |line: &str| println!("{line}");
    crate::start(hosts, &Port { bind: &options.bind, number: options.port, webhook, log })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let place = parse("redis://bob:a%3ab@10.0.0.1:7000/3").unwrap();
        assert_eq!((place.address, place.is_tls), (Address::tcp("10.0.0.1", 7000), false));
        assert_eq!((place.user.as_str(), place.password.as_deref()), ("bob", Some("a:b")));
        let place = parse("rediss://[::1]").unwrap();
        assert_eq!((place.address, place.is_tls), (Address::tcp("::1", 6379), true));
        assert_eq!(parse("redis://:pw@h").unwrap().password.as_deref(), Some("pw"));
        let socket = parse("unix:///run/a.sock").unwrap().address;
        assert_eq!(socket, Address::Unix("/run/a.sock".into()));
        for bad in ["localhost", "http://a", "redis://a:b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_arguments_are_sound() {
        RemoteOptions::command().debug_assert();
    }
}
