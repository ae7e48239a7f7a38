//! A tier over a simulated disk, in one thread: a seed decides what is done, in which order the
//! disk completes it, and what goes wrong. `SEED=n` repeats one of them; `SEEDS=n` runs more.
//!
//! Whatever happens, a value is what was put or cannot be read; the latter only if the disk has
//! damaged it or has failed. When all is over, nothing is left.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use structs::aligned::ALIGNMENT;
use tier::{
    Disk, Location, Operation, Owners, ReadError, Refused, Relocation, Settings, Tier, Work,
};

const SEGMENT: u64 = 1 << 20;

/// xorshift: a seed gives the same numbers for ever.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
    fn one_in(&mut self, count: u64) -> bool {
        count > 0 && self.below(count) == 0
    }
}

/// How often things go wrong: once in so many operations, 0 for never.
#[derive(Clone, Copy, Default)]
struct Faults {
    read_fails: u64,
    write_fails: u64,
    is_short: u64,
    /// A bit is wrong in what is read; on the disk it is right.
    flips: u64,
    /// A write that is reported as done has not reached the disk whole.
    is_torn: u64,
}

struct State {
    rng: Rng,
    faults: Faults,
    segments: HashMap<u32, Vec<u8>>,
    /// Segments that there is room for.
    capacity: usize,
    waiting: Vec<Operation>,
    /// Segments with torn writes in them, for good.
    torn: Vec<u32>,
}

struct Simulated(Mutex<State>);

impl Simulated {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no other thread")
    }

    /// Completes one operation, whichever; `false` if there is none.
    fn step(&self) -> bool {
        let mut state = self.state();
        let State { rng, faults, segments, waiting, torn, .. } = &mut *state;
        if waiting.is_empty() {
            return false;
        }
        let chosen = rng.below(waiting.len() as u64) as usize;
        let Operation { segment, offset, len, work, done } = waiting.swap_remove(chosen);
        let file = segments.get_mut(&segment).expect("the segment exists");
        let place = offset as usize..offset as usize + len;
        assert!(
            (offset as usize).is_multiple_of(ALIGNMENT)
                && len.is_multiple_of(ALIGNMENT)
                && place.end <= file.len()
        );
        let short = rng.below(len as u64 + 1) as usize;
        let eio = || io::Error::from_raw_os_error(5);
        let (work, result) = match work {
            Work::Read(mut bytes) => {
                bytes[..len].copy_from_slice(&file[place]);
                let result = if rng.one_in(faults.read_fails) {
                    Err(eio())
                } else if rng.one_in(faults.is_short) {
                    bytes[short..len].fill(0xee);
                    Ok(short)
                } else {
                    if rng.one_in(faults.flips) {
                        bytes[short.min(len - 1)] ^= 1 << rng.below(8);
                    }
                    Ok(len)
                };
                (Work::Read(bytes), result)
            }
            Work::Write(bytes) => {
                let is_torn = rng.one_in(faults.is_torn);
                let (written, result) = if rng.one_in(faults.write_fails) {
                    (short, Err(eio()))
                } else if rng.one_in(faults.is_short) {
                    (short, Ok(short))
                } else if is_torn {
                    torn.push(segment);
                    (short, Ok(len))
                } else {
                    (len, Ok(len))
                };
                file[offset as usize..][..written].copy_from_slice(&bytes[..written]);
                (Work::Write(bytes), result)
            }
        };
        drop(state);
        done(work, result);
        true
    }
}

impl Disk for Simulated {
    fn create(&self, segment: u32, bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.segments.len() >= state.capacity {
            return Err(io::Error::from_raw_os_error(28));
        }
        // What was on the disk before shows through: it must not be taken for a record.
        assert!(state.segments.insert(segment, vec![0xaa; bytes as usize]).is_none());
        Ok(())
    }
    fn remove(&self, segment: u32) -> io::Result<()> {
        let mut state = self.state();
        assert!(state.waiting.iter().all(|operation| operation.segment != segment));
        assert!(state.segments.remove(&segment).is_some());
        Ok(())
    }
    fn submit(&self, operations: Vec<Operation>) {
        self.state().waiting.extend(operations);
    }
    fn poll(&self) -> bool {
        self.step()
    }
}

