//! Room for `maxclients` connections among the files the process may open.
#![allow(unsafe_code)] // getrlimit(2), setrlimit(2) and fcntl(2)

use crate::log;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Descriptors kept free for everything that is not a client: logs, data files, listeners, rings.
pub const RESERVED: u64 = 32;
/// Descriptors for which a table is made at the start.
const LARGEST_TABLE: u64 = 1 << 20;

/// Too few files may be opened to start at all.
#[derive(Debug, PartialEq, Eq)]
pub struct TooFewFiles {
    limit: u64,
    wanted: u64,
}

impl fmt::Display for TooFewFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "Your current 'ulimit -n' of {} is not enough for the server to start. Please increase \
             your open file limit to at least {}. Exiting.",
            self.limit, self.wanted
        )
    }
}

impl std::error::Error for TooFewFiles {}

/// Raises the limit of open files so that `maxclients` and `reserved` descriptors fit. Returns the
/// `maxclients` that fit, which is fewer (with log lines that say why) if the limit cannot be
/// raised that far. CONFIG SET `maxclients` calls it as well and refuses a lower number.
pub fn adjust(maxclients: u32, reserved: u64) -> Result<u32, TooFewFiles> {
    adjust_limit(&mut ProcessLimit, maxclients, reserved)
}

/// Returns how many files the process may open.
///
/// # Errors
/// The kernel does not say.
pub fn limit() -> io::Result<u64> {
    ProcessLimit.get().map(|(soft, _)| soft)
}

/// Has the kernel make its table of the process's descriptors large enough for so many. It doubles
/// the table when it is full, and where a process has several threads all of them may be looking at
/// it: a thread that accepts a connection then waits for some ten milliseconds. To be called before
/// there are threads, and after the process has gone to the background: the table of a fork is as
/// small as can be.
///
/// The table takes eight bytes for each descriptor. One for more than a million grows with them. A
/// log line says why it cannot be made.
pub fn prepare_table(files: u64) {
    let files = files.min(LARGEST_TABLE);
    if let Err(error) = make_table(files) {
        log!(
            Warning,
            "Can't make the table of {files} files at once, so clients may wait when it grows: {}",
            super::os_error(&error)
        );
    }
}

/// Makes the kernel's table. Fails if the limit of open files is lower, or the kernel has no memory
/// for the table.
fn make_table(files: u64) -> io::Result<()> {
    let Some(last) = files.checked_sub(1) else { return Ok(()) };
    let last = libc::c_int::try_from(last).map_err(io::Error::other)?;
    let file = File::open("/dev/null")?;
    // SAFETY: takes no pointers; `file` is open.
    let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, last) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    drop(unsafe { OwnedFd::from_raw_fd(copy) });
    Ok(())
}

/// A limit of open files, of this process or of a test.
trait Limit {
    /// The limit in force, and how far it may be raised.
    fn get(&self) -> io::Result<(u64, u64)>;
    fn set(&mut self, soft: u64, hard: u64) -> io::Result<()>;
}

fn adjust_limit(
    limit: &mut impl Limit,
    maxclients: u32,
    reserved: u64,
) -> Result<u32, TooFewFiles> {
    let wanted = u64::from(maxclients) + reserved;
    let (soft, hard) = match limit.get() {
        Ok(limits) => limits,
        Err(error) => {
            log!(
                Warning,
                "Unable to obtain the current NOFILE limit ({}), assuming 1024 and setting the \
                 max clients configuration accordingly.",
                super::os_error(&error)
            );
            return reduce(maxclients, 1024, wanted, reserved);
        }
    };
    if soft >= wanted {
        return Ok(maxclients);
    }
    let Err(error) = limit.set(wanted, hard.max(wanted)) else {
        log!(
            Notice,
            "Increased maximum number of open files to {wanted} (it was originally set to {soft})."
        );
        return Ok(maxclients);
    };
    let best = raise_as_far_as_possible(limit, soft, hard, wanted);
    let fitting = reduce(maxclients, best, wanted, reserved)?;
    log!(
        Warning,
        "You requested maxclients of {maxclients} requiring at least {wanted} max file descriptors."
    );
    log!(
        Warning,
        "Server can't set maximum open files to {wanted} because of OS error: {}.",
        super::os_error(&error)
    );
    log!(
        Warning,
        "Current maximum open files is {best}. maxclients has been reduced to {fitting} to \
         compensate for low ulimit. If you need higher maxclients increase 'ulimit -n'."
    );
    Ok(fitting)
}

