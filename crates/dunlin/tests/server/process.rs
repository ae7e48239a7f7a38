//! The process: background, supervision, threads, signals, crashes.

use crate::support::{Folder, Running, ask, client, command, port, threads, title};
use harness::server::signal;
use harness::wait::eventually;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

#[test]
fn a_daemon_leaves_its_terminal_and_cleans_up() {
    let folder = Folder::new();
    let (port, _) = port();
    let config = folder.file(
        "d.conf",
        &format!(
            "port {port}\nbind 127.0.0.1 -192.0.2.1\ndaemonize yes\ndir FOLDER\n\
             pidfile FOLDER/pid\nlogfile log\nunixsocket FOLDER/socket\nunixsocketperm 700\n\
             proc-title-template \"{{title}} {{listen-addr}} {{unixsocket}} {{config-file}}\"\n"
        ),
    );
    let output = command(&folder, &[&config]).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    eventually("ready", || folder.read("log").contains("* Ready to accept connections unix\n"));
    let process_id: u32 = folder.read("pid").trim().parse().unwrap();
    let socket = folder.path("socket");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o700);
    UnixStream::connect(&socket).unwrap();
    assert_eq!(ask(&mut client(port), &["PING"]), ["PONG"]);
    let program = env!("CARGO_BIN_EXE_dunlin");
    let expected = format!("{program} 127.0.0.1:{port} {} {config}", socket.display());
    assert_eq!(title(process_id), expected);

    signal(process_id, "TERM").unwrap();
    eventually("ended", || folder.read("log").contains("bye bye..."));
    eventually("cleaned up", || !folder.path("pid").exists() && !socket.exists());
}

#[test]
fn a_crash_of_a_daemon_leaves_a_whole_report_and_no_pid_file() {
    let folder = Folder::new();
    let (port, text) = port();
    let pid = folder.path("pid").display().to_string();
    let dir = folder.path("").display().to_string();
    let words = ["--port", &text, "--daemonize", "yes", "--dir", &dir, "--pidfile", &pid];
    let words = [&words[..], &["--logfile", "log", "--save", ""]].concat();
    let output = command(&folder, &words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    eventually("ready", || folder.read("log").contains("Ready to accept connections"));
    let process_id: u32 = folder.read("pid").trim().parse().unwrap();
    let mut client = client(port);
    assert_eq!(ask(&mut client, &["SET", "key", "value"]), ["OK"]);
    assert_eq!(ask(&mut client, &["CLIENT", "SETNAME", "witness"]), ["OK"]);
    signal(process_id, "SEGV").unwrap();
    eventually("the end of the report", || folder.read("log").contains("BUG REPORT END"));
    let log = folder.read("log");
    let (_, report) = log.split_once("BUG REPORT START").unwrap();
    for part in [
        "------ CLIENT LIST ------",
        " name=*redacted* ",
        " cmd=client|setname ",
        "------ INFO ------",
        "\nredis_version:",
        "\ncmdstat_set:calls=1,",
        "\ndb0:keys=1,",
    ] {
        assert!(report.contains(part), "{part:?} is not in the report:{report}");
    }
    eventually("the pid file goes", || !folder.path("pid").exists());
}

fn receive(socket: &UnixDatagram) -> io::Result<String> {
    let mut buf = [0; 1024];
    let len = socket.recv(&mut buf)?;
    Ok(String::from_utf8_lossy(&buf[..len]).into_owned())
}

#[test]
fn systemd_hears_when_it_is_ready_and_when_it_stops() {
    let folder = Folder::new();
    let (_, port) = port();
    let notify = folder.path("notify");
    let socket = UnixDatagram::bind(&notify).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut start = command(&folder, &["--port", &port, "--supervised", "systemd"]);
    // Supervised, it stays in the foreground whatever the configuration says.
    start.args(["--daemonize", "yes"]).env("NOTIFY_SOCKET", &notify);
    let mut running = Running::spawn(folder, start, "");
    assert_eq!(receive(&socket).unwrap(), "STATUS=Dunlin is loading...\n");
    let ready = receive(&socket).unwrap();
    assert_eq!(ready, "STATUS=Ready to accept connections\nREADY=1\n");
    assert!(running.end("TERM").success());
    assert_eq!(receive(&socket).unwrap(), "STOPPING=1\n");
}

fn reactors(process_id: u32) -> Vec<String> {
    let is_reactor =
        |(name, allowed): (String, String)| name.starts_with("reactor-").then_some(allowed);
    threads(process_id).into_iter().filter_map(is_reactor).collect()
}

#[test]
fn there_is_a_reactor_for_each_processor_it_may_use() {
    let folder = Folder::new();
    let (_, port) = port();
    // The first processor this test may use; `taskset` leaves the server that one.
    let own = threads(std::process::id()).remove(0).1;
    let first = own.split(['-', ',']).next().unwrap().to_owned();
    let mut start = Command::new("taskset");
    start.args(["-c", &first, env!("CARGO_BIN_EXE_dunlin"), "server", "--port", &port]);
    let running = Running::spawn(folder, start, "");
    assert_eq!(reactors(running.child.id()), [first]);
    assert!(running.output().contains("* 1 thread: "), "{}", running.output());
}

#[test]
fn a_number_of_threads_and_their_processors_can_be_given() {
    let (_, port) = port();
    let own = threads(std::process::id()).remove(0).1;
    let first = own.split(['-', ',']).next().unwrap().to_owned();
    let arguments = ["--port", &port, "--io-threads", "3", "--server-cpulist", &first];
    let running = Running::start(Folder::new(), &arguments);
    let process_id = running.child.id();
    eventually("pinned", || reactors(process_id) == [first.clone(), first.clone(), first.clone()]);
    assert!(running.line("* 3 threads: ").starts_with("io-threads 3, "));
}

#[test]
fn the_picture_shows_what_a_person_wants_to_know() {
    let (port, text) = port();
    let arguments = ["--port", &text, "--always-show-logo", "yes", "--io-backend", "epoll"];
    let running = Running::start(Folder::new(), &arguments);
    let (process_id, output) = (running.child.id(), running.output());
    for fact in [
        format!("Dunlin {} (", env!("CARGO_PKG_VERSION")),
        format!("Port: {port}\n"),
        format!("PID: {process_id}\n"),
        " thread".to_owned(),
        "I/O: epoll (".to_owned(),
        "Memory limit: ".to_owned(),
    ] {
        assert!(output.contains(&fact), "{fact:?} is not in\n{output}");
    }
}

#[test]
fn sigterm_and_sigint_shut_down() {
    for (name, said) in [("TERM", "Received SIGTERM"), ("INT", "Received SIGINT")] {
        let (_, port) = port();
        let mut running = Running::start(Folder::new(), &["--port", &port]);
        assert_eq!(running.end(name).code(), Some(0));
        let output = running.output();
        let mut at = 0;
        for line in [said, "* User requested shutdown...", "# Dunlin is now ready to exit, bye"] {
            let found = output[at..].find(line);
            at += found.unwrap_or_else(|| panic!("no {line:?} in its place in\n{output}"));
        }
    }
}

#[test]
fn a_crash_leaves_a_report_with_a_stack() {
    let (_, port) = port();
    let mut running = Running::start(Folder::new(), &["--port", &port]);
    let status = running.end("SEGV");
    assert_eq!(status.signal(), Some(11), "{status}");
    let output = running.output();
    for line in ["crashed by signal: 11", "STACK TRACE", "BUG REPORT END"] {
        assert!(output.contains(line), "no {line:?} in\n{output}");
    }
}
