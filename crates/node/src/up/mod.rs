//! `dunlin cluster up` and `dunlin node`: from options to a node that runs.
//!
//! ```text
//!   mod       options, the order of the start, the foreground
//!   kept      what a node remembers in its directory
//!   access    how etcd lets this machine in
//!   join      which etcd: one of our own, new or joined, or that of the user
//!   members   an etcd of our own on machines that are named beforehand
//!   absent    what such a machine answers before it has a server of etcd
//!   contained a node in a container, which ends with all that it has started
//!   tls       certificates of the databases' clients, of copies for each other, of the admin port
//!   stand_in  a machine without a server of etcd takes the place of a lost one
//!   down      ends everything on this machine
//! ```

mod absent;
mod access;
mod address;
mod contained;
mod down;
mod join;
mod kept;
mod members;
mod stand_in;
mod tls;

pub use down::{DownOptions, down};

use crate::authority::Files;
use crate::copies::Copies;
use crate::copies::files::Common;
use crate::daemon::Daemon;
use crate::figures::Figures;
use crate::jobs::Jobs;
use crate::own_etcd::OwnEtcd;
use crate::rest::wire::Joining;
use crate::sealed;
use crate::settings::{Wrong, check_name};
use crate::shared::Shared;
use crate::site::Machine;
use crate::{disks, figures, problems, relay, rest, talk};
use access::AccessOptions;
use clap::Args;
use console::telling::Webhook;
use contained::ContainedOptions;
use kept::{Kept, Lock};
use process::memory::{Bytes, Memory};
use process::{audit, facts, log, signals, thread, umask};
use stand_in::StandIn;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tls::{AdminTlsOptions, TlsOptions};

/// The port of the first node on a machine.
pub const ADMIN_PORT: u16 = 8380;

/// The lease of copies with `--fast`. etcd gives none that is shorter.
const FAST_LEASE_SECONDS: u32 = 1;

/// Folders in the directory of a machine with data and passwords in them.
const PRIVATE: [&str; 4] = ["copies", "etcd", "logs", "tls"];

/// How long etcd may take to start or to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What says to a waiting parent that all is well.
const READY: &str = "Ready.";

/// Set when the node is to end.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Set when its threads are to end: later if copies end with it.
static IS_ENDED: AtomicBool = AtomicBool::new(false);

/// Set when etcd is not looked after any more. The node's lease is given back before.
static IS_ETCD_ENDED: AtomicBool = AtomicBool::new(false);

/// How often the signal is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Makes this machine part of a cluster, and stays in the foreground. Copies and etcd go on when it
/// ends.
#[derive(Args, Clone, Debug)]
pub struct UpOptions {
    /// The cluster's name [default: that of the cluster that is joined, or dunlin]
    #[arg(long)]
    name: Option<String>,
    /// The directory of this machine: etcd, copies, logs [default: dunlin-NAME]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Use this etcd, and start none: http://HOST:2379 or https://HOST:2379, several with commas
    #[arg(long, conflicts_with = "join")]
    etcd: Option<String>,
    /// Join the cluster of this machine: HOST or HOST:PORT, the port of its etcd
    #[arg(long)]
    join: Option<String>,
    /// This machine's name in the cluster [default: the host name]
    #[arg(long)]
    machine: Option<String>,
    /// Where others reach this machine [default: the address of its route to others]
    #[arg(long)]
    host: Option<String>,
    /// The part of the site that fails together with this machine
    #[arg(long)]
    zone: Option<String>,
    /// Memory for copies, as in 10gb [default: as before, or four fifths of what there is]
    #[arg(long)]
    memory: Option<String>,
    /// Flash for copies, as in 100gb [default: as before, or none]
    #[arg(long)]
    flash: Option<String>,
    /// Port of the console and of the REST interface [default: the first free one from 8380 on]
    #[arg(long)]
    port: Option<u16>,
    /// Port of etcd's clients; its peers have the next one [default: the first free ones from 2379
    /// on]
    #[arg(long)]
    etcd_port: Option<u16>,
    /// File with a password for the console and REST, whose user is admin. They are then open to
    /// other machines
    #[arg(long)]
    password_file: Option<PathBuf>,
    /// File for a line of JSON for each change by REST and the console, and by the copies' clients
    #[arg(long, value_name = "PATH")]
    audit_log: Option<PathBuf>,
    /// URL that gets a POST with JSON when a problem of the cluster has begun, and when it is over.
    /// Give it to every machine: the first living one that has it, by name, sends
    #[arg(long, value_name = "URL", env = "DUNLIN_WEBHOOK", hide_env_values = true)]
    webhook: Option<String>,
    /// Short leases: another copy takes over after a second or two, and etcd is used four times as
    /// much. For networks and disks without pauses; give it to every machine
    #[arg(long)]
    fast: bool,
    #[command(flatten)]
    access: AccessOptions,
    #[command(flatten)]
    contained: ContainedOptions,
    #[command(flatten)]
    tls: TlsOptions,
    #[command(flatten)]
    admin_tls: AdminTlsOptions,
    /// Go on in the background
    #[arg(short, long)]
    detach: bool,
}

