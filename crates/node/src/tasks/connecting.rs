//! How storages are connected to: never at an address of the link, where clouds give keys to their
//! machines.
//!
//! An endpoint's name is looked up by the HTTP library for each connection, so an answer that was
//! checked before says nothing: the next one may be another. What is checked is the answer that is
//! connected to. The machine's own keys are asked for at such an address, which is a number and is
//! not looked up.

use humantime::parse_duration;
use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey as Key, ClientOptions};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use reqwest::tls::Certificate;
use reqwest::{ClientBuilder, NoProxy, Proxy};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;
use transfer::place::is_of_link;

/// Redirections that are followed for one request.
const MAX_REDIRECTIONS: usize = 10;

/// Makes the clients of a storage.
#[derive(Debug)]
pub(super) struct Connecting;

/// Says what is wrong with an address.
pub(super) fn check_address(address: IpAddr) -> io::Result<()> {
    match is_of_link(address) {
        true => {
            Err(io::Error::other(format!("{address} is an address of the link, and no storage's")))
        }
        false => Ok(()),
    }
}

/// Looks names up, and gives no address that is not to be connected to.
#[derive(Debug)]
struct Lookup {
    find: fn(&str) -> io::Result<Vec<SocketAddr>>,
}

impl Resolve for Lookup {
    fn resolve(&self, name: Name) -> Resolving {
        let find = self.find;
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || find(name.as_str())).await??;
            found.iter().try_for_each(|address| check_address(address.ip()))?;
            let found: Addrs = Box::new(found.into_iter());
            Ok(found)
        })
    }
}

fn find(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((name, 0).to_socket_addrs()?.collect())
}

/// Follows a redirection, unless it leads to the number of such an address: numbers are not looked
/// up.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let host = attempt.url().host_str().unwrap_or_default();
    let number = host.trim_start_matches('[').trim_end_matches(']').parse();
    let checked = number.map_or(Ok(()), check_address);
    match checked {
        Err(why) => attempt.error(why),
        Ok(()) if attempt.previous().len() > MAX_REDIRECTIONS => {
            attempt.error(io::Error::other("it redirects without end"))
        }
        Ok(()) => attempt.follow(),
    }
}

impl HttpConnector for Connecting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let wrong = |source: Box<dyn std::error::Error + Send + Sync>| {
            object_store::Error::Generic { store: "S3", source }
        };
        let builder = builder(options, Lookup { find }).map_err(wrong)?;
        Ok(HttpClient::new(builder.build().map_err(|why| wrong(why.into()))?))
    }
}

/// Returns a client with the options of a storage, most of which come from the environment.
fn builder(
    options: &ClientOptions,
    lookup: Lookup,
) -> Result<ClientBuilder, Box<dyn std::error::Error + Send + Sync>> {
    let text = |key: Key| options.get_config_value(&key);
    let is_on = |key: Key| text(key).is_some_and(|word| word.eq_ignore_ascii_case("true"));
    let time = |key: Key| -> Result<Option<Duration>, humantime::DurationError> {
        text(key).map(|text| parse_duration(&text)).transpose()
    };
    let mut builder = ClientBuilder::new()
        .dns_resolver(Arc::new(lookup))
        .redirect(Policy::custom(follow))
        .https_only(!is_on(Key::AllowHttp))
        .danger_accept_invalid_certs(is_on(Key::AllowInvalidCertificates))
        .user_agent(text(Key::UserAgent).unwrap_or_else(|| "dunlin".to_owned()));
    if let Some(timeout) = time(Key::Timeout)? {
        builder = builder.timeout(timeout);
    }
    if let Some(timeout) = time(Key::ConnectTimeout)? {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(timeout) = time(Key::PoolIdleTimeout)? {
        builder = builder.pool_idle_timeout(timeout);
    }
    if is_on(Key::Http1Only) {
        builder = builder.http1_only();
    }
    if is_on(Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    if let Some(url) = text(Key::ProxyUrl) {
        let excludes = text(Key::ProxyExcludes).and_then(|names| NoProxy::from_string(&names));
        builder = builder.proxy(Proxy::all(url)?.no_proxy(excludes));
        if let Some(authority) = text(Key::ProxyCaCertificate) {
            builder = builder.add_root_certificate(Certificate::from_pem(authority.as_bytes())?);
        }
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

    /// Answers the first look-up with an address that is none of the link, later ones with another.
    fn rebinding(_: &str) -> io::Result<Vec<SocketAddr>> {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        let address = match LOOKS.fetch_add(1, Ordering::SeqCst) {
            0 => IpAddr::from([127, 0, 0, 1]),
            _ => IpAddr::from([169, 254, 169, 254]),
        };
        Ok(vec![SocketAddr::new(address, 0)])
    }

    fn ask(find: fn(&str) -> io::Result<Vec<SocketAddr>>, url: &str) -> Result<u16, String> {
        let options = ClientOptions::new().with_allow_http(true);
        let builder = builder(&options, Lookup { find }).map_err(|why| why.to_string())?;
        // Each request connects anew, as after an idle time.
        let client = builder.no_proxy().pool_max_idle_per_host(0).build();
        let client = client.map_err(|why| why.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answer = runtime.expect("a thread").block_on(async { client.get(url).send().await });
        answer.map(|answer| answer.status().as_u16()).map_err(|why| format!("{why:?}"))
    }

    /// Serves answers with this head, as many as there are connections.
    fn serve(head: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let _ = stream.read(&mut [0; 4096]).expect("a request");
                let text =
                    format!("HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(text.as_bytes()).expect("it is sent");
            }
        });
        port
    }

    #[test]
    fn the_address_that_is_connected_to_is_checked() {
        static PORT: AtomicU16 = AtomicU16::new(0);
        PORT.store(serve("200 OK"), Ordering::SeqCst);
        let url = format!("http://storage.example:{}/x", PORT.load(Ordering::SeqCst));
        assert_eq!(ask(rebinding, &url), Ok(200));
        let why = ask(rebinding, &url).expect_err("the name has another address now");
        assert!(why.contains("169.254.169.254 is an address of the link"), "{why}");
    }

    #[test]
    fn redirections_to_such_addresses_are_not_followed() {
        let port = serve("307 Moved\r\nLocation: http://169.254.169.254/keys");
        let why = ask(find, &format!("http://127.0.0.1:{port}/x")).expect_err("it is refused");
        assert!(why.contains("169.254.169.254 is an address of the link"), "{why}");
        let port = serve("307 Moved\r\nLocation: http://[::ffff:169.254.1.1]/keys");
        let why = ask(find, &format!("http://127.0.0.1:{port}/x")).expect_err("it is refused");
        assert!(why.contains("is an address of the link"), "{why}");
        let port = serve("307 Moved\r\nLocation: /again");
        let why = ask(find, &format!("http://127.0.0.1:{port}/x")).expect_err("it has no end");
        assert!(why.contains("without end"), "{why}");
    }
}
