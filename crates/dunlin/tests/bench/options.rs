//! Every option is taken, does what it says, and leaves a clean result.

use crate::support::{bench, dunlin, file, measure, only, servers, start, until_served};
use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server, signal};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;

#[track_caller]
fn check_all(lines: &[&str]) {
    for server in servers() {
        for line in lines {
            let (_, result) = measure(server.port(), &format!("-n 200 -c 4 {line}"));
            let name = server.program().name();
            for run in result["runs"].as_array().unwrap() {
                assert_eq!(run["total"]["requests"], 200, "{name}: {line}");
                // A server may lack a command; nothing else may go wrong.
                let texts = run["error_texts"].as_object().unwrap();
                let lacking = |text: &String| text.starts_with("ERR unknown command");
                assert!(texts.keys().all(lacking), "{name}: {line}: {run}");
                assert_eq!(run["lost_connections"], 0, "{name}: {line}: {run}");
            }
        }
    }
}

#[test]
fn every_test_of_redis_benchmark() {
    check_all(&[
        "",
        "-t set,get -r 100 -P 16",
        "-t ping,lrange,mset,mget,xadd -d 10 -3",
        "-t SET --dbnum 3",
    ]);
}

#[test]
fn commands_of_ones_own() {
    check_all(
        &[
            "-r 10 SET k:__rand_int__:__rand_1st__:__rand_1st__ __data__",
            "-r 10 --sequential SADD s __rand_int__",
            "-f 5 HSET h __rand_field__ __data__",
            "-P 5 -- MULTI ; 2 INCR x ; EXEC",
            "--command PING --command-ratio 3 --command EVAL",
        ][..4],
    );
}

#[test]
fn mixes() {
    check_all(&[
        "--ratio 1:3",
        "--ratio 1:3 --key-pattern S:R --key-minimum 5 --key-maximum 50 --key-prefix p:",
        "--ratio 1:1 --key-pattern P:Z --key-zipf-exp 0.9 --key-maximum 99",
        "--ratio 1:1 --key-pattern G:G --key-median 50 --key-stddev 5 --key-maximum 99",
        "--ratio 1:1 --data-size-range 10-2000 --random-data",
        "--ratio 1:1 --data-size-range 10-2000 --data-size-pattern S",
        "--ratio 1:1 --data-size-list 10:3,500:1",
        "--ratio 1:1 --expiry-range 10-20",
        "--ratio 1:1 --multi-key-get 5",
        "--command PING --command-ratio 2 --command PING --command-key-pattern S",
    ]);
}

#[test]
fn loads() {
    check_all(&[
        "-t get --threads 2",
        "-t get -k 0",
        "-t get --reconnect-interval 10",
        "-t get --rps 2000",
        "-t get --rate-limiting 500 -P 2",
        "-t get --rate 2000",
        "-t get --warmup 0.2 --seed 5",
        "-t get --randomize --distinct-client-seed --give-up 5",
    ]);
}

#[test]
fn what_was_sent_is_what_was_asked_for() {
    for server in servers() {
        let mut client = server.connect(Protocol::Resp2).unwrap();
        let port = server.port();
        measure(port, "-t set -r 500 --sequential -n 500 -d 7");
        assert_eq!(client.command(&["DBSIZE"]).unwrap(), Reply::Integer(500));
        let last = client.command(&["GET", "key:000000000499"]).unwrap();
        assert_eq!(last, Reply::Bulk(b"xxxxxxx".to_vec()));
        client.command(&["FLUSHALL"]).unwrap();
        measure(
            port,
            "--ratio 1:0 --key-pattern P:P --key-minimum 1 --key-maximum 300 -n 300 -c 7 --expiry-range 500-600",
        );
        assert_eq!(client.command(&["DBSIZE"]).unwrap(), Reply::Integer(300));
        let Reply::Integer(ttl) = client.command(&["TTL", "memtier-300"]).unwrap() else {
            panic!()
        };
        assert!((480..=600).contains(&ttl), "{ttl}");
        let (_, result) = measure(port, "--ratio 1:4 -n 1000");
        let operations = only(&result)["operations"].as_array().unwrap();
        assert_eq!(
            (&operations[0]["name"], &operations[1]["name"]),
            (&"SET".into(), &"GET".into())
        );
        let sets = operations[0]["requests"].as_u64().unwrap();
        assert!((170..=230).contains(&sets), "{sets} of 1000 are SET");
        // The keys were written above, or were not.
        let (_, result) = measure(
            port,
            "--ratio 0:1 --key-minimum 1000 --key-maximum 2000 --key-prefix none: -n 100",
        );
        assert_eq!(only(&result)["total"]["misses"], 100);
    }
}