/// Runs a node until it is told to end.
///
/// # Errors
/// Why it cannot start; the text says what to do.
pub fn up(options: &UpOptions, is_own_etcd_allowed: bool) -> Result<(), Wrong> {
    if options.detach {
        return detach();
    }
    let has_etcd = options.etcd.is_some() || options.contained.etcd_members.is_some();
    if !is_own_etcd_allowed && !has_etcd {
        return Err(Wrong(
            "dunlin node needs --etcd http://HOST:2379, or --etcd-members NAME=HOST,…. With an etcd of its own: \
             dunlin cluster up"
                .into(),
        ));
    }
    options.tls.check()?;
    // Before anything is written: copies and etcd inherit it.
    umask::make_private();
    let directory = directory(options)?;
    let lock = Lock::take(&directory)?;
    if !options.contained.is_contained() {
        process::log::set_logfile(&directory.join("logs").join("node.log"))
            .map_err(|why| Wrong(why.to_string()))?;
    }
    let on_signal = || IS_OVER.store(true, Ordering::Relaxed);
    signals::install(on_signal).map_err(|error| Wrong(error.to_string()))?;
    let mut kept = prepare(options, &directory)?;
    if let Some(path) = &options.audit_log {
        audit::start(path, audit::Source::Node, &kept.machine).map_err(Wrong)?;
    }
    let hook = webhook(options)?;
    let (password, given) = (password(options)?, options.admin_tls.given()?);
    let bind = bind(&kept, password.is_some());
    let (listeners, port) = join::listen(&bind, kept.admin_port, options.port)?;
    kept.admin_port = port;
    let etcd = join::enter(options, &mut kept, &directory)?;
    kept.write(&directory)?;
    let own = || options.admin_tls.own(&directory);
    let admin_tls = given.map_or_else(own, |rules| Ok(Some(rules)))?;
    Files::of(&directory).share_secret()?;
    let (common, summary) = (common(options, &kept, &directory)?, etcd.summary);
    let machine = machine(&kept, &common);
    common.certificates.as_ref().map_or(Ok(()), talk::trust)?;
    let tls_offset = (!common.tls.is_empty()).then_some(common.tls_port_offset);
    let copies = Copies::new(&directory, common).map_err(|error| Wrong(error.to_string()))?;
    let shared = Arc::new(Shared::new(&kept.cluster, &kept.machine, etcd.way));
    let is_ours = etcd.own.is_some();
    let stand_in = StandIn::new(options, &kept, &directory);
    let mut daemon = Daemon::new(Arc::clone(&shared), machine.clone(), copies, is_ours);
    daemon.register(options.contained.patience())?;
    let is_contained = options.contained.is_contained();
    let figures = Figures::default();
    let joining = joining(&kept, &directory);
    let shown = if is_contained { Joining::default() } else { joining.clone() };
    let of_rest = (Arc::clone(&shared), figures.clone(), shown);
    rest::start(of_rest, (password, admin_tls), listeners).map_err(Wrong)?;
    let relayed = relay::Relayed { host: kept.host.clone(), tls_offset, all: is_contained };
    let started = relay::start(Arc::clone(&shared), relayed);
    started.map_err(|error| Wrong(error.to_string()))?;
    let of_node = (daemon, figures);
    let threads = start(of_node, &shared, &directory, (etcd.own, stand_in), is_contained);
    let threads = threads.map_err(|error| Wrong(error.to_string()))?;
    let alerts = hook.map(|hook| tell_problems(&shared, hook)).transpose()?;
    report((&kept, &options.admin_tls), &machine, (&summary, &joining), &directory);
    if std::env::var_os(IN_BACKGROUND).is_some() {
        let_go_of_terminal();
    }
    // The daemon ends by itself when the machine was removed. No copy is left here then.
    while !is_over() && !IS_ENDED.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    let leaves = is_contained && !IS_ENDED.load(Ordering::Relaxed);
    if leaves {
        options.contained.leave(&shared);
    }
    threads.end(leaves);
    // A thread that panics takes the process with it.
    alerts.into_iter().for_each(|thread| drop(thread.join()));
    audit::finish(audit::Source::Node);
    if !is_contained {
        log!(Notice, "The node ends; copies and etcd go on");
    }
    drop(lock);
    Ok(())
}

