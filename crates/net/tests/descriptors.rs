//! Running out of descriptors: accepting pauses instead of spinning, and goes on when there are
//! some again; and it does not happen because others wait to be closed. A program of its own, since
//! the limit is the whole process's; its tests take turns, for the same reason.
#![allow(unsafe_code)] // Setting a resource limit and reading the processor time: plain structs.
#![allow(clippy::unwrap_used)] // A test's helpers are tests.

#[path = "sockets/support/mod.rs"]
mod support;

use net::{Admission, Backend, Kind, NetOptions};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use structs::sync::lock;
use support::{Note, Peer, Server};

/// Held by the test that uses the limit.
static LIMIT: Mutex<()> = Mutex::new(());

fn backends() -> impl Iterator<Item = Backend> {
    let probed = Backend::probe();
    if let Err(why) = &probed {
        println!("SKIPPED: {why}");
    }
    let uring = probed.is_ok().then_some(Backend::Uring);
    uring.into_iter().chain([Backend::Epoll])
}

fn set_limit(soft: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = soft;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn accepting_rests_when_descriptors_run_out() {
    let _alone = lock(&LIMIT);
    for backend in backends() {
        let unused = descriptors();
        let options = NetOptions { backend, ..NetOptions::default() };
        let mut streams = Vec::new();
        let mut before = 0;
        let server = Server::after(
            options,
            |_| vec![Server::anywhere(Kind::Tcp)],
            |address| {
                // These are complete for the kernel, but wait to be accepted.
                streams.extend((0..20).map(|_| TcpStream::connect(address).unwrap()));
                // Room for about half of them.
                before = set_limit(descriptors() as u64 + 10);
            },
        );
        let problem = server.watch.problem();
        assert!(problem.contains("Too many open files"), "{problem}");
        let (start, spent) = (Instant::now(), processor_time());
        let mut first = Peer::new(streams.remove(0));
        assert_eq!(first.ask("echo still served"), "still served");
        std::thread::sleep(Duration::from_millis(400));
        let share = (processor_time() - spent).as_secs_f64() / start.elapsed().as_secs_f64();
        assert!(share < 0.5, "{share:.2} of a processor while nothing can be done");
        set_limit(before);
        for stream in streams {
            assert_eq!(Peer::new(stream).ask("echo at last"), "at last");
        }
        drop((first, server));
        assert_eq!(descriptors(), unused, "descriptors were lost");
    }
}

/// All clients end while others wait at several listeners: those that come and those that are not
/// closed yet have the descriptors of one crowd. Half as many come, so that a thread that sees them
/// before the other one sees the end of its own has room for them.
#[test]
fn connections_that_wait_to_be_closed_take_no_descriptors_from_new_ones() {
    const CROWD: usize = 64;
    const LISTENERS: usize = 8;
    let _alone = lock(&LIMIT);
    for backend in backends() {
        let admission = Admission { max_open: CROWD, ..Admission::default() };
        let options = NetOptions { backend, threads: 2, admission, ..NetOptions::default() };
        let server = Server::with(options, |_| vec![Server::anywhere(Kind::Tcp); LISTENERS]);
        let addresses = server.net.addresses();
        assert_eq!(addresses.len(), LISTENERS);
        let connect = |at: usize| TcpStream::connect(addresses[at % LISTENERS]).unwrap();
        let mut first: Vec<Peer> = (0..CROWD).map(|at| Peer::new(connect(at))).collect();
        let threads: Vec<usize> = first.iter_mut().map(|peer| peer.id().thread()).collect();
        // What follows is there when the threads look again, and so belongs to one turn of each.
        for thread in 0..2 {
            let at = threads.iter().position(|its| *its == thread).unwrap();
            first[at].say("block 300\n");
        }
        drop(first);
        let second: Vec<TcpStream> = (0..CROWD / 2).map(connect).collect();
        let before = set_limit(descriptors() as u64 + 4);
        for stream in second {
            assert_eq!(Peer::new(stream).ask("echo in"), "in");
        }
        set_limit(before);
        let is_problem = |note: &&Note| matches!(note, Note::Problem(_));
        let problem = server.watch.until(|notes| Some(notes.iter().find(is_problem).cloned()));
        assert_eq!(problem, None, "{backend:?}");
    }
}
