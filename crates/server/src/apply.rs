//! What `CONFIG SET` asks of the host: listeners, certificates, the log, limits of the process.
//!
//! Options that the server reads whenever it needs them are not here: their new value is enough.

use crate::cluster::{Node, identity::Announcer};
use crate::persistence::aof::Aof;
use crate::title::Variables;
use crate::tls::Certificates;
use crate::{bus, inside, log, tls};
use config::{ApplyError, Changed, CommitMode, Config, OomScoreAdj};
use engine::Engine;
use net::{Admission, Kind, ListenSpec, Net, Tag};
use process::oom_score::{self, OomScore};
use process::title::ProcessTitle;
use process::{checks, crash, log as logging, open_files};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::field_names;
use structs::sync::lock;

/// Returns how many descriptors are not for clients, as operators' are not.
pub fn reserved_files(config: &Config) -> u64 {
    let of_operators = if config.admin_socket().is_empty() { 0 } else { inside::MAX_OPERATORS };
    open_files::RESERVED + of_operators as u64
}

/// The process's title, and what its template may name.
pub struct Title {
    /// Where it is shown.
    pub title: ProcessTitle,
    /// The values of the template's variables that do not change.
    pub variables: Variables,
}

impl Title {
    /// Shows the title that the options ask for.
    pub fn show(&self, config: &Config) {
        let variables = Variables {
            bind: config.bind().first().map(|bind| bind.to_string_lossy().into_owned()),
            port: config.port(),
            tls_port: config.tls_port(),
            ..self.variables.clone()
        };
        if config.set_proc_title()
            && let Some(title) =
                variables.fill_in(config.proc_title_template().to_string_lossy().as_bytes())
        {
            self.title.set(&title);
        }
    }
}

/// Why a configuration is refused that [`confirms_without_log`].
pub const CONFIRMS_WITHOUT_LOG: &str = "commit-mode fsync cannot be used when appendonly is disabled: replies would confirm what no file has";

/// Returns whether replies would wait for an append-only file that there is not.
pub fn confirms_without_log(config: &Config) -> bool {
    config.commit_mode() == CommitMode::Fsync && !config.appendonly()
}

/// Applies options to the running process.
pub struct Applier {
    engine: &'static Engine,
    net: Arc<Net>,
    title: Title,
    aof: Arc<Aof>,
    oom_score: Mutex<OomScore>,
    /// Of a node of a cluster.
    announcer: Option<Announcer>,
}

/// Options that are applied in one go, however many of them change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Listen,
    Tls,
    OomScore,
    Clients,
    Commit,
    Announce,
    Admission,
    Other(&'static str),
}

impl Effect {
    fn of(option: &'static str) -> Effect {
        match option {
            "port" | "bind" => Effect::Listen,
            "oom-score-adj" | "oom-score-adj-values" => Effect::OomScore,
            "maxmemory" | "maxmemory-clients" => Effect::Clients,
            "appendfsync" | "aof-preallocation-size" => Effect::Commit,
            "availability-zone" => Effect::Announce,
            "max-new-connections-per-cycle"
            | "max-new-tls-connections-per-cycle"
            | "max-waiting-tls-handshakes" => Effect::Admission,
            name if name.starts_with("cluster-announce-") => Effect::Announce,
            name if name.starts_with("commit-") => Effect::Commit,
            name if name.starts_with("tls-") => Effect::Tls,
            name => Effect::Other(name),
        }
    }
}

impl Applier {
    /// For a server that runs; applies what was not applied on the way.
    pub fn new(
        engine: &'static Engine,
        net: Arc<Net>,
        title: Title,
        aof: Arc<Aof>,
        node: Option<&Node>,
    ) -> Applier {
        let announcer = node.map(Node::announcer);
        title.show(&engine.config);
        let oom_score = Mutex::new(OomScore::new(Path::new("/")));
        let applier = Applier { engine, net, title, aof, oom_score, announcer };
        // It has been logged, and a server that the kernel likes less than it might can serve.
        let _ = applier.apply_oom_score();
        applier
    }

    /// The append-only log.
    pub fn aof(&self) -> &Arc<Aof> {
        &self.aof
    }

