//! The base of a log that begins with nothing.

use engine::Engine;
use rdb::{Compression, Encoder};
use std::io;
use std::path::Path;
use structs::crc64::crc64;

/// Writes it. It has its name when it is whole: half a base without a manifest would keep the next
/// server from starting.
///
/// # Errors
/// The system's.
pub fn write_empty(engine: &Engine, path: &Path) -> io::Result<()> {
    let mut encoder = Encoder::new(Compression::Off);
    if engine.config().aof_use_rdb_preamble() {
        encoder.file_header();
        encoder.aux_integer("redis-bits", 64);
        encoder.aux_integer("ctime", engine::clock::now_s());
        encoder.aux_integer("aof-base", 1);
        encoder.end_of_file();
        let sum = if engine.config().rdbchecksum() { crc64(0, encoder.as_bytes()) } else { 0 };
        encoder.checksum(sum);
    }
    config::replace_file(path, encoder.as_bytes())
}
