//! Options whose effect is outside the protocol, seen where the host shows it: the kernel's timers
//! of a connection, the system's logger, the processors of a thread.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::patience;
use harness::environment::skipped;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

/// Seconds until the kernel probes the peer of the connection from `local` to `peer`, if it will.
fn seconds_to_probe(local: SocketAddr, peer: SocketAddr) -> Option<f64> {
    let port = |address: SocketAddr| format!(":{:04X}", address.port());
    let mut seconds = None;
    eventually("a timer that probes, or none", || {
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
            "00" => seconds = None,
            "02" => seconds = Some(u64::from_str_radix(ticks, 16).unwrap() as f64 / 100.0),
            _ => return false,
        }
        true
    });
    seconds
}

#[test]
fn tcp_keepalive_is_the_kernels_timer() {
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options { backend, ..Options::arguments(&["--tcp-keepalive", "200"]) };
        let server = Server::start(&program, options).unwrap();
        let mut client = server.client();
        // A connection that was answered, so that it is accepted and all is acknowledged.
        let probe_of_new_connection = || {
            let mut new = server.client();
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
        skipped(format_args!("no mount namespace of its own can be had here: {why}"));
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
        let mut client = server.client();
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
    let mut client = server.client();
    let members: Vec<String> = (0..5000).map(|number| format!("member-{number}")).collect();
    let mut add = vec!["SADD", "big"];
    add.extend(members.iter().map(String::as_str));
    assert_eq!(client.command(&add).unwrap(), Reply::Integer(5000));
    assert_eq!(client.command(&["UNLINK", "big"]).unwrap(), Reply::Integer(1));
}

/// Waits for the threads whose name begins like this to be on these processors, each: a thread has
/// its name first, and its processors a little later.
fn until_on(server: &Server, thread: &str, wanted: &[&str]) {
    let what = format!("{thread} is on {wanted:?}");
    eventually(&what, || processors_of(server, thread) == wanted);
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
        until_on(&server, "reactor-", &[first; 3]);
        // A reactor starts the others, which yet have the whole machine.
        free_something_big(&server);
        until_on(&server, "lazy-free", &[&own]);

        let options = Options::arguments(&["--bio-cpulist", last]);
        let server = Server::start(&program, Options { backend, ..options }).unwrap();
        free_something_big(&server);
        until_on(&server, "lazy-free", &[last]);
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

#[test]
fn as_many_threads_as_the_option_allows() {
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options::arguments(&["--io-threads", "256", "--maxclients", "300"]);
        let server = Server::start(&program, Options { backend, ..options }).unwrap();
        // The last of them may only be getting its name.
        eventually("256 threads", || processors_of(&server, "reactor-").len() == 256);
        // Each has one of them.
        let mut clients: Vec<_> = (0..256).map(|_| server.client()).collect();
        for client in &mut clients {
            assert_eq!(
                client.command(&["INCR", "n"]).unwrap().integer().map(|n| n > 0),
                Some(true)
            );
        }
        assert_eq!(clients[0].command(&["INCR", "n"]).unwrap(), Reply::Integer(257));
        drop(clients);
        assert!(server.stop().unwrap().success());
    }
    let refused = Server::start(&program, Options::arguments(&["--io-threads", "257"]));
    let text = refused.err().expect("it must not start").to_string();
    assert!(text.contains("argument must be between 0 and 256 inclusive"), "{text}");
}

/// What the kernel says of huge pages is what the folder of this test says, in a namespace of its
/// own.
#[test]
fn huge_pages_are_turned_off_where_the_kernel_uses_them_unasked() {
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let folder = std::env::temp_dir().join(format!("dunlin-thp-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("enabled");
    let script = folder.join("with-huge-pages");
    let text = format!("set -e\nmount --bind {} {ENABLED}\nexec \"$@\"\n", file.display());
    fs::write(&script, text).unwrap();
    fs::write(&file, "[always] madvise never\n").unwrap();
    let mut wrapper = vec!["unshare", "--mount"];
    // Root needs no namespace of users to mount in.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        wrapper.push("--map-root-user");
    }
    wrapper.extend(["sh", script.to_str().unwrap()]);
    let possible = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output().unwrap();
    let reports = fs::read_to_string("/proc/self/status").unwrap();
    if !possible.status.success() || !reports.contains("THP_enabled:\t1") {
        skipped("no mount namespace, or no huge pages to turn off, can be had here");
        fs::remove_dir_all(&folder).unwrap();
        return;
    }
    let program = Program::under_test().started_by(&wrapper);
    for (mode, option, expected) in [
        ("[always] madvise never\n", "yes", "0"),
        ("[always] madvise never\n", "no", "1"),
        ("always [madvise] never\n", "yes", "1"),
    ] {
        fs::write(&file, mode).unwrap();
        let server = Server::start(&program, Options::arguments(&["--disable-thp", option]));
        let server = server.unwrap();
        let enabled = server.status("THP_enabled");
        assert_eq!(enabled.as_deref(), Some(expected), "{mode:?} and disable-thp {option}");
        assert!(server.stop().unwrap().success());
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn reactors_ask_the_network_card_before_they_sleep() {
    // Linux 6.9 and later.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let is_known = (numbers.next(), numbers.next()) >= (Some(6), Some(9));
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options::arguments(&["--io-busy-poll-usec", "50", "--io-threads", "2"]);
        let server = Server::start(&program, Options { backend, ..options }).unwrap();
        let mut client = server.client();
        for number in 1..100 {
            assert_eq!(client.command(&["INCR", "n"]).unwrap(), Reply::Integer(number));
        }
        let is_refused = server.log().contains("sleeps without asking the network card");
        assert_eq!(is_refused, !is_known, "{backend:?}, {release}: {}", server.log());
    }
}

#[test]
fn the_unix_socket_is_of_its_group() {
    // A group that the process may give a file to: any, for root, else one of its own.
    let id = Command::new("id").arg("-Gn").output().unwrap();
    let own = String::from_utf8(id.stdout).unwrap();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let group = if is_root { "daemon" } else { own.split_whitespace().last().unwrap() };
    let known = Command::new("getent").args(["group", group]).output().unwrap();
    let known = String::from_utf8(known.stdout).unwrap();
    let number: u32 = known.split(':').nth(2).unwrap().parse().unwrap();
    let folder = std::env::temp_dir().join(format!("dunlin-socket-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("socket");
    let path = socket.to_str().unwrap();
    let program = Program::under_test();
    let arguments = ["--unixsocket", path, "--unixsocketperm", "770", "--unixsocketgroup", group];
    let server = Server::start(&program, Options::arguments(&arguments)).unwrap();
    let found = fs::metadata(&socket).unwrap();
    assert_eq!((found.gid(), found.mode() & 0o777), (number, 0o770));
    assert!(server.stop().unwrap().success());
    // A group that is none stops the start, and leaves what is there alone.
    fs::write(&socket, "not a socket").unwrap();
    let arguments = ["--unixsocket", path, "--unixsocketgroup", "no-such-group"];
    let refused = Server::start(&program, Options::arguments(&arguments));
    let text = refused.err().expect("it must not start").to_string();
    assert!(text.contains("no such group"), "{text}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "not a socket");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn memory_purge_gives_memory_back() {
    let resident = |server: &Server| server.resident_bytes() >> 20;
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options { backend, ..Options::arguments(&["--io-threads", "2"]) };
        let server = Server::start(&program, options).unwrap();
        let mut client = server.client();
        // A block of its own for each value, which a heap keeps for others of the size.
        let value = "x".repeat(300);
        for batch in 0..300 {
            let keys: Vec<String> = (0..1000).map(|n| format!("{batch}:{n}")).collect();
            for key in &keys {
                client.send(&["SET", key, &value]).unwrap();
            }
            for _ in &keys {
                assert_eq!(client.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
            }
        }
        let full = resident(&server);
        assert_eq!(client.command(&["FLUSHALL", "SYNC"]).unwrap(), Reply::Simple(b"OK".to_vec()));
        let before = resident(&server);
        let purged = client.command(&["MEMORY", "PURGE"]).unwrap();
        assert_eq!(purged, Reply::Simple(b"OK".to_vec()));
        // Each thread does its part when it gets round to it.
        let what = format!("two thirds of {full} MB go, of which {before} MB are left");
        eventually(&what, || resident(&server) <= full / 3);
        println!("{full} MB full, {before} MB flushed, {} MB purged", resident(&server));
        assert!(server.stop().unwrap().success());
    }
}

/// The configuration file of a server of Debian's packages, for a server of its own: what is
/// about the machine is left out, and all the rest is as it is.
fn packaged(path: &Path, directory: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let of_the_machine = ["port", "daemonize", "pidfile", "logfile", "dir"];
    let lines = text.lines().filter(|line| {
        let name = line.split_whitespace().next().unwrap_or("");
        !of_the_machine.contains(&name)
    });
    let directives =
        |text: &str| text.lines().filter(|line| line.starts_with(char::is_alphabetic)).count();
    let mut text = lines.collect::<Vec<_>>().join("\n");
    assert!(directives(&text) > 50, "{}", path.display());
    // Whatever the file says of folders that are not there.
    text = text.replace("/etc/", directory);
    text.push('\n');
    text
}

#[test]
fn the_files_of_other_servers_work_as_they_are() {
    let reference = Program::reference().unwrap_or_else(|why| panic!("{why}"));
    let program = Program::under_test();
    for name in ["redis/redis.conf", "valkey/valkey.conf"] {
        let text = packaged(&reference.root().join("etc").join(name), "/nowhere/");
        let options = Options { config: Some(text), ..Options::default() };
        let server = Server::start(&program, options).unwrap_or_else(|why| panic!("{name}: {why}"));
        let mut client = server.client();
        assert_eq!(client.command(&["PING"]).unwrap(), Reply::Simple(b"PONG".to_vec()));
    }
}
