//! `./test fuzz 60 series`; what is checked is in `entries/series.rs`.
#![no_main]

#[path = "../entries/series.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
