//! Values on flash: an extension of RAM that ends with the process.
//!
//! Records are appended to segments, which are files of one size. A record's place is encoded in
//! eight bytes ([`Location`]). Nothing else of it stays in RAM. A segment is reused when none of
//! its records is needed any more. If too few segments are free, the remaining records of some are
//! moved to others ([`Tier::maintain`]).
//!
//! The crate knows neither keys nor commands. Its user implements [`Owners`] for the entries that
//! hold locations. A [`Disk`] stores the segments. `docs/internals/tier.md` describes the whole.

mod backlog;
mod cleaner;
mod disk;
mod figures;
pub mod files;
mod location;
mod marks;
mod one_shot;
pub mod own_ring;
mod queue;
mod reader;
mod record;
mod segments;
mod sweep;
mod threads;
mod tier;
mod uring;
mod window;
mod writer;

pub use backlog::Told;
pub use cleaner::{Owners, Relocation};
pub use disk::{Disk, Done, Operation, Work};
pub use figures::Figures;
pub use location::Location;
pub use reader::{Fetched, Payload, ReadError};
pub use sweep::{Sweep, Swept};
pub use tier::{Settings, SettingsError, Tier};
pub use writer::Refused;
