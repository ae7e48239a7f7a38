//! `./test fuzz 60 proxy`; what is checked is in `entries/proxy.rs`.
#![no_main]

#[path = "../entries/proxy.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
