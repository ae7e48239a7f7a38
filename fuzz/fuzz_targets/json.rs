//! `./test fuzz 60 json`; what is checked is in `entries/json.rs`.
#![no_main]

#[path = "../entries/json.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
