//! `dunlin console --url …`: the console of a server elsewhere, whichever it is.

use crate::host::{Boxed, Host, Peer, Purpose, Stream, ThreadTime};
use clap::Parser;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsConnector;

/// Shows a server that speaks RESP in a browser.
#[derive(Parser)]
#[command(name = "dunlin console", after_help = "The guide: docs/console.md")]
struct Options {
    /// The server: redis://[USER[:PASSWORD]@]HOST[:PORT], rediss://… for TLS, or unix:///PATH.
    /// Name and password are for watching; users log in with their own
    #[arg(long, default_value = "redis://127.0.0.1:6379")]
    url: String,
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
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq)]
struct Url {
    is_tls: bool,
    /// A path of a Unix socket, or a host.
    host: String,
    /// None for a Unix socket.
    port: Option<u16>,
    user: String,
    password: Option<String>,
}

/// Reads a URL.
fn parse(url: &str) -> Result<Url, String> {
    let (scheme, rest) = url.split_once("://").ok_or("a URL begins with redis://")?;
    if scheme == "unix" {
        let host = rest.to_owned();
        return Ok(Url { is_tls: false, host, port: None, user: String::new(), password: None });
    }
    let is_tls = match scheme {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => return Err(format!("{scheme} is no scheme: take redis, rediss or unix")),
    };
    let rest = rest.split('/').next().unwrap_or_default();
    let (credentials, place) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (user, password) = match credentials.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (credentials, None),
    };
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(6379), str::parse).map_err(|_| "the port is no number")?;
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    Ok(Url {
        is_tls,
        host: host.to_owned(),
        port: Some(port),
        user: decoded(user),
        password: password.map(decoded),
    })
}

/// Resolves `%xx`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match code.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server elsewhere.
struct Remote {
    url: Url,
    /// What `--hosts` says, with blanks between.
    trusted_names: String,
    tls: Option<Arc<ClientConfig>>,
}

async fn open(url: Url, tls: Option<Arc<ClientConfig>>) -> io::Result<Box<dyn Stream>> {
    let Some(port) = url.port else {
        return Ok(Box::new(tokio::net::UnixStream::connect(&url.host).await?));
    };
    let socket = tokio::net::TcpStream::connect((url.host.as_str(), port)).await?;
    socket.set_nodelay(true)?;
    let Some(rules) = tls else { return Ok(Box::new(socket)) };
    let name = ServerName::try_from(url.host).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(rules).connect(name, socket).await?))
}

/// Authenticates with the URL's credentials, for watching.
async fn authenticate(stream: &mut Box<dyn Stream>, url: &Url) -> io::Result<()> {
    let Some(password) = &url.password else { return Ok(()) };
    let mut request = String::new();
    let user = if url.user.is_empty() { "default" } else { &url.user };
    let words: Vec<&str> =
        if user == "default" { vec!["AUTH", password] } else { vec!["AUTH", user, password] };
    request += &format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(request.as_bytes()).await?;
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n") && reply.len() < 1024 {
        reply.push(stream.read_u8().await?);
    }
    if reply.starts_with(b"+") {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&reply).trim_end().to_owned()))
}

impl Host for Remote {
    fn open(&self, purpose: Purpose) -> Boxed<io::Result<Box<dyn Stream>>> {
        let (url, tls) = (self.url.clone(), self.tls.clone());
        Box::pin(async move {
            let mut stream = open(url.clone(), tls).await?;
            if purpose == Purpose::Watching {
                authenticate(&mut stream, &url).await?;
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
        let Url { host, port, .. } = &self.url;
        port.map_or(host.clone(), |port| format!("{host}:{port}"))
    }

    fn log(&self, line: &str) {
        println!("{line}");
    }
}

fn client_config(cacert: Option<&PathBuf>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match cacert {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            let file = CertificateDer::pem_file_iter(path).map_err(|why| why.to_string())?;
            for certificate in file {
                let certificate = certificate.map_err(|why| why.to_string())?;
                roots.add(certificate).map_err(|why| why.to_string())?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    Ok(Arc::new(versions.with_root_certificates(roots).with_no_client_auth()))
}

/// Returns the command line of `dunlin console`, for completions.
pub fn command() -> clap::Command {
    <Options as clap::CommandFactory>::command()
}

/// Runs `dunlin console` with these arguments, the program's name left out.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let name = OsString::from("dunlin console");
    let options = match Options::try_parse_from([name].into_iter().chain(args)) {
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

fn start(options: &Options) -> Result<(), String> {
    let url = parse(&options.url)?;
    let tls = url.is_tls.then(|| client_config(options.cacert.as_ref())).transpose()?;
    let trusted_names = options.hosts.join(" ");
    crate::start(Arc::new(Remote { url, trusted_names, tls }), &options.bind, options.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let url = parse("redis://bob:a%3ab@10.0.0.1:7000/3").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.is_tls), ("10.0.0.1", Some(7000), false));
        assert_eq!((url.user.as_str(), url.password.as_deref()), ("bob", Some("a:b")));
        let url = parse("rediss://[::1]").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.is_tls), ("::1", Some(6379), true));
        assert_eq!(parse("redis://:pw@h").unwrap().password.as_deref(), Some("pw"));
        assert_eq!(parse("unix:///run/a.sock").unwrap().host, "/run/a.sock");
        for bad in ["localhost", "http://a", "redis://a:b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_arguments_are_sound() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }
}
