//! What the I/O side does for commands, by subject. The crate `server` implements it; [`Host`] is the sum.

use super::Engine;
use crate::clients::Client;
use crate::clients::late_reply::LateReply;
use crate::commits::Verdict;
use crate::membership;
use crate::peer::Peer;
use crate::persistence;
use crate::snapshot::Snapshot;
use keyspace::Millis;
use std::io;
use std::time::Duration;

/// What the I/O side does for commands.
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

/// Options and users: what a change of them does, and the files that keep them.
pub trait ConfigFiles: Send + Sync {
    /// Applies changed options (ports, TLS, log level …) or says why it cannot. `in_transaction`: more
    /// commands belong to this change.
    fn apply_config(
        &self,
        changed: &[config::Changed],
        in_transaction: bool,
    ) -> Result<(), config::ApplyError>;
    /// Writes the configuration file anew (CONFIG REWRITE).
    fn rewrite_config(&self) -> Result<(), String>;
    /// Writes every option into the configuration file, those at their defaults too.
    fn rewrite_whole_config(&self) -> Result<(), String>;
    /// The text of the ACL file.
    fn read_acl_file(&self) -> Result<Vec<u8>, String>;
    /// Replaces the ACL file.
    fn write_acl_file(&self, text: &[u8]) -> Result<(), String>;
}

/// The configured snapshot file.
pub trait SnapshotFiles: Send + Sync {
    /// Writes a snapshot into the configured file, in the background.
    fn save_in_background(&self, snapshot: Snapshot);
    /// Takes a snapshot as soon as there can be one and writes it into the configured file; not the
    /// caller but `done` waits for that. If there is another one by then, it is waited for, or ended.
    fn save_apart(&self, other: OnConflict, done: SaveDone);
    /// Writes it before anything else happens, for a command that has stopped the world.
    fn save_now(&self, snapshot: Snapshot) -> Result<(), String>;
    /// Loads the configured file, for a command that has stopped the world. A key that is there
    /// already is replaced or makes an error. `make_room` takes the present data away; it is called
    /// once the file was found sound. If it cannot be loaded then, the process ends.
    fn load_now(&self, replaces: bool, make_room: Option<&mut dyn FnMut()>) -> Result<(), String>;
}

/// The append-only file.
pub trait AppendLogFiles: Send + Sync {
    /// Begins to rewrite the append-only file, or says in the log why it cannot.
    fn rewrite_append_log(&self) -> bool;
    /// Waits until everything is in the append-only file, as far as the kernel is concerned.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn complete_append_log(&self) -> Result<(), String>;
    /// Replies OK once the append-only file is as the options say: complete, on the disk, and closed if it
    /// was switched off; without room ahead of it if there is to be none.
    fn settle_append_log(&self, reply: LateReply);
    /// Whether there is an append-only file to load.
    fn has_append_log(&self) -> bool;
    /// Loads the append-only file again, which is complete, into an empty data set that is not in use;
    /// ends the process if it cannot. `false`: the server is going down, and the rest was not loaded.
    fn reload_append_log(&self) -> bool;
    /// `CLIENT COMMIT-MODE` may have changed when the append-only file is forced to the disk.
    fn follow_fsync_policy(&self);
}

/// Connections to other servers, and the cluster.
pub trait OtherServers: Send + Sync {
    /// A connection to another server, kept from an earlier use or new. Nothing takes longer than `timeout`.
    ///
    /// # Errors
    /// It cannot be reached.
    fn connect(&self, host: &[u8], port: &[u8], timeout: Duration) -> io::Result<Box<dyn Peer>>;
    /// The connections to other servers that are kept.
    fn kept_connections(&self) -> usize;
    /// Asks the cluster's coordinator for a change; the client waits, no thread of clients does.
    fn operate(&self, request: membership::Request, reply: LateReply);
    /// This server is a replica from now on, or none any more. The world may be stopped.
    fn role_changed(&self) {}
}

/// Connections of clients.
pub trait ConnectedClients: Send + Sync {
    /// A client as CLIENT LIST shows it.
    fn client_line(&self, _engine: &Engine, _client: &Client, _now: Millis) -> String {
        String::new()
    }
    /// Lets go of the replies at the quorum's gate whose positions have met their end.
    fn release_replies(&self, verdict: Verdict);
}

/// The process: its end, its facts.
pub trait ProcessControl: Send + Sync {
    /// Starts an orderly shutdown, asked for by this client.
    /// `reply` is for a shutdown that fails.
    fn shutdown(&self, by: &str, request: ShutdownRequest, reply: LateReply);
    /// Takes back a shutdown that has been asked for but not begun; `false` if there is none.
    fn abort_shutdown(&self) -> bool;
    /// Replaces the process by a new server with the same arguments; returns only if it cannot.
    fn restart(&self, how: Restart, delay: Duration) -> String;
    /// Facts about the process for INFO, by section: lines of `name:value`.
    fn facts(&self, section: &str) -> Vec<(String, String)>;
    /// Crashes by a memory access that the system refuses.
    fn segfault(&self) -> !;
}

/// The log.
pub trait ServerLog: Send + Sync {
    /// A log line at level notice.
    fn log(&self, line: &str);
    /// A log line at level verbose.
    fn verbose(&self, line: &str);
    /// A log line at level warning.
    fn warn(&self, line: &str);
}

/// Told of how a save has ended.
pub type SaveDone = Box<dyn FnOnce(persistence::Outcome) + Send>;

/// What to do with a snapshot that runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Wait until it is complete.
    Wait,
    /// Cancel it: it is not needed any more.
    Cancel,
}

/// DEBUG RESTART and CRASH-AND-RECOVER.
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
}
