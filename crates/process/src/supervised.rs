//! `supervised`: telling systemd or upstart when the server is ready.
//!
//! systemd's protocol is one datagram of `KEY=value` lines to the socket named by `NOTIFY_SOCKET`
//! (sd_notify(3)); that is too little to pull in a library for.
#![allow(unsafe_code)] // raise(3), to stop for upstart

use crate::log;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The `supervised` option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `no`
    No,
    /// `auto`: whichever of the two the environment shows.
    Auto,
    /// `systemd`
    Systemd,
    /// `upstart`
    Upstart,
}

/// The supervisor of this process.
#[derive(Debug)]
pub enum Supervisor {
    /// None.
    None,
    /// upstart, which was told by stopping once.
    Upstart,
    /// systemd.
    Systemd(Notifier),
}

impl Supervisor {
    /// Finds the supervisor and reports to it that the server is starting. What was asked for but
    /// cannot be is logged, and the server starts unsupervised. A supervised server does not go to
    /// the background, so call this before deciding on `daemonize`.
    pub fn detect(mode: Mode) -> Self {
        let upstart_job = env::var_os("UPSTART_JOB");
        let notify_socket = env::var_os("NOTIFY_SOCKET");
        match resolve(mode, upstart_job.is_some(), notify_socket.is_some()) {
            Mode::Upstart if upstart_job.is_some() => {
                log!(Notice, "supervised by upstart, will stop to signal readiness.");
                // SAFETY: raise may always be called; the process goes on at SIGCONT.
                unsafe { libc::raise(libc::SIGSTOP) };
                Self::Upstart
            }
            Mode::Upstart => {
                log!(Warning, "upstart supervision requested, but UPSTART_JOB not found!");
                Self::None
            }
            Mode::Systemd => Self::systemd(notify_socket),
            Mode::No | Mode::Auto => Self::None,
        }
    }

    fn systemd(notify_socket: Option<OsString>) -> Self {
        let Some(address) = notify_socket else {
            log!(Warning, "systemd supervision error: NOTIFY_SOCKET not found!");
            return Self::None;
        };
        let connected = Notifier::connect(&address);
        match connected
            .and_then(|systemd| systemd.send("STATUS=Dunlin is loading...\n").map(|()| systemd))
        {
            Ok(systemd) => {
                log!(
                    Notice,
                    "Supervised by systemd. Please make sure you set appropriate values for \
                     TimeoutStartSec and TimeoutStopSec in your service unit."
                );
                Self::Systemd(systemd)
            }
            Err(error) => {
                log!(Warning, "systemd supervision error: sd_notify: {}", super::os_error(&error));
                Self::None
            }
        }
    }

    /// Whether anybody supervises the process.
    pub fn is_supervised(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// The value of INFO's `process_supervised`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "no",
            Self::Upstart => "upstart",
            Self::Systemd(_) => "systemd",
        }
    }

    /// Says what the server is doing, such as `Ready to accept connections`.
    pub fn status(&self, text: &str) {
        self.tell(&format!("STATUS={text}\n"));
    }

    /// Says that connections are accepted; systemd then starts what depends on the server.
    pub fn ready(&self) {
        self.tell("STATUS=Ready to accept connections\nREADY=1\n");
    }

    /// Says that a shutdown has begun.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\n");
    }

    fn tell(&self, message: &str) {
        if let Self::Systemd(systemd) = self
            && let Err(error) = systemd.send(message)
        {
            log!(Warning, "systemd supervision error: sd_notify: {}", super::os_error(&error));
        }
    }
}

/// Which supervisor to look for, given what the environment shows.
fn resolve(mode: Mode, upstart_job: bool, notify_socket: bool) -> Mode {
    match mode {
        Mode::Auto if upstart_job => Mode::Upstart,
        Mode::Auto if notify_socket => Mode::Systemd,
        Mode::Auto => Mode::No,
        explicit => explicit,
    }
}

/// A way to send notifications to systemd.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    to: SocketAddr,
}

impl Notifier {
    /// `address` is the value of `NOTIFY_SOCKET`: an absolute path, or `@name` in the abstract
    /// name space.
    fn connect(address: &OsStr) -> io::Result<Self> {
        let to = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            _ => return Err(io::Error::from(io::ErrorKind::Unsupported)),
        };
        Ok(Self { socket: UnixDatagram::unbound()?, to })
    }

    fn send(&self, message: &str) -> io::Result<()> {
        self.socket.send_to_addr(message.as_bytes(), &self.to).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    #[test]
    fn auto_prefers_upstart_then_systemd() {
        assert_eq!(resolve(Mode::Auto, true, true), Mode::Upstart);
        assert_eq!(resolve(Mode::Auto, false, true), Mode::Systemd);
        assert_eq!(resolve(Mode::Auto, false, false), Mode::No);
        assert_eq!(resolve(Mode::No, true, true), Mode::No);
        assert_eq!(resolve(Mode::Systemd, true, false), Mode::Systemd);
    }

    fn receive(socket: &UnixDatagram) -> String {
        let mut buf = [0; 256];
        let len = socket.recv(&mut buf).unwrap();
        String::from_utf8(buf[..len].to_vec()).unwrap()
    }

    #[test]
    fn systemd_hears_loading_ready_and_stopping() {
        let folder = Directory::new("supervised");
        let path = folder.path().join("notify");
        let abstract_name = format!("@dunlin-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&abstract_name[1..]).unwrap();
        for (socket, address) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), OsStr::new(&abstract_name)),
        ] {
            let supervisor = Supervisor::systemd(Some(address.to_owned()));
            assert_eq!(supervisor.name(), "systemd");
            assert_eq!(receive(&socket), "STATUS=Dunlin is loading...\n");
            supervisor.ready();
            assert_eq!(receive(&socket), "STATUS=Ready to accept connections\nREADY=1\n");
            supervisor.stopping();
            assert_eq!(receive(&socket), "STOPPING=1\n");
        }
    }

    #[test]
    fn an_absent_socket_means_unsupervised() {
        assert!(!Supervisor::systemd(None).is_supervised());
        assert!(!Supervisor::systemd(Some("/nonexistent-folder/notify".into())).is_supervised());
        assert!(!Supervisor::systemd(Some("vsock:2:1234".into())).is_supervised());
    }
}
