//! The servers that are measured beside Dunlin with many threads, and how each is started with so
//! many of them.

use super::servers::{Lab, Peered, find};

/// Words of a command in which a lab fills in what it knows.
pub const PORT: &str = "{port}";
/// The number of threads.
pub const THREADS: &str = "{threads}";
/// The path of a Unix socket.
pub const SOCKET: &str = "{socket}";
/// A directory of the server's own.
pub const DIRECTORY: &str = "{dir}";

/// A server and the words that start it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What reports call it.
    pub name: String,
    /// The program and its arguments, with places to fill in.
    pub words: Vec<String>,
}

/// A server whose options are known.
struct Known {
    name: &'static str,
    program: &'static str,
    /// The options that say where it listens and works.
    place: &'static [&'static str],
    /// The others.
    arguments: &'static [&'static str],
    /// Whether a report says that it is missing.
    is_wanted: bool,
}

/// Where Redis and those that take its options listen and work.
const LIKE_REDIS: &[&str] =
    &["--port", PORT, "--bind", "127.0.0.1", "--unixsocket", SOCKET, "--dir", DIRECTORY];

/// The options of a server that takes Redis's.
const REDIS: Known = Known {
    name: "redis",
    program: "redis-server",
    place: LIKE_REDIS,
    arguments: &["--save", "", "--io-threads", THREADS],
    is_wanted: false,
};

const KNOWN: [Known; 6] = [
    Known { name: "valkey", program: "valkey-server", is_wanted: true, ..REDIS },
    REDIS,
    Known {
        name: "keydb",
        program: "keydb-server",
        arguments: &["--save", "", "--server-threads", THREADS],
        ..REDIS
    },
    Known {
        name: "pogocache",
        program: "pogocache",
        place: &[],
        arguments: &["-h", "127.0.0.1", "-p", PORT, "-s", SOCKET, "--threads", THREADS],
        is_wanted: true,
    },
    Known {
        name: "garnet",
        program: "GarnetServer",
        place: &[],
        arguments: &[
            "--bind",
            "127.0.0.1",
            "--port",
            PORT,
            "--no-obj",
            "--minthreads",
            THREADS,
            "--maxthreads",
            THREADS,
            "--miniothreads",
            THREADS,
            "--maxiothreads",
            THREADS,
        ],
        is_wanted: true,
    },
    Known {
        name: "dragonfly",
        program: "dragonfly",
        place: LIKE_REDIS,
        arguments: &["--dbfilename", "", "--proactor_threads", THREADS],
        is_wanted: true,
    },
];

/// What is measured, and what is said about what is not.
pub struct Peers {
    /// Dunlin first.
    pub all: Vec<Peer>,
    /// Names of those that are missing.
    pub missing: Vec<&'static str>,
}

/// Returns Dunlin, the reference server, what is installed, and what the arguments name:
/// `NAME=COMMAND`.
pub fn peers(lab: &Lab, named: &[String]) -> Result<Peers, String> {
    let dunlin = [lab.program().to_owned(), "server".into()];
    let mut all = vec![Peer::new("Dunlin", &dunlin, Some(&REDIS))];
    for argument in named {
        all.push(parsed(argument)?);
    }
    let has = |all: &[Peer], name: &str| all.iter().any(|peer| peer.name == name);
    let mut missing = Vec::new();
    let reference = lab.reference_words();
    for known in &KNOWN {
        let words = match reference {
            Some(words) if words.iter().any(|word| word.ends_with(known.program)) => {
                Some(words.to_vec())
            }
            _ => find(known.program).map(|path| vec![path]),
        };
        match words {
            _ if has(&all, known.name) => {}
            Some(words) => all.push(Peer::new(known.name, &words, Some(known))),
            None if known.is_wanted => missing.push(known.name),
            None => {}
        }
    }
    Ok(Peers { all, missing })
}

/// Returns the peer that an argument `NAME=COMMAND` describes. The command of a known server needs
/// its program alone, any other has to say where its port belongs.
fn parsed(argument: &str) -> Result<Peer, String> {
    let (name, command) = argument.split_once('=').unwrap_or_default();
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    if name.is_empty() || words.is_empty() {
        return Err(format!(
            "--peer {argument}: NAME=COMMAND is needed, such as garnet=/opt/garnet/GarnetServer"
        ));
    }
    let is_filled = words.iter().any(|word| word.contains(PORT));
    match KNOWN.iter().find(|known| known.name == name) {
        _ if is_filled => Ok(Peer::new(name, &words, None)),
        Some(known) => Ok(Peer::new(name, &words, Some(known))),
        None => Err(format!(
            "--peer {argument}: the options of '{name}' are not known; write {PORT} and {THREADS} \
             where they belong in its command"
        )),
    }
}

impl Peer {
    /// Returns a server of this name: its command, and behind it the options that are known of it.
    fn new(name: &str, words: &[String], known: Option<&Known>) -> Peer {
        let options = known.into_iter().flat_map(|known| known.place.iter().chain(known.arguments));
        let options = options.map(|word| (*word).to_owned());
        Peer { name: name.into(), words: words.iter().cloned().chain(options).collect() }
    }

    /// Starts it with so many threads on these processors.
    pub fn start(&self, lab: &mut Lab, threads: usize, cpus: &[usize]) -> Result<Peered, String> {
        lab.peer(&self.words[0], cpus, |port, socket, directory| {
            self.command(port, threads, socket, directory)
        })
    }

    /// Returns the command, filled in.
    fn command(&self, port: u16, threads: usize, socket: &str, directory: &str) -> Vec<String> {
        let fill = |word: &String| {
            word.replace(PORT, &port.to_string())
                .replace(THREADS, &threads.to_string())
                .replace(SOCKET, socket)
                .replace(DIRECTORY, directory)
        };
        self.words.iter().map(fill).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_server_needs_its_program_alone() {
        let peer = parsed("pogocache=/opt/pogocache").unwrap();
        let command = peer.command(7, 3, "/tmp/s", "/tmp");
        assert_eq!(command.join(" "), "/opt/pogocache -h 127.0.0.1 -p 7 -s /tmp/s --threads 3");
        let peer = parsed("garnet=dotnet garnet.dll --port={port}").unwrap();
        assert_eq!(peer.command(7, 3, "", "").join(" "), "dotnet garnet.dll --port=7");
        let keydb = parsed("keydb=/opt/keydb-server").unwrap();
        assert_eq!(
            keydb.command(7, 3, "/tmp/s", "/tmp").join(" "),
            "/opt/keydb-server --port 7 --bind 127.0.0.1 --unixsocket /tmp/s --dir /tmp --save  \
             --server-threads 3"
        );
    }

    #[test]
    fn an_unknown_server_says_where_its_port_belongs() {
        let peer = parsed("mine=/bin/mine {port} -t{threads} {dir}/x").unwrap();
        assert_eq!(peer.command(7, 3, "", "/d").join(" "), "/bin/mine 7 -t3 /d/x");
        for (argument, part) in [
            ("mine=/bin/mine", "{port}"),
            ("mine", "NAME=COMMAND"),
            ("=x", "NAME=COMMAND"),
            ("x=", "NAME=COMMAND"),
        ] {
            let error = parsed(argument).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
