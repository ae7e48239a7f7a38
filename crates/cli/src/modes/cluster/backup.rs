//! `backup`: a snapshot of each primary, and who has which slots, in a directory.

use super::node::{Node, listed};
use super::{address_of, check, good, step, warn};
use crate::flavor::Flavor;
use crate::modes::replica::{Contents, save};
use crate::options::{ClusterOptions, Options};
use crate::session::describe;
use std::path::Path;
use std::process::ExitCode;

/// `backup HOST:PORT DIRECTORY`
pub fn run(
    options: &Options,
    wanted: &ClusterOptions,
    address: &str,
    directory: &str,
) -> Result<(), String> {
    address_of(address)?;
    let mut cluster = super::cluster(options, &[address.to_owned()])?;
    check::show(&cluster);
    let findings = check::look(&mut cluster, wanted)?;
    let path = Path::new(directory);
    if !path.is_dir() {
        return Err(format!("[ERR] {directory} is not a valid directory"));
    }
    let described: Vec<String> =
        cluster.nodes.iter().map(|node| describe_node(node, findings.errors)).collect();
    for node in cluster.nodes.iter_mut().filter(|node| node.primary.is_none()) {
        step(&format!(">>> Node {node} -> Saving RDB..."));
        let name = snapshot_name(node);
        if save(&mut node.session, &path.join(name), Contents::Everything) != ExitCode::SUCCESS {
            return Err("[ERR] Failed to back cluster!".into());
        }
        // It sends what is written from now on.
        node.session.link = None;
    }
    let file = path.join("nodes.json");
    step(&format!("Saving cluster configuration to: {}", file.display()));
    std::fs::write(&file, format!("[\n{}\n]", described.join(",\n"))).map_err(|error| {
        format!("Could not save nodes to: {}: {}", file.display(), describe(&error))
    })?;
    if !findings.is_fine() {
        warn(
            "*** Cluster seems to have some problems, please be aware of it if you're going to \
             restore this backup.",
        );
    }
    good(&format!("[OK] Backup created into: {directory}"));
    Ok(())
}

fn snapshot_name(node: &Node) -> String {
    let program = match node.session.options.flavor {
        Flavor::Redis => "redis",
        Flavor::Valkey => "valkey",
        Flavor::Dunlin => "dunlin",
    };
    format!("{program}-node-{}-{}-{}.rdb", node.host, node.port, node.id)
}

/// The node as an object of JSON. No word of it needs an escape.
fn describe_node(node: &Node, errors: usize) -> String {
    let primary = node.primary.as_ref().map_or("null".to_owned(), |id| format!("\"{id}\""));
    let mut text = format!(
        "  {{\n    \"name\": \"{}\",\n    \"host\": \"{}\",\n    \"port\": {},\n    \"replicate\": \
         {primary},\n    \"slots\": [{}],\n    \"slots_count\": {},\n    \"flags\": \"{}\",\n    \
         \"current_epoch\": {}",
        node.id,
        node.host,
        node.port,
        listed(&node.slots).replace('-', ","),
        node.slots.len(),
        node.flags.join(","),
        node.epoch
    );
    if errors > 0 {
        text += &format!(",\n    \"cluster_errors\": {errors}");
    }
    for (open, state) in [(&node.migrating, "migrating"), (&node.importing, "importing")] {
        if !open.is_empty() {
            let pairs: Vec<String> =
                open.iter().map(|(slot, id)| format!("\"{slot}\": \"{id}\"")).collect();
            text += &format!(",\n    \"{state}\": {{{}}}", pairs.join(","));
        }
    }
    text + "\n  }"
}
