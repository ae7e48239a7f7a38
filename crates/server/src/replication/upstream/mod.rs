//! The link to the primary. A thread connects, receives the snapshot and applies the stream.
//! [`replication::replica`] decides what to do; this module adds the socket and the clock.
//!
//! The thread waits for its socket for at most [`ROUND`] at a time. So it soon notices a change of
//! role, which another thread makes by beginning a new term ([`engine::upstream`]).

mod input;
mod kept;
mod load;
mod main_channel;
mod received;

use crate::bus;
use crate::log;
use crate::persistence::aof::Aof;
use crate::socket::{ROUND, Socket};
use crate::tls::Certificates;
use config::Config;
use engine::Engine;
use engine::append_log::LogState;
use engine::clients::Client;
use engine::clock::now;
use engine::failover::Stage as FailoverStage;
use engine::follow::{Follower, Piece, is_held_by_clients};
use engine::journal::JournalPos;
use engine::thread::ThreadContext;
use engine::votes::Voice;
use input::is_nothing;
use kept::Kept;
use process::{log as logging, os_error, thread};
use received::{Missing, Received};
use replication::replica::{
    Action, Channel, Identity, Promise, Replica, Stage, Surroundings, acknowledgement, voted,
};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// Bytes that are received while CLIENT PAUSE delays the stream.
const MOST_HELD: usize = 1 << 20;
/// Greatest number of entries that are applied together.
const TOGETHER: usize = 1024;
/// Greatest length of a line of the handshake, in bytes.
const LONGEST_LINE: usize = 1 << 10;
/// How long bytes are waited for at first while the disk lacks what the primary has asked for. The
/// wait is doubled each time that nothing comes, up to [`ROUND`].
const FIRST_WAIT: Duration = Duration::from_millis(1);
/// The version that replicas announce. The primary chooses the newest RDB version that this version
/// of Valkey reads, which is the newest that this server reads.
const VERSION: &str = "9.1.0";

/// Starts the thread.
///
/// # Errors
/// The system cannot start a thread.
pub fn start(engine: &'static Engine, aof: &Arc<Aof>) -> io::Result<()> {
    let aof = Arc::clone(aof);
    thread::spawn("replica", move || {
        let context = engine.follower_context();
        Uplink::new(engine, &context, aof).run();
    })
    .map(drop)
}

/// The link. The module's documentation describes it.
struct Uplink<'t> {
    engine: &'static Engine,
    thread: &'t ThreadContext,
    aof: Arc<Aof>,
    machine: Replica,
    term: u64,
    socket: Option<Socket>,
    input: Received,
    /// The second connection, which transfers a snapshot, and the bytes received over it.
    rdb_channel: Option<Socket>,
    rdb_input: Received,
    /// Bytes of the stream that arrived beside a snapshot. They are moved into the input before any
    /// others.
    kept: Kept,
    /// The piece to apply next, if it was prepared already.
    next: Option<Piece>,
    follower: Follower<'t>,
    /// A position that the primary has asked for, and that was not on the disk then.
    owed: Option<JournalPos>,
    /// Bytes that have come are held, and counted in `Link::held_bytes`.
    holds: bool,
    /// How long the socket waits for bytes.
    wait: Duration,
    /// The link's entry in the client list, while the stream arrives.
    client: Option<Arc<Client>>,
    /// Whether the next attempt to connect is logged.
    announces: bool,
    /// The publication that was looked at last, and whether the link is by the bus.
    way: (u64, bool),
}

