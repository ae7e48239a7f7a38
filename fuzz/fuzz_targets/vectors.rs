//! `./test fuzz 60 vectors`; what is checked is in `entries/vectors.rs`.
#![no_main]

#[path = "../entries/vectors.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
