//! What the audit log is told of a port: requests that change something, and log-ins that fail.
//!
//! One layer around all routes writes the lines. A route says for which user it works by
//! [`note_user`], and an answer may carry the code of its error ([`Why`]).

use axum::extract::{Request, State};
use axum::http::{Extensions, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use process::audit::{self, Entry, Outcome, Source};
use std::sync::{Arc, OnceLock};

/// The code of the error that an answer is: an extension of the answer.
#[derive(Clone, Debug)]
pub struct Why(pub String);

/// The user that sent a request: an extension of the request.
#[derive(Clone, Debug, Default)]
struct Caller(Arc<OnceLock<String>>);

/// Notes the user of a request, or the name that a log-in tries. The first one stays.
pub fn note_user(extensions: &Extensions, user: &str) {
    if let Some(Caller(name)) = extensions.get::<Caller>() {
        // A later name is that of a layer further inside, which acts for the same user.
        let _ = name.set(user.to_owned());
    }
}

/// Answers a request, and records it if it changes something or is a log-in that fails.
pub(crate) async fn note(
    State(source): State<Source>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = Caller::default();
    request.extensions_mut().insert(caller.clone());
    let is_change = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let logs_in = request.headers().contains_key(header::AUTHORIZATION);
    let mut pending = Pending {
        source,
        caller,
        address: request
            .extensions()
            .get::<crate::Peer>()
            .map_or_else(String::new, |peer| peer.address.to_string()),
        action: format!("{} {}", request.method(), request.uri().path()),
        query: request.uri().query().unwrap_or_default().to_owned(),
        is_open: is_change,
    };
    let response = next.run(request).await;
    pending.is_open = false;
    let status = response.status();
    let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if is_change || logs_in && is_refused {
        let code = response.extensions().get::<Why>().map(|why| &*why.0);
        pending.record(status, code);
    }
    response
}

/// A request that is being answered. If it is dropped before, because the client has left, its
/// change may have been made all the same.
struct Pending {
    source: Source,
    caller: Caller,
    address: String,
    action: String,
    query: String,
    /// It has no line yet, and needs one.
    is_open: bool,
}

impl Pending {
    fn record(&self, status: StatusCode, code: Option<&str>) {
        if status.is_success() || status.is_redirection() {
            return self.add(Outcome::Done);
        }
        let why = format!("{} {}", status.as_u16(), code.unwrap_or_default());
        self.add(Outcome::Refused(why.trim_end().as_bytes()));
    }

    fn add(&self, outcome: Outcome<'_>) {
        let query = [self.query.as_bytes()];
        audit::record(&Entry {
            source: self.source,
            user: self.caller.0.get().map_or(&b""[..], |name| name.as_bytes()),
            address: &self.address,
            id: 0,
            action: &self.action,
            target: if self.query.is_empty() { &[][..] } else { &query },
            outcome,
        });
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.is_open {
            self.add(Outcome::Begun);
        }
    }
}
