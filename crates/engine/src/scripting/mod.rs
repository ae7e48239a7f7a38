//! Running scripts and functions: their locks, their attempts, and the server as they see it.
//!
//! What is known of them is in [`crate::scripts`].

mod host;
mod library_loader;
mod run;

pub use library_loader::LibraryLoader;
pub use run::{add_script, busy_error, eval, fcall};
pub(crate) use run::{dispatch, note_for_monitors, request_flags};
