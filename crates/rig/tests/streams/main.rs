//! What one engine hands to another: the stream of a primary, and slots with what changes meanwhile.

mod applying;
mod export;
