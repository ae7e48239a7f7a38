//! Values of types that Redis has in modules: documents, filters, sketches.
//!
//! Such a value says which type it is and marks each of its primitives, so a reader that does not
//! know the type can pass over it:
//!
//! ```text
//!  | 7 (MODULE_2) | id (length) | mark (length) primitive … | 0 (end) |
//!
//!  id: nine letters of 6 bits each, then 10 bits of the encoding's version
//!  mark  1 signed, 2 unsigned   a length (signed: its two's complement)
//!        3 float, 4 double      4 or 8 bytes, little-endian
//!        5 string               a string in any form
//! ```
//!
//! - [`Writer`] and [`Reader`]: what the code of a type writes its payload with and reads it.
//! - [`Type`] and [`Value`]: what a type is for files, the keyspace and commands.
//! - [`Module`]: a value of any such type.

mod id;
mod primitives;
mod value;

pub use id::Id;
pub use primitives::{Reader, Writer};
pub use value::{Load, Module, Type, Types, Value, payload, recode};

pub(crate) use primitives::Mark;
pub(crate) use value::find;
