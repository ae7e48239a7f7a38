//! Requests by HTTP/1.1 for callers that wait: to etcd, to the admin ports of nodes.
//!
//! `hyper` speaks HTTP and `tokio-rustls` TLS. A connection has a runtime of the calling thread,
//! which does nothing between calls: see `docs/internals/client.md`. So it must not be used on a
//! thread that runs asynchronous work itself.

use crate::{Dial, dial};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use net::TlsClient;
use rustls::ClientConfig;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;

/// The most that is read at once, and so the longest head of an answer.
const MAX_READ: usize = 64 << 10;

/// A server of HTTP, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What the header `Host` says.
    pub name: String,
    /// The rules of TLS, if it speaks that.
    pub tls: Option<TlsClient>,
}

impl Server {
    /// Reads `http://HOST[:PORT][/PATH]` or the same with `https`. Returns the server, and the path
    /// with its query. `rules` are those of TLS, if it is needed.
    ///
    /// # Errors
    /// Why it is no such URL, for the user. The text has nothing of the URL: it may have a secret.
    pub fn at(
        url: &str,
        rules: impl FnOnce() -> Result<Arc<ClientConfig>, String>,
    ) -> Result<(Server, String), String> {
        let form = || "a URL is http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH".to_owned();
        let uri = url.parse::<hyper::Uri>().map_err(|_| form())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(form()),
        };
        let authority = uri.authority().ok_or_else(form)?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(form());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        // A port that is no number would be none to `Authority::port`.
        let port = match authority.as_str()[authority.host().len()..].strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| form())?,
            None if is_tls => 443,
            None => 80,
        };
        let tls = match is_tls {
            true => Some(TlsClient::new(rules()?, &host).map_err(|why| why.to_string())?),
            false => None,
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok((Server { host, port, name: authority.to_string(), tls }, path))
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `GET` and its like.
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// Headers beside `Host` and `Content-Length`.
    pub headers: &'a [(&'static str, &'a str)],
    /// The body.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns a request without headers and body.
    pub fn get(path: &'a str) -> Request<'a> {
        Request { method: "GET", path, headers: &[], body: &[] }
    }
}

/// A whole answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Error {
    /// The server has seen nothing of the request, so it was not carried out. It may be sent again.
    Unsent(io::Error),
    /// The request was sent, at least a part of it, and may have been carried out. Look before it
    /// is sent again.
    Unanswered(io::Error),
    /// The answer is longer than the caller takes. The request was carried out, or refused.
    TooLong,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsent(why) | Error::Unanswered(why) => why.fmt(out),
            Error::TooLong => out.write_str("the answer is too long"),
        }
    }
}

impl std::error::Error for Error {}

/// A connection, made with the first request. It is kept for the next one if the server does so.
pub struct Connection {
    server: Server,
    /// Dropped before the runtime, which its socket is registered with.
    link: Option<Link>,
    runtime: Runtime,
}

