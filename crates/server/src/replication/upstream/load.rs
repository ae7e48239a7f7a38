//! Receives the primary's snapshot and loads it.
//!
//! By `repl-diskless-load` the snapshot is loaded while it arrives, or written into a file first.
//! In the second case, the old data set is served until all has arrived, and the file replaces the
//! configured snapshot once it is loaded. With `swapdb` the snapshot is loaded beside the old data
//! set ([`beside`]). All cores load. If the snapshot arrives over its own connection, the stream is
//! kept meanwhile ([`MainChannel`]).

mod beside;
mod received_file;

use super::Uplink;
use super::input::{SnapshotInput, Watcher};
use super::main_channel::MainChannel;
use crate::log;
use crate::persistence::check::verify_rdb;
use crate::persistence::load::{self, Report, Source, load_rdb};
use crate::socket::Socket;
use config::ReplDisklessLoad;
use engine::clock::now;
use engine::follow::{Beginning, GoesOn, Over, begin_load, end_load};
use engine::journal::{History, JournalPos};
use engine::upstream::Transfer;
use engine::{DbIndex, Engine};
use process::{os_error, signals};
use received_file::write_file;
use replication::replica::Promise;
use replication::wire::SnapshotEnd;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of bytes that contain a snapshot's kind and version.
const HEAD_LEN: usize = 9;

/// The result of a load.
pub struct Loaded {
    /// The database in which the stream continues.
    pub stream_db: DbIndex,
    /// The beginning of the stream, as far as it has arrived.
    pub rest: Vec<u8>,
}

/// Why nothing was loaded.
pub enum Failure {
    /// Another term has begun.
    Over,
    /// A failure, with a text for the log.
    Failed(String),
}

impl From<Over> for Failure {
    fn from(_: Over) -> Failure {
        Failure::Over
    }
}

/// Reports the progress of the transfer, and ends it when another term has begun. While the
/// snapshot is loaded, it regularly tells the primary that the link is alive.
struct Progress<'e> {
    engine: &'e Engine,
    term: u64,
    total_bytes: Option<u64>,
    /// Bytes of the snapshot that INFO already counts as received.
    counted: u64,
    keeps_alive: Option<Socket>,
    /// The connection over which the stream arrives meanwhile.
    main: Option<&'e MainChannel>,
    last: Instant,
}

impl Watcher for Progress<'_> {
    fn came(&mut self, bytes: u64) -> io::Result<()> {
        let upstream = &self.engine.upstream;
        if upstream.term() != self.term || self.engine.loading.is_cancelled() {
            return Err(io::Error::other("it is not wanted any more"));
        }
        if let Some(why) = self.main.and_then(MainChannel::failure) {
            return Err(io::Error::other(format!("the stream ended: {why}")));
        }
        let at = now();
        let total_bytes = self.total_bytes;
        let mut link = upstream.link();
        link.transfer = Some(Transfer { total_bytes, read_bytes: bytes, at });
        link.heard = Some(at);
        link.received_bytes += bytes.saturating_sub(self.counted);
        self.counted = self.counted.max(bytes);
        drop(link);
        self.keep_alive();
        Ok(())
    }
}

impl Progress<'_> {
    fn keep_alive(&mut self) {
        if let Some(socket) = &mut self.keeps_alive
            && self.last.elapsed() > Duration::from_secs(1)
        {
            self.last = Instant::now();
            // A broken link is noticed where it is read.
            let _ = socket.write(b"\n");
        }
    }
}

/// Reads a file and meanwhile tells the primary that the link is alive. It starts to read only when
/// the old data is freed. Reading is much faster than freeing, so the new data would be allocated
/// among the remains of the old.
struct Alive<'f, 'e> {
    file: File,
    progress: &'f mut Progress<'e>,
}

impl Read for Alive<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.progress.keep_alive();
        while self.progress.engine.background.pending_objects() > 0 {
            std::thread::sleep(Duration::from_millis(1));
            self.progress.keep_alive();
        }
        self.file.read(into)
    }
}

