//! The few system calls that the standard library lacks, each wrapped so that callers stay safe:
//! epoll with nanosecond timeouts, connecting without waiting, netlink, the descriptor limit, a
//! thread's CPU time, counted events, the processors of a thread, and counting Ctrl-C.

#![allow(unsafe_code)]
// The calls below have no safe counterpart in `std`; every pointer handed over lives on the
// caller's stack for the duration of the call.

use std::fs::File;
use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What epoll reports of one descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// The token the descriptor was added with.
    pub token: u64,
    /// There is something to read, or the connection has ended.
    pub readable: bool,
    /// There is room to write, or the connection was made.
    pub writable: bool,
    /// The other side will send no more.
    pub ended: bool,
}

/// An epoll instance, edge-triggered.
pub struct Epoll {
    descriptor: OwnedFd,
    buffer: Vec<libc::epoll_event>,
    ready: usize,
}

impl Epoll {
    /// An instance that reports up to `batch` events a call.
    pub fn new(batch: usize) -> io::Result<Epoll> {
        // SAFETY: no pointers; the result is checked before it is used.
        let descriptor = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just made and has no other owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let buffer = vec![libc::epoll_event { events: 0, u64: 0 }; batch];
        Ok(Epoll { descriptor, buffer, ready: 0 })
    }

    /// Watches a descriptor for everything. Closing the descriptor ends it.
    pub fn add(&self, watched: &impl AsRawFd, token: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: both descriptors are open, and the event outlives the call.
        check(unsafe {
            libc::epoll_ctl(
                self.descriptor.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                watched.as_raw_fd(),
                &mut event,
            )
        })?;
        Ok(())
    }

    /// Waits for events, at most `timeout`; their number. An interrupted wait has none.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<usize> {
        let time = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let (pointer, room) = (self.buffer.as_mut_ptr(), self.buffer.len() as libc::c_int);
        // SAFETY: the buffer has `room` entries, the time outlives the call, no signal mask is set.
        let mut count = unsafe {
            libc::epoll_pwait2(self.descriptor.as_raw_fd(), pointer, room, &time, ptr::null())
        };
        if count < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
            // Before Linux 5.11: milliseconds, rounded up.
            let milliseconds = timeout.as_nanos().div_ceil(1_000_000).min(60_000) as libc::c_int;
            // SAFETY: as above.
            count = unsafe {
                libc::epoll_wait(self.descriptor.as_raw_fd(), pointer, room, milliseconds)
            };
        }
        self.ready = match check(count) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(self.ready)
    }

    /// The `index`-th event of the last wait.
    pub fn event(&self, index: usize) -> Event {
        assert!(index < self.ready, "an event of the last wait");
        let libc::epoll_event { events, u64: token } = self.buffer[index];
        let any = |flags: libc::c_int| events & flags as u32 != 0;
        Event {
            token,
            readable: any(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
            writable: any(libc::EPOLLOUT),
            ended: any(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
        }
    }
}

/// Starts to connect; the socket is writable when that is done, and `take_error` says how.
pub fn start_connecting(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the result is checked before it is used.
    let descriptor = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the descriptor was just made and has no other owner.
    let stream = unsafe { TcpStream::from_raw_fd(descriptor) };
    let result = match address {
        SocketAddr::V4(address) => {
            let place = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            connect(descriptor, &place)
        }
        SocketAddr::V6(address) => {
            let place = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            connect(descriptor, &place)
        }
    };
    match result {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(stream),
    }
}

fn connect<T>(descriptor: RawFd, place: &T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `place` is one of the socket address structures, `length` its size.
    check(unsafe { libc::connect(descriptor, ptr::from_ref(place).cast(), length) })?;
    Ok(())
}

/// A netlink socket: what is written is a question to the kernel, what is read its answer.
pub fn netlink(protocol: libc::c_int) -> io::Result<File> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the result is checked before it is used.
    let descriptor = check(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) })?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }.into())
}

/// Raises the limit of open descriptors so that `wanted` fit; an error says what the limit is.
pub fn allow_descriptors(wanted: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    if limit.rlim_cur >= wanted {
        return Ok(());
    }
    let raised = libc::rlimit { rlim_cur: wanted, rlim_max: limit.rlim_max.max(wanted) };
    let within = libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), ..limit };
    for attempt in [raised, within] {
        // SAFETY: the structure outlives the call.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &attempt) };
        if set == 0 && attempt.rlim_cur >= wanted {
            return Ok(());
        }
    }
    Err(io::Error::other(format!(
        "so many connections need {wanted} open files, and the limit is {} (ulimit -n)",
        limit.rlim_max
    )))
}

