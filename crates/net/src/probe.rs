//! Which back-end this machine allows.
//!
//! Asking for the kernel's version would not do: containers refuse io_uring with a filter, hosts
//! with a setting, and distributions carry fixes to and fro. So the probe does, on a pair of
//! connected sockets, the very things the back-end depends on, and reports the first that fails.

use super::conn::Token;
use super::sys;
use super::turn::{Batch, Event, Flight};
use super::uring::Uring;
use super::waker::Waker;
use std::fmt;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How a reactor talks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Completion rings: one system call a turn.
    Uring,
    /// Readiness events: works everywhere.
    Epoll,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "io_uring",
            Self::Epoll => "epoll",
        })
    }
}

/// A back-end and why it was chosen, in one line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The back-end to use.
    pub backend: Backend,
    /// Why; starts with the back-end's name.
    pub reason: String,
}

impl Backend {
    /// Whether io_uring can be used here; else why not.
    ///
    /// # Errors
    /// The first thing the kernel refused, for the log.
    pub fn probe() -> Result<(), String> {
        // The ring belongs to the thread that makes it, and the caller's thread may want its own.
        std::thread::spawn(try_uring)
            .join()
            .unwrap_or_else(|_| Err("the probe did not finish".to_owned()))
    }

    /// The back-end asked for, or the best there is.
    ///
    /// # Errors
    /// io_uring was asked for and cannot be used: why.
    pub fn choose(forced: Option<Self>) -> Result<Choice, String> {
        let choice = |backend, reason| Choice { backend, reason };
        match forced {
            Some(Self::Epoll) => Ok(choice(Self::Epoll, "epoll (as configured)".to_owned())),
            Some(Self::Uring) => match Self::probe() {
                Ok(()) => Ok(choice(Self::Uring, "io_uring (as configured)".to_owned())),
                Err(why) => Err(format!("io_uring is configured but not usable: {why}")),
            },
            None => Ok(match Self::probe() {
                Ok(()) => choice(Self::Uring, "io_uring".to_owned()),
                Err(why) => choice(Self::Epoll, format!("epoll (io_uring is not usable: {why})")),
            }),
        }
    }
}

/// More than a socket pair's buffers take.
const TOO_MUCH: usize = 4 << 20;

fn try_uring() -> Result<(), String> {
    let step = |what: &'static str| move |e: std::io::Error| format!("{what}: {e}");
    let waker = Waker::new().map_err(step("eventfd"))?;
    let mut ring = Uring::new(waker.fd()).map_err(step("setting up a ring"))?;
    let (ours, theirs) = sys::socket_pair().map_err(step("socketpair"))?;
    let token = Token { slot: 0, generation: 1 };
    let mut batch = Batch::default();
    let mut wait = |ring: &mut Uring| {
        batch.events.clear();
        ring.wait(Duration::from_secs(2), None, &mut batch).map_err(step("io_uring_enter"))?;
        Ok::<_, String>(batch.events.clone())
    };

    // A multishot receive delivers twice without being asked twice.
    ring.attach(token, ours.as_raw_fd()).map_err(step("receive"))?;
    for word in [b"one", b"two"] {
        sys::send(theirs.as_raw_fd(), word).map_err(step("send"))?;
        match wait(&mut ring)?[..] {
            [Event::Data { buf, .. }] if ring.input(buf) == word => ring.recycle(buf),
            _ => return Err("multishot receive does not work".to_owned()),
        }
    }

    // A send that fits is silent; one that does not says how far it came, at once.
    let flight = |len| Flight { buf: vec![0; len].into(), token, flags: 0, result: 0 };
    ring.send(ours.as_raw_fd(), flight(3));
    ring.send(ours.as_raw_fd(), flight(TOO_MUCH));
    wait(&mut ring)?;
    match ring.flights()[..] {
        [Flight { result: 3, .. }, Flight { result: part, .. }]
            if part > 0 && (part as usize) < TOO_MUCH => {}
        _ => return Err("a partial send is not reported".to_owned()),
    }
    ring.flights().clear();
    ring.send(ours.as_raw_fd(), flight(3));
    wait(&mut ring)?;
    if !matches!(ring.flights()[..], [Flight { result, .. }] if result == -libc::EAGAIN) {
        return Err("a send to a full socket is not reported".to_owned());
    }
    ring.flights().clear();

    // A hang-up ends the receive.
    drop(theirs);
    match wait(&mut ring)?[..] {
        [Event::Eof { .. }] | [Event::Failed { .. }] => Ok(()),
        _ => Err("a hang-up is not reported".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forcing_epoll_asks_nobody() {
        let choice = Backend::choose(Some(Backend::Epoll)).unwrap();
        assert_eq!(
            (choice.backend, choice.reason.as_str()),
            (Backend::Epoll, "epoll (as configured)")
        );
    }

    #[test]
    fn the_choice_follows_the_probe() {
        let choice = Backend::choose(None).unwrap();
        match Backend::probe() {
            Ok(()) => assert_eq!(choice.backend, Backend::Uring),
            Err(why) => {
                assert_eq!(choice.backend, Backend::Epoll);
                assert!(choice.reason.contains(&why));
            }
        }
    }
}