struct Value {
    hash: u64,
    location: Location,
    payload: Vec<u8>,
}

/// The values that a snapshot needs, with their places at its instant.
type Taken = Vec<(Location, Vec<u8>)>;

/// The owners of values, and the values that a snapshot has pinned.
#[derive(Default)]
struct Keys {
    tier: OnceLock<Arc<Tier>>,
    values: Mutex<Vec<Value>>,
    snapshot: Mutex<Option<Taken>>,
    is_held: Mutex<bool>,
    /// Nothing can be looked at: the world is stopped, as it were.
    is_stopped: Mutex<bool>,
}

impl Keys {
    fn values(&self) -> MutexGuard<'_, Vec<Value>> {
        self.values.lock().expect("no other thread")
    }
    fn snapshot(&self) -> MutexGuard<'_, Option<Taken>> {
        self.snapshot.lock().expect("no other thread")
    }
}

impl Owners for Keys {
    fn relocate(
        &self,
        hash: u64,
        from: Location,
        append: &mut dyn FnMut() -> Result<Location, Refused>,
    ) -> Relocation {
        if *self.is_stopped.lock().expect("no other thread") {
            return Relocation::Later;
        }
        let mut values = self.values();
        let found = values.iter_mut().find(|value| value.hash == hash && value.location == from);
        let Some(value) = found else { return Relocation::Gone };
        if *self.is_held.lock().expect("no other thread") {
            return Relocation::Held;
        }
        match append() {
            Ok(location) => {
                value.location = location;
                let tier = self.tier.get().expect("it is set at once");
                if tier.unmark(from) {
                    tier.mark(location);
                }
                Relocation::Moved
            }
            Err(refused) => Relocation::Refused(refused),
        }
    }
}

/// What has been met, so that a test that meets nothing fails.
#[derive(Default, Debug)]
struct Met {
    moved: u64,
    full: u64,
    failing: u64,
    busy: u64,
    read_errors: u64,
    snapshot_reads: u64,
    swept: u64,
}

struct Run {
    rng: Rng,
    disk: Arc<Simulated>,
    tier: Arc<Tier>,
    keys: Keys,
    faults: Faults,
    met: Met,
}

impl Run {
    fn new(seed: u64, faults: Faults) -> Run {
        let mut rng = Rng::new(seed);
        let limited = rng.one_in(2);
        let segments = 8 + rng.below(8);
        Run::on_disk(seed, faults, rng, limited, segments)
    }

    /// On a disk that has room for so many segments, or with a limit of so many.
    fn on_disk(seed: u64, faults: Faults, mut rng: Rng, limited: bool, segments: u64) -> Run {
        let disk = Arc::new(Simulated(Mutex::new(State {
            rng: Rng::new(seed ^ 0xd15c),
            faults,
            segments: HashMap::new(),
            capacity: if limited { usize::MAX } else { segments as usize },
            waiting: Vec::new(),
            torn: Vec::new(),
        })));
        let settings = Settings {
            segment_bytes: SEGMENT,
            max_bytes: if limited { segments * SEGMENT } else { 0 },
            buffer_bytes: 1 << 20,
            streams: 1 + rng.below(2) as usize,
        };
        let tier = Tier::new(Arc::clone(&disk) as Arc<dyn Disk>, settings).expect("it is possible");
        let run = Run { rng, disk, tier, keys: Keys::default(), faults, met: Met::default() };
        assert!(run.keys.tier.set(Arc::clone(&run.tier)).is_ok());
        run.tier.maintain(&run.keys);
        run
    }

    fn put(&mut self) {
        let size = match self.rng.below(20) {
            0 => self.rng.below(400_000),
            1..4 => self.rng.below(100),
            _ => self.rng.below(30_000),
        };
        let fill = self.rng.next();
        let payload: Vec<u8> = (0..size).map(|at| (at ^ fill).to_le_bytes()[0]).collect();
        // Few hashes, so that several values share one.
        let hash = self.rng.below(50);
        let stream = self.rng.below(7) as usize;
        match self.tier.append(stream, hash, (hash % 7) as u8, &payload) {
            Ok(location) => self.keys.values().push(Value { hash, location, payload }),
            Err(Refused::Busy) => self.met.busy += 1,
            Err(Refused::Full) => self.met.full += 1,
            Err(Refused::Failing) => self.met.failing += 1,
            Err(Refused::TooLong) => panic!("{size} bytes are not too long"),
        }
    }

