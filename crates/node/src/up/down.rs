//! `dunlin cluster down`: ends the node, the copies and etcd of a directory. Their data stay.

use super::kept::Lock;
use crate::settings::Wrong;
use clap::Args;
use process::beside;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long processes may take to end before they are killed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the node, the copies and etcd of this machine. Their data stay; `up` with the same --dir
/// starts them again.
#[derive(Args, Clone, Debug)]
pub struct DownOptions {
    /// The cluster's name
    #[arg(long, default_value = "dunlin")]
    name: String,
    /// The directory of the machine [default: dunlin-NAME]
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// See [`DownOptions`].
///
/// # Errors
/// There is no such directory.
pub fn down(options: &DownOptions) -> Result<(), Wrong> {
    let directory =
        options.dir.clone().unwrap_or_else(|| format!("dunlin-{}", options.name).into());
    let directory = directory.canonicalize().map_err(|error| {
        let there = directory.display();
        Wrong(format!("{there}: {error}: name the machine's directory with --dir"))
    })?;
    let nodes: Vec<u32> = Lock::holder(&directory).into_iter().collect();
    end("node", &nodes, || Lock::holder(&directory).is_none());
    for (what, folder) in [("copies", "copies"), ("etcd", "etcd")] {
        let folder = directory.join(folder);
        let processes: Vec<(u32, PathBuf)> = below(&folder);
        let ids: Vec<u32> = processes.iter().map(|(id, _)| *id).collect();
        end(what, &ids, || processes.iter().all(|(id, there)| is_gone(*id, there)));
    }
    Ok(())
}

/// The processes that work in a folder or below it: copies and etcd, as the node started them.
fn below(folder: &Path) -> Vec<(u32, PathBuf)> {
    // The shell that ends it may know of no etcd: this one is then named as Debian names it.
    let etcd = crate::own_etcd::find_program().unwrap_or_else(|_| "etcd".into());
    let programs = beside::own_program().ok().into_iter().chain([etcd]);
    let names = programs.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let found = names.flat_map(|name| beside::with_program(&name));
    found.filter(|(id, there)| there.starts_with(folder) && *id != std::process::id()).collect()
}

fn is_gone(id: u32, there: &Path) -> bool {
    beside::directory(id).as_deref() != Some(there)
}

fn end(what: &str, ids: &[u32], is_over: impl Fn() -> bool) {
    if ids.is_empty() {
        return;
    }
    println!(
        "Ending {what}: process {}",
        ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    );
    ids.iter().for_each(|&id| beside::terminate(id));
    let began = Instant::now();
    while !is_over() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    if !is_over() {
        ids.iter().for_each(|&id| beside::kill(id));
    }
}
