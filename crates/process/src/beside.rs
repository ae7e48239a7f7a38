//! Processes beside this one, which outlive it: finding them again, and signals for them.
#![allow(unsafe_code)] // kill(2) and waitid(2) have no safe equivalents

use crate::log;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;

/// Returns the processes of this machine whose program has this file name, with their working
/// directories. Those of other users are left out.
pub fn with_program(name: &str) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|&id| runs(id, name)).filter_map(|id| Some((id, directory(id)?))).collect()
}

/// Returns the working directory of a process that is there and has not ended.
pub fn directory(id: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{id}/cwd")).ok()
}

/// Returns whether a process runs a program with this file name, which may have been replaced
/// meanwhile.
fn runs(id: u32, name: &str) -> bool {
    let Ok(program) = fs::read_link(format!("/proc/{id}/exe")) else { return false };
    let Some(file) = program.file_name().and_then(|file| file.to_str()) else { return false };
    file.strip_suffix(" (deleted)").unwrap_or(file) == name
}

/// Returns the path of the running program, also if its file was replaced.
///
/// # Errors
/// The system does not tell.
pub fn own_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| path.clone(), |text| Path::new(text).into()))
}

/// Asks a process to end.
pub fn terminate(id: u32) {
    send(id, libc::SIGTERM);
}

/// Ends a process.
pub fn kill(id: u32) {
    send(id, libc::SIGKILL);
}

/// Returns how a child of this process has ended, `None` while it runs. It stays in the system's
/// table until [`release`] takes it from there.
///
/// # Errors
/// It is no child of this process.
pub fn status(id: u32) -> io::Result<Option<ExitStatus>> {
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all zeros are a valid siginfo_t, and waitid writes to no more than that.
    let (done, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::waitid(libc::P_PID, id, &raw mut info, how), info)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: these fields are those of a child's end, or the zeros from above.
    let (ended, code) = unsafe { (info.si_pid(), info.si_status()) };
    if ended == 0 {
        return Ok(None);
    }
    // As wait(2) packs it: the code of an exit above the signal.
    Ok(Some(ExitStatus::from_raw(match info.si_code {
        libc::CLD_EXITED => code << 8,
        libc::CLD_DUMPED => code | 0x80,
        _ => code,
    })))
}

/// Takes a child that has ended from the system's table, on a thread of its own: the kernel then
/// forgets what it knows of the process, which takes seconds on a busy machine.
pub fn release(mut child: Child) {
    let id = child.id();
    let take = move || {
        if let Err(error) = child.wait() {
            log!(Warning, "The status of process {} is lost: {error}", child.id());
        }
    };
    if let Err(error) = thread::Builder::new().name("reaper".into()).spawn(take) {
        log!(Warning, "Process {id} stays in the system's table until this one ends: {error}");
    }
}

fn send(id: u32, signal: i32) {
    // 0 and negative numbers are groups of processes.
    if let Ok(id) = libc::pid_t::try_from(id)
        && id > 1
    {
        // SAFETY: kill takes two numbers. That the process is gone is no failure.
        unsafe { libc::kill(id, signal) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_program_and_ended() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let found = with_program("sleep");
        let here = std::env::current_dir().unwrap();
        assert!(found.contains(&(child.id(), here)), "{found:?}");
        terminate(child.id());
        child.wait().unwrap();
        assert_eq!(directory(child.id()), None);
    }

    /// Waits until a child has ended; returns how.
    fn end_of(child: &Child) -> String {
        loop {
            if let Some(status) = status(child.id()).unwrap() {
                return status.to_string();
            }
            thread::yield_now();
        }
    }

    #[test]
    fn the_status_of_a_child_is_known_before_it_is_released() {
        let start = |script: &str| std::process::Command::new("sh").args(["-c", script]).spawn();
        let exited = start("exit 3").unwrap();
        assert_eq!(end_of(&exited), "exit status: 3");
        assert_eq!(end_of(&exited), "exit status: 3", "it is asked again");
        let running = start("exec sleep 600").unwrap();
        assert_eq!(status(running.id()).unwrap(), None);
        kill(running.id());
        assert_eq!(end_of(&running), "signal: 9 (SIGKILL)");
        for child in [exited, running] {
            let id = child.id();
            release(child);
            while status(id).is_ok() {
                thread::yield_now();
            }
        }
    }
}
