//! `./test fuzz 60 timed`; what is checked is in `entries/timed.rs`.
#![no_main]

#[path = "../entries/timed.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
