//! Files of a log that no manifest names.
//!
//! A server that finds no manifest begins a new log, empty or with an old-style file, and its files
//! have the names of the oldest ones of any log. If such files are there and hold data, the manifest
//! was lost, or not copied with them: going on would overwrite what may be the only copy. Empty ones
//! are what a server leaves that was stopped while it began. So are those beside the
//! [mark](Folder::beginning) of a log that was about to begin while the server ran.

use super::files::Folder;
use super::room;
use crate::process::os_error;
use rdb::file::{Item, Scanner, Step};
use replication::Manifest;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A base without a key is shorter than this.
const EMPTY_BASE: u64 = 4096;

/// Looks for them, if the directory's manifest names none.
///
/// # Errors
/// Why there can be no log here: such a file, or one that cannot be looked at.
pub fn refuse(folder: &Folder, manifest: &Manifest) -> Result<(), String> {
    if !manifest.is_empty() || folder.beginning().exists() {
        return Ok(());
    }
    let failed = |path: &Path, error: &io::Error| {
        format!("Can't read the append-only dir {}: {}", path.display(), os_error(error))
    };
    let entries = match fs::read_dir(folder.dir()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // That it is none is said where it is made.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
        Err(error) => return Err(failed(folder.dir(), &error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| failed(folder.dir(), &error))?;
        let path = entry.path();
        let name = entry.file_name();
        // An old-style file would be moved there, unless it is there (`appenddirname .`).
        let is_target = name.as_bytes() == folder.stem()
            && fs::canonicalize(folder.old_style())
                .is_ok_and(|old| fs::canonicalize(&path).is_ok_and(|new| new != old));
        if (is_target || is_part(folder.stem(), name.as_bytes()))
            && holds_data(&path).map_err(|error| failed(&path, &error))?
        {
            return Err(format!(
                "Fatal error: {} is part of an append-only log, but there is no manifest {}. It \
                 would be overwritten. Restore the manifest, or move the file away",
                path.display(),
                folder.manifest().display()
            ));
        }
    }
    Ok(())
}

/// Whether a file of this name is a base or an increment of the log `stem`.
fn is_part(stem: &[u8], name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix(b".")) else {
        return false;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0
        && [&b".base.rdb"[..], b".base.aof", b".incr.aof"].iter().any(|&end| &rest[digits..] == end)
}

fn holds_data(path: &Path) -> io::Result<bool> {
    let mut file = fs::File::open(path)?;
    let len = room::data_end(&file)?.at;
    if len == 0 || len > EMPTY_BASE {
        return Ok(len > 0);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(!is_empty_rdb(&bytes))
}

/// Whether this is a whole RDB file without a key.
fn is_empty_rdb(bytes: &[u8]) -> bool {
    if !bytes.first_chunk().is_some_and(|&magic| rdb::file::is_rdb(magic)) {
        return false;
    }
    let mut scanner = Scanner::new(0, bytes.len() as u64, usize::MAX);
    let mut at = 0;
    while !scanner.is_done() {
        match scanner.next(&bytes[at..]) {
            Ok(Step::Item(
                Item::Header(_)
                | Item::Aux { .. }
                | Item::SelectDb(_)
                | Item::ResizeDb { .. }
                | Item::EndOfFile
                | Item::Checksum(_),
                taken,
            )) => at += taken,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_by_their_names() {
        let is = |name: &str| is_part(b"a.aof", name.as_bytes());
        assert!(is("a.aof.1.base.rdb") && is("a.aof.12.base.aof") && is("a.aof.3.incr.aof"));
        assert!(!is("a.aof.manifest") && !is("a.aof") && !is("a.aof..incr.aof"));
        assert!(!is("b.aof.1.incr.aof") && !is("a.aof.1.incr.aof.bak") && !is("temp-a.aof.incr"));
    }

    #[test]
    fn an_empty_base_holds_nothing() {
        let mut encoder = rdb::Encoder::new(rdb::Compression::Off);
        encoder.file_header();
        encoder.aux_integer("redis-bits", 64);
        let mut with_key = rdb::Encoder::new(rdb::Compression::Off);
        with_key.raw(encoder.as_bytes());
        encoder.end_of_file();
        encoder.checksum(0);
        assert!(is_empty_rdb(encoder.as_bytes()));
        let whole = encoder.as_bytes().len();
        assert!(!is_empty_rdb(&encoder.as_bytes()[..whole - 1]), "one that is cut short may have");
        with_key.select_db(0);
        let head = rdb::file::RecordHead {
            key: b"k",
            expiry_ms: None,
            access: rdb::file::Access::Unknown,
        };
        with_key.record(&head, rdb::ObjectRef::Int(1));
        with_key.end_of_file();
        with_key.checksum(0);
        assert!(!is_empty_rdb(with_key.as_bytes()));
    }
}
