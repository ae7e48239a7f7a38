//! Starting and stopping: from arguments to running reactors, in redis-server's order.

use crate::apply::{self, Applier, Title};
use crate::forward::{self, Forwarder};
use crate::handler::ReactorHandler;
use crate::host::{ServerHost, Started};
use crate::inside::{Companion, Inside};
use crate::listening;
use crate::log;
use crate::persistence::aof::{Aof, LoadedLog};
use crate::persistence::load::{self, LoadedAtStart};
use crate::persistence::tier::TierFiles;
use crate::persistence::{self, save, save_points};
use crate::tls;
use crate::{cluster, defragment, inside, reclaim, reports, title};
use config::{Arguments, Config, Directive, IoBackend, LoadError, Loaded};
use engine::background::Purpose;
use engine::clock::Clock;
use engine::{Engine, Worker};
use net::{Backend, Choice, Kind, ListenSpec, MAX_THREADS, Net, NetOptions, Reactor};
use process::{
    affinity, alt_stack, audit, banner, checks, cpulist, cpus::Cpus, crash, daemonize, facts,
    log as logging, memory::Memory, numa, open_files, pidfile, priority, sandbox, shutdown,
    signals, supervised, syslog, thread,
};
use std::cell::Cell;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The beginning of the names of threads that serve clients.
pub const REACTOR: &str = "reactor-";

/// The name of the thread that serves operators.
const OPERATORS: &str = "operators";

/// Why the server does not start; the text is for the operator.
type Failure = String;

/// Runs the server until it is told to stop. `args` starts with the program's name; `companion`
/// starts beside it.
pub fn run(args: Vec<OsString>, companion: Option<Companion>) -> ExitCode {
    let program = args.first().cloned().unwrap_or_default();
    let configured = args.len() > 1;
    let arguments = Arguments::parse(args.into_iter().skip(1));
    let (loaded, renames) = match configure(&arguments) {
        Ok(loaded) => loaded,
        Err(error @ LoadError::Open { .. }) => {
            error.to_string().lines().for_each(|line| log!(Warning, "{line}"));
            return ExitCode::FAILURE;
        }
        Err(error) => {
            // There is no place left to report to if standard error is closed.
            let _ = write!(std::io::stderr(), "{error}");
            return ExitCode::FAILURE;
        }
    };
    match serve(&program, loaded, &renames, configured, companion) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            for line in reason.lines() {
                log!(Warning, "{line}");
            }
            ExitCode::FAILURE
        }
    }
}

/// A command's name and the one it goes by.
type Renames = Vec<(String, String)>;

/// Reads the configuration, and checks what the configuration alone does not know.
fn configure(arguments: &Arguments) -> Result<(Loaded, Renames), LoadError> {
    let loaded = config::load(arguments, &mut std::io::stdin().lock())?;
    if loaded.config.cluster_enabled() {
        cluster::coordinator(&loaded.config).map_err(|reason| LoadError::Whole { reason })?;
    }
    check_users(&loaded.users)?;
    let renames = renamed(&loaded)?;
    Ok((loaded, renames))
}

