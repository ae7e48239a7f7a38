//! What an interface over HTTP is built from: a table of routes, from which requests are answered
//! and the OpenAPI document is made.
//!
//! ```text
//!   route     a method of a path: the function that answers it, the types that describe it
//!   openapi   the document, made of the routes
//!   change    what requests that change something may say: their name, and that they only plan
//!   error     what a request is answered that is not served
//! ```

mod change;
mod error;
mod openapi;
mod route;

pub use change::{MAX_REQUEST_NAME, fingerprint, only_plans, request_name};
pub use error::ApiError;
pub use openapi::{About, describe};
pub use route::{Done, Nothing, Route, check_type, find, json, only_reads, parameters, unread};

use std::future::Future;
use std::pin::Pin;

/// Where an interface is.
pub const PREFIX: &str = "/api/v1";

/// A future that is on the heap.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
