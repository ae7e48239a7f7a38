//! Starts and stops the servers that tests talk to.
//!
//! Which program is tested is decided here and nowhere else: the workspace's own `dunlin server`,
//! built when needed, or whatever `DUNLIN_SERVER` names, such as
//! `DUNLIN_SERVER="chroot DIR valkey-server"` to check the tests themselves. The reference that
//! Dunlin is compared with is `DUNLIN_REFERENCE`, or Valkey in the folder that `tests/peers` fills.

use crate::client::{self, Client, patience};
use crate::environment::skipped;
pub use crate::ports::{free_port, free_ports};
use crate::reply::Protocol;
use crate::wait::eventually;
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How the server under test talks to its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// `--io-backend io_uring`
    IoUring,
    /// `--io-backend epoll`
    Epoll,
}

impl Backend {
    /// The value of `--io-backend`.
    pub fn name(self) -> &'static str {
        match self {
            Backend::IoUring => "io_uring",
            Backend::Epoll => "epoll",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A program that can be started as a server.
#[derive(Clone, Debug)]
pub struct Program {
    words: Vec<String>,
    /// Where the program's `/` is, if it runs under `chroot`.
    root: PathBuf,
}

impl Program {
    /// The server under test.
    pub fn under_test() -> Program {
        match std::env::var("DUNLIN_SERVER") {
            Ok(command) if !command.trim().is_empty() => Program::from_command(&command),
            _ => {
                let path = built_binary();
                Program {
                    words: vec![path.to_string_lossy().into_owned(), "server".into()],
                    root: "/".into(),
                }
            }
        }
    }

    /// The server that replies are compared with, or why there is none. Installs it if it can.
    pub fn reference() -> Result<Program, String> {
        static FOUND: OnceLock<Result<Program, String>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                if let Ok(command) = std::env::var("DUNLIN_REFERENCE") {
                    return Ok(Program::from_command(&command));
                }
                let root = peers(&[])?;
                Ok(Program::from_command(&format!("chroot {root} valkey-server")))
            })
            .clone()
    }

    /// The server that replies are compared with. Says that the test is skipped if there is none.
    pub fn reference_or_skip() -> Option<Program> {
        Program::reference()
            .inspect_err(|why| skipped(format_args!("there is no reference server: {why}")))
            .ok()
    }

    /// Redis 8, or why there is none. It is installed beside the reference.
    pub fn redis_8() -> Result<Program, String> {
        peers(&[]).map(|root| Program::from_command(&format!("chroot {root} redis-server")))
    }

    /// Redis 7.0, or why there is none. Installs it if it can.
    pub fn redis_7() -> Result<Program, String> {
        static FOUND: OnceLock<Result<Program, String>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                let root = peers(&["stable"])?;
                Ok(Program::from_command(&format!("chroot {root} redis-server")))
            })
            .clone()
    }

    /// Where the program's `/` is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path of the test's, as the program sees it.
    pub fn inside(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.root) {
            Ok(path) => Path::new("/").join(path),
            Err(_) => path.to_owned(),
        }
    }

    /// The same program, started by another one that gets its command line.
    pub fn under(&self, wrapper: &str) -> Program {
        let words = std::iter::once(wrapper.to_owned()).chain(self.words.clone()).collect();
        Program { words, root: self.root.clone() }
    }

    /// A program from a command line, split at white space.
    pub fn from_command(command: &str) -> Program {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let chroot = words.iter().position(|word| word == "chroot" || word.ends_with("/chroot"));
        let root = match chroot.and_then(|at| words.get(at + 1)) {
            Some(root) => root.into(),
            None => "/".into(),
        };
        Program { words, root }
    }

    /// Another program that is installed beside this one.
    pub fn beside(&self, name: &str) -> Program {
        let mut program = self.clone();
        if let Some(last) = program.words.last_mut() {
            *last = match last.rsplit_once('/') {
                Some((folder, _)) => format!("{folder}/{name}"),
                None => name.to_owned(),
            };
        }
        program
    }

    /// The same program, started by another one that takes a command as its last words.
    pub fn started_by(&self, wrapper: &[&str]) -> Program {
        let wrapper = wrapper.iter().map(|word| (*word).to_owned());
        Program { words: wrapper.chain(self.words.iter().cloned()).collect(), ..self.clone() }
    }

    /// Whether this is Dunlin, with its own options, rather than a server it is compared with.
    pub fn is_dunlin(&self) -> bool {
        self.words.iter().any(|word| word.ends_with("dunlin"))
    }

    /// The I/O back-ends to run a test on: both of Dunlin, the only one of any other server.
    /// `DUNLIN_IO_BACKEND` narrows it down to one.
    pub fn backends(&self) -> Vec<Option<Backend>> {
        if !self.is_dunlin() {
            return vec![None];
        }
        match std::env::var("DUNLIN_IO_BACKEND").as_deref() {
            Ok("io_uring") => vec![Some(Backend::IoUring)],
            Ok("epoll") => vec![Some(Backend::Epoll)],
            _ => vec![Some(Backend::IoUring), Some(Backend::Epoll)],
        }
    }

    /// The last word of the command's program, for messages.
    pub fn name(&self) -> &str {
        let last = self.words.iter().rfind(|word| *word != "server");
        last.and_then(|word| word.rsplit('/').next()).unwrap_or("server")
    }

    /// Another subcommand of the same program, to which arguments can be added.
    pub fn subcommand(&self, name: &str) -> Command {
        let own = self.words.strip_suffix(&["server".to_owned()]).unwrap_or(&self.words);
        let mut command = Command::new(&own[0]);
        command.args(&own[1..]).arg(name);
        command
    }

    /// The command that starts it, to which arguments can be added.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }
}

