//! Running scripts and functions: their locks, their attempts, and the server as they see it.
//!
//! What is known of them is in [`crate::scripts`].

mod eval;
mod host;
mod library_loader;
mod run;

pub use eval::{add_script, busy_error, eval, fcall};
pub(crate) use eval::{note_for_monitors, note_script};
pub use library_loader::LibraryLoader;
pub(crate) use run::{dispatch, has_queue_of_scripts, request_flags, run_queue_in_background};
