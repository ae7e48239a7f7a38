//! The name of the data that a copy in a cluster holds, stored on its disk.
//!
//! A copy draws a new name whenever it may have lost data that it had acknowledged, and before it
//! discards its data. Only acknowledgements under the name that the topology knows count
//! (`docs/internals/cluster.md`). The file has one line: the name, and what the next start may
//! conclude from it.
//!
//! ```text
//!   4711 open                 the server runs, or crashed: files may lack acknowledged data
//!   4711 open 17 5            the same; a log has brought back data that were named 5, then 17
//!   4711 closed 3 123456      it ended in order; all of it is on disk, up to this epoch and offset
//! ```
//!
//! A copy acknowledges what it has in memory, whatever `appendfsync` says, and says beside it how
//! much of that is on its disk. So after a crash the name is a new one in any case. The names
//! before it tell the cluster that the log has not been discarded since: all that this copy had on
//! its disk is still there.
//!
//! A new file is written beside it, forced to the disk and renamed, so after a crash there is the
//! old line or the new one. Data without a readable line is of unknown origin, and gets a new name.

use super::snapshot_file::sync_folder_of;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The extent of data: the epoch of the last entry, and the offset after it.
pub type Extent = (u64, u64);

/// How many names before are kept. A copy that has crashed more often since it was in step with a
/// primary is taken for one that has other data.
const MAX_FORMER: usize = 16;

/// What the next start may conclude.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// With the names that the data had before, the newest first.
    Open(Vec<u64>),
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
    /// that the server runs. `has_log`: the data were loaded from an append-only file, so they are
    /// all that the disk had of those with the old name.
    ///
    /// # Errors
    /// The file cannot be written. Nothing may be acknowledged.
    pub fn at_start(path: &Path, found: Extent, has_log: bool) -> io::Result<Incarnation> {
        let old = fs::read_to_string(path).ok().and_then(|line| parse(&line));
        let (name, former) = match old {
            Some((name, State::Closed(end))) if end == found => (name, Vec::new()),
            Some((name, State::Open(mut former))) if has_log => {
                former.insert(0, name);
                former.truncate(MAX_FORMER);
                (draw(), former)
            }
            Some((name, State::Closed(_))) if has_log => (draw(), vec![name]),
            _ => (draw(), Vec::new()),
        };
        let state = State::Open(former);
        let mut incarnation = Incarnation { path: path.to_owned(), name, state: state.clone() };
        incarnation.write(name, state)?;
        Ok(incarnation)
    }

    /// Returns the names that the data had before, as far as the log has brought them back.
    pub fn former(&self) -> &[u64] {
        match &self.state {
            State::Open(former) => former,
            State::Closed(_) => &[],
        }
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
        self.write(draw(), State::Open(Vec::new()))?;
        Ok(self.name)
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
        file.write_all(line(name, &state).as_bytes())?;
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

fn line(name: u64, state: &State) -> String {
    match state {
        State::Open(former) => {
            let former: String = former.iter().map(|name| format!(" {name}")).collect();
            format!("{name} open{former}\n")
        }
        State::Closed((epoch, offset)) => format!("{name} closed {epoch} {offset}\n"),
    }
}

fn parse(text: &str) -> Option<(u64, State)> {
    let words: Vec<&str> = text.strip_suffix('\n')?.split(' ').collect();
    let (name, words) = words.split_first()?;
    let state = match words {
        ["open", former @ ..] => {
            let former: Option<Vec<u64>> = former.iter().map(|name| name.parse().ok()).collect();
            State::Open(former?)
        }
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
    fn a_log_keeps_the_names_before_until_data_are_discarded() {
        let folder = Folder::new();
        let path = folder.0.join("incarnation");
        let start =
            |has_log| Incarnation::at_start(&path, (3, 9), has_log).expect("the disk works");
        let first = start(true);
        assert_eq!(first.former(), [0; 0]);
        let second = start(true);
        assert_eq!(second.former(), [first.name()]);
        let mut third = start(true);
        assert_eq!(third.former(), [second.name(), first.name()]);
        let renewed = third.renew().expect("the disk works");
        assert_eq!(third.former(), [0; 0]);
        assert_eq!(start(true).former(), [renewed], "the older ones were discarded");
        assert_eq!(start(false).former(), [0; 0], "a snapshot may be of any age");
        // An end in order, and then files that are not what they were.
        let mut closed = start(true);
        closed.close((3, 10)).expect("the disk works");
        let short = start(true);
        assert_eq!(short.former(), [closed.name()]);
        (0..2 * MAX_FORMER).for_each(|_| drop(start(true)));
        assert_eq!(start(true).former().len(), MAX_FORMER);
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
        for broken in [
            "",
            "7",
            "7 open",
            "7 closed 1\n",
            "x open\n",
            "7 open x\n",
            "7 open \n",
            "\n",
            "-1 open\n",
        ] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
        let open = [State::Open(Vec::new()), State::Open(vec![1, u64::MAX])];
        for state in open.into_iter().chain([State::Closed((4, u64::MAX))]) {
            assert_eq!(parse(&line(u64::MAX, &state)), Some((u64::MAX, state)));
        }
    }
}
