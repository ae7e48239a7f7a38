//! The socket calls of the operating system that the standard library does not offer, each wrapped
//! once, so that the rest of the network layer has no `unsafe` for them.
//!
//! Everything here is non-blocking and close-on-exec; errors are the plain `errno` as
//! [`io::Error`].
#![allow(unsafe_code)] // Thin wrappers around libc; each call passes memory it borrows for the call.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};
use structs::heap_string::HeapString;

/// Turns a `-1` return into the `errno` behind it.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes ownership of a descriptor that a call has just returned.
fn own(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the kernel has just created `fd` for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An epoll descriptor that watches nothing yet.
pub(super) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Has waits of `epoll` ask network cards for packets for so many microseconds before they sleep.
pub(super) fn set_busy_poll(epoll: &OwnedFd, micros: u32) -> io::Result<()> {
    /// `struct epoll_params`.
    #[repr(C)]
    struct Params {
        micros: u32,
        /// Packets that a card is asked for at a time: what the kernel takes by itself.
        budget: u16,
        is_preferred: u8,
        padding: u8,
    }
    /// `EPIOCSPARAMS`: `_IOW(0x8a, 1, struct epoll_params)`.
    const SET_PARAMS: libc::c_ulong = 0x4008_8a01;
    let params = Params { micros, budget: 8, is_preferred: 0, padding: 0 };
    // SAFETY: `params` is read during the call only.
    check(unsafe { libc::ioctl(epoll.as_raw_fd(), SET_PARAMS as _, &raw const params) }).map(drop)
}

/// Has `epoll` watch for something to read or accept, under this name.
pub(super) fn watch(epoll: &OwnedFd, fd: RawFd, name: u64) -> io::Result<()> {
    let mut event =
        libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32, u64: name };
    // SAFETY: `event` is read during the call only.
    let result =
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    check(result).map(drop)
}

/// The opposite of [`watch`]. A descriptor that is not watched is no error.
pub(super) fn unwatch(epoll: &OwnedFd, fd: RawFd) {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: `event` is read during the call only.
    unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, &raw mut event) };
}

/// The names of some watched descriptors that are ready, at most `MOST`.
pub(super) fn ready<const MOST: usize>(epoll: &OwnedFd) -> impl Iterator<Item = u64> + use<MOST> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
    // SAFETY: `events` has room for `MOST` events.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), MOST as i32, 0) };
    events.into_iter().take(usize::try_from(count).unwrap_or(0)).map(|event| event.u64)
}

/// A non-blocking event counter, for waking a thread that sleeps in its reactor.
pub(super) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    own(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Adds one to an event counter. A full counter is as good as a rung one, so errors are ignored.
pub(super) fn ring_eventfd(fd: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: `one` is eight readable bytes, as an eventfd wants.
    unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}

/// Sleeps while `word` has this value, until [`futex_wake`], a signal, or for `time`.
pub(super) fn futex_wait(word: &AtomicU32, value: u32, time: Duration) {
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos() as libc::c_long,
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: both pointers are valid for the call. Why it ended is seen at the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &raw const time) };
}

/// Wakes the thread that sleeps for this word.
pub(super) fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: only the address counts, and waking no thread is fine.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

/// A connected pair of non-blocking stream sockets, for probing and tests.
pub(super) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `pair` has room for the two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) })?;
    Ok((own(pair[0])?, own(pair[1])?))
}

/// Sends without blocking and without SIGPIPE; how many bytes the socket took.
pub(super) fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `bytes` is readable for its length.
    let n = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

/// Slices that one system call takes.
const SLICES: usize = 64;

