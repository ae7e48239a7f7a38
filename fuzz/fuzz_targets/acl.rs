//! `./test fuzz 60 acl`; what is checked is in `entries/acl.rs`.
#![no_main]

#[path = "../entries/acl.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::check(data));
