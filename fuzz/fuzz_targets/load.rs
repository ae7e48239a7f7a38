//! `./test fuzz 60 load`; what is checked is in `entries/load.rs`.
#![no_main]

#[path = "../entries/load.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
