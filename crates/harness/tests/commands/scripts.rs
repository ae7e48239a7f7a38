//! Runs the command scripts in `tests/commands` under both protocols and on both I/O back-ends.
//!
//! `SCRIPT=string/get` narrows the run down to scripts whose path contains that text; `BLESS=1`
//! rewrites the expectations that do not hold on the reference server instead of checking.

use harness::reply::Protocol;
use harness::script::Script;
use harness::script::bless::bless;
use harness::script::suite::{Stage, commands_used, scripts};
use harness::server::{Backend, Options, Program, Server};

fn filter() -> String {
    std::env::var("SCRIPT").unwrap_or_default()
}

fn blessing() -> bool {
    std::env::var_os("BLESS").is_some_and(|value| value != "0")
}

fn check_all(protocol: Protocol, backend: Backend) {
    let program = Program::under_test();
    let backend = match program.backends().as_slice() {
        // Another server than Dunlin has one back-end, which runs in the place of io_uring.
        [None] if backend == Backend::IoUring => None,
        backends if backends.contains(&Some(backend)) => Some(backend),
        _ => return,
    };
    if blessing() {
        return;
    }
    let mut stage = Stage::new(program, backend);
    let paths = scripts(&filter());
    assert!(!paths.is_empty(), "no script contains {:?} in its path", filter());
    let failures: Vec<String> = paths
        .iter()
        .filter_map(|path| {
            Script::load(path).and_then(|script| stage.check(&script, protocol)).err()
        })
        .collect();
    println!("{} scripts under {protocol}", paths.len());
    assert!(
        failures.is_empty(),
        "{} of {} scripts failed\n\n{}\n",
        failures.len(),
        paths.len(),
        failures.join("\n\n")
    );
}

#[test]
fn resp2_on_io_uring() {
    check_all(Protocol::Resp2, Backend::IoUring);
}

#[test]
fn resp3_on_io_uring() {
    check_all(Protocol::Resp3, Backend::IoUring);
}

#[test]
fn resp2_on_epoll() {
    check_all(Protocol::Resp2, Backend::Epoll);
}

#[test]
fn resp3_on_epoll() {
    check_all(Protocol::Resp3, Backend::Epoll);
}

#[test]
fn bless_scripts() {
    if !blessing() {
        return;
    }
    let mut stage = Stage::new(Program::reference().unwrap(), None);
    for path in scripts(&filter()) {
        let script = Script::load(&path).unwrap();
        let text = bless(&script, &mut stage).unwrap_or_else(|why| panic!("{why}"));
        std::fs::write(&path, text).unwrap();
    }
}

#[test]
fn every_command_has_a_script() {
    let program = Program::under_test();
    if !program.is_dunlin() {
        return;
    }
    let server = Server::start(&program, Options::default()).unwrap();
    let mut client = server.client();
    let names = client.command(&["COMMAND", "LIST"]).unwrap();
    let scripts: Vec<Script> = scripts("").iter().map(|path| Script::load(path).unwrap()).collect();
    let used = commands_used(&scripts);
    let untested: Vec<String> = names
        .elements()
        .expect("COMMAND LIST replies with an array")
        .iter()
        .filter_map(|name| name.text())
        .map(|name| String::from_utf8_lossy(name).to_ascii_lowercase())
        .filter(|name| !used.contains(name) && !name.ends_with("|help"))
        .collect();
    assert!(untested.is_empty(), "no script in tests/commands sends these: {untested:?}");
}
