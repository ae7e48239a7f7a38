//! What a command is: a row of plain static data, and whatever runs it.
//!
//! Everything that is said *about* commands is derived from the rows: COMMAND, COMMAND DOCS,
//! COMMAND GETKEYS, the ACL categories, the keys to lock, the gates a request passes, the servers
//! that it goes to and COMPATIBILITY.md. A row is written next to its function, in the file of the command:
//!
//! ```ignore
//! pub static GETDEL: Command = Command { // the row of the engine's runner
//!     name: "getdel",
//!     arity: 2,
//!     flags: Flags::WRITE.with(Flags::FAST),
//!     keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE))],
//!     group: Group::String,
//!     since: "6.2.0",
//!     complexity: "O(1)",
//!     summary: "Returns the string value of a key after deleting it.",
//!     args: &[Arg::key("key", 0)],
//!     run: getdel,
//!     ..Command::ROW
//! };
//! ```

use crate::arg::Arg;
use crate::effort::Effort;
use crate::key_spec::{FindKeys, FindPrefixes, KeySpec};
use crate::routing::Routing;

/// What runs the commands of a table, and so what rows have beside what they say.
pub trait Runner: 'static {
    /// Runs a command.
    type Run: Copy;
    /// Finds out how much a request is going to do.
    type Estimate: Copy;
    /// Of rows that are not run.
    const NOTHING: Self::Run;
}

/// Nothing: rows that are only read, by what sends requests to other servers.
#[derive(Clone, Copy, Debug)]
pub struct NotRun;

impl Runner for NotRun {
    type Run = ();
    type Estimate = ();
    const NOTHING: () = ();
}

/// Answers a question about the words of a request.
pub type NeedsWorld = fn(&[&[u8]]) -> bool;

/// What a request to run a script names it by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptName {
    /// Its text.
    Source,
    /// Its digest.
    Digest,
    /// The function's name.
    Function,
}

/// Calls back with the place of each word of a request that is of a kind: a secret, a database.
pub type FindWords = fn(&[&[u8]], &mut dyn FnMut(usize));

/// Which words of a request are channels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channels {
    /// None.
    None,
    /// The first argument.
    First,
    /// All arguments.
    All,
    /// All arguments, which are patterns.
    Patterns,
}

/// Which databases a request reaches.
#[derive(Clone, Copy)]
pub enum Databases {
    /// The selected one, if it has to do with data.
    Selected,
    /// All of them.
    All,
    /// The one that its first argument names, which is the selected one from then on.
    Chosen,
    /// Those that some words name; the function calls back with each such word.
    Named(FindWords),
}

/// What a request is in a stream of replication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streamed {
    /// It writes keys or libraries, or removes all of them.
    Write,
    /// It sends a message to subscribers, which is no data.
    Message,
    /// It runs a script. Servers from version 5 on send what scripts write instead.
    Script,
    /// Anything else. No server writes it into its stream.
    Other,
}

/// One row of the command table.
pub struct Row<R: Runner> {
    /// Lower-case name; of a subcommand the last word only.
    pub name: &'static str,
    /// Number of words with the name; negative: at least that many.
    pub arity: i32,
    /// What the gates need to know.
    pub flags: Flags,
    /// Where the keys are.
    pub keys: &'static [KeySpec],
    /// The documentation's group.
    pub group: Group,
    /// ACL categories, without the `@`, beyond those that the flags and the group imply; one
    /// that is implied wrongly is taken away by a minus sign (`-keyspace`).
    pub categories: &'static [&'static str],
    /// First version of Redis that had it.
    pub since: &'static str,
    /// Time complexity, as the documentation states it.
    pub complexity: &'static str,
    /// What a request's running time depends on, if it can be long.
    pub effort: Effort<R::Estimate>,
    /// One sentence for help texts.
    pub summary: &'static str,
    /// Changes of behaviour: version, what changed.
    pub history: &'static [(&'static str, &'static str)],
    /// Hints for clients and proxies (COMMAND INFO's "tips").
    pub tips: &'static [&'static str],
    /// Deprecation: version since, and what to use instead.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// The arguments, for COMMAND DOCS and help texts.
    pub args: &'static [Arg],
    /// Subcommands; then `run` answers only when the name stands alone.
    pub subcommands: &'static [&'static Row<R>],
    /// What HELP prints of a container: a line for each subcommand, and indented ones about it.
    pub help: &'static [&'static str],
    /// Finds the keys where the specifications cannot, or cannot tell the flags.
    pub find_keys: Option<FindKeys>,
    /// Finds the beginnings of the names of keys that a request reads and that its words do not
    /// name. Such a request needs the world stopped.
    pub key_prefixes: Option<FindPrefixes>,
    /// Whether a request needs the world stopped for another reason.
    pub needs_world: Option<NeedsWorld>,
    /// It runs a script, which word 1 names so.
    pub script: Option<ScriptName>,
    /// The words that are channels, for ACL rules.
    pub channels: Channels,
    /// The databases that a request reaches, for ACL rules.
    pub databases: Databases,
    /// Finds the words that no log may show: passwords.
    pub secrets: Option<FindWords>,
    /// Finds the words that the audit log hides, if these are fewer than `secrets`.
    pub audit_secrets: Option<FindWords>,
    /// How a request travels where several servers share the keys, if that is unusual.
    pub routing: Routing,
    /// Runs it.
    pub run: R::Run,
}