#[expect(clippy::too_many_lines, reason = "to be split by phases of the start")]
fn serve(
    program: &OsString,
    loaded: Loaded,
    renames: &Renames,
    configured: bool,
    companion: Option<Companion>,
) -> Result<(), Failure> {
    let config = Arc::clone(&loaded.config);
    if apply::confirms_without_log(&config) {
        return Err(format!("Fatal config error: {}", apply::CONFIRMS_WITHOUT_LOG));
    }
    let started = Started::collect().map_err(|e| format!("Can't tell the current folder: {e}"))?;
    let seed = config.hash_seed();
    if !seed.is_empty() {
        structs::hashing::seed_with(&seed);
    }
    enter_folder(&config)?;
    let cpus = Cpus::detect();
    let process_title = process::title::ProcessTitle::prepare();
    let mode = supervision(&config);
    let supervisor = supervised::Supervisor::detect(mode);
    let in_background = config.daemonize() && !supervisor.is_supervised();
    if in_background {
        daemonize::daemonize().map_err(|error| format!("Can't daemonize: {error}"))?;
    }
    banner::starting(&program.to_string_lossy(), configured);
    if !sandbox::allows_optional_calls() {
        log!(
            Notice,
            "There is a filter of system calls: background threads run at the priority of the others"
        );
    }
    if !loaded.without_effect.is_empty() {
        log!(
            Notice,
            "Accepted without effect in this version: {}",
            loaded.without_effect.join(", ")
        );
    }
    let mut process =
        facts::Facts::collect(program).map_err(|e| format!("No process facts: {e}"))?;
    process.supervisor = supervisor.name();
    crash::install(facts::VERSION, config.crash_log_enabled())
        .map_err(|error| format!("Can't install the crash handlers: {error}"))?;
    start_audit_log(&config)?;
    let maxclients = u32::try_from(config.maxclients()).unwrap_or(u32::MAX);
    let fitting = open_files::adjust(maxclients, apply::reserved_files(&config))
        .map_err(|e| e.to_string())?;
    if fitting != maxclients {
        // The option exists and takes numbers; nothing can be wrong with this one.
        let _ = config.record("maxclients", fitting.to_string().as_bytes());
    }
    open_files::prepare_table(u64::from(fitting) + apply::reserved_files(&config));

    apply::choose_page_size(&config);
    structs::field_names::set_enabled(config.hash_shared_fields());
    let io_threads = Some(config.io_threads()).filter(|&count| count > 0);
    let mut threads = cpus.threads(io_threads);
    let for_operators = usize::from(config.has_operator_thread());
    threads.count = threads.count.clamp(1, MAX_THREADS - for_operators);
    let count = threads.count;
    let choice = choose_backend(&config)?;
    let node = cluster::prepare(&config)?;
    let engine =
        Engine::new(Arc::clone(&config), &commands::rows(), renames, count, Clock::system());
    node.iter().for_each(|node| engine.membership.join(node.id()));
    let pins = Pins::new(&config, &cpus)?;
    let background = pins.background.clone();
    engine
        .background
        .set_prologue(Box::new(move |purpose| begin_background_thread(purpose, &background)));
    let net = Net::new(NetOptions {
        backend: choice.backend,
        threads: count + for_operators,
        reserved: if for_operators > 0 { inside::RESERVED } else { &[] },
        keepalive_seconds: config.tcp_keepalive(),
        coalescing_time: apply::coalescing_time(&config),
        admission: apply::admission(&config),
        backlog: config.tcp_backlog(),
        may_schedule: sandbox::allows_optional_calls(),
    })
    .map_err(|error| format!("Can't set up the reactors: {error}"))?;
    for (index, mailbox) in engine.mailboxes.iter().enumerate() {
        let net = Arc::clone(&net);
        mailbox.set_wake(Box::new(move || net.waker(index).wake()));
    }
    let memory = Memory::detect();
    limit_memory(&loaded, &memory);
    banner::Banner {
        mode: if config.cluster_enabled() { "cluster" } else { "standalone" },
        port: if config.port() != 0 { config.port() } else { config.tls_port() },
        threads,
        io: &choice.reason,
        memory,
        maxmemory_bytes: config.maxmemory(),
    }
    .show(config.always_show_logo());
    if config.protected_mode()
        && config.protected_mode_private_networks()
        && engine.acl.needs_no_password()
    {
        log!(
            Warning,
            "No password is set: clients of the private network that this server's address is in \
             are answered, others are not. Set requirepass, or protected-mode-private-networks no."
        );
    }
    checks::warn_about_backlog(Path::new("/"), config.tcp_backlog());
    checks::warn_about_maxmemory(config.maxmemory());

    // From the time it listens or has a pid file the server can be told by a signal to end cleanly.
    persistence::shutdown::prepare(engine, &net)
        .map_err(|error| format!("Can't start the thread that shuts down: {error}"))?;
    signals::install(move || stop_in_time(engine))
        .map_err(|error| format!("Can't install the signal handlers: {error}"))?;
    tls::ALL.into_iter().try_for_each(|of| tls::apply(&config, &net, of))?;
    tls::watch(engine, &net)
        .map_err(|e| format!("Can't start the thread that looks for certificates: {e}"))?;
    let specs = apply::listeners(&config);
    listening::open(&net, &specs)?;
    let pid_path = config.pidfile();
    let pid_path = pidfile::path(Some(pid_path.as_path()), in_background);
    let pid_file = pid_path.as_deref().and_then(pidfile::PidFile::create);
    if in_background && let Some(path) = pid_file.as_ref().and_then(pidfile::PidFile::c_path) {
        crash::remove_at_crash(path);
    }
    let marks = Marks { config: &config, pid_file };
    let config_file = loaded.file.as_ref().map(|path| path.display().to_string());
    let variables = title::Variables {
        title: program.to_string_lossy().into_owned(),
        unix_socket: config.unixsocket().to_string_lossy().into_owned(),
        config_file,
        ..title::Variables::default()
    };
    let title = Title { title: process_title, variables };
    let aof = Aof::new(engine, &net);
    let applier = Applier::new(engine, Arc::clone(&net), title, Arc::clone(&aof), node.as_ref());
    let mut host =
        ServerHost::new(engine, Arc::clone(&net), process, choice, loaded.file, started, applier);
    host.requests = node.as_ref().map(|node| node.requests.clone());
    engine.set_host(Box::new(host));
    reports::add_sections(engine);
    load_users(engine, &loaded.users)?;
    let tier = persistence::tier::start(engine)?;
    follow_configured(engine);

    // What the server takes without data, before any is loaded.
    engine.startup_bytes();
    banner::initialized();
    let log = aof.find()?;
    let snapshot = if config.appendonly() {
        begin_loading(engine, log);
        None
    } else {
        load::begin_at_start(engine).map_err(not_loaded)?
    };
    cluster::await_role(engine, log.is_some() || snapshot.is_some());
    // Whatever is acknowledged behind the gate may be saved by a shutdown.
    if !engine.loading.is_on() {
        persistence::shutdown::data_set_is_complete();
    }
    reclaim::start(engine)
        .map_err(|e| format!("Can't start the thread that reclaims memory: {e}"))?;
    defragment::start(engine)
        .map_err(|e| format!("Can't start the thread of defragmentation: {e}"))?;
    if let Some(companion) = companion {
        companion(Inside::new(engine, &net))?;
    }
    let forward = node.is_some().then(|| forward::Shared::new(engine));
    let reactors = start_reactors(engine, &net, &pins.reactors, tier.as_ref(), forward.as_ref())?;
    let is_ready = if config.appendonly() {
        load_log(engine, &aof, log)?
    } else {
        load::at_start(engine, snapshot).map_err(not_loaded)?
    };
    let mut copy = None;
    if is_ready == LoadedAtStart::Ready {
        aof.open()?;
        engine.follow_commit_modes();
        persistence::shutdown::data_set_is_complete();
        engine.loading.end();
        if !net.is_stopping() {
            banner::ready(&kinds(&specs));
            supervisor.ready();
        }
        copy = start_at_work(engine, &net, &aof, node)?;
    }
    wait_for_reactors(engine, &net, &reactors);
    for reactor in reactors {
        if !reactor.is_finished() && is_kept_by_script(engine) {
            log!(Warning, "A script that has no end is left behind.");
            continue;
        }
        match reactor.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log!(Warning, "A reactor stopped: {error}"),
            Err(_) => log!(Warning, "A reactor thread panicked"),
        }
    }
    supervisor.stopping();
    aof.stop();
    copy.iter().for_each(|copy| copy.close());
    if let Some(tier) = tier {
        tier.close();
    }
    drop(marks);
    audit::finish(audit::Source::Server);
    shutdown::finish();
    Ok(())
}

