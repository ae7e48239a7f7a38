//! A file that is replaced as a whole.

use crate::sandbox;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Replaces a file so that after a crash either the old or the new content is there: a temporary
/// file beside it is written, forced to the disk and renamed, and the directory is forced too. The
/// file keeps its mode, and owner and group if it may and no filter of system calls is there (see
/// [`sandbox`]). A new one is readable by all and writable by
/// its owner, as far as the umask allows.
pub fn file(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = temporary_beside(path);
    let old = fs::metadata(path).ok();
    let written =
        write_synced(&temporary, content, old.as_ref()).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // The error that matters is the first; a file left behind is only litter.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

fn write_synced(path: &Path, content: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let mode = old.map_or(0o644, |old| old.mode() & 0o777);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    if let Some(old) = old {
        let new = file.metadata()?;
        let is_same = (new.uid(), new.gid()) == (old.uid(), old.gid());
        // Only root can change its owner; the content matters more than the owner.
        if !is_same && sandbox::allows_optional_calls() {
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        }
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.write_all(content)?;
    file.sync_all()
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.subsec_nanos());
    name.push(format!(".{}-{nanos:x}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_or_left() {
        let dir = std::env::temp_dir().join(format!("dunlin-replace-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("dunlin.conf");
        std::fs::write(&path, "old").unwrap();
        file(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        // A user that could not read the old file cannot read the new one.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        file(&path, b"secret").unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(file(&dir.join("nosuch/dunlin.conf"), b"new").is_err());
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "nothing is left behind");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
