//! Settings of the machine and of the configuration that an operator should hear about at start.
//!
//! Redis also warns about `vm.overcommit_memory`; that matters to a server that forks, which Dunlin
//! does not do to save.
#![allow(unsafe_code)] // prctl(2)

use super::memory::Memory;
use crate::log;
use std::fs;
use std::io;
use std::path::Path;

/// Warns if the kernel cuts `tcp-backlog` down, on the machine below `root`.
pub fn warn_about_backlog(root: &Path, tcp_backlog: u32) {
    let text = fs::read_to_string(root.join("proc/sys/net/core/somaxconn")).unwrap_or_default();
    if let Some(somaxconn) = lower_somaxconn(&text, tcp_backlog) {
        log!(
            Warning,
            "WARNING: The TCP backlog setting of {tcp_backlog} cannot be enforced because \
             /proc/sys/net/core/somaxconn is set to the lower value of {somaxconn}."
        );
    }
}

fn lower_somaxconn(text: &str, tcp_backlog: u32) -> Option<u32> {
    text.trim().parse().ok().filter(|somaxconn| (1..tcp_backlog).contains(somaxconn))
}

/// Warns about a `maxmemory` that was probably meant in another unit.
pub fn warn_about_maxmemory(maxmemory_bytes: u64) {
    if (1..1024 * 1024).contains(&maxmemory_bytes) {
        log!(
            Warning,
            "WARNING: You specified a maxmemory value that is less than 1MB (current value is \
             {maxmemory_bytes} bytes). Are you sure this is what you really want?"
        );
    }
}

/// With less memory than this to use, huge pages cost more in half-filled pages than they save in
/// walks of the page tables.
const MEMORY_FOR_HUGE_PAGES: u64 = 512 << 20;

/// Whether the kernel may back this process's memory with huge pages, from here on: not if the
/// process has little memory to use, and with `disable-thp` not unless it is asked to. Call it
/// before the memory is used.
pub fn choose_page_size(root: &Path, disable_thp: bool, memory_bytes: u64) {
    let mode = root.join("sys/kernel/mm/transparent_hugepage/enabled");
    // A kernel without huge pages has no such file.
    let is_always = fs::read_to_string(mode).is_ok_and(|mode| mode.contains("[always]"));
    let is_small = memory_bytes < MEMORY_FOR_HUGE_PAGES;
    if let Err(error) = disable_huge_pages(is_small || (disable_thp && is_always)) {
        log!(Warning, "WARNING: the kernel does not let us turn huge pages on or off: {error}");
    }
}

/// What the process may use: `maxmemory`, or what there is.
pub fn usable_memory(maxmemory_bytes: u64) -> u64 {
    let limit = Memory::detect().limit_bytes();
    if maxmemory_bytes == 0 { limit } else { maxmemory_bytes.min(limit) }
}

fn disable_huge_pages(is_wanted: bool) -> io::Result<()> {
    // SAFETY: this prctl takes integers only.
    if unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(is_wanted), 0, 0, 0) }
        != 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lower_somaxconn_is_worth_a_warning() {
        assert_eq!(lower_somaxconn("128\n", 511), Some(128));
        assert_eq!(lower_somaxconn("511\n", 511), None);
        assert_eq!(lower_somaxconn("0\n", 511), None);
        assert_eq!(lower_somaxconn("", 511), None);
    }
}
