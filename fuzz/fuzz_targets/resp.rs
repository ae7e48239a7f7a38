//! `./test fuzz 60 resp`; what is checked is in `entries/resp.rs`.
#![no_main]

#[path = "../entries/resp.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
