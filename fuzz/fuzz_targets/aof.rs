//! `./test fuzz 60 aof`; what is checked is in `entries/aof.rs`.
#![no_main]

#[path = "../entries/aof.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
