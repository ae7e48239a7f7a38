//! A connection's state, as far as commands know it. Only its own thread touches it.

use super::forwarding::{Forwarding, WrittenShards};
use super::prefix_list::PrefixList;
use super::returned::Returned;
use super::suspension::Suspension;
use super::watching::Watching;
use crate::acl::{Acl, SessionUser};
use crate::clients::{Client, Names, flag};
use crate::journal::JournalPos;
use crate::rate_limits::Limited;
use crate::thread::ThreadContext;
use crate::transaction::Multi;
use config::CommitMode;
use keyspace::{DbIndex, HeapString, Millis};
use resp::{Parser, Protocol};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// A request to listen to keyspace events of other nodes, which is held until they have answered
/// (`crate::pubsub::elsewhere`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenRequest {
    /// Later requests have higher numbers.
    pub number: u64,
    /// When it came.
    pub since: Millis,
}

/// What happens to the connection after the commands that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fate {
    /// It goes on.
    #[default]
    Open,
    /// It is closed once its replies are sent.
    CloseAfterReplies,
    /// It is closed at once.
    Close,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReplyMode {
    /// Replies are sent.
    #[default]
    On,
    /// None is, until further notice.
    Off,
    /// The next command's is not.
    Skip,
}

/// The reply to a write that is to be confirmed: a range of the output's plain bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteReply {
    /// Where the reply begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Behind the write.
    pub position: JournalPos,
}

/// CLIENT TRACKING's options.
#[derive(Clone, Debug, Default)]
pub struct Tracking {
    /// Client that gets the invalidations; 0: itself.
    pub redirect: u64,
    /// Broadcasting mode, with its prefixes.
    pub broadcast: Option<Arc<PrefixList>>,
    /// Only keys of the command after CLIENT CACHING yes.
    pub opt_in: bool,
    /// All keys but those of the command after CLIENT CACHING no.
    pub opt_out: bool,
    /// Not for keys it changed itself.
    pub no_loop: bool,
    /// CLIENT CACHING said so for the next command.
    pub caching: Option<bool>,
}

/// A connection's subscriptions.
#[derive(Default, Debug)]
pub struct Subscriptions {
    /// SUBSCRIBE.
    pub channels: BTreeSet<Box<[u8]>>,
    /// PSUBSCRIBE.
    pub patterns: BTreeSet<Box<[u8]>>,
    /// SSUBSCRIBE.
    pub shard_channels: BTreeSet<Box<[u8]>>,
}

impl Subscriptions {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty() && self.shard_channels.is_empty()
    }
}

/// What remembering a name takes besides the name: entries here and in the registry.
pub(crate) const NAME_OVERHEAD: usize = 96;

