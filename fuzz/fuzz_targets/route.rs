//! `./test fuzz 60 route`; what is checked is in `entries/route.rs`.
#![no_main]

#[path = "../entries/route.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