/// Goes to the folder of the data, opens the log, and checks that data can be saved there.
fn enter_folder(config: &Config) -> Result<(), Failure> {
    if let Err(error) = std::env::set_current_dir(config.dir()) {
        return Err(format!("Can't chdir to '{}': {error}", config.dir().display()));
    }
    set_up_logging(config)?;
    persistence::writable::check(config)
}

/// `replicaof`, before data are loaded.
fn follow_configured(engine: &Engine) {
    if let Some(primary) = engine.config.replicaof() {
        engine.follow(&primary.host.to_string_lossy(), primary.port);
        logging::set_role(logging::Role::Replica);
    }
}

/// Starts what works once all data is loaded.
fn start_at_work(
    engine: &'static Engine,
    net: &Arc<Net>,
    aof: &Arc<Aof>,
    node: Option<cluster::Node>,
) -> Result<Option<&'static cluster::data::Data>, Failure> {
    save::start(engine).map_err(|e| format!("Can't start the thread that saves: {e}"))?;
    let failed = |e| format!("Can't start the threads of the cluster: {e}");
    // Before anything is followed: what this server acknowledges has a name.
    let copy = node
        .map(|node| node.start(engine, Inside::new(engine, net)).map_err(failed))
        .transpose()?;
    crate::replication::start(engine, aof)
        .map_err(|e| format!("Can't start the thread of replication: {e}"))?;
    save_points::start(engine).map_err(|e| format!("Can't start the save points' thread: {e}"))?;
    Ok(copy)
}

