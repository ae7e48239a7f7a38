//! What reaches beyond the data: CONFIG SET of what the host has to apply, and the ways to go.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::Client;
use harness::reply::Reply;
use harness::server::{Options, Program, Server, free_port, signal};
use harness::wait::eventually;
use std::net::Ipv4Addr;

fn start() -> Vec<Server> {
    let program = Program::under_test();
    let options = |backend| Options { backend, ..Options::default() };
    program
        .backends()
        .into_iter()
        .map(|backend| Server::start(&program, options(backend)).unwrap())
        .collect()
}

fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

#[track_caller]
fn check_refused(client: &mut Client, option: &str, value: &str, reason: &str) {
    let reply = client.command(&["CONFIG", "SET", option, value]).unwrap();
    let text =
        format!("ERR CONFIG SET failed (possibly related to argument '{option}') - {reason}");
    assert_eq!(reply, Reply::Error(text.into_bytes()));
}

#[test]
fn listeners_move_while_the_server_runs() {
    for server in start() {
        let mut client = server.client();
        let port = free_port().unwrap();
        let set = ["CONFIG", "SET", "port", &port.to_string()];
        assert_eq!(client.command(&set).unwrap(), ok());
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let mut moved = Client::connect(address).unwrap();
        assert_eq!(moved.command(&["PING"]).unwrap(), Reply::Simple(b"PONG".to_vec()));
        assert!(Client::connect(server.address()).is_err(), "the old port is closed");
        // What cannot be had changes nothing.
        let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = busy.local_addr().unwrap().port().to_string();
        check_refused(
            &mut client,
            "port",
            &taken,
            "Unable to listen on this port. Check server logs.",
        );
        check_refused(
            &mut client,
            "bind",
            "999.999.999.999",
            "Failed to bind to specified addresses.",
        );
        check_refused(
            &mut client,
            "tls-port",
            &free_port().unwrap().to_string(),
            "Unable to update TLS configuration. Check server logs.",
        );
        eventually("a line in the log", || {
            server.log().contains("Possibly related to new bind setting. Restoring previous")
        });
        for option in ["unixsocket", "logfile", "tcp-backlog", "daemonize", "databases"] {
            check_refused(&mut client, option, "1", "can't set immutable config");
        }
        let reply = client.command(&["CONFIG", "GET", "port"]).unwrap();
        assert_eq!(reply.elements().unwrap()[1], Reply::Bulk(port.to_string().into_bytes()));
        Client::connect(address).unwrap();
        assert!(server.stop().unwrap().success());
    }
}

#[test]
fn the_log_obeys_its_options() {
    for server in start() {
        let mut client = server.client();
        assert_eq!(client.command(&["CONFIG", "SET", "loglevel", "warning"]).unwrap(), ok());
        client.command(&["DEBUG", "LOG", "at notice"]).unwrap();
        assert_eq!(client.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap(), ok());
        eventually("a warning", || {
            server.log().contains("the new maxmemory value set via CONFIG SET")
        });
    }
}

#[test]
fn ways_to_go() {
    for server in start() {
        let mut client = server.client();
        for (words, error) in [
            (&["SHUTDOWN", "ABORT"][..], "ERR No shutdown in progress."),
            (&["SHUTDOWN", "SAVE", "NOSAVE"], "ERR syntax error"),
            (&["SHUTDOWN", "ABORT", "NOW"], "ERR syntax error"),
            (&["SHUTDOWN", "soon"], "ERR syntax error"),
            (&["SHUTDOWN", "FAILOVER"], "ERR SHUTDOWN FAILOVER is only supported in cluster mode."),
        ] {
            assert_eq!(client.command(words).unwrap(), Reply::Error(error.into()), "{words:?}");
        }
        // A signal is obeyed by housekeeping; until then it can be taken back.
        assert_eq!(client.command(&["DEBUG", "PAUSE-CRON", "1"]).unwrap(), ok());
        signal(server.process_id(), "TERM").unwrap();
        server.logs("Received SIGTERM scheduling shutdown...");
        assert_eq!(client.command(&["SHUTDOWN", "ABORT"]).unwrap(), ok());
        server.logs("Shutdown manually aborted");
        assert_eq!(client.command(&["DEBUG", "PAUSE-CRON", "0"]).unwrap(), ok());
        assert_eq!(client.command(&["PING"]).unwrap(), Reply::Simple(b"PONG".to_vec()));
        // No reply, the connection ends, and so does the process, well.
        client.send(&["SHUTDOWN", "NOSAVE", "NOW", "FORCE", "SAFE"]).unwrap();
        client.expect_closed().unwrap();
        server.logs("ready to exit, bye bye...");
        eventually("a line in the log", || {
            server.log().contains("User requested shutdown... (user request from 'id=")
        });
        assert!(server.stop().unwrap().success());
    }
}

