//! One thread's part in writing a snapshot: it walks, streams and sweeps, with rests in between.

use super::sweep::{SWEEP_BYTES, Sweep, SweepStep};
use super::thaw::thaw;
use super::{Beside, Encode, Output, Snapshot};
use crate::clock::Ticks;
use keyspace::keyspace::STRIPES;
use keyspace::memory::block_size;
use keyspace::snapshot::record::Tokens;
use keyspace::snapshot::{BigRef, Chunk, Shared, Workspace};
use keyspace::world::Reader;
use keyspace::{DbIndex, StripeData};
use std::io;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::give_way;
use structs::sync::lock;

/// Bytes of encoded output that a thread collects before it writes them.
const FLUSH: usize = 1 << 20;
/// Capacity for them and for the last value that exceeds them.
const FLUSH_ROOM: usize = FLUSH + (128 << 10);
/// Bytes of entries that a thread holds besides, as they were taken.
const BESIDE_FLUSH: usize = 128 << 10;
/// Bytes of a big value that are taken at a stretch.
const PIECE: usize = 16 << 10;
/// Time that a thread works at a stretch while clients are served. Short stretches matter more than
/// the share of time: the scheduler does not preempt a thread that has just rested in the middle of
/// a stretch, where it would hold a stripe's lock.
const STRETCH: Duration = Duration::from_micros(100);
/// Length of a rest as a multiple of the stretch, in quarters. `REST_TAKEN` is added for each of
/// the last eight offers of the processor that another thread took.
const REST: u32 = 8;
const REST_TAKEN: u32 = 8;
/// The same while replicas wait. The journal keeps everything written meanwhile for them.
const REPLICAS_REST: u32 = 2;
const REPLICAS_REST_TAKEN: u32 = 1;
/// Commands per second from which on clients count as being served.
const BUSY: u64 = 1000;

/// One thread's part in writing a snapshot.
pub(super) struct Walker<'a> {
    snapshot: &'a Snapshot,
    beside: Beside,
    /// `None` if the thread has stopped the world.
    reader: Option<Reader<'static>>,
    stripe: Option<usize>,
    sweep: Sweep,
    sweep_room: Option<Workspace>,
    out: Vec<u8>,
    out_db: DbIndex,
    stretch_began: Ticks,
    /// Which of the last eight offers of the processor were taken. The newest is the lowest bit.
    taken: u8,
    /// Memory of all this. It is the last field, so it is dropped after the others.
    workspace: Workspace,
}

pub(super) fn ended(shared: &Shared) -> io::Error {
    if shared.has_failed() {
        return io::Error::other("a failure was asked for");
    }
    io::Error::new(io::ErrorKind::Interrupted, "the snapshot was ended")
}

