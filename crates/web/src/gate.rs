//! What holds for every request of every port: no page of another origin sends it, it has a place,
//! and its body comes in time.

use crate::places::{Answering, ServedPlace};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{Extensions, HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Frame, SizeHint};
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// Bytes of a body that are read of anyone: a log-in.
pub const SMALL_BODY: usize = 4 << 10;
/// How long a small body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a longer one that have to come within each further second.
const BODY_RATE: usize = 64 << 10;

/// Paths that are answered whatever else is served.
pub type Probes = &'static [&'static str];

/// Lets a request in, and gives its answer the headers of all.
pub async fn pass(State(probes): State<Probes>, request: Request, next: Next) -> Response {
    let mut response = admit(probes, request, next).await;
    crate::secure(&mut response);
    response
}

async fn admit(probes: Probes, request: Request, next: Next) -> Response {
    let is_probe = probes.contains(&request.uri().path());
    if is_foreign(&request) {
        return (StatusCode::FORBIDDEN, FOREIGN).into_response();
    }
    if !is_probe && is_unspecified(request.headers()) {
        return (StatusCode::FORBIDDEN, UNSPECIFIED).into_response();
    }
    // A request that is not whole is let in with its body.
    if !request.body().is_end_stream() {
        return next.run(request).await;
    }
    let place = request.extensions().get::<Arc<ServedPlace>>();
    let Some(answering) = place.and_then(|place| place.answer(is_probe)) else {
        let wait = [(header::RETRY_AFTER, "1")];
        return (StatusCode::SERVICE_UNAVAILABLE, wait, BUSY).into_response();
    };
    let response = next.run(request).await;
    // An answer of a known length only has to be read. A stream keeps its place until it ends.
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| Body::new(Held { body, _answering: answering }))
}

const FOREIGN: &str = "The request comes from a page of another origin\n";
const UNSPECIFIED: &str = "Use another address than 0.0.0.0 or ::, such as 127.0.0.1\n";
const BUSY: &str = "Too many requests are being answered. Try again\n";

/// Returns whether a page of another origin has sent the request. Browsers say so in headers that a
/// page cannot set. From elsewhere the page itself may be opened, and nothing else be asked.
fn is_foreign(request: &Request) -> bool {
    let headers = request.headers();
    match text(headers, &SEC_FETCH_SITE) {
        // Behind a reverse proxy the browser knows better than the header Host.
        Some("same-origin" | "none") => false,
        Some(_) => !opens_page(request),
        None => match text(headers, &header::ORIGIN) {
            None => false,
            Some(origin) => {
                let (_, authority) = origin.split_once("://").unwrap_or_default();
                !text(headers, &header::HOST).is_some_and(|it| it.eq_ignore_ascii_case(authority))
            }
        },
    }
}

/// Returns whether the address in the URL is 0.0.0.0 or the like. It leads to this machine, and
/// browsers do not say which page sends a request there.
fn is_unspecified(headers: &HeaderMap) -> bool {
    let host = text(headers, &header::HOST).and_then(|host| host.parse::<Authority>().ok());
    let address = host.and_then(|host| host.host().trim_matches(['[', ']']).parse::<IpAddr>().ok());
    address.is_some_and(|address| address.to_canonical().is_unspecified())
}

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
static SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Returns a header's value; one that is no text is empty.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// Returns whether a window of a browser opens the page.
fn opens_page(request: &Request) -> bool {
    let headers = request.headers();
    let only_reads = [Method::GET, Method::HEAD].contains(request.method());
    only_reads
        && is_page(request.uri().path())
        && text(headers, &SEC_FETCH_MODE) == Some("navigate")
        && text(headers, &SEC_FETCH_DEST) == Some("document")
}

/// Returns whether a path is that of a console: that of the port, or of a further server.
fn is_page(path: &str) -> bool {
    let number = path.strip_prefix("/server/").and_then(|rest| rest.strip_suffix('/'));
    path == "/"
        || number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Why a body is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// It is longer than allowed.
    TooLong,
    /// It does not come, or too slowly.
    Late,
    /// Other requests have too much already.
    Busy,
}

/// The bytes of a body. Until this is dropped its request has a place, and room of all bodies'.
pub struct Read {
    /// The bytes.
    pub bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
    _answering: Option<Answering>,
}

/// Reads a body of at most so many bytes. It has ten seconds, and a second more for each 64 KiB that
/// have come.
///
/// # Errors
/// It is not read to its end.
pub async fn read(extensions: &Extensions, body: Body, most: usize) -> Result<Read, Unread> {
    read_within(extensions.get::<Arc<ServedPlace>>(), body, most, BODY_PATIENCE).await
}

