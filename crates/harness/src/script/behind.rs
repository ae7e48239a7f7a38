//! Command scripts whose clients are not connected to the server that has the keys: they speak to a
//! node of a cluster that owns nothing, or to `dunlin proxy`.
//!
//! The scripts are those of `tests/commands`, unchanged. What a script sets on its server
//! (CONFIG SET) is set on every server. A request that must be answered otherwise is an
//! [`Exception`] with its reason; the rest of its script still has to hold.

use super::run::{Failure, Place, run, shown};
use super::suite::configuration;
use super::{Action, Script};
use crate::client::Client;
use crate::cluster::{Etcd, owner_and_entry};
use crate::info::number;
use crate::notation::print;
use crate::proxy::Proxy;
use crate::reply::{Protocol, Reply};
use crate::server::{Options, Program, Server};
use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// What the scripts' clients are connected to.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// A node of a cluster that owns no slot, with `cluster-endpoint single`.
    Node,
    /// `dunlin proxy` before one server.
    Proxy,
}

/// What is answered otherwise.
#[derive(Debug)]
pub struct Exception {
    /// The end of the script's path.
    pub script: &'static str,
    /// How the request begins; nothing: the whole script.
    pub request: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// What a node that owns nothing answers otherwise.
const OF_NODE: &[Exception] = &[
    Exception { script: "cluster/cluster.test", request: "", reason: SEEN },
    Exception { script: "connection/client-calls.test", request: "CLIENT", reason: TRACKING },
    Exception { script: "connection/client-commands.test", request: "CLIENT", reason: FIGURES },
    Exception { script: "connection/client-identity.test", request: "CLIENT", reason: TRACKING },
    Exception { script: "connection/client-identity.test", request: "EXEC", reason: SESSION },
    Exception { script: "connection/client-kill.test", request: "", reason: WAITING },
    Exception {
        script: "connection/client-maint-notifications.test",
        request: "CLIENT MAINT_NOTIFICATIONS",
        reason: NOTICES,
    },
    Exception { script: "connection/client-modes.test", request: "OBJECT FREQ", reason: MODES },
    Exception { script: "connection/client-pause.test", request: "", reason: MODES },
    Exception { script: "connection/client-tracking.test", request: "CLIENT", reason: TRACKING },
    Exception { script: "connection/client-unblock.test", request: "", reason: WAITING },
    Exception { script: "connection/reset.test", request: "CLIENT TRACKING", reason: TRACKING },
    Exception { script: "connection/tracking-rights.test", request: "", reason: USERS },
    Exception { script: "connection/select.test", request: "", reason: SESSION },
    Exception { script: "generic/import-mode.test", request: "", reason: MODES },
    Exception { script: "generic/restore-asking.test", request: "", reason: LINKS },
    Exception { script: "generic/scan-expired.test", request: "", reason: ALL_KEYS },
    Exception { script: "generic/scan.test", request: "SCAN", reason: ALL_KEYS },
    Exception { script: "generic/scan.test", request: "EXEC", reason: ALL_KEYS },
    Exception { script: "generic/sort.test", request: "", reason: PATTERNS },
    Exception { script: "generic/sort_ro.test", request: "", reason: PATTERNS },
    Exception { script: "generic/wait.test", request: "", reason: WAITING },
    Exception { script: "hash/hsetex-statistics.test", request: "", reason: FIGURES },
    Exception { script: "list/blocking-statistics.test", request: "", reason: FIGURES },
    Exception { script: "list/blpop.test", request: "", reason: WAITING },
    Exception { script: "list/list-waiting.test", request: "", reason: SWAPPED },
    Exception { script: "scripting/error-codes.test", request: "INFO", reason: FIGURES },
    Exception { script: "scripting/script_kill.test", request: "", reason: WAITING },
    Exception { script: "server/acl-databases.test", request: "", reason: SESSION },
    Exception { script: "server/acl-log-commands.test", request: "", reason: USERS },
    Exception { script: "server/acl-permissions.test", request: "EXEC", reason: USERS },
    Exception { script: "server/acl-scripts.test", request: "", reason: USERS },
    Exception { script: "server/acl.test", request: "SLOWLOG", reason: FIGURES },
    Exception { script: "server/debug-packed-threshold.test", request: "", reason: DEBUG },
    Exception { script: "server/debug-reload.test", request: "", reason: DEBUG },
    Exception { script: "server/debug-transactions.test", request: "", reason: DEBUG },
    Exception { script: "server/figures.test", request: "COMMANDLOG", reason: FIGURES },
    Exception { script: "server/hotkeys.test", request: "HOTKEYS", reason: FIGURES },
    Exception { script: "server/info.test", request: "INFO", reason: FIGURES },
    Exception { script: "server/keyspace-hits.test", request: "INFO", reason: FIGURES },
    Exception { script: "server/keyspace.test", request: "", reason: SWAPPED },
    Exception { script: "server/latency.test", request: "LATENCY", reason: FIGURES },
    Exception { script: "server/memory.test", request: "MEMORY", reason: FIGURES },
    Exception { script: "server/monitor.test", request: "", reason: FIGURES },
    Exception { script: "server/replicaof.test", request: "", reason: SEEN },
    Exception { script: "server/secrets.test", request: "", reason: FIGURES },
    Exception { script: "server/slowlog.test", request: "", reason: FIGURES },
    Exception { script: "stream/persistence.test", request: "DEBUG DIGEST-VALUE", reason: DEBUG },
    Exception { script: "stream/xrange.test", request: "DEBUG DIGEST-VALUE", reason: DEBUG },
    Exception { script: "stream/xreadgroup-keys.test", request: "INFO clients", reason: FIGURES },
    Exception { script: "transactions/exec-memory.test", request: "", reason: FIGURES },
    Exception { script: "transactions/exec.test", request: "EXEC", reason: SESSION },
    Exception { script: "transactions/exec.test", request: "GET k", reason: SESSION },
    Exception { script: "transactions/watch-databases.test", request: "", reason: SWAPPED },
    Exception { script: "transactions/watch.test", request: "EXEC", reason: SWAPPED },
    Exception { script: "transactions/watch.test", request: "SWAPDB", reason: SWAPPED },
    Exception { script: "generic/exists.test", request: "OBJECT IDLETIME", reason: DEBUG },
    Exception { script: "generic/exists.test", request: "INFO", reason: FIGURES },
    Exception { script: "generic/move.test", request: "MOVE w 4", reason: SESSION },
    Exception { script: "generic/restore.test", request: "RESTORE zipmap", reason: DEBUG },
    Exception { script: "pubsub/pubsub.test", request: "PUBSUB NUMPAT", reason: ALL_KEYS },
    Exception { script: "pubsub/pubsub.test", request: "EXEC", reason: ALL_KEYS },
    Exception { script: "generic/del.test", request: "", reason: EVENTS_BEFORE },
];

const SEEN: &str = "it is a node of a cluster, and its clients see one server";
const FIGURES: &str =
    "it tells what the node that is asked has done, and limits are each node's own";
const SESSION: &str = "another node runs the transaction, and cannot tell or change what is about the \
                       client's connection";
const TRACKING: &str = "CLIENT TRACKING needs RESP3, without REDIRECT, OPTIN and OPTOUT";
const WAITING: &str = "what waits or runs at another node is not seen or ended through this one";
const NOTICES: &str = "nodes of a cluster send maintenance notices";
const MODES: &str = "the mode concerns the node that is asked";
const LINKS: &str = "nodes say it to each other";
const PATTERNS: &str = "the keys that a pattern of SORT names may be on other shards";
const ALL_KEYS: &str = "the request concerns all shards, a transaction only one";
const EVENTS_BEFORE: &str = "an event of a change just before SUBSCRIBE may still come if another client of the \
                             node listened";
const SWAPPED: &str = "a cluster swaps no databases";
const USERS: &str = "a user that only the asked node knows may do nothing inside requests at others, and ACL \
                     LOG is of the node that refused";
const DEBUG: &str = "DEBUG is about the node that is asked";

/// The proxy passes events of keys on to clients that subscribe at the servers, so scripts about them
/// do not run there.
const EVENTS: &str = "notify-keyspace-events";

/// What the proxy answers otherwise.
const OF_PROXY: &[Exception] = &[
    Exception { script: "cluster/asking.test", request: "", reason: ONE_SERVER },
    Exception { script: "cluster/cluster.test", request: "", reason: ONE_SERVER },
    Exception { script: "cluster/clusterscan.test", request: "", reason: ONE_SERVER },
    Exception { script: "cluster/readonly.test", request: "", reason: ONE_SERVER },
    Exception { script: "cluster/readwrite.test", request: "", reason: ONE_SERVER },
    Exception { script: "connection/client-calls.test", request: "", reason: OWN },
    Exception { script: "connection/client-commands.test", request: "", reason: OWN },
    Exception { script: "connection/client-commit-mode.test", request: "", reason: OWN },
    Exception { script: "connection/client-filters.test", request: "CLIENT", reason: UNKNOWN },
    Exception { script: "connection/client-identity.test", request: "", reason: OWN },
    Exception {
        script: "connection/client-kill.test",
        request: "CLIENT KILL IDLE",
        reason: UNKNOWN,
    },
    Exception {
        script: "connection/client-kill.test",
        request: "CLIENT KILL DB 16",
        reason: UNKNOWN,
    },
    Exception {
        script: "connection/client-kill.test",
        request: "CLIENT KILL SKIPME yes",
        reason: OBSERVER,
    },
    Exception { script: "connection/client-last-command.test", request: "", reason: OWN },
    Exception { script: "connection/client-maint-notifications.test", request: "", reason: OWN },
    Exception { script: "connection/client-modes.test", request: "", reason: OWN },
    Exception { script: "connection/client-pause.test", request: "", reason: PAUSED },
    Exception { script: "connection/client-tracking.test", request: "", reason: OWN },
    Exception { script: "connection/reset.test", request: "", reason: RESETS },
    Exception { script: "connection/tracking-rights.test", request: "", reason: LOGIN },
    Exception { script: "generic/import-mode.test", request: "", reason: OWN },
    Exception { script: "generic/timeouts.test", request: "WAIT", reason: SHARED },
    Exception { script: "generic/wait.test", request: "", reason: SHARED },
    Exception { script: "scripting/script.test", request: "SCRIPT DEBUG", reason: CONNECTION },
    Exception { script: "scripting/script_kill.test", request: "", reason: SHARED },
    Exception { script: "pubsub/ssubscribe.test", request: "", reason: RESETS },
    Exception { script: "server/acl-databases.test", request: "", reason: LOGIN },
    Exception { script: "server/acl-log-commands.test", request: "", reason: LOGIN },
    Exception { script: "server/acl-permissions.test", request: "", reason: LOGIN },
    Exception { script: "server/acl-replies.test", request: "", reason: LOGIN },
    Exception { script: "server/acl-scripts.test", request: "", reason: LOGIN },
    Exception { script: "server/acl-users.test", request: "", reason: LOGIN },
    Exception { script: "server/acl.test", request: "", reason: LOGIN },
    Exception { script: "server/config-effects.test", request: "HELLO", reason: OWN },
    Exception { script: "server/figures.test", request: "COMMANDLOG", reason: NAMED },
    Exception { script: "server/latency.test", request: "LATENCY HISTOGRAM client", reason: OWN },
    Exception { script: "server/monitor.test", request: "", reason: CONNECTION },
    Exception { script: "server/psync.test", request: "", reason: CONNECTION },
    Exception { script: "server/replconf.test", request: "", reason: CONNECTION },
    Exception { script: "server/sync.test", request: "", reason: CONNECTION },
    Exception { script: "server/secrets.test", request: "", reason: LOGIN },
    Exception { script: "server/slowlog.test", request: "", reason: OWN },
    Exception { script: "transactions/exec.test", request: "SUBSCRIBE", reason: QUEUE },
    Exception { script: "transactions/exec.test", request: "MONITOR", reason: QUEUE },
    Exception { script: "transactions/exec.test", request: "EXEC", reason: QUEUE },
    Exception { script: "transactions/exec.test", request: "CLIENT LIST", reason: UNKNOWN },
];

const ONE_SERVER: &str = "the proxy is one server to its clients";
const OWN: &str = "the proxy answers CLIENT itself, as servers know only its connections";
const SHARED: &str = "clients share connections, so requests wait behind others' scripts, and no \
                      server knows whose writes WAIT is about";
const UNKNOWN: &str =
    "the proxy does not know it: what clients have been doing, and how many databases there are";
const PAUSED: &str = "the proxy holds its clients' requests; the server itself goes on";
const RESETS: &str = "a server notices a moment after RESET that a subscription has ended";
const OBSERVER: &str = "the runner's own connection is to the server";
const NAMED: &str = "the connections to servers have the proxy's name";
const LOGIN: &str = "clients log in at the proxy, which has users of its own";
const CONNECTION: &str = "it takes a whole connection to one server";
const QUEUE: &str =
    "subscriptions and MONITOR take connections of their own, also in a transaction";

impl Way {
    /// The way of this name.
    pub fn named(name: &str) -> Option<Way> {
        match name {
            "node" => Some(Way::Node),
            "proxy" => Some(Way::Proxy),
            _ => None,
        }
    }

