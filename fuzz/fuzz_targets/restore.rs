//! `./test fuzz 60 restore`; what is checked is in `entries/restore.rs`.
#![no_main]

#[path = "../entries/restore.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