/// Starts what sends to the webhook, if there is one.
fn webhook(options: &UpOptions) -> Result<Option<Webhook>, Wrong> {
    let log = |line: &str| log!(Warning, "{line}");
    let hook = options.webhook.as_deref().map(|url| Webhook::start(url, log)).transpose();
    hook.map_err(|why| Wrong(format!("--webhook: {why}")))
}

/// Starts the thread that tells problems of the cluster.
fn tell_problems(shared: &Arc<Shared>, hook: Webhook) -> Result<JoinHandle<()>, Wrong> {
    let shared = Arc::clone(shared);
    shared.announce_webhook();
    let tell = move || problems::tell(&shared, &hook, &IS_ENDED);
    thread::spawn("alerts", tell).map_err(|error| Wrong(error.to_string()))
}

/// The threads of a node.
struct Threads {
    daemon: JoinHandle<()>,
    jobs: JoinHandle<()>,
    disks: JoinHandle<()>,
    figures: JoinHandle<()>,
    etcd: Option<JoinHandle<()>>,
}

impl Threads {
    /// Waits until all have ended; first for the copies, if they end with the node.
    fn end(self, ends_copies: bool) {
        // A thread that panics takes the process with it.
        let end = |thread: JoinHandle<()>| drop(thread.join());
        IS_ENDED.store(!ends_copies, Ordering::Relaxed);
        end(self.daemon);
        IS_ENDED.store(true, Ordering::Relaxed);
        end(self.jobs);
        end(self.disks);
        end(self.figures);
        IS_ETCD_ENDED.store(true, Ordering::Relaxed);
        self.etcd.into_iter().for_each(end);
    }
}

fn start(
    (daemon, figures): (Daemon, Figures),
    shared: &Arc<Shared>,
    directory: &Path,
    (etcd, stand_in): (Option<OwnEtcd>, Option<StandIn>),
    ends_etcd: bool,
) -> std::io::Result<Threads> {
    let jobs = Jobs::new(Arc::clone(shared));
    let (of_disks, directory) = (Arc::clone(shared), directory.to_owned());
    let of_figures = Arc::clone(shared);
    let sample = move || figures::watch(&of_figures, &figures, &IS_ENDED);
    let watch =
        |etcd: OwnEtcd| thread::spawn("etcd", move || etcd.watch(&IS_ETCD_ENDED, ends_etcd));
    Ok(Threads {
        daemon: thread::spawn("node", move || daemon.run(&IS_ENDED))?,
        jobs: thread::spawn("jobs", move || jobs.run(&IS_ENDED))?,
        disks: thread::spawn("disks", move || disks::watch(&of_disks, &directory, &IS_ENDED))?,
        figures: thread::spawn("figures", sample)?,
        etcd: match (etcd, stand_in) {
            (Some(etcd), _) => Some(watch(etcd)?),
            (None, Some(stand_in)) => {
                let shared = Arc::clone(shared);
                let wait = move || stand_in.wait(&shared, &IS_ETCD_ENDED);
                Some(thread::spawn("etcd", wait)?)
            }
            (None, None) => None,
        },
    })
}

/// The absolute directory, which is made.
fn directory(options: &UpOptions) -> Result<PathBuf, Wrong> {
    let name = options.name.as_deref().unwrap_or("dunlin");
    check_name("cluster", name)?;
    let directory = options.dir.clone().unwrap_or_else(|| format!("dunlin-{name}").into());
    let made = fs::create_dir_all(directory.join("logs")).and_then(|()| directory.canonicalize());
    let directory = made.map_err(|error| {
        Wrong(format!("the directory {} cannot be used: {error}", directory.display()))
    })?;
    // Earlier versions let others read them.
    for folder in PRIVATE.map(|name| directory.join(name)) {
        if let Err(error) = umask::shut(&folder)
            && error.kind() != ErrorKind::NotFound
        {
            let folder = folder.display();
            log!(Warning, "Other users may be able to read {folder}: {error}");
        }
    }
    Ok(directory)
}

