//! The services of the I/O side for commands, by subject. The crate `server` implements them.
//! [`Host`] is their sum.

use super::Engine;
use crate::clients::Client;
use crate::clients::late_reply::LateReply;
use crate::commits::Verdict;
use crate::membership;
use crate::peer::Peer;
use crate::persistence;
use crate::snapshot::Snapshot;
use cluster::id::Id;
use keyspace::Millis;
use std::io;
use std::time::Duration;

/// All services of the I/O side for commands.
pub trait Host:
    ConfigFiles
    + SnapshotFiles
    + AppendLogFiles
    + OtherServers
    + ConnectedClients
    + ProcessControl
    + ServerLog
{
}

impl<T> Host for T where
    T: ConfigFiles
        + SnapshotFiles
        + AppendLogFiles
        + OtherServers
        + ConnectedClients
        + ProcessControl
        + ServerLog
{
}

/// Options and users: applying changes, and the files that keep them.
pub trait ConfigFiles: Send + Sync {
    /// Applies changed options (ports, TLS, log level …). `in_transaction`: more commands belong to
    /// this change.
    ///
    /// # Errors
    /// Why they cannot be applied.
    fn apply_config(
        &self,
        changed: &[config::Changed],
        in_transaction: bool,
    ) -> Result<(), config::ApplyError>;
    /// Rewrites the configuration file (CONFIG REWRITE).
    fn rewrite_config(&self) -> Result<(), String>;
    /// Writes every option into the configuration file, including those at their defaults.
    fn rewrite_whole_config(&self) -> Result<(), String>;
    /// Returns the text of the ACL file.
    fn read_acl_file(&self) -> Result<Vec<u8>, String>;
    /// Replaces the ACL file.
    fn write_acl_file(&self, text: &[u8]) -> Result<(), String>;
}

/// The configured snapshot file.
pub trait SnapshotFiles: Send + Sync {
    /// Writes a snapshot into the configured file, in the background.
    fn save_in_background(&self, snapshot: Snapshot);
    /// Takes a snapshot as soon as possible and writes it into the configured file. The caller does
    /// not wait. `done` is called at the end. A snapshot that runs already is waited for or
    /// cancelled, by `other`.
    fn save_apart(&self, other: OnConflict, done: SaveDone);
    /// Writes a snapshot before anything else happens, for a command that has stopped the world.
    fn save_now(&self, snapshot: Snapshot) -> Result<(), String>;
    /// Loads the configured file, for a command that has stopped the world. A key that exists
    /// already is replaced, or is an error if `replaces` is false. `make_room` removes the present
    /// data. It is called once the file has been checked. If loading fails after that, the process
    /// ends.
    fn load_now(&self, replaces: bool, make_room: Option<&mut dyn FnMut()>) -> Result<(), String>;
}

/// The append-only file.
pub trait AppendLogFiles: Send + Sync {
    /// Begins to rewrite the append-only file. Returns whether it did; the log says why not.
    fn rewrite_append_log(&self) -> bool;
    /// Waits until everything is written to the append-only file, at least into the kernel's cache.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn complete_append_log(&self) -> Result<(), String>;
    /// Calls `then` once the append-only file is in the state that the options describe: complete, on
    /// the disk, closed if it was switched off, and without preallocated space if there is to be
    /// none.
    fn settle_append_log(&self, then: Box<dyn FnOnce() + Send>);
    /// Returns whether there is an append-only file to load.
    fn has_append_log(&self) -> bool;
    /// Loads the append-only file again, which is complete, into an empty data set that is not in
    /// use. Ends the process if it cannot. Returns `false` if the server is shutting down and the
    /// rest was not loaded.
    fn reload_append_log(&self) -> bool;
    /// Adapts to a change of [`Engine::fsync_policy`], which `CLIENT COMMIT-MODE` may cause.
    fn follow_fsync_policy(&self);
}

