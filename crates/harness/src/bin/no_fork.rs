//! Runs a program that is killed if it makes a process: `no_fork PROGRAM ARGUMENT…`. Threads are
//! allowed. Made with a system call filter, so it holds for everything that the program does.
#![allow(unsafe_code)] // prctl(2)

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// `if the number of the system call is …`, in classic BPF.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_SET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Offsets in `seccomp_data`.
const NUMBER: u32 = 0;
const FIRST_ARGUMENT: u32 = 16;

fn step(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn forbid() -> std::io::Result<()> {
    // clone3 takes its flags in memory, where a filter cannot look; without it clone is used.
    let no_such_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let mut filter = vec![step(LOAD, NUMBER, 0, 0)];
    filter.push(step(IF_EQUAL, libc::SYS_clone3 as u32, 0, 1));
    filter.push(step(RETURN, no_such_call, 0, 0));
    #[cfg(target_arch = "x86_64")]
    for number in [libc::SYS_fork, libc::SYS_vfork] {
        filter.push(step(IF_EQUAL, number as u32, 0, 1));
        filter.push(step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
    }
    filter.push(step(IF_EQUAL, libc::SYS_clone as u32, 0, 3));
    filter.push(step(LOAD, FIRST_ARGUMENT, 0, 0));
    filter.push(step(IF_SET, libc::CLONE_THREAD as u32, 1, 0));
    filter.push(step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
    filter.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(std::io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: plain numbers, and a filter that lives until the call returns, which copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: no_fork PROGRAM ARGUMENT…");
        return ExitCode::FAILURE;
    };
    if let Err(error) = forbid() {
        eprintln!("no_fork: can't install the filter: {error}");
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(words).exec();
    eprintln!("no_fork: {error}");
    ExitCode::FAILURE
}
