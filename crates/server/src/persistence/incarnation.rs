//! The name of the data that a copy in a cluster holds, stored on its disk.
//!
//! A copy draws a new name whenever it may have lost data that it had acknowledged, and before it
//! discards its data. Only acknowledgements under the name that the topology knows count
//! (`docs/internals/cluster.md`). The file has one line: the name, and what the next start may
//! conclude from it.
//!
//! ```text
//!   4711 open                 the server runs, or crashed: files may lack acknowledged data
//!   4711 durable              it acknowledges nothing that is not on its disk
//!   4711 closed 3 123456      it ended in order; all of it is on disk, up to this epoch and offset
//! ```
//!
//! A new file is written beside it, forced to the disk and renamed, so after a crash there is the
//! old line or the new one. Data without a readable line is of unknown origin, and gets a new name.

use super::snapshot_file::sync_folder_of;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The extent of data: the epoch of the last entry, and the offset after it.
pub type Extent = (u64, u64);

/// What the next start may conclude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    Durable,
    Closed(Extent),
}

/// The stored name. The module's documentation describes it.
#[derive(Debug)]
pub struct Incarnation {
    path: PathBuf,
    name: u64,
    state: State,
}

impl Incarnation {
    /// Begins with loaded data of the extent `found`. Keeps the old name if this is everything that
    /// was acknowledged under it, or draws a new name. When this returns, the line on disk says
    /// that the server runs. `is_durable`: the server acknowledges nothing that is not on its disk.
    ///
    /// # Errors
    /// The file cannot be written. Nothing may be acknowledged.
    pub fn at_start(path: &Path, found: Extent, is_durable: bool) -> io::Result<Incarnation> {
        let old = fs::read_to_string(path).ok().and_then(|line| parse(&line));
        let name = match old {
            Some((name, State::Durable)) => name,
            Some((name, State::Closed(end))) if end == found => name,
            _ => draw(),
        };
        let state = if is_durable { State::Durable } else { State::Open };
        let mut incarnation = Incarnation { path: path.to_owned(), name, state };
        incarnation.write(name, state)?;
        Ok(incarnation)
    }

    /// Returns the name.
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Draws a new name, because data is about to be discarded. Data received under the old name
    /// must not be acknowledged any more.
    ///
    /// # Errors
    /// The file cannot be written. The data must not be discarded.
    pub fn renew(&mut self) -> io::Result<u64> {
        self.write(draw(), self.state)?;
        Ok(self.name)
    }

    /// Records whether the server from now on only acknowledges data that is on its disk. Called
    /// before the first acknowledgement of the new kind. If it becomes durable, all acknowledged
    /// data must be on the disk before.
    ///
    /// # Errors
    /// The file cannot be written, and is unchanged.
    pub fn set_durable(&mut self, is_durable: bool) -> io::Result<()> {
        let state = if is_durable { State::Durable } else { State::Open };
        if state == self.state { Ok(()) } else { self.write(self.name, state) }
    }

    /// Records an orderly end. The files have all data, up to `end`, and nothing is acknowledged
    /// any more.
    ///
    /// # Errors
    /// The file cannot be written. The next start draws a new name.
    pub fn close(&mut self, end: Extent) -> io::Result<()> {
        self.write(self.name, State::Closed(end))
    }

    fn write(&mut self, name: u64, state: State) -> io::Result<()> {
        let beside = self.beside();
        let mut file = File::create(&beside)?;
        file.write_all(line(name, state).as_bytes())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&beside, &self.path)?;
        sync_folder_of(&self.path)?;
        (self.name, self.state) = (name, state);
        Ok(())
    }

    fn beside(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        name.into()
    }
}

fn draw() -> u64 {
    structs::hashing::os_random()
}

fn line(name: u64, state: State) -> String {
    match state {
        State::Open => format!("{name} open\n"),
        State::Durable => format!("{name} durable\n"),
        State::Closed((epoch, offset)) => format!("{name} closed {epoch} {offset}\n"),
    }
}

