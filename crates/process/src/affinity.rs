//! Which processors a thread may run on.
#![allow(unsafe_code)] // sched_getaffinity(2) and sched_setaffinity(2)

use std::ffi::c_ulong;
use std::io;

const BITS: usize = c_ulong::BITS as usize;

/// The processors the calling thread may use, in ascending order. For the main thread at start
/// that is what `taskset`, the container's cpuset and so on leave to the process.
pub fn current() -> io::Result<Vec<usize>> {
    // The kernel refuses a mask smaller than its own, of a size it does not tell.
    let mut words = vec![0 as c_ulong; 1024 / BITS];
    loop {
        let size = std::mem::size_of_val(&words[..]);
        // SAFETY: pointer and size describe `words`; 0 is the calling thread.
        let got = unsafe { libc::sched_getaffinity(0, size, words.as_mut_ptr().cast()) };
        if got == 0 {
            return Ok(from_mask(&words));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() * BITS >= 1 << 20 {
            return Err(error);
        }
        words.resize(words.len() * 2, 0);
    }
}

/// Binds the calling thread to these processors; the kernel leaves out any that it may not use, and
/// refuses if none is left.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    let words = to_mask(cpus);
    let size = std::mem::size_of_val(&words[..]);
    // SAFETY: pointer and size describe `words`, which is only read; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size, words.as_ptr().cast()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn from_mask(words: &[c_ulong]) -> Vec<usize> {
    let set = |cpu: &usize| words[cpu / BITS] >> (cpu % BITS) & 1 == 1;
    (0..words.len() * BITS).filter(set).collect()
}

fn to_mask(cpus: &[usize]) -> Vec<c_ulong> {
    let highest = cpus.iter().max().copied().unwrap_or(0);
    let mut words = vec![0; highest / BITS + 1];
    for cpu in cpus {
        words[cpu / BITS] |= 1 << (cpu % BITS);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_round_trip() {
        for cpus in [vec![0], vec![1, 63, 64, 200], vec![]] {
            assert_eq!(from_mask(&to_mask(&cpus)), cpus);
        }
    }

    #[test]
    fn a_thread_can_be_pinned_and_others_stay_free() {
        let before = current().unwrap();
        let last = *before.last().unwrap();
        let pinned = std::thread::spawn(move || {
            pin_current_thread(&[last]).unwrap();
            assert!(pin_current_thread(&[60_000]).is_err());
            current().unwrap()
        });
        assert_eq!(pinned.join().unwrap(), [last]);
        assert_eq!(current().unwrap(), before);
    }
}
