//! The copies of this machine: started, watched, started again, adopted, ended.
//!
//! ```text
//!   mod       what is wanted against what runs
//!   files     a copy's configuration and name
//! ```

pub mod files;

use crate::site::{CopyReport, Database, Placed, ProcessState, Site, Stage, Trouble, Troubles};
use crate::supervise::{SETTLED, Supervised, Survivors};
use crate::unplaced::Known;
use cluster::id::Id;
use files::{Bus, Common};
use process::{beside, log};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Processes for each core that start at a time. A machine that comes back, or gets many databases
/// at once, would otherwise be so busy with all of them that none keeps its lease.
const STARTS_PER_CORE: usize = 2;

/// After so long a start does not hold others up any more.
const MAX_START: Duration = Duration::from_secs(10);

/// How long a process may take to accept a connection of this machine.
const MAX_ACCEPT: Duration = Duration::from_millis(20);

/// How long a process has to end after it was asked.
const MAX_FAREWELL: Duration = Duration::from_secs(60);

/// Names the program that copies run if it is not the node's own: for figures with copies that are
/// simulated.
const COPY_PROGRAM: &str = "DUNLIN_COPY_PROGRAM";

/// What was wrong with a copy.
#[derive(Default)]
struct Note {
    text: String,
    /// It says how the process has ended, which does not matter when another has run for a while.
    is_of_end: bool,
}

impl Note {
    fn new(text: String) -> Note {
        Note { text, is_of_end: false }
    }
}

/// A copy that is placed here, or was.
struct Copy {
    database: String,
    placed: Placed,
    /// Its database, as it was last.
    known: Option<Known>,
    text: String,
    directory: PathBuf,
    log: PathBuf,
    process: Supervised,
    /// Its process was started, and does not listen yet.
    is_starting: bool,
    /// Its files could not be written, and are written when the site is read next.
    is_unwritten: bool,
    /// What was wrong last.
    note: Note,
    /// Why it has no port for other copies although the machine gives it one; empty if it has it.
    bus_error: String,
    /// Its process has ended, and the node has not said so at etcd yet.
    is_to_be_released: bool,
    /// It is to end.
    is_leaving: bool,
    /// Its files go with it.
    is_deleted: bool,
    /// What it has kept of data that were given up, as far as that was said.
    rescued: BTreeSet<PathBuf>,
}

/// See the head of this file.
pub struct Copies {
    program: PathBuf,
    directory: PathBuf,
    common: Common,
    copies: BTreeMap<Id, Copy>,
    /// Processes that were there when this node started.
    survivors: Survivors,
    /// How many processes start at a time.
    most_starting: usize,
    /// Ports of this host that are no copy's port for others.
    taken: BTreeSet<u16>,
}

impl Copies {
    /// The copies in `directory`, which is absolute; those that run are adopted when they are
    /// placed.
    ///
    /// # Errors
    /// The directory cannot be made, or the program's path is not known.
    pub fn new(directory: &Path, common: Common) -> io::Result<Copies> {
        let program = std::env::var_os(COPY_PROGRAM).filter(|program| !program.is_empty());
        let program = program.map_or_else(beside::own_program, |program| Ok(program.into()))?;
        fs::create_dir_all(directory.join("copies"))?;
        fs::create_dir_all(directory.join("logs"))?;
        let survivors = Survivors::of(&program);
        let directory = directory.to_owned();
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let most_starting = cores * STARTS_PER_CORE;
        let (copies, taken) = (BTreeMap::new(), BTreeSet::new());
        Ok(Copies { program, directory, common, copies, survivors, most_starting, taken })
    }

    /// Takes the servers of etcd that there are now, for copies that are started from now on.
    pub fn set_coordinator(&mut self, mut urls: Vec<String>) {
        urls.sort();
        if !urls.is_empty() {
            self.common.coordinator = urls.join(",");
        }
    }

    /// Takes what the site says of this machine. Copies end when their database says so, or by an
    /// order; one that is merely not there any more is left alone.
    pub fn want(&mut self, site: &Site, machine: &str) {
        self.taken = taken_ports(site, machine, &self.common);
        for (name, database, placed) in site.placed_on(machine) {
            self.want_one(name, database, placed);
        }
        self.adopt_unplaced(site);
        for (id, copy) in &mut self.copies {
            if site.gone.contains_key(id) {
                copy.delete();
            }
        }
    }