/// What the node was when it was last here, or what the options make of it.
fn prepare(options: &UpOptions, directory: &Path) -> Result<Kept, Wrong> {
    let name = options.name.clone();
    let mut kept = match Kept::read(directory)? {
        Some(kept) => kept,
        None => Kept::new(name.clone().unwrap_or_default()),
    };
    if let Some(name) = name.filter(|name| *name != kept.cluster) {
        return Err(Wrong(format!(
            "{} is the directory of a machine of cluster '{}': for cluster '{name}' take another --dir",
            directory.display(),
            kept.cluster
        )));
    }
    if kept.machine.is_empty() {
        kept.machine = options.machine.clone().unwrap_or_else(host_name);
    }
    check_name("machine", &kept.machine)?;
    if options.machine.as_ref().is_some_and(|name| *name != kept.machine) {
        let text =
            format!("this directory belongs to machine '{}': leave out --machine", kept.machine);
        return Err(Wrong(text));
    }
    if let Some(host) = &options.host {
        kept.host.clone_from(host);
    }
    if kept.host.is_empty() {
        kept.host = address::own(options.join.as_deref().or(options.etcd.as_deref()));
    }
    if let Some(zone) = &options.zone {
        kept.zone.clone_from(zone);
    }
    kept.is_fast |= options.fast;
    kept.memory_bytes = size("memory", &options.memory)?.or(kept.memory_bytes);
    kept.flash_bytes = size("flash", &options.flash)?.or(kept.flash_bytes);
    Ok(kept)
}

fn size(name: &str, text: &Option<String>) -> Result<Option<u64>, Wrong> {
    let Some(text) = text else { return Ok(None) };
    match config::parse_memory(text.as_bytes()) {
        Some(bytes) if bytes > 0 => Ok(Some(bytes)),
        _ => Err(Wrong(format!("--{name} {text}: a size is a number with a unit, as in 10gb"))),
    }
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if check_name("machine", name).is_ok() { name.to_owned() } else { "machine".into() }
}

fn password(options: &UpOptions) -> Result<Option<String>, Wrong> {
    let Some(path) = &options.password_file else { return Ok(None) };
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| Wrong(format!("{}: {error}", path.display())))?;
    match text.trim() {
        "" => Err(Wrong(format!("{} has no password", path.display()))),
        password => Ok(Some(password.to_owned())),
    }
}

fn bind(kept: &Kept, has_password: bool) -> Vec<String> {
    let is_elsewhere = has_password && kept.host != "127.0.0.1";
    let others = is_elsewhere.then(|| format!("-{}", kept.host));
    ["127.0.0.1".to_owned()].into_iter().chain(others).collect()
}

fn common(options: &UpOptions, kept: &Kept, directory: &Path) -> Result<Common, Wrong> {
    let flash = options.contained.flash_dir.as_deref().map(|folder| {
        let made = fs::create_dir_all(folder).and_then(|()| folder.canonicalize());
        made.map_err(|error| Wrong(format!("--flash-dir {}: {error}", folder.display())))
    });
    let audit_log = options.audit_log.as_deref().map(std::path::absolute).transpose();
    Ok(Common {
        audit_log: audit_log.map_err(|error| Wrong(format!("--audit-log: {error}")))?,
        cluster: kept.cluster.clone(),
        coordinator: kept.endpoints.join(","),
        lease_seconds: kept.is_fast.then_some(FAST_LEASE_SECONDS),
        access: kept.access.server_options(),
        tls: options.tls.server_options()?,
        tls_port_offset: options.tls.port_offset(),
        flash: flash.transpose()?,
        logs_to_output: options.contained.is_contained(),
        certificates: kept.access.certificates(),
        bus: options.tls.bus(directory),
    })
}

fn machine(kept: &Kept, common: &Common) -> Machine {
    let all = Memory::detect().limit_bytes();
    let machine = Machine {
        id: kept.id.clone(),
        host: kept.host.clone(),
        zone: kept.zone.clone(),
        memory_bytes: kept.memory_bytes.unwrap_or(all / 5 * 4),
        cores: process::cpus::Cpus::detect().usable(),
        flash_bytes: kept.flash_bytes.unwrap_or(0),
        admin_port: kept.admin_port,
        bus_port_offset: common.bus.as_ref().map_or(0, |bus| bus.port_offset),
        tls_port_offset: if common.tls.is_empty() { 0 } else { common.tls_port_offset },
        version: facts::VERSION.to_owned(),
        ..Machine::default()
    };
    machine.of_this_version(sealed::has_key())
}