    /// What is answered otherwise.
    pub fn exceptions(self) -> &'static [Exception] {
        match self {
            Way::Node => OF_NODE,
            Way::Proxy => OF_PROXY,
        }
    }
}

/// Servers behind one address, where scripts run one after the other.
pub struct Behind {
    way: Way,
    address: SocketAddr,
    servers: Vec<Server>,
    /// What each server is configured with before a script.
    configurations: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
    /// A connection of the runner's own to each server, while a script needs it.
    observers: Vec<Client>,
    /// The addresses of the script's clients.
    connected: Vec<String>,
    /// Positions of the exceptions that were needed.
    needed: BTreeSet<usize>,
    /// What has to run as long as this.
    _others: Box<dyn Any>,
}

impl Behind {
    /// Starts the servers.
    ///
    /// # Errors
    /// One does not answer.
    ///
    /// # Panics
    /// One does not start.
    pub fn start(way: Way, program: &Program) -> io::Result<Behind> {
        let (servers, address, others): (Vec<Server>, SocketAddr, Box<dyn Any>) = match way {
            Way::Node => {
                let etcd = Etcd::start("scripts");
                let [owner, entry] = owner_and_entry(&etcd, &["--cluster-databases", "16"]);
                let address = entry.address();
                (vec![owner, entry], address, Box::new(etcd))
            }
            Way::Proxy => {
                let servers = vec![Server::start(program, Options::default())?];
                let proxy = Proxy::start(program, &servers, "");
                (servers, proxy.address, Box::new(proxy))
            }
        };
        let read = |server: &Server| configuration(&mut server.connect(Protocol::Resp2)?);
        let configurations = servers.iter().map(read).collect::<io::Result<_>>()?;
        Ok(Behind {
            way,
            address,
            servers,
            configurations,
            observers: Vec::new(),
            connected: Vec::new(),
            needed: BTreeSet::new(),
            _others: others,
        })
    }