#[test]
fn two_signals_are_one_too_many_only_for_sigint() {
    for server in start() {
        signal(server.process_id(), "TERM").unwrap();
        // The process may be gone already.
        let _ = signal(server.process_id(), "TERM");
        assert!(server.stop().unwrap().success());
    }
    for server in start() {
        let mut client = server.client();
        assert_eq!(client.command(&["DEBUG", "PAUSE-CRON", "1"]).unwrap(), ok());
        signal(server.process_id(), "INT").unwrap();
        server.logs("Received SIGINT scheduling shutdown...");
        signal(server.process_id(), "INT").unwrap();
        client.expect_closed().unwrap();
        server.logs("You insist... exiting now.");
        assert_eq!(server.stop().unwrap().code(), Some(1));
    }
}

/// Other threads have run their last request when the connection ends that asked for the shutdown.
#[test]
fn no_request_is_served_after_the_end_of_a_shutdown_was_seen() {
    const ROUNDS: usize = 8;
    let program = Program::under_test();
    for backend in program.backends().repeat(ROUNDS) {
        let options = Options { backend, ..Options::arguments(&["--io-threads", "4"]) };
        let server = Server::start(&program, options).unwrap();
        let mut client = server.client();
        // Each thread gets three of the connections.
        let mut others: Vec<_> = (0..11).map(|_| server.client()).collect();
        client.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
        client.expect_closed().unwrap();
        // They may be closed already.
        others.retain_mut(|other| other.send(&["PING"]).is_ok());
        for other in &mut others {
            let reply = other.reply();
            assert!(reply.is_err(), "a request that was served afterwards: {reply:?}");
        }
        assert!(server.stop().unwrap().success());
    }
}

/// Debian's units kill what makes a call that their filter does not know.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_filters_of_debians_units_kill_nothing() {
    let wrapper = env!("CARGO_BIN_EXE_debian_unit");
    let program = Program::under_test();
    for backend in program.backends() {
        let arguments =
            ["--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes"];
        let config = Some("maxmemory 1gb\n".to_owned());
        let options = Options { backend, config, ..Options::arguments(&arguments) };
        let mut server = Server::start(&program.under(wrapper), options).unwrap();
        let mut client = server.client();
        // Many connections that wait for the disk are what reactors give way for.
        std::thread::scope(|scope| {
            for number in 0..32 {
                let mut writer = server.client();
                scope.spawn(move || {
                    for at in 0..100 {
                        let key = format!("{number}:{at}");
                        assert_eq!(writer.command(&["SET", &key, "v"]).unwrap(), ok());
                    }
                });
            }
        });
        // A long command, for a thread that steps back.
        client.command(&["DEBUG", "POPULATE", "200000", "k", "10"]).unwrap();
        client.command(&["SORT", "k", "BY", "nosort"]).unwrap();
        client.command(&["KEYS", "nothing*"]).unwrap();
        for (request, field) in
            [("BGSAVE", "rdb_bgsave_in_progress"), ("BGREWRITEAOF", "aof_rewrite_in_progress")]
        {
            client.command(&[request]).unwrap();
            eventually(request, || harness::info::field(&mut client, field) == "0");
        }
        assert_eq!(harness::info::field(&mut client, "rdb_last_bgsave_status"), "ok");
        assert_eq!(harness::info::field(&mut client, "aof_last_bgrewrite_status"), "ok");
        server.logs("There is a filter of system calls");
        // Of a file of another group, too.
        std::os::unix::fs::chown(server.directory().join("server.conf"), None, Some(1)).unwrap();
        for request in [
            "CONFIG REWRITE",
            "CONFIG SET maxclients 5000",
            "CONFIG SET oom-score-adj yes",
            "CONFIG SET loglevel debug",
            "MEMORY PURGE",
            "DEBUG RELOAD",
        ] {
            let words: Vec<&str> = request.split(' ').collect();
            assert_eq!(client.command(&words).unwrap(), ok(), "{request}");
        }
        server.restart().unwrap();
        assert!(server.stop().unwrap().success());
    }
    // The filter does what it says.
    let nice = std::process::Command::new(wrapper).args(["nice", "-n", "1", "true"]).status();
    assert!(!nice.unwrap().success());
}

