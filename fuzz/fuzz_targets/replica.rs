//! `./test fuzz 60 replica`; what is checked is in `entries/replica.rs`.
#![no_main]

#[path = "../entries/replica.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