    /// Adopts the copies of an earlier node that no database has: those that run, and those that
    /// are to end. Others are not started.
    fn adopt_unplaced(&mut self, site: &Site) {
        for directory in self.unknown() {
            let runs = self.survivors.in_directory(&directory).is_some();
            let Some(known) = Known::read(&directory) else { continue };
            let is_adopted = runs || site.gone.contains_key(&known.copy);
            if let Some(placed) = known.placed().filter(|_| is_adopted) {
                self.want_one(&known.name, &known.database, placed);
            }
        }
    }

    /// Returns a database as a copy of it knew it last.
    pub fn known(&self, name: &str) -> Option<Database> {
        let mut known = self.copies.values().filter_map(|copy| copy.known.as_ref());
        known.find(|known| known.name == name).map(|known| known.database.clone())
    }

    /// Returns whether a copy is here.
    pub fn has(&self, copy: Id) -> bool {
        self.copies.contains_key(&copy)
    }

    fn want_one(&mut self, name: &str, database: &Database, placed: &Placed) {
        let title = format!("{name}-{}-{:?}", placed.shard + 1, placed.copy);
        let log = self.directory.join("logs").join(format!("{title}.log"));
        let (bus, bus_error) = match self.bus_port(placed.port) {
            Ok(bus) => (bus, None),
            Err(why) => (None, Some(why)),
        };
        let text = files::configuration(&self.common, database, placed, (&log, bus));
        let copy = self.copies.entry(placed.copy).or_insert_with(|| {
            let directory = self.directory.join("copies").join(title);
            let output = (!self.common.logs_to_output).then_some(&*log);
            let process = Supervised::new(&directory, output, &self.survivors, Instant::now());
            if let Some(id) = process.id() {
                log!(Notice, "Copy {:?} of {name} runs as process {id}", placed.copy);
            }
            Copy {
                database: name.to_owned(),
                placed: placed.clone(),
                known: None,
                text: String::new(),
                log,
                process,
                is_starting: false,
                is_unwritten: false,
                note: Note::default(),
                bus_error: String::new(),
                is_to_be_released: false,
                is_leaving: false,
                is_deleted: false,
                rescued: rescued(&directory),
                directory,
            }
        });
        if database.stage == Stage::Deleting || placed.is_leaving {
            copy.delete();
            return;
        }
        if let Some(why) = bus_error {
            copy.lacks_bus(why);
        }
        let known = Known { name: name.to_owned(), copy: placed.copy, database: database.clone() };
        match text {
            Err(why) => copy.note = Note::new(why.to_string()),
            Ok(text) if copy.is_as_written(&text, &known) => {}
            Ok(text) => {
                let flash = self.common.flash.as_deref();
                let prepared = match copy.text == text && !copy.is_unwritten {
                    true => Ok(()),
                    false => files::prepare(&copy.directory, flash, placed, &text),
                };
                let written = prepared.and_then(|()| known.write(&copy.directory));
                let was_unwritten = std::mem::replace(&mut copy.is_unwritten, written.is_err());
                match written {
                    Err(error) => {
                        copy.note = Note::new(format!("its files cannot be written: {error}"));
                    }
                    Ok(()) if was_unwritten => copy.note = Note::default(),
                    Ok(()) => {}
                }
                (copy.text, copy.known) = (text, Some(known));
            }
        }
    }

    /// Returns the port for other copies of a copy with this port. `None`: the machine has none.
    ///
    /// # Errors
    /// It is no port, or another's.
    fn bus_port(&self, port: u16) -> Result<Option<u16>, String> {
        let Some(Bus { port_offset, .. }) = self.common.bus else { return Ok(None) };
        match port.checked_add(port_offset) {
            None => Err(format!(
                "its port for other copies would be {port} and {port_offset}, which is no port. \
                 {OTHER_OFFSET}"
            )),
            Some(taken) if self.taken.contains(&taken) => Err(format!(
                "its port for other copies would be {taken}, which a database or node has. \
                 {OTHER_OFFSET}"
            )),
            wanted => Ok(wanted),
        }
    }

    /// Ends all copies; their files stay, and none is started any more.
    pub fn end_all(&mut self) {
        for copy in self.copies.values_mut() {
            copy.is_leaving = true;
        }
    }

    /// Returns whether no copy is left.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Starts and ends what is due. Of those that are to start, the ones that wait longest are
    /// first.
    pub fn tend(&mut self, now: Instant) {
        for copy in self.copies.values_mut() {
            copy.tend(now, &self.common);
        }
        let starting = self.copies.values().filter(|copy| copy.is_starting).count();
        let mut due: Vec<&mut Copy> =
            self.copies.values_mut().filter(|copy| copy.is_to_start(now)).collect();
        due.sort_by_key(|copy| copy.process.due());
        for copy in due.into_iter().take(self.most_starting.saturating_sub(starting)) {
            copy.start(now, &self.program, &self.common);
        }
        self.copies.retain(|_, copy| !copy.is_leaving || copy.process.id().is_some());
    }