impl<'t> Uplink<'t> {
    fn new(engine: &'static Engine, thread: &'t ThreadContext, aof: Arc<Aof>) -> Uplink<'t> {
        Uplink {
            engine,
            thread,
            aof,
            machine: Replica::default(),
            term: 0,
            socket: None,
            input: Received::default(),
            rdb_channel: None,
            rdb_input: Received::default(),
            kept: Kept::default(),
            next: None,
            follower: Follower::new(engine, thread, engine.upstream.link().stream_db),
            owed: None,
            holds: false,
            wait: ROUND,
            client: None,
            announces: true,
            way: (0, false),
        }
    }

    fn run(&mut self) {
        loop {
            let term = self.engine.upstream.term();
            if term != self.term {
                self.begin_term(term);
            }
            if !self.engine.upstream.is_replica() || self.engine.loading.is_cancelled() {
                self.engine.upstream.wait_for_change(term, Duration::from_secs(1));
                continue;
            }
            self.follow_way();
            let actions = self.machine.tick(&self.around(), now());
            self.act(actions);
            self.note_stage();
            match self.machine.stage() {
                Stage::Waiting => self.engine.upstream.wait_for_change(term, ROUND / 2),
                Stage::Following => self.follow(),
                _ => self.listen(),
            }
        }
    }

    /// Begins a term: there is another primary, or none.
    fn begin_term(&mut self, term: u64) {
        self.term = term;
        self.announces = true;
        self.close();
        self.machine.restart(now());
        let is_replica = self.engine.upstream.is_replica();
        logging::set_role(if is_replica { logging::Role::Replica } else { logging::Role::Primary });
        // A replica without data keeps its old log until it has loaded a snapshot. After a
        // promotion, the present data set is the data, complete or not.
        if !self.engine.upstream.is_incomplete() {
            self.aof.resume();
        }
        if !is_replica {
            self.input = Received::default();
        }
    }

    fn around(&self) -> Surroundings {
        let config = &self.engine.config;
        let port = match config.replica_announce_port() {
            0 => own_port(config),
            announced => announced,
        };
        let bytes = |text: config::Text| text.to_vec();
        let journal = &self.engine.journal;
        let is_known = journal.is_history_known() && !self.engine.upstream.link().is_incomplete;
        Surroundings {
            identity: Identity {
                port,
                announced_ip: bytes(config.replica_announce_ip()),
                user: bytes(config.primaryuser()),
                password: bytes(config.primaryauth()),
                version: VERSION.to_owned(),
            },
            has: is_known.then(|| (journal.history().id, journal.position())),
            timeout_ms: i64::from(config.repl_timeout()) * 1000,
            hands_over: self.engine.failover.stage() == FailoverStage::Handing,
            dual: self.engine.dual_channels(),
        }
    }

    fn note_stage(&self) {
        let heard = self.machine.heard();
        self.engine.upstream.note_stage(self.term, self.machine.stage(), heard, now());
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Connect => {
                    self.note_stage();
                    self.connect();
                }
                Action::ConnectRdbChannel => self.connect_rdb_channel(),
                Action::Send(channel, bytes) => self.send(channel, &bytes),
                Action::Acknowledge => {
                    self.acknowledge(self.engine.journal.position());
                }
                Action::Receive(promise) => self.receive(promise),
                Action::Follow(id) => {
                    if !self.resume(id) {
                        return;
                    }
                }
                Action::HandedOver { is_accepted } => self.handed_over(is_accepted),
                Action::Close => self.close(),
                Action::Log(line) => log!(Notice, "{line}"),
                Action::Warn(line) => log!(Warning, "{line}"),
            }
        }
    }

    /// Handles the answer of the server that was to take over the role of primary.
    fn handed_over(&self, is_accepted: bool) {
        let stopped = self.engine.keyspace.world().stop();
        if self.engine.upstream.term() != self.term {
            return;
        }
        if is_accepted {
            self.engine.end_failover();
            return;
        }
        let lines = self.engine.abort_failover("Failover target rejected psync request");
        drop(stopped);
        lines.iter().for_each(|line| log!(Notice, "{line}"));
    }

    fn close(&mut self) {
        if let Some(client) = self.client.take() {
            self.engine.clients.remove(client.id);
        }
        (self.socket, self.rdb_channel) = (None, None);
        (self.input, self.rdb_input) = (Received::default(), Received::default());
        self.kept = Kept::default();
        self.engine.upstream.note_kept(0);
        self.engine.upstream.note_socket(self.term, None);
        self.next = None;
        (self.owed, self.wait) = (None, ROUND);
    }

    /// Handles a broken link.
    fn lose(&mut self, reason: &str) {
        if self.engine.upstream.term() != self.term {
            // Another term has begun.
            return self.close();
        }
        let actions = self.machine.lost(reason, now());
        self.act(actions);
        self.note_stage();
    }

    /// Closes a link that is plain although the bus is used by now, or the other way round.
    fn follow_way(&mut self) {
        let version = self.engine.membership.version();
        if self.socket.is_none() || self.way.0 == version {
            return;
        }
        self.way.0 = version;
        let link = self.engine.upstream.link();
        let (copy, primary) = (link.copy, link.primary.clone());
        drop(link);
        let Some((host, port)) = primary else { return };
        let is_wanted = bus::is_way_to(self.engine, copy, (&host, port));
        if is_wanted != self.way.1 {
            self.lose(match is_wanted {
                true => "The link to MASTER is made anew: all nodes have a bus port now",
                false => "The link to MASTER is made anew: a node has no bus port",
            });
        }
    }

    fn connect(&mut self) {
        let Some((host, port)) = self.engine.upstream.link().primary.clone() else { return };
        if port == 0 {
            // A copy in a cluster whose primary is not known, or is not to be followed.
            return self.lose("There is no MASTER to follow yet");
        }
        // Log once for each primary and after each link that was up, because there may be many
        // attempts.
        if std::mem::replace(&mut self.announces, false) {
            log!(Notice, "Connecting to MASTER {host}:{port}");
            log!(Notice, "MASTER <-> REPLICA sync started");
        }
        let goes_on = || self.engine.upstream.term() == self.term;
        // In this order: what is published meanwhile is looked at again.
        self.way.0 = self.engine.membership.version();
        match open(self.engine, (&host, port), goes_on) {
            Ok((socket, is_bus)) => {
                self.way.1 = is_bus;
                // Without a second descriptor, the link ends a moment later.
                let other = socket.with(TcpStream::try_clone).ok();
                self.engine.upstream.note_socket(self.term, other);
                self.socket = Some(socket);
                let actions = self.machine.connected(now());
                self.act(actions);
            }
            Err(error) => {
                let why = os_error(&error);
                self.lose(&format!("Unable to connect to MASTER {host}:{port}: {why}"));
            }
        }
    }

    /// Opens the second connection, for a snapshot.
    fn connect_rdb_channel(&mut self) {
        let Some((host, port)) = self.engine.upstream.link().primary.clone() else { return };
        let goes_on = || self.engine.upstream.term() == self.term;
        match open(self.engine, (&host, port), goes_on) {
            Ok((socket, _)) => {
                self.rdb_channel = Some(socket);
                let actions = self.machine.rdb_channel_connected(&self.around(), now());
                self.act(actions);
            }
            Err(error) => {
                let why = os_error(&error);
                self.lose(&format!("Unable to open the RDB channel to {host}:{port}: {why}"));
            }
        }
    }

    fn send(&mut self, channel: Channel, bytes: &[u8]) {
        let socket = match channel {
            Channel::Main => &mut self.socket,
            Channel::Rdb => &mut self.rdb_channel,
        };
        let Some(socket) = socket else { return };
        if let Err(error) = socket.write_all(bytes) {
            let why = os_error(&error);
            self.lose(&format!("I/O error writing to MASTER: {why}"));
        }
    }

    /// Tells the primary how far this replica is. Returns what it has said of the disk, if it has
    /// said anything.
    fn acknowledge(&mut self, position: JournalPos) -> Option<JournalPos> {
        let has_log = self.engine.append_log.state() == LogState::On;
        let on_disk = has_log.then(|| self.engine.safe.disk().min(position));
        let words = match self.engine.votes.voice(&self.engine.epochs) {
            Voice::Plain => acknowledgement(position, on_disk),
            Voice::Vote(vote) => voted(position, on_disk, &vote),
            Voice::Silent => return None,
        };
        self.send(Channel::Main, &words);
        on_disk
    }

    /// Answers a primary that waits for an acknowledgement. If the disk is behind, the primary gets
    /// another one when the disk has the position: with `commit-quorum-fsync` it waits for that.
    fn answer(&mut self, position: JournalPos) {
        let said = self.acknowledge(position);
        if said.is_some_and(|on_disk| on_disk < position) && self.socket.is_some() {
            self.owed = Some(position);
            self.set_wait(FIRST_WAIT);
        }
    }

    /// Acknowledges again if the disk has what is owed.
    fn acknowledge_disk(&mut self) {
        if self.owed.is_some_and(|position| self.engine.safe.disk() >= position) {
            self.owed = None;
            self.set_wait(ROUND);
            self.acknowledge(self.engine.journal.position());
        }
    }

    fn set_wait(&mut self, wait: Duration) {
        // With the former wait all goes on, sooner or later.
        if self.wait != wait
            && let Some(socket) = &self.socket
            && socket.with(|socket| socket.set_read_timeout(Some(wait))).is_ok()
        {
            self.wait = wait;
        }
    }

    /// Moves kept bytes of the stream into the input. Returns `false` if there are none.
    fn take_kept(&mut self, missing: usize) -> bool {
        if self.kept.len() == 0 {
            return false;
        }
        let bytes = self.input.read(&mut self.kept, missing).expect("it is in memory");
        self.engine.upstream.note_kept(self.kept.len() as u64);
        self.note_received(bytes);
        true
    }

    /// Reads available bytes. Returns `false` if nothing arrived for a while or the link is broken.
    fn read(&mut self, channel: Channel, missing: usize) -> bool {
        let (socket, input) = match channel {
            Channel::Main => (&mut self.socket, &mut self.input),
            Channel::Rdb => (&mut self.rdb_channel, &mut self.rdb_input),
        };
        let Some(socket) = socket else { return false };
        let outcome = input.read(socket, missing);
        match outcome {
            Ok(0) => self.lose("Connection with master lost."),
            Ok(bytes) => {
                self.note_received(bytes);
                return true;
            }
            Err(error) if is_nothing(&error) => {
                if self.owed.is_some() {
                    self.set_wait((self.wait * 2).min(ROUND));
                }
            }
            Err(error) => {
                let why = os_error(&error);
                self.lose(&format!("I/O error reading from MASTER: {why}"));
            }
        }
        false
    }

    fn note_received(&mut self, bytes: usize) {
        let now = now();
        self.machine.note_heard(now);
        if let Some(client) = &self.client {
            client.live.last_seen_ms.store(now.0, Relaxed);
            client.live.net_in.fetch_add(bytes as u64, Relaxed);
        }
        self.engine.upstream.link().received_bytes += bytes as u64;
    }

    /// Reads and handles lines of the handshake.
    fn listen(&mut self) {
        if !self.read(self.machine.listens_to(), 1) {
            return;
        }
        loop {
            let is_line = !matches!(self.machine.stage(), Stage::Waiting | Stage::Following);
            let input = self.listened_to();
            let end = input.rest().iter().position(|&byte| byte == b'\n');
            let Some(end) = end.filter(|_| is_line) else { break };
            let line = input.rest()[..end].trim_ascii_end().to_vec();
            input.take(end + 1);
            let actions = self.machine.line(&line, &self.around(), now());
            self.act(actions);
            self.note_stage();
        }
        let is_line = !matches!(self.machine.stage(), Stage::Waiting | Stage::Following);
        if is_line && self.listened_to().rest().len() > LONGEST_LINE {
            self.lose("MASTER sent a line that is too long");
        }
    }

    /// Returns the bytes received over the connection that the machine listens to.
    fn listened_to(&mut self) -> &mut Received {
        match self.machine.listens_to() {
            Channel::Main => &mut self.input,
            Channel::Rdb => &mut self.rdb_input,
        }
    }

    /// Continues the stream from this server's position. Returns `false` if another term has begun.
    fn resume(&mut self, id: Option<engine::journal::HistoryId>) -> bool {
        let stopped = self.engine.keyspace.world().stop();
        if self.engine.upstream.term() != self.term {
            return false;
        }
        let journal = &self.engine.journal;
        let history = journal.history();
        let is_new = id.is_some_and(|id| id != history.id);
        if let Some(id) = id.filter(|_| is_new) {
            let second = Some((history.id, journal.position()));
            journal.set_history(engine::journal::History { id, second });
            log!(Notice, "Master replication ID changed to {id}");
        }
        journal.keep();
        journal.note_db(self.engine.upstream.link().stream_db);
        drop(stopped);
        if is_new {
            self.engine.disconnect_replicas();
        }
        let db = self.engine.upstream.link().stream_db;
        self.follower = Follower::new(self.engine, self.thread, db);
        log!(Notice, "MASTER <-> REPLICA sync: Master accepted a Partial Resynchronization.");
        true
    }

    fn receive(&mut self, promise: Promise) {
        self.note_stage();
        let outcome = load::receive(self, promise);
        let actions = match outcome {
            Ok(loaded) => {
                self.follower = Follower::new(self.engine, self.thread, loaded.stream_db);
                // On the snapshot's own connection, bytes after the snapshot have no meaning.
                let rest = if promise.is_parallel { Vec::new() } else { loaded.rest };
                self.input = Received::from(rest);
                self.engine.upstream.note_kept(self.kept.len() as u64);
                log!(Notice, "MASTER <-> REPLICA sync: Finished with success");
                self.machine.loaded(now())
            }
            // The next round begins the new term.
            Err(load::Failure::Over) => return self.close(),
            Err(load::Failure::Failed(why)) => self.machine.lost(&why, now()),
        };
        self.engine.upstream.link().transfer = None;
        self.act(actions);
        self.note_stage();
    }

    /// Adds the link to the client list. Returns `false` if a client has killed it.
    fn is_listed(&mut self) -> bool {
        if let (None, Some(socket)) = (&self.client, &self.socket) {
            let text = |address: io::Result<SocketAddr>| {
                address.map_or_else(|_| String::new(), |address| address.to_string())
            };
            let (addr, laddr) = (text(socket.peer_addr()), text(socket.local_addr()));
            self.client = self.engine.list_primary(addr, laddr, socket.fd());
        }
        self.client.as_ref().is_none_or(|client| !client.is_killed())
    }

    /// Receives and applies the stream.
    fn follow(&mut self) {
        if !self.is_listed() {
            return self.lose("The connection with master was killed by a client.");
        }
        self.acknowledge_disk();
        // If the append-only file is far behind, the stream waits for it, as clients do.
        if self.engine.is_log_behind() || is_held_by_clients(self.engine) {
            return self.receive_while_held();
        }
        if std::mem::take(&mut self.holds) {
            self.engine.upstream.link().held_bytes = 0;
        }
        let mut piece = match self.next.take().map_or_else(|| self.input.piece(self.engine), Ok) {
            Ok(piece) => piece,
            Err(Missing::Bytes(missing)) => {
                if !self.take_kept(missing) && self.read(Channel::Main, missing) {
                    // Apply the received entries before the next tick acknowledges. The PING of a
                    // primary wakes this thread when an acknowledgement is due. Otherwise each
                    // acknowledgement would lack that PING, and a primary that hands over its role
                    // would wait for this server for ever.
                    self.next = self.input.piece(self.engine).ok();
                    if self.next.is_some() {
                        self.follow();
                    }
                }
                return;
            }
            Err(Missing::Sense(corrupt)) => {
                // Asking again would return the same bytes.
                self.engine.upstream.link().is_incomplete = true;
                let actions =
                    self.machine.corrupt(&format!("Protocol error from MASTER: {corrupt}"), now());
                self.act(actions);
                return self.note_stage();
            }
        };
        self.announces = true;
        let mut came = 0;
        let has_kept = self.kept.len() > 0;
        let Uplink { engine, follower, input, socket, next, .. } = self;
        let applied = follower.apply(self.term, &piece, || {
            // Errors of the link or the stream show again when this piece is applied.
            if let Some(Socket::Plain(socket)) = socket
                && !has_kept
                && input.rest().len() < PIECE / 2
            {
                came = input.read_at_once(socket).unwrap_or(0);
            }
            *next = input.piece(engine).ok();
        });
        if came > 0 {
            self.note_received(came);
        }
        if applied.is_over && applied.bytes < piece.bytes() {
            // The next round begins the new term, or continues after the pause.
            piece.skip(applied.bytes);
            self.next = Some(piece);
        } else {
            self.input.reuse(piece);
        }
        if let Some(position) = applied.asked_at {
            self.answer(position);
        }
        if let Some(promise) = applied.promise {
            self.send(Channel::Main, &promise.command());
        }
        self.engine.append_log.nudge(&self.engine.journal);
        self.engine.nudge_feeds(usize::MAX);
    }
}

