//! The servers an experiment starts, and how they end: with it, whatever happens.

use crate::generator::os;
use crate::measure::owners::owners;
use crate::options::{Address, Target};
use resp::Value;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a lab's directory is called; the number of the process follows.
const DIRECTORY: &str = "dunlin-experiment-";

/// What the Unix socket of a peer is called in its directory.
const SOCKET: &str = "socket";

/// The program that runs another under a root of its own.
const CHROOT: &str = "chroot";

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub port: u16,
}

/// A server that was started with a Unix socket beside its port.
pub struct Peered {
    pub server: Server,
    /// The socket, if the server has made it.
    pub socket: Option<PathBuf>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its data is worthless, and an error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where an experiment's servers run, and which programs there are.
pub struct Lab {
    directory: PathBuf,
    dunlin: Vec<String>,
    reference: Option<Vec<String>>,
    /// The lab's directory for a reference server that lives under another root, which is the
    /// first.
    elsewhere: Option<(PathBuf, PathBuf)>,
    next_port: u16,
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Servers have ended by now; what cannot be removed stays in the directory.
        let _ = fs::remove_dir_all(&self.directory);
        if let Some((_, directory)) = &self.elsewhere {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

impl Lab {
    /// A lab in a directory of its own.
    pub fn new(
        parent: Option<&Path>,
        first_port: u16,
        reference: Option<&str>,
    ) -> Result<Lab, String> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        remove_left_behind(&parent);
        let directory = parent.join(format!("{DIRECTORY}{}", std::process::id()));
        fs::create_dir_all(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let program =
            std::env::current_exe().map_err(|error| format!("where is dunlin? {error}"))?;
        let reference: Option<Vec<String>> = match reference {
            Some(command) => Some(command.split_whitespace().map(str::to_owned).collect()),
            None => ["valkey-server", "redis-server"]
                .into_iter()
                .find_map(|name| find(name).map(|path| vec![path])),
        };
        Ok(Lab {
            directory,
            dunlin: vec![program.to_string_lossy().into_owned(), "server".into()],
            elsewhere: reference.as_deref().and_then(elsewhere).transpose()?,
            reference,
            next_port: first_port,
        })
    }

    /// Where servers have their files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// This program.
    pub fn program(&self) -> &str {
        &self.dunlin[0]
    }

    /// The name of the server that Dunlin is compared with, if there is one.
    pub fn reference_name(&self) -> Option<&str> {
        let last = self.reference.as_ref()?.iter().rfind(|word| word.contains("server"))?;
        last.rsplit('/').next()
    }

    /// The command that starts the reference server, if there is one.
    pub fn reference_words(&self) -> Option<&[String]> {
        self.reference.as_deref()
    }

    /// Why there is no reference server.
    pub fn no_reference() -> String {
        "not measured: neither valkey-server nor redis-server is installed; apt-get install valkey-server".into()
    }

    /// Starts Dunlin with some arguments.
    pub fn dunlin(&mut self, arguments: &[&str], core: Option<usize>) -> Result<Server, String> {
        let words = self.dunlin.clone();
        self.store(&words, arguments, core)
    }

    /// Starts the reference server; none if there is no such program.
    pub fn reference(
        &mut self,
        arguments: &[&str],
        core: Option<usize>,
    ) -> Result<Option<Server>, String> {
        match self.reference.clone() {
            Some(words) => self.store(&words, arguments, core).map(Some),
            None => Ok(None),
        }
    }

    /// Starts a server on these processors, with a directory of its own. `command` makes its words
    /// of its port, the path of a Unix socket and the directory, both as the server sees them.
    pub fn peer(
        &mut self,
        program: &str,
        cpus: &[usize],
        command: impl Fn(u16, &str, &str) -> Vec<String>,
    ) -> Result<Peered, String> {
        let mut socket = PathBuf::new();
        let server = self.start_on_some_port(cpus, true, |lab, port| {
            let (directory, inside) = lab.folders(program, port)?;
            socket = directory.join(SOCKET);
            let path = inside.join(SOCKET);
            let words = command(port, &path.to_string_lossy(), &inside.to_string_lossy());
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            Ok(command)
        })?;
        Ok(Peered { server, socket: socket.exists().then_some(socket) })
    }

    /// The directory of one of the servers, and the same as the server sees it.
    fn folders(&self, program: &str, port: u16) -> Result<(PathBuf, PathBuf), String> {
        match &self.elsewhere {
            Some((root, elsewhere)) if program == CHROOT => {
                let directory = own_directory(elsewhere, port)?;
                let inside = directory.strip_prefix(root).map(|inside| Path::new("/").join(inside));
                let inside = inside.unwrap_or_else(|_| directory.clone());
                Ok((directory, inside))
            }
            _ => {
                own_directory(&self.directory, port).map(|directory| (directory.clone(), directory))
            }
        }
    }

    fn store(
        &mut self,
        words: &[String],
        arguments: &[&str],
        core: Option<usize>,
    ) -> Result<Server, String> {
        self.start_on_some_port(core.as_slice(), true, |lab, port| {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
            command.arg("--dir").arg(lab.folders(&words[0], port)?.1);
            command.args(arguments);
            Ok(command)
        })
    }

    /// Starts HAProxy in front of some ports; none if it is not installed.
    pub fn haproxy(&mut self, behind: &[u16]) -> Result<Option<Server>, String> {
        let Some(program) = find("haproxy") else { return Ok(None) };
        let start = self.start_on_some_port(&[], true, |lab, port| {
            let mut text = format!(
                "global\n  maxconn 4000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  \
                 timeout server 1h\nlisten store\n  bind 127.0.0.1:{port}\n  balance roundrobin\n"
            );
            for (index, port) in behind.iter().enumerate() {
                text += &format!("  server s{index} 127.0.0.1:{port}\n");
            }
            let file = lab.write(&format!("haproxy-{port}.cfg"), &text)?;
            let mut command = Command::new(&program);
            command.arg("-db").arg("-f").arg(file);
            Ok(command)
        });
        start.map(Some)
    }

    /// Starts Twemproxy over some shards; none if it is not installed.
    pub fn twemproxy(&mut self, shards: &[u16]) -> Result<Option<Server>, String> {
        let Some(program) = find("nutcracker") else { return Ok(None) };
        self.shards_behind(&[program], shards).map(Some)
    }

    /// Starts `dunlin proxy` over some shards, with Twemproxy's configuration.
    pub fn proxy(&mut self, shards: &[u16]) -> Result<Server, String> {
        let words = [self.dunlin[0].clone(), "proxy".to_owned()];
        self.shards_behind(&words, shards)
    }

    /// Starts a program that reads Twemproxy's configuration.
    fn shards_behind(&mut self, words: &[String], shards: &[u16]) -> Result<Server, String> {
        self.start_on_some_port(&[], false, |lab, port| {
            let stats = lab.free_port();
            let mut text = format!(
                "store:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n  redis: true\n  \
                 preconnect: true\n  servers:\n"
            );
            for port in shards {
                text += &format!("   - 127.0.0.1:{port}:1\n");
            }
            let file = lab.write(&format!("nutcracker-{port}.yml"), &text)?;
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).arg("-c").arg(file);
            command.args(["-s", &stats.to_string(), "-m", "16384"]);
            Ok(command)
        })
    }

    /// A port that is free.
    pub fn free_port(&mut self) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = self.next_port.checked_add(1).unwrap_or(1024);
            if is_free(port) {
                return port;
            }
        }
    }

