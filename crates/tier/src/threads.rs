//! Executes reads and writes with a pool of threads, one operation per thread at a time. Used if
//! io_uring is refused.

use crate::disk::{Operation, Work};
use crate::files::Spawn;
use crate::queue::{Carrier, Job, Queue};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use structs::sync::{lock, wait};

/// Number of threads, which is also the number of operations in progress.
const THREADS: usize = 8;

pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

impl Pool {
    pub fn new(spawn: &Spawn<'_>) -> io::Result<Pool> {
        let shared = Arc::new(Shared::default());
        let threads = (0..THREADS).map(|index| {
            let shared = Arc::clone(&shared);
            spawn(Box::new(move || serve(&shared, index == 0)))
        });
        let threads = Mutex::new(threads.collect::<io::Result<_>>()?);
        Ok(Pool { shared, threads })
    }
}

impl Carrier for Pool {
    fn submit(&self, jobs: Vec<Job>) {
        let mut queue = lock(&self.shared.queue);
        for job in jobs {
            queue.push(job);
            self.shared.arrived.notify_one();
        }
    }

    fn close(&self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.arrived.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A thread that panicked has ended the process.
            let _ = thread.join();
        }
    }
}

/// Executes operations until the pool is closed and the queue is empty. One thread prefers writes,
/// so that they progress however many reads there are.
fn serve(shared: &Shared, prefers_writes: bool) {
    let mut queue = lock(&shared.queue);
    loop {
        let Some(Job { file, operation }) = queue.pop(prefers_writes) else {
            if queue.is_closed {
                return;
            }
            queue = wait(&shared.arrived, queue);
            continue;
        };
        drop(queue);
        let is_write = matches!(operation.work, Work::Write(_));
        carry_out(&file, operation);
        queue = lock(&shared.queue);
        if is_write && queue.end_write() {
            // A thread that found too many writes in progress may be sleeping.
            shared.arrived.notify_one();
        }
    }
}

fn carry_out(file: &File, operation: Operation) {
    let Operation { offset, len, work, done, .. } = operation;
    let at = u64::from(offset);
    let (work, result) = match work {
        Work::Read(mut bytes) => {
            let result = read_all(file, &mut bytes[..len], at);
            (Work::Read(bytes), result)
        }
        Work::Write(bytes) => {
            let result = file.write_all_at(&bytes[..len], at).map(|()| len);
            (Work::Write(bytes), result)
        }
    };
    done(work, result);
}

/// Reads until the buffer is full or the file ends.
fn read_all(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
