//! `import`: moves the keys of a server without a cluster into one.

use super::nodes::Cluster;
use super::{address_of, check, good, keys, misused, parse_address, step, warn};
use crate::options::{ClusterOptions, Options};
use crate::session::describe;
use crate::session::{Session, emit};
use client::Address;
use resp::Value;

/// Keys that a SCAN is asked for.
const SCAN_COUNT: &str = "1000";

/// `import HOST:PORT --cluster-from HOST:PORT`
pub fn run(options: &Options, wanted: &ClusterOptions, address: &str) -> Result<(), String> {
    let (host, port) = address_of(address)?;
    let from = wanted.from.as_deref();
    let from = from.ok_or_else(|| {
        misused("[ERR] Option '--cluster-from' is required for subcommand 'import'.")
    })?;
    let place = parse_address(from).ok_or_else(|| {
        misused(
            "[ERR] Invalid --cluster-from host. You need to pass a valid address (ie. \
             120.0.0.1:7000).",
        )
    })?;
    step(&format!(">>> Importing data from {from} to cluster {host}:{port}"));
    let mut cluster = super::cluster(options, &[address.to_owned()])?;
    check::ensure_fine(&mut cluster, wanted, "")?;
    let mut source = Source::connect(options, wanted, from, place)?;
    if source.ask(&["INFO"])?.text_or_error().contains("cluster_enabled:1") {
        return Err("[ERR] The source node should not be a cluster node.".into());
    }
    let size = source.ask(&["DBSIZE"])?.integer().unwrap_or_default();
    warn(&format!("*** Importing {size} keys from DB 0"));
    let mut owners = vec![None; super::SLOTS];
    for at in cluster.primaries() {
        cluster.nodes[at].slots.iter().for_each(|&slot| owners[usize::from(slot)] = Some(at));
    }
    let mut cursor = "0".to_owned();
    loop {
        let reply = source.ask(&["SCAN", &cursor, "COUNT", SCAN_COUNT])?;
        let [next, found] = reply.items() else {
            return Err(format!("Source {from} replied with something else than keys."));
        };
        for key in found.items().iter().filter_map(Value::bytes) {
            import(&mut cluster, &mut source, wanted, &owners, key)?;
        }
        cursor = next.text_or_error();
        if cursor == "0" {
            return Ok(());
        }
    }
}

fn import(
    cluster: &mut Cluster,
    source: &mut Source,
    wanted: &ClusterOptions,
    owners: &[Option<usize>],
    key: &[u8],
) -> Result<(), String> {
    let slot = cluster.nodes[0].ask(&[b"CLUSTER", &b"KEYSLOT"[..], key])?.integer();
    let slot = slot.and_then(|slot| usize::try_from(slot).ok());
    let owner = slot.and_then(|slot| owners.get(slot).copied().flatten());
    let owner = owner.ok_or("[ERR] A slot has no owner.")?;
    let target = &cluster.nodes[owner];
    emit(format!("Migrating {} to {target}: ", String::from_utf8_lossy(key)).as_bytes());
    let (port, timeout) = (target.port.to_string(), wanted.timeout_ms.to_string());
    let mut words: Vec<Vec<u8>> =
        vec![b"MIGRATE".to_vec(), target.host.clone().into(), port.into(), key.to_vec()];
    words.extend([b"0".to_vec(), timeout.into()]);
    // An empty key makes MIGRATE look for KEYS.
    if key.is_empty() {
        words[3] = Vec::new();
    }
    words.extend(wanted.copy.then(|| b"COPY".to_vec()));
    words.extend(wanted.replace.then(|| b"REPLACE".to_vec()));
    words.extend(keys::credentials(target));
    source.ask(&words)?;
    good("OK");
    Ok(())
}

/// The server that has the keys.
struct Source {
    session: Session,
    address: String,
}

impl Source {
    fn connect(
        options: &Options,
        wanted: &ClusterOptions,
        address: &str,
        (host, port): (String, u16),
    ) -> Result<Source, String> {
        let password = match &wanted.from_password {
            None if wanted.from_ask_password => crate::repl::ask_password(),
            password => password.clone(),
        };
        let user = wanted.from_user.clone();
        let options = Options { user, password, database: 0, ..options.clone() };
        let mut session = Session::new(options);
        session.place = Address::tcp(host, port);
        if session.connect() {
            Ok(Source { session, address: address.to_owned() })
        } else {
            Err(String::new())
        }
    }

    fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        let link = self.session.link.as_mut().ok_or_else(String::new)?;
        let reply = link.ask(words).map_err(|error| describe(&error));
        let reply = reply.map_err(|why| format!("Source {}: {why}", self.address))?;
        if reply.is_error() {
            let why = reply.text_or_error();
            return Err(format!("Source {} replied with error:\n{why}", self.address));
        }
        Ok(reply)
    }
}
