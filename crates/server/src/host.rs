//! What the server does for commands: applying options, shutting down, facts for INFO.

use crate::apply::Applier;
use crate::bus;
use crate::log;
use crate::peers::Peers;
use crate::persistence::{load, save, shutdown};
use cluster::id::Id;
use config::{ApplyError, Changed};
use engine::Engine;
use engine::commits::Verdict;
use engine::engine::{
    AppendLogFiles, AuditOutcome, Audited, ConfigFiles, ConnectedClients, OnConflict, OtherServers,
    ProcessControl, Restart, SaveDone, ServerLog, ShutdownRequest, SnapshotFiles,
};
use engine::long::LateReply;
use engine::membership::Request;
use engine::peer::Peer;
use engine::snapshot::{Beside, Snapshot};
use net::{Choice, Net, Passed};
use process::{audit, crash, facts, os_error, replace};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;

/// How the process was started, to start it again in the same way.
pub struct Started {
    /// Every word of the command line.
    pub words: Vec<OsString>,
    /// The folder it was started in.
    pub folder: PathBuf,
}

impl Started {
    /// To be called before the title is set and the folder is left.
    pub fn collect() -> std::io::Result<Started> {
        Ok(Started { words: std::env::args_os().collect(), folder: std::env::current_dir()? })
    }
}

/// The server, as commands reach it.
pub struct ServerHost {
    engine: &'static Engine,
    net: Arc<Net>,
    process: facts::Facts,
    choice: Choice,
    config_file: Option<PathBuf>,
    started: Started,
    applier: Applier,
    peers: Peers,
    serving: Mutex<Option<(Instant, facts::CpuTime)>>,
    /// Where operators' requests go, of a node of a cluster.
    pub requests: Option<crate::cluster::Requests>,
}

/// How long the time of the threads that serve clients is taken as read: two sections of INFO have
/// it.
const SERVING_TIME_HOLDS: Duration = Duration::from_millis(100);

impl ServerHost {
    /// Connects what commands may reach.
    pub fn new(
        engine: &'static Engine,
        net: Arc<Net>,
        process: facts::Facts,
        choice: Choice,
        config_file: Option<PathBuf>,
        started: Started,
        applier: Applier,
    ) -> ServerHost {
        ServerHost {
            engine,
            net,
            process,
            choice,
            config_file,
            started,
            applier,
            peers: Peers::default(),
            serving: Mutex::default(),
            requests: None,
        }
    }

    /// Processor time of the threads that serve clients. Other servers have one such thread, the
    /// main thread.
    fn serving_time(&self) -> facts::CpuTime {
        let mut last = lock(&self.serving);
        if let Some((at, time)) = *last
            && at.elapsed() < SERVING_TIME_HOLDS
        {
            return time;
        }
        let time = process::threads::time_of(crate::start::REACTOR);
        *last = Some((Instant::now(), time));
        time
    }

    /// The users for the configuration file; `None` if they are in an ACL file.
    fn users(&self) -> Option<Vec<Vec<u8>>> {
        let has_file = !self.engine.config.aclfile().is_empty();
        (!has_file).then(|| self.engine.acl.lines())
    }

    fn rewrite_with(&self, text_of: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<(), String> {
        let Some(path) = &self.config_file else {
            return Err("The server is running without a config file".into());
        };
        let existing = match std::fs::read(path) {
            // It was deleted since the start, and is made anew.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other,
        };
        match existing.and_then(|text| replace::file(path, &text_of(&text))) {
            Ok(()) => {
                log!(Notice, "CONFIG REWRITE executed with success.");
                Ok(())
            }
            Err(error) => {
                let why = os_error(&error);
                log!(Warning, "CONFIG REWRITE failed: {why} ({})", path.display());
                Err(format!("Rewriting config file: {why}"))
            }
        }
    }
}

impl ConfigFiles for ServerHost {
    fn apply_config(&self, changed: &[Changed], in_transaction: bool) -> Result<(), ApplyError> {
        self.applier.apply(changed, in_transaction)
    }

    fn rewrite_config(&self) -> Result<(), String> {
        self.rewrite_with(|existing| self.engine.config.rewrite(existing, self.users().as_deref()))
    }

    fn rewrite_whole_config(&self) -> Result<(), String> {
        self.rewrite_with(|existing| {
            self.engine.config.rewrite_whole(existing, self.users().as_deref())
        })
    }

    fn read_acl_file(&self) -> Result<Vec<u8>, String> {
        let path = self.engine.config.aclfile();
        std::fs::read(path.as_path()).map_err(|error| {
            format!(
                "Error loading ACLs, opening file '{}': {}",
                path.as_path().display(),
                os_error(&error)
            )
        })
    }

