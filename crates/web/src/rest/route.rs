//! A route: its place, the function that answers it, and the types that describe it.

use super::{ApiError, Boxed};
use crate::{Read, SMALL_BODY, Unread};
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::future::Future;

/// What answers a request: its context, its query and its body.
pub type Run<C> = Box<dyn Fn(C, &str, Bytes) -> Boxed<Result<Response, ApiError>> + Send + Sync>;
/// What describes a type.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A method of a path, for an interface whose handlers are given a `C`.
pub struct Route<C> {
    /// The method.
    pub method: Method,
    /// Below the prefix.
    pub path: &'static str,
    /// What it does, for people.
    pub summary: &'static str,
    /// Its fields are the parameters of the query.
    pub query: Option<SchemaOf>,
    /// What the body has.
    pub body: Option<SchemaOf>,
    /// None where the reply is a stream of events.
    pub reply: Option<SchemaOf>,
    /// Bytes of the longest body.
    pub max_body: usize,
    /// It is open to requests without a session.
    pub is_login: bool,
    /// What answers it.
    pub run: Run<C>,
}

/// Bytes of the longest body of most routes, and of those whose body has a whole value.
const MAX_BODY: usize = 1 << 20;
const MAX_VALUE_BODY: usize = 16 << 20;

/// No parameters.
#[derive(Deserialize, JsonSchema)]
pub struct Nothing {}

/// It is done.
#[derive(Serialize, JsonSchema)]
pub struct Done {
    /// Always true.
    ok: bool,
}

impl Done {
    /// It is done.
    pub fn new() -> Done {
        Done::default()
    }
}

impl Default for Done {
    fn default() -> Done {
        Done { ok: true }
    }
}

/// Returns a value as a JSON answer.
///
/// # Errors
/// It cannot be written as JSON.
pub fn json<T: Serialize>(value: &T) -> Result<Response, ApiError> {
    let text = serde_json::to_vec(value).map_err(|error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", error.to_string())
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Reads the parameters of a query.
///
/// # Errors
/// One is missing, or of another type.
pub fn parameters<Q: DeserializeOwned>(query: &str) -> Result<Q, ApiError> {
    let uri = format!("/?{query}").parse().map_err(|_| ApiError::bad("The query is not sound"))?;
    let query = axum::extract::Query::<Q>::try_from_uri(&uri);
    query.map(|query| query.0).map_err(|why| ApiError::bad(why.body_text()))
}

/// Refuses a change whose content type a form of a page elsewhere could send.
///
/// # Errors
/// It is no JSON.
pub fn check_type(parts: &Parts) -> Result<(), ApiError> {
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if only_reads(&parts.method) || kind.is_some_and(|kind| kind.starts_with("application/json")) {
        return Ok(());
    }
    Err(ApiError::forged("The request needs the content type application/json"))
}

/// Whether a request of this method only reads. One with HEAD is answered as one with GET; the HTTP
/// server leaves the body out.
pub fn only_reads(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

/// Returns the route of a path for a method.
///
/// # Errors
/// There is no such path, or only for other methods.
pub fn find<'r, C>(
    routes: &'r [Route<C>],
    path: &str,
    method: &Method,
) -> Result<&'r Route<C>, ApiError> {
    let of_path = || routes.iter().filter(|route| route.path == path);
    let wanted = if only_reads(method) { &Method::GET } else { method };
    if let Some(route) = of_path().find(|route| route.method == wanted) {
        return Ok(route);
    }
    let methods: Vec<&str> = of_path().map(|route| route.method.as_str()).collect();
    Err(if methods.is_empty() { ApiError::path() } else { ApiError::method(&methods) })
}

/// Returns the answer to a request if its body, of so many bytes at most, cannot be read.
pub fn unread(why: &Unread, max_body: usize) -> ApiError {
    match why {
        Unread::TooLong => ApiError::too_large(max_body),
        Unread::Late => ApiError::late(),
        Unread::Busy => ApiError::busy("Too many requests with long bodies are being answered"),
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl<C: Send + 'static> Route<C> {
    /// A route that only reads, has no parameters, and says nothing of its reply.
    fn plain(path: &'static str, summary: &'static str, run: Run<C>) -> Route<C> {
        Route {
            method: Method::GET,
            path,
            summary,
            query: None,
            body: None,
            reply: None,
            max_body: 0,
            is_login: false,
            run,
        }
    }

    /// A route that only reads. The fields of `Q` are its parameters.
    pub fn get<Q, R, F>(
        path: &'static str,
        summary: &'static str,
        handler: fn(C, Q) -> F,
    ) -> Route<C>
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema,
        F: Future<Output = Result<R, ApiError>> + Send + 'static,
    {
        let run: Run<C> = Box::new(move |call, query, _| {
            let query = parameters(query);
            Box::pin(async move { json(&handler(call, query?).await?) })
        });
        Route {
            query: Some(schema_of::<Q>),
            reply: Some(schema_of::<R>),
            ..Route::plain(path, summary, run)
        }
    }

    /// A route that changes something.
    pub fn post<B, R, F>(
        path: &'static str,
        summary: &'static str,
        handler: fn(C, B) -> F,
    ) -> Route<C>
    where
        B: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema,
        F: Future<Output = Result<R, ApiError>> + Send + 'static,
    {
        let run: Run<C> = Box::new(move |call, _, body| {
            let body = serde_json::from_slice(&body);
            Box::pin(async move {
                let body = body.map_err(|why| ApiError::bad(why.to_string()))?;
                json(&handler(call, body).await?)
            })
        });
        Route {
            method: Method::POST,
            body: Some(schema_of::<B>),
            reply: Some(schema_of::<R>),
            max_body: MAX_BODY,
            ..Route::plain(path, summary, run)
        }
    }

    /// As [`Route::post`], by another method.
    pub fn by(mut self, method: Method) -> Route<C> {
        self.method = method;
        self
    }

    /// It is how a session begins, so anyone may send it.
    pub fn login(mut self) -> Route<C> {
        self.is_login = true;
        self.max_body = SMALL_BODY;
        self
    }

    /// Its body has a whole value.
    pub fn of_value(mut self) -> Route<C> {
        self.max_body = MAX_VALUE_BODY;
        self
    }

    /// Reads the body of a request. Routes that only read take none.
    ///
    /// # Errors
    /// It is longer than the route takes, or does not come in time.
    pub async fn body(&self, parts: &Parts, body: Body) -> Result<Read, ApiError> {
        let body = if self.max_body == 0 { Body::empty() } else { body };
        let read = crate::read(&parts.extensions, body, self.max_body).await;
        read.map_err(|why| unread(&why, self.max_body))
    }

    /// A route whose reply is a stream of events.
    pub fn stream<Q, F>(
        path: &'static str,
        summary: &'static str,
        handler: fn(C, Q) -> F,
    ) -> Route<C>
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        F: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        let run: Run<C> = Box::new(move |call, query, _| {
            let query = parameters(query);
            Box::pin(async move { handler(call, query?).await })
        });
        Route { query: Some(schema_of::<Q>), ..Route::plain(path, summary, run) }
    }
}