#[test]
fn outputs() {
    let server = dunlin(&[]);
    let port = server.port();
    let text = |line: &str| {
        let output = bench(&format!("-p {port} -n 100 {line}"));
        assert!(output.status.success(), "{line}");
        String::from_utf8(output.stdout).unwrap()
    };
    let quiet = text("-q -t set --precision 1");
    assert!(quiet.starts_with("SET: ") && quiet.contains(" requests per second, p50="), "{quiet}");
    let csv = text("--csv -t set,get");
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("\"test\",\"rps\",\"avg_latency_ms\",") && lines.len() == 3,
        "{csv}"
    );
    let table = text("-t get --print-percentiles 10,75.5 --hide-histogram");
    assert!(
        table.contains("p10") && table.contains("p75.5") && !table.contains("percentile"),
        "{table}"
    );
    assert!(table.contains("CPU/request"), "{table}");
    let (out, page, prefix) = (file("out"), file("page.html"), file("hdr"));
    let line = format!(
        "-t get -o {} --report {} --hdr-file-prefix {}",
        out.display(),
        page.display(),
        prefix.display()
    );
    assert_eq!(text(&line), "");
    assert!(std::fs::read_to_string(&out).unwrap().contains("GET on"));
    assert!(std::fs::read_to_string(&page).unwrap().contains("\"name\":\"GET\""));
    let plot = format!("{}_GET.txt", prefix.display());
    assert!(std::fs::read_to_string(&plot).unwrap().contains("Percentile"));
    let log = format!("{}_GET.hlog", prefix.display());
    assert!(std::fs::read_to_string(&log).unwrap().contains("HIST"));
    for path in [out, page, plot.into(), log.into()] {
        std::fs::remove_file(path).unwrap();
    }
    let (_, result) = measure(port, "-t get -n 50 -x 3 --pid 1");
    let runs = result["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &runs[3]["total"]["requests"]), (4, &150.into()));
}