/// Halves the way between the limit in force and the one refused: what stands in between (the hard
/// limit, or a system-wide one if we are root) depends on privileges and the kernel.
fn raise_as_far_as_possible(limit: &mut impl Limit, soft: u64, hard: u64, refused: u64) -> u64 {
    let (mut best, mut refused) = (soft, refused);
    while refused - best > 1 {
        let middle = best + (refused - best) / 2;
        match limit.set(middle, hard.max(middle)) {
            Ok(()) => best = middle,
            Err(_) => refused = middle,
        }
    }
    best
}

fn reduce(maxclients: u32, limit: u64, wanted: u64, reserved: u64) -> Result<u32, TooFewFiles> {
    match limit.checked_sub(reserved) {
        None | Some(0) => Err(TooFewFiles { limit, wanted }),
        Some(rest) => Ok(u32::try_from(rest).unwrap_or(u32::MAX).min(maxclients)),
    }
}

struct ProcessLimit;

impl Limit for ProcessLimit {
    fn get(&self) -> io::Result<(u64, u64)> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` may be written to.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((limit.rlim_cur, limit.rlim_max))
    }

    fn set(&mut self, soft: u64, hard: u64) -> io::Result<()> {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: `limit` is only read.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        soft: u64,
        hard: u64,
        /// The most the kernel grants; above `hard` for root.
        most: u64,
    }

    impl Limit for Fake {
        fn get(&self) -> io::Result<(u64, u64)> {
            match self.soft {
                0 => Err(io::Error::from_raw_os_error(libc::EPERM)),
                soft => Ok((soft, self.hard)),
            }
        }

        fn set(&mut self, soft: u64, hard: u64) -> io::Result<()> {
            assert!(soft <= hard && hard >= self.hard, "the hard limit must not be lowered");
            if hard > self.most.max(self.hard) || soft > self.most {
                return Err(io::Error::from_raw_os_error(libc::EPERM));
            }
            (self.soft, self.hard) = (soft, hard);
            Ok(())
        }
    }

    fn adjusted(
        soft: u64,
        hard: u64,
        most: u64,
        maxclients: u32,
    ) -> (Result<u32, TooFewFiles>, u64) {
        let mut limit = Fake { soft, hard, most };
        (adjust_limit(&mut limit, maxclients, RESERVED), limit.soft)
    }

    #[test]
    fn a_sufficient_limit_is_left_alone() {
        assert_eq!(adjusted(20_000, 20_000, 20_000, 10_000), (Ok(10_000), 20_000));
    }

    #[test]
    fn the_limit_is_raised_to_what_is_needed() {
        assert_eq!(adjusted(1024, 500_000, 500_000, 10_000), (Ok(10_000), 10_032));
        // As root, beyond the hard limit.
        assert_eq!(adjusted(1024, 4096, 1_000_000, 10_000), (Ok(10_000), 10_032));
    }

    #[test]
    fn maxclients_shrinks_to_what_the_limit_allows() {
        assert_eq!(adjusted(1024, 4096, 4096, 10_000), (Ok(4064), 4096));
        assert_eq!(adjusted(1024, 1024, 1024, 10_000), (Ok(992), 1024));
        assert_eq!(adjusted(1024, 4096, 1_048_576, 2_000_000), (Ok(1_048_544), 1_048_576));
    }

    #[test]
    fn without_room_for_a_client_there_is_no_start() {
        let error = adjusted(20, 32, 32, 100).0.unwrap_err();
        assert!(error.to_string().starts_with("Your current 'ulimit -n' of 32 is not enough"));
        assert!(error.to_string().contains("at least 132."));
        assert_eq!(adjusted(20, 33, 33, 100).0, Ok(1));
    }

    #[test]
    fn an_unknown_limit_is_taken_for_1024() {
        assert_eq!(adjusted(0, 0, 0, 10_000).0, Ok(992));
        assert_eq!(adjusted(0, 0, 0, 10).0, Ok(10));
    }

    #[test]
    fn the_table_has_room_for_what_is_asked_for() {
        let room = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let wanted = 2 * room();
        assert_eq!(adjust(u32::try_from(wanted).unwrap(), 0), Ok(wanted as u32));
        make_table(wanted).unwrap();
        assert!(room() >= wanted, "{} of {wanted}", room());
        assert!(make_table(limit().unwrap() + 1).is_err());
        make_table(0).unwrap();
    }

    #[test]
    fn this_process_has_a_limit() {
        let (soft, hard) = ProcessLimit.get().unwrap();
        assert!(soft > 0 && soft <= hard);
        assert_eq!(adjust(1, 0), Ok(1));
    }
}