    /// A port that is free together with the one behind it, which etcd takes for its peers.
    pub fn free_port_with_next(&mut self) -> u16 {
        let mut port = self.free_port();
        loop {
            let next = self.free_port();
            if port.checked_add(1) == Some(next) {
                return port;
            }
            port = next;
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.directory.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Starts what `command` makes of a port that is free; on another one if a different program
    /// was quicker to take that.
    fn start_on_some_port(
        &mut self,
        cpus: &[usize],
        pings: bool,
        mut command: impl FnMut(&mut Lab, u16) -> Result<Command, String>,
    ) -> Result<Server, String> {
        let mut attempts = 5;
        loop {
            let port = self.free_port();
            let made = command(self, port)?;
            let started = self.start(made, port, cpus, pings);
            attempts -= 1;
            if started.is_ok() || attempts == 0 || is_free(port) {
                return started;
            }
        }
    }

    fn start(
        &self,
        mut command: Command,
        port: u16,
        cpus: &[usize],
        pings: bool,
    ) -> Result<Server, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = self.directory.join(format!("{port}.log"));
        let file = |path: &Path| -> io::Result<Stdio> {
            Ok(File::options().create(true).append(true).open(path)?.into())
        };
        let output = file(&log).and_then(|out| Ok((out, file(&log)?)));
        let (out, err) = output.map_err(|error| format!("{}: {error}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err).current_dir(&self.directory);
        os::tie(&mut command, cpus);
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let mut server = Server { child, port };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answers = target(port).connect().and_then(|mut client| {
                // Twemproxy answers PING only in later versions; a GET passes through to a shard.
                client.ask(if pings { &["PING"][..] } else { &["GET", "ready"] })
            });
            match answers {
                Ok(Value::Simple(_) | Value::Bulk(_) | Value::Null)
                    if owns(server.child.id(), port) =>
                {
                    return Ok(server);
                }
                _ if os::interrupted() => return Err("interrupted".into()),
                _ if Instant::now() > deadline => {}
                _ if matches!(server.child.try_wait(), Ok(Some(_))) => {}
                _ => {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                }
            }
            let said = fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(3).collect();
            return Err(format!("{name} did not start on port {port}: {}", last.join(" | ")));
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Whether it is this process that listens there, as far as that can be told.
fn owns(pid: u32, port: u16) -> bool {
    let owners = owners(&target(port).address);
    owners.is_empty() || owners.contains(&pid)
}

/// The directory of one of a lab's servers.
fn own_directory(lab: &Path, port: u16) -> Result<PathBuf, String> {
    let directory = lab.join(port.to_string());
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(directory)
}

/// Where a command that changes the root keeps its files: the new root, and the lab's directory in
/// it.
fn elsewhere(command: &[String]) -> Option<Result<(PathBuf, PathBuf), String>> {
    let [program, root, ..] = command else { return None };
    (program == CHROOT).then(|| {
        let root = PathBuf::from(root);
        let parent = root.join("tmp");
        remove_left_behind(&parent);
        let directory = parent.join(format!("{DIRECTORY}{}", std::process::id()));
        match fs::create_dir_all(&directory) {
            Ok(()) => Ok((root, directory)),
            Err(error) => Err(format!("{}: {error}", directory.display())),
        }
    })
}

/// Removes the directories of labs that were killed before they could. Their servers are gone: they
/// end with their lab, however it ends. What cannot be removed belongs to others.
fn remove_left_behind(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(DIRECTORY)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A local server.
pub fn target(port: u16) -> Target {
    Target::plain(Address::tcp("127.0.0.1", port))
}

/// A program on the path.
pub fn find(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps proxies where only root looks.
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .map(|path| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    /// Answers every request on a port as a server does.
    fn answer_on(port: u16) {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                while client.read(&mut [0; 512]).is_ok_and(|bytes| bytes > 0) {
                    client.write_all(b"+PONG\r\n").expect("it is sent");
                }
            }
        });
    }

    #[test]
    fn whoever_else_listens_on_a_port_is_not_the_server() {
        let mut lab = Lab::new(None, 20_000, None).expect("a lab");
        let taken = lab.free_port();
        answer_on(taken);
        let started = lab.start(Command::new("false"), taken, &[], true);
        let error = started.err().expect("somebody else answers");
        assert!(error.contains("did not start on port"), "{error}");
        // Somebody is quicker twice; then it is the server's own fault.
        let mut tries = 0;
        let started = lab.start_on_some_port(&[], true, |_, port| {
            tries += 1;
            if tries < 3 {
                answer_on(port);
            }
            Ok(Command::new("false"))
        });
        assert!(started.is_err() && tries == 3, "{tries}");
    }
}