    /// Applies all changes, or says which could not be. `in_transaction`: they are part of one.
    pub fn apply(&self, changed: &[Changed], in_transaction: bool) -> Result<(), ApplyError> {
        let mut done: Vec<Effect> = Vec::new();
        for change in changed {
            let option = change.spec.name();
            if option == "requirepass" && self.engine.shares_users() {
                let reason = "The cluster's nodes share their users: use ACL SETUSER default";
                return Err(ApplyError { option, reason: reason.into() });
            }
            let effect = Effect::of(option);
            if done.contains(&effect) {
                continue;
            }
            done.push(effect);
            self.apply_one(effect, change, in_transaction).map_err(|reason| {
                log!(
                    Warning,
                    "Failed applying new configuration. Possibly related to new {option} setting. \
                     Restoring previous settings."
                );
                ApplyError { option, reason }
            })?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each option")]
    fn apply_one(
        &self,
        effect: Effect,
        change: &Changed,
        in_transaction: bool,
    ) -> Result<(), String> {
        let config = &self.engine.config;
        match effect {
            Effect::Listen => self.listen(change.spec.name()),
            Effect::Announce => self.announce(),
            Effect::Tls => {
                bus::check(config)?;
                tls::apply(config, &self.net, Certificates::Server).map_err(|error| {
                    log!(Warning, "{error}");
                    "Unable to update TLS configuration. Check server logs.".to_owned()
                })?;
                tls::watch(self.engine, &self.net).map_err(|error| error.to_string())?;
                self.listen("tls-port")
            }
            Effect::OomScore => self.apply_oom_score(),
            Effect::Clients => {
                if change.spec.name() == "maxmemory" {
                    self.engine.snapshots.follow_limit(config);
                    warn_about_maxmemory(self.engine);
                    choose_page_size(config);
                }
                self.engine.evict_clients();
                Ok(())
            }
            Effect::Other("hash-shared-fields") => {
                field_names::set_enabled(config.hash_shared_fields());
                Ok(())
            }
            Effect::Other("maxclients") => {
                raise_open_files(config)?;
                self.net.set_admission(admission(config));
                Ok(())
            }
            Effect::Other("tcp-keepalive") => {
                self.net.set_keepalive(config.tcp_keepalive());
                Ok(())
            }
            Effect::Other("io-coalesce-usec") => {
                self.net.set_coalescing_time(coalescing_time(config));
                Ok(())
            }
            Effect::Admission => {
                self.net.set_admission(admission(config));
                Ok(())
            }
            Effect::Other("loglevel" | "log-format" | "log-timestamp-format") => {
                apply_log_options(config);
                Ok(())
            }
            Effect::Other("proc-title-template") => {
                self.title.show(config);
                Ok(())
            }
            Effect::Other("crash-log-enabled") => {
                crash::set_enabled(config.crash_log_enabled()).map_err(|error| error.to_string())
            }
            Effect::Other("appendonly") => {
                self.check_commits()?;
                if !config.appendonly() && self.engine.has_clients_that_wait_for_disk() {
                    return Err("clients use CLIENT COMMIT-MODE fsync".to_owned());
                }
                self.aof.configure(in_transaction)
            }
            Effect::Other("repl-backlog-size") => {
                self.engine.journal.set_backlog(config.repl_backlog_size());
                Ok(())
            }
            Effect::Other("client-output-buffer-limit") => {
                self.engine.follow_replica_limits();
                Ok(())
            }
            Effect::Other("min-replicas-max-lag") => {
                // The next write is judged by it, not only one after the next count.
                let (now, most) = (engine::clock::now(), config.min_replicas_max_lag());
                self.engine.replicas.count_again(now, most, &self.engine.votes);
                Ok(())
            }
            Effect::Other("tier-max-size") => match self.engine.tier.get() {
                Some(tier) => {
                    tier.set_max_bytes(config.tier_max_size()).map_err(|error| error.to_string())
                }
                None => Ok(()),
            },
            Effect::Other("snapshot-buffer-limit") => {
                self.engine.snapshots.follow_limit(config);
                Ok(())
            }
            Effect::Commit => {
                self.check_commits()?;
                self.aof.follow_policy();
                self.engine.follow_commit_modes();
                Ok(())
            }
            Effect::Other("aof-disable-auto-gc") => {
                self.aof.delete_history();
                Ok(())
            }
            Effect::Other("dir") => {
                std::env::set_current_dir(config.dir()).map_err(|error| error.to_string())
            }
            Effect::Other(_) => Ok(()),
        }
    }

    /// Tells the cluster where this server is reached now.
    fn announce(&self) -> Result<(), String> {
        let Some(announcer) = &self.announcer else { return Ok(()) };
        let address = announcer.address(&self.engine.config)?;
        self.engine.membership.announce(address);
        Ok(())
    }

    /// Refuses to do without the append-only file while replies wait for it.
    fn check_commits(&self) -> Result<(), String> {
        match confirms_without_log(&self.engine.config) {
            true => Err(CONFIRMS_WITHOUT_LOG.to_owned()),
            false => Ok(()),
        }
    }

    fn listen(&self, option: &str) -> Result<(), String> {
        // Before anything is closed.
        bus::check(&self.engine.config)?;
        self.net.rebind(&listeners(&self.engine.config)).map_err(|error| {
            if let Some(lost) = &error.lost {
                log!(Warning, "Warning: {lost}");
            }
            log!(Warning, "Warning: {error}");
            if option == "bind" {
                "Failed to bind to specified addresses.".to_owned()
            } else {
                "Unable to listen on this port. Check server logs.".to_owned()
            }
        })?;
        self.title.show(&self.engine.config);
        self.announce()
    }

    /// Tells the kernel what to kill first when memory runs out.
    ///
    /// # Errors
    /// It refuses, for CONFIG SET.
    pub fn apply_oom_score(&self) -> Result<(), String> {
        let config = &self.engine.config;
        let is_replica = self.engine.upstream.is_replica();
        let class = if is_replica { oom_score::Class::Replica } else { oom_score::Class::Primary };
        let mode = match config.oom_score_adj() {
            OomScoreAdj::No => oom_score::Mode::No,
            OomScoreAdj::Relative => oom_score::Mode::Relative,
            OomScoreAdj::Absolute => oom_score::Mode::Absolute,
        };
        lock(&self.oom_score)
            .apply(mode, config.oom_score_adj_values(), class)
            .map_err(|_| "Failed to set current oom_score_adj. Check server logs.".to_owned())
    }
}

/// Makes the log what the options say that can change while the server runs.
pub fn apply_log_options(config: &Config) {
    if let Some(level) = logging::Level::from_name(config.loglevel().name()) {
        logging::set_level(level);
    }
    if let Some(format) = logging::Format::from_name(config.log_format().name()) {
        logging::set_format(format);
    }
    let timestamps = config.log_timestamp_format().name();
    if let Some(format) = logging::TimestampFormat::from_name(timestamps) {
        logging::set_timestamp_format(format);
    }
}

fn raise_open_files(config: &Config) -> Result<(), String> {
    let wanted = u32::try_from(config.maxclients()).unwrap_or(u32::MAX);
    let fitting =
        open_files::adjust(wanted, reserved_files(config)).map_err(|error| error.to_string())?;
    if fitting < wanted {
        return Err(format!(
            "The operating system is not able to handle the specified number of clients, try with \
             {fitting}"
        ));
    }
    Ok(())
}

/// Allows huge pages or not, by the memory that the process may use.
pub fn choose_page_size(config: &Config) {
    let memory = checks::usable_memory(config.maxmemory());
    checks::choose_page_size(Path::new("/"), config.disable_thp(), memory);
}

fn warn_about_maxmemory(engine: &Engine) {
    let (limit, used) = (engine.config.maxmemory(), engine.keyspace.used_bytes() as u64);
    if limit > 0 && limit < used {
        log!(
            Warning,
            "WARNING: the new maxmemory value set via CONFIG SET ({limit}) is smaller than the \
             current memory usage ({used}). This will result in key eviction and/or the inability \
             to accept new write commands depending on the maxmemory-policy."
        );
    }
}

/// `io-coalesce-usec`.
pub fn coalescing_time(config: &Config) -> Duration {
    Duration::from_micros(config.io_coalesce_usec().into())
}

/// How many new connections a turn of a reactor lets in.
pub fn admission(config: &Config) -> Admission {
    Admission {
        accepts: config.max_new_connections_per_cycle() as usize,
        handshakes: config.max_new_tls_connections_per_cycle() as usize,
        max_waiting: config.max_waiting_tls_handshakes() as usize,
        max_open: config.maxclients(),
    }
}

/// What the configuration listens on.
pub fn listeners(config: &Config) -> Vec<ListenSpec> {
    let binds: Vec<String> =
        config.bind().iter().map(|bind| bind.to_string_lossy().into_owned()).collect();
    let mut specs = ListenSpec::tcp(Kind::Tcp, &binds, config.port());
    specs.extend(ListenSpec::tcp(Kind::Tls, &binds, config.tls_port()));
    let of_copies = ListenSpec::tcp(Kind::Tls, &binds, bus::port(config));
    specs.extend(of_copies.into_iter().map(|spec| spec.tagged(tls::BUS)));
    let sockets =
        [(config.unixsocket(), Tag::default()), (config.admin_socket(), inside::OPERATOR)];
    for (socket, tag) in sockets.iter().filter(|(socket, _)| !socket.is_empty()) {
        let group = config.unixsocketgroup();
        let group = (!group.is_empty()).then(|| group.to_string_lossy().into_owned());
        let spec = ListenSpec::unix(socket.as_path(), config.unixsocketperm(), group);
        specs.push(spec.tagged(*tag));
    }
    specs
}