/// Connections to other servers, and the cluster.
pub trait OtherServers: Send + Sync {
    /// Returns a connection to another server, kept from an earlier use or new. No step takes
    /// longer than `timeout`.
    ///
    /// # Errors
    /// The server cannot be reached.
    fn connect(&self, host: &[u8], port: &[u8], timeout: Duration) -> io::Result<Box<dyn Peer>>;
    /// The same to a copy of this server's database. `place`: where it is, with the port of
    /// clients.
    ///
    /// # Errors
    /// The copy cannot be reached, or may not be reached in this way.
    fn connect_to_copy(
        &self,
        copy: Id,
        place: (&str, u16),
        timeout: Duration,
    ) -> io::Result<Box<dyn Peer>>;
    /// Returns the number of kept connections to other servers.
    fn kept_connections(&self) -> usize;
    /// Requests a change from the cluster's coordinator. The client waits, but no thread that
    /// serves clients does.
    fn operate(&self, request: membership::Request, reply: LateReply);
    /// Notes that this server has become a replica, or a primary again. The world may be stopped.
    fn role_changed(&self) {}
}

/// Connections of clients.
pub trait ConnectedClients: Send + Sync {
    /// Returns a client's line in CLIENT LIST.
    fn client_line(&self, _engine: &Engine, _client: &Client, _now: Millis) -> String {
        String::new()
    }
    /// Releases the replies at the quorum's gate whose positions are confirmed or given up.
    fn release_replies(&self, verdict: Verdict);
}

/// The process: its end, and facts about it.
pub trait ProcessControl: Send + Sync {
    /// Starts an orderly shutdown, requested by the client `by`. `reply` is used only if the
    /// shutdown fails.
    fn shutdown(&self, by: &str, request: ShutdownRequest, reply: LateReply);
    /// Cancels a shutdown that was requested but has not begun. Returns `false` if there is none.
    fn abort_shutdown(&self) -> bool;
    /// Replaces the process by a new server with the same arguments. Returns an error text, only if
    /// it cannot.
    fn restart(&self, how: Restart, delay: Duration) -> String;
    /// Returns facts about the process for a section of INFO, as names and values.
    fn facts(&self, section: &str) -> Vec<(String, String)>;
    /// Crashes by an invalid memory access.
    fn segfault(&self) -> !;
}

/// The log.
pub trait ServerLog: Send + Sync {
    /// Logs a line at level notice.
    fn log(&self, line: &str);
    /// Logs a line at level verbose.
    fn verbose(&self, line: &str);
    /// Logs a line at level warning.
    fn warn(&self, line: &str);
    /// Returns whether there is an audit log.
    fn audits(&self) -> bool;
    /// Adds a change to the audit log. Never waits for a disk.
    fn audit(&self, change: &Audited<'_>);
}

/// A change, or an attempt at one, for the audit log.
#[derive(Clone, Copy)]
pub struct Audited<'a> {
    /// The user; of a log-in that failed the name that was tried.
    pub user: &'a [u8],
    /// The client.
    pub client: &'a Client,
    /// The command's full name.
    pub action: &'a str,
    /// The request's other words, without secrets.
    pub target: &'a [&'a [u8]],
    /// What became of it.
    pub outcome: AuditOutcome<'a>,
}

/// What became of a change.
#[derive(Clone, Copy)]
pub enum AuditOutcome<'a> {
    /// It was made.
    Done,
    /// It goes on.
    Begun,
    /// It was refused, with this error.
    Refused(&'a [u8]),
}

/// Called with the outcome of a save.
pub type SaveDone = Box<dyn FnOnce(persistence::Outcome) + Send>;

/// What to do with a snapshot that runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Wait until it is complete.
    Wait,
    /// Cancel it. It is not needed any more.
    Cancel,
}

/// How DEBUG RESTART and CRASH-AND-RECOVER end the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Nothing is saved first.
    Crash,
    /// The configuration file is rewritten first, if there is one.
    Graceful,
}

/// SHUTDOWN's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownRequest {
    /// Save even if no save point is configured.
    pub save: Option<bool>,
    /// Do not wait.
    pub now: bool,
    /// Ignore errors.
    pub force: bool,
    /// Do not end while this node of a cluster leads a shard that has slots.
    pub safe: bool,
}
