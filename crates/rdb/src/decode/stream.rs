//! Reading streams of all three encodings.
//!
//! The second says more than the first about entries that are gone, the third when a consumer was
//! active. What an old payload does not say is made up as the reference implementation does.

use super::Decoder;
use crate::{Error, Kind, Object};
use structs::stream::{Malformed, StreamBuilder, StreamId};

/// Bytes of the smallest block, group, pending entry, consumer, and entry of a consumer.
const MIN_BLOCK: usize = 2;
const MIN_GROUP: usize = 5;
const MIN_PENDING: usize = 25;
const MIN_CONSUMER: usize = 10;
const MIN_OWN: usize = 16;

fn corrupt(Malformed(what): Malformed) -> Error {
    Error::Corrupt(what)
}

impl Decoder<'_> {
    /// A stream behind its type byte.
    pub(super) fn stream(&mut self, kind: Kind) -> Result<Object, Error> {
        let mut builder = StreamBuilder::default();
        for _ in 0..self.count(MIN_BLOCK)? {
            let id = self.string()?;
            let id = id.as_ref().try_into().map_err(|_| Error::Corrupt("Stream node key"))?;
            builder.block(StreamId::from_bytes(id), &self.string()?).map_err(corrupt)?;
        }
        let (length, last_id) = (self.length()?, self.id_lengths()?);
        let later = match kind {
            Kind::StreamListpacks => None,
            _ => Some((self.id_lengths()?, self.id_lengths()?, self.length()?)),
        };
        builder.counters(length, last_id, later).map_err(corrupt)?;
        for _ in 0..self.count(MIN_GROUP)? {
            self.group(kind, &mut builder)?;
        }
        builder.finish().map(Object::Stream).map_err(corrupt)
    }

    fn group(&mut self, kind: Kind, builder: &mut StreamBuilder) -> Result<(), Error> {
        let (name, last_id) = (self.string()?, self.id_lengths()?);
        let reads = match kind {
            Kind::StreamListpacks => builder.guess_reads(last_id),
            _ => self.length()? as i64,
        };
        builder.group(&name, last_id, reads).map_err(corrupt)?;
        for _ in 0..self.count(MIN_PENDING)? {
            let (id, time) = (self.id()?, self.time()?);
            builder.pending(id, time, self.length()?).map_err(corrupt)?;
        }
        for _ in 0..self.count(MIN_CONSUMER)? {
            let (name, seen) = (self.string()?, self.time()?);
            // Old files tell no more than that a consumer that was seen was active.
            let active = if kind == Kind::StreamListpacks3 { self.time()? } else { seen };
            builder.consumer(&name, seen, active).map_err(corrupt)?;
            for _ in 0..self.count(MIN_OWN)? {
                builder.own(self.id()?).map_err(corrupt)?;
            }
        }
        Ok(())
    }

    fn id_lengths(&mut self) -> Result<StreamId, Error> {
        Ok(StreamId::new(self.length()?, self.length()?))
    }

    fn id(&mut self) -> Result<StreamId, Error> {
        self.array().map(StreamId::from_bytes)
    }

    fn time(&mut self) -> Result<i64, Error> {
        self.array().map(i64::from_le_bytes)
    }
}