async fn read_within(
    place: Option<&Arc<ServedPlace>>,
    mut body: Body,
    most: usize,
    patience: Duration,
) -> Result<Read, Unread> {
    if body.size_hint().lower() > most as u64 {
        return Err(Unread::TooLong);
    }
    let began = Instant::now();
    let mut bytes = Vec::new();
    let mut room: Option<OwnedSemaphorePermit> = None;
    loop {
        let deadline = began + patience + Duration::from_secs((bytes.len() / BODY_RATE) as u64);
        let next = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let frame = match timeout_at(deadline, next).await {
            Err(_) | Ok(Some(Err(_))) => return Err(Unread::Late),
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(Unread::TooLong);
        }
        if bytes.len() + data.len() > SMALL_BODY
            && let Some(place) = place
        {
            let more = place.room(data.len()).ok_or(Unread::Busy)?;
            match &mut room {
                None => room = Some(more),
                Some(room) => room.merge(more),
            }
        }
        bytes.extend_from_slice(&data);
    }
    let answering = match place.filter(|place| place.waits()) {
        Some(place) => Some(place.answer(false).ok_or(Unread::Busy)?),
        None => None,
    };
    Ok(Read { bytes: bytes.into(), _room: room, _answering: answering })
}

/// The body of an answer whose length is not known, with its place.
struct Held {
    body: Body,
    _answering: Answering,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Held>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request {
        let mut builder =
            Request::builder().method(method).uri(path).header("host", "a.example:80");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(Body::empty()).expect("a request")
    }

    #[test]
    fn a_foreign_page_is_known_by_its_headers() {
        let opening = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        for method in ["GET", "POST"] {
            let is_foreign =
                |headers: &[(&str, &str)]| is_foreign(&request(method, "/api", headers));
            assert!(!is_foreign(&[]), "a program");
            assert!(!is_foreign(&[("origin", "http://a.example:80")]));
            assert!(!is_foreign(&[("sec-fetch-site", "none")]), "typed by a user");
            let behind_proxy = [("origin", "https://b.example"), ("sec-fetch-site", "same-origin")];
            assert!(!is_foreign(&behind_proxy));
            for origin in ["http://a.example", "http://b.example:80", "null"] {
                assert!(is_foreign(&[("origin", origin)]), "{origin}");
            }
            for site in ["cross-site", "same-site", ""] {
                assert!(is_foreign(&[("sec-fetch-site", site)]), "{site}");
                let headers = [("sec-fetch-site", site), opening[0], opening[1]];
                assert!(is_foreign(&headers), "{site}: only the page is opened from elsewhere");
            }
        }
        let page = |method: &str, dest: &str, path: &str| {
            let headers = [
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", dest),
            ];
            is_foreign(&request(method, path, &headers))
        };
        for path in ["/", "/server/2/", "/server/31/"] {
            assert!(!page("GET", "document", path), "{path}");
            assert!(page("GET", "iframe", path) && page("POST", "document", path), "{path}");
        }
        for path in ["/server/", "/server//", "/server/2", "/server/2/api", "/server/a/", "/2/"] {
            assert!(page("GET", "document", path), "{path}");
        }
    }

    #[test]
    fn an_address_that_hides_the_sender_is_known() {
        let is_unspecified = |host: &str| {
            is_unspecified(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]))
        };
        for host in ["0.0.0.0", "0.0.0.0:8379", "[::]:8379", "[::ffff:0.0.0.0]"] {
            assert!(is_unspecified(host), "{host}");
        }
        for host in ["127.0.0.1:8379", "[::1]", "localhost", "a.example:80", "0.0.0.0.example"] {
            assert!(!is_unspecified(host), "{host}");
        }
    }

    /// A body that does not come.
    struct Silent;

    impl HttpBody for Silent {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            self: Pin<&mut Silent>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn bodies_have_a_limit_and_a_deadline() {
        let read = async |body: Body, patience| {
            read_within(None, body, 3, patience).await.map(|read| read.bytes)
        };
        assert_eq!(read(Body::from("abc"), BODY_PATIENCE).await, Ok(Bytes::from("abc")));
        assert_eq!(read(Body::from("abcd"), BODY_PATIENCE).await, Err(Unread::TooLong));
        assert_eq!(read(Body::new(Silent), Duration::from_millis(10)).await, Err(Unread::Late));
    }
}
