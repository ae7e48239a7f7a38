//! Runs the command scripts of `tests/commands` against an engine in this process, in seconds: the
//! same files and the same notation as against a server (`./test commands`), on a clock that only
//! `wait` advances.

use harness::client::{Client, LocalStream};
use harness::reply::Protocol;
use harness::script::Script;
use harness::script::run::{Place, check};
use harness::script::suite::{clean, configuration, scripts};
use keyspace::memory::Counting;
use rig::{Link, Rig};
use std::alloc::System;
use std::io;
use std::time::Duration;

/// Scripts that need more than an engine, by a part of their path, with the reason.
const NEED_A_PROCESS: &[(&str, &str)] = &[
    ("cf/keys.test", RELOADS),
    ("cms/cms.test", RELOADS),
    ("json/everywhere.test", RELOADS),
    ("list/list-quicklist.test", RELOADS),
    ("scripting/script_kill.test", "runs scripts without end beside other clients"),
    ("stream/persistence.test", RELOADS),
    ("tdigest/merge.test", RELOADS),
    ("topk/topk.test", RELOADS),
    ("ts/redis.test", RELOADS),
    ("vector/redis.test", RELOADS),
    ("vector/vector.test", RELOADS),
    ("server/debug-packed-threshold.test", RELOADS),
    ("server/debug-reload.test", RELOADS),
    ("server/debug-transactions.test", RELOADS),
    ("server/debug.test", "looks into the log"),
    ("server/acl.test", "asks for what only a connection has"),
    ("connection/client-commands.test", "asks for what only a connection has"),
    ("server/acl-log-commands.test", "asks for what only a connection has"),
    ("server/acl-replies.test", "asks for what only a connection has"),
    ("server/latency.test", "times work, for which the clock here does not advance"),
    ("server/info.test", "asks for facts about the process"),
];

const RELOADS: &str = "DEBUG RELOAD writes a file and loads it";

/// Memory is counted as in the server, for the scripts about `maxmemory`.
#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// What is needed by all scripts that start a server of their own.
const OWN_SERVER: &str = "starts a server with arguments, files or restarts of its own";

struct Local(Link);

impl LocalStream for Local {
    fn send(&mut self, bytes: &[u8]) {
        self.0.send(bytes);
    }
    fn receive(&mut self, patience: Duration) -> Vec<u8> {
        self.0.await_output(patience)
    }
    fn has_data(&mut self) -> bool {
        self.0.has_output()
    }
    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

struct InProcess(Rig);

impl Place for InProcess {
    fn connect(&mut self) -> io::Result<Client> {
        let link = self.0.connect().ok_or_else(|| io::Error::other("too many clients"))?;
        Ok(Client::local(Box::new(Local(link))))
    }
    fn pass(&mut self, time: Duration) {
        self.0.advance(time);
    }
    fn restart(&mut self) -> io::Result<()> {
        Err(io::Error::other("an engine in this process cannot be restarted"))
    }
    fn log(&self) -> String {
        String::new()
    }
}

fn reason(script: &Script) -> Option<&'static str> {
    if script.needs_own_server() {
        return Some(OWN_SERVER);
    }
    let path = script.path.to_string_lossy();
    NEED_A_PROCESS.iter().find(|(part, _)| path.ends_with(part)).map(|(_, reason)| *reason)
}

fn configured(cluster_enabled: &str) -> InProcess {
    let options = format!(
        "enable-debug-command yes\nsave \"\"\ncluster-enabled {cluster_enabled}\ncluster-databases 16\n"
    );
    let loaded = config::load_text(options.as_bytes());
    InProcess(Rig::new(loaded.expect("these options exist").config))
}

/// Runs all scripts, with keys assigned by slot or not: one or the other in a process.
pub fn check_scripts(cluster_enabled: &str) {
    let (mut run, mut skipped, mut failures) = (0, 0, Vec::new());
    let mut place = configured(cluster_enabled);
    let before = place.connect().and_then(|mut client| configuration(&mut client));
    let before = before.expect("CONFIG GET works");
    for path in scripts("") {
        let script = Script::load(&path).expect("scripts can be read");
        if reason(&script).is_some() {
            skipped += 1;
            continue;
        }
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            if script.only.is_some_and(|only| only != protocol) {
                continue;
            }
            run += 1;
            let result = check(&script, &mut place, protocol);
            if result.is_ok() == script.fails.is_some() {
                failures
                    .push(result.err().unwrap_or_else(|| format!("{}: passes", path.display())));
            }
            if let Err(error) = clean(&mut place, &before) {
                failures.push(format!("{}: not cleaned up: {error}", path.display()));
                place = configured(cluster_enabled);
            }
        }
    }
    assert!(failures.is_empty(), "{} of {run} failed\n{}", failures.len(), failures.join("\n"));
    assert!(run > 400 && skipped < 55, "{run} run, {skipped} skipped");
}

#[test]
fn every_exception_is_a_script() {
    for (part, _) in NEED_A_PROCESS {
        assert!(scripts(part).iter().any(|path| path.ends_with(part)), "there is no {part}");
    }
}