/// Waits until the reactors have run their last request. One on which a script has no end is left
/// behind: by then it was decided that the server goes down.
fn wait_for_reactors(engine: &Engine, net: &Net, reactors: &[ReactorThread]) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let began = Cell::new(None);
    net.wait_for_end(|| {
        if !net.is_stopping() {
            return reactors.iter().all(ReactorThread::is_finished);
        }
        let began = began.get().unwrap_or_else(|| {
            began.set(Some(Instant::now()));
            Instant::now()
        });
        reactors.iter().all(ReactorThread::is_finished)
            || (is_kept_by_script(engine) && began.elapsed() > PATIENCE)
    });
}

fn is_kept_by_script(engine: &Engine) -> bool {
    engine.scripts.running.is_busy()
}

/// By what others find the server. It goes when the server does, also if the start fails.
struct Marks<'a> {
    config: &'a Config,
    pid_file: Option<pidfile::PidFile>,
}

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        if let Some(pid_file) = self.pid_file.take() {
            pid_file.remove();
        }
        remove_unix_sockets(self.config);
    }
}

/// The processors that the configuration wants threads to be on.
struct Pins {
    /// One after the other for each reactor; empty where they are not pinned.
    reactors: Vec<usize>,
    /// For all background threads. A thread starts with the processors of the one that starts it,
    /// so that they have to be set free where a reactor, which may be pinned, starts them.
    background: Vec<usize>,
}

impl Pins {
    fn new(config: &Config, cpus: &Cpus) -> Result<Self, Failure> {
        let parse = |option: &str, list: config::Text| {
            let list = list.to_string_lossy();
            if list.is_empty() {
                return Ok(Vec::new());
            }
            cpulist::parse(&list).map_err(|error| format!("{option}: {error}"))
        };
        let wanted = parse("server-cpulist", config.server_cpulist())?;
        let mut background = parse("bio-cpulist", config.bio_cpulist())?;
        if background.is_empty() && !wanted.is_empty() {
            background = cpus.allowed().to_vec();
        }
        Ok(Self { reactors: numa::order(Path::new("/"), &wanted), background })
    }
}

/// Closes the gate to clients' commands until the append-only log of so many bytes is loaded.
fn begin_loading(engine: &Engine, bytes: Option<u64>) {
    engine.loading.begin(bytes.unwrap_or(0), engine::clock::now());
    signals::set_loading(true);
}

/// Why the snapshot is not loaded. The last line is Redis's, which tools look for; with an
/// append-only log that is the reason itself.
fn not_loaded(reason: Failure) -> Failure {
    format!("{reason}\nFatal error loading the DB, check server logs. Exiting.")
}

/// Loads the append-only log, if there is one.
fn load_log(engine: &Engine, aof: &Aof, log: Option<u64>) -> Result<LoadedAtStart, Failure> {
    let started = Instant::now();
    let loaded = if log.is_some() { aof.load() } else { Ok(LoadedLog::default()) };
    signals::set_loading(false);
    if engine.loading.is_cancelled() {
        return Ok(LoadedAtStart::Cancelled);
    }
    let LoadedLog { place, db, .. } = loaded?;
    load::continue_history(engine, place, db);
    if log.is_some() {
        let seconds = started.elapsed().as_secs_f64();
        log!(Notice, "DB loaded from append only file: {seconds:.3} seconds");
    }
    Ok(LoadedAtStart::Ready)
}

/// What a background thread does first.
fn begin_background_thread(purpose: Purpose, cpus: &[usize]) {
    if !cpus.is_empty()
        && let Err(error) = affinity::pin_current_thread(cpus)
    {
        log!(Warning, "Can't give a background thread the processors {cpus:?}: {error}");
    }
    if purpose == Purpose::Jobs {
        priority::step_back("a background thread");
    }
    // Without it a crash is still reported, only a stack overflow might not be.
    if let Ok(stack) = alt_stack::AltStack::install() {
        // The thread lives as long as the process.
        std::mem::forget(stack);
    }
}

