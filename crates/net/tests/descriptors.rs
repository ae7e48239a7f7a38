//! Running out of descriptors: accepting pauses instead of spinning, and goes on when there are
//! some again. A program of its own, since the limit is the whole process's; one test, for the same
//! reason.
#![allow(unsafe_code)] // Setting a resource limit and reading the processor time: plain structs.
#![allow(clippy::unwrap_used)] // A test's helpers are tests.

#[path = "sockets/support/mod.rs"]
mod support;

use net::{Backend, Kind, NetOptions};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::{Peer, Server};

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
    for backend in [Backend::Uring, Backend::Epoll] {
        if backend == Backend::Uring
            && let Err(why) = Backend::probe()
        {
            println!("SKIPPED: {why}");
            continue;
        }
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