/// Limits a running server, as `ulimit` limits one before it starts.
fn limit(server: &Server, what: &str) {
    let process = server.process_id().to_string();
    let done = std::process::Command::new("prlimit").args(["--pid", &process, what]).status();
    assert!(done.unwrap().success(), "prlimit {what}");
}

#[test]
fn a_server_that_can_start_no_thread_saves_at_its_end() {
    for mut server in start() {
        let mut client = server.client();
        assert_eq!(client.command(&["SET", "k", "v"]).unwrap(), ok());
        assert_eq!(client.command(&["CONFIG", "SET", "save", "3600 1000"]).unwrap(), ok());
        let maps =
            std::fs::read_to_string(format!("/proc/{}/status", server.process_id())).unwrap();
        let size = maps.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let kib: u64 = size.split_whitespace().next().unwrap().parse().unwrap();
        // Less than the stack of a thread is left.
        limit(&server, &format!("--as={}", (kib + 1024) << 10));
        server.restart().unwrap();
        let value = server.client().command(&["GET", "k"]).unwrap();
        assert_eq!(value, Reply::Bulk(b"v".to_vec()), "{}", server.log());
    }
}

#[test]
fn a_limit_of_files_is_an_error_of_the_save() {
    for server in start() {
        let mut client = server.client();
        client.command(&["DEBUG", "POPULATE", "10000"]).unwrap();
        limit(&server, "--fsize=65536");
        client.command(&["BGSAVE"]).unwrap();
        eventually("the end of the save", || {
            harness::info::field(&mut client, "rdb_bgsave_in_progress") == "0"
        });
        assert_eq!(harness::info::field(&mut client, "rdb_last_bgsave_status"), "err");
    }
}

#[test]
fn a_server_that_cannot_save_ends_at_the_second_signal() {
    for server in start() {
        let mut client = server.client();
        assert_eq!(client.command(&["CONFIG", "SET", "save", "3600 1000"]).unwrap(), ok());
        // Nothing takes the place of a folder that is not empty.
        std::fs::create_dir_all(server.directory().join("dump.rdb").join("full")).unwrap();
        signal(server.process_id(), "TERM").unwrap();
        server.logs("A second signal ends it");
        assert_eq!(client.command(&["PING"]).unwrap(), Reply::Simple(b"PONG".to_vec()));
        assert_eq!(client.command(&["SET", "k", "v"]).unwrap(), ok());
        signal(server.process_id(), "TERM").unwrap();
        server.logs("ready to exit, bye bye...");
    }
}

#[test]
fn what_the_server_takes_without_data_has_none_in_it() {
    let options = Options::arguments(&["--enable-debug-command", "yes"]);
    let mut server = Server::start(&Program::under_test(), options).unwrap();
    server.client().command(&["DEBUG", "POPULATE", "100000"]).unwrap();
    server.client().command(&["SAVE"]).unwrap();
    server.restart().unwrap();
    let mut client = server.client();
    let mut figure = |name: &str| harness::info::field(&mut client, name).parse::<u64>().unwrap();
    let (startup, used) = (figure("used_memory_startup"), figure("used_memory"));
    assert!(startup < used / 2, "{startup} of {used}");
    assert!(figure("used_memory_dataset") > used / 4);
}

/// Supervisors start the next server at once.
#[test]
fn a_killed_server_takes_no_connections_any_more() {
    for mut server in start() {
        for _ in 0..10 {
            // Their requests are under way in the kernel when the process goes.
            let _idle: Vec<Client> = (0..20).map(|_| server.client()).collect();
            let address = server.address();
            server.kill().unwrap();
            assert!(std::net::TcpStream::connect(address).is_err(), "the port is open");
            server.start_again().unwrap();
        }
    }
}
