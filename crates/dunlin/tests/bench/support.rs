//! Starts servers and runs the program on them.

use harness::client::ask;
use harness::cluster::Etcd;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Dunlin, and the reference where it can be installed.
pub fn servers() -> Vec<Server> {
    let mut programs = vec![Program::under_test()];
    programs.extend(Program::reference_or_skip());
    programs.iter().map(|program| Server::start(program, Options::default()).unwrap()).collect()
}

/// The server under test.
pub fn dunlin(arguments: &[&str]) -> Server {
    Server::start(&Program::under_test(), Options::arguments(arguments)).unwrap()
}

/// A name for a file that no other test uses.
pub fn file(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("dunlin-bench-{}-{count}-{name}", std::process::id()))
}

fn command(arguments: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.arg("bench").args(arguments).stdin(Stdio::null());
    if arguments.first().is_some_and(|word| word == "experiment") {
        // With a cluster it starts nodes.
        command.env("DUNLIN_ETCD", Etcd::program());
    }
    command
}

/// The words of a line; quotes are not needed in these tests.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Runs `dunlin bench` with these arguments.
pub fn bench(line: &str) -> Output {
    command(&words(line)).output().unwrap()
}

/// The same where a word has spaces in it.
pub fn bench_words(words: &[String]) -> Output {
    command(words).output().unwrap()
}

/// Starts it and does not wait.
pub fn start(line: &str) -> Child {
    command(&words(line)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs it on a server and returns its status and its JSON.
#[track_caller]
pub fn measure(port: u16, line: &str) -> (i32, Value) {
    let path = file("result.json");
    let output = bench(&format!("-p {port} --json-out-file {} {line}", path.display()));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| {
        panic!("{line}: no result: {}", String::from_utf8_lossy(&output.stderr))
    });
    std::fs::remove_file(&path).unwrap();
    (output.status.code().unwrap(), serde_json::from_str(&text).unwrap())
}

/// Waits until a server has served so many GETs since it started.
#[track_caller]
pub fn until_served(server: &Server, gets: u64) {
    let mut client = server.client();
    eventually("requests of the generator", || {
        let info = ask(&mut client, "INFO commandstats");
        let calls = info.shown().split("cmdstat_get:calls=").nth(1).map(|rest| {
            let digits = rest.split(',').next().unwrap_or_default();
            digits.parse::<u64>().unwrap()
        });
        calls.unwrap_or(0) >= gets
    });
}

/// The only run of a result.
#[track_caller]
pub fn only(result: &Value) -> &Value {
    let runs = result["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{result}");
    &runs[0]
}