/// Receives a snapshot and loads it.
///
/// # Errors
/// The data set is unchanged or empty. The link's `is_incomplete` tells which.
#[expect(clippy::too_many_lines, reason = "to be split by phases of a synchronisation")]
pub fn receive(uplink: &mut Uplink<'_>, promise: Promise) -> Result<Loaded, Failure> {
    let engine = uplink.engine;
    let timeout = Duration::from_secs(engine.config.repl_timeout().into());
    let total_bytes = match promise.end {
        SnapshotEnd::Length(bytes) => Some(bytes),
        SnapshotEnd::Mark(_) => None,
    };
    let way = Way::of(engine);
    let Connections { mut socket, first, main } = Connections::take(uplink, &promise)?;
    // With two connections, the main channel keeps the link alive.
    let keeps_alive = if main.is_none() { socket.try_clone().ok() } else { None };
    let (term, last) = (uplink.term, Instant::now());
    let mut progress = Progress {
        engine,
        term,
        total_bytes,
        // These bytes arrived with the primary's answer.
        counted: first.len() as u64,
        keeps_alive: None,
        main: main.as_ref(),
        last,
    };
    let from = if way == Way::File { "to disk" } else { "to parser" };
    match promise.end {
        SnapshotEnd::Length(bytes) => {
            log!(Notice, "MASTER <-> REPLICA sync: receiving {bytes} bytes from master {from}");
        }
        SnapshotEnd::Mark(_) => {
            log!(
                Notice,
                "MASTER <-> REPLICA sync: receiving streamed RDB from master with EOF {from}"
            );
        }
    }
    if way == Way::Beside {
        progress.keeps_alive = keeps_alive;
        let input = SnapshotInput::new(&mut socket, &mut progress, promise.end, first, timeout);
        let loaded = beside::receive(uplink, &promise, input, total_bytes)?;
        give_back(uplink, socket, main)?;
        return Ok(loaded);
    }
    let outcome = if way == Way::AtOnce {
        progress.keeps_alive = keeps_alive;
        let mut input = SnapshotInput::new(&mut socket, &mut progress, promise.end, first, timeout);
        let report = read_head(engine, &mut input).and_then(|head| {
            let mut whole = head.chain(&mut input);
            install(uplink, &promise, &mut whole, "the stream from the master", total_bytes)
        });
        report.and_then(|report| match read_end(input) {
            Ok(rest) => Ok((report, rest)),
            Err(why) => Err(throw_away(uplink, why)),
        })
    } else {
        let mut input = SnapshotInput::new(&mut socket, &mut progress, promise.end, first, timeout);
        let written =
            write_file(&mut input).and_then(|(file, bytes)| Ok((file, bytes, input.finish()?)));
        match written {
            Err(error) => {
                let why = os_error(&error);
                Err(Failure::Failed(format!("I/O error trying to sync with MASTER: {why}")))
            }
            Ok((received, bytes, rest)) => {
                progress.keeps_alive = keeps_alive;
                let path = received.path();
                verify_file(engine, path, bytes, &mut progress)
                    .and_then(|()| {
                        File::open(path).map_err(|error| {
                            let why = os_error(&error);
                            Failure::Failed(format!("Can't open {}: {why}", path.display()))
                        })
                    })
                    .and_then(|file| {
                        let mut input = Alive { file, progress: &mut progress };
                        let name = path.display().to_string();
                        install(uplink, &promise, &mut input, &name, Some(bytes))
                    })
                    .map(|report| {
                        received.replace_snapshot(engine);
                        (report, rest)
                    })
            }
        }
    };
    let (report, rest) = outcome?;
    let stream_db = DbIndex(report.stream_db.unwrap_or(0));
    let ended = end_load(uplink.engine, uplink.term, GoesOn { db: stream_db, epoch: report.epoch });
    signals::set_loading(false);
    if let Err(over) = ended {
        // This server was promoted at the last moment. The data set is complete.
        engine.loading.end();
        return Err(over.into());
    }
    uplink.aof.resume();
    give_back(uplink, socket, main)?;
    Ok(Loaded { stream_db, rest })
}

