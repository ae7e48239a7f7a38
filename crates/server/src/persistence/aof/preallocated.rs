//! Preallocated space ahead of the log's end, in the file: making it, and writing batches into it.
//!
//! `docs/internals/preallocation.md` gives the reasons. [`replication::preallocation`] defines the
//! bytes.
#![allow(unsafe_code)] // fstatfs(2)

use crate::persistence::direct::set_direct;
use replication::FileEnd;
use replication::preallocation::{
    BLOCK, LARGEST_BATCH, LARGEST_HEAD, data_before_preallocation, head_len, write_head,
    write_preallocation,
};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};
use structs::aligned::AlignedBytes;
use structs::sync::{lock, wait};

/// Bytes of preallocated space that are written at a time. The file is locked meanwhile.
const PIECE: usize = 256 << 10;
/// Bytes read at a time to find the end of the data.
const LOOK: usize = 64 << 10;

/// Returns where the data of a file of a log ends. Snapshots have no preallocated space after them.
///
/// # Errors
/// Those of the system.
pub fn data_end(file: &File) -> io::Result<FileEnd> {
    let size = file.metadata()?.len();
    let mut magic = [0; 5];
    if file.read_exact_at(&mut magic, 0).is_ok() && rdb::file::is_rdb(magic) {
        return Ok(FileEnd { at: size, has_preallocated: false });
    }
    let mut bytes = vec![0; LOOK];
    let mut end = size;
    while end > 0 {
        let begin = (end - 1) / LOOK as u64 * LOOK as u64;
        let piece = &mut bytes[..(end - begin) as usize];
        file.read_exact_at(piece, begin)?;
        let data = data_before_preallocation(piece);
        end = begin + data as u64;
        if data > 0 {
            break;
        }
    }
    Ok(FileEnd { at: end, has_preallocated: end < size })
}

/// Returns whether this file system writes in place, so that preallocated space is of use.
pub fn is_of_use(file: &File) -> bool {
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and there is a place for the answer.
    let is_known = unsafe { libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr()) } == 0;
    is_known && {
        // SAFETY: the call has filled it in.
        let kind = unsafe { about.assume_init() }.f_type;
        [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::OVERLAYFS_SUPER_MAGIC].contains(&kind)
    }
}

/// Cuts off everything after the data. The cut is forced to the disk before anything else is
/// written there. Otherwise the preallocated space could be back after a power failure, between old
/// and new data.
///
/// # Errors
/// Those of the system.
pub fn cut(file: &File, end: u64) -> io::Result<()> {
    file.set_len(end)?;
    file.sync_all()
}

/// A file that is written in place.
pub struct InPlace {
    file: Arc<File>,
    /// The block in which the data ends, and the batch after it.
    memory: AlignedBytes,
    /// The end of the data in the file.
    end: u64,
    /// The beginning of the batch in memory, and its end so far.
    batch: (usize, usize),
    /// The end of preallocated space, a multiple of a block.
    preallocated_end: u64,
    making: Option<Arc<PreallocationJob>>,
}

impl InPlace {
    /// Begins to write at the end of a file without preallocated space.
    ///
    /// # Errors
    /// Those of the system: the file cannot be written in this way.
    pub fn begin(file: &Arc<File>, end: u64) -> io::Result<InPlace> {
        let mut memory = AlignedBytes::new(BLOCK + LARGEST_HEAD + LARGEST_BATCH + BLOCK);
        let tail = (end % BLOCK as u64) as usize;
        file.read_exact_at(&mut memory[..tail], end - tail as u64)?;
        set_direct(file, true)?;
        let preallocated_end = end.next_multiple_of(BLOCK as u64);
        let file = Arc::clone(file);
        Ok(InPlace { file, memory, end, batch: (0, 0), preallocated_end, making: None })
    }

    /// Begins a batch of `len` bytes, at most [`LARGEST_BATCH`].
    pub fn begin_batch(&mut self, len: usize) {
        let begin = self.tail() + head_len(self.end, len);
        self.batch = (begin, begin);
    }

    /// Appends bytes to the batch.
    pub fn push(&mut self, bytes: &[u8]) {
        let at = self.batch.1;
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        self.batch.1 += bytes.len();
    }

    /// Returns the bytes of the batch.
    pub fn batch(&self) -> &[u8] {
        &self.memory[self.batch.0..self.batch.1]
    }