    /// Returns whether copies wait until others have started.
    pub fn has_waiting(&self) -> bool {
        self.copies.values().any(|copy| copy.is_to_start(Instant::now()))
    }

    /// Returns the copies whose processes have ended since it was asked last. Until then none of
    /// them is started again.
    pub fn take_ended(&mut self) -> Vec<Id> {
        let ended = self
            .copies
            .iter_mut()
            .filter_map(|(id, copy)| std::mem::take(&mut copy.is_to_be_released).then_some(*id));
        ended.collect()
    }

    /// Returns what there is to say of each. `troubles` are what copies say themselves.
    pub fn reports(&self, troubles: &Troubles) -> Vec<CopyReport> {
        let report = |(id, copy): (&Id, &Copy)| {
            let Trouble { disk, link, bus } = troubles.get(id).cloned().unwrap_or_default();
            CopyReport {
                copy: *id,
                database: copy.database.clone(),
                state: match copy.process.id() {
                    _ if copy.is_leaving => ProcessState::Stopping,
                    Some(_) => ProcessState::Running,
                    None => ProcessState::Waiting,
                },
                process_id: copy.process.id().unwrap_or_default(),
                restarts: copy.process.restarts(),
                early_ends: copy.process.early_ends(),
                note: copy.note.text.clone(),
                disk_error: disk,
                link_error: link,
                bus_error: if copy.bus_error.is_empty() { bus } else { copy.bus_error.clone() },
            }
        };
        self.copies.iter().map(report).collect()
    }

    /// Returns what there is to say of data that copies have given up and kept since it was asked
    /// last.
    pub fn rescued(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for (id, copy) in &mut self.copies {
            let database = &copy.database;
            for path in rescued(&copy.directory) {
                let bytes = fs::metadata(&path).ok().filter(fs::Metadata::is_file);
                let bytes = bytes.map_or_else(String::new, |it| format!("{} bytes of ", it.len()));
                let place = path.display();
                if copy.rescued.insert(path.clone()) {
                    said.push(format!(
                        "copy {id:?} of database '{database}' follows another: {bytes}what only it had is kept in {place}"
                    ));
                }
            }
        }
        said
    }

    /// Returns the directories of copies that no database of the site has on this machine.
    pub fn unknown(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory.join("copies")).into_iter().flatten().flatten();
        let known = |path: &PathBuf| self.copies.values().any(|copy| copy.directory == *path);
        entries.map(|entry| entry.path()).filter(|path| !known(path)).collect()
    }
}

impl Copy {
    /// Returns whether its files say this already.
    fn is_as_written(&self, text: &str, known: &Known) -> bool {
        !self.is_unwritten && self.text == text && self.known.as_ref() == Some(known)
    }

    /// It is to end, and its files go.
    fn delete(&mut self) {
        self.is_deleted = true;
        self.is_leaving = true;
    }

    fn tend(&mut self, now: Instant, common: &Common) {
        if let Some(end) = self.process.look(now) {
            self.is_starting = false;
            self.is_to_be_released = true;
            if !self.is_leaving {
                let last = match common.logs_to_output {
                    true => "see the node's log".into(),
                    false => last_line(&self.log),
                };
                self.note = Note { text: format!("{end}; {last}"), is_of_end: true };
                let (copy, database) = (self.placed.copy, &self.database);
                log!(Warning, "Copy {copy:?} of {database} has ended: {}", self.note.text);
            }
        }
        if self.note.is_of_end && self.process.has_run(now, SETTLED) {
            self.note = Note::default();
        }
        if self.is_starting {
            self.is_starting = !self.process.has_run(now, MAX_START) && !self.listens();
        }
        if !self.is_leaving {
            return;
        }
        // Nothing of a deleted copy is kept: there is nothing to save, and nothing to hand over.
        self.process.end(now, if self.is_deleted { Duration::ZERO } else { MAX_FAREWELL });
        if self.is_deleted && self.process.id().is_none() {
            self.remove_files(common);
        }
    }

    fn remove_files(&self, common: &Common) {
        let id = self.placed.copy.to_string();
        let flash = common.flash.as_ref().map(|folder| folder.join(id));
        for folder in [Some(&self.directory), flash.as_ref()].into_iter().flatten() {
            if let Err(error) = fs::remove_dir_all(folder)
                && error.kind() != io::ErrorKind::NotFound
            {
                log!(Warning, "{} cannot be removed: {error}", folder.display());
            }
        }
    }