/// The connections while a snapshot is received.
struct Connections {
    /// The connection over which the snapshot arrives.
    socket: Socket,
    /// Bytes of the snapshot that have arrived already.
    first: Vec<u8>,
    /// The connection over which the stream arrives meanwhile, if that is another one.
    main: Option<MainChannel>,
}

impl Connections {
    fn take(uplink: &mut Uplink<'_>, promise: &Promise) -> Result<Connections, Failure> {
        let lost = || Failure::Failed("Connection with master lost.".to_owned());
        let stream = std::mem::take(&mut uplink.input).rest().to_vec();
        let main = uplink.socket.take().ok_or_else(lost)?;
        if !promise.is_parallel {
            return Ok(Connections { socket: main, first: stream, main: None });
        }
        let socket = uplink.rdb_channel.take().ok_or_else(lost)?;
        let first = std::mem::take(&mut uplink.rdb_input).rest().to_vec();
        let main = MainChannel::start(uplink.engine, main, &stream).map_err(|error| {
            Failure::Failed(format!(
                "Can't keep the stream beside a snapshot: {}",
                os_error(&error)
            ))
        })?;
        Ok(Connections { socket, first, main: Some(main) })
    }
}

/// Gives the first connection back to the link, with the bytes of the stream to apply. If that
/// connection is broken, the link notices it after these bytes.
fn give_back(
    uplink: &mut Uplink<'_>,
    socket: Socket,
    main: Option<MainChannel>,
) -> Result<(), Failure> {
    match main {
        None => uplink.socket = Some(socket),
        Some(main) => {
            let (socket, kept) = main.finish().map_err(|error| {
                Failure::Failed(format!("Connection with master lost: {}", os_error(&error)))
            })?;
            let bytes = kept.len();
            log!(Notice, "MASTER <-> REPLICA sync: {bytes} bytes of the stream came meanwhile");
            (uplink.socket, uplink.kept) = (Some(socket), kept);
        }
    }
    Ok(())
}

/// Where a snapshot goes while it arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Into a file.
    File,
    /// Into the data set.
    AtOnce,
    /// Into a data set beside the present one.
    Beside,
}

impl Way {
    fn of(engine: &Engine) -> Way {
        match engine.config.repl_diskless_load() {
            ReplDisklessLoad::Disabled => Way::File,
            ReplDisklessLoad::OnEmptyDb if !holds_nothing(engine) => Way::File,
            ReplDisklessLoad::OnEmptyDb | ReplDisklessLoad::FlushBeforeLoad => Way::AtOnce,
            ReplDisklessLoad::SwapDb => Way::Beside,
        }
    }
}

fn holds_nothing(engine: &Engine) -> bool {
    let stopped = engine.keyspace.world().stop();
    let holds_nothing = !engine.keyspace.has_keys();
    drop(stopped);
    holds_nothing
}

/// Returns the history and the position to which a snapshot belongs.
fn begun_at(promise: &Promise) -> (History, JournalPos) {
    match promise.from {
        Some((id, position)) => (History { id, second: None }, position),
        // The primary counts no positions, so this server's followers cannot continue from here.
        None => (History::new(), JournalPos(0)),
    }
}

/// Reads the beginning of a snapshot that is loaded while it arrives, and checks that it is a file
/// which can be loaded here. Otherwise the old data must be kept.
fn read_head(engine: &Engine, input: &mut dyn Read) -> Result<[u8; HEAD_LEN], Failure> {
    let mut head = [0; HEAD_LEN];
    let failed = |why: &str| Failure::Failed(format!("Bad snapshot from MASTER: {why}"));
    input.read_exact(&mut head).map_err(|error| failed(&os_error(&error)))?;
    let accepts_newer = load::LoadOptions::configured(engine).accepts_newer;
    let mut scanner = rdb::file::Scanner::new(0, u64::MAX, HEAD_LEN).accept_newer(accepts_newer);
    scanner.next(&head).map_err(|error| failed(&error.to_string()))?;
    Ok(head)
}

