//! A full synchronisation: one snapshot for a group of replicas, then the stream from the
//! snapshot's position on.
//!
//! The snapshot is written straight into the sockets and ended by a mark, or into a file first, for
//! replicas that need to know the length before. The readers of the journal begin in the stopped
//! world at the snapshot's cut, so nothing is missing or duplicated between snapshot and stream.

use super::sockets::{Limits, Sockets, Target};
use super::{disconnect, name, post};
use crate::log;
use crate::persistence::rdb_records::RdbRecords;
use crate::persistence::save;
use crate::persistence::snapshot_file::{Content, RdbFrame};
use engine::clock::now;
use engine::engine::random_hex_40;
use engine::journal::{HistoryId, IfBehind, JournalPos, Reader};
use engine::mailbox::Message;
use engine::snapshot::{AlreadyRunning, Beside, Output, Snapshot, Snapshots};
use engine::{DbIndex, Engine};
use keyspace::snapshot::Shared;
use process::{os_error, thread};
use replication::primary::{Contents, Group, Transfer};
use replication::wire::{self, MARK_LEN};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a snapshot's file that are sent at a time.
const PIECE: usize = 1 << 20;

/// Sends a snapshot to a group, on its own thread.
pub fn start(engine: &'static Engine, group: Group) {
    let own = group.clone();
    let started = thread::spawn("full-sync", move || run(engine, &own));
    if let Err(error) = started {
        log!(Warning, "Can't start a thread to synchronise replicas: {error}");
        engine.replicas.primary().postponed(&group);
    }
}

fn run(engine: &'static Engine, group: &Group) {
    save::lower_priority();
    let Some((snapshot, readers)) = begin(engine, group.clients.len()) else {
        // Another snapshot is running. This one begins after it.
        engine.replicas.primary().postponed(group);
        return;
    };
    engine.replicas.note_snapshot(Some(Arc::clone(snapshot.progress())));
    engine.persistence.count_fork();
    let position = snapshot.cut().position;
    let id = snapshot.cut().history;
    let progress = snapshot.progress();
    progress.set_limit(engine.snapshot_allowance(&group.clients));
    let mut sockets = open(engine, group, readers, (id, position), progress);
    let names = group.clients.iter().map(|client| name(engine, *client)).collect::<Vec<_>>();
    let how = if group.transfer == Transfer::Direct { "sockets" } else { "disk" };
    log!(Notice, "Starting sync with target: replicas {how} ({})", names.join(", "));
    let has_timed_fields = snapshot.cut().has_timed_fields && group.contents == Contents::All;
    let outcome = match group.rdb.of(has_timed_fields) {
        None => refuse(engine, group, &mut sockets),
        Some(version) => answer(engine, group, &mut sockets, (id, position)).and_then(|()| {
            match group.transfer {
                Transfer::Direct => send_direct(engine, &snapshot, &mut sockets, (group, version)),
                Transfer::File => send_file(engine, &snapshot, &mut sockets, version),
            }
        }),
    };
    let seconds = snapshot.elapsed().as_secs_f64();
    engine.replicas.note_snapshot(None);
    drop(snapshot);
    finish(engine, group, sockets, outcome, seconds);
}

/// Tells the replicas that their version cannot load the snapshot.
///
/// # Errors
/// Always: they get none.
fn refuse(engine: &Engine, group: &Group, sockets: &mut Sockets) -> io::Result<()> {
    let why = format!(
        "there are hashes with fields that expire, which RDB version {} cannot hold. For Redis 7.4 and later set \
         replica-rdb-version 12; Valkey 9 and later name their version",
        group.rdb.plain
    );
    // The log has it if it does not arrive.
    let _ = sockets.write_all(format!("-ERR {why}\r\n").as_bytes());
    engine.replicas.primary().refused(group);
    Err(io::Error::other(why))
}

/// Begins a snapshot. Returns it with a reader of the stream after it for each replica.
fn begin(engine: &'static Engine, replicas: usize) -> Option<(Snapshot, Vec<Reader<'static>>)> {
    if !engine.journal.is_keeping() {
        // Keep the journal before the cut, because the cut records the history that this begins.
        let stopped = engine.keyspace.world().stop();
        engine.journal.keep();
        drop(stopped);
    }
    let mut readers = Vec::new();
    let begun = Snapshots::begin(engine, |_| {
        // Replicas that ignore the snapshot's metadata do not know which database is selected.
        engine.journal.forget_db();
        readers.extend((0..replicas).map(|_| engine.journal.read(IfBehind::CutOff)));
    });
    match begun {
        Ok(snapshot) => Some((snapshot, readers)),
        Err(AlreadyRunning) => None,
    }
}

/// Answers the replicas that have asked.
///
/// # Errors
/// No replica is left.
fn answer(
    engine: &Engine,
    group: &Group,
    sockets: &mut Sockets,
    (id, position): (HistoryId, JournalPos),
) -> io::Result<()> {
    group.clients.iter().try_for_each(|&client| {
        let line = engine.replicas.snapshot_line(client, &id, position);
        sockets.write_to(&line, |other| other == client)
    })
}

