//! `./test fuzz 60 hub`; what is checked is in `entries/hub.rs`.
#![no_main]

#[path = "../entries/hub.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
