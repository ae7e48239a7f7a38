//! `dunlin proxy`: arguments, threads and what they are given.

use crate::config::{self, Config};
use crate::driver::Driver;
use crate::policy::Front;
use crate::reload::Service;
use crate::{admin, report};
use clap::{CommandFactory, Parser};
use forward::hub::{Commands, Common, Hub};
use net::{Admission, Backend, Net, NetOptions, Reactor};
use process::{daemonize, facts, log, open_files, os_error, signals};
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The status for arguments that make no sense, as in most Unix programs.
const MISUSE: u8 = 2;

/// How long clients have when the proxy ends.
const DRAIN_SECONDS: u64 = 10;

/// Descriptors for which the kernel's table is made at the start, if so many files may be opened:
/// nothing says how many clients there will be. The table takes half a megabyte.
const LARGEST_TABLE: u64 = 1 << 16;

/// When the proxy has to have ended, once a signal has asked for it.
static DRAIN_UNTIL: OnceLock<Instant> = OnceLock::new();

/// One address for several servers, or for a cluster; in the place of Twemproxy
#[derive(Debug, Parser)]
#[command(
    name = "dunlin proxy",
    version = facts::VERSION,
    after_help = "The guide: docs/proxy.md",
    args_override_self = true
)]
struct Arguments {
    /// nutcracker.yml as Twemproxy reads it, or, if its name ends in .toml, the format of
    /// docs/proxy.md
    #[arg(short, long = "conf-file", value_name = "FILE")]
    conf_file: PathBuf,
    /// Say whether the file is valid, and exit
    #[arg(short, long)]
    test_conf: bool,
    /// Run in the background
    #[arg(short, long)]
    daemonize: bool,
    /// Write the log there
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How much is logged, from 0 to 11
    #[arg(short, long, value_name = "N")]
    verbose: Option<u32>,
    /// Write the process's number there
    #[arg(short, long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Answer Twemproxy's statistics at this port
    #[arg(short, long, value_name = "N", default_value_t = 22222)]
    stats_port: u16,
    /// And at this address; Twemproxy's default is 0.0.0.0
    #[arg(short = 'a', long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    stats_addr: String,
    /// Accepted for Twemproxy's sake; figures are always current
    #[arg(short = 'i', long, value_name = "N")]
    stats_interval: Option<u32>,
    /// Accepted for Twemproxy's sake
    #[arg(short, long, value_name = "N")]
    mbuf_size: Option<u32>,
    /// Threads that serve clients; one a processor unless the file says otherwise
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Returns the command line of `dunlin proxy`.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs `dunlin proxy` with its own arguments.
pub fn run(args: Vec<OsString>, commands: fn() -> Arc<Commands>) -> ExitCode {
    let program = OsString::from("dunlin proxy");
    let arguments = match Arguments::try_parse_from([program].into_iter().chain(args)) {
        Ok(arguments) => arguments,
        Err(why) => {
            // A reader that has gone away is no failure.
            let _ = why.print();
            return ExitCode::from(if why.use_stderr() { MISUSE } else { 0 });
        }
    };
    let file = &arguments.conf_file;
    let commands = commands();
    let config = config::read(file, &commands);
    let shown = file.display();
    match config {
        Err(why) => {
            eprintln!("dunlin proxy: configuration file '{shown}' is invalid: {why}");
            ExitCode::FAILURE
        }
        Ok(_) if arguments.test_conf => {
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
    if arguments.verbose.is_some_and(|verbosity| verbosity < 3) {
        log::set_level(log::Level::Warning);
    }
    let threads = match arguments.threads.unwrap_or(config.threads) {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads.min(net::MAX_THREADS),
    };
    let files = open_files::limit()
        .map_err(|why| format!("the limit of open files: {}", os_error(&why)))?;
    let max_open =
        usize::try_from(files.saturating_sub(open_files::RESERVED)).unwrap_or(usize::MAX);
    let options = NetOptions {
        backend: Backend::choose(None)?.backend,
        threads,
        admission: Admission { max_open, ..Admission::default() },
        backlog: config.pools.iter().map(|pool| pool.backlog).max().unwrap_or(512),
        ..NetOptions::default()
    };
    let net = Net::new(options).map_err(|why| why.to_string())?;
    let port = arguments.stats_port;
    let host = arguments.stats_addr.clone();
    let stats = TcpListener::bind((&host[..], port));
    if arguments.daemonize {
        daemonize::daemonize().map_err(|why| format!("going to the background: {why}"))?;
    }
    open_files::prepare_table(files.min(LARGEST_TABLE));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a command line, and returns what it says.
    fn read(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(["dunlin proxy"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn every_spelling_of_twemproxy_is_understood() {
        for line in [
            "-c f.yml -t -d -o log -v 5 -p pid -s 7 -a ::1 -i 30000 -m 16384 --threads 3",
            "--conf-file f.yml --test-conf --daemonize --output log --verbose 5 --pid-file pid \
             --stats-port 7 --stats-addr ::1 --stats-interval 30000 --mbuf-size 16384 --threads 3",
            "--conf-file=f.yml -td --output=log --verbose=5 --pid-file=pid --stats-port=7 \
             --stats-addr=::1 --stats-interval=30000 --mbuf-size=16384 --threads=3",
            "-c other -c f.yml -t -d -o log -v 1 -v 5 -p pid -s 8 -s 7 -a ::1 --threads 3",
        ] {
            let read = read(line).expect(line);
            assert_eq!(read.conf_file, Path::new("f.yml"), "{line}");
            assert!(read.test_conf && read.daemonize, "{line}");
            assert_eq!(read.output.as_deref(), Some(Path::new("log")), "{line}");
            assert_eq!(read.pid_file.as_deref(), Some(Path::new("pid")), "{line}");
            assert_eq!((read.verbose, read.threads), (Some(5), Some(3)), "{line}");
            assert_eq!((read.stats_port, &read.stats_addr[..]), (7, "::1"), "{line}");
        }
        let plain = read("-c f").expect("a file is enough");
        assert_eq!((plain.stats_port, &plain.stats_addr[..]), (22222, "127.0.0.1"));
        assert!(!plain.test_conf && !plain.daemonize && plain.verbose.is_none());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, part) in [
            ("", "--conf-file <FILE>"),
            ("-c", "a value is required"),
            ("-c f -s port", "invalid value 'port'"),
            ("-c f -s 70000", "invalid value '70000'"),
            ("-c f -v much", "invalid value 'much'"),
            ("-c f --nosuch", "unexpected argument '--nosuch'"),
            ("-c f word", "unexpected argument 'word'"),
        ] {
            let why = read(line).expect_err(line);
            assert!(why.use_stderr() && why.to_string().contains(part), "{line}: {why}");
        }
        for line in ["-h", "--help", "-c f --help"] {
            assert!(!read(line).expect_err(line).use_stderr(), "{line}");
        }
    }
}
