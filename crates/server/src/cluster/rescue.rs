//! What this copy alone has is written to a file before its data are discarded for those of another
//! primary.
//!
//! The file `rescue-<epoch>-<offset>.resp` has the commands of the stream from the fork on, as they
//! were replicated, so `redis-cli --pipe` takes them. If the stream is not kept that far back,
//! since the process was restarted, the files of the data set are linked into the folder
//! `rescue-<epoch>-<offset>` instead.

use crate::log;
use crate::persistence::snapshot_file::sync_folder_of;
use cluster::copy::Copy;
use cluster::id::Id;
use engine::Engine;
use engine::journal::{IfBehind, JournalPos};
use replication::replica::framing::{EntryKind, Framer};
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Returns up to where this copy's data agree with those of the primary that the view names, if
/// they end at `end` and `epoch` is that of the last entry. `None`: no more than the primary has is
/// known to be here.
///
/// A successor has written into its fence how far it had the stream of the epoch before. If others
/// have led since then, the fence of least position in that epoch is taken: the file may then have
/// more than was alone.
fn fork(copy: &Copy, me: Id, epoch: u64, begins_at: u64) -> Option<u64> {
    let view = copy.view()?;
    let shard = view.topology.value.shard_of(me)?;
    if shard.holder.id == me || shard.epoch.0 <= epoch {
        return None;
    }
    let fences = view.fences.iter().filter(|((of, id), _)| *of == shard.id && *id != me);
    let of_epoch = fences.filter(|(_, fence)| fence.value.position.epoch.0 == epoch);
    let at = |id: Id| of_epoch.clone().find(|((_, of), _)| *of == id);
    let offset = |fence: &cluster::view::Fence| fence.position.offset;
    let known = at(shard.holder.id).map(|(_, fence)| offset(&fence.value));
    let least = || of_epoch.clone().map(|(_, fence)| offset(&fence.value)).min();
    Some(known.or_else(least).unwrap_or(begins_at))
}

/// The part of the stream that only this copy has.
pub(super) struct Surplus {
    epoch: u64,
    from: JournalPos,
    end: JournalPos,
}

/// Returns what only this copy has, if there is anything.
pub(super) fn surplus(engine: &Engine, copy: &Copy, me: Id) -> Option<Surplus> {
    let (last, end) = engine.epochs.position(|| engine.journal.position());
    let from = JournalPos(fork(copy, me, last.epoch, last.begins_at.0)?);
    (from < end).then_some(Surplus { epoch: last.epoch, from, end })
}

impl Surplus {
    /// Writes it to a file.
    ///
    /// # Errors
    /// It cannot be written, so the data must stay.
    pub(super) fn rescue(&self, engine: &Engine) -> io::Result<()> {
        let &Surplus { epoch, from, end } = self;
        let path = engine.config.cluster_config_file();
        let base = path.as_path().with_file_name(format!("rescue-{epoch}-{}", from.0));
        let Ok(mut reader) = engine.journal.read_from(from, IfBehind::CutOff) else {
            return link_files(engine, &base, end.0 - from.0);
        };
        let mut tail = Vec::new();
        while let Some(chunk) = reader.chunk(end) {
            let len = chunk.len();
            tail.extend_from_slice(&chunk);
            drop(chunk);
            reader.advance(len);
        }
        write_commands(engine, &tail, &base.with_extension("resp"))
    }
}

/// Writes the commands of a piece of the stream.
fn write_commands(engine: &Engine, tail: &[u8], path: &Path) -> io::Result<()> {
    let mut framer = Framer::default();
    let invalid = |_| io::Error::new(ErrorKind::InvalidData, "the stream makes no sense");
    framer.parse(tail, usize::MAX).map_err(invalid)?;
    let (mut begin, mut count) = (0, 0_u64);
    let mut commands = Vec::new();
    for entry in framer.entries() {
        if let EntryKind::Commands { .. } = entry.kind {
            commands.push(&tail[begin..entry.end]);
            let is_select = tail[begin..entry.end].starts_with(b"*2\r\n$6\r\nSELECT\r\n");
            count += u64::from(!is_select);
        }
        begin = entry.end;
    }
    if count == 0 {
        return Ok(());
    }
    // An attempt to synchronise that failed may have written it before.
    let is_new = !path.exists();
    let mut file = BufWriter::new(File::create(path)?);
    commands.iter().try_for_each(|command| file.write_all(command))?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    sync_folder_of(path)?;
    if is_new {
        engine.membership.count_rescued(count);
        let path = path.display();
        log!(Warning, "Cluster: {count} writes that only this node has are kept in {path}");
    }
    Ok(())
}

/// Links the files of the data set into a folder.
fn link_files(engine: &Engine, folder: &Path, bytes: u64) -> io::Result<()> {
    let config = &engine.config;
    let mut files = vec![PathBuf::from(config.dbfilename().as_path())];
    let logs = config.appenddirname();
    let logs = fs::read_dir(logs.as_path()).into_iter().flatten().flatten();
    files.extend(logs.map(|file| file.path()));
    files.retain(|file| file.is_file());
    if files.is_empty() {
        log!(
            Warning,
            "Cluster: the last {bytes} bytes of the stream that only this node has are in no file"
        );
        return Ok(());
    }
    let is_new = !folder.exists();
    fs::create_dir_all(folder)?;
    for file in files {
        let Some(name) = file.file_name() else { continue };
        match fs::hard_link(&file, folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    sync_folder_of(&folder.join("files"))?;
    if is_new {
        engine.membership.count_rescued(0);
        let folder = folder.display();
        log!(
            Warning,
            "Cluster: {bytes} bytes of the stream that only this node has are kept in {folder}"
        );
    }
    Ok(())
}
