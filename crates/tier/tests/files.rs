//! A tier over real files.
#![allow(unsafe_code)] // eventfd(2)

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tier::files::{Backend, Files};
use tier::{Location, Owners, Payload, Refused, Relocation, Settings, Tier};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        Folder(folder)
    }

    fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.0).expect("the folder is there");
        let name = |file: std::io::Result<std::fs::DirEntry>| {
            file.expect("it can be listed").file_name().to_string_lossy().into_owned()
        };
        files.map(name).collect()
    }

    fn open(&self, backend: Backend) -> std::io::Result<Files> {
        Files::open(&self.0, backend, &|run| std::thread::Builder::new().spawn(run))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Another test does not need it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct NoOwners;

impl Owners for NoOwners {
    fn relocate(
        &self,
        _: u64,
        _: Location,
        _: &mut dyn FnMut() -> Result<Location, Refused>,
    ) -> Relocation {
        Relocation::Gone
    }
}

#[test]
fn values_come_back_and_files_go_with_threads() {
    values_come_back_and_files_go(Backend::Threads);
}

#[test]
fn values_come_back_and_files_go_with_io_uring() {
    // Where it is refused these are threads, too.
    values_come_back_and_files_go(Backend::Uring);
}

fn tier_over(files: &Arc<Files>) -> Arc<Tier> {
    let settings =
        Settings { segment_bytes: 1 << 20, max_bytes: 0, buffer_bytes: 4 << 20, streams: 1 };
    Tier::new(Arc::clone(files) as Arc<_>, settings).expect("it is possible")
}

/// Appends values, until the disk has most of them; their places.
fn fill(tier: &Arc<Tier>) -> Vec<(Location, Vec<u8>)> {
    let mut kept = Vec::new();
    for number in 0..3000u32 {
        let payload = number.to_le_bytes().repeat(1 + number as usize % 600);
        let location = loop {
            match tier.append(0, u64::from(number), 0, &payload) {
                Ok(location) => break location,
                Err(Refused::Busy | Refused::Full) => tier.maintain(&NoOwners),
                Err(refused) => panic!("{refused:?}"),
            }
        };
        kept.push((location, payload));
    }
    // The writes are other threads'.
    let end = Instant::now() + Duration::from_secs(20);
    while tier.figures().disk_write_bytes <= 1 << 20 {
        assert!(Instant::now() < end, "{:?}", tier.figures());
        tier.maintain(&NoOwners);
        std::thread::sleep(Duration::from_millis(1));
    }
    kept
}

fn values_come_back_and_files_go(backend: Backend) {
    let folder = Folder::new(&format!("tier-{backend:?}"));
    std::fs::write(folder.0.join("dunlin-tier-7.segment"), "of an earlier process")
        .expect("it can");
    std::fs::write(folder.0.join("somebody-else"), "stays").expect("it can be written");
    let files = Arc::new(folder.open(backend).expect("it is free"));
    assert!(!folder.names().contains(&"dunlin-tier-7.segment".to_owned()));
    let tier = tier_over(&files);
    let mut kept = fill(&tier);
    assert!(tier.figures().segments >= 4, "{:?}", tier.figures());
    for (location, payload) in &kept {
        assert!(tier.read(*location).as_ref() == Ok(payload));
    }
    assert!(tier.figures().read_bytes > 1 << 20);
    kept.drain(..).for_each(|(location, _)| tier.release(location));
    tier.maintain(&NoOwners);
    assert_eq!((tier.figures().values, tier.figures().live_bytes), (0, 0));
    files.close();
    assert_eq!(folder.names(), ["somebody-else"]);
}

#[test]
fn a_tier_that_is_closed_can_be_written_to() {
    for backend in [Backend::Threads, Backend::Uring] {
        let folder = Folder::new(&format!("tier-closed-{backend:?}"));
        let files = Arc::new(folder.open(backend).expect("it is free"));
        let tier = tier_over(&files);
        let _ = fill(&tier);
        files.close();
        // Threads that nothing has told of the end go on until the process is over. What they write
        // goes nowhere.
        let payload = vec![7; 100_000];
        for number in 0..100 {
            let _ = tier.append(0, number, 0, &payload);
        }
        tier.maintain(&NoOwners);
    }
}

#[test]
fn a_folder_belongs_to_one_process() {
    let folder = Folder::new("tier-lock");
    let first = folder.open(Backend::Uring).expect("it is free");
    let error = folder.open(Backend::Uring).err().expect("it is in use");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    first.close();
    folder.open(Backend::Uring).expect("it is free again").close();
}

/// A writer that is as fast as can be uses segments up while new ones are made. That is no full
/// tier.
#[test]
fn a_tier_that_can_grow_is_never_full() {
    let folder = Folder::new("tier-grows");
    let files = Arc::new(folder.open(Backend::Uring).expect("it is free"));
    let tier = tier_over(&files);
    tier.maintain(&NoOwners);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    tier.on_room(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let writer = Arc::clone(&tier);
    let writer = std::thread::spawn(move || {
        let (payload, mut busy) = (vec![7; 100_000], 0);
        for number in 0..1000 {
            while let Err(refused) = writer.append(0, number, 0, &payload) {
                assert_eq!(refused, Refused::Busy);
                busy += 1;
                std::thread::yield_now();
            }
        }
        busy
    });
    while !writer.is_finished() {
        tier.maintain(&NoOwners);
    }
    let busy = writer.join().expect("it is never refused for long");
    files.close();
    assert!(busy == 0 || calls.load(Ordering::Relaxed) > 0, "refused {busy} times and not told");
}

/// As a reactor does: reads are asked for, begun at the end of a turn, and told of at the beginning
/// of one.
#[test]
fn a_thread_reads_through_a_ring_of_its_own() {
    let folder = Folder::new("tier-own-ring");
    let files = Arc::new(folder.open(Backend::Uring).expect("it is free"));
    if files.backend() == Backend::Threads {
        println!("SKIPPED: io_uring is refused here");
        return;
    }
    let tier = tier_over(&files);
    let kept = fill(&tier);
    let of_tier = Arc::clone(&tier);
    let reader = std::thread::spawn(move || {
        let tier = of_tier;
        let event = event_descriptor();
        tier::own_ring::begin(event.as_raw_fd()).expect("rings are to be had");
        let this = std::thread::current().id();
        let told = Arc::new(AtomicUsize::new(0));
        // More than the ring holds: the rest comes by other threads.
        let (few, many) = kept.split_at(100);
        for (location, payload) in few {
            let (told, payload) = (Arc::clone(&told), payload.clone());
            let done = move |mut results: Vec<Payload>| {
                assert_eq!(results.pop(), Some(Ok(payload)));
                assert_eq!(std::thread::current().id(), this, "no other thread was asked");
                told.fetch_add(1, Ordering::SeqCst);
            };
            tier.fetch(&[*location], Box::new(done));
        }
        tier::own_ring::flush();
        while told.load(Ordering::SeqCst) < few.len() {
            // It is written to when one has ended.
            (&event).read_exact(&mut [0; 8]).expect("it is open");
            tier::own_ring::reap();
        }
        let locations: Vec<Location> = many.iter().map(|(location, _)| *location).collect();
        let (to_us, all) = std::sync::mpsc::channel();
        tier.fetch(&locations, Box::new(move |results| to_us.send(results).expect("we wait")));
        // One that is waited for brings the others along.
        for (location, payload) in kept.iter().step_by(100) {
            assert!(tier.read(*location).as_ref() == Ok(payload));
        }
        tier::own_ring::flush();
        let results = loop {
            tier::own_ring::reap();
            match all.try_recv() {
                Ok(results) => break results,
                Err(_) => std::thread::yield_now(),
            }
        };
        assert!(
            results.iter().zip(many).all(|(result, (_, payload))| result.as_ref() == Ok(payload))
        );
        // It ends with reads under way.
        tier.fetch(&locations, Box::new(|_| {}));
        tier::own_ring::flush();
    });
    reader.join().expect("all came");
    files.close();
}

fn event_descriptor() -> std::fs::File {
    // SAFETY: no memory is passed.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new, and this is its only owner.
    unsafe { std::fs::File::from_raw_fd(descriptor) }
}
