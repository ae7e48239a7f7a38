//! Processes beside this one, which outlive it: finding them again, and signals for them.
#![allow(unsafe_code)] // kill(2) has no safe equivalent

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
}