/// Takes the replicas' sockets and stores their readers for their threads. If a replica has two
/// connections, its first one gets the stream from now on.
fn open(
    engine: &'static Engine,
    group: &Group,
    readers: Vec<Reader<'static>>,
    cut: (HistoryId, JournalPos),
    progress: &Arc<Shared>,
) -> Sockets {
    let mut targets = Vec::new();
    for (client, reader) in group.clients.iter().zip(readers) {
        // A client that is gone has no socket any more. Its reader is dropped.
        let Some(socket) = engine.replicas.take_socket(*client) else { continue };
        reader.allow(engine.allowance_of(*client));
        let main = engine.replicas.primary().begin_parallel(*client, cut);
        engine.replicas.put_reader(main.unwrap_or(*client), reader);
        if let Some(main) = main {
            post(engine, main, Message::Stream);
        }
        targets.push(Target::new(*client, socket));
    }
    let progress = Arc::clone(progress);
    let limits = Limits {
        timeout: Box::new(|| Duration::from_secs(engine.config.repl_timeout().into())),
        is_there: Box::new(|client| engine.replicas.primary().link(client).is_some()),
        is_waited_for: Box::new(move || progress.is_waited_for()),
    };
    Sockets::new(targets, limits, &engine.replicas.figures.snapshot_bytes)
}

/// Writes the snapshot into sockets.
struct Direct<'s> {
    frame: RdbFrame,
    sockets: &'s mut Sockets,
}

impl Output for Direct<'_> {
    fn write(&mut self, db: DbIndex, bytes: &[u8]) -> io::Result<()> {
        let select = self.frame.select(db);
        if !select.is_empty() {
            self.sockets.write_all(&select)?;
        }
        self.frame.note(bytes);
        self.sockets.write_all(bytes)
    }
}

fn send_direct(
    engine: &'static Engine,
    snapshot: &Snapshot,
    sockets: &mut Sockets,
    (group, version): (&Group, u16),
) -> io::Result<()> {
    let mark: [u8; MARK_LEN] =
        random_hex_40().into_bytes().try_into().expect("it has 40 characters");
    sockets.write_all(&wire::marked_header(&mark))?;
    let has_keys = group.contents == Contents::All;
    if has_keys {
        snapshot.begin_beside(Beside::Replicas);
    }
    let sizes = snapshot.sizes();
    let frame = RdbFrame::new(engine.config.rdbchecksum(), version, &sizes);
    let mut frame = frame.of(group.contents);
    sockets.write_all(&frame.header(snapshot.cut(), Content::Rdb))?;
    let mut output = Direct { frame, sockets };
    if has_keys {
        let encoder = || RdbRecords::for_version(engine, version);
        save::write_all(engine, snapshot, Beside::Replicas, &mut output, &encoder)?;
    }
    let end = output.frame.end();
    sockets.write_all(&end)?;
    sockets.write_all(&mark)
}

/// A file that is deleted when this value is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // If the file cannot be removed, it does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn send_file(
    engine: &'static Engine,
    snapshot: &Snapshot,
    sockets: &mut Sockets,
    version: u16,
) -> io::Result<()> {
    let target = Temporary(PathBuf::from(format!("temp-repl-{}.rdb", std::process::id())));
    let temporary = PathBuf::from(format!("temp-repl-{}.part", std::process::id()));
    let content = Content::Replica { version };
    save::write_file(engine, snapshot, Beside::Replicas, temporary, &target.0, content)?;
    let mut file = File::open(&target.0)?;
    sockets.write_all(&wire::sized_header(file.metadata()?.len()))?;
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(()),
            read => sockets.write_all(&piece[..read])?,
        }
    }
}

/// Starts the streams of the replicas that have received everything, and closes the others.
fn finish(
    engine: &'static Engine,
    group: &Group,
    sockets: Sockets,
    outcome: io::Result<()>,
    seconds: f64,
) {
    for target in &sockets.targets {
        let name = name(engine, target.client);
        if target.is_too_slow {
            engine.replicas.primary().cut_off(target.client);
            engine.stats.output_buffer_disconnections.add(1);
        }
        match (&target.failure, &outcome) {
            (Some(why), _) | (None, Err(why)) => {
                log!(Warning, "Synchronization with replica {name} failed: {}", os_error(why));
                let main = engine.replicas.primary().main_of(target.client);
                main.into_iter().for_each(|main| disconnect(engine, main));
                // One that was told why closes when that has left.
                if target.failure.is_some() || !engine.replicas.is_served(target.client) {
                    disconnect(engine, target.client);
                }
            }
            (None, Ok(())) => {
                log!(
                    Notice,
                    "Synchronization with replica {name} succeeded ({seconds:.3} seconds)"
                );
            }
        }
    }
    engine.replicas.primary().sent(group, now());
    for target in &sockets.targets {
        post(engine, target.client, Message::Stream);
    }
}
