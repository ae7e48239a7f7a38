//! Disks that fail while the server runs: full ones (a small tmpfs) and ones that refuse single
//! calls or do not come back from them (a library that is loaded first and does what a file tells
//! it to). Writes are refused and accepted again, what was acknowledged is there after a crash, the
//! log names file and cause, and no client waits for the disk without a promise.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

mod beginning;
mod faults;
mod full;
mod log;
mod preallocated;
mod snapshots;
mod waiting;

use harness::client::{Client, ask, ok};
use harness::info::field;
use harness::reply::Reply;
use harness::server::Server;
use harness::wait::eventually;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Checks that clients are told nothing while the server serves others, on each of its threads and
/// for many turns. In each of them it could have told them.
#[track_caller]
fn hear_nothing(server: &Server, waiting: &mut [Client], why: &str) {
    let mut others: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for _ in 0..30 {
        for other in &mut others {
            assert_eq!(ask(other, "PING").shown(), "PONG");
        }
        let told = waiting.iter_mut().position(|client| client.has_data().unwrap());
        assert_eq!(told, None, "{why}");
    }
}

fn rewrite(server: &Server, client: &mut Client, end: &str) {
    let before = server.log();
    ok(client, "BGREWRITEAOF");
    server.logs_after(&before, end);
    eventually("over", || field(client, "aof_rewrite_in_progress") == "0");
}

const DONE: &str = "Background AOF rewrite finished successfully";
const FAILED: &str = "Background AOF rewrite terminated with error";

/// The list has an element for each acknowledged write, in order, and none twice.
#[track_caller]
fn check_list(server: &Server, count: usize) {
    let reply = ask(&mut server.client(), "LRANGE list 0 -1");
    let found: Vec<String> = reply.elements().unwrap().iter().map(Reply::shown).collect();
    let wanted: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    assert_eq!(found, wanted);
}

/// Waits until all that was acknowledged is in the log (not necessarily on the disk).
#[track_caller]
fn written(folder: &Path, client: &mut Client) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let token = format!("token:{}.", COUNT.fetch_add(1, Relaxed));
    ok(client, &format!("SET {token} 1"));
    let holds = |path: PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(token.len()).any(|part| part == token.as_bytes())
    };
    eventually("written", || {
        let files = fs::read_dir(folder.join("appendonlydir")).unwrap().flatten();
        files.map(|entry| entry.path()).any(holds)
    });
}

fn crash(server: &mut Server) {
    server.kill().unwrap();
    server.start_again().unwrap();
}

/// Whether the directory of the log has a file whose name begins so.
fn has_file(server: &Server, name: &str) -> bool {
    let files = fs::read_dir(server.directory().join("appendonlydir"));
    let mut names = files.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.any(|file| file.to_string_lossy().starts_with(name))
}
