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

/// The directory of the log. Paths are relative to the working directory, as messages show them.
#[derive(Clone, Debug)]
pub struct Folder {
    dir: PathBuf,
    stem: Vec<u8>,
}

impl Folder {
    /// Returns the directory that this configuration names.
    pub fn new(config: &config::Config) -> Folder {
        let stem = config.appendfilename().as_path().as_os_str().as_bytes().to_vec();
        Folder { dir: config.appenddirname().as_path().to_path_buf(), stem }
    }

    /// Returns `appendfilename`, with which the names of files begin.
    pub fn stem(&self) -> &[u8] {
        &self.stem
    }

    /// Returns the path of a file in the directory.
    pub fn path(&self, name: &[u8]) -> PathBuf {
        self.dir.join(OsStr::from_bytes(name))
    }

    /// Returns the path of the old-style file, beside the directory.
    pub fn old_style(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.stem))
    }

    /// Returns the path of the increment that is written before the first base is complete.
    pub fn temporary_incr(&self) -> PathBuf {
        self.path(&[b"temp-", &self.stem[..], b".incr"].concat())
    }

    /// Returns the path of the mark of a log that begins while the server runs. It exists before
    /// any of the log's files, until a manifest names them.
    pub fn beginning(&self) -> PathBuf {
        self.path(&[b"temp-", &self.stem[..], b".beginning"].concat())
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the manifest's path.
    pub fn manifest(&self) -> PathBuf {
        self.path(&[&self.stem[..], b".manifest"].concat())
    }

    /// Creates the directory if it does not exist, and forces its name to the disk. Otherwise,
    /// files in it could be lost with the name, although they were forced to the disk.
    ///
    /// # Errors
    /// An error in Redis's words.
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

    /// Returns the manifest on disk, or an empty one if there is none.
    ///
    /// # Errors
    /// It cannot be read or is invalid.
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

    /// Replaces the manifest on disk durably. Even after a crash, either the old or the new one is
    /// there.
    ///
    /// # Errors
    /// An error in Redis's words. Either the old manifest is in force, or the new one, which may
    /// not survive a crash of the machine.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), String> {
        self.replace_manifest(manifest)?;
        self.sync_dir()
    }

    /// Replaces the manifest on disk. It is in force afterwards. After a crash of the machine, the
    /// old one may be back until the directory has been forced to the disk.
    ///
    /// # Errors
    /// An error in Redis's words. Nothing has changed.
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
        // A log with a manifest has begun. Either file does no harm if it stays.
        if written.is_ok() {
            self.forget_beginning();
        } else {
            let _ = fs::remove_file(temporary);
        }
        written
    }

    /// Removes the mark of a beginning log, because there is a manifest.
    pub fn forget_beginning(&self) {
        let _ = fs::remove_file(self.beginning());
    }

    /// Deletes files of a crashed rewrite. The log was loaded without them.
    pub fn remove_leftovers(&self, files: &[PathBuf]) {
        for path in files {
            log!(Notice, "Removing {}, which a rewrite left that a crash ended", path.display());
            if let Err(error) = fs::remove_file(path) {
                log!(Warning, "Can't remove {}: {}", path.display(), os_error(&error));
            }
        }
    }

    /// Forces the directory's entries to the disk.
    ///
    /// # Errors
    /// An error in Redis's words.
    pub fn sync_dir(&self) -> Result<(), String> {
        sync_folder_of(&self.manifest()).map_err(|error| {
            format!("Fail to fsync AOF directory {}: {}", self.dir.display(), os_error(&error))
        })
    }

    /// Returns the size of a file of the log in bytes, without preallocated space.
    ///
    /// # Errors
    /// An error in Redis's words.
    pub fn size(&self, file: &LogFile) -> Result<u64, String> {
        self.data_end(file).map(|end| end.at)
    }

    /// Returns where the data of a file of the log ends.
    ///
    /// # Errors
    /// An error in Redis's words.
    pub fn data_end(&self, file: &LogFile) -> Result<FileEnd, String> {
        let opened = File::open(self.path(&file.name));
        opened.and_then(|opened| preallocated::data_end(&opened)).map_err(|error| {
            let (name, why) = (file.display(), os_error(&error));
            format!("Unable to obtain the AOF file {name} length. stat: {why}")
        })
    }

    /// Returns the total size in bytes of all files to load.
    ///
    /// # Errors
    /// A file does not exist.
    pub fn total_size(&self, manifest: &Manifest) -> Result<u64, String> {
        manifest.files().map(|file| self.size(file)).sum()
    }

    /// Deletes the files that were replaced, and removes them from the manifest. Files that cannot
    /// be deleted stay in it as history: a file that no manifest names would prevent the next
    /// start.
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

    /// Makes an old-style single file the base of a log, if there is one and no log.
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
