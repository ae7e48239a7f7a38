//! Values on flash: an extension of RAM that ends with the process.
//!
//! Records are appended to segments, files of one size. Where a record is fits in eight bytes
//! ([`Location`]); nothing else of it stays in RAM. A segment is used again when no record of it is
//! needed any more. Where too few segments are free, the records that are left of one are moved to
//! another ([`Tier::maintain`]).
//!
//! The crate knows neither keys nor commands. The keeper of locations implements [`Owners`]; what is
//! stored is [`Disk`]'s business. `docs/internals/tier.md` has the whole.

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
