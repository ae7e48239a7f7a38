//! What a node remembers in its directory, and the lock on it.

use super::access::Access;
use crate::file;
use crate::own_etcd::Server;
use crate::settings::Wrong;
use crate::site::encode;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

/// The name of the file.
const FILE: &str = "node.json";

/// What must be the same after a restart.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// The cluster's name.
    pub cluster: String,
    /// The machine's name.
    pub machine: String,
    /// See [`crate::site::Machine::id`].
    pub id: String,
    /// Where others reach it.
    pub host: String,
    /// Its zone.
    pub zone: String,
    /// The port of its interface, 0 if it has none yet.
    pub admin_port: u16,
    /// The server of etcd that is started here.
    pub etcd: Option<Server>,
    /// All servers of etcd: `https://HOST:PORT`, or without TLS.
    pub endpoints: Vec<String>,
    /// How etcd lets this machine in.
    #[serde(default)]
    pub access: Access,
    /// See [`super::UpOptions`].
    #[serde(default)]
    pub is_fast: bool,
    /// Memory for copies, if it was said once.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Flash for copies, if it was said once.
    #[serde(default)]
    pub flash_bytes: Option<u64>,
}

impl Kept {
    /// A machine that was in no cluster yet.
    pub fn new(cluster: String) -> Kept {
        let id = crate::change::draw().to_string();
        Kept { cluster, id, ..Kept::default() }
    }

    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// It is not readable.
    pub fn read(directory: &Path) -> Result<Option<Kept>, Wrong> {
        let path = directory.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let read = fs::read(&path).map_err(|error| error.to_string());
        let kept =
            read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|it| it.to_string()));
        kept.map(Some).map_err(|why| Wrong(format!("{} is not readable: {why}", path.display())))
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn write(&self, directory: &Path) -> Result<(), Wrong> {
        let path = directory.join(FILE);
        let text = String::from_utf8(encode(self)).unwrap_or_default();
        let wrong = |error| Wrong(format!("{} cannot be written: {error}", path.display()));
        file::write(&path, &text).map_err(wrong)
    }
}

/// The lock on a directory, with the number of the process that has it.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it.
    ///
    /// # Errors
    /// Another node runs in the directory.
    pub fn take(directory: &Path) -> Result<Lock, Wrong> {
        let path = directory.join("lock");
        let wrong = |error: std::io::Error| Wrong(format!("{}: {error}", path.display()));
        let mut options = File::options();
        let mut file =
            options.create(true).truncate(false).write(true).open(&path).map_err(wrong)?;
        if file.try_lock().is_err() {
            return Err(Wrong(format!(
                "another node runs in {}. For a second machine on this host take another --dir",
                directory.display()
            )));
        }
        file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(wrong)?;
        Ok(Lock { _file: file })
    }

    /// Returns the process that has the lock.
    pub fn holder(directory: &Path) -> Option<u32> {
        let path = directory.join("lock");
        let file = File::open(&path).ok()?;
        match file.try_lock() {
            Ok(()) => None,
            Err(_) => fs::read_to_string(&path).ok()?.trim().parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_lock_is_one() {
        let folder = std::env::temp_dir().join(format!("dunlin-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(Kept::read(&folder), Ok(None));
        let kept = Kept { host: "10.0.0.1".into(), ..Kept::new("prod".into()) };
        kept.write(&folder).unwrap();
        assert_eq!(Kept::read(&folder), Ok(Some(kept)));
        let lock = Lock::take(&folder).unwrap();
        assert_eq!(Lock::holder(&folder), Some(std::process::id()));
        assert!(Lock::take(&folder).is_err_and(|why| why.0.contains("take another --dir")));
        drop(lock);
        assert_eq!(Lock::holder(&folder), None);
        fs::write(folder.join(FILE), "{").unwrap();
        assert!(Kept::read(&folder).is_err_and(|why| why.0.contains("not readable")));
        fs::remove_dir_all(&folder).unwrap();
    }
}
