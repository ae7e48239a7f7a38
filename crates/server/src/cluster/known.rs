//! What this server knew last of its shard, in a file beside `cluster-config-file`, with `.known`
//! behind its name. So a process that is started later finds out as well that etcd was started with
//! older files (`cluster::known`).
//!
//! A thread of its own writes the file: the disk may stand still, and leases are renewed meanwhile.

use crate::log;
use crate::persistence::snapshot_file::sync_folder_of;
use cluster::copy::Copy;
use cluster::known::Known;
use config::Config;
use process::thread;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

/// See the head of this file.
pub(super) struct Notebook {
    /// What the file has, or is about to have.
    noted: Option<Known>,
    to_write: Sender<Known>,
    /// The log says that etcd is behind.
    is_told: bool,
}

impl Notebook {
    /// Reads the file, and starts the thread that writes it.
    ///
    /// # Errors
    /// The system can start no thread.
    pub(super) fn open(config: &Config) -> io::Result<Notebook> {
        let mut name = PathBuf::from(config.cluster_config_file().as_path()).into_os_string();
        name.push(".known");
        let path = PathBuf::from(name);
        let noted = read(&path);
        let (to_write, news) = channel();
        thread::spawn("cluster-known", move || keep(&path, &news))?;
        Ok(Notebook { noted, to_write, is_told: false })
    }

    /// Returns what the file has.
    pub(super) fn noted(&self) -> Option<Known> {
        self.noted.clone()
    }

    /// Notes what the copy knows now, and says so when etcd knows less.
    pub(super) fn follow(&mut self, copy: &Copy) {
        let is_behind = copy.is_store_behind();
        if std::mem::replace(&mut self.is_told, is_behind) != is_behind && is_behind {
            let known = copy.known().map_or(0, |known| known.topology);
            let found = copy.view().map_or(0, |view| view.topology.revision);
            let of = if found < known { "" } else { " of another history" };
            log!(
                Warning,
                "Cluster: etcd was started again with older files: this node knows the topology \
                 of revision {known}, etcd has that of revision {found}{of}. The copies of the \
                 shard elect a primary by the data that they have. See docs/cluster/failures.md"
            );
        }
        let known = copy.known();
        if known.is_some() && known != self.noted.as_ref() {
            self.noted = known.cloned();
            // The thread ends with the process.
            known.into_iter().for_each(|known| _ = self.to_write.send(known.clone()));
        }
    }
}

/// Writes what comes, the newest of it if several have come.
fn keep(path: &Path, news: &Receiver<Known>) {
    let mut has_failed = false;
    while let Ok(first) = news.recv() {
        let newest = news.try_iter().last().unwrap_or(first);
        let written = write(path, &newest);
        if let Err(error) = &written
            && !has_failed
        {
            let path = path.display();
            log!(Warning, "Cluster: what this node knows cannot be kept in {path}: {error}");
        }
        has_failed = written.is_err();
    }
}

/// Reads the file, if there is one that can be read.
fn read(path: &Path) -> Option<Known> {
    let why = match fs::read(path) {
        Ok(line) => match Known::parse(&line) {
            Some(known) => return Some(known),
            None => "it is not readable".to_owned(),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    log!(Warning, "Cluster: {} is passed over: {why}", path.display());
    None
}

/// Writes the file so that a crash leaves the old line or the new one.
fn write(path: &Path, known: &Known) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut file = File::create(&beside)?;
    file.write_all(&known.line())?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, path)?;
    sync_folder_of(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::id::{Epoch, Id, Incarnation};

    #[test]
    fn what_is_written_is_read_and_what_is_broken_is_passed_over() {
        let path = std::env::temp_dir().join(format!("dunlin-known-{}", std::process::id()));
        let known = Known {
            database: Id::new([7; 20]),
            topology: 9,
            newest: Epoch(3),
            quorum: 2,
            fence: 2,
            member: Some(Incarnation(u64::MAX)),
            has_bus: true,
            digest: Some(5),
        };
        assert_eq!(read(&path), None, "there is no file yet");
        write(&path, &known).expect("it can be written");
        assert_eq!(read(&path), Some(known));
        let line = fs::read(&path).expect("it was written");
        for broken in [&b""[..], b"{}", &line[..line.len() / 2]] {
            fs::write(&path, broken).expect("it can be written");
            assert_eq!(read(&path), None, "{broken:?}");
        }
        fs::remove_file(&path).expect("it is there");
    }
}