/// A connection's state; see the module's documentation.
pub struct Session {
    /// The registry's entry.
    pub client: Arc<Client>,
    /// Selected database.
    pub db: DbIndex,
    /// Protocol of replies.
    pub protocol: Protocol,
    /// Whether it ever might.
    pub was_authenticated: bool,
    /// The user that it acts as.
    pub user: SessionUser,
    /// Of a link: the user of the client whose request comes next, if that may not do everything.
    /// What a script, SORT and EXEC do is held against it.
    pub acts_for: Option<SessionUser>,
    /// It stands for a client whose own session another thread has.
    pub is_guest: bool,
    /// MULTI's queue. Has a bit, as the next three have: they change only by methods.
    multi: Option<Box<Multi>>,
    /// What it watches, if anything.
    pub watching: Option<Box<Watching>>,
    /// CLIENT REPLY.
    reply_mode: ReplyMode,
    /// CLIENT TRACKING.
    tracking: Option<Box<Tracking>>,
    /// The client that invalidations went to is gone.
    pub tracking_broken: bool,
    /// Subscriptions.
    subscriptions: Subscriptions,
    /// Its special states, a bit each ([`special`]).
    special: u32,
    /// It has said something of itself as replicas do (REPLCONF).
    pub may_be_replica: bool,
    /// CLIENT COMMIT-MODE; `None`: the server's.
    pub commit_mode: Option<CommitMode>,
    /// Replies of the present input that wait for a quorum, for its thread to take.
    pub write_replies: Vec<WriteReply>,
    /// The write of a command whose reply is to come.
    pub(crate) unanswered: JournalPos,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// CLIENT IMPORT-SOURCE: with `import-mode` no key is gone for it because its time has come.
    pub is_import_source: bool,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT CAPA REDIRECT: it understands being sent to another server.
    pub can_redirect: bool,
    /// CLIENT CAPA CLUSTER: it understands a cluster's protocol, whatever `cluster-endpoint` says.
    pub speaks_cluster: bool,
    /// ASKING: its next request, or its transaction, is for a slot that is arriving.
    pub asking: bool,
    /// How many replicas of another server have to have a key before MIGRATE deletes it here.
    pub awaited_copies: usize,
    /// It brings a copy of slots: the number of that ([`crate::membership::Moves::begin_import`]).
    import: Option<u64>,
    /// Its request concerns a server of which slots move key by key: what is asked for has to be
    /// here.
    pub(crate) checks_slot: bool,
    /// CLIENT CAPA NODE: another node forwards on it what its clients ask for.
    pub is_link: bool,
    /// CLIENT CAPA AGAIN: a node or a proxy gets back requests for slots that wait, and sends them
    /// again.
    pub returned: Option<Box<Returned>>,
    /// Its requests that other nodes of the cluster answer.
    pub forwarding: Option<Box<Forwarding>>,
    /// Its request to listen that other nodes have not answered.
    pub listening: Option<ListenRequest>,
    /// The shards that it has written to, where it sees one server.
    pub written_shards: Option<Box<WrittenShards>>,
    /// It was answered as by the primary of a cluster's shard: before replies leave, this server
    /// has to be that still.
    pub answered_by_primary: bool,
    /// When its input was presented, another copy may have led this server's shard.
    pub(crate) is_past_lease: bool,
    /// READONLY: it reads from a replica although it could be sent to the primary.
    pub reads_replica: bool,
    /// What it waits for.
    pub suspension: Option<Suspension>,
    /// What happens after the replies.
    pub fate: Fate,
    /// Connected by a Unix socket or from the machine itself.
    pub is_local: bool,
    /// Connected from inside the process, for the admin port, or by `admin-socket`.
    pub is_insider: bool,
    /// Transport flags of CLIENT LIST ([`flag::UNIX_SOCKET`], [`flag::TLS`], [`flag::IPV6`]).
    pub transport_flags: u64,
    /// Output the client may have in its buffer before it is closed for reading too slowly.
    pub output_room: usize,
    /// It has more than that.
    pub overflows: bool,
    /// Why it is closed, for the log: it has used its connection for what it is not for.
    pub misuse: Option<String>,
    /// Bytes of the names of what it subscribed to.
    pub(crate) subscribed_bytes: usize,
    /// The position in the journal behind its last write.
    pub written: JournalPos,
    /// While replies wait for the disk: the position behind the last write that its reads may have
    /// seen, or that it was told of.
    pub seen: JournalPos,
    /// The last [ticket](crate::mailbox) of what others have to be told before its replies leave.
    pub told: u64,
    /// CLIENT PAUSE holds its next command back.
    pub(crate) is_postponed: bool,
    pub(crate) parser: Parser,
    /// Commands run.
    pub(crate) commands: u64,
    /// Index of the last command, plus one.
    pub(crate) last_command: usize,
    /// Its limits of rate; none before its first request under a limit.
    pub(crate) limited: Option<Box<Limited>>,
    /// Whether it is refused under overload, by the rules of this generation (`shed-clients`); none
    /// before it was looked at.
    pub(crate) is_least_important: Option<(u32, bool)>,
    /// Bytes of the request that runs, as it was sent; that of EXEC while its commands run.
    pub(crate) request_bytes: usize,
}

