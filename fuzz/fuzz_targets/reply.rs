//! `./test fuzz 60 reply`; what is checked is in `entries/reply.rs`.
#![no_main]

#[path = "../entries/reply.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
