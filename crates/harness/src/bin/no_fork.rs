//! Runs a program that is killed if it makes a process: `no_fork PROGRAM ARGUMENT…`. Threads are
//! allowed. Made with a system call filter, so it holds for everything that the program does.

use harness::seccomp::{FIRST_ARGUMENT, IF_EQUAL, IF_SET, LOAD, NUMBER, RETURN, install, step};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

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
    install(filter)
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
