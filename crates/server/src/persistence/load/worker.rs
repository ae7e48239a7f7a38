//! The threads that decode and insert entries.

use super::error::Failure;
use super::queue::{Batch, Job, Large, Piece, Queue};
use super::{Cause, LoadOptions};
use engine::Engine;
use engine::load::{Counts, Loader};
use process::thread;
use rdb::{Builder, Decoder, Error};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Starts as many workers as there are reactors.
pub fn start(
    engine: &'static Engine,
    options: &LoadOptions,
    queue: &Arc<Queue>,
) -> io::Result<Vec<JoinHandle<Counts>>> {
    let settings = options.settings;
    (0..engine.threads)
        .map(|index| {
            let queue = Arc::clone(queue);
            let work = move || {
                let mut loader = Loader::new(engine, settings);
                while let Some(job) = queue.pop() {
                    let done = match job {
                        Job::Batch(batch) => load_batch(engine, &mut loader, batch, &queue),
                        Job::Large(large) => load_large(engine, &mut loader, &large),
                    };
                    if let Err(failure) = done {
                        queue.fail(failure);
                    }
                }
                loader.counts().clone()
            };
            thread::spawn(&format!("load-{index}"), work)
        })
        .collect()
}

fn load_batch(
    engine: &Engine,
    loader: &mut Loader,
    batch: Batch,
    queue: &Queue,
) -> Result<(), Failure> {
    let Batch { bytes, cuts, offset } = batch;
    loader
        .records(&bytes, &cuts)
        .map_err(|bad| Failure::of_record(offset, bad, engine.keyspace.databases()))?;
    queue.recycle(bytes, cuts);
    Ok(())
}

fn load_large(engine: &Engine, loader: &mut Loader, large: &Large) -> Result<(), Failure> {
    let malformed = |offset, error| {
        Failure::of_record(
            offset,
            engine::load::BadRecord {
                at: 0,
                key: large.head.key.clone(),
                kind: large.kind as u8,
                db: large.head.db,
                why: engine::load::Why::Malformed(error),
            },
            engine.keyspace.databases(),
        )
    };
    let count = usize::try_from(large.count).unwrap_or(usize::MAX);
    let limits = loader.settings().limits;
    let mut builder = Builder::new(large.kind, count, &limits)
        .ok_or_else(|| malformed(large.offset, Error::UnsupportedType(large.kind as u8)))?;
    let mut built = 0;
    for Piece { bytes, elements, offset } in &large.pieces {
        let mut decoder = Decoder::new(&bytes);
        builder.add(&mut decoder, elements).map_err(|error| {
            let at = bytes.len() - decoder.remaining().len();
            malformed(offset + at as u64, error)
        })?;
        built += elements;
    }
    if built != count {
        // The reader gave up and reports why.
        return Err(Failure::new("", large.offset, Cause::Truncated));
    }
    let object = match builder.finish() {
        Ok(object) => object,
        Err(Error::Empty) => {
            loader.skip_empty(&large.head.key);
            return Ok(());
        }
        Err(error) => return Err(malformed(large.offset, error)),
    };
    loader
        .object(&large.head, object)
        .map_err(|bad| Failure::of_record(large.offset, bad, engine.keyspace.databases()))
}