    /// Returns whether it is time for its process to be started.
    fn is_to_start(&self, now: Instant) -> bool {
        self.process.is_due(now)
            && !self.is_leaving
            && !self.is_to_be_released
            // Without a text the machine lacks something.
            && !self.text.is_empty()
    }

    /// Notes and logs why it has no port for other copies.
    fn lacks_bus(&mut self, why: String) {
        if self.bus_error != why {
            let (copy, database) = (self.placed.copy, &self.database);
            log!(
                Warning,
                "Copy {copy:?} of {database}: {why}. Its database is without TLS between copies \
                 until then"
            );
            self.bus_error = why;
        }
    }

    /// Returns its configuration; without the port for other copies if another process has it. The
    /// database serves, and does without TLS between its copies.
    fn startable_text(&mut self) -> String {
        let port = self.text.lines().find_map(|line| line.strip_prefix("cluster-port "));
        let port = port.and_then(|port| port.trim_matches('"').parse::<u16>().ok());
        let Some(port) = port else { return self.text.clone() };
        // The kernel may still be closing the sockets of the process before.
        let is_failing = self.process.early_ends() >= ENDS_BEFORE_NO_BUS;
        let Some(why) = is_failing.then(|| why_not_bound(port)).flatten() else {
            self.bus_error.clear();
            return self.text.clone();
        };
        self.lacks_bus(format!(
            "its port for other copies, {port}, cannot be had: {why}. End what has it and restart \
             the database, or start the nodes with another --bus-port-offset"
        ));
        files::without_bus(&self.text)
    }

    fn listens(&self) -> bool {
        let address = (Ipv4Addr::LOCALHOST, self.placed.port).into();
        TcpStream::connect_timeout(&address, MAX_ACCEPT).is_ok()
    }

    fn start(&mut self, now: Instant, program: &Path, common: &Common) {
        let mut command = Command::new(program);
        command.args(["server", "dunlin.conf"]);
        let flash = common.flash.as_deref();
        let text = self.startable_text();
        let prepared = files::prepare(&self.directory, flash, &self.placed, &text);
        if prepared.is_err() {
            self.process.put_off(now);
        }
        match prepared.and_then(|()| self.process.start(command, now)) {
            Ok(id) => {
                let Placed { copy, port, .. } = &self.placed;
                let name = &self.database;
                log!(Notice, "Copy {copy:?} of {name} starts on port {port}, process {id}");
                self.is_starting = true;
            }
            Err(error) => self.note = Note::new(format!("it cannot be started: {error}")),
        }
    }
}

/// After so many ends in a row a copy starts without its port for others, if that is taken.
const ENDS_BEFORE_NO_BUS: u64 = 2;

/// What to do about a port for other copies that no copy can have.
const OTHER_OFFSET: &str = "Start the nodes with another --bus-port-offset";

/// Returns why no process can listen on a port of this host, by either protocol that it has.
/// `None`: one can.
fn why_not_bound(port: u16) -> Option<io::Error> {
    let addresses: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let mut errors = addresses.into_iter().filter_map(|it| TcpListener::bind((it, port)).err());
    // A host may do without one of them.
    let counts = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
    };
    errors.find(counts)
}

/// Returns the ports of this host that no copy can have for others: those of nodes, copies and
/// databases.
fn taken_ports(site: &Site, machine: &str, common: &Common) -> BTreeSet<u16> {
    let host = site.machines.get(machine).map(|known| &known.spec.value.host);
    let here = site.machines.values().filter(|known| Some(&known.spec.value.host) == host);
    let databases = || site.databases.values().map(|at| &at.value);
    let copies = databases().flat_map(|it| &it.copies).filter(|it| Some(&it.host) == host);
    // A node passes on the ports of databases, too.
    let plain = copies.map(|it| it.port).chain(databases().map(|it| it.settings.port));
    let tls_offset = if common.tls.is_empty() { 0 } else { common.tls_port_offset };
    let both = plain.flat_map(|port| [Some(port), port.checked_add(tls_offset)]);
    both.flatten().chain(here.map(|known| known.spec.value.admin_port)).collect()
}

/// What a copy has kept of data that were given up: `rescue-<epoch>-<offset>`, with or without an
/// ending.
fn rescued(directory: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_rescue = |name: OsString| name.to_string_lossy().starts_with("rescue-");
    entries.filter(|entry| is_rescue(entry.file_name())).map(|entry| entry.path()).collect()
}

/// Returns the last line of a file.
fn last_line(path: &Path) -> String {
    const BYTES: u64 = 400;
    let read = || -> io::Result<String> {
        let mut file = fs::File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(text.trim_end().rsplit('\n').next().unwrap_or_default().to_owned())
    };
    read().unwrap_or_default()
}
