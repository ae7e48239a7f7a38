//! System calls that the standard library lacks.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Whether the process is root's.
pub fn is_root() -> bool {
    // SAFETY: has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Becomes a user for good.
pub fn become_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: the list of groups lives throughout the call.
    checked(unsafe { libc::setgroups(1, &group) })?;
    // SAFETY: has no preconditions.
    checked(unsafe { libc::setgid(group) })?;
    // SAFETY: has no preconditions.
    checked(unsafe { libc::setuid(user) })
}

/// Sets the mask of new files' modes, if it is the usual 022.
pub fn tighten_umask(mask: u32) {
    // SAFETY: has no preconditions; no other thread runs yet.
    let before = unsafe { libc::umask(mask as libc::mode_t) };
    if before != 0o022 {
        // SAFETY: as above.
        unsafe { libc::umask(before) };
    }
}

/// Mounts a file system.
pub fn mount(source: &str, target: &str, kind: &str, flags: u64, data: &str) -> io::Result<()> {
    let [source, target, kind, data] = [source, target, kind, data].map(CString::new);
    let (source, target, kind, data) = (source?, target?, kind?, data?);
    // SAFETY: the strings live throughout the call.
    checked(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags as libc::c_ulong,
            data.as_ptr().cast(),
        )
    })
}

/// Detaches a file system.
pub fn unmount(target: &str) -> io::Result<()> {
    let target = c_string(Path::new(target))?;
    // SAFETY: the string lives throughout the call.
    checked(unsafe { libc::umount2(target.as_ptr(), 0) })
}

/// Loads a module of the kernel from a file.
pub fn load_module(path: &Path, parameters: &str) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(path)?;
    let parameters = CString::new(parameters)?;
    // SAFETY: the descriptor and the string live throughout the call.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    checked(result as libc::c_int)
}

/// Ends the machine: powers it off or restarts it. Writes all that is pending first.
pub fn end_machine(restart: bool) {
    // SAFETY: has no preconditions.
    unsafe { libc::sync() };
    let how = if restart { libc::RB_AUTOBOOT } else { libc::RB_POWER_OFF };
    // SAFETY: has no preconditions; does not return if it succeeds.
    unsafe { libc::reboot(how) };
}

/// Waits for a child, any at all; returns which one ended and how. Errors when there is none.
pub fn wait_any() -> io::Result<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the status lives throughout the call.
    let child = unsafe { libc::waitpid(-1, &mut status, 0) };
    if child > 0 { Ok((child, status)) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal.
pub fn send_signal(process: i32, signal: i32) {
    // SAFETY: has no preconditions; a process that is gone is an error that does not matter.
    unsafe { libc::kill(process, signal) };
}

/// Blocks signals, so that [`next_signal`] can take them.
pub fn block_signals(signals: &[i32]) {
    let set = signal_set(signals);
    // SAFETY: the set is initialised; no old set is asked for.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
}

/// Lets a child have them again, between fork and exec.
pub fn unblock_signals(signals: &[i32]) {
    let set = signal_set(signals);
    // SAFETY: the set is initialised; no old set is asked for.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

/// Waits for one of these signals.
pub fn next_signal(signals: &[i32]) -> i32 {
    let set = signal_set(signals);
    let mut signal = 0;
    // SAFETY: the set is initialised and the number lives throughout the call.
    unsafe { libc::sigwait(&set, &mut signal) };
    signal
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set before anything reads it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}
