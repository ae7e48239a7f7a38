//! A node that keys are sent to by this server itself, as MIGRATE sends them.

use crate::bus;
use cluster::id::Id;
use cluster::topology::{Holder, Shard};
use cluster::view::View;
use engine::DbIndex;
use engine::Engine;
use engine::carrying::Carrier;
use std::sync::Arc;

/// For how long the target may take for a piece of what it is sent.
const TIMEOUT_MS: &str = "5000";

/// The node that keys go to.
#[derive(Clone)]
pub(super) struct Target {
    id: Id,
    engine: &'static Engine,
    pub host: String,
    pub port: String,
    /// How many of its replicas are there.
    copies: usize,
    /// Empty, or the words of MIGRATE about users and passwords.
    pub login: Vec<Vec<u8>>,
}

impl Target {
    /// Where a node takes keys, and how this server logs in there: as a replica does.
    pub(super) fn find(engine: &'static Engine, view: &View, node: Id) -> Result<Target, String> {
        let copy = view.topology.value.copies().find(|copy| copy.id == node);
        let address = &copy.ok_or("the target has gone")?.address;
        let copies = view.topology.value.shard_of(node).map_or(0, |shard| replicas(view, shard));
        let config = &&engine.config;
        let port = address.port_for(config.tls_cluster());
        let (user, password) = (config.primaryuser(), config.primaryauth());
        let (user, password): (&[u8], &[u8]) = (&user, &password);
        let login = match (user.is_empty(), password.is_empty()) {
            (_, true) => Vec::new(),
            (true, false) => vec![b"AUTH".to_vec(), password.to_vec()],
            (false, false) => vec![b"AUTH2".to_vec(), user.to_vec(), password.to_vec()],
        };
        Ok(Target {
            id: node,
            engine,
            host: address.host.clone(),
            port: port.to_string(),
            copies,
            login,
        })
    }

    /// Where MIGRATE finds it. While the bus is used it looks for a copy at this place: its present
    /// one, or none at all, rather than a server that is no copy and is reached without TLS.
    fn place(&self) -> (String, String) {
        match bus::address_of(self.engine, self.id) {
            None => (self.host.clone(), self.port.clone()),
            Some((host, port)) => (host, port.to_string()),
        }
    }

    /// How keys get there.
    pub(super) fn carrier(&self) -> Carrier {
        let target = self.clone();
        let request = move |db: DbIndex, keys: &[Box<[u8]>]| {
            let ((host, port), db) = (target.place(), db.0.to_string());
            let words = ["MIGRATE", &*host, &*port, "", &db, TIMEOUT_MS, "REPLACE"];
            let mut words: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).into();
            words.extend(target.login.iter().cloned());
            words.push(b"KEYS".to_vec());
            words.extend(keys.iter().map(|key| key.to_vec()));
            words
        };
        Carrier { copies: self.copies, request: Arc::new(request) }
    }
}

/// How many replicas of a shard are in step and alive.
pub(super) fn replicas(view: &View, shard: &Shard) -> usize {
    let replicas = shard.members().filter(|copy| copy.id != shard.holder.id);
    let is_there = |copy: &&cluster::topology::Replica| {
        let there = copy.member.map(|incarnation| Holder { id: copy.id, incarnation });
        there.is_some_and(|there| view.is_alive(there))
    };
    replicas.filter(is_there).count()
}
