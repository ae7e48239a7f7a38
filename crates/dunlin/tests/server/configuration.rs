//! Where the configuration comes from, and what a wrong one does.

use crate::support::{Folder, Running, ask, client, command, port, refused};
use harness::environment::skipped;
use harness::tls::Authority;
use harness::wait::eventually;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// What is printed about a wrong line.
fn report(place: &str, line: &str, reason: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "\n*** FATAL CONFIG FILE ERROR (Dunlin {version}) ***\n\
         Reading the {place}\n>>> '{line}'\n{reason}\n"
    )
}

#[test]
fn a_wrong_line_stops_the_start_with_its_place_and_the_reason() {
    let folder = Folder::new();
    let file = folder.file("wrong.conf", "# fine\nport 7000\n\n  maxmemory lots\n");
    let blank = folder.file("blank.conf", "user \"a b\" on nopass\n");
    let in_blank = format!("configuration file {blank}, at line 1");
    let (typed, written) = ("command line", format!("configuration file {file}, at line 4"));
    let unknown = "Bad directive or wrong number of arguments";
    for (arguments, expected) in [
        (vec!["--nosuch", "1"], report(typed, "nosuch \"1\"", unknown)),
        (vec!["--include"], report(typed, "include", unknown)),
        (
            vec!["--hz", "10", "--port", "70000"],
            report(typed, "port \"70000\"", "argument must be between 0 and 65535 inclusive"),
        ),
        (vec![&file], report(&written, "maxmemory lots", "argument must be a memory value")),
        (
            vec!["--rename-command", "NOSUCH", "x"],
            report(typed, "rename-command \"NOSUCH\" \"x\"", "No such command in rename-command"),
        ),
        (
            vec!["--rename-command", "CONFIG", "get"],
            report(
                typed,
                "rename-command \"CONFIG\" \"get\"",
                "Target command name already exists",
            ),
        ),
        (
            vec!["--user", "a b", "on", "nopass"],
            report(typed, "user \"a b\" \"on\" \"nopass\"", "Spaces not allowed in ACL usernames"),
        ),
        (
            vec![&blank],
            report(&in_blank, "user \"a b\" on nopass", "Spaces not allowed in ACL usernames"),
        ),
    ] {
        let output = refused(&folder, &arguments);
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected, "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn what_cannot_be_opened_stops_the_start() {
    let folder = Folder::new();
    let (_, free) = port();
    let busy = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let taken = busy.local_addr().unwrap().port().to_string();
    for (arguments, expected) in [
        (vec!["nosuch.conf"], "# Fatal error, can't open config file '"),
        // No machine has this address: it is reserved for documentation.
        (
            vec!["--port", &free, "--bind", "192.0.2.1"],
            "# Warning: Could not create server TCP listening socket 192.0.2.1:",
        ),
        (
            vec!["--port", "0", "--unixsocket", "nosuch/socket"],
            "# Warning: Failed opening Unix socket: bind: No such file or directory\n",
        ),
        (vec!["--port", "0", "--tls-port", &free], "# Failed to configure TLS: "),
        (vec!["--port", &taken], "# Something listens on *:"),
        (vec!["--port", "0"], "# Configured to not listen anywhere, exiting.\n"),
        (
            vec!["--port", &free, "--bind", "-192.0.2.1"],
            "# Configured to not listen anywhere, exiting.\n",
        ),
    ] {
        let output = refused(&folder, &arguments);
        let log = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(log.contains(expected), "{arguments:?}: {log}");
        // Every line is one of the log's.
        assert!(log.lines().all(|line| line.contains(":M ")), "{log}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn what_this_version_cannot_be_stops_the_start() {
    let folder = Folder::new();
    let (_, port) = port();
    let output = refused(&folder, &["--port", &port, "--cluster-enabled", "yes"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("\ncluster-enabled is set, but cluster-coordinator is not"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    let output = refused(&folder, &["--port", &port, "--sentinel"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no Sentinel mode"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_port_in_the_place_of_the_file_gets_a_hint() {
    let output = refused(&Folder::new(), &["6380"]);
    let log = String::from_utf8_lossy(&output.stdout);
    assert!(log.contains("# A port is an option: --port 6380\n"), "{log}");
    assert!(log.lines().all(|line| line.contains(":M ")), "{log}");
}

/// Starts a server at a port that is in use and is given back as soon as the server says so.
fn waits_for_its_port(folder: Folder, busy: TcpListener, arguments: &[&str]) -> Running {
    let mut busy = Some(busy);
    let output = std::fs::File::create(folder.path("output")).unwrap();
    let mut start = command(&folder, arguments);
    let mut running = Running { child: start.stdout(output).spawn().unwrap(), folder };
    eventually("a start", || {
        assert_eq!(running.child.try_wait().unwrap(), None, "{}", running.output());
        if running.output().contains("bind: Address already in use. Trying again") {
            busy.take();
        }
        running.output().contains("* Ready to accept connections")
    });
    assert!(busy.is_none(), "the address was in use");
    assert_eq!(running.output().matches("Address already in use").count(), 1);
    running
}

fn busy_port() -> (TcpListener, u16) {
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    (busy, port)
}

#[test]
fn an_address_that_is_given_back_a_moment_later_is_waited_for() {
    let (busy, port) = busy_port();
    let arguments = ["--port", &port.to_string(), "--bind", "127.0.0.1"];
    let _running = waits_for_its_port(Folder::new(), busy, &arguments);
    assert_eq!(ask(&mut client(port), &["PING"]), ["PONG"]);
}

#[test]
fn an_address_for_tls_that_is_given_back_a_moment_later_is_waited_for() {
    let (busy, port) = busy_port();
    let authority = Authority::new("bind");
    authority.sign("server");
    let mut arguments = authority.options(port, "server");
    arguments.extend(["--port", "0", "--bind", "127.0.0.1"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let _running = waits_for_its_port(Folder::new(), busy, &arguments);
    authority.connect(port);
}

#[test]
fn a_unix_socket_that_a_killed_server_has_left_is_taken_over() {
    let mut folder = Folder::new();
    for _ in 0..5 {
        let mut running = Running::start(folder, &["--port", "0", "--unixsocket", "socket"]);
        let mut stream = UnixStream::connect(running.folder.path("socket")).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
        running.end("KILL");
        assert!(running.folder.path("socket").exists(), "nothing has removed it");
        folder = std::mem::replace(&mut running.folder, Folder::new());
    }
}

#[test]
fn the_command_line_wins_over_standard_input_and_that_over_the_file() {
    let folder = Folder::new();
    let (port, text) = port();
    folder.file("snippets/one.conf", "timeout 11\n");
    folder.file("snippets/two.conf", "databases 20\n");
    let file = folder.file(
        "dunlin.conf",
        "port 1\ntimeout 1\nhz 20\ndir FOLDER\ninclude snippets/*.conf\nsave \"\"\n",
    );
    let arguments = [&file, "--port", &text, "--maxmemory-policy", "allkeys-lru", "-"];
    let command = command(&folder, &arguments);
    let running = Running::spawn(folder, command, "port 2\ntcp-keepalive 77\n");
    let client = &mut client(port);
    let options =
        ["CONFIG", "GET", "databases", "hz", "maxmemory-pol*", "port", "tcp-keepalive", "timeout"];
    assert_eq!(
        ask(client, &options).chunks(2).map(|pair| pair.join(" ")).collect::<BTreeSet<_>>(),
        [
            "databases 20".to_owned(),
            "hz 20".to_owned(),
            "maxmemory-policy allkeys-lru".to_owned(),
            format!("port {port}"),
            "tcp-keepalive 77".to_owned(),
            "timeout 11".to_owned(),
        ]
        .into()
    );
    assert!(running.output().contains("* Configuration loaded\n"));
}

#[test]
fn standard_input_alone_is_enough() {
    let folder = Folder::new();
    let (port, _) = port();
    let command = command(&folder, &["-"]);
    let _running = Running::spawn(folder, command, &format!("port {port}\nrequirepass secret\n"));
    let client = &mut client(port);
    assert_eq!(ask(client, &["PING"]), ["-NOAUTH Authentication required."]);
    assert_eq!(ask(client, &["AUTH", "secret"]), ["OK"]);
}

/// The configuration files that Debian's packages of Valkey and Redis install, and the one in the
/// sources of Redis 7.0, where the other tests have fetched them.
fn shipped() -> Vec<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let cache = cache.unwrap_or_default().join("dunlin");
    let peers = std::env::var_os("DUNLIN_PEERS").map_or(cache.join("peers"), PathBuf::from);
    [
        peers.join("etc/valkey/valkey.conf"),
        peers.join("etc/redis/redis.conf"),
        cache.join("redis-7.0/redis.conf"),
    ]
    .into_iter()
    .filter(|file| {
        let is_here = file.exists();
        if !is_here {
            skipped(format_args!(
                "{} is not here; tests/peers fetches it, or tests/tcl/run",
                file.display()
            ));
        }
        is_here
    })
    .collect()
}

#[test]
fn the_configurations_that_others_ship_work() {
    for file in shipped() {
        println!("{}", file.display());
        let folder = Folder::new();
        let (port, text) = port();
        // Only what is not on this machine is changed: the package's folders.
        let here = folder.path("").display().to_string();
        let lines: Vec<String> = std::fs::read_to_string(&file)
            .unwrap()
            .lines()
            .map(|line| match line.split(' ').next() {
                Some("dir" | "logfile" | "pidfile" | "unixsocket") => {
                    let (name, path) = line.split_once(' ').unwrap();
                    match path.rsplit_once('/') {
                        Some((_, name_of_file)) if name != "dir" => {
                            format!("{name} {here}{name_of_file}")
                        }
                        _ if name == "dir" => format!("dir {here}"),
                        _ => line.to_owned(),
                    }
                }
                _ => line.to_owned(),
            })
            .collect();
        let config = folder.file("shipped.conf", &lines.join("\n"));
        let arguments = [&config, "--port", &text, "--daemonize", "no", "--logfile", ""];
        let running = Running::start(folder, &arguments);
        assert_eq!(ask(&mut client(port), &["PING"]), ["PONG"]);
        let listed = running.line("* Accepted without effect in this version: ");
        let names: Vec<&str> = listed.split(", ").collect();
        let distinct: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), distinct.len(), "{listed}");
    }
}
