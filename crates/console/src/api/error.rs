//! What a request is answered whose server refuses it, or cannot be asked.

use crate::link::Failure;
use axum::http::StatusCode;
use resp::Value;
use web::rest::ApiError;

/// Returns what a request is answered whose server replied this error.
pub fn of_reply(text: &str) -> ApiError {
    let code = text.split(' ').next().unwrap_or_default();
    let status = match code {
        "NOPERM" => StatusCode::FORBIDDEN,
        "NOAUTH" | "WRONGPASS" => StatusCode::UNAUTHORIZED,
        "LOADING" | "BUSY" | "MASTERDOWN" => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let code = if code == "NOAUTH" { "LOGIN" } else { code };
    ApiError::new(status, code, text)
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> ApiError {
        let (status, code) = match &failure {
            Failure::Refused(_) => (StatusCode::UNAUTHORIZED, "LOGIN"),
            Failure::Lost(_) => (StatusCode::BAD_GATEWAY, "UNREACHABLE"),
            Failure::Late => (StatusCode::GATEWAY_TIMEOUT, "LATE"),
            Failure::Unreadable(_) => (StatusCode::UNPROCESSABLE_ENTITY, "UNREADABLE"),
        };
        ApiError::new(status, code, failure.to_string())
    }
}

/// A reply that is no error.
///
/// # Errors
/// It is one.
pub fn check(reply: Value) -> Result<Value, ApiError> {
    match reply.error() {
        Some(text) => Err(of_reply(&text)),
        None => Ok(reply),
    }
}