impl Connection {
    /// Returns a connection that is not made yet.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(server: Server) -> io::Result<Connection> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Connection { server, link: None, runtime })
    }

    /// Sends a request and reads the answer: connecting, TLS and the whole body within the
    /// deadline, and a body of at most `max_len`.
    ///
    /// # Errors
    /// There is no answer; the connection is closed then.
    pub fn ask(
        &mut self,
        request: &Request<'_>,
        deadline: Instant,
        max_len: usize,
    ) -> Result<Answer, Error> {
        let (mut link, status, body) = self.begin(request, deadline)?;
        let whole = link.driver.during(collect(body, max_len));
        let body = self.runtime.block_on(async { timeout_at(deadline.into(), whole).await });
        let body = body.unwrap_or_else(|_| Err(Error::Unanswered(ErrorKind::TimedOut.into())))?;
        self.link = Some(link);
        Ok(Answer { status, body })
    }

    /// Sends a request whose answer may never end. Returns when its head has come.
    ///
    /// # Errors
    /// There is no answer.
    pub fn subscribe(mut self, request: &Request<'_>, deadline: Instant) -> Result<Feed, Error> {
        let (link, status, body) = self.begin(request, deadline)?;
        Ok(Feed { status, body, link, runtime: self.runtime })
    }

    /// Sends a request and waits for the head of the answer. Returns its status and its body.
    fn begin(
        &mut self,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Result<(Link, u16, Incoming), Error> {
        let request = self.prepared(request).map_err(Error::Unsent)?;
        let mut link = self.connected(deadline).map_err(Error::Unsent)?;
        let sent = async { timeout_at(deadline.into(), link.send(request)).await };
        let response = self.runtime.block_on(sent);
        let response = response
            .unwrap_or_else(|_| Err(Error::Unanswered(ErrorKind::TimedOut.into())))?
            .into_parts();
        Ok((link, response.0.status.as_u16(), response.1))
    }

    fn prepared(&self, request: &Request<'_>) -> io::Result<hyper::Request<Full<Bytes>>> {
        let wrong =
            |why: &dyn fmt::Display| io::Error::new(ErrorKind::InvalidInput, why.to_string());
        let host = HeaderValue::from_str(&self.server.name).map_err(|why| wrong(&why))?;
        let mut whole =
            hyper::Request::builder().method(request.method).uri(request.path).header(HOST, host);
        for (name, value) in request.headers {
            whole = whole.header(*name, *value);
        }
        let body = Full::new(Bytes::copy_from_slice(request.body));
        whole.body(body).map_err(|why| wrong(&why))
    }

    /// Returns the connection that was kept if it still is one, and makes a new one otherwise.
    fn connected(&mut self, deadline: Instant) -> io::Result<Link> {
        if let Some(mut link) = self.link.take()
            && self.runtime.block_on(link.is_ready())
        {
            return Ok(link);
        }
        let how = Dial { deadline: Some(deadline), ..Dial::default() };
        let socket = dial(&self.server.host, self.server.port, &how)?;
        socket.set_nonblocking(true)?;
        let opened = async {
            timeout_at(deadline.into(), Link::open(socket, self.server.tls.as_ref())).await
        };
        self.runtime.block_on(opened).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }
}

/// An answer that comes bit by bit.
pub struct Feed {
    /// Its status.
    pub status: u16,
    body: Incoming,
    /// Dropped before the runtime, as that of a connection.
    link: Link,
    runtime: Runtime,
}

impl Feed {
    /// Returns what has come of the body. `None`: it has ended.
    ///
    /// # Errors
    /// The connection is lost. `TimedOut`: nothing has come until then, and it can be asked again.
    pub fn next(&mut self, deadline: Instant) -> io::Result<Option<Bytes>> {
        let Feed { body, link, runtime, .. } = self;
        let next = link.driver.during(part(body));
        let next = runtime.block_on(async { timeout_at(deadline.into(), next).await });
        next.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }
}

/// The bytes of a connection, encrypted or not.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection that is open.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
}

impl Link {
    async fn open(socket: std::net::TcpStream, tls: Option<&TlsClient>) -> io::Result<Link> {
        let socket = TcpStream::from_std(socket)?;
        let socket: Box<dyn Socket> = match tls {
            None => Box::new(socket),
            Some(tls) => {
                Box::new(TlsConnector::from(tls.rules()).connect(tls.name(), socket).await?)
            }
        };
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_READ)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(failed)?;
        Ok(Link { sender, driver: Driver { connection: Box::pin(connection), has_ended: false } })
    }

    /// Returns whether the connection takes another request. A server that has closed it meanwhile
    /// is noticed here.
    async fn is_ready(&mut self) -> bool {
        // Lets the runtime ask the system what has happened since the last call.
        yield_now().await;
        self.driver.during(async {}).await;
        !self.driver.has_ended && self.sender.is_ready()
    }

    async fn send(
        &mut self,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, Error> {
        let answer = self.driver.during(self.sender.try_send_request(request)).await;
        answer.map_err(|mut why| {
            // A request that comes back is one of which nothing was written.
            let is_unsent = why.take_message().is_some();
            let why = failed(why.into_error());
            if is_unsent { Error::Unsent(why) } else { Error::Unanswered(why) }
        })
    }
}

/// What reads and writes the socket.
struct Driver {
    connection: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
    has_ended: bool,
}

impl Driver {
    /// Does some work, and reads and writes meanwhile.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.advance(cx);
            work.as_mut().poll(cx)
        })
        .await
    }

    fn advance(&mut self, cx: &mut Context<'_>) {
        if !self.has_ended
            && let Poll::Ready(_) = self.connection.as_mut().poll(cx)
        {
            // Why is said to the request or to the body that waits.
            self.has_ended = true;
        }
    }
}