impl<R: Runner> Row<R> {
    /// The defaults of a row; name, arity, flags and `run` are always given.
    pub const ROW: Row<R> = Row {
        name: "",
        arity: 1,
        flags: Flags::NONE,
        keys: &[],
        group: Group::Generic,
        categories: &[],
        since: "1.0.0",
        complexity: "O(1)",
        effort: Effort::Small,
        summary: "",
        history: &[],
        tips: &[],
        deprecated: None,
        args: &[],
        subcommands: &[],
        help: &[],
        find_keys: None,
        key_prefixes: None,
        needs_world: None,
        script: None,
        channels: Channels::None,
        databases: Databases::Selected,
        secrets: None,
        audit_secrets: None,
        routing: Routing::USUAL,
        run: R::NOTHING,
    };

    /// The words of a request as MONITOR and the command log show them: without its secrets.
    pub fn shown<'w>(&self, words: &[&'w [u8]]) -> Vec<&'w [u8]> {
        without(self.secrets, words)
    }

    /// The words of a request as the audit log shows them: without its secrets.
    pub fn audited<'w>(&self, words: &[&'w [u8]]) -> Vec<&'w [u8]> {
        without(self.audit_secrets.or(self.secrets), words)
    }

    /// What a request of this row is in a stream of replication.
    pub fn streamed(&self) -> Streamed {
        let flags = self.flags;
        // PFCOUNT reads, and keeps what it has computed with the value.
        let writes =
            flags.has(Flags::WRITE) || flags.has(Flags::READONLY.with(Flags::MAY_REPLICATE));
        match () {
            // MIGRATE makes a server connect to another. Its effects are deletions.
            () if writes && !flags.has(Flags::ASKS_PEER) => Streamed::Write,
            () if !flags.has(Flags::MAY_REPLICATE) => Streamed::Other,
            () if self.script.is_some() => Streamed::Script,
            () if flags.has(Flags::PUBSUB) => Streamed::Message,
            () => Streamed::Other,
        }
    }

    /// The row without what runs it; it stays for as long as the process.
    pub fn described(&self) -> &'static Row<NotRun> {
        let subcommands: Vec<_> = self.subcommands.iter().map(|row| row.described()).collect();
        Box::leak(Box::new(Row {
            name: self.name,
            arity: self.arity,
            flags: self.flags,
            keys: self.keys,
            group: self.group,
            categories: self.categories,
            since: self.since,
            complexity: self.complexity,
            effort: self.effort.described(),
            summary: self.summary,
            history: self.history,
            tips: self.tips,
            deprecated: self.deprecated,
            args: self.args,
            subcommands: subcommands.leak(),
            help: self.help,
            find_keys: self.find_keys,
            key_prefixes: self.key_prefixes,
            needs_world: self.needs_world,
            script: self.script,
            channels: self.channels,
            databases: self.databases,
            secrets: self.secrets,
            audit_secrets: self.audit_secrets,
            routing: self.routing,
            run: (),
        }))
    }

    /// Whether a request may have so many words.
    #[inline]
    pub fn accepts(&self, words: usize) -> bool {
        let asked = self.arity.unsigned_abs() as usize;
        words == asked || (self.arity < 0 && words > asked)
    }
}

