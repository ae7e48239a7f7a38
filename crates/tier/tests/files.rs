//! A tier over real files.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tier::files::{Backend, Files};
use tier::{Location, Owners, Refused, Relocation, Settings, Tier};

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

fn values_come_back_and_files_go(backend: Backend) {
    let folder = Folder::new(&format!("tier-{backend:?}"));
    std::fs::write(folder.0.join("dunlin-tier-7.segment"), "of an earlier process")
        .expect("it can");
    std::fs::write(folder.0.join("somebody-else"), "stays").expect("it can be written");
    let files = Arc::new(folder.open(backend).expect("it is free"));
    assert!(!folder.names().contains(&"dunlin-tier-7.segment".to_owned()));
    let settings =
        Settings { segment_bytes: 1 << 20, max_bytes: 0, buffer_bytes: 4 << 20, streams: 1 };
    let tier = Tier::new(Arc::clone(&files) as Arc<_>, settings).expect("it is possible");
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
fn a_folder_belongs_to_one_process() {
    let folder = Folder::new("tier-lock");
    let first = folder.open(Backend::Uring).expect("it is free");
    let error = folder.open(Backend::Uring).err().expect("it is in use");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    first.close();
    folder.open(Backend::Uring).expect("it is free again").close();
}

/// A writer that is as fast as can be uses segments up while new ones are made. That is no full tier.
#[test]
fn a_tier_that_can_grow_is_never_full() {
    let folder = Folder::new("tier-grows");
    let files = Arc::new(folder.open(Backend::Uring).expect("it is free"));
    let settings =
        Settings { segment_bytes: 1 << 20, max_bytes: 0, buffer_bytes: 4 << 20, streams: 1 };
    let tier = Tier::new(Arc::clone(&files) as Arc<_>, settings).expect("it is possible");
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
