//! Finds files that are named like parts of the log, although no manifest names them.
//!
//! If the server ignored such a file, it would load only a part of the data without notice, and a
//! later rewrite would overwrite what may be the only copy. The cause is a manifest that was lost,
//! lacks a line, or is older than the files. So a file with data must be explained by a crash
//! between two steps, or the start is refused:
//!
//! | crash | leaves |
//! |---|---|
//! | before the manifest names a new base | the base with the next number, of a log that has one |
//! | before the first manifest of a log that [begins](Folder::beginning) | the base and the increment with the next numbers |
//! | before the manifest names a new increment, or while a server began a log | files without data |

use super::files::Folder;
use super::preallocated;
use process::os_error;
use rdb::file::{Item, ScanStep, Scanner};
use replication::Manifest;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A base without a key is shorter than this, in bytes.
const EMPTY_BASE: u64 = 4096;

/// Looks for such files. Returns those that a crash has left and that may be deleted.
///
/// # Errors
/// Why there can be no log here: no crash explains a file, or a file cannot be read.
pub fn find(folder: &Folder, manifest: &Manifest) -> Result<Vec<PathBuf>, String> {
    let failed = |path: &Path, error: &io::Error| {
        format!("Can't read the append-only dir {}: {}", path.display(), os_error(error))
    };
    let entries = match fs::read_dir(folder.dir()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        // The error is reported when the directory is created.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder.dir(), &error)),
    };
    let mut explained = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed(folder.dir(), &error))?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.as_bytes();
        if !is_stray(folder, manifest, &path, name)
            || !holds_data(&path).map_err(|error| failed(&path, &error))?
        {
            continue;
        }
        if !is_explained(folder, manifest, name) {
            return Err(refusal(folder, manifest, &path));
        }
        explained.push(path);
    }
    Ok(explained)
}

/// Returns whether the log would take the file for its own, or overwrite it.
fn is_stray(folder: &Folder, manifest: &Manifest, path: &Path, name: &[u8]) -> bool {
    if manifest.is_empty() && name == folder.stem() {
        // An old-style file would be moved there, unless it is the same file (`appenddirname .`).
        return fs::canonicalize(folder.old_style())
            .is_ok_and(|old| fs::canonicalize(path).is_ok_and(|new| new != old));
    }
    is_part(folder.stem(), name) && !manifest.names(name)
}

/// Returns whether a crash between two steps may have left the file.
fn is_explained(folder: &Folder, manifest: &Manifest, name: &[u8]) -> bool {
    let (stem, is_beginning) = (folder.stem(), folder.beginning().exists());
    if manifest.is_empty() {
        return is_beginning && name != stem;
    }
    // A server never writes a manifest with increments and no base, so such a manifest has lost a
    // line.
    (manifest.base.is_some() && manifest.is_next_base(stem, name))
        || (is_beginning && manifest.is_next_incr(stem, name))
}

fn refusal(folder: &Folder, manifest: &Manifest, path: &Path) -> String {
    let (path, names) = (path.display(), folder.manifest());
    let names = names.display();
    if manifest.is_empty() {
        format!(
            "Fatal error: {path} is part of an append-only log, but there is no manifest {names}. \
             It would be overwritten. Restore the manifest, or move the file away"
        )
    } else {
        format!(
            "Fatal error: {path} is part of an append-only log and holds data, but the manifest \
             {names} does not name it. Without it data may be missing, and it would be overwritten. \
             Restore the manifest that belongs to the files, or move the file away if it belongs to \
             another log"
        )
    }
}

/// Returns whether a file of this name is a base or an increment of the log `stem`.
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
    let len = preallocated::data_end(&file)?.at;
    if len == 0 || len > EMPTY_BASE {
        return Ok(len > 0);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(!is_empty_rdb(&bytes))
}

/// Returns whether this is a whole RDB file without a key.
fn is_empty_rdb(bytes: &[u8]) -> bool {
    if !bytes.first_chunk().is_some_and(|&magic| rdb::file::is_rdb(magic)) {
        return false;
    }
    let mut scanner = Scanner::new(0, bytes.len() as u64, usize::MAX);
    let mut at = 0;
    while !scanner.is_done() {
        match scanner.next(&bytes[at..]) {
            Ok(ScanStep::Item(
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