/// What stands in the place of a secret.
pub const REDACTED: &[u8] = b"(redacted)";

/// Returns the words with those that are found redacted.
fn without<'w>(secrets: Option<FindWords>, words: &[&'w [u8]]) -> Vec<&'w [u8]> {
    let mut shown = words.to_vec();
    if let Some(secrets) = secrets {
        secrets(words, &mut |at| {
            if let Some(word) = shown.get_mut(at) {
                *word = REDACTED;
            }
        });
    }
    shown
}

impl<R: Runner> std::fmt::Debug for Row<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A set of command flags: those that COMMAND shows, and a few of our own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u64);

impl Flags {
    /// Those of commands that do more than look at their keys or change them.
    pub const BEYOND_KEY: Flags = Flags::WORLD
        .with(Flags::WALKS)
        .with(Flags::BLOCKING)
        .with(Flags::WATCHES)
        .with(Flags::RUNS_QUEUE)
        .with(Flags::PUBSUB)
        .with(Flags::ADMIN)
        .with(Flags::REACHES)
        .with(Flags::ASKS_PEER)
        .with(Flags::CROSSES_DATABASES)
        .with(Flags::MAY_REPLICATE);
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// May change the keyspace.
    pub const WRITE: Flags = Flags(1 << 0);
    /// Reads keys only.
    pub const READONLY: Flags = Flags(1 << 1);
    /// Refused when memory is over the limit.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// An administrator's command.
    pub const ADMIN: Flags = Flags(1 << 3);
    /// Concerns publish/subscribe.
    pub const PUBSUB: Flags = Flags(1 << 4);
    /// Not allowed in scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    /// May block the client.
    pub const BLOCKING: Flags = Flags(1 << 6);
    /// Allowed while the data set loads.
    pub const LOADING: Flags = Flags(1 << 7);
    /// Allowed on a replica with stale data.
    pub const STALE: Flags = Flags(1 << 8);
    /// Not shown to MONITOR.
    pub const SKIP_MONITOR: Flags = Flags(1 << 9);
    /// Not logged in the command log.
    pub const SKIP_COMMANDLOG: Flags = Flags(1 << 10);
    /// Constant or logarithmic time.
    pub const FAST: Flags = Flags(1 << 11);
    /// Allowed before authentication.
    pub const NO_AUTH: Flags = Flags(1 << 12);
    /// May propagate although it is not a write.
    pub const MAY_REPLICATE: Flags = Flags(1 << 13);
    /// Refused inside MULTI.
    pub const NO_MULTI: Flags = Flags(1 << 14);
    /// Allowed while the server waits for a busy script.
    pub const ALLOW_BUSY: Flags = Flags(1 << 16);
    /// Cannot be run by asynchronous loading (shown as `no_async_loading`).
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 17);
    /// A request without any key is valid too (`no_mandatory_keys`).
    pub const NO_MANDATORY_KEYS: Flags = Flags(1 << 18);
    /// Obeyed by a node that imports the key's slot, as after ASKING.
    pub const ASKING: Flags = Flags(1 << 19);

    /// Ours: runs with every other thread stopped, and may touch any stripe.
    pub const WORLD: Flags = Flags(1 << 40);
    /// Ours: walks stripes one at a time through `cx.keyspace`, locking each itself.
    pub const WALKS: Flags = Flags(1 << 41);
    /// Ours: runs inside MULTI at once instead of being queued (EXEC, DISCARD, …).
    pub const NOT_QUEUED: Flags = Flags(1 << 42);
    /// Ours: runs the commands that MULTI has queued, so that its keys and needs are theirs.
    pub const RUNS_QUEUE: Flags = Flags(1 << 43);
    /// Ours: meant for other servers rather than users (COMMAND DOCS shows `syscmd`).
    pub const SYSCMD: Flags = Flags(1 << 44);
    /// Ours: refused unless `enable-debug-command` allows it.
    pub const PROTECTED: Flags = Flags(1 << 45);
    /// Ours: allowed to a RESP2 client that has subscriptions.
    pub const WHILE_SUBSCRIBED: Flags = Flags(1 << 46);
    /// Ours: answers with out-of-band messages, which CLIENT REPLY does not silence.
    pub const ANSWERS_BY_PUSH: Flags = Flags(1 << 47);
    /// Ours: sets what is sent of the replies that follow, and is not the first of them itself.
    pub const SETS_REPLY_MODE: Flags = Flags(1 << 48);
    /// Ours: sets what is cached of the command that follows, and is not that command itself.
    pub const SETS_CACHING: Flags = Flags(1 << 49);
    /// Ours: adds to what its client watches. As a long command it locks its keys one at a time.
    pub const WATCHES: Flags = Flags(1 << 51);
    /// Ours: refused as a write is while the disk fails, so that a health check notices.
    pub const REPORTS_HEALTH: Flags = Flags(1 << 52);
    /// Ours: looks at keys, never at their values, so these need not be in RAM. A key that is
    /// deleted or overwritten without being read says so itself ([`KeyFlags`]).
    pub const NO_VALUES: Flags = Flags(1 << 50);
    /// Ours: reads the string of its only key (`Db::string`) and nothing else. It may be
    /// answered with a value that was read from flash and is not put back into RAM.
    pub const READS_STRING: Flags = Flags(1 << 56);
    /// Ours: when it waits, it runs again also if its key goes or gets another type.
    pub const NOTICES_LOSS: Flags = Flags(1 << 53);
    /// Ours: may touch its keys in another database than the selected one.
    pub const CROSSES_DATABASES: Flags = Flags(1 << 54);
    /// Ours: waits for another server. It runs on a background thread for that, and takes hold of
    /// its keys when it is ready to (`Cx::hold_keys`); inside MULTI and scripts it waits where it
    /// is.
    pub const ASKS_PEER: Flags = Flags(1 << 55);

    /// Ours: may end the load of a primary's snapshot, and refuses itself what does not.
    pub const ENDS_REPLICA_LOAD: Flags = Flags(1 << 57);

    /// Ours: may touch keys that its words do not name. Inside MULTI and scripts, where it cannot
    /// be run again, it has the world stopped.
    pub const REACHES: Flags = Flags(1 << 58);
    /// Ours: as [`Flags::REACHES`], if there are values that may refer to other keys (those with
    /// labels: time series).
    pub const RELINKS: Flags = Flags(1 << 59);

    /// Ours: changes the server, its users or its cluster, or removes all data. The audit log has
    /// it.
    pub const AUDITED: Flags = Flags(1 << 60);

    /// Ours: reaches no key and waits for no other command, so that operators get it answered while
    /// the world is stopped.
    pub const OUTSIDE: Flags = Flags(1 << 61);

    /// Both sets.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// Without `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
    /// Whether all of `other` is in the set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// Whether any of `other` is in the set.
    #[inline]
    pub const fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

