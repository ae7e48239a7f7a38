//! What bounds the text of a path and its evaluation.

/// Bytes of a path's text.
pub const MAX_PATH_LEN: usize = 128 << 10;
/// Steps `..` of a path.
pub const MAX_RECURSIVE_STEPS: usize = 20;
/// Brackets, calls and operators of a path inside each other.
pub(crate) const MAX_NESTING: usize = 64;
/// Filters inside each other.
pub(crate) const MAX_FILTERS: usize = 8;
/// Values that an evaluation looks at.
pub(crate) const MAX_VISITS: u64 = if cfg!(test) { 1 << 20 } else { 1 << 25 };
