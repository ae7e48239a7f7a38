//! `./test fuzz 60 sketches`; what is checked is in `entries/sketches.rs`.
#![no_main]

#[path = "../entries/sketches.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