    fn check(&mut self, location: Location, expected: &[u8], result: Result<Vec<u8>, ReadError>) {
        match result {
            Ok(payload) => assert!(payload == expected, "a wrong value is returned"),
            Err(_) => {
                let is_torn = self.disk.state().torn.contains(&segment_of(location));
                let Faults { read_fails, flips, is_short, .. } = self.faults;
                assert!(is_torn || read_fails + flips + is_short > 0, "nothing has failed");
                self.met.read_errors += 1;
            }
        }
    }

    /// Reads some values at once; a few of them are released before they arrive.
    fn get(&mut self) {
        let count = self.keys.values().len() as u64;
        if count == 0 {
            return;
        }
        let wanted: Vec<usize> =
            (0..1 + self.rng.below(8)).map(|_| self.rng.below(count) as usize).collect();
        let values = self.keys.values();
        let expected = wanted.iter().map(|&at| (values[at].location, values[at].payload.clone()));
        let expected: Vec<(Location, Vec<u8>)> = expected.collect();
        drop(values);
        let locations: Vec<Location> = expected.iter().map(|(location, _)| *location).collect();
        let arrived = Arc::new(Mutex::new(None));
        let told = Arc::clone(&arrived);
        let done = move |results| *told.lock().expect("no other thread") = Some(results);
        self.tier.fetch(&locations, Box::new(done));
        // Reuse of a segment races the reads of it.
        while arrived.lock().expect("no other thread").is_none() {
            match self.rng.below(6) {
                0 => self.delete(),
                1 => self.tier.maintain(&self.keys),
                _ => assert!(self.disk.step(), "a read is lost"),
            }
        }
        let results = arrived.lock().expect("no other thread").take().expect("it is there");
        for ((location, payload), result) in expected.iter().zip(results) {
            self.check(*location, payload, result);
        }
    }

    fn delete(&mut self) {
        let mut values = self.keys.values();
        let count = values.len() as u64;
        if count > 0 {
            let value = values.swap_remove(self.rng.below(count) as usize);
            drop(values);
            if self.tier.unmark(value.location) {
                // The snapshot needs it as it was.
                self.tier.pin(value.location);
                let mut snapshot = self.keys.snapshot();
                let pinned = snapshot.as_mut().expect("only a snapshot marks");
                pinned.push((value.location, value.payload.clone()));
            }
            self.tier.release(value.location);
        }
    }

    fn rename(&mut self) {
        let mut values = self.keys.values();
        let count = values.len() as u64;
        if count > 0 {
            let value = &mut values[self.rng.below(count) as usize];
            value.hash = 1000 + self.rng.below(1000);
            self.tier.rename(value.location, value.hash);
        }
    }

    /// Begins a snapshot, which marks most values and pins the others, or reads what the one under
    /// way needs.
    fn snapshot(&mut self) {
        if self.keys.snapshot().is_some() {
            return self.end_snapshot();
        }
        let mut pinned = Vec::new();
        for value in self.keys.values().iter() {
            if self.rng.one_in(4) {
                self.tier.pin(value.location);
                pinned.push((value.location, value.payload.clone()));
            } else {
                self.tier.mark(value.location);
            }
        }
        *self.keys.snapshot() = Some(pinned);
    }

    fn end_snapshot(&mut self) {
        // Now and then one is given up.
        let is_complete = !self.rng.one_in(8) && self.sweep_all();
        let pinned = self.keys.snapshot().take().expect("one is under way");
        for (location, payload) in pinned {
            let result = self.tier.read(location);
            self.check(location, &payload, result);
            self.tier.unpin(location);
            self.met.snapshot_reads += 1;
        }
        if is_complete {
            let values = self.keys.values();
            assert!(!values.iter().any(|value| self.tier.is_marked(value.location)));
        }
        self.tier.forget_snapshot();
    }

