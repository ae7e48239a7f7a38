//! Small collections go back into their entries, where they take less memory, when little is
//! written.
//!
//! A collection that is changed has a block of its own (`keyspace/src/enclosing.rs`). The thread
//! `defrag` looks at each stripe once a second, and takes in what was opened before its last look.
//! A stripe in which much is opened is left alone, so that writers pay nothing for this.

use crate::clock::Ticks;
use crate::drive::under_lock;
use crate::engine::Engine;
use keyspace::keyspace::STRIPES;
use keyspace::opened::Due;
use keyspace::tables::{StripeWalk, WalkPlace};
use keyspace::world::Reader;
use keyspace::{DbIndex, Key, StripeData};
use std::time::Duration;

/// Keys, or buckets, that are looked at under a stripe's lock.
const STRETCH: usize = 16;
/// How long it works at a stretch. Then it rests three times as long.
const WORK: Duration = Duration::from_micros(500);

/// Looks at all stripes, and frees the lists of field names that no hash uses any more.
pub fn look(engine: &'static Engine, reader: &Reader<'static>) {
    structs::field_names::collect();
    let mut work = Work { engine, reader, began: engine.clock.now() };
    for stripe in 0..STRIPES {
        let due = work.under_lock(stripe, |data| data.has_opened().then(|| data.due()));
        match due {
            None => {}
            Some(Due::These(keys)) => work.enclose(stripe, &keys),
            Some(Due::All) => work.enclose_all(stripe),
        }
    }
}

struct Work<'w> {
    engine: &'static Engine,
    reader: &'w Reader<'static>,
    began: Ticks,
}

impl Work<'_> {
    fn under_lock<R>(&self, stripe: usize, act: impl FnOnce(&mut StripeData) -> R) -> R {
        under_lock(self.engine, self.reader, stripe, act)
    }

    fn enclose(&mut self, stripe: usize, keys: &[(DbIndex, u64)]) {
        for keys in keys.chunks(STRETCH) {
            self.under_lock(stripe, |data| {
                keys.iter().for_each(|&(db, hash)| data.enclose_by_hash(db, hash));
            });
            self.rest();
        }
    }

    fn enclose_all(&mut self, stripe: usize) {
        let (mut walk, mut is_over) = (StripeWalk::default(), false);
        while !is_over {
            is_over = !self.under_lock(stripe, |data| walk.step(data, enclose_some));
            self.rest();
        }
    }

    fn rest(&mut self) {
        let busy = self.engine.clock.elapsed(self.began);
        if busy >= WORK {
            self.engine.clock.rest(3 * busy);
            self.began = self.engine.clock.now();
        }
    }
}

/// Takes in what lies in some buckets. Returns where to go on.
fn enclose_some(data: &mut StripeData, db: DbIndex, from: WalkPlace) -> Option<WalkPlace> {
    let (mut found, mut next): (Vec<Box<[u8]>>, _) = (Vec::new(), Some(from));
    for _ in 0..STRETCH {
        let Some(at) = next else { break };
        next = data.walk_all(db, at, |entry| {
            if entry.can_be_enclosed() {
                found.push(Box::from(entry.key()));
            }
        });
    }
    found.iter().for_each(|name| data.enclose(db, Key::new(name)));
    next
}