#[test]
fn ways_in() {
    let socket = file("socket");
    let server = dunlin(&["--unixsocket", socket.to_str().unwrap(), "--requirepass", "secret"]);
    let mut client = server.connect(Protocol::Resp2).unwrap();
    client.command(&["AUTH", "secret"]).unwrap();
    let port = server.port();
    for line in [
        format!("-s {} -a secret", socket.display()),
        format!("-p {port} -a secret -3"),
        format!("-p {port} --user default -a secret --dbnum 2"),
        format!("-u redis://default:secret@127.0.0.1:{port}/1"),
        format!("-u unix://{} -a secret", socket.display()),
    ] {
        let output = bench(&format!("{line} -q -n 50 -t set"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for (line, part) in
        [(format!("-p {port} -a wrong -t set"), "WRONGPASS"), ("-p 1 -t set".to_owned(), "refused")]
    {
        let output = bench(&line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.contains(part)), (Some(1), true), "{said}");
    }
    drop(server);
    // A server that was killed leaves it.
    if socket.exists() {
        std::fs::remove_file(socket).unwrap();
    }
}

#[test]
fn wrong_arguments_are_refused_with_a_reason() {
    for (line, part) in [
        ("-n 5 --duration 3", "cannot be used with"),
        ("--nonsense", "unexpected argument"),
        ("-t nonsense", "there is no test"),
        ("--ratio 1:0 --key-stddev 3 --key-pattern R:R", "pattern G"),
        ("experiment nonsense", "possible values"),
    ] {
        let output = bench(line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.contains(part)), (Some(2), true), "{line}: {said}");
    }
    let help = bench("--help");
    let text = String::from_utf8(help.stdout).unwrap();
    for heading in ["Connection:", "TLS:", "Load:", "Work:", "Keys:", "Values:", "Output:"] {
        assert!(help.status.success() && text.contains(heading), "{heading}");
    }
}

#[test]
fn errors_are_counted() {
    let server = dunlin(&[]);
    let mut client = server.connect(Protocol::Resp2).unwrap();
    client.command(&["SET", "text", "abc"]).unwrap();
    let (status, result) = measure(server.port(), "-n 30 -c 3 INCR text");
    let run = only(&result);
    assert_eq!((status, &run["total"]["errors"]), (1, &30.into()));
    assert_eq!(run["error_texts"]["ERR value is not an integer or out of range"], 30);
}

#[test]
fn what_is_only_refused_has_no_rate() {
    for server in servers() {
        let port = server.port();
        let (status, result) = measure(port, "-n 30 -c 3 NOSUCHCOMMAND x");
        let total = &only(&result)["total"];
        assert_eq!((status, &total["errors"]), (1, &30.into()), "{total}");
        assert_eq!((total["rate"].is_null(), total["latency_ms"].is_null()), (true, true));
        let refused = total["refused"].as_str().unwrap();
        let expected = "not supported by this server: ERR unknown command 'NOSUCHCOMMAND'";
        assert_eq!(refused, expected);
        let page = file("page.html");
        for line in ["", "-q", "--csv"] {
            let line =
                format!("-p {port} {line} --report {} -n 30 NOSUCHCOMMAND x", page.display());
            let text = String::from_utf8(bench(&line).stdout).unwrap();
            assert!(text.contains(expected) && !text.contains("per second"), "{text}");
            assert_eq!(text.matches("ERR unknown command").count(), 1, "said once: {text}");
            if line.contains("--csv") {
                let row = text.lines().nth(1).unwrap();
                assert!(row.starts_with("\"NOSUCHCOMMAND x\",\"\",\"\","), "{row}");
            }
        }
        assert!(std::fs::read_to_string(&page).unwrap().contains(expected));
        std::fs::remove_file(page).unwrap();
        // A mix that has answers too keeps its figures, and says which part has none.
        let mix = "--command PING --command NOSUCHCOMMAND -n 30";
        let output = bench(&format!("-p {port} -q {mix}"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("PING: ") && text.contains("NOSUCHCOMMAND: not supported"), "{text}");
    }
}

#[test]
fn a_server_may_lack_what_nobody_asked_for() {
    let Some(reference) = Program::reference_or_skip() else { return };
    let options = Options::arguments(&["--rename-command", "XADD", ""]);
    let server = Server::start(&reference, options).unwrap();
    let output = bench(&format!("-p {} -q -n 50", server.port()));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("XADD: not supported by this server"), "{text}");
    assert_eq!(output.status.code(), Some(0), "the usual tests: {text}");
    let output = bench(&format!("-p {} -q -n 50 -t xadd", server.port()));
    assert_eq!(output.status.code(), Some(1), "it was asked for");
}

#[test]
fn reads_that_find_nothing_are_said() {
    let server = dunlin(&[]);
    let notes = |line: &str| measure(server.port(), line).1["notes"].to_string();
    let gets = "-t get -r 50 -n 100";
    assert!(notes(gets).contains("100 % of the reads found no key"), "{}", notes(gets));
    assert_eq!(notes("-t set -r 50 -n 50 --sequential"), "[]");
    assert_eq!(notes(gets), "[]", "all keys are there");
    let mix = "--ratio 0:1 --key-prefix key: --key-maximum 50 -n 100";
    assert!(notes(mix).contains("found no key"), "the mix has names of its own");
}

#[test]
fn a_misspelt_mode_is_no_command_of_the_server() {
    let output = bench("audti -p 1 file");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("did you mean 'dunlin bench audit'?"), "{text}");
}