/// Follows a signal that asks for a shutdown. Redis does so in its next round of housekeeping,
/// which a test can hold back to take the request back.
fn stop_in_time(engine: &'static Engine) {
    while engine.debug.pauses_cron() {
        if signals::requested().is_none() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    persistence::shutdown::follow_signal(engine);
}

type ReactorThread = std::thread::JoinHandle<std::io::Result<()>>;

/// Sets `maxmemory` from the container's limit, where that is wanted and nothing else is given, not
/// even 0.
fn limit_memory(loaded: &Loaded, memory: &Memory) {
    let config = &loaded.config;
    let Some(limit) = memory.container_bytes() else { return };
    if !config.maxmemory_from_limit() || loaded.has_maxmemory {
        return;
    }
    let bytes = process::memory::for_data(limit);
    match config.record("maxmemory", bytes.to_string().as_bytes()) {
        Ok(()) => log!(
            Notice,
            "maxmemory is {bytes} bytes: three quarters of the container's memory limit"
        ),
        Err(error) => log!(Warning, "maxmemory stays 0: {error}"),
    }
}

fn start_reactors(
    engine: &'static Engine,
    net: &Arc<Net>,
    pinned: &[usize],
    tier: Option<&TierFiles>,
    forward: Option<&Arc<forward::Shared>>,
) -> Result<Vec<ReactorThread>, Failure> {
    let reads_alone = tier.is_some_and(TierFiles::has_rings);
    (0..net.threads())
        .map(|index| {
            let net = Arc::clone(net);
            let forward = forward.cloned();
            let is_for_operators = index >= engine.threads;
            let is_pinned = !pinned.is_empty() && !is_for_operators;
            let cpu = is_pinned.then(|| pinned[index % pinned.len()]);
            let name = match is_for_operators {
                true => OPERATORS.to_owned(),
                false => format!("{REACTOR}{index}"),
            };
            thread::spawn(&name, move || {
                if let Some(cpu) = cpu
                    && let Err(error) = affinity::pin_current_thread(&[cpu])
                {
                    log!(Warning, "Can't pin reactor {index} to processor {cpu}: {error}");
                }
                if reads_alone && let Err(error) = tier::own_ring::begin(net.waker(index).fd()) {
                    log!(
                        Notice,
                        "Reactor {index} reads from flash through another thread: {error}"
                    );
                }
                let forwarder = forward.as_ref().map(Forwarder::new);
                let hub = ReactorHandler::new(Worker::new(engine, index), forwarder);
                let reactor = Reactor::new(&net, index, hub)?;
                let busy_poll = engine.config.io_busy_poll_usec();
                if busy_poll > 0
                    && let Err(error) = reactor.busy_poll(busy_poll)
                {
                    log!(
                        Warning,
                        "Reactor {index} sleeps without asking the network card, which \
                         io-busy-poll-usec wants and Linux has since 6.9: {error}"
                    );
                }
                reactor.run().map(drop)
            })
            .map_err(|error| format!("Can't start a reactor thread: {error}"))
        })
        .collect()
}

fn set_up_logging(config: &Config) -> Result<(), Failure> {
    apply::apply_log_options(config);
    logging::set_logfile(config.logfile().as_path()).map_err(|error| error.to_string())?;
    if config.syslog_enabled()
        && let Some(facility) = syslog::Facility::from_name(config.syslog_facility().name())
    {
        logging::enable_syslog(&config.syslog_ident().to_string_lossy(), facility);
    }
    Ok(())
}

/// Opens the audit log, if one is wanted. The process has its last identity by now: it does not
/// fork any more.
fn start_audit_log(config: &Config) -> Result<(), Failure> {
    let path = config.audit_log();
    if path.is_empty() {
        return Ok(());
    }
    let instance = match (config.port(), config.tls_port()) {
        (0, 0) => config.unixsocket().to_string_lossy().into_owned(),
        (0, port) | (port, _) => port.to_string(),
    };
    audit::start(path.as_path(), audit::Source::Server, &instance)
}

fn supervision(config: &Config) -> supervised::Mode {
    match config.supervised() {
        config::Supervised::No => supervised::Mode::No,
        config::Supervised::Auto => supervised::Mode::Auto,
        config::Supervised::Systemd => supervised::Mode::Systemd,
        config::Supervised::Upstart => supervised::Mode::Upstart,
    }
}

fn choose_backend(config: &Config) -> Result<Choice, Failure> {
    let forced = match config.io_backend() {
        IoBackend::Auto => None,
        IoBackend::IoUring => Some(Backend::Uring),
        IoBackend::Epoll => Some(Backend::Epoll),
    };
    Backend::choose(forced)
}

/// The users of the configuration or of the ACL file. A server whose users are not as they are
/// meant to be does not start.
fn load_users(engine: &Engine, users: &[Directive]) -> Result<(), Failure> {
    let acl_file = engine.config.aclfile();
    if !acl_file.is_empty() {
        if engine.shares_users() {
            return Err(
                "aclfile and cluster-share-users are both set: the cluster's users are at its \
                        coordinator. Remove aclfile, and add its users by ACL SETUSER"
                    .into(),
            );
        }
        if let Some(directive) = users.first() {
            return Err(directive
                .error("there are users both here and in an ACL file: use one or the other")
                .to_string());
        }
        let load = |text: Vec<u8>| engine.acl.load(&text, &acl_file.to_string_lossy()).map(drop);
        let host = engine.host().map_or(Ok(Vec::new()), |host| host.read_acl_file());
        return host
            .and_then(load)
            .map_err(|error| format!("Aborting startup because of ACL errors: {error}"));
    }
    for directive in users {
        if let [name, rules @ ..] = &directive.words[..] {
            let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
            engine.acl.define(name, &rules).map_err(|why| directive.error(why).to_string())?;
        }
    }
    Ok(())
}

/// A user that is defined twice is a mistake, and so is a name that no ACL rule could be written
/// with.
fn check_users(users: &[Directive]) -> Result<(), LoadError> {
    for (at, directive) in users.iter().enumerate() {
        let name = directive.words.first();
        if name.is_some_and(|name| engine::acl::has_blanks(name)) {
            return Err(directive.error("Spaces not allowed in ACL usernames"));
        }
        if users[..at].iter().any(|earlier| earlier.words.first() == name) {
            let why = "Duplicate user found. A user can only be defined once in config files";
            return Err(directive.error(why));
        }
    }
    Ok(())
}

/// `rename-command`, checked.
fn renamed(loaded: &Loaded) -> Result<Renames, LoadError> {
    let rows = commands::rows();
    let mut renamed: Renames = Vec::new();
    for directive in &loaded.renames {
        let [from, to] = &directive.words[..] else {
            return Err(directive.error("wrong number of arguments"));
        };
        let (from, to) = (String::from_utf8_lossy(from), String::from_utf8_lossy(to));
        let changes = !to.is_empty() && !from.eq_ignore_ascii_case(&to);
        if changes && is_in_force(&renamed, &from) && is_in_force(&renamed, &to) {
            return Err(directive.error("Target command name already exists"));
        }
        // The name may be one that an earlier line has given.
        let mut given = renamed.iter_mut().filter(|(_, name)| !name.is_empty());
        if let Some((_, name)) = given.find(|(_, name)| name.eq_ignore_ascii_case(&from)) {
            *name = to.into_owned();
            continue;
        }
        let is_taken = renamed.iter().any(|(name, _)| name.eq_ignore_ascii_case(&from));
        if is_taken || !rows.iter().any(|row| row.name.eq_ignore_ascii_case(&from)) {
            return Err(directive.error("No such command in rename-command"));
        }
        renamed.push((from.into_owned(), to.into_owned()));
    }
    Ok(renamed)
}

/// Whether a command answers to this name after these renamings.
fn is_in_force(renamed: &Renames, name: &str) -> bool {
    let is = |other: &str| other.eq_ignore_ascii_case(name);
    let keeps_name = |row: &str| !renamed.iter().any(|(from, _)| from.eq_ignore_ascii_case(row));
    renamed.iter().any(|(_, to)| !to.is_empty() && is(to))
        || commands::rows().iter().any(|row| is(row.name) && keeps_name(row.name))
}

fn kinds(specs: &[ListenSpec]) -> Vec<&'static str> {
    let has = |kind: Kind| specs.iter().any(|spec| spec.kind == kind);
    [(Kind::Tcp, "tcp"), (Kind::Tls, "tls"), (Kind::Unix, "unix")]
        .into_iter()
        .filter(|(kind, _)| has(*kind))
        .map(|(_, name)| name)
        .collect()
}

fn remove_unix_sockets(config: &Config) {
    for socket in [config.unixsocket(), config.admin_socket()] {
        if socket.is_empty() {
            continue;
        }
        log!(Notice, "Removing the unix socket file.");
        if let Err(error) = std::fs::remove_file(socket.as_path()) {
            log!(Warning, "Can't remove {}: {error}", socket.as_path().display());
        }
    }
}