/// Checks a whole snapshot before the old data is discarded for it, if there is any.
fn verify_file(
    engine: &Engine,
    path: &Path,
    bytes: u64,
    progress: &mut Progress<'_>,
) -> Result<(), Failure> {
    if holds_nothing(engine) {
        return Ok(());
    }
    let failed = |why: String| {
        Failure::Failed(format!("The snapshot from MASTER is of no use, the data is kept: {why}"))
    };
    let file = File::open(path).map_err(|error| failed(os_error(&error)))?;
    let mut input = Alive { file, progress };
    verify_rdb(&mut input, bytes, &load::LoadOptions::configured(engine)).map_err(failed)
}

/// Empties the data set and loads the snapshot into it.
fn install(
    uplink: &Uplink<'_>,
    promise: &Promise,
    input: &mut dyn Read,
    name: &str,
    bytes: Option<u64>,
) -> Result<Report, Failure> {
    let engine = uplink.engine;
    before_discard(engine)?;
    log!(Notice, "MASTER <-> REPLICA sync: Flushing old data");
    end_writers(uplink);
    empty(uplink, uplink.term, begun_at(promise), Some(bytes.unwrap_or(0)))?;
    signals::set_loading(true);
    log!(Notice, "MASTER <-> REPLICA sync: Loading DB in memory");
    load_snapshot(engine, input, name, bytes, Target::DataSet)
        .map_err(|why| throw_away(uplink, why))
}

/// Prepares to discard the data set. In a cluster, later acknowledgements are about other data.
fn before_discard(engine: &Engine) -> Result<(), Failure> {
    let refused = |why| Failure::Failed(format!("The data is kept: {why}"));
    engine.votes.before_discard().map_err(refused)
}

/// Ends the writers of files that read the old data set: the append-only log and a snapshot.
fn end_writers(uplink: &Uplink<'_>) {
    uplink.aof.suspend();
    if let Some(snapshot) = uplink.engine.snapshots.current() {
        snapshot.end();
    }
}

/// The data set into which a snapshot is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    DataSet,
    /// The second data set.
    Beside,
}

/// Loads a snapshot of the primary.
fn load_snapshot(
    engine: &'static Engine,
    input: &mut dyn Read,
    name: &str,
    bytes: Option<u64>,
    target: Target,
) -> Result<Report, Failure> {
    let source = Source {
        input,
        name: name.to_owned(),
        offset: 0,
        end: bytes.unwrap_or(u64::MAX),
        begun: &mut || {},
    };
    let mut options = load::LoadOptions::configured(engine);
    // Expired keys stay until the primary deletes them.
    options.settings.keeps_expired = true;
    options.settings.is_beside = target == Target::Beside;
    load_rdb(engine, source, &options).map_err(|why| {
        Failure::Failed(format!("Failed trying to load the MASTER synchronization DB: {why}"))
    })
}

/// Reads the end of a snapshot that was loaded while it arrived. Returns the beginning of the
/// stream after it.
fn read_end(input: SnapshotInput<'_, impl Read, impl Watcher>) -> Result<Vec<u8>, Failure> {
    input.finish().map_err(|error| {
        Failure::Failed(format!("Bad end of the snapshot from MASTER: {}", os_error(&error)))
    })
}

fn empty(
    uplink: &Uplink<'_>,
    term: u64,
    (history, position): (History, JournalPos),
    bytes: Option<u64>,
) -> Result<(), Over> {
    let beginning = Beginning { history, position, bytes };
    let taken = begin_load(uplink.engine, uplink.thread, term, &beginning)?;
    if uplink.engine.config.replica_lazy_flush() {
        uplink.engine.background.free_tables(taken);
    }
    Ok(())
}

/// Discards a partly loaded data set and returns the failure. This also applies if another term has
/// begun: a server that is promoted during the load begins empty, because no other data set is
/// left.
fn throw_away(uplink: &Uplink<'_>, failure: Failure) -> Failure {
    signals::set_loading(false);
    let engine = uplink.engine;
    let mut term = uplink.term;
    let mut failure = failure;
    while empty(uplink, term, (History::new(), JournalPos(0)), None).is_err() {
        term = engine.upstream.term();
        failure = Failure::Over;
    }
    failure
}
