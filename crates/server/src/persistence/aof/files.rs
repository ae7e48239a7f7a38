//! The directory of the append-only log: names, the manifest on disk, history.

use super::preallocated;
use crate::log;
use crate::persistence::snapshot_file::sync_folder_of;
use process::os_error;
use replication::manifest::LogFile;
use replication::{FileEnd, Manifest};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Where the log is. Paths are relative to the working directory, as messages show them.
#[derive(Clone, Debug)]
pub struct Folder {
    dir: PathBuf,
    stem: Vec<u8>,
}

impl Folder {
    /// The log of this configuration.
    pub fn new(config: &config::Config) -> Folder {
        let stem = config.appendfilename().as_path().as_os_str().as_bytes().to_vec();
        Folder { dir: config.appenddirname().as_path().to_path_buf(), stem }
    }

    /// `appendfilename`: what names of files begin with.
    pub fn stem(&self) -> &[u8] {
        &self.stem
    }

    /// The path of a file in the directory.
    pub fn path(&self, name: &[u8]) -> PathBuf {
        self.dir.join(OsStr::from_bytes(name))
    }

    /// The old-style file, beside the directory.
    pub fn old_style(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.stem))
    }

    /// The increment that is written while the first base is not there yet.
    pub fn temporary_incr(&self) -> PathBuf {
        self.path(&[b"temp-", &self.stem[..], b".incr"].concat())
    }

    /// The mark of a log that begins while the server runs. It is there before any of its files, until
    /// there is a manifest that names them.
    pub fn beginning(&self) -> PathBuf {
        self.path(&[b"temp-", &self.stem[..], b".beginning"].concat())
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest's path.
    pub fn manifest(&self) -> PathBuf {
        self.path(&[&self.stem[..], b".manifest"].concat())
    }

    /// Makes the directory if it is not there. It lasts: whatever is forced to the disk in it would be
    /// lost with the name of a directory that was not.
    ///
    /// # Errors
    /// In Redis's words.
    pub fn create(&self) -> Result<(), String> {
        let failed = |why: &str| {
            format!("Can't open or create append-only dir {}: {why}", self.dir.display())
        };
        match fs::create_dir(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(&os_error(&error)));
            }
            _ if !self.dir.is_dir() => return Err(failed("Not a directory")),
            _ => {}
        }
        sync_folder_of(&self.dir).map_err(|error| failed(&os_error(&error)))
    }

    /// The manifest on disk; an empty one if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn read_manifest(&self) -> Result<Manifest, String> {
        let path = self.manifest();
        match fs::read(&path) {
            Ok(text) => Manifest::parse(&text)
                .map_err(|error| format!("{error}\nThe manifest file is {}", path.display())),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(Manifest::default())
            }
            Err(error) => Err(format!(
                "Fatal error: can't open the AOF manifest file {} for reading: {}",
                path.display(),
                os_error(&error)
            )),
        }
    }

    /// Replaces the manifest on disk, for good: afterwards the old one or the new one is there,
    /// whatever happens.
    ///
    /// # Errors
    /// In Redis's words. The old one is in force; or the new one, of which it is not sure that it
    /// survives a crash of the machine.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), String> {
        self.replace_manifest(manifest)?;
        self.sync_dir()
    }

    /// Replaces the manifest on disk: afterwards it is in force. After a crash of the machine it may
    /// be the old one until the directory has been forced to the disk.
    ///
    /// # Errors
    /// In Redis's words; nothing has changed.
    pub fn replace_manifest(&self, manifest: &Manifest) -> Result<(), String> {
        let path = self.manifest();
        let temporary = self.path(&[b"temp-", &self.stem[..], b".manifest"].concat());
        let failed = |what: &str, path: &Path, error: io::Error| {
            format!("{what} {}: {}", path.display(), os_error(&error))
        };
        let write = || {
            let mut file = File::create(&temporary)
                .map_err(|error| failed("Can't open the AOF manifest file", &temporary, error))?;
            file.write_all(&manifest.format()).map_err(|error| {
                failed("Error trying to write the temporary AOF manifest file", &temporary, error)
            })?;
            file.sync_all()
                .map_err(|error| failed("Fail to fsync the temp AOF file", &temporary, error))?;
            fs::rename(&temporary, &path).map_err(|error| {
                failed("Error trying to rename the temporary AOF manifest file", &temporary, error)
            })
        };
        let written = write();
        // A log that has a manifest does not begin any more. Neither file is in the way if it stays.
        if written.is_ok() {
            self.forget_beginning();
        } else {
            let _ = fs::remove_file(temporary);
        }
        written
    }

    /// There is a manifest, and the log does not begin any more.
    pub fn forget_beginning(&self) {
        let _ = fs::remove_file(self.beginning());
    }

    /// Deletes what a crash has left beside the log that has been loaded without it.
    pub fn remove_leftovers(&self, files: &[PathBuf]) {
        for path in files {
            log!(Notice, "Removing {}, which a rewrite left that a crash ended", path.display());
            if let Err(error) = fs::remove_file(path) {
                log!(Warning, "Can't remove {}: {}", path.display(), os_error(&error));
            }
        }
    }

    /// Forces the directory's own entries to the disk.
    ///
    /// # Errors
    /// In Redis's words.
    pub fn sync_dir(&self) -> Result<(), String> {
        sync_folder_of(&self.manifest()).map_err(|error| {
            format!("Fail to fsync AOF directory {}: {}", self.dir.display(), os_error(&error))
        })
    }

    /// The size of a file of the log in bytes, without preallocated space.
    ///
    /// # Errors
    /// In Redis's words.
    pub fn size(&self, file: &LogFile) -> Result<u64, String> {
        self.data_end(file).map(|end| end.at)
    }

    /// Where the data of a file of the log ends.
    ///
    /// # Errors
    /// In Redis's words.
    pub fn data_end(&self, file: &LogFile) -> Result<FileEnd, String> {
        let opened = File::open(self.path(&file.name));
        opened.and_then(|opened| preallocated::data_end(&opened)).map_err(|error| {
            let (name, why) = (file.display(), os_error(&error));
            format!("Unable to obtain the AOF file {name} length. stat: {why}")
        })
    }

    /// Bytes of all files to load.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn total_size(&self, manifest: &Manifest) -> Result<u64, String> {
        manifest.files().map(|file| self.size(file)).sum()
    }

    /// Deletes the files that were replaced, and forgets them. What cannot be deleted stays history:
    /// a file that no manifest names would stop the next start.
    pub fn delete_history(&self, manifest: &mut Manifest) {
        if manifest.history.is_empty() {
            return;
        }
        for file in manifest.take_history() {
            log!(Notice, "Removing the history file {} in the background", file.display());
            match fs::remove_file(self.path(&file.name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    log!(Warning, "Can't remove {}: {}", file.display(), os_error(&error));
                    manifest.history.push(file);
                }
                _ => {}
            }
        }
        if let Err(why) = self.write_manifest(manifest) {
            log!(Warning, "{why}");
        }
    }

    /// Makes an old-style single file the base of a log, if there is one and nothing else.
    ///
    /// # Errors
    /// A file cannot be written or moved. Trying again is safe.
    pub fn upgrade(&self, manifest: &mut Manifest) -> Result<(), String> {
        let old = self.old_style();
        if !old.is_file() {
            return Ok(());
        }
        let moved = self.path(&self.stem);
        let is_half_done = manifest.incr.is_empty()
            && manifest.base.as_ref().is_some_and(|base| base.name == self.stem)
            && !moved.exists();
        if !manifest.is_empty() && !is_half_done {
            return Ok(());
        }
        self.create()?;
        manifest.adopt(&self.stem);
        self.write_manifest(manifest)?;
        fs::rename(&old, &moved).map_err(|error| {
            format!(
                "Error trying to move the old AOF file {} into dir {}: {}",
                old.display(),
                self.dir.display(),
                os_error(&error)
            )
        })?;
        self.sync_dir()?;
        log!(
            Notice,
            "Successfully migrated an old-style AOF file ({}) into the AOF directory ({}).",
            old.display(),
            self.dir.display()
        );
        Ok(())
    }
}
