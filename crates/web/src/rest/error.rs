//! What a request is answered that cannot be served: `{"error": {"code": …, "message": …}}`.

use crate::Why;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why a request is not served.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: String,
    message: String,
    /// The methods that the path takes, if this was another.
    allow: Option<String>,
}

impl ApiError {
    /// With a status, a code for programs and a text for people.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> ApiError {
        ApiError { status, code: code.to_owned(), message: message.into(), allow: None }
    }

    /// There is nothing of this path.
    pub fn path() -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "NOTFOUND", "There is no such path in the API")
    }

    /// There is no such key, job or user.
    pub fn missing(what: &str) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "NOTFOUND", format!("There is no such {what}"))
    }

    /// The path is for other methods: these.
    pub fn method(allow: &[&str]) -> ApiError {
        let allow = allow.join(", ");
        let text = format!("The path takes {allow}");
        let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD", text);
        ApiError { allow: Some(allow), ..error }
    }

    /// The body is longer than so many bytes.
    pub fn too_large(most: usize) -> ApiError {
        let text = format!("The body is longer than {most} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "TOOLARGE", text)
    }

    /// The body does not come.
    pub fn late() -> ApiError {
        let text = "The body of the request did not come in time";
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "LATE", text)
    }

    /// Too much is done at the moment; what.
    pub fn busy(what: &str) -> ApiError {
        let text = format!("{what}. Try again");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", text)
    }

    /// The request makes no sense.
    pub fn bad(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "BADREQUEST", message)
    }

    /// A name and a password are needed.
    pub fn login() -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, "LOGIN", "Log in first")
    }

    /// The request may come from a page elsewhere.
    pub fn forged(message: &str) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "FORGED", message)
    }

    /// Too many log-ins have failed.
    pub fn limited() -> ApiError {
        let message = "Too many log-ins have failed, and others wait. Try again in a minute.";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "LIMITED", message)
    }

    /// The code for programs.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns whether it says that a server behind this one cannot be reached.
    pub fn is_of_gateway(&self) -> bool {
        matches!(self.status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } }).to_string();
        let json = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status, json, body).into_response();
        if let Some(allow) = self.allow.and_then(|text| HeaderValue::from_str(&text).ok()) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response.extensions_mut().insert(Why(self.code));
        response
    }
}