impl<'a> Walker<'a> {
    pub fn new(snapshot: &'a Snapshot) -> Walker<'a> {
        let engine = snapshot.engine;
        let beside = *lock(&snapshot.beside);
        let reader = (beside != Beside::Nobody).then(|| {
            let spare = lock(&engine.snapshots.readers).pop();
            spare.unwrap_or_else(|| engine.keyspace.world().register())
        });
        Walker {
            snapshot,
            beside,
            reader,
            stripe: None,
            sweep: Sweep::default(),
            sweep_room: None,
            out: Vec::new(),
            out_db: DbIndex(0),
            stretch_began: engine.clock.now(),
            // Assume that the processor is scarce until offers are refused.
            taken: u8::MAX,
            workspace: Workspace::new(&snapshot.shared, 0),
        }
    }

    /// Runs `work` inside the world.
    pub fn inside<R>(&self, work: impl FnOnce() -> R) -> R {
        if let Some(reader) = &self.reader {
            reader.enter();
        }
        let result = work();
        if let Some(reader) = &self.reader {
            reader.leave();
        }
        result
    }

    pub fn with_stripe<R>(&self, index: usize, work: impl FnOnce(&mut StripeData) -> R) -> R {
        self.inside(|| work(&mut self.snapshot.engine.keyspace.stripe(index).lock()))
    }

    pub fn run(
        &mut self,
        encode: &mut dyn Encode,
        output: &Mutex<&mut dyn Output>,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.snapshot.shared);
        self.count_workspace(FLUSH_ROOM, encode);
        self.out.reserve_exact(FLUSH_ROOM);
        loop {
            if shared.is_over() {
                return Err(ended(&shared));
            }
            self.rest();
            // Read this before the queue: a value that has lost its mark is in the queue.
            let has_marked = shared.marked() > 0;
            let is_walked = self.snapshot.walked.load(SeqCst) == STRIPES;
            if let Some(chunk) = shared.handed_over() {
                let (bytes, capacity) = (chunk.bytes.len(), chunk.bytes.capacity());
                let written = self.take(chunk, encode, output);
                shared.give_back_chunk(bytes, capacity);
                written?;
            } else if shared.is_hurried() {
                if let Some(value) = shared.next_big() {
                    self.stream(value, encode, output)?;
                }
            } else if let Some(index) = self.next_stripe() {
                match self.with_stripe(index, StripeData::walk_snapshot) {
                    Some(chunk) => self.take(chunk, encode, output)?,
                    None => {
                        self.stripe = None;
                        self.snapshot.walked.fetch_add(1, SeqCst);
                    }
                }
            } else if let Some(value) = shared.next_big() {
                self.stream(value, encode, output)?;
            } else if has_marked {
                // Sweep only after all values are marked, or a segment would be read more than
                // once.
                if !is_walked || !self.sweep(encode, output)? {
                    self.snapshot.engine.clock.rest(STRETCH);
                }
            } else {
                self.give_swept(encode, output)?;
                return self.flush(&mut **lock(output));
            }
        }
    }

    fn next_stripe(&mut self) -> Option<usize> {
        if self.stripe.is_none() {
            let next = self.snapshot.next_stripe.fetch_add(1, Relaxed);
            self.stripe = (next < STRIPES).then_some(next);
        }
        self.stripe
    }

    /// Reads a marked value. Returns `false` if other threads read all segments with marked values.
    fn sweep(
        &mut self,
        encode: &mut dyn Encode,
        output: &Mutex<&mut dyn Output>,
    ) -> io::Result<bool> {
        let (engine, shared) = (self.snapshot.engine, Arc::clone(&self.snapshot.shared));
        if self.sweep_room.is_none() {
            self.sweep_room = Some(Workspace::new(&shared, SWEEP_BYTES));
        }
        let mut sweep = std::mem::take(&mut self.sweep);
        let step = sweep.step(
            engine,
            |stripe, work| self.with_stripe(stripe, |data| work(data)),
            || shared.is_over(),
        );
        self.sweep = sweep;
        let step = step?;
        if step == SweepStep::IsFull {
            self.give_swept(encode, output)?;
        }
        self.delay(u64::from(step != SweepStep::Nothing));
        Ok(step != SweepStep::Nothing)
    }