    /// Reads all marked values, while others come and go and are moved; whether all could be read.
    fn sweep_all(&mut self) -> bool {
        while let Some(mut sweep) = self.tier.sweep() {
            loop {
                match self.rng.below(12) {
                    0 => self.delete(),
                    1 => self.put(),
                    2 => self.tier.maintain(&self.keys),
                    3 => drop(self.disk.step()),
                    _ => {}
                }
                match sweep.next_marked() {
                    Ok(None) => break,
                    Ok(Some(swept)) => {
                        assert!(self.tier.unmark(swept.location), "nothing comes in between");
                        let values = self.keys.values();
                        let owner = values
                            .iter()
                            .find(|it| it.hash == swept.hash && it.location == swept.location);
                        let owner = owner.expect("what is marked has an owner");
                        assert!(owner.payload == swept.payload, "a wrong value is swept");
                        self.met.swept += 1;
                    }
                    Err(_) => {
                        let Faults { read_fails, flips, is_short, .. } = self.faults;
                        let is_torn = !self.disk.state().torn.is_empty();
                        assert!(is_torn || read_fails + flips + is_short > 0, "nothing has failed");
                        return false;
                    }
                }
            }
        }
        true
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..50 => self.put(),
            50..58 => self.delete(),
            58..70 => self.get(),
            70..75 => self.rename(),
            75 if self.keys.snapshot().is_some() || self.rng.one_in(8) => self.snapshot(),
            76 => {
                let mut held = self.keys.is_held.lock().expect("no other thread");
                *held = !*held && self.rng.one_in(8);
                let mut stopped = self.keys.is_stopped.lock().expect("no other thread");
                *stopped = !*stopped && self.rng.one_in(8);
            }
            75 | 77..82 => self.tier.maintain(&self.keys),
            82 => (0..120).for_each(|_| self.delete()),
            _ => drop(self.disk.step()),
        }
        let figures = self.tier.figures();
        assert_eq!(figures.values, self.keys.values().len() as u64);
        // What may be in memory, what the cleaner may have beside, and pieces kept for the next.
        assert!(figures.buffer_bytes <= (1 << 20) + (4 + 8) * (256 << 10), "{figures:?}");
    }

    /// Without faults everything can be read that is not torn, and nothing is left in the end.
    fn finish(&mut self) {
        self.disk.state().faults = Faults::default();
        self.faults = Faults::default();
        if self.keys.snapshot().is_some() {
            self.snapshot();
        }
        *self.keys.is_held.lock().expect("no other thread") = false;
        *self.keys.is_stopped.lock().expect("no other thread") = false;
        for _ in 0..3 {
            self.tier.maintain(&self.keys);
            while self.disk.step() {}
        }
        let all: Vec<(Location, Vec<u8>)> =
            self.keys.values().iter().map(|it| (it.location, it.payload.clone())).collect();
        for (location, payload) in all {
            let result = self.tier.read(location);
            self.check(location, &payload, result);
        }
        self.met.moved = self.tier.figures().rewritten;
        while !self.keys.values().is_empty() {
            self.delete();
        }
        self.tier.maintain(&self.keys);
        let figures = self.tier.figures();
        assert_eq!((figures.values, figures.live_bytes, figures.reads_in_flight), (0, 0, 0));
        assert_eq!(figures.writes_failing, 0);
        // At most one segment a stream is still open.
        assert!(figures.segments - figures.segments_free <= 3, "{figures:?}");
        let (segments, files) = (figures.segments, self.disk.state().segments.len());
        assert_eq!(segments, files as u64);
    }
}

fn segment_of(location: Location) -> u32 {
    (location.to_bits() >> 44) as u32
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(default),
    }
}

fn run(faults: impl Fn(u64) -> Faults, count: u64) -> Met {
    let mut total = Met::default();
    for seed in seeds(count) {
        println!("SEED={seed}");
        let mut run = Run::new(seed, faults(seed));
        for _ in 0..4000 {
            run.step();
        }
        run.finish();
        total.moved += run.met.moved;
        total.full += run.met.full;
        total.failing += run.met.failing;
        total.busy += run.met.busy;
        total.read_errors += run.met.read_errors;
        total.snapshot_reads += run.met.snapshot_reads;
        total.swept += run.met.swept;
    }
    println!("{total:?}");
    total
}

