//! The configuration: `redis.conf` and `valkey.conf`, the command line, `CONFIG GET`, `CONFIG SET`
//! and `CONFIG REWRITE`.
//!
//! This crate reads files and opens no socket. It says what an option is set to; what a change
//! asks of the server is done by the closure that [`Config::set`] is given.
//!
//! ```text
//! Arguments::parse ──► load ──► Loaded { config: Arc<Config>, users, renames, … }
//!        the table ──► OPTIONS        │
//!                                     ├─ config.maxmemory(), config.bind(), …   hot and cold reads
//!                                     ├─ config.get(patterns)                   CONFIG GET
//!                                     ├─ config.set(pairs, context, apply)      CONFIG SET
//!                                     └─ config.rewrite(text, users)            CONFIG REWRITE
//! ```

mod accessors;
mod args;
mod checks;
mod choices;
mod compaction;
#[cfg(test)]
mod directives;
mod events;
mod include;
mod limits;
mod load;
mod memory;
mod number;
mod origin;
mod proc_title;
mod rates;
mod rewrite;
mod runtime;
mod shed;
mod spec;
mod store;
mod suggest;
mod table;
mod value;
pub mod yaml;

pub use accessors::ClientMemory;
pub use args::Arguments;
pub use choices::{
    AclPubsubDefault, AppendFsync, Choice, ClusterConfigSaveBehavior, ClusterEndpoint,
    ClusterEndpointType, CommitMode, IoBackend, LogFormat, LogLevel, LogTimestampFormat,
    MaxmemoryPolicy, OomScoreAdj, PropagationErrorBehavior, ProtectedAction, RdbVersionCheck,
    ReplDisklessLoad, ReplicaRdbVersion, SanitizeDumpPayload, SeriesEncoding, SeriesPolicy,
    ShedRequests, ShutdownOptions, Supervised, SyslogFacility, TlsAuthClients, TlsAuthClientsUser,
};
pub use compaction::{AGGREGATORS, CompactionRule, parse_compaction};
pub use events::KeyspaceEvents;
pub use limits::{ClientClass, OutputLimit};
pub use load::{Directive, LoadError, Loaded, load, load_text};
pub use memory::{format_memory, parse_memory};
pub use origin::{LineSource, Origin};
pub use proc_title::expand_proc_title;
pub use rates::{RateLimit, RateSubject, parse_rate_limits};
pub use runtime::{ApplyError, Changed, SetContext, SetError, is_sensitive};
pub use shed::{ClientPattern, parse_client_patterns};
pub use spec::{Check, Effect, Kind, Spec};
pub use store::{Config, SECRET_MARK, Watcher};
pub use structs::glob;
pub use structs::words::{quote_word, split_words};
pub use table::{DEPRECATED, OPTION_COUNT, OPTIONS, find};
pub use value::{Primary, SavePoint, Text};