/// Nanoseconds on the system's monotonic clock. [`std::time::Instant`] is the same; this is read
/// for every reply, and a number needs no arithmetic with carry.
#[inline]
pub fn monotonic_ns() -> u64 {
    let time = read_clock(libc::CLOCK_MONOTONIC);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time the calling thread has used so far.
pub fn thread_cpu() -> Duration {
    let time = read_clock(libc::CLOCK_THREAD_CPUTIME_ID);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[inline]
fn read_clock(id: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure outlives the call; it stays zero should the call fail.
    unsafe { libc::clock_gettime(id, &mut time) };
    time
}

/// Lets timed waits of the calling thread end when they should, not up to 50 µs later.
pub fn wake_on_time() {
    // SAFETY: no pointers. A refusal leaves the default, which is later but harmless.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}

/// Clock ticks a second, the unit of CPU times in /proc.
pub fn ticks_per_second() -> u64 {
    // SAFETY: no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|&ticks| ticks > 0).unwrap_or(100)
}

/// Bytes in a page of memory.
pub fn page_bytes() -> u64 {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|&bytes| bytes > 0).unwrap_or(4096)
}

/// Ctrl-C and SIGTERM, whichever: how many have come, and how many are only counted.
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
static COUNTED: AtomicU32 = AtomicU32::new(0);

extern "C" fn note_interrupt(_signal: libc::c_int) {
    if INTERRUPTS.fetch_add(1, Ordering::Relaxed) + 1 >= COUNTED.load(Ordering::Relaxed) {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: `signal` may be called in a handler, and the default action needs no
            // function.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// From now on the first `count` Ctrl-C (or SIGTERM) are counted; one more ends the process as
/// usual.
pub fn count_interrupts(count: u32) {
    COUNTED.store(count, Ordering::Relaxed);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: a zeroed sigaction is valid; the handler does only what is allowed in one.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = note_interrupt as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

/// Whether Ctrl-C was pressed since [`count_interrupts`]: what was begun is brought to its end.
pub fn interrupted() -> bool {
    INTERRUPTS.load(Ordering::Relaxed) > 0
}

/// Whether it was pressed again: nothing is waited for any more.
pub fn interrupted_again() -> bool {
    INTERRUPTS.load(Ordering::Relaxed) > 1
}

/// Returns the processors that the calling thread may use, in ascending order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: a zeroed set is an empty one.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set outlives the call, and its size is given.
    check(unsafe { libc::sched_getaffinity(0, mem::size_of::<libc::cpu_set_t>(), &mut set) })?;
    // SAFETY: the numbers are below the size of the set.
    Ok((0..libc::CPU_SETSIZE as usize)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Lets the calling thread, and the threads and processes that it starts, run on these processors
/// alone.
pub fn run_on(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: a zeroed set is an empty one.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set outlives the call, and its size is given.
    check(unsafe { libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &set) })?;
    Ok(())
}

/// `perf_event_attr` of `linux/perf_event.h` in its first version.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_kind: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    breakpoint: u64,
}

const _: () = assert!(mem::size_of::<EventAttributes>() == 64, "the size of the first version");

/// Begins to count an event, given by type and number, in a thread and in the threads that it
/// starts from now on. What is read from the file are three words: the count, for how many
/// nanoseconds it was wanted, and for how many it ran. `user_only` leaves out the kernel's work for
/// the thread.
pub fn count_event(event: (u32, u64), thread: u32, user_only: bool) -> io::Result<File> {
    const WITH_BOTH_TIMES: u64 = 3;
    const INHERIT: u64 = 1 << 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    let attributes = EventAttributes {
        kind: event.0,
        size: mem::size_of::<EventAttributes>() as u32,
        config: event.1,
        read_format: WITH_BOTH_TIMES,
        flags: INHERIT | EXCLUDE_HYPERVISOR | if user_only { EXCLUDE_KERNEL } else { 0 },
        ..EventAttributes::default()
    };
    // SAFETY: the attributes outlive the call and say their size; the other words are numbers.
    let descriptor = check(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &attributes,
            thread as libc::pid_t,
            -1 as libc::c_int,
            -1 as libc::c_int,
            CLOSE_ON_EXEC,
        )
    } as libc::c_int)?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }.into())
}

/// Makes a command's process end with the calling thread, and run on these processors, or on those
/// of the calling thread if there are none. A terminal's Ctrl-C is not for it: it belongs to the
/// calling process to end it.
pub fn tie(command: &mut Command, cpus: &[usize]) {
    let cpus = cpus.to_vec();
    command.process_group(0);
    // SAFETY: between fork and exec only system calls are made, which is all that is allowed there.
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong))?;
            if cpus.is_empty() { Ok(()) } else { run_on(&cpus) }
        });
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