    /// Returns the whole blocks to write, and their place in the file. The batch is complete.
    pub fn blocks(&mut self) -> (&[u8], u64) {
        let (end, tail, (begin, batch_end)) = (self.end, self.tail(), self.batch);
        let offset = end - tail as u64;
        let whole = batch_end.next_multiple_of(BLOCK);
        if offset + whole as u64 > self.preallocated_end() {
            self.stop_making();
        }
        let memory = &mut self.memory[..];
        let (before, rest) = memory.split_at_mut(begin);
        let batch = &rest[..batch_end - begin];
        debug_assert_eq!(before.len() - tail, head_len(end, batch.len()), "as long as it said");
        write_head(end, batch, &mut before[tail..]);
        write_preallocation(offset + batch_end as u64, &mut memory[batch_end..whole]);
        (&self.memory[..whole], offset)
    }

    /// Records that the blocks are in the file.
    pub fn written(&mut self) {
        let (tail, (_, batch_end)) = (self.tail(), self.batch);
        let offset = self.end - tail as u64;
        self.end = offset + batch_end as u64;
        self.preallocated_end = self.preallocated_end.max(self.end.next_multiple_of(BLOCK as u64));
        let last = batch_end / BLOCK * BLOCK;
        self.memory.copy_within(last..batch_end, 0);
    }

    /// Returns the end of the data.
    pub fn end(&self) -> u64 {
        self.end
    }

    fn tail(&self) -> usize {
        (self.end % BLOCK as u64) as usize
    }

    /// Returns whether there is preallocated space beyond the block in which the data ends.
    pub fn has_preallocated(&self) -> bool {
        self.preallocated_end > self.end.next_multiple_of(BLOCK as u64)
    }

    /// Returns the end of the preallocated space that the writer may use.
    fn preallocated_end(&mut self) -> u64 {
        if let Some(job) = &self.making {
            self.preallocated_end = self.preallocated_end.max(job.reached.load(Acquire));
        }
        self.preallocated_end
    }

    /// Returns the job that preallocates up to `wanted` bytes, if one is due and none is running.
    /// Another thread has to [run](PreallocationJob::run) it.
    ///
    /// # Errors
    /// Why the previous job failed.
    pub fn preallocation_due(&mut self, wanted: u64) -> io::Result<Option<Arc<PreallocationJob>>> {
        let preallocated_end = self.preallocated_end();
        if let Some(job) = self.making.take_if(|job| job.is_over()) {
            job.outcome()?;
        }
        let wanted = (self.end + wanted).next_multiple_of(BLOCK as u64);
        if self.making.is_some() || preallocated_end - self.end > (wanted - self.end) / 2 {
            return Ok(None);
        }
        self.making = Some(Arc::new(PreallocationJob::new(&self.file, preallocated_end, wanted)));
        Ok(self.making.clone())
    }

    /// Stops the job. After this, only the writer writes to the file.
    fn stop_making(&mut self) {
        if let Some(job) = self.making.take() {
            job.stop();
            self.preallocated_end = self.preallocated_end.max(job.reached.load(Acquire));
        }
    }

    /// Forces the data to the disk and cuts off the preallocated space. The file is an ordinary one
    /// afterwards.
    ///
    /// # Errors
    /// Those of the system. It can be tried again.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stop_making();
        // Force the data first: a torn batch is recognised by the preallocated space around it, not
        // by a cut.
        self.file.sync_data()?;
        set_direct(&self.file, false)?;
        cut(&self.file, self.end)
    }
}

/// A job that preallocates space.
pub struct PreallocationJob {
    file: Arc<File>,
    /// The end of the space that it has made so far.
    reached: AtomicU64,
    end: u64,
    is_stopped: AtomicBool,
    /// Its result, once it has ended.
    outcome: Mutex<Option<io::Result<()>>>,
    over: Condvar,
}

impl PreallocationJob {
    fn new(file: &Arc<File>, begin: u64, end: u64) -> PreallocationJob {
        PreallocationJob {
            file: Arc::clone(file),
            reached: AtomicU64::new(begin),
            end,
            is_stopped: AtomicBool::new(false),
            outcome: Mutex::new(None),
            over: Condvar::new(),
        }
    }

    /// Makes the space.
    pub fn run(&self) {
        let outcome = self.make();
        *self.lock() = Some(outcome);
        self.over.notify_all();
    }