/// What a server is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Arguments after the ones every test server gets.
    pub arguments: Vec<String>,
    /// The text of a configuration file to start from.
    pub config: Option<String>,
    /// The I/O back-end to force.
    pub backend: Option<Backend>,
}

impl Options {
    /// Only arguments.
    pub fn arguments(arguments: &[impl AsRef<str>]) -> Options {
        Options {
            arguments: arguments.iter().map(|word| word.as_ref().to_owned()).collect(),
            ..Options::default()
        }
    }
}

/// A running server. Dropping it kills it; [`Server::stop`] asks it to go.
pub struct Server {
    program: Program,
    options: Options,
    port: u16,
    /// The server's working directory as the test sees it, removed in the end.
    directory: PathBuf,
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Server {
    /// Starts `program` on a free port of the loopback and waits until it accepts connections.
    /// The error holds the server's log.
    pub fn start(program: &Program, options: Options) -> io::Result<Server> {
        let directory = new_directory(program)?;
        if let Some(config) = &options.config {
            std::fs::write(directory.join("server.conf"), config)?;
        }
        loop {
            let port = free_port()?;
            let (child, log) = spawn(program, &options, &directory, port)?;
            let directory = directory.clone();
            let (program, options) = (program.clone(), options.clone());
            let mut server = Server { program, options, port, directory, child, log };
            match server.wait_until_ready() {
                Ok(()) => return Ok(server),
                // Another process took the port between our look and the server's bind.
                Err(_) if server.log().contains("Address already in use") => {
                    server.directory = PathBuf::new();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The process id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// What the system says of the process under a name in `/proc/PID/status`, if it says that.
    pub fn status(&self, name: &str) -> Option<String> {
        let path = format!("/proc/{}/status", self.process_id());
        let text = std::fs::read_to_string(path).expect("the server runs");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    }

    /// Its resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let kilobytes =
            self.status("VmRSS").and_then(|text| text.strip_suffix(" kB")?.parse().ok());
        kilobytes.map(|kilobytes: u64| kilobytes * 1024).expect("the system says it")
    }

    /// The program it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Its working directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A new connection that speaks `protocol`.
    pub fn connect(&self, protocol: Protocol) -> io::Result<Client> {
        Client::connect_with(self.address(), protocol)
    }

    /// A client that speaks RESP2, in tests to which a refused connection is a failure.
    #[track_caller]
    pub fn client(&self) -> Client {
        self.connect(Protocol::Resp2).unwrap_or_else(|why| panic!("{why}\n{}", self.log()))
    }

    /// A client that is told of this node even where others are told of a database as one server.
    #[track_caller]
    pub fn node_client(&self) -> Client {
        let mut client = self.client();
        client::ok(&mut client, "CLIENT CAPA cluster");
        client
    }

    /// What it has logged so far, of all its runs.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it has logged these words: its output is collected by threads, a line comes a
    /// little later than what the server has done.
    ///
    /// # Panics
    /// It never has.
    #[track_caller]
    pub fn logs(&self, words: &str) {
        eventually(words, || self.log().contains(words));
    }

    /// Waits until it has logged these words behind what its log was `before`.
    ///
    /// # Panics
    /// It never has.
    #[track_caller]
    pub fn logs_after(&self, before: &str, words: &str) {
        eventually(words, || self.log()[before.len()..].contains(words));
    }

    /// What a server that has ended has logged. Its last words may still be in the pipe.
    pub fn log_of_ended(&self) -> String {
        // The threads that collect it hold it until they find the end. A process that the server
        // has started may keep the pipe open.
        let deadline = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&self.log) > 1 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        self.log()
    }

    /// Asks the server to end by SIGTERM and waits for it.
    pub fn stop(mut self) -> io::Result<ExitStatus> {
        self.terminate()
    }

    /// Stops the server and starts it again on the same port, directory and options.
    pub fn restart(&mut self) -> io::Result<()> {
        let status = self.terminate()?;
        if !status.success() {
            return Err(io::Error::other(format!("the server ended with {status}")));
        }
        self.start_again()
    }

    /// Ends the server by SIGKILL, in the middle of whatever it does.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Starts the program under test with an admin port, which is returned too.
    ///
    /// # Panics
    /// It does not start.
    #[track_caller]
    pub fn with_admin_port(arguments: &[&str]) -> (Server, u16) {
        for _ in 0..5 {
            let port = free_port().expect("a port");
            let text = port.to_string();
            let all = [&["--save", "", "--admin-port", &text], arguments].concat();
            match Server::start(&Program::under_test(), Options::arguments(&all)) {
                Ok(server) => return (server, port),
                // Another process took the port between our look and the server's bind.
                Err(error) if error.to_string().contains("Could not open the admin port") => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("no port is free");
    }

    /// Starts a server that has ended, in the same directory with the same options; on the same
    /// port, unless somebody else has taken that meanwhile.
    pub fn start_again(&mut self) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let before = self.log();
            let (child, log) = spawn(&self.program, &self.options, &self.directory, self.port)?;
            self.child = child;
            log.lock().unwrap_or_else(PoisonError::into_inner).insert_str(0, &before);
            self.log = log;
            match self.wait_until_ready() {
                // The kernel may still be taking a killed server's rings and sockets apart.
                Err(why)
                    if why.to_string().ends_with("Failed listening, aborting.\n")
                        && began.elapsed() < patience() =>
                {
                    thread::sleep(Duration::from_millis(20));
                    if began.elapsed() > Duration::from_secs(5) {
                        self.port = free_port()?;
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Starts another program in the place of the server, which has ended: with its directory,
    /// options and port.
    pub fn start_again_by(&mut self, program: &Program) -> io::Result<()> {
        self.program = program.clone();
        self.start_again()
    }

    /// As [`Server::stop`]; the server's files can be looked at then, and it can be started again.
    pub fn terminate(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        signal(self.child.id(), "TERM")?;
        let deadline = Instant::now() + patience();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                let log = self.log();
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!("the server did not end after SIGTERM; its log:\n{log}"),
                ));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        // A process that ends is seen at once. A busy kernel may take ten seconds for its rings.
        let deadline = Instant::now() + 3 * patience();
        loop {
            if let Ok(mut client) = Client::connect(self.address())
                && let Ok(reply) = client.command(&["PING"])
                && !reply.text().is_some_and(|text| text.starts_with(b"LOADING"))
                && self.is_listening()
            {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                let log = self.log_of_ended();
                return Err(io::Error::other(format!("the server ended with {status}:\n{log}")));
            }
            if Instant::now() > deadline {
                let log = self.log();
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!("the server does not accept connections; its log:\n{log}"),
                ));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Server {
    /// Tells a test that fails what it had to say last, and whether it was still there.
    fn tell_of(&mut self) {
        const LINES: usize = 60;
        let state = match self.child.try_wait() {
            Ok(None) => "still runs".to_owned(),
            Ok(Some(status)) => format!("has ended with {status}"),
            Err(error) => format!("cannot be asked: {error}"),
        };
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        eprintln!("the server on port {} {state}; the end of its log:\n{last}", self.port);
    }

    /// Whether it is the one that listens on its port, and not a server of another test that has
    /// drawn the same and was faster.
    fn is_listening(&self) -> bool {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let sockets: Vec<String> = ["net/tcp", "net/tcp6"]
            .iter()
            .filter_map(|table| std::fs::read_to_string(process.join(table)).ok())
            .flat_map(|table| listeners(&table, self.port))
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        let descriptors = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        descriptors
            .filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok())
            .any(|file| sockets.iter().any(|socket| file == Path::new(socket)))
    }
}

/// The inodes of sockets that listen on a port, in a table of the kernel's (proc_pid_net(5)).
fn listeners(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&port) && *fields.get(3)? == LISTEN;
        is_it.then(|| fields.get(9).map(|inode| inode.to_string()))?
    };
    table.lines().filter_map(inode).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            self.tell_of();
        }
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.directory.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Sends a signal by name (`TERM`, `INT`, `KILL` …) to a process. After `STOP` it waits until the
/// process stands still: until the signal has come, a thread may acknowledge something.
///
/// # Errors
/// There is no such process.
pub fn signal(process_id: u32, name: &str) -> io::Result<()> {
    let command = format!("kill -{name} {process_id}");
    let status = Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status()?;
    if !status.success() {
        return Err(io::Error::other("no such process"));
    }
    if name == "STOP" {
        eventually("all its threads have stopped", || is_stopped(process_id));
    }
    Ok(())
}

/// Whether every thread of a process is stopped.
fn is_stopped(process_id: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process_id}/task")) else { return false };
    threads.flatten().all(|thread| {
        let line = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // Behind the name, which is in brackets and may have any characters.
        line.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
    })
}

/// The stock redis-cli, which is installed beside the reference.
///
/// # Errors
/// Why there is none.
pub fn redis_cli() -> Result<Command, String> {
    let mut command = Command::new("chroot");
    command.args([&peers(&[])?, "redis-cli"]);
    Ok(command)
}

/// The folder that `tests/peers` has put servers into, or why it has not.
fn peers(arguments: &[&str]) -> Result<String, String> {
    installed("tests/peers", arguments)
}

/// Runs a script of the repository that installs a program, and returns the path that it prints.
///
/// # Errors
/// It does not run, or what it said.
pub fn installed(script: &str, arguments: &[&str]) -> Result<String, String> {
    let script = repository().join(script);
    let output = Command::new(&script)
        .args(arguments)
        .output()
        .map_err(|error| format!("{} does not run: {error}", script.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The root of the repository: where this program was built, or, if nothing is there any more, the
/// folder that it was started in.
pub fn repository() -> PathBuf {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built_in = crate_root.ancestors().nth(2).unwrap_or(crate_root);
    match std::env::current_dir() {
        Ok(current) if !built_in.join("tests").is_dir() => current,
        _ => built_in.to_owned(),
    }
}

fn spawn(
    program: &Program,
    options: &Options,
    directory: &Path,
    port: u16,
) -> io::Result<(Child, Arc<Mutex<String>>)> {
    let inside = program.inside(directory);
    let mut command = program.command();
    if options.config.is_some() {
        command.arg(inside.join("server.conf"));
    }
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]);
    command.arg("--dir").arg(&inside);
    if let Some(backend) = options.backend {
        command.args(["--io-backend", backend.name()]);
    }
    command.args(&options.arguments);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("{:?}: {error}", program.words.join(" ")))
        })?;
    let log = Arc::new(Mutex::new(String::new()));
    for stream in [
        child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ]
    .into_iter()
    .flatten()
    {
        let log = Arc::clone(&log);
        thread::spawn(move || collect(stream, &log));
    }
    Ok((child, log))
}

/// Copies lines into the log until the stream ends.
pub(crate) fn collect(stream: Box<dyn Read + Send>, log: &Mutex<String>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(read) if read > 0) {
        let text = String::from_utf8_lossy(&line);
        log.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        line.clear();
    }
}

pub(crate) fn new_directory(program: &Program) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let base = if program.root == Path::new("/") {
        std::env::temp_dir()
    } else {
        program.root.join("tmp")
    };
    let directory = base.join(format!("dunlin-test-{}-{count}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The workspace's own server beside the running test, built from what is in the tree now.
fn built_binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let test = std::env::current_exe().expect("a process knows its executable");
            // Tests are in target/PROFILE/deps, programs in target/PROFILE.
            let mut folder = test.parent().expect("an executable is in a folder");
            if folder.ends_with("deps") {
                folder = folder.parent().expect("deps is inside a profile's folder");
            }
            // `tests/suite` has built everything at once. A build of this package alone would
            // choose other features of the dependencies and compile most of them again.
            if std::env::var_os("DUNLIN_BUILT").is_some() {
                return folder.join("dunlin");
            }
            let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            build.args(["build", "--quiet", "--package", "dunlin", "--bin", "dunlin"]);
            // What cargo tells a test about itself is none of the build's business: build scripts
            // that look at it (ring's does) would run again, here and in the next build outside.
            for (name, _) in std::env::vars_os() {
                let name = name.to_string_lossy();
                if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                    build.env_remove(&*name);
                }
            }
            if folder.ends_with("release") {
                build.arg("--release");
            }
            if let Some(target) = folder.parent() {
                build.arg("--target-dir").arg(target);
            }
            let status = build.current_dir(repository()).status();
            assert!(
                status.as_ref().is_ok_and(ExitStatus::success),
                "dunlin does not build: {status:?}"
            );
            folder.join("dunlin")
        })
        .clone()
}
