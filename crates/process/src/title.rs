//! The process's title: what `ps` shows as the command line.

use super::argv_area::ArgvArea;
use crate::log;

/// The process's title. Without the memory for it (see [`ArgvArea`]) setting it does nothing.
#[derive(Debug)]
pub struct ProcessTitle(Option<ArgvArea>);

impl ProcessTitle {
    /// Prepares setting titles. Call it before any thread is started and after the arguments were
    /// copied out of `std::env::args`.
    pub fn prepare() -> Self {
        match ArgvArea::claim() {
            Ok(area) => Self(Some(area)),
            Err(error) => {
                log!(Debug, "The process title cannot be set: {error}");
                Self(None)
            }
        }
    }

    /// Shows `title` as the process's title.
    pub fn set(&self, title: &[u8]) {
        if let Some(area) = &self.0 {
            area.set(title);
        }
    }
}