/// The bits of a session's special states.
mod special {
    /// MULTI queues its commands.
    pub const MULTI: u32 = 1 << 0;
    /// It may not run commands without logging in, unless the server asks for no password.
    pub const UNAUTHENTICATED: u32 = 1 << 1;
    /// CLIENT REPLY withholds replies.
    pub const MUTED: u32 = 1 << 2;
    /// CLIENT TRACKING.
    pub const TRACKING: u32 = 1 << 3;
    /// MONITOR.
    pub const MONITOR: u32 = 1 << 4;
    /// It is subscribed to something.
    pub const SUBSCRIBED: u32 = 1 << 5;
    /// It has asked for the stream.
    pub const REPLICA: u32 = 1 << 6;
    /// It brings a copy of slots.
    pub const IMPORT: u32 = 1 << 7;
    /// The states in which a request passes all gates.
    pub const GATES: u32 =
        MULTI | UNAUTHENTICATED | MUTED | TRACKING | MONITOR | SUBSCRIBED | REPLICA;
    /// The states in which requests are not dispatched as those of a client.
    pub const OF_SERVER: u32 = REPLICA | IMPORT;
}

/// The states that have bits. Each changes only here, together with its bit.
impl Session {
    /// Returns whether it may run commands.
    #[inline]
    pub fn is_authenticated(&self) -> bool {
        !self.has(special::UNAUTHENTICATED)
    }

    /// Sets whether it may run commands.
    pub fn set_authenticated(&mut self, is_authenticated: bool) {
        self.set(special::UNAUTHENTICATED, !is_authenticated);
    }

    /// Returns MULTI's queue.
    #[inline]
    pub fn multi(&self) -> Option<&Multi> {
        self.multi.as_deref()
    }

    /// Returns MULTI's queue, to be changed.
    #[inline]
    pub fn multi_mut(&mut self) -> Option<&mut Multi> {
        self.multi.as_deref_mut()
    }

    /// Begins or ends a transaction. Returns the queue of the one before.
    pub fn set_multi(&mut self, multi: Option<Box<Multi>>) -> Option<Box<Multi>> {
        self.set(special::MULTI, multi.is_some());
        std::mem::replace(&mut self.multi, multi)
    }

    /// Ends the transaction. Returns its queue.
    pub fn take_multi(&mut self) -> Option<Box<Multi>> {
        self.set_multi(None)
    }

    /// Returns what CLIENT REPLY said.
    #[inline]
    pub fn reply_mode(&self) -> ReplyMode {
        self.reply_mode
    }

    /// CLIENT REPLY.
    pub fn set_reply_mode(&mut self, mode: ReplyMode) {
        self.set(special::MUTED, mode != ReplyMode::On);
        self.reply_mode = mode;
    }

    /// Returns the options of CLIENT TRACKING, if it is on.
    #[inline]
    pub fn tracking(&self) -> Option<&Tracking> {
        self.tracking.as_deref()
    }

    /// Returns the options of CLIENT TRACKING, to be changed.
    pub fn tracking_mut(&mut self) -> Option<&mut Tracking> {
        self.tracking.as_deref_mut()
    }

    /// Begins or ends tracking. Returns the options before.
    pub fn set_tracking(&mut self, tracking: Option<Box<Tracking>>) -> Option<Box<Tracking>> {
        self.set(special::TRACKING, tracking.is_some());
        std::mem::replace(&mut self.tracking, tracking)
    }

    /// Returns what it is subscribed to.
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// Lets `change` subscribe or unsubscribe. Returns what that returns.
    pub fn change_subscriptions<R>(&mut self, change: impl FnOnce(&mut Subscriptions) -> R) -> R {
        let result = change(&mut self.subscriptions);
        self.set(special::SUBSCRIBED, !self.subscriptions.is_empty());
        result
    }

    /// Returns whether it is in MONITOR.
    #[inline]
    pub fn is_monitor(&self) -> bool {
        self.has(special::MONITOR)
    }

    /// MONITOR, or its end. Returns whether it was in MONITOR.
    pub fn set_monitor(&mut self, is_monitor: bool) -> bool {
        self.set(special::MONITOR, is_monitor)
    }

