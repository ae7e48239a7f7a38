//! `dunlin proxy`: arguments, threads and what they are given.

use crate::config::{self, Config};
use crate::driver::Driver;
use crate::policy::Front;
use crate::reload::Service;
use crate::{admin, report};
use forward::hub::{Commands, Common, Hub};
use net::{Backend, Net, NetOptions, Reactor};
use process::{daemonize, log, os_error, signals};
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long clients have when the proxy ends.
const DRAIN_SECONDS: u64 = 10;

/// When the proxy has to have ended, once a signal has asked for it.
static DRAIN_UNTIL: OnceLock<Instant> = OnceLock::new();

/// What `--help` prints.
pub const USAGE: &str = "\
One address for several servers, or for a cluster; in the place of Twemproxy

Usage: dunlin proxy -c FILE [OPTIONS]

Options:
  -c, --conf-file FILE       nutcracker.yml as Twemproxy reads it, or, if its name ends in .toml, the
                             format of docs/proxy.md
  -t, --test-conf            say whether the file is valid, and exit
  -d, --daemonize            run in the background
  -o, --output FILE          write the log there
  -v, --verbose N            0 to 11: how much is logged
  -p, --pid-file FILE        write the process's number there
  -s, --stats-port N         answer Twemproxy's statistics there (22222)
  -a, --stats-addr ADDRESS   and at this address (127.0.0.1; Twemproxy: 0.0.0.0)
  -i, --stats-interval N     accepted for Twemproxy's sake; figures are always current
  -m, --mbuf-size N          accepted for Twemproxy's sake
      --threads N            threads that serve clients (one a processor)
  -h, --help                 print this

The guide: docs/proxy.md
";

#[derive(Debug, Default)]
struct Arguments {
    file: Option<PathBuf>,
    tests: bool,
    in_background: bool,
    output: Option<PathBuf>,
    verbosity: Option<u32>,
    pid_file: Option<PathBuf>,
    stats_port: Option<u16>,
    stats_address: Option<String>,
    threads: Option<usize>,
}

fn read_arguments(args: Vec<OsString>) -> Result<Arguments, String> {
    let mut found = Arguments::default();
    let mut args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        let (name, mut inline) = match arg.split_once('=') {
            Some((name, value)) if name.starts_with("--") => {
                (name.to_owned(), Some(value.to_owned()))
            }
            _ => (arg.clone(), None),
        };
        let mut value =
            || inline.take().or_else(|| args.next()).ok_or(format!("{name} needs a value"));
        let number = |text: String| text.parse::<u32>().map_err(|_| format!("{text} is no number"));
        match &name[..] {
            "-c" | "--conf-file" => found.file = Some(value()?.into()),
            "-t" | "--test-conf" => found.tests = true,
            "-d" | "--daemonize" => found.in_background = true,
            "-o" | "--output" => found.output = Some(value()?.into()),
            "-v" | "--verbose" => found.verbosity = Some(number(value()?)?),
            "-p" | "--pid-file" => found.pid_file = Some(value()?.into()),
            "-s" | "--stats-port" => {
                let port = value()?;
                found.stats_port = Some(port.parse().map_err(|_| format!("{port} is no port"))?);
            }
            "-a" | "--stats-addr" => found.stats_address = Some(value()?),
            "-i" | "--stats-interval" | "-m" | "--mbuf-size" => drop(number(value()?)?),
            "--threads" => found.threads = Some(number(value()?)? as usize),
            _ => return Err(format!("{name} is no option")),
        }
    }
    Ok(found)
}

