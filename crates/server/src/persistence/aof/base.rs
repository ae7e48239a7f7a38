//! The base of a log that begins empty.

use engine::Engine;
use process::replace;
use rdb::{Compression, Encoder};
use std::io;
use std::path::Path;
use structs::crc64::crc64;

/// Writes the base. It gets its name only when it is complete: an incomplete base without a
/// manifest would prevent the next start.
///
/// # Errors
/// Those of the system.
pub fn write_empty(engine: &Engine, path: &Path) -> io::Result<()> {
    let mut encoder = Encoder::new(Compression::Off);
    if engine.config.aof_use_rdb_preamble() {
        encoder.file_header();
        encoder.aux_integer("redis-bits", 64);
        encoder.aux_integer("ctime", engine::clock::now_s());
        encoder.aux_integer("aof-base", 1);
        encoder.end_of_file();
        let sum = if engine.config.rdbchecksum() { crc64(0, encoder.as_bytes()) } else { 0 };
        encoder.checksum(sum);
    }
    replace::file(path, encoder.as_bytes())
}