    fn give_swept(
        &mut self,
        encode: &mut dyn Encode,
        output: &Mutex<&mut dyn Output>,
    ) -> io::Result<()> {
        for (db, tokens) in self.sweep.take() {
            if db != self.out_db {
                self.flush(&mut **lock(output))?;
                self.out_db = db;
            }
            self.encode(&tokens, encode);
            encode.end_of_value(&mut self.out);
            if self.out.len() >= FLUSH {
                self.flush(&mut **lock(output))?;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        chunk: Chunk,
        encode: &mut dyn Encode,
        output: &Mutex<&mut dyn Output>,
    ) -> io::Result<()> {
        if chunk.db != self.out_db {
            self.flush(&mut **lock(output))?;
            self.out_db = chunk.db;
        }
        thaw(self.snapshot.engine, &chunk.bytes, &mut |tokens| {
            self.encode(tokens, encode);
            encode.end_of_value(&mut self.out);
            if self.out.len() >= FLUSH {
                self.flush(&mut **lock(output))?;
            }
            Ok(())
        })?;
        self.delay(chunk.keys);
        Ok(())
    }

    fn encode(&mut self, tokens: &[u8], encode: &mut dyn Encode) {
        encode.encode(Tokens::new(tokens), &mut self.out);
        self.count_workspace(self.out.capacity(), encode);
    }

    fn count_workspace(&mut self, out_bytes: usize, encode: &dyn Encode) {
        self.workspace.set(block_size(out_bytes) + block_size(encode.held_bytes()) + BESIDE_FLUSH);
    }

    fn flush(&mut self, output: &mut dyn Output) -> io::Result<()> {
        if !self.out.is_empty() {
            output.write(self.out_db, &self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Streams a big value. No other thread writes meanwhile.
    fn stream(
        &mut self,
        value: BigRef,
        encode: &mut dyn Encode,
        output: &Mutex<&mut dyn Output>,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.snapshot.shared);
        let mut output = lock(output);
        self.flush(&mut **output)?;
        self.out_db = value.db;
        // The buffer is swapped with the one that writers have filled. Its capacity spares them an
        // allocation.
        let _room = Workspace::new(&shared, 16 * PIECE);
        let mut tokens = Vec::with_capacity(16 * PIECE);
        loop {
            tokens.clear();
            let goes_on = self
                .with_stripe(value.stripe, |data| data.stream_snapshot(value, &mut tokens, PIECE));
            // Check after the read: once the snapshot has ended, changes no longer reach the
            // stripe's hook, so the value may have been replaced, or its end may be missing.
            if shared.is_over() {
                return Err(ended(&shared));
            }
            self.encode(&tokens, encode);
            if !goes_on {
                break;
            }
            if self.out.len() >= FLUSH {
                self.flush(&mut **output)?;
            }
            if tokens.len() < PIECE / 2 && !shared.is_pressing() {
                // Writers take the elements themselves. There will be more in a moment.
                self.snapshot.engine.clock.rest(STRETCH);
            }
            self.rest();
        }
        encode.end_of_value(&mut self.out);
        // Commands that wait for this value may go on.
        shared.recheck();
        self.flush(&mut **output)
    }

    /// Leaves the processor to the threads that serve clients, unless clients wait for the
    /// snapshot.
    fn rest(&mut self) {
        let clock = &self.snapshot.engine.clock;
        let worked = clock.elapsed(self.stretch_began);
        if worked < STRETCH {
            return;
        }
        let engine = self.snapshot.engine;
        let is_busy = self.reader.is_some() && engine.rates.commands_per_second() >= BUSY;
        if is_busy && !self.snapshot.shared.is_pressing() {
            let away = give_way::offer();
            self.taken = self.taken << 1 | u8::from(away.is_some());
            let (always, each) = match self.beside {
                Beside::Replicas => (REPLICAS_REST, REPLICAS_REST_TAKEN),
                _ => (REST, REST_TAKEN),
            };
            let rest = worked.min(STRETCH * 2) * (always + each * self.taken.count_ones()) / 4;
            clock.rest(rest.saturating_sub(away.unwrap_or_default()));
        }
        self.stretch_began = clock.now();
    }

    /// Applies `rdb-key-save-delay`, for tests.
    fn delay(&self, keys: u64) {
        let each = self.snapshot.engine.config.rdb_key_save_delay();
        let Ok(each) = u64::try_from(each) else { return };
        let mut left = Duration::from_micros(each.saturating_mul(keys));
        while !left.is_zero() && !self.snapshot.shared.is_over() {
            let step = left.min(Duration::from_millis(5));
            self.snapshot.engine.clock.rest(step);
            left -= step;
        }
    }
}

impl Drop for Walker<'_> {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            lock(&self.snapshot.engine.snapshots.readers).push(reader);
        }
    }
}