/// [`send`] of the first of several slices; how many bytes the socket took of them.
pub(super) fn send_slices<'a>(
    fd: RawFd,
    slices: impl Iterator<Item = &'a [u8]>,
    most: usize,
) -> io::Result<usize> {
    let mut left = most;
    let mut list: [libc::iovec; SLICES] =
        [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; SLICES];
    let mut count = 0;
    for (place, slice) in list.iter_mut().zip(slices) {
        let len = slice.len().min(left);
        *place = libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: len };
        (count, left) = (count + 1, left - len);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: a message without anything is a valid one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (list.as_mut_ptr(), count);
    // SAFETY: the first `count` entries of the list are readable slices, which are not written to.
    let n = unsafe { libc::sendmsg(fd, &message, flags) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

/// Receives without blocking into `room`; zero means that the peer has closed its side.
pub(super) fn recv(fd: RawFd, room: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `room` is writable for its length.
    let n = unsafe { libc::recv(fd, room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

/// What one call has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    /// Bytes that were appended to the string.
    pub own: usize,
    /// Bytes that came behind them.
    pub behind: usize,
    /// Whether the socket had fewer bytes than were asked for.
    pub is_drained: bool,
}

/// Receives without blocking: at most `most` bytes are appended to `string`, as far as it has room,
/// and what follows them goes to `behind`, unless the room was less than `most`. No bytes at all
/// mean that the peer has closed its side.
pub(super) fn recv_into(
    fd: RawFd,
    string: &mut HeapString,
    most: usize,
    behind: &mut [u8],
) -> io::Result<Received> {
    let spare = string.spare();
    let len = spare.len().min(most);
    debug_assert!(len > 0, "no bytes would be taken for the end of the input");
    let tail = if len == most { behind.len() } else { 0 };
    let mut places = [
        libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: len },
        libc::iovec { iov_base: behind.as_mut_ptr().cast(), iov_len: tail },
    ];
    // SAFETY: a message without anything is a valid one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = places.as_mut_ptr();
    message.msg_iovlen = if tail == 0 { 1 } else { 2 };
    // SAFETY: both places are writable for their lengths, and exclusively borrowed.
    let n = unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    let n = n as usize;
    let own = n.min(len);
    // SAFETY: the kernel has written `n` bytes from the beginning of the spare room on, and the
    // string has not been touched since.
    unsafe { string.assume_extended(own) };
    Ok(Received { own, behind: n - own, is_drained: n < len + tail })
}

/// Accepts one connection, or `WouldBlock` when there is none.
pub(super) fn accept(listener: RawFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: null addresses are allowed: the peer is asked for later.
    own(unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

/// Ends a socket in both directions at once, even if other holders have it open. On a listening
/// socket this frees the address immediately.
pub(super) fn shutdown(fd: RawFd) {
    // SAFETY: takes no pointers; a descriptor that is no socket is an error we do not care about.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

fn set_option(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` is an int of `size` bytes that lives through the call.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size) }).map(drop)
}

/// Sends small replies at once instead of waiting for the peer's acknowledgement.
pub(super) fn set_nodelay(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
}

/// Has the kernel probe an idle peer after `seconds`, then three times at a third of that, so a
/// dead peer is noticed after twice the time. Zero switches probing off.
pub(super) fn set_keepalive(fd: RawFd, seconds: u32) -> io::Result<()> {
    if seconds == 0 {
        return set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0);
    }
    let seconds = libc::c_int::try_from(seconds).unwrap_or(libc::c_int::MAX);
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (seconds / 3).max(1))?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)
}

/// Has the kernel end the connection if the peer's machine has acknowledged nothing for so long:
/// neither what was sent nor, on an idle connection, a probe.
pub(super) fn set_deadline(fd: RawFd, time: Duration) -> io::Result<()> {
    let ms = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX);
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ms)?;
    set_keepalive(fd, u32::try_from(time.as_secs() / 2).unwrap_or(u32::MAX).max(1))
}

/// Has the socket's end reset the connection, and drop what the peer has not acknowledged.
pub(super) fn set_reset_at_close(fd: RawFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: `linger` is of `size` bytes and lives through the call.
    check(unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size)
    })
    .map(drop)
}

/// Sets how much later than asked for the calling thread's waits may end.
pub(super) fn set_timer_slack(slack: Duration) {
    // SAFETY: takes no pointers. That it cannot fail with these arguments is documented.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack.as_nanos() as libc::c_ulong, 0, 0, 0) };
}

/// The processor time that the calling thread has taken.
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to write to. The clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether the calling thread has the policy that threads have by default.
pub(super) fn is_scheduled_normally() -> bool {
    // SAFETY: takes no pointers; zero is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) == libc::SCHED_OTHER.into() }
}

/// Gives the calling thread the policy of programs that compute, which do not preempt when they
/// wake, or the normal one.
pub(super) fn schedule_as_batch(is_batch: bool) -> io::Result<()> {
    let policy = if is_batch { libc::SCHED_BATCH } else { libc::SCHED_OTHER };
    // The kernel's `sched_param`. Not every C library passes this call on.
    let priority: libc::c_int = 0;
    // SAFETY: `priority` lives through the call; zero is the calling thread.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    check(result as libc::c_int).map(drop)
}

/// Gives `call` an address as the kernel takes it.
fn with_address<R>(
    address: &SocketAddr,
    call: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> R,
) -> R {
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: the all-zero bit pattern is a valid sockaddr_in.
            let mut sa: libc::sockaddr_in = unsafe { zeroed() };
            sa.sin_family = libc::AF_INET as libc::sa_family_t;
            sa.sin_port = v4.port().to_be();
            sa.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            call((&raw const sa).cast(), size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
        SocketAddr::V6(v6) => {
            // SAFETY: the all-zero bit pattern is a valid sockaddr_in6.
            let mut sa: libc::sockaddr_in6 = unsafe { zeroed() };
            sa.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            sa.sin6_port = v6.port().to_be();
            sa.sin6_addr.s6_addr = v6.ip().octets();
            sa.sin6_scope_id = v6.scope_id();
            call((&raw const sa).cast(), size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
    }
}

/// A connection from this local address, on any port, with blocking calls.
pub(super) fn connect_from(
    source: IpAddr,
    target: &SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let family = if source.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: takes no pointers.
    let fd = own(unsafe { libc::socket(family, kind, 0) })?;
    let raw = fd.as_raw_fd();
    with_address(&SocketAddr::new(source, 0), |sa, size| {
        // SAFETY: `sa` is an address of `size` bytes that lives through the call.
        check(unsafe { libc::bind(raw, sa, size) })
    })?;
    let begun = with_address(target, |sa, size| {
        // SAFETY: as above.
        check(unsafe { libc::connect(raw, sa, size) })
    });
    let socket = TcpStream::from(fd);
    match begun {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            wait_until_writable(raw, timeout)?;
            socket.take_error()?.map_or(Ok(()), Err)?;
        }
        begun => drop(begun?),
    }
    socket.set_nonblocking(false)?;
    Ok(socket)
}

fn wait_until_writable(fd: RawFd, timeout: Duration) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let mut wanted = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        let left = libc::c_int::try_from(left).unwrap_or(libc::c_int::MAX);
        // SAFETY: one entry, which is read and written during the call.
        match check(unsafe { libc::poll(&raw mut wanted, 1, left) }) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A socket that has begun to connect, and whether it is connected already.
pub(super) fn begin_to_connect(target: &SocketAddr) -> io::Result<(OwnedFd, bool)> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let family = if target.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: takes no pointers.
    let fd = own(unsafe { libc::socket(family, kind, 0) })?;
    let begun = with_address(target, |sa, size| {
        // SAFETY: `sa` is an address of `size` bytes that lives through the call.
        check(unsafe { libc::connect(fd.as_raw_fd(), sa, size) })
    });
    match begun {
        Ok(_) => Ok((fd, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok((fd, false)),
        Err(error) => Err(error),
    }
}

/// A socket that is connected to the Unix socket at `path`, which takes no time.
pub(super) fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let sa = unix_address(path)?;
    // SAFETY: takes no pointers.
    let fd = own(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `sa` is a sockaddr_un of `size` bytes that lives through the call.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const sa).cast(), size) })?;
    Ok(fd)
}

/// What became of a socket that was being connected.
pub(super) fn connect_outcome(fd: RawFd) -> io::Result<()> {
    let mut errno: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    let room = (&raw mut errno).cast();
    // SAFETY: `room` has `size` bytes, and both live through the call.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, room, &raw mut size) })?;
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

fn unix_address(path: &Path) -> io::Result<libc::sockaddr_un> {
    // SAFETY: the all-zero bit pattern is a valid sockaddr_un.
    let mut sa: libc::sockaddr_un = unsafe { zeroed() };
    sa.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = path.as_os_str().as_bytes();
    // One byte stays for the terminating zero.
    if name.len() >= sa.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in sa.sun_path.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    Ok(sa)
}

/// A socket that listens on `address`. An IPv6 socket takes IPv6 only, so that `*` and `::*` can be
/// bound side by side. The error says which step failed.
pub(super) fn listen_tcp(
    address: &SocketAddr,
    backlog: u32,
) -> Result<OwnedFd, (&'static str, io::Error)> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let family = if address.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: takes no pointers.
    let fd = own(unsafe { libc::socket(family, kind, 0) }).map_err(|e| ("socket", e))?;
    let raw = fd.as_raw_fd();
    set_option(raw, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).map_err(|e| ("setsockopt", e))?;
    if address.is_ipv6() {
        set_option(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1).map_err(|e| ("setsockopt", e))?;
    }
    let bound = with_address(address, |sa, size| {
        // SAFETY: `sa` is an address of `size` bytes that lives through the call.
        check(unsafe { libc::bind(raw, sa, size) })
    });
    bound.map_err(|e| ("bind", e))?;
    listen(raw, backlog).map_err(|e| ("listen", e))?;
    Ok(fd)
}

/// The number of the group with this name.
fn group_number(name: &str) -> io::Result<u32> {
    const NOT_FOUND: &str = "no such group";
    let unknown = || io::Error::new(io::ErrorKind::NotFound, NOT_FOUND);
    let name = std::ffi::CString::new(name).map_err(|_| unknown())?;
    let mut room = vec![0; 16 << 10];
    loop {
        // SAFETY: the all-zero bit pattern is a valid group.
        let mut group: libc::group = unsafe { zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: every pointer is to what it should be, and lives through the call.
        let status = unsafe {
            let (at, len) = (room.as_mut_ptr(), room.len());
            libc::getgrnam_r(name.as_ptr(), &raw mut group, at, len, &raw mut found)
        };
        match status {
            0 if found.is_null() => return Err(unknown()),
            0 => return Ok(group.gr_gid),
            libc::ERANGE if room.len() < 16 << 20 => room.resize(room.len() * 4, 0),
            libc::EINTR => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// A Unix socket that listens at `path`, with the permission bits `mode` unless that is zero, and
/// of the group `group` if there is one. A file left there by an earlier process is removed first.
pub(super) fn listen_unix(
    path: &Path,
    mode: u32,
    group: Option<&str>,
    backlog: u32,
) -> Result<OwnedFd, (&'static str, io::Error)> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let sa = unix_address(path).map_err(|e| ("bind", e))?;
    // SAFETY: takes no pointers.
    let fd = own(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }).map_err(|e| ("socket", e))?;
    // Before anything that is there goes for nothing.
    let group = group.map(group_number).transpose().map_err(|e| ("getgrnam", e))?;
    let _ = std::fs::remove_file(path);
    let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `sa` is a sockaddr_un of `size` bytes that lives through the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const sa).cast(), size) })
        .map_err(|e| ("bind", e))?;
    // Before anybody the group lets in could be turned away, and before the bits are set: changing
    // the group may clear some.
    if group.is_some() {
        std::os::unix::fs::chown(path, None, group).map_err(|e| ("chown", e))?;
    }
    if mode != 0 {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .map_err(|e| ("chmod", e))?;
    }
    listen(fd.as_raw_fd(), backlog).map_err(|e| ("listen", e))?;
    Ok(fd)
}

fn listen(fd: RawFd, backlog: u32) -> io::Result<()> {
    let backlog = libc::c_int::try_from(backlog).unwrap_or(libc::c_int::MAX);
    // SAFETY: takes no pointers.
    check(unsafe { libc::listen(fd, backlog) }).map(drop)
}
