//! Runs a program under the system call filter of Debian's `redis-server.service` and
//! `valkey-server.service`: `debian_unit PROGRAM ARGUMENT…`. A call that the filter does not know
//! kills the process.

use harness::seccomp::{IF_AT_LEAST, IF_GREATER, LOAD, NUMBER, RETURN, install, step};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// The calls of x86-64 that `SystemCallFilter=@system-service` and `SystemCallFilter=~@privileged
/// @resources` leave, as ranges of numbers; both units have these two lines. From `systemd-analyze
/// syscall-filter` of systemd 252.
#[rustfmt::skip]
const ALLOWED: [(u32, u32); 40] = [
    (0, 26), (28, 91), (95, 100), (102, 102), (104, 104), (106, 112), (114, 115), (118, 121),
    (123, 125), (127, 133), (135, 135), (137, 138), (140, 140), (143, 143), (145, 152), (157, 158),
    (162, 162), (186, 202), (204, 211), (213, 226), (228, 235), (239, 245), (247, 250), (252, 255),
    (257, 259), (261, 278), (280, 297), (299, 299), (302, 303), (306, 312), (315, 316), (318, 319),
    (322, 328), (332, 332), (334, 334), (424, 427), (434, 437), (439, 441), (449, 449), (452, 452),
];

fn forbid() -> std::io::Result<()> {
    let mut filter = vec![step(LOAD, NUMBER, 0, 0)];
    for (first, last) in ALLOWED {
        // Behind the range the next one is tried; before it, no later one fits either.
        filter.push(step(IF_GREATER, last, 3, 0));
        filter.push(step(IF_AT_LEAST, first, 0, 1));
        filter.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
        filter.push(step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
    }
    filter.push(step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
    install(filter)
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: debian_unit PROGRAM ARGUMENT…");
        return ExitCode::FAILURE;
    };
    if let Err(error) = forbid() {
        eprintln!("debian_unit: can't install the filter: {error}");
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(words).exec();
    eprintln!("debian_unit: {error}");
    ExitCode::FAILURE
}