impl Uplink<'_> {
    /// Receives the stream during CLIENT PAUSE, up to a limit. The rest stays with the primary.
    fn receive_while_held(&mut self) {
        if self.input.rest().len() < MOST_HELD {
            // Bytes that arrived beside a snapshot come before those in the socket.
            if !self.take_kept(1) {
                self.read(Channel::Main, 1);
            }
        } else {
            self.machine.note_heard(now());
            std::thread::sleep(Duration::from_millis(10));
        }
        let held = self.next.as_ref().map_or(0, Piece::bytes_left) + self.input.rest().len();
        self.engine.upstream.link().held_bytes = held as u64;
        self.holds = true;
    }
}

/// Returns the port that the primary is told. In a cluster it is one that the topology has, since
/// the primary knows its copies by them.
fn own_port(config: &Config) -> u16 {
    let or = |announced: u16, own: u16| match announced {
        port if port > 0 && config.cluster_enabled() => port,
        _ => own,
    };
    let plain = or(config.cluster_announce_port(), config.port());
    let tls = or(config.cluster_announce_tls_port(), config.tls_port());
    let is_encrypted = config.tls_replication() || plain == 0;
    if is_encrypted && tls != 0 { tls } else { plain }
}

/// Connects to the primary, with TLS if configured. Returns whether by the bus.
fn open(
    engine: &Engine,
    place: (&str, u16),
    goes_on: impl Fn() -> bool,
) -> io::Result<(Socket, bool)> {
    let config = &engine.config;
    let copy = engine.upstream.link().copy;
    // Load the TLS files first, so that their errors are reported before the primary sees a
    // connection.
    let way = bus::way_to(engine, copy, place, config.tls_replication());
    let way = way.map_err(io::Error::other)?;
    let rules = way.rules(config).map_err(io::Error::other)?;
    let timeout = Duration::from_secs(config.repl_timeout().into());
    let socket = Socket::open(&way.host, way.port, source_of(config)?, timeout, rules, goes_on)?;
    Ok((socket, way.of == Some(Certificates::Bus)))
}

/// Returns the address of `bind-source-addr`, which is a name or an address.
fn source_of(config: &Config) -> io::Result<Option<IpAddr>> {
    let source = config.bind_source_addr();
    if source.is_empty() {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(&source);
    let found = (&*name, 0).to_socket_addrs()?.next();
    found
        .map(|address| Some(address.ip()))
        .ok_or_else(|| io::Error::other("bind-source-addr has no address"))
}
