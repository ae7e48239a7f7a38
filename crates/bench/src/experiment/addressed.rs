//! `--cluster`: a load through the one address of three machines, beside one server and beside the
//! reference server's own cluster of three.

use super::machines::{self, Machines};
use super::runs::mean;
use super::servers::{Lab, Server, target};
use super::{Bench, PATIENCE};
use crate::generator::os;
use serde_json::json;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const SLOTS: usize = structs::crc16::SLOTS as usize;

/// A load that is put on one server, and on clusters.
pub struct Contest<'a> {
    /// What each server gets on its command line.
    pub arguments: &'a [&'a str],
    /// The same for a database: `data_persistence` of the interface.
    pub persistence: &'a str,
    /// The bytes that a database may have, all copies together.
    pub memory: u64,
    /// What was published of it.
    pub published: Option<&'a str>,
    /// Words of the generator that fill a server.
    pub fill: &'a str,
    /// Words of the generator that are measured.
    pub work: &'a str,
    /// How often.
    pub trials: u32,
}

/// All servers, one after the other: each has the machine to itself.
pub fn run(bench: &mut Bench<'_>, contest: &Contest<'_>) -> Result<(), String> {
    let name = bench.lab.reference_name().unwrap_or("reference").to_owned();
    let one_of_them = match bench.lab.reference(contest.arguments, None)? {
        Some(server) => {
            Some(contest.measure(bench, server.port, "", &format!("1 {name}"), None)?)
        }
        None => {
            bench.row("1 reference server", "requests/s", None, &[], &Lab::no_reference());
            None
        }
    };
    let nodes = reference_cluster(&mut bench.lab, contest.arguments)?;
    if let Some(node) = nodes.first() {
        let what = format!("{name}'s cluster of three, clients that know slots");
        contest.measure(bench, node.port, "--cluster", &what, one_of_them)?;
    }
    drop(nodes);
    {
        let server = bench.lab.dunlin(contest.arguments, None)?;
        contest.measure(bench, server.port, "", "Dunlin, every core", one_of_them)?;
    }
    let machines = Machines::start(&mut bench.lab, 2 * contest.memory)?;
    let kinds = [
        ("single", "", "Dunlin, one address of three machines"),
        ("cluster", "--cluster", "Dunlin, three machines, clients that know slots"),
    ];
    for (endpoint, words, what) in kinds {
        let port = bench.lab.free_port_with_next();
        machines.create(&json!({
            "name": endpoint,
            "port": port,
            "memory_size": contest.memory,
            "shards_count": machines.all.len(),
            "replication": false,
            "data_persistence": contest.persistence,
            "oss_cluster": endpoint == "cluster",
        }))?;
        contest.measure(bench, port, words, what, one_of_them)?;
    }
    Ok(())
}

impl Contest<'_> {
    /// Fills a server, measures it and makes a row of that. Returns its rate.
    fn measure(
        &self,
        bench: &mut Bench<'_>,
        port: u16,
        words: &str,
        what: &str,
        base: Option<f64>,
    ) -> Result<f64, String> {
        bench.measure(port, &format!("{} {words}", self.fill))?;
        let rates = bench.rates(port, &format!("{} {words}", self.work), self.trials)?;
        let remark = base.map_or(String::new(), |base| {
            format!("{:.2} × one reference server", mean(&rates) / base)
        });
        bench.row(what, "requests/s", self.published, &rates, &remark);
        Ok(mean(&rates))
    }
}

/// The memory of a database with so many small values, with room to spare.
pub fn memory_for(keys: u64, value_bytes: u64) -> u64 {
    (keys * (value_bytes + 200)).max(512 * MIB)
}

/// A cluster of three reference servers without replicas; empty if there is no such program.
fn reference_cluster(lab: &mut Lab, arguments: &[&str]) -> Result<Vec<Server>, String> {
    let (mut nodes, mut first) = (Vec::new(), None);
    for _ in 0..machines::NAMES.len() {
        // By default it is ten thousand above the server's, among those of outgoing connections.
        let bus = lab.free_port().to_string();
        let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus];
        let Some(node) = lab.reference(&[&cluster[..], arguments].concat(), None)? else { break };
        first.get_or_insert((node.port.to_string(), bus));
        nodes.push(node);
    }
    let Some((port, bus)) = first else { return Ok(nodes) };
    for (number, node) in nodes.iter().enumerate() {
        let (from, to) = (number * SLOTS / nodes.len(), (number + 1) * SLOTS / nodes.len() - 1);
        accepted(node.port, &["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
        accepted(node.port, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
    }
    let deadline = Instant::now() + PATIENCE;
    for node in &nodes {
        while !is_whole(node.port, nodes.len())? {
            if os::interrupted() {
                return Err("interrupted".into());
            }
            if Instant::now() > deadline {
                return Err("the reference servers do not become a cluster".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(nodes)
}

fn accepted(port: u16, words: &[&str]) -> Result<(), String> {
    let refuse = |error: std::io::Error| format!("port {port}: {error}");
    let reply = target(port).connect().and_then(|mut client| client.ask(words)).map_err(refuse)?;
    match reply.error() {
        Some(text) => Err(format!("port {port}: {}: {text}", words.join(" "))),
        None => Ok(()),
    }
}

/// Whether a node of a cluster of so many knows of all slots and serves.
fn is_whole(port: u16, nodes: usize) -> Result<bool, String> {
    let refuse = |error: std::io::Error| format!("port {port}: {error}");
    let mut client = target(port).connect().map_err(refuse)?;
    let info = client.order(&["CLUSTER", "INFO"]).map_err(refuse)?.text();
    let size = format!("cluster_size:{nodes}\r\n");
    Ok(info.contains("cluster_state:ok\r\n") && info.contains(&size))
}