/// Returns how another machine joins.
fn joining(kept: &Kept, directory: &Path) -> Joining {
    let Kept { cluster, host, .. } = kept;
    let is_ours = kept.access.is_ours;
    let token = if is_ours { " --token-file join-token" } else { "" };
    let join = match (&kept.etcd, kept.endpoints.first()) {
        (Some(server), _) => format!("--join {host}:{}{token}", server.client_port),
        (None, Some(first)) if is_ours => format!("--join {first}{token}"),
        (None, _) => format!("--etcd {}", kept.endpoints.join(",")),
    };
    let token_file = match is_ours {
        true => Files::of(directory).token.display().to_string(),
        false => String::new(),
    };
    let command = format!("dunlin cluster up --name {cluster} {join}");
    Joining { command, token_file, host: host.clone() }
}

/// Says what was done, and what comes next.
fn report(
    (kept, tls): (&Kept, &AdminTlsOptions),
    machine: &Machine,
    (etcd, joining): (&[String], &Joining),
    directory: &Path,
) {
    let Kept { cluster, machine: name, host, admin_port, .. } = kept;
    let zone = if kept.zone.is_empty() { String::new() } else { format!(", zone {}", kept.zone) };
    let mut text = format!(
        "Cluster {cluster}, machine {name} at {host}{zone}, {} for copies\n",
        Bytes(machine.memory_bytes)
    );
    for line in etcd {
        text += &format!("{line}\n");
    }
    let place = match tls.is_given() {
        true => format!("https://{host}:{admin_port}"),
        false => format!("http://127.0.0.1:{admin_port}"),
    };
    text += &format!("Console and REST: {place}\n");
    text += &format!("Log: {}\n", directory.join("logs").join("node.log").display());
    if !joining.token_file.is_empty() {
        let path = &joining.token_file;
        text += &format!("Machines join with {path}: copy it to them, and keep it secret\n");
    }
    let node = match (tls.is_given(), *admin_port) {
        (true, _) => match tls.own_authority(directory) {
            Some(authority) => format!(" --node {place} --cacert {}", authority.display()),
            None => format!(" --node {place}"),
        },
        (false, ADMIN_PORT) => String::new(),
        (false, _) => format!(" --node 127.0.0.1:{admin_port}"),
    };
    text += &format!("Next, on another machine: {}\n", joining.command);
    text += &format!("Next, here: dunlin cluster create-db NAME --memory 1gb --port 12000{node}\n");
    text += &format!(
        "Everything on this machine ends with: dunlin cluster down --dir {}\n",
        directory.display()
    );
    text += READY;
    text.push('\n');
    // That nothing reads it is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = std::io::stdout().flush();
}

/// Set in the environment of a node that goes on in the background.
const IN_BACKGROUND: &str = "DUNLIN_IN_BACKGROUND";

/// Closes the descriptors that the node has inherited: a program that waits for the end of that
/// output must not wait for the node. The node's log is a file.
fn let_go_of_terminal() {
    if let Err(error) = process::daemonize::close_output() {
        log!(Warning, "The output of the command that started the node stays open: {error}");
    }
}

/// Starts the same command in the background, and waits until it is ready.
fn detach() -> Result<(), Wrong> {
    let wrong = |error: std::io::Error| Wrong(error.to_string());
    let program = process::beside::own_program().map_err(wrong)?;
    let args = std::env::args_os().skip(1).filter(|arg| arg != "-d" && arg != "--detach");
    let mut child = Command::new(program)
        .args(args)
        .env(IN_BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(wrong)?;
    let out = child.stdout.take().map(BufReader::new);
    for line in out.into_iter().flat_map(BufReader::lines) {
        let line = line.map_err(wrong)?;
        println!("{line}");
        if line == READY {
            return Ok(());
        }
    }
    let status = child.wait().map_err(wrong)?;
    Err(Wrong(format!("the node has ended: {status}")))
}

/// Returns whether the process was asked to end.
fn is_over() -> bool {
    IS_OVER.load(Ordering::Relaxed)
}
