//! `./test fuzz 60 hyperloglog`; what is checked is in `entries/hyperloglog.rs`.
#![no_main]

#[path = "../entries/hyperloglog.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
