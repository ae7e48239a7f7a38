//! Log-ins: which user a request is of, and what keeps others from making requests in that user's
//! name.

mod sessions;

pub use sessions::{COOKIE, Session, Sessions};