/// Returns the next part of a body that has data; `None` is the end.
async fn part(body: &mut Incoming) -> io::Result<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        // What is no data are trailers.
        if let Ok(data) = frame.map_err(failed)?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads a whole body.
async fn collect(mut body: Incoming, max_len: usize) -> Result<Vec<u8>, Error> {
    let mut whole = Vec::new();
    while let Some(part) = part(&mut body).await.map_err(Error::Unanswered)? {
        if part.len() > max_len - whole.len() {
            return Err(Error::TooLong);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole)
}

/// Returns hyper's error as one of the connection, with its reason.
fn failed(why: hyper::Error) -> io::Error {
    if why.is_parse() {
        return io::Error::new(ErrorKind::InvalidData, format!("this is not HTTP/1.1: {why}"));
    }
    if why.is_incomplete_message() {
        return io::Error::new(ErrorKind::UnexpectedEof, why.to_string());
    }
    match std::error::Error::source(&why).and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(source) => io::Error::new(source.kind(), source.to_string()),
        None => io::Error::other(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::JoinHandle;
    use std::time::Duration;

    const MAX: usize = 1000;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    /// Reads a request without a body.
    fn receive(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match stream.read(&mut byte).expect("it is connected") {
                0 => break,
                _ => text.push(byte[0]),
            }
        }
        String::from_utf8(text).expect("a request is text")
    }

    /// Starts a server that serves so many connections, one after the other.
    fn serve(
        connections: usize,
        serve: impl Fn(&mut TcpStream) + Send + 'static,
    ) -> (Connection, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let thread = std::thread::spawn(move || {
            for _ in 0..connections {
                serve(&mut listener.accept().expect("it is asked").0);
            }
        });
        (to(port), thread)
    }

    fn to(port: u16) -> Connection {
        let server = Server { host: "127.0.0.1".into(), port, name: "x".into(), tls: None };
        Connection::new(server).expect("there are descriptors")
    }

    fn answer(stream: &mut TcpStream, bytes: &[u8]) {
        stream.write_all(bytes).expect("it waits");
    }

    #[test]
    fn urls_name_a_server_and_a_path() {
        let read = |url: &str| {
            let (server, path) = Server::at(url, || Err("no rules".to_owned()))?;
            Ok((server.host, server.port, server.name, path))
        };
        let of = |host: &str, port, name: &str, path: &str| {
            Ok::<_, String>((host.to_owned(), port, name.to_owned(), path.to_owned()))
        };
        assert_eq!(read("http://a"), of("a", 80, "a", "/"));
        assert_eq!(read("http://a:81/b/c?d=e"), of("a", 81, "a:81", "/b/c?d=e"));
        assert_eq!(read("http://[::1]:81"), of("::1", 81, "[::1]:81", "/"));
        assert_eq!(read("https://a/b"), Err("no rules".to_owned()));
        for bad in ["", "a", "ftp://a", "http://", "http://u:secret@a/", "http://a:99999/"] {
            let why = read(bad).expect_err(bad);
            assert!(why.starts_with("a URL is http://HOST") && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_connection_is_kept() {
        let (mut connection, thread) = serve(1, |stream| {
            let request = receive(stream);
            assert!(request.starts_with("GET /a?b HTTP/1.1\r\n"), "{request}");
            assert!(request.contains("host: x\r\n") && request.contains("one: two\r\n"));
            answer(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
            assert!(receive(stream).starts_with("GET /c HTTP/1.1\r\n"));
            answer(stream, b"HTTP/1.1 404 x\r\nTransfer-Encoding: chunked\r\n\r\n");
            answer(stream, b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
        });
        let request = Request { headers: &[("one", "two")], ..Request::get("/a?b") };
        let first = connection.ask(&request, soon(), MAX).expect("it answers");
        assert_eq!(first, Answer { status: 200, body: b"{}".to_vec() });
        let second = connection.ask(&Request::get("/c"), soon(), MAX).expect("it answers");
        assert_eq!(second, Answer { status: 404, body: b"abc".to_vec() });
        thread.join().expect("all is as it should be");
    }

    #[test]
    fn one_that_was_closed_is_made_anew() {
        for head in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n"] {
            let (closed, is_closed) = channel();
            let (mut connection, thread) = serve(2, move |stream| {
                receive(stream);
                answer(stream, format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
                stream.shutdown(std::net::Shutdown::Both).expect("it is connected");
                closed.send(()).expect("it is waited for");
            });
            for _ in 0..2 {
                let answer = connection.ask(&Request::get("/"), soon(), MAX);
                assert_eq!(answer.expect("it answers").status, 200);
                is_closed.recv().expect("it closes");
            }
            thread.join().expect("both were asked");
        }
    }

    #[test]
    fn what_was_not_sent_is_said_so() {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let refused = to(port).ask(&Request::get("/"), soon(), MAX);
        assert!(matches!(refused, Err(Error::Unsent(_))), "{refused:?}");
        let late = to(port).ask(&Request::get("/"), Instant::now(), MAX);
        assert!(matches!(late, Err(Error::Unsent(_))), "{late:?}");
        let wrong = to(port).ask(&Request::get("/\r\n"), soon(), MAX);
        assert!(matches!(wrong, Err(Error::Unsent(_))), "{wrong:?}");
    }

    #[test]
    fn what_may_have_been_carried_out_is_said_so() {
        let cut: [&[u8]; 5] = [
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{",
            b"HTTP/1.1 2\r\n\r\n",
            b"-ERR unknown command\r\n\r\n",
            b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ];
        for bytes in cut {
            let (mut connection, thread) = serve(1, move |stream| {
                receive(stream);
                answer(stream, bytes);
            });
            let lost = connection.ask(&Request::get("/"), soon(), MAX);
            assert!(matches!(lost, Err(Error::Unanswered(_))), "{lost:?}");
            thread.join().expect("it was asked");
        }
    }

    #[test]
    fn a_long_answer_is_refused() {
        for head in ["Content-Length: 1001\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3e9\r\n"] {
            let (mut connection, thread) = serve(1, move |stream| {
                receive(stream);
                answer(stream, format!("HTTP/1.1 200 OK\r\n{head}").as_bytes());
                answer(stream, &[b'x'; MAX + 1]);
                receive(stream);
            });
            let long = connection.ask(&Request::get("/"), soon(), MAX);
            assert!(matches!(long, Err(Error::TooLong)), "{long:?}");
            drop(connection);
            thread.join().expect("it was asked");
        }
    }

    /// Writes a byte now and then until the other side has gone.
    fn trickle(stream: &mut TcpStream, ended: &Receiver<()>) {
        while ended.recv_timeout(Duration::from_millis(10)).is_err() {
            if stream.write_all(b"x").is_err() {
                return;
            }
        }
    }

    #[test]
    fn the_deadline_is_one_for_the_whole_answer() {
        let (end, ended) = channel();
        let (mut connection, thread) = serve(1, move |stream| {
            receive(stream);
            answer(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
            trickle(stream, &ended);
        });
        let deadline = Instant::now() + Duration::from_millis(200);
        let late = connection.ask(&Request::get("/"), deadline, 100_000_000);
        let Err(Error::Unanswered(why)) = late else { panic!("{late:?}") };
        assert_eq!(why.kind(), ErrorKind::TimedOut);
        end.send(()).expect("it trickles");
        thread.join().expect("it was asked");
    }

    #[test]
    fn an_answer_may_have_no_end() {
        let (go_on, goes_on) = channel();
        let (connection, thread) = serve(1, move |stream| {
            receive(stream);
            answer(stream, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab");
            goes_on.recv().expect("it is waited for");
            answer(stream, b"c\r\n0\r\nTrailer: x\r\n\r\n");
        });
        let mut feed = connection.subscribe(&Request::get("/"), soon()).expect("it answers");
        assert_eq!(feed.status, 200);
        assert_eq!(feed.next(soon()).expect("it comes").as_deref(), Some(&b"ab"[..]));
        let late = feed.next(Instant::now() + Duration::from_millis(50)).map(|_| ());
        assert_eq!(late.map_err(|why| why.kind()), Err(ErrorKind::TimedOut));
        go_on.send(()).expect("it waits");
        assert_eq!(feed.next(soon()).expect("it comes").as_deref(), Some(&b"c"[..]));
        assert_eq!(feed.next(soon()).expect("it ends"), None);
        thread.join().expect("it was asked");
    }
}
