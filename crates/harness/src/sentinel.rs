//! Stock sentinels in tests: three processes that watch one primary under the name [`NAME`].

use crate::client::{Client, ask, ok, patience};
use crate::network::Network;
use crate::reply::Reply;
use crate::server::{Program, Server, collect, free_port, new_directory, signal};
use crate::wait::{eventually, eventually_within};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io, thread};

/// The name under which the primary is known.
pub const NAME: &str = "mine";

/// How many of three have to agree that a primary is down.
const QUORUM: usize = 2;

/// After so much silence they take a primary for dead. On a busy machine one that lives may be
/// silent for some seconds, and be replaced in the middle of a test that wants to keep it.
const CALM: Duration = Duration::from_secs(60);
/// The same while a test waits for another primary.
const ALERT: Duration = Duration::from_secs(1);

/// One process.
struct Sentinel {
    program: Program,
    address: SocketAddr,
    directory: PathBuf,
    child: Child,
    log: Arc<Mutex<String>>,
}

/// Three sentinels. Dropping them kills them.
pub struct Sentinels {
    members: Vec<Sentinel>,
    /// What they want of clients.
    password: Option<String>,
}

impl Sentinels {
    /// Starts three that watch a primary on this port of the loopback. They are patient with it
    /// ([`Sentinels::give_up_after`]). `more`: lines for their files; `NAME` stands for the
    /// primary's name there, `FREE_PORT` for a port of its own.
    ///
    /// # Errors
    /// One does not start.
    pub fn start(program: &Program, primary: u16, more: &[&str]) -> io::Result<Sentinels> {
        Sentinels::watch(program, "127.0.0.1", primary, more)
    }

    /// The same for a primary of this host, which may be a name.
    ///
    /// # Errors
    /// As [`Sentinels::start`].
    pub fn watch(
        program: &Program,
        host: &str,
        primary: u16,
        more: &[&str],
    ) -> io::Result<Sentinels> {
        let start = |_| start_one(program, Ipv4Addr::LOCALHOST, (host, primary), more);
        Sentinels::of((0..3).map(start).collect::<io::Result<_>>()?, more)
    }

    /// The same on machines of their own.
    ///
    /// # Errors
    /// One does not start.
    pub fn start_on(
        program: &Program,
        network: &Network,
        machines: Range<usize>,
        primary: SocketAddr,
        more: &[&str],
    ) -> io::Result<Sentinels> {
        let host = primary.ip().to_string();
        let start = |at: usize| {
            let own = network.address(at);
            network.at(at, || start_one(program, own, (&host, primary.port()), more))
        };
        Sentinels::of(machines.map(start).collect::<io::Result<_>>()?, more)
    }

    /// Waits until these listen, which were started with such lines.
    fn of(members: Vec<Sentinel>, lines: &[&str]) -> io::Result<Sentinels> {
        let password = lines.iter().find_map(|line| line.strip_prefix("requirepass "));
        let sentinels = Sentinels { members, password: password.map(str::to_owned) };
        sentinels.until_they_listen();
        Ok(sentinels)
    }

    fn until_they_listen(&self) {
        for number in 0..self.members.len() {
            eventually("the sentinel listens", || self.connect(number).is_ok());
        }
    }

    /// Kills one of them.
    ///
    /// # Errors
    /// It cannot be killed.
    pub fn kill(&mut self, number: usize) -> io::Result<()> {
        self.members[number].child.kill()?;
        self.members[number].child.wait().map(drop)
    }

