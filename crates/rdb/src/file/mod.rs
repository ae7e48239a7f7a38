//! The file around the values.
//!
//! ```text
//!  "REDIS0011" │ AUX name value … │ FUNCTION2 source … │ database … │ EOF │ CRC-64 of all before (8), 0 if there is none
//!
//!  database:  SELECTDB n │ RESIZEDB keys expiring │ key …
//!  key:       [EXPIRETIME_MS ms (8)] │ [IDLE seconds or FREQ counter (1)] │ type │ key │ value
//! ```

pub mod opcode;
mod scan;
mod shape;
mod write;

pub use scan::{Doing, Foreign, Item, Record, ScanStep, Scanner};
pub use shape::type_name;
pub use write::{Access, RecordHead};

/// The first version whose readers know libraries of functions ([`opcode::FUNCTION2`]).
pub const FUNCTIONS_SINCE: u16 = 10;

/// Whether a file that begins so is an RDB file, of Redis or of Valkey.
pub fn is_rdb(magic: [u8; 5]) -> bool {
    &magic == b"REDIS" || &magic == b"VALKE"
}
