//! `--hotkeys`: the keys that are used most, by the counters of an LFU policy.

use super::key_sizes::{percent, summary_title};
use super::scan::{Walk, ask_all, fail};
use crate::session::{Session, emit};
use std::process::ExitCode;

/// Scans and reports so many keys.
pub fn run(session: &mut Session, count: usize) -> ExitCode {
    emit(
        b"\n# Scanning the entire keyspace to find hot keys as well as\n\
          # average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n\
          # per 100 SCAN commands (not usually needed).\n\n",
    );
    let all = session.ask(&["DBSIZE"]).integer().unwrap_or_default() as u64;
    // From the coldest to the hottest.
    let mut hottest: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut sampled = 0;
    let mut walk = Walk::new(session);
    while let Some(keys) = walk.next(session) {
        let done = percent(sampled, all);
        let requests: Vec<_> = keys
            .iter()
            .map(|key| vec![b"OBJECT".to_vec(), b"FREQ".to_vec(), key.clone()])
            .collect();
        for (key, reply) in keys.iter().zip(ask_all(session, &requests)) {
            if reply.is_error() {
                fail(&format!("Error: {}", reply.text_or_error()));
            }
            sampled += 1;
            if sampled % 1_000_000 == 0 {
                println!("[{done:05.2}%] Sampled {sampled} keys so far");
            }
            // A key that is gone has no counter.
            let counter = reply.integer().unwrap_or_default() as u64;
            let place = hottest.partition_point(|(other, _)| *other < counter);
            if counter == 0 || (place == 0 && hottest.len() == count) {
                continue;
            }
            let mut name = Vec::new();
            crate::words::quote(&mut name, key);
            let shown = String::from_utf8_lossy(&name).into_owned();
            hottest.insert(place, (counter, name));
            if hottest.len() > count {
                hottest.remove(0);
            }
            println!("[{done:05.2}%] Hot key '{shown}' found so far with counter {counter}");
        }
        walk.pause(session);
    }
    println!("\n{}\n", summary_title(session));
    println!("Sampled {sampled} keys in the keyspace!");
    for (counter, name) in hottest.iter().rev() {
        let name = String::from_utf8_lossy(name);
        println!("hot key found with counter: {counter}\tkeyname: {name}");
    }
    ExitCode::SUCCESS
}
