//! `./test fuzz 60 json_path`; what is checked is in `entries/json_path.rs`.
#![no_main]

#[path = "../entries/json_path.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
