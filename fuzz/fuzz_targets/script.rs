//! `./test fuzz 60 script`; what is checked is in `entries/script.rs`.
#![no_main]

#[path = "../entries/script.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
