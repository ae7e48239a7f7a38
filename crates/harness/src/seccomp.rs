//! Filters of system calls, for wrappers that start a server under one.
#![allow(unsafe_code)] // prctl(2)

use std::io;

/// Loads a word of `seccomp_data`, in classic BPF.
pub const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
/// Compares what was loaded.
pub const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
/// As above.
pub const IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
/// As above.
pub const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
/// Tests bits of what was loaded.
pub const IF_SET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
/// Ends the filter.
pub const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Where the number of the call is in `seccomp_data`.
pub const NUMBER: u32 = 0;
/// Where its first argument is.
pub const FIRST_ARGUMENT: u32 = 16;

/// One step of a filter.
pub fn step(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Puts the process under a filter, and all that it starts.
///
/// # Errors
/// The kernel refuses it.
pub fn install(mut filter: Vec<libc::sock_filter>) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: plain numbers, and a filter that lives until the call returns, which copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