/// Runs `dunlin proxy` with its own arguments.
pub fn run(args: Vec<OsString>, commands: fn() -> Arc<Commands>) -> ExitCode {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match read_arguments(args) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprint!("dunlin proxy: {why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let Some(file) = &arguments.file else {
        eprint!("dunlin proxy: -c FILE is missing\n\n{USAGE}");
        return ExitCode::from(2);
    };
    let commands = commands();
    let config = config::read(file, &commands);
    let shown = file.display();
    match config {
        Err(why) => {
            eprintln!("dunlin proxy: configuration file '{shown}' is invalid: {why}");
            ExitCode::FAILURE
        }
        Ok(_) if arguments.tests => {
            eprintln!("dunlin proxy: configuration file '{shown}' is valid");
            ExitCode::SUCCESS
        }
        Ok(config) => match serve(&arguments, file, config, &commands) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("dunlin proxy: {why}");
                ExitCode::FAILURE
            }
        },
    }
}

fn log_line(line: &str) {
    log::write(log::Level::Notice, format_args!("{line}"));
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
    process::thread::spawn(name, run)
        .map(drop)
        .map_err(|why| format!("a thread cannot start: {why}"))
}

fn serve(
    arguments: &Arguments,
    file: &Path,
    config: Config,
    commands: &Arc<Commands>,
) -> Result<(), String> {
    // In the background the folder may be another one.
    let file = file.canonicalize().map_err(|why| why.to_string())?;
    if let Some(output) = &arguments.output {
        log::set_logfile(output).map_err(|why| why.to_string())?;
    }
    if arguments.verbosity.is_some_and(|verbosity| verbosity < 3) {
        log::set_level(log::Level::Warning);
    }
    let threads = match arguments.threads.unwrap_or(config.threads) {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads.min(net::MAX_THREADS),
    };
    let options = NetOptions {
        backend: Backend::choose(None)?.backend,
        threads,
        backlog: config.pools.iter().map(|pool| pool.backlog).max().unwrap_or(512),
        ..NetOptions::default()
    };
    let net = Net::new(options).map_err(|why| why.to_string())?;
    let port = arguments.stats_port.unwrap_or(22222);
    let host = arguments.stats_address.clone().unwrap_or_else(|| "127.0.0.1".into());
    let stats = TcpListener::bind((&host[..], port));
    if arguments.in_background {
        daemonize::daemonize().map_err(|why| format!("going to the background: {why}"))?;
    }
    if let Some(path) = &arguments.pid_file {
        std::fs::write(path, format!("{}\n", std::process::id())).map_err(|why| why.to_string())?;
    }
    let common = Common::new(commands, Vec::new(), log_line);
    let woken = net.clone();
    common.set_wake(move || woken.wake_all());
    let service = Arc::new(Service::new(common.clone(), net.clone(), file));
    let reloaded = service.clone();
    let on_signal = || {
        DRAIN_UNTIL.get_or_init(|| Instant::now() + Duration::from_secs(DRAIN_SECONDS));
    };
    signals::install_with_reload(on_signal, move || reloaded.reload())
        .map_err(|why| why.to_string())?;
    let pools = config.pools.len();
    let admin = config.admin.clone();
    service.apply(config)?;
    let hubs: Vec<Hub<Front>> = (0..threads).map(|_| Hub::new(&common)).collect();
    if let Some(config) = admin {
        admin::start(&service, &config, || DRAIN_UNTIL.get().is_some())?;
    }
    match stats {
        Ok(listener) => {
            let service = service.clone();
            spawn("stats", move || report::serve(&service, &listener))?;
        }
        Err(why) => log_line(&format!("statistics: {host}:{port}: {}", os_error(&why))),
    }
    let mut joins = Vec::new();
    for (thread, hub) in hubs.into_iter().enumerate() {
        let driver = Driver::new(hub, || DRAIN_UNTIL.get().copied(), log_line);
        let net = net.clone();
        // A reactor belongs to the thread that makes it.
        let join = process::thread::spawn("proxy", move || {
            Reactor::new(&net, thread, driver)?.run().map(drop)
        });
        joins.push(join.map_err(|why| why.to_string())?);
    }
    log_line(&format!("dunlin proxy: {pools} pools, {threads} threads"));
    for join in joins {
        if let Ok(Err(why)) = join.join() {
            return Err(why.to_string());
        }
    }
    if let Some(path) = &arguments.pid_file {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