    /// Returns whether it has asked for the stream (PSYNC, SYNC).
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.has(special::REPLICA)
    }

    /// Sets whether it has asked for the stream. Returns whether it had.
    pub fn set_replica(&mut self, is_replica: bool) -> bool {
        self.set(special::REPLICA, is_replica)
    }

    /// Returns the number of the copy of slots that it brings, if it brings one
    /// ([`crate::membership::Moves::begin_import`]).
    #[inline]
    pub fn import(&self) -> Option<u64> {
        self.import
    }

    /// Makes it bring a copy of slots.
    pub(crate) fn set_import(&mut self, number: Option<u64>) {
        self.set(special::IMPORT, number.is_some());
        self.import = number;
    }
}

impl Session {
    /// The state of a new connection.
    pub fn new(client: Arc<Client>, user: SessionUser, authenticated: bool) -> Session {
        Session {
            client,
            db: DbIndex(0),
            protocol: Protocol::Resp2,
            special: if authenticated { 0 } else { special::UNAUTHENTICATED },
            was_authenticated: authenticated,
            user,
            acts_for: None,
            is_guest: false,
            multi: None,
            watching: None,
            reply_mode: ReplyMode::On,
            tracking: None,
            tracking_broken: false,
            subscriptions: Subscriptions::default(),
            may_be_replica: false,
            commit_mode: None,
            write_replies: Vec::new(),
            answered_by_primary: false,
            is_past_lease: false,
            unanswered: JournalPos(0),
            no_touch: false,
            is_import_source: false,
            no_evict: false,
            can_redirect: false,
            speaks_cluster: false,
            asking: false,
            awaited_copies: 0,
            import: None,
            checks_slot: false,
            is_link: false,
            returned: None,
            forwarding: None,
            listening: None,
            written_shards: None,
            reads_replica: false,
            suspension: None,
            fate: Fate::Open,
            is_local: false,
            is_insider: false,
            transport_flags: 0,
            output_room: usize::MAX,
            overflows: false,
            misuse: None,
            subscribed_bytes: 0,
            written: JournalPos(0),
            seen: JournalPos(0),
            told: 0,
            is_postponed: false,
            parser: Parser::new(),
            commands: 0,
            last_command: 0,
            limited: None,
            is_least_important: None,
            request_bytes: 0,
        }
    }

    /// Suspends it: it reads no further request until it is resumed. Returns the token of the
    /// suspension.
    pub fn suspend(&mut self, thread: &ThreadContext, mut suspension: Suspension) -> u64 {
        let token = thread.next_token();
        suspension.token = token;
        suspension.is_silent = self.reply_mode != ReplyMode::On;
        if let Some(deadline) = suspension.deadline {
            thread.note_deadline(deadline, self.id(), token);
        }
        self.suspension = Some(suspension);
        token
    }

    /// A session to run one of its commands in, away from its own thread.
    pub(crate) fn guest(&self) -> Session {
        let mut guest = Session {
            db: self.db,
            speaks_cluster: self.speaks_cluster,
            checks_slot: self.checks_slot,
            is_link: self.is_link,
            acts_for: self.acts_for.clone(),
            reads_replica: self.reads_replica,
            protocol: self.protocol,
            request_bytes: self.request_bytes,
            no_touch: self.no_touch,
            is_import_source: self.is_import_source,
            is_local: self.is_local,
            is_insider: self.is_insider,
            transport_flags: self.transport_flags,
            is_guest: true,
            ..Session::new(Arc::clone(&self.client), self.user.clone(), true)
        };
        guest.set_tracking(self.tracking.clone());
        guest.set_import(self.import);
        guest
    }

    /// Its number.
    #[inline]
    pub fn id(&self) -> u64 {
        self.client.id
    }

    /// Another node has answered a request. Returns whether it was the last.
    pub fn answered_elsewhere(&mut self) -> bool {
        let is_last = self.forwarding.as_mut().is_some_and(|forwarding| forwarding.answered());
        if is_last && self.client.live.waits_elsewhere.load(Relaxed) {
            self.client.live.waits_elsewhere.store(false, Release);
            *self.client.waits_for() = None;
        }
        is_last
    }

