//! `./test fuzz 60 primary`; what is checked is in `entries/primary.rs`.
#![no_main]

#[path = "../entries/primary.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