#[test]
fn a_disk_that_works_loses_nothing() {
    let met = run(|_| Faults::default(), 40);
    assert_eq!((met.read_errors, met.failing), (0, 0));
    assert!(met.moved > 0 && met.full > 0 && met.busy > 0, "{met:?}");
    assert!(met.snapshot_reads > 0 && met.swept > 0, "{met:?}");
}

#[test]
fn a_disk_that_fails_never_gives_wrong_values() {
    let faults = |seed| {
        let mut rng = Rng::new(seed ^ 0xfa17);
        let mut often = |most: u64| if rng.one_in(3) { 0 } else { 5 + rng.below(most) };
        Faults {
            read_fails: often(100),
            write_fails: often(50),
            is_short: often(60),
            flips: often(100),
            is_torn: often(200),
        }
    };
    let met = run(faults, 60);
    assert!(met.failing > 0 && met.read_errors > 0 && met.moved > 0, "{met:?}");
}

#[test]
fn a_value_that_is_too_long_is_refused() {
    let run = Run::new(1, Faults::default());
    let longest = vec![7; run.tier.max_payload()];
    assert!(run.tier.append(0, 1, 0, &longest).is_ok());
    assert_eq!(run.tier.append(0, 1, 0, &[&longest[..], b"x"].concat()), Err(Refused::TooLong));
}

#[test]
fn what_is_not_on_the_disk_yet_can_be_read() {
    let run = Run::new(2, Faults::default());
    let location = run.tier.append(0, 9, 1, b"value").expect("there is room");
    assert_eq!(run.tier.read(location).as_deref(), Ok(&b"value"[..]));
    let figures = run.tier.figures();
    assert_eq!((figures.reads, figures.reads_from_memory), (1, 1));
}

/// On a disk with room for few segments most of them are open when everything goes.
#[test]
fn a_full_tier_resumes_when_its_values_go() {
    let mut run = Run::on_disk(1, Faults::default(), Rng::new(1), false, 4);
    let payload = vec![7; 100_000];
    let fill = |run: &mut Run| {
        let mut refused = 0;
        while refused < 20 {
            match run.tier.append(refused, 1, 0, &payload) {
                Ok(location) => {
                    let payload = payload.clone();
                    run.keys.values().push(Value { hash: 1, location, payload });
                }
                Err(_) => {
                    refused += 1;
                    while run.disk.step() {}
                    run.tier.maintain(&run.keys);
                }
            }
        }
    };
    for _ in 0..5 {
        fill(&mut run);
        assert!(run.tier.is_full(), "{:?}", run.tier.figures());
        let half = run.keys.values().len() / 2;
        (0..half).for_each(|_| run.delete());
        fill(&mut run);
        let all = run.keys.values().len();
        (0..all).for_each(|_| run.delete());
        for _ in 0..4 {
            while run.disk.step() {}
            run.tier.maintain(&run.keys);
        }
        let figures = run.tier.figures();
        assert_eq!((figures.values, figures.is_full), (0, false), "{figures:?}");
    }
}

/// What has stopped the world may be waiting for a segment.
#[test]
fn segments_are_made_while_nothing_can_be_moved() {
    let mut run = Run::new(1, Faults::default());
    run.disk.state().capacity = usize::MAX;
    let payload = vec![7; 200_000];
    let append = |run: &mut Run, count: usize| {
        let before = run.keys.values().len();
        while run.keys.values().len() < before + count {
            match run.tier.append(0, 1, 0, &payload) {
                Ok(location) => {
                    let payload = payload.clone();
                    run.keys.values().push(Value { hash: 1, location, payload });
                }
                Err(_) => {
                    while run.disk.step() {}
                    run.tier.maintain(&run.keys);
                }
            }
        }
    };
    append(&mut run, 80);
    *run.keys.is_stopped.lock().expect("no other thread") = true;
    (0..60).for_each(|_| run.delete());
    // More than half is waste, so that cleaning is due.
    append(&mut run, 8);
    *run.keys.is_stopped.lock().expect("no other thread") = false;
    run.finish();
    assert!(run.met.moved > 0);
}