    /// What the client gets for another node's reply: the error that its rights have changed, if
    /// its wait was ended because of that.
    pub fn reply_from_elsewhere<'r>(&self, reply: &'r [u8]) -> Cow<'r, [u8]> {
        if !reply.starts_with(route::raw::UNBLOCKED) {
            return Cow::Borrowed(reply);
        }
        match self.client.waits_for().as_ref().and_then(|waiting| waiting.error.as_ref()) {
            Some(error) => Cow::Owned(error.clone()),
            None => Cow::Borrowed(reply),
        }
    }

    /// Whether it is in the mode in which RESP2 allows only subscription commands.
    pub fn is_subscribed(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Lets the client in as this user.
    pub fn log_in(&mut self, user: SessionUser) {
        self.set_authenticated(true);
        self.was_authenticated = true;
        self.act_as(user);
    }

    /// From now on the client is this user.
    pub fn act_as(&mut self, user: SessionUser) {
        self.client.names().user = user.name().to_owned();
        self.limited = None;
        self.is_least_important = None;
        self.user = user;
    }

    /// Lets `change` give the client other names.
    pub fn rename(&mut self, change: impl FnOnce(&mut Names)) {
        self.is_least_important = None;
        change(&mut self.client.names());
    }

    /// Whether it waits for something other than its client.
    pub fn is_blocked(&self) -> bool {
        self.suspension.is_some() || self.is_postponed
    }

    /// Bytes of words of a request that is not complete.
    pub fn pending_argument_bytes(&self) -> usize {
        self.parser.pending_bytes()
    }

    /// Bytes of the unfinished request's beginning that are counted as its words, or are nothing
    /// but their headers.
    pub fn parsed_bytes(&self) -> usize {
        self.parser.parsed_bytes()
    }

    /// Gives it a word that `Next::ReadWord` asked for.
    pub fn supply_word(&mut self, word: HeapString) {
        self.parser.supply(word);
    }

    /// Bytes of words that were supplied for a request that is not complete.
    pub fn supplied_bytes(&self) -> usize {
        self.parser.long_bytes()
    }

    /// Bytes of commands that MULTI has queued.
    pub fn queued_bytes(&self) -> usize {
        self.multi.as_ref().map_or(0, |multi| multi.bytes())
    }

    /// Bytes of memory it takes, without its connection's buffers.
    pub fn memory_bytes(&self) -> usize {
        let prefixes = self.tracking.as_ref().and_then(|tracking| tracking.broadcast.as_ref());
        size_of::<Session>()
            + size_of::<Client>()
            + self.queued_bytes()
            + self.parser.long_bytes()
            + self.watching.as_ref().map_or(0, |watching| watching.memory_bytes())
            + self.subscribed_bytes
            + prefixes.map_or(0, |prefixes| prefixes.memory_bytes())
    }

    /// Makes it a session of the server itself, which may do everything.
    pub fn become_watcher(&mut self, acl: &Acl) {
        self.user = acl.watcher();
        self.set_authenticated(true);
        self.was_authenticated = true;
        self.client.names().user = "admin-port".into();
    }

    /// Accounts for the name of something subscribed to.
    pub fn count_subscription(&mut self, name: &[u8]) {
        self.subscribed_bytes += name.len() + NAME_OVERHEAD;
    }

    /// The opposite.
    pub fn discount_subscription(&mut self, name: &[u8]) {
        self.subscribed_bytes = self.subscribed_bytes.saturating_sub(name.len() + NAME_OVERHEAD);
    }

    /// Returns whether any rule but the ordinary ones applies to its next command.
    #[inline(always)]
    pub(crate) fn is_special(&self) -> bool {
        self.special & special::GATES != 0
    }

    /// Returns whether another server brings data on it, whose requests have ways of their own.
    #[inline(always)]
    pub(crate) fn is_of_server(&self) -> bool {
        self.special & special::OF_SERVER != 0
    }

    fn has(&self, bit: u32) -> bool {
        self.special & bit != 0
    }

    /// Sets or clears a bit. Returns whether it was set.
    fn set(&mut self, bit: u32, is_set: bool) -> bool {
        let was_set = self.has(bit);
        self.special = if is_set { self.special | bit } else { self.special & !bit };
        was_set
    }

    /// Shows the registry what has changed; after each batch.
    pub fn publish(&self, now_ms: i64) {
        let live = &self.client.live;
        live.last_seen_ms.store(now_ms, Relaxed);
        live.db.store(self.db.0, Relaxed);
        live.last_command.store(self.last_command, Relaxed);
        live.commands.store(self.commands, Relaxed);
        live.protocol.store(if self.protocol == Protocol::Resp3 { 3 } else { 2 }, Relaxed);
        live.argv_bytes.store(self.parser.pending_bytes(), Relaxed);
        let was_plain =
            live.flags.load(Relaxed) == self.transport_flags && live.watched.load(Relaxed) == 0;
        if !(was_plain && self.is_plain()) {
            self.publish_states();
        }
    }

    /// Returns whether it is in none of the states of which the registry shows more than that.
    #[inline]
    fn is_plain(&self) -> bool {
        let is_said = self.said().iter().fold(false, |is_said, &(is, _)| is_said | is);
        let is_in_a_state = self.special != 0
            || self.suspension.is_some()
            || self.watching.is_some()
            || self.fate != Fate::Open;
        !is_said && !is_in_a_state
    }

    /// Returns what is said of it by a field alone, with the bit that the registry shows.
    #[inline]
    fn said(&self) -> [(bool, u64); 8] {
        [
            (self.is_postponed, flag::BLOCKED),
            (self.tracking_broken, flag::BROKEN_REDIRECT),
            (self.no_evict, flag::NO_EVICT),
            (self.no_touch, flag::NO_TOUCH),
            (self.is_import_source, flag::IMPORT_SOURCE),
            (self.can_redirect, flag::CAN_REDIRECT),
            (self.reads_replica, flag::READS_REPLICA),
            (self.is_link, flag::LINK),
        ]
    }

    fn publish_states(&self) {
        let live = &self.client.live;
        let mut flags = self.transport_flags;
        let mut set = |condition: bool, bit: u64| {
            if condition {
                flags |= bit;
            }
        };
        self.said().iter().for_each(|&(is, bit)| set(is, bit));
        // A long command runs, it does not wait.
        let waits = self.suspension.as_ref().is_some_and(|s| s.waiter.is_some());
        set(waits, flag::BLOCKED);
        let has_deadline = self.suspension.as_ref().is_some_and(|s| s.deadline.is_some());
        set(waits && has_deadline, flag::TIMED_WAIT);
        set(self.multi.is_some(), flag::MULTI);
        set(self.is_monitor(), flag::MONITOR);
        set(self.is_replica(), flag::REPLICA);
        set(self.is_subscribed(), flag::PUBSUB);
        set(self.watching.as_ref().is_some_and(|w| w.is_changed()), flag::WATCH_DIRTY);
        set(self.tracking.is_some(), flag::TRACKING);
        set(self.tracking.as_ref().is_some_and(|t| t.broadcast.is_some()), flag::TRACKING_BCAST);
        set(self.fate != Fate::Open, flag::CLOSING);
        live.flags.store(flags, Relaxed);
        live.channels.store(self.subscriptions.channels.len(), Relaxed);
        live.patterns.store(self.subscriptions.patterns.len(), Relaxed);
        live.shard_channels.store(self.subscriptions.shard_channels.len(), Relaxed);
        live.multi.store(self.multi.as_ref().map_or(0, |m| m.len() + 1), Relaxed);
        live.multi_bytes.store(self.multi.as_ref().map_or(0, |m| m.bytes()), Relaxed);
        live.watched.store(self.watching.as_ref().map_or(0, |watching| watching.len()), Relaxed);
        let redirect = self.tracking.as_ref().map_or(-1, |t| t.redirect as i64);
        live.redirect.store(redirect, Relaxed);
    }
}