/// The documentation's groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Group {
    Bitmap,
    Cluster,
    Connection,
    Generic,
    Geo,
    Hash,
    Hyperloglog,
    List,
    /// Of a type that Redis has in a module. The row names the ACL category itself.
    Module,
    Pubsub,
    Scripting,
    Server,
    Set,
    SortedSet,
    Stream,
    String,
    Transactions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_flags_are_distinct() {
        let ours = [
            Flags::WORLD,
            Flags::WALKS,
            Flags::NOT_QUEUED,
            Flags::RUNS_QUEUE,
            Flags::SYSCMD,
            Flags::PROTECTED,
            Flags::WHILE_SUBSCRIBED,
            Flags::ANSWERS_BY_PUSH,
            Flags::SETS_REPLY_MODE,
            Flags::SETS_CACHING,
            Flags::WATCHES,
            Flags::REPORTS_HEALTH,
            Flags::NO_VALUES,
            Flags::NOTICES_LOSS,
            Flags::CROSSES_DATABASES,
            Flags::ENDS_REPLICA_LOAD,
            Flags::REACHES,
            Flags::RELINKS,
            Flags::AUDITED,
            Flags::OUTSIDE,
        ];
        let all = ours.into_iter().fold(Flags::NONE, Flags::with);
        assert_eq!(all.0.count_ones() as usize, ours.len());
        assert!(ours.iter().all(|flag| flag.0 >> 40 != 0));
    }
}