fn parse(text: &str) -> Option<(u64, State)> {
    let words: Vec<&str> = text.strip_suffix('\n')?.split(' ').collect();
    let (name, words) = words.split_first()?;
    let state = match words {
        ["open"] => State::Open,
        ["durable"] => State::Durable,
        ["closed", epoch, offset] => State::Closed((epoch.parse().ok()?, offset.parse().ok()?)),
        _ => return None,
    };
    Some((name.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty folder that is deleted after the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            let name = format!("dunlin-incarnation-{}", draw());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).expect("there is room");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // Remaining files are small.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn start(folder: &Folder, found: Extent) -> Incarnation {
        let path = folder.0.join("incarnation");
        Incarnation::at_start(&path, found, false).expect("the disk works")
    }

    #[test]
    fn only_an_end_in_order_keeps_the_name() {
        let folder = Folder::new();
        let first = start(&folder, (0, 0)).name();
        let mut crashed = start(&folder, (3, 50));
        assert_ne!(crashed.name(), first, "what it acknowledged last may be missing");
        let name = crashed.name();
        crashed.close((3, 60)).expect("the disk works");
        assert_eq!(start(&folder, (3, 60)).name(), name);
        // The server that started just before crashed before it had done anything.
        assert_ne!(start(&folder, (3, 60)).name(), name);
    }

    #[test]
    fn other_data_than_it_ended_with_get_a_new_name() {
        for found in [(3, 59), (2, 60), (0, 0)] {
            let folder = Folder::new();
            let mut incarnation = start(&folder, (0, 0));
            let name = incarnation.name();
            incarnation.close((3, 60)).expect("the disk works");
            assert_ne!(start(&folder, found).name(), name, "{found:?}");
        }
    }

    #[test]
    fn a_durable_copy_keeps_its_name_over_crashes_until_data_are_discarded() {
        let folder = Folder::new();
        let mut incarnation = start(&folder, (0, 0));
        let name = incarnation.name();
        incarnation.set_durable(true).expect("the disk works");
        assert_eq!(start(&folder, (9, 9)).name(), name);
        let mut incarnation = start(&folder, (9, 9));
        assert_ne!(incarnation.name(), name, "the start before was not durable");
        incarnation.set_durable(true).expect("the disk works");
        let renewed = incarnation.renew().expect("the disk works");
        assert_eq!(start(&folder, (0, 0)).name(), renewed);
    }

    #[test]
    fn a_crash_between_the_steps_leaves_the_old_line() {
        let folder = Folder::new();
        let mut incarnation = start(&folder, (0, 0));
        let (name, beside) = (incarnation.name(), incarnation.beside());
        incarnation.close((1, 7)).expect("the disk works");
        for half in ["", "12", "12 clo", "12 closed 1 7"] {
            fs::write(&beside, half).expect("there is room");
            let mut again = start(&folder, (1, 7));
            assert_eq!(again.name(), name, "{half:?} was never renamed");
            again.close((1, 7)).expect("the disk works");
        }
        fs::create_dir(&beside).expect("there is room");
        let path = folder.0.join("incarnation");
        assert!(Incarnation::at_start(&path, (1, 7), false).is_err(), "nothing can be written");
        fs::remove_dir(&beside).expect("it is empty");
        assert_eq!(start(&folder, (1, 7)).name(), name, "the old line is still there");
    }

    #[test]
    fn a_line_that_cannot_be_read_gives_no_name() {
        for broken in
            ["", "7", "7 open", "7 closed 1\n", "x open\n", "7 durable 1\n", "\n", "-1 open\n"]
        {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
        for state in [State::Open, State::Durable, State::Closed((4, u64::MAX))] {
            assert_eq!(parse(&line(u64::MAX, state)), Some((u64::MAX, state)));
        }
    }
}