#[test]
fn a_user_with_a_name_of_its_own() {
    // Dunlin has no users yet.
    let Some(reference) = Program::reference_or_skip() else { return };
    let server = Server::start(&reference, Options::default()).unwrap();
    let mut client = server.connect(Protocol::Resp2).unwrap();
    let rules = ["ACL", "SETUSER", "loader", "on", ">secret", "~key:*", "+get", "+set", "+ping"];
    assert_eq!(client.command(&rules).unwrap(), Reply::Simple(b"OK".to_vec()));
    let port = server.port();
    for line in [
        format!("-p {port} --user loader -a secret"),
        format!("-p {port} --user loader -a secret -3"),
        format!("-u redis://loader:secret@127.0.0.1:{port}"),
    ] {
        let output = bench(&format!("{line} -q -n 50 -t set,get"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let output = bench(&format!("{line} -q -n 50 -t incr"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("every reply was an error: NOPERM"), "{text}");
    }
    let output = bench(&format!("-p {port} --user loader -a wrong -q -n 50 -t set"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.contains("WRONGPASS")), (Some(1), true), "{said}");
}

#[test]
fn a_terminal_is_shown_how_it_goes_and_ctrl_c_ends_it() {
    let server = dunlin(&[]);
    let command = format!(
        "{} bench -p {} -t get --duration 60 --hide-histogram",
        env!("CARGO_BIN_EXE_dunlin"),
        server.port()
    );
    // `script` gives the program a terminal of its own, and passes on what is typed.
    let mut terminal = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = terminal.stdin.take().unwrap();
    let mut screen = terminal.stdout.take().unwrap();
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    // The line is there when it says what the last second was like.
    while !String::from_utf8_lossy(&shown).contains("p99") {
        let count = screen.read(&mut buffer).unwrap();
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&buffer[..count]);
    }
    let line = String::from_utf8_lossy(&shown).into_owned();
    assert!(line.contains('\r') && line.contains("GET"), "{line}");
    keyboard.write_all(b"\x03").unwrap();
    screen.read_to_end(&mut shown).unwrap();
    let text = String::from_utf8_lossy(&shown).into_owned();
    assert_eq!(terminal.wait().unwrap().code(), Some(130), "{text}");
    assert!(text.contains("(interrupted)") && text.contains("CPU/request"), "{text}");
    // In a pipe there is no such line.
    let output = bench(&format!("-p {} -t set --duration 2", server.port()));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!(!output.stdout.contains(&b'\r'));
}

#[test]
fn an_interrupted_run_says_what_was_measured() {
    let server = dunlin(&[]);
    for line in ["-t get --duration 60", "-t get -l -q", "-t get --rate 100 --duration 60"] {
        ask(&mut server.client(), "CONFIG RESETSTAT");
        let child = start(&format!("-p {} {line}", server.port()));
        until_served(&server, 20);
        signal(child.id(), "INT").unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            (output.status.code(), text.contains("GET")),
            (Some(130), true),
            "{line}: {text}"
        );
    }
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let mut server: Server = dunlin(&[]);
    let port = server.port();
    let run = thread::spawn(move || measure(port, "-t get -c 5 --duration 3"));
    until_served(&server, 20);
    server.restart().unwrap();
    let (status, result) = run.join().unwrap();
    let run = only(&result);
    assert_eq!(status, 1);
    assert_eq!(run["lost_connections"], 5, "{run}");
    assert!(run["reconnections"].as_u64().unwrap() >= 5);
    assert!(run["seconds"].as_f64().unwrap() > 2.5, "it went on: {}", run["seconds"]);
    Client::connect(server.address()).unwrap();
}