    fn write_acl_file(&self, text: &[u8]) -> Result<(), String> {
        let path = self.engine.config.aclfile();
        replace::file(path.as_path(), text).map_err(|error| {
            log!(
                Warning,
                "Can't save the ACL file {}: {}",
                path.as_path().display(),
                os_error(&error)
            );
            "There was an error trying to save the ACLs. Please check the server logs for more \
             information"
                .to_owned()
        })
    }
}

impl SnapshotFiles for ServerHost {
    fn save_in_background(&self, snapshot: Snapshot) {
        save::in_background(self.engine, snapshot);
    }

    fn save_apart(&self, other: OnConflict, done: SaveDone) {
        save::apart(self.engine, other, done);
    }

    fn save_now(&self, snapshot: Snapshot) -> Result<(), String> {
        save::now(self.engine, snapshot, Beside::Nobody)
    }

    fn load_now(&self, replaces: bool, make_room: Option<&mut dyn FnMut()>) -> Result<(), String> {
        load::now(self.engine, replaces, make_room)
    }
}

impl AppendLogFiles for ServerHost {
    fn rewrite_append_log(&self) -> bool {
        self.applier.aof().start_rewrite()
    }

    fn complete_append_log(&self) -> Result<(), String> {
        self.applier.aof().complete()
    }

    fn settle_append_log(&self, then: Box<dyn FnOnce() + Send>) {
        self.applier.aof().when_settled(then);
    }

    fn has_append_log(&self) -> bool {
        self.applier.aof().is_there()
    }

    fn reload_append_log(&self) -> bool {
        let Err(why) = self.applier.aof().reload() else { return true };
        for line in why.lines() {
            log!(Warning, "{line}");
        }
        if !self.engine.loading.is_cancelled() {
            std::process::exit(1);
        }
        false
    }

    fn follow_fsync_policy(&self) {
        self.applier.aof().follow_policy();
    }
}

impl OtherServers for ServerHost {
    fn connect(&self, host: &[u8], port: &[u8], timeout: Duration) -> io::Result<Box<dyn Peer>> {
        self.peers.connect(self.engine, host, port, timeout)
    }

    fn connect_to_copy(
        &self,
        copy: Id,
        place: (&str, u16),
        timeout: Duration,
    ) -> io::Result<Box<dyn Peer>> {
        self.peers.connect_to_copy(self.engine, copy, place, timeout)
    }

    fn kept_connections(&self) -> usize {
        self.peers.kept()
    }

    fn operate(&self, request: Request, reply: LateReply) {
        match &self.requests {
            // The receiver lives as long as the process does.
            Some(requests) => drop(requests.send((request, Some(reply)))),
            None => reply.send(|reply| reply.error("ERR This server is no node of a cluster")),
        }
    }

    fn role_changed(&self) {
        // A failure was logged; the role changes all the same.
        let _ = self.applier.apply_oom_score();
    }
}

impl ConnectedClients for ServerHost {
    fn client_line(
        &self,
        engine: &Engine,
        client: &engine::clients::Client,
        now: engine::Millis,
    ) -> String {
        commands::client_line(engine, client, now.0)
    }

    fn release_replies(&self, verdict: Verdict) {
        let Verdict { confirmed, given_up, epoch } = verdict;
        let (confirmed, given_up) = (confirmed.0, given_up.0);
        self.net.judge(Passed { confirmed, given_up, epoch, ..Passed::default() });
    }
}

impl ProcessControl for ServerHost {
    fn shutdown(&self, by: &str, request: ShutdownRequest, reply: LateReply) {
        shutdown::begin(self.engine, request, by, reply);
    }

    fn abort_shutdown(&self) -> bool {
        let is_aborted = shutdown::abort();
        if is_aborted {
            log!(Notice, "Shutdown manually aborted.");
        }
        is_aborted
    }

    fn restart(&self, how: Restart, delay: Duration) -> String {
        if how == Restart::Graceful
            && self.config_file.is_some()
            && let Err(why) = self.rewrite_config()
        {
            return why;
        }
        let Some((program, rest)) = self.started.words.split_first() else {
            return "the command line is not known".into();
        };
        std::thread::sleep(delay);
        // Every descriptor of the server closes by itself; the process keeps its number.
        let mut command = Command::new("/proc/self/exe");
        command.arg0(program).args(rest).current_dir(&self.started.folder).exec().to_string()
    }

