//! Options whose effect is outside the protocol, seen where the host shows it: the kernel's timers of
//! a connection, the system's logger, the processors of a thread.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::patience;
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Seconds until the kernel probes the peer of the connection from `local` to `peer`, if it will.
fn seconds_to_probe(local: SocketAddr, peer: SocketAddr) -> Option<f64> {
    let port = |address: SocketAddr| format!(":{:04X}", address.port());
    let deadline = Instant::now() + patience();
    loop {
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let row = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|row| row[1].ends_with(&port(local)) && row[2].ends_with(&port(peer)))
            .unwrap_or_else(|| panic!("no connection from {local} to {peer} in\n{table}"));
        // The timer that runs, and hundredths of a second until it ends: 2 is the one that probes,
        // 1 waits for an acknowledgement and hides the other.
        let (timer, ticks) = row[5].split_once(':').unwrap();
        match timer {
            "00" => return None,
            "02" => return Some(u64::from_str_radix(ticks, 16).unwrap() as f64 / 100.0),
            _ => assert!(Instant::now() < deadline, "timer {timer} does not end"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn tcp_keepalive_is_the_kernels_timer() {
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options { backend, ..Options::arguments(&["--tcp-keepalive", "200"]) };
        let server = Server::start(&program, options).unwrap();
        let mut client = server.connect(Protocol::Resp2).unwrap();
        // A connection that was answered, so that it is accepted and all is acknowledged.
        let probe_of_new_connection = || {
            let mut new = server.connect(Protocol::Resp2).unwrap();
            new.command(&["PING"]).unwrap();
            let peer = new.stream().local_addr().unwrap();
            (seconds_to_probe(server.address(), peer), new)
        };
        let (seconds, _first) = probe_of_new_connection();
        assert!(seconds.is_some_and(|s| (150.0..=201.0).contains(&s)), "{seconds:?}");
        let set = |seconds: &str| ["CONFIG", "SET", "tcp-keepalive", seconds].map(str::to_owned);
        assert_eq!(client.command(&set("50")).unwrap(), Reply::Simple(b"OK".to_vec()));
        let (seconds, _second) = probe_of_new_connection();
        assert!(seconds.is_some_and(|s| (20.0..=51.0).contains(&s)), "{seconds:?}");
        assert_eq!(client.command(&set("0")).unwrap(), Reply::Simple(b"OK".to_vec()));
        let (seconds, _third) = probe_of_new_connection();
        assert_eq!(seconds, None, "nobody is probed");
    }
}

/// `/dev/log` of a namespace of its own is a socket of ours, since the machine's own logger, if it
/// has one, is none of a test's business.
#[test]
fn syslog_gets_every_line() {
    let program = Program::under_test();
    let folder = std::env::temp_dir().join(format!("dunlin-syslog-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let socket = UnixDatagram::bind(folder.join("log")).unwrap();
    socket.set_read_timeout(Some(patience())).unwrap();
    let script = folder.join("with-logger");
    // The rest of /dev that a server may want; then the folder takes the place of /dev.
    let text = format!(
        "set -e\n\
         for device in null zero random urandom; do\n\
         \x20 touch {0}/$device\n\
         \x20 mount --bind /dev/$device {0}/$device\n\
         done\n\
         mount --rbind {0} /dev\n\
         exec \"$@\"\n",
        folder.display()
    );
    fs::write(&script, text).unwrap();
    let script = script.to_str().unwrap();
    let mut wrapper = vec!["unshare", "--mount"];
    // Root needs no namespace of users to mount in.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        wrapper.push("--map-root-user");
    }
    wrapper.extend(["sh", script]);
    let possible = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output().unwrap();
    if !possible.status.success() {
        let why = String::from_utf8_lossy(&possible.stderr);
        println!("SKIPPED: no mount namespace of its own can be had here: {why}");
        fs::remove_dir_all(&folder).unwrap();
        return;
    }
    let program = program.started_by(&wrapper);
    for backend in program.backends() {
        let options = Options::arguments(&[
            "--syslog-enabled",
            "yes",
            "--syslog-ident",
            "a-dunlin",
            "--syslog-facility",
            "local3",
        ]);
        let server = Server::start(&program, Options { backend, ..options }).unwrap();
        let until = |wanted: &str| {
            let mut seen = Vec::new();
            loop {
                let mut line = [0; 4096];
                let length = socket.recv(&mut line).unwrap_or_else(|error| {
                    panic!("{error} instead of {wanted:?}, after {seen:?}");
                });
                let line = String::from_utf8_lossy(&line[..length]).into_owned();
                if line.contains(wanted) {
                    return line;
                }
                seen.push(line);
            }
        };
        // Facility 19 (local3), severity 5 (notice) and 4 (warning).
        let ready = until("Ready to accept connections");
        assert!(ready.starts_with("<157>"), "{ready}");
        assert!(ready.contains(&format!(" a-dunlin[{}]: ", server.process_id())), "{ready}");
        let mut client = server.connect(Protocol::Resp2).unwrap();
        // Nothing in a message is a format.
        client.command(&["DEBUG", "LOG", "%s%n 100%"]).unwrap();
        let line = until("100%");
        assert!(line.contains("%s%n 100%"), "{line}");
        client.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let warning = until("the new maxmemory value set via CONFIG SET");
        assert!(warning.starts_with("<156>"), "{warning}");
        assert!(server.stop().unwrap().success());
        until("bye bye");
    }
    fs::remove_dir_all(&folder).unwrap();
}

fn processors(folder: &Path) -> String {
    let status = fs::read_to_string(folder.join("status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

/// The processors of each thread whose name begins like this.
fn processors_of(server: &Server, thread: &str) -> Vec<String> {
    fs::read_dir(format!("/proc/{}/task", server.process_id()))
        .unwrap()
        .map(|task| task.unwrap().path())
        .filter(|task| fs::read_to_string(task.join("comm")).unwrap().starts_with(thread))
        .map(|task| processors(&task))
        .collect()
}

/// Has the server free a big value, which starts the thread for it.
fn free_something_big(server: &Server) {
    let mut client = server.connect(Protocol::Resp2).unwrap();
    let members: Vec<String> = (0..5000).map(|number| format!("member-{number}")).collect();
    let mut add = vec!["SADD", "big"];
    add.extend(members.iter().map(String::as_str));
    assert_eq!(client.command(&add).unwrap(), Reply::Integer(5000));
    assert_eq!(client.command(&["UNLINK", "big"]).unwrap(), Reply::Integer(1));
    let deadline = Instant::now() + patience();
    while processors_of(server, "lazy-free").is_empty() {
        assert!(Instant::now() < deadline, "no thread came to free a big value");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn threads_are_on_the_processors_of_their_lists() {
    let own = processors(Path::new("/proc/self"));
    let first = own.split([',', '-']).next().unwrap();
    let last = own.split([',', '-']).next_back().unwrap();
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options::arguments(&["--io-threads", "3", "--server-cpulist", first]);
        let server = Server::start(&program, Options { backend, ..options }).unwrap();
        assert_eq!(processors_of(&server, "reactor-"), [first; 3]);
        // A reactor starts the others, which yet have the whole machine.
        free_something_big(&server);
        assert_eq!(processors_of(&server, "lazy-free"), [own.as_str()]);

        let options = Options::arguments(&["--bio-cpulist", last]);
        let server = Server::start(&program, Options { backend, ..options }).unwrap();
        free_something_big(&server);
        assert_eq!(processors_of(&server, "lazy-free"), [last]);
        assert!(processors_of(&server, "reactor-").iter().all(|list| *list == own));
    }
}

#[test]
fn a_list_that_is_none_stops_the_start() {
    let program = Program::under_test();
    for (option, list) in [("server-cpulist", "0-x"), ("bio-cpulist", "3-1")] {
        let refused = Server::start(&program, Options::arguments(&[&format!("--{option}"), list]));
        let text = refused.err().expect("it must not start").to_string();
        assert!(text.contains(option), "{text}");
    }
}
