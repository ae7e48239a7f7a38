//! What two servers hold that should hold the same.

use harness::contents::{Contents, contents};
use harness::server::Server;
use std::fmt::Write as _;
use std::fs;
use std::iter;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A time until which two servers will have been looked at, in milliseconds since the epoch.
pub fn soon() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
    i64::try_from(now).unwrap() + 60_000
}

/// What a server holds that loads these files of a log, but for what does not last until `soon`.
pub fn load(
    loader: &mut Server,
    from: &Path,
    base: &str,
    increments: &[String],
    soon: i64,
) -> Contents {
    let folder = loader.directory().join("appendonlydir");
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    let mut manifest = String::new();
    let files = iter::once(base).chain(increments.iter().map(String::as_str));
    for (seq, name) in files.enumerate() {
        fs::copy(from.join(name), folder.join(name)).unwrap();
        let kind = if seq == 0 { 'b' } else { 'i' };
        _ = writeln!(manifest, "file {name} seq {} type {kind}", seq.max(1));
    }
    fs::write(folder.join("appendonly.aof.manifest"), manifest).unwrap();
    what_lasts(loader, soon)
}

/// What a server holds that starts with the files in its directory, but for what does not last
/// until `soon`.
pub fn what_lasts(loader: &mut Server, soon: i64) -> Contents {
    loader.start_again().unwrap();
    let mut found = contents(&mut loader.client());
    found.retain(|_, (_, expiry)| *expiry == -1 || *expiry > soon);
    loader.kill().unwrap();
    found
}

/// Requires that a snapshot holds what the history makes, whose last part is in `log`.
pub fn assert_same(what: &str, history: &Contents, snapshot: &Contents, log: &[u8]) {
    let keys = history.keys().chain(snapshot.keys());
    let differing: Vec<_> = keys
        .filter(|key| history.get(*key) != snapshot.get(*key))
        .map(|key| differing(key, history, snapshot, log))
        .collect();
    assert!(
        differing.is_empty(),
        "{what}: history has {} keys, the snapshot {}:\n{}",
        history.len(),
        snapshot.len(),
        differing.join("\n"),
    );
}

/// What to say of a key whose value differs: both values, and the last that the log has of it.
fn differing(key: &(u32, Vec<u8>), history: &Contents, snapshot: &Contents, log: &[u8]) -> String {
    let (db, name) = (key.0, key.1.escape_ascii().to_string());
    let text = log.escape_ascii().to_string().replace("\\r\\n", " ");
    let mention = format!(" {name} ");
    let mentions: Vec<usize> = text.match_indices(&mention).map(|(at, _)| at).collect();
    let last = mentions.iter().rev().take(12).rev().map(|&at| {
        let start = text[..at].rfind(" *").unwrap_or(0);
        let end = text[at..].find(" *").map_or(text.len(), |length| at + length);
        let line: String = text[start..end].chars().take(300).collect();
        format!("    @{start}/{}: {line}\n", text.len())
    });
    let short = |found: Option<&_>| {
        let text = format!("{found:?}");
        text.chars().take(1500).collect::<String>()
    };
    format!(
        "database {db}, key {name}:\n  history:  {}\n  snapshot: {}\n  the log:\n{}",
        short(history.get(key)),
        short(snapshot.get(key)),
        last.collect::<String>()
    )
}