    /// Starts one that was killed, with the file that it has rewritten.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_again(&mut self, number: usize) -> io::Result<()> {
        let one = &mut self.members[number];
        one.child = spawn(&one.program, &one.directory, &one.log)?;
        eventually("the sentinel listens", || self.connect(number).is_ok());
        Ok(())
    }

    /// Where one of them listens.
    pub fn address(&self, number: usize) -> SocketAddr {
        self.members[number].address
    }

    fn connect(&self, number: usize) -> io::Result<Client> {
        let mut client = Client::connect(self.address(number))?;
        if let Some(password) = &self.password {
            client.command(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// The port of one of them.
    pub fn port(&self, number: usize) -> u16 {
        self.address(number).port()
    }

    /// Asks one of them.
    #[track_caller]
    pub fn ask(&self, number: usize, request: &[&str]) -> Reply {
        let mut client = self.connect(number).expect("the sentinel listens");
        ask(&mut client, request)
    }

    /// The port of the primary, as one of them sees it.
    #[track_caller]
    pub fn primary(&self, number: usize) -> u16 {
        let [_, port] = self.address_of_primary(number);
        port.parse().unwrap_or_else(|_| panic!("no port: {port}"))
    }

    /// The host of the primary, as one of them names it.
    #[track_caller]
    pub fn host(&self, number: usize) -> String {
        let [host, _] = self.address_of_primary(number);
        host
    }

    #[track_caller]
    fn address_of_primary(&self, number: usize) -> [String; 2] {
        let reply = self.ask(number, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        let words = reply.elements().unwrap_or_else(|| panic!("no address: {reply:?}"));
        [words[0].shown(), words[1].shown()]
    }

    /// A field of what one of them says of the primary.
    #[track_caller]
    pub fn field(&self, number: usize, name: &str) -> String {
        let reply = self.ask(number, &["SENTINEL", "MASTER", NAME]);
        find(reply.elements().unwrap_or_default(), name)
    }

    /// A field of all replicas that one of them knows.
    #[track_caller]
    pub fn of_replicas(&self, number: usize, name: &str) -> Vec<String> {
        let reply = self.ask(number, &["SENTINEL", "REPLICAS", NAME]);
        let replicas = reply.elements().unwrap_or_default();
        replicas.iter().map(|one| find(one.elements().unwrap_or_default(), name)).collect()
    }

    /// Waits until each knows the two others, and so many replicas that it can talk to.
    #[track_caller]
    pub fn until_they_know(&self, replicas: usize) {
        for number in 0..3 {
            eventually("the sentinels know each other", || {
                self.field(number, "num-other-sentinels") == "2"
            });
            eventually("the sentinel knows the replicas", || {
                let links = self.of_replicas(number, "master-link-status");
                links.len() == replicas && links.iter().all(|link| link == "ok")
            });
            eventually("it sees no trouble", || self.field(number, "flags") == "master");
        }
    }

    /// Has all of them take a primary for dead after so much silence.
    #[track_caller]
    pub fn give_up_after(&self, silence: Duration) {
        let ms = silence.as_millis().to_string();
        for number in 0..self.members.len() {
            let mut client = self.connect(number).expect("the sentinel listens");
            ok(&mut client, &["SENTINEL", "SET", NAME, "down-after-milliseconds", &ms]);
        }
    }

    /// Waits until all of them name another primary than this one, which has ended, hangs or hands
    /// its role over, and returns the new one's port. Several of their attempts may fail on a busy
    /// machine, with twenty seconds between them.
    #[track_caller]
    pub fn until_primary_is_not(&self, port: u16) -> u16 {
        self.give_up_after(ALERT);
        for number in 0..3 {
            let what = "there is another primary";
            eventually_within(18 * patience(), what, || self.primary(number) != port);
        }
        self.give_up_after(CALM);
        self.primary(0)
    }

    /// Waits until none of them is in the middle of a fail-over.
    #[track_caller]
    pub fn until_quiet(&self) {
        for number in 0..3 {
            eventually("the fail-over has ended", || self.field(number, "flags") == "master");
        }
    }

    /// What they have logged.
    pub fn log(&self) -> String {
        let text = |one: &Sentinel| {
            let log = one.log.lock().unwrap_or_else(PoisonError::into_inner);
            format!("the sentinel at {}:\n{log}\n", one.address)
        };
        self.members.iter().map(text).collect()
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
        for sentinel in &mut self.members {
            // Errors mean that it has ended already.
            let _ = sentinel.child.kill();
            let _ = sentinel.child.wait();
            let _ = fs::remove_dir_all(&sentinel.directory);
        }
    }
}

/// Stops a server's process, as a machine that hangs does, or lets it go on.
///
/// # Errors
/// The process is gone.
pub fn hang(server: &Server, hangs: bool) -> io::Result<()> {
    signal(server.process_id(), if hangs { "STOP" } else { "CONT" })
}

/// The value behind a name.
fn find(words: &[Reply], name: &str) -> String {
    let (pairs, _) = words.as_chunks::<2>();
    let found = pairs.iter().find(|[key, _]| key.shown() == name);
    found.map_or_else(String::new, |[_, value]| value.shown())
}

fn start_one(
    program: &Program,
    own: Ipv4Addr,
    primary: (&str, u16),
    more: &[&str],
) -> io::Result<Sentinel> {
    let (host, primary) = primary;
    let directory = new_directory(program)?;
    let port = free_port()?;
    let inside = program.inside(&directory);
    let mut lines =
        vec![format!("port {port}"), format!("bind {own}"), format!("dir {}", inside.display())];
    if own != Ipv4Addr::LOCALHOST {
        lines.push("protected-mode no".to_owned());
    }
    // What they say of hosts has to stand before the first host.
    for line in more.iter().filter(|line| line.contains("-hostnames")) {
        lines.push((*line).to_owned());
    }
    lines.extend([
        format!("sentinel monitor {NAME} {host} {primary} {QUORUM}"),
        format!("sentinel down-after-milliseconds {NAME} {}", CALM.as_millis()),
        format!("sentinel failover-timeout {NAME} 10000"),
    ]);
    let own_port = free_port()?.to_string();
    let others = more.iter().filter(|line| !line.contains("-hostnames"));
    lines.extend(others.map(|line| line.replace("NAME", NAME).replace("FREE_PORT", &own_port)));
    fs::write(directory.join("sentinel.conf"), lines.join("\n") + "\n")?;
    let log = Arc::new(Mutex::new(String::new()));
    let child = spawn(program, &directory, &log)?;
    Ok(Sentinel { program: program.clone(), address: (own, port).into(), directory, child, log })
}

/// Starts the process of a sentinel whose file is in this folder.
fn spawn(program: &Program, directory: &Path, log: &Arc<Mutex<String>>) -> io::Result<Child> {
    let mut child = program
        .command()
        .arg(program.inside(directory).join("sentinel.conf"))
        .arg("--sentinel")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(stream) = child.stdout.take() {
        let log = Arc::clone(log);
        thread::spawn(move || collect(Box::new(stream), &log));
    }
    Ok(child)
}
