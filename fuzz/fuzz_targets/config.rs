//! `./test fuzz 60 config`; what is checked is in `entries/config.rs`.
#![no_main]

#[path = "../entries/config.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