    fn facts(&self, section: &str) -> Vec<(String, String)> {
        let line = |name: &str, value: String| (name.to_owned(), value);
        match section {
            "server" => [
                line("redis_git_sha1", facts::GIT_SHA1.to_owned()),
                line("os", self.process.os.clone()),
                line("process_id", self.process.process_id.to_string()),
                line("process_supervised", self.process.supervisor.to_owned()),
                line("run_id", self.process.run_id.clone()),
                line("executable", self.process.executable.display().to_string()),
                line("io_backend", self.choice.backend.to_string()),
                line("uptime_in_seconds", self.process.uptime().as_secs().to_string()),
                line(
                    "config_file",
                    self.config_file.as_ref().map(|p| p.display().to_string()).unwrap_or_default(),
                ),
            ]
            .into_iter()
            .chain(listeners(&self.engine.config))
            .collect(),
            "stats" => vec![
                line("io_coalesced_waits", self.net.coalesced_waits().to_string()),
                line("io_periods_yielding", self.net.periods_yielding().to_string()),
                line("tls_handshakes_waiting", self.net.waiting_handshakes().to_string()),
                line("tls_handshakes_refused", self.net.refused_handshakes().to_string()),
                line("eventloop_duration_sum", {
                    let time = self.serving_time();
                    (time.user + time.system).as_micros().to_string()
                }),
            ]
            .into_iter()
            .chain(of_audit_log().map(|(name, value)| line(name, value.to_string())))
            .collect(),
            "memory" => {
                let resident = facts::Resident::read(Path::new("/"));
                vec![
                    line("used_memory_rss", resident.rss_bytes.to_string()),
                    line("total_system_memory", facts::total_system_memory().to_string()),
                ]
            }
            "cpu" => {
                let (process, children) =
                    (facts::CpuTime::of_process(), facts::CpuTime::of_children());
                let serving = self.serving_time();
                let active = facts::Seconds(serving.system + serving.user).to_string();
                vec![
                    line("used_cpu_sys", facts::Seconds(process.system).to_string()),
                    line("used_cpu_user", facts::Seconds(process.user).to_string()),
                    line("used_cpu_sys_children", facts::Seconds(children.system).to_string()),
                    line("used_cpu_user_children", facts::Seconds(children.user).to_string()),
                    line("used_cpu_sys_main_thread", facts::Seconds(serving.system).to_string()),
                    line("used_cpu_user_main_thread", facts::Seconds(serving.user).to_string()),
                    line("used_active_time_main_thread", active),
                ]
            }
            _ => Vec::new(),
        }
    }

    fn segfault(&self) -> ! {
        crash::segfault()
    }
}

impl ServerLog for ServerHost {
    fn log(&self, text: &str) {
        log!(Notice, "{text}");
    }

    fn verbose(&self, text: &str) {
        log!(Verbose, "{text}");
    }

    fn warn(&self, text: &str) {
        log!(Warning, "{text}");
    }

    fn audits(&self) -> bool {
        audit::is_on()
    }

    fn audit(&self, change: &Audited<'_>) {
        let Audited { user, client, action, target, outcome } = *change;
        let outcome = match outcome {
            AuditOutcome::Done => audit::Outcome::Done,
            AuditOutcome::Begun => audit::Outcome::Begun,
            AuditOutcome::Refused(why) => audit::Outcome::Refused(why),
        };
        let (address, id) = (&*client.addr, client.id);
        let source = audit::Source::Server;
        audit::record(&audit::Entry { source, user, address, id, action, target, outcome });
    }
}

/// INFO's lines about the audit log.
fn of_audit_log() -> [(&'static str, u64); 3] {
    let audit::Counts { written, dropped, is_failing } = audit::counts().unwrap_or_default();
    [
        ("audit_log_lines", written),
        ("audit_log_dropped", dropped),
        ("audit_log_failing", u64::from(is_failing)),
    ]
}

/// INFO's `listener0` and so on: what the server listens on, as the configuration has it.
fn listeners(config: &config::Config) -> Vec<(String, String)> {
    let binds: String =
        config.bind().iter().map(|bind| format!(",bind={}", bind.to_string_lossy())).collect();
    let (tcp, tls, path) = (config.port(), config.tls_port(), config.unixsocket());
    let bus = bus::port(config);
    let kinds = [
        (tcp > 0).then(|| format!("name=tcp{binds},port={tcp}")),
        (!path.is_empty()).then(|| format!("name=unix,bind={}", path.to_string_lossy())),
        (tls > 0).then(|| format!("name=tls{binds},port={tls}")),
        (bus > 0).then(|| format!("name=bus{binds},port={bus}")),
    ];
    let shown = kinds.into_iter().flatten().enumerate();
    shown.map(|(number, text)| (format!("listener{number}"), text)).collect()
}