    /// Runs a script under one protocol. Returns false if it cannot run here.
    ///
    /// # Errors
    /// What went otherwise than expected, without exceptions.
    pub fn check(&mut self, script: &Script, protocol: Protocol) -> Result<bool, String> {
        let is_excepted = self.find(script, "").is_some();
        let reads_log = script.steps.iter().any(|step| matches!(step.action, Action::Log { .. }));
        let has_events =
            matches!(self.way, Way::Proxy) && script.lines.iter().any(|line| line.contains(EVENTS));
        let is_other = script.only.is_some_and(|only| only != protocol);
        if is_excepted || has_events || is_other || reads_log || script.needs_own_server() {
            return Ok(false);
        }
        let (_, mut failures) = run(script, self, protocol, usize::MAX);
        failures.retain(|failure| !self.is_forgiven(script, failure));
        self.clean().map_err(|error| format!("{}: {error}", script.path.display()))?;
        match (failures.is_empty(), &script.fails) {
            (true, _) | (false, Some(_)) => Ok(true),
            (false, None) => Err(shown(&failures)),
        }
    }

    /// The exceptions of these scripts that no script needed.
    pub fn needless(&self, scripts: &[Script]) -> Vec<&'static Exception> {
        let exceptions = self.way.exceptions().iter().enumerate();
        let unused = exceptions.filter(|(at, one)| {
            scripts.iter().any(|script| script.path.ends_with(one.script))
                && !self.needed.contains(at)
        });
        unused.map(|(_, one)| one).collect()
    }

    fn find(&mut self, script: &Script, request: &str) -> Option<&'static Exception> {
        let exceptions = self.way.exceptions();
        let at = exceptions.iter().position(|one| {
            script.path.ends_with(one.script)
                && request.starts_with(one.request)
                && request.is_empty() == one.request.is_empty()
        })?;
        self.needed.insert(at);
        Some(&exceptions[at])
    }

    fn is_forgiven(&mut self, script: &Script, failure: &Failure) -> bool {
        let Some(step) = failure.step else { return false };
        match &script.steps[step].action {
            Action::Ask { request, .. }
            | Action::Retry { request, .. }
            | Action::Send { request, .. } => self.find(script, request).is_some(),
            Action::Raw { bytes, .. } => self.find(script, bytes).is_some(),
            _ => false,
        }
    }

    fn observers(&mut self) -> io::Result<&mut [Client]> {
        if self.observers.is_empty() {
            for server in &self.servers {
                let mut client = server.connect(Protocol::Resp2)?;
                // It asks this server, not all.
                client.command(&["CLIENT", "CAPA", "cluster"])?;
                self.observers.push(client);
            }
        }
        Ok(&mut self.observers)
    }

    /// Makes the next script find nothing of the last one.
    fn clean(&mut self) -> io::Result<()> {
        self.observers.clear();
        let requests: [&[&str]; 5] = [
            &["CLIENT", "UNPAUSE"],
            &["FLUSHALL"],
            &["SLOWLOG", "RESET"],
            &["LATENCY", "RESET"],
            &["DEBUG", "SET-ACTIVE-EXPIRE", "1"],
        ];
        for (server, before) in self.servers.iter().zip(&self.configurations) {
            let mut client = server.connect(Protocol::Resp2)?;
            for request in requests {
                client.command(request)?;
            }
            for (name, value) in configuration(&mut client)? {
                let before = before.iter().find(|(known, _)| *known == name);
                if let Some((_, before)) = before.filter(|(_, before)| *before != value) {
                    let reply = client.command(&[b"CONFIG", &b"SET"[..], &name, before])?;
                    if reply.is_error() {
                        let name = String::from_utf8_lossy(&name).into_owned();
                        return Err(io::Error::other(format!("{name}: {}", print(&reply))));
                    }
                }
            }
            client.command(&["CONFIG", "RESETSTAT"])?;
        }
        self.await_departures()
    }

    /// Waits until the last script's connections are closed and nothing of it is blocked.
    fn await_departures(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(2);
        let addresses = std::mem::take(&mut self.connected);
        let is_there = |line: &str| {
            line.split(' ')
                .find_map(|word| word.strip_prefix("addr="))
                .is_some_and(|address| addresses.iter().any(|one| one == address))
        };
        for server in &self.servers {
            let mut client = server.connect(Protocol::Resp2)?;
            client.command(&["CLIENT", "CAPA", "cluster"])?;
            loop {
                let reply = client.command(&["CLIENT", "LIST"])?;
                let list = String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned();
                let is_over = number(&mut client, "blocked_clients") == 0;
                if is_over && !list.lines().any(is_there) || Instant::now() > deadline {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
            client.command(&["QUIT"])?;
            client.expect_closed()?;
        }
        Ok(())
    }
}

impl Place for Behind {
    fn connect(&mut self) -> io::Result<Client> {
        let client = Client::connect(self.address)?;
        self.connected.push(client.stream().local_addr()?.to_string());
        Ok(client)
    }

    fn pass(&mut self, time: Duration) {
        thread::sleep(time);
    }

    fn restart(&mut self) -> io::Result<()> {
        Err(io::Error::other("scripts that restart their server do not run here"))
    }

    fn log(&self) -> String {
        String::new()
    }

    /// Sets on all servers what the script sets on one.
    fn beside(&mut self, request: &[Vec<u8>]) -> io::Result<()> {
        const SET: [[&str; 2]; 3] =
            [["config", "set"], ["config", "resetstat"], ["debug", "set-active-expire"]];
        let is = |at: usize, word: &str| {
            request.get(at).is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()))
        };
        if SET.iter().any(|[one, other]| is(0, one) && is(1, other)) {
            for client in self.observers()? {
                // The script is answered for a request that is refused.
                let _: Reply = client.command(request)?;
            }
        }
        Ok(())
    }

    fn blocked(&mut self) -> io::Result<Option<u64>> {
        let clients = self.observers()?;
        Ok(Some(clients.iter_mut().map(|client| number(client, "blocked_clients")).sum()))
    }
}
