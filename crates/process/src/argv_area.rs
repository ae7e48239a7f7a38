//! The memory `ps` reads a process's command line from, as a place for a title.
//!
//! ```text
//! arg_start            arg_end = env_start                 env_end
//! | argv[0]\0 argv[1]\0 … \0 | HOME=/…\0 PATH=…\0 …        \0 |
//! |<----------------- one contiguous area ------------------>|
//! ```
//!
//! The kernel put the strings of `argv` and of the environment there. It shows `arg_start..arg_end`
//! as the command line, and when the last byte of that is not NUL it goes on into the environment
//! up to the first NUL: exactly for programs that overwrite their arguments. So the title may use
//! all of the area, once the environment's strings live somewhere else.
//!
//! Rejected: `prctl(PR_SET_MM_…)`, which needs privileges or a kernel option. `PR_SET_NAME` is left
//! alone: it would change the name that `killall` and `pgrep` look for.
#![allow(unsafe_code)] // overwrites memory the kernel prepared

use std::ffi::{CStr, c_char};
use std::fs;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use structs::sync::lock;

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// The area, which belongs to this value from `claim` on.
#[derive(Debug)]
pub struct ArgvArea {
    bytes: Mutex<&'static mut [u8]>,
}

impl ArgvArea {
    /// Takes the area over. From then on `std::env::args` returns parts of the title, so save the
    /// arguments first. Works once, and only while the process has no other threads, which might
    /// be reading the environment while it moves.
    pub fn claim() -> io::Result<Self> {
        static CLAIMED: AtomicBool = AtomicBool::new(false);
        let threads = fs::read_dir("/proc/self/task")?.count();
        if threads != 1 {
            return Err(io::Error::other(format!("{threads} threads are already running")));
        }
        let (start, end) = bounds(&fs::read_to_string("/proc/self/stat")?)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        if CLAIMED.swap(true, Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        // SAFETY: this is the only thread (checked above), so the environment has no other user.
        unsafe { move_environment(start, end) };
        let memory = std::ptr::with_exposed_provenance_mut::<u8>(start);
        // SAFETY: the kernel maps start..end for the life of the process, readable and writable, as
        // part of the initial stack. The environment's pointers into it were replaced just now, and
        // CLAIMED allows no second slice. `argv` still points into it; a reader finds
        // NUL-terminated text, as the last byte stays NUL (see `set`).
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory, end - start) };
        Ok(Self { bytes: Mutex::new(bytes) })
    }

    /// Makes `title` the command line, cut to the size of the area (a NUL in it ends what is
    /// shown).
    pub fn set(&self, title: &[u8]) {
        let mut bytes = lock(&self.bytes);
        let len = title.len().min(bytes.len().saturating_sub(1));
        bytes[..len].copy_from_slice(&title[..len]);
        bytes[len..].fill(0);
    }
}

/// `arg_start` and `env_end` in the text of `/proc/self/stat`; `None` if they are not what they
/// should be.
fn bounds(stat: &str) -> Option<(usize, usize)> {
    // The second field, the name in parentheses, may itself hold spaces and parentheses. After it
    // comes field 3; the wanted ones are fields 48 to 51.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<usize>().ok();
    let (arg_start, arg_end) = (field(48)?, field(49)?);
    let (env_start, env_end) = (field(50)?, field(51)?);
    let sane = arg_start != 0 && arg_start < arg_end;
    let contiguous = arg_end == env_start && env_start <= env_end;
    sane.then_some((arg_start, if contiguous { env_end } else { arg_end }))
}

/// Gives every string of the environment that lies in `start..end` a home on the heap.
///
/// # Safety
/// No other thread may be running.
unsafe fn move_environment(start: usize, end: usize) {
    // SAFETY: `environ` is null or an array of C strings that ends with null, and as no other
    // thread runs it does not change meanwhile. The copies are leaked, as `environ` keeps them.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            if (start..end).contains(&(*entry).addr()) {
                *entry = CStr::from_ptr(*entry).to_owned().into_raw();
            }
            entry = entry.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_area_behind_any_process_name() {
        let mut stat = String::from("12 (a) b (c) S");
        for number in 4..=47 {
            stat += &format!(" {number}");
        }
        assert_eq!(bounds(&format!("{stat} 1000 1010 1010 1200 0\n")), Some((1000, 1200)));
        assert_eq!(bounds(&format!("{stat} 1000 1010 2000 2200 0\n")), Some((1000, 1010)));
        assert_eq!(bounds(&format!("{stat} 0 0 0 0 0\n")), None);
        assert_eq!(bounds(&stat), None);
    }

    #[test]
    fn is_refused_when_there_are_other_threads() {
        assert!(ArgvArea::claim().is_err());
    }
}