    fn make(&self) -> io::Result<()> {
        let mut piece = AlignedBytes::new(PIECE);
        write_preallocation(0, &mut piece);
        let mut at = self.reached.load(Relaxed);
        while at < self.end && !self.is_stopped.load(Relaxed) {
            let len = usize::try_from(self.end - at).map_or(PIECE, |left| left.min(PIECE));
            self.file.write_all_at(&piece[..len], at)?;
            at += len as u64;
            self.reached.store(at, Release);
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<io::Result<()>>> {
        lock(&self.outcome)
    }

    fn is_over(&self) -> bool {
        self.lock().is_some()
    }

    fn outcome(&self) -> io::Result<()> {
        self.lock().take().unwrap_or(Ok(()))
    }

    /// Stops the job, and returns when it does not write any more.
    fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        let mut outcome = self.lock();
        while outcome.is_none() {
            outcome = wait(&self.over, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replication::{Item, StreamReader};
    use std::fs::OpenOptions;
    use std::thread;

    fn new_file(name: &str) -> (Arc<File>, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path).expect("a new file");
        (Arc::new(file), path)
    }

    /// Writes a batch, and preallocates space on another thread.
    fn write(file: &File, in_place: &mut InPlace, batch: &[u8], preallocated: u64) {
        in_place.begin_batch(batch.len());
        in_place.push(&batch[..batch.len() / 2]);
        in_place.push(&batch[batch.len() / 2..]);
        let (blocks, at) = in_place.blocks();
        file.write_all_at(blocks, at).expect("it can be written");
        in_place.written();
        if let Some(job) =
            in_place.preallocation_due(preallocated).expect("there is room on the disk")
        {
            thread::spawn(move || job.run());
        }
    }

    #[test]
    fn a_file_has_what_was_written_in_place() {
        let command = |len: usize| {
            format!("*2\r\n$4\r\nECHO\r\n${len}\r\n{}\r\n", "#".repeat(len)).into_bytes()
        };
        for preallocated in [0, 5000, 64 << 10, 1 << 20] {
            let (file, path) = new_file(&format!("preallocated-{preallocated}"));
            file.write_all_at(&command(500), 0).expect("it can be written");
            let begin = command(500).len() as u64;
            let mut in_place = InPlace::begin(&file, begin).expect("the folder has direct writes");
            let lens = [1, 500, 4096, 70_000, 477, 478, 479, 480, 12, LARGEST_BATCH - 40];
            let lens: Vec<usize> = lens.into_iter().chain(1..600).collect();
            for (number, &len) in lens.iter().enumerate() {
                write(&file, &mut in_place, &command(len), preallocated);
                if number % 100 == 0 {
                    let other = File::open(&path).expect("it is there");
                    assert_eq!(data_end(&other).expect("it can be read").at, in_place.end());
                }
            }
            let end = in_place.end();
            in_place.finish().expect("it can be cut");
            let found = std::fs::read(&path).expect("it can be read");
            assert_eq!(found.len() as u64, end);
            let mut reader = StreamReader::of_file(0, FileEnd { at: end, has_preallocated: false });
            let (mut at, mut words, mut seen) = (0, Vec::new(), Vec::new());
            while at < found.len() {
                match reader.next(&found[at..], &mut words) {
                    Ok(Item::Command { consumed }) => {
                        seen.push(words[1].len());
                        at += consumed;
                    }
                    Ok(Item::Comment { consumed }) => at += consumed,
                    other => panic!("{other:?} at {at}"),
                }
            }
            assert_eq!(seen[0], 500);
            assert_eq!(seen[1..], lens);
            std::fs::remove_file(&path).expect("it can be removed");
        }
    }

    #[test]
    fn room_is_told_from_data() {
        let (file, path) = new_file("room-end");
        let end = || data_end(&file).expect("it can be read");
        assert_eq!(end(), FileEnd { at: 0, has_preallocated: false });
        let mut preallocated = vec![0; 3 * LOOK];
        write_preallocation(0, &mut preallocated);
        file.write_all_at(&preallocated, 0).expect("it can be written");
        assert_eq!(end(), FileEnd { at: 0, has_preallocated: true });
        for data in [5, LOOK as u64 - 3, LOOK as u64, 2 * LOOK as u64 + 512] {
            file.write_all_at(b"data\n", data - 5).expect("it can be written");
            assert_eq!(end(), FileEnd { at: data, has_preallocated: true });
        }
        file.set_len(2 * LOOK as u64 + 513).expect("it can be cut");
        assert_eq!(end(), FileEnd { at: 2 * LOOK as u64 + 512, has_preallocated: true });
        file.set_len(2 * LOOK as u64 + 512).expect("it can be cut");
        assert_eq!(end(), FileEnd { at: 2 * LOOK as u64 + 512, has_preallocated: false });
        std::fs::remove_file(&path).expect("it can be removed");
    }
}
