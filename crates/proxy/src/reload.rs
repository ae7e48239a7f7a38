//! What is in force: pools, listeners, certificates; and reading the configuration again.
//!
//! A new configuration is prepared as a whole, certificates and listeners too, before anything
//! changes. A pool whose table is the same stays what it is, and with it all its connections.

use crate::config::{self, Config};
use crate::watch;
use forward::hub::{Common, Layout};
use forward::pool::Shared;
use forward::settings::{Address, Invalid, ListenerTls, Pool, PoolKind, ServerTls};
use net::{ListenSpec, Net, Tag, TlsContext};
use rustls::ClientConfig;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use structs::sync::lock;

/// What all parts of the process see.
pub struct Service {
    /// What the threads share.
    pub common: Arc<Common>,
    /// When it began.
    pub started: Instant,
    net: Arc<Net>,
    file: PathBuf,
    /// What is in force.
    config: Mutex<Config>,
}

/// A configuration that can come into force.
struct Prepared {
    layout: Layout,
    /// Pools that are new or have changed.
    fresh: Vec<Arc<Shared>>,
    listeners: Vec<ListenSpec>,
    /// What listeners encrypt with, by the pools' tags.
    contexts: Vec<(Tag, Option<Arc<TlsContext>>)>,
    /// What connections to the servers of each pool are encrypted with.
    rules: Vec<(Arc<Shared>, Option<Arc<ClientConfig>>)>,
}

fn listener(address: &Address, kind: net::Kind, pool: usize) -> ListenSpec {
    let spec = match address {
        Address::Tcp(host, port) => {
            let address = net::Address::Tcp { host: host.clone(), port: *port };
            ListenSpec { kind, address, optional: false, tag: Tag::default() }
        }
        Address::Unix(path, mode) => ListenSpec::unix(path, mode.unwrap_or(0), None),
    };
    spec.tagged(Tag(pool as u32))
}

/// Prepares a configuration; pools keep their places in `current`.
fn prepare(current: &Layout, config: &Config) -> Result<Prepared, String> {
    let mut prepared = Prepared {
        layout: vec![None; current.len()],
        fresh: Vec::new(),
        listeners: Vec::new(),
        contexts: Vec::new(),
        rules: Vec::new(),
    };
    for pool in &config.pools {
        let has_its_name = |shared: &Option<Arc<Shared>>| {
            shared.as_ref().is_some_and(|shared| shared.config.name == pool.name)
        };
        let known = current.iter().position(has_its_name);
        let kept = known.and_then(|at| current[at].clone()).filter(|old| old.config == *pool);
        let at = known.unwrap_or_else(|| {
            prepared.layout.push(None);
            prepared.layout.len() - 1
        });
        let shared = kept.unwrap_or_else(|| {
            let shared = Shared::new(pool.clone());
            if let Some(old) = known.and_then(|at| current[at].as_ref()) {
                shared.inherit(old);
            }
            prepared.fresh.push(shared.clone());
            shared
        });
        prepared.add(at, &shared, pool).map_err(|why| format!("pool '{}': {why}", pool.name))?;
    }
    Ok(prepared)
}

impl Prepared {
    fn add(&mut self, at: usize, shared: &Arc<Shared>, pool: &Pool) -> Result<(), String> {
        let text = |why: Invalid| why.to_string();
        let context = pool.tls.as_ref().map(ListenerTls::load).transpose();
        self.contexts.push((Tag(at as u32), context.map_err(text)?));
        let rules = pool.server_tls.as_ref().map(ServerTls::load).transpose();
        self.rules.push((shared.clone(), rules.map_err(text)?));
        let plain = pool.listen.iter().map(|address| listener(address, net::Kind::Tcp, at));
        let tls = pool.listen_tls.iter().map(|address| listener(address, net::Kind::Tls, at));
        self.listeners.extend(plain.chain(tls));
        self.layout[at] = Some(shared.clone());
        Ok(())
    }
}

/// Begins to ask sentinels or nodes, where a pool has them.
fn begin_to_watch(shared: &Arc<Shared>, log: fn(&str)) -> Result<(), String> {
    let shared = shared.clone();
    process::thread::spawn("watch", move || watch::run(&shared, log))
        .map(drop)
        .map_err(|why| format!("a thread cannot start: {why}"))
}

fn is_watched(shared: &Shared) -> bool {
    matches!(shared.config.kind, PoolKind::Sentinel { .. } | PoolKind::Cluster { .. })
}

impl Service {
    /// Makes a service without pools. `file` is where the configuration is read again from.
    pub fn new(common: Arc<Common>, net: Arc<Net>, file: PathBuf) -> Service {
        let config = Mutex::new(Config::default());
        Service { common, started: Instant::now(), net, file, config }
    }

    /// Puts a configuration into force.
    ///
    /// # Errors
    /// Why it cannot come into force. Nothing has changed then.
    pub fn apply(&self, config: Config) -> Result<(), String> {
        self.apply_over(&mut lock(&self.config), config)
    }

    fn apply_over(&self, in_force: &mut Config, config: Config) -> Result<(), String> {
        let (_, current) = self.common.layout();
        let prepared = prepare(&current, &config)?;
        for shared in &prepared.fresh {
            let rules = prepared.rules.iter().find(|(of, _)| Arc::ptr_eq(of, shared));
            shared.set_server_rules(0, rules.and_then(|(_, rules)| rules.clone()));
            if is_watched(shared) {
                watch::ask_once(shared);
            }
        }
        // A listener may not be open before there is a certificate.
        for (tag, context) in &prepared.contexts {
            if self.net.tls(*tag).is_none() {
                self.net.set_tls(*tag, context.clone());
            }
        }
        self.common.set_layout(prepared.layout.clone(), || {
            self.net.rebind(&prepared.listeners).map_err(|why| why.to_string())
        })?;
        self.net.wake_all();
        for (tag, context) in prepared.contexts {
            self.net.set_tls(tag, context);
        }
        for (shared, rules) in prepared.rules {
            shared.set_server_rules(0, rules);
        }
        for old in current.iter().flatten() {
            let stays = prepared.layout.iter().flatten().any(|new| Arc::ptr_eq(old, new));
            old.is_retired.store(!stays, SeqCst);
        }
        for shared in prepared.fresh.iter().filter(|shared| is_watched(shared)) {
            begin_to_watch(shared, self.common.log)?;
        }
        *in_force = config;
        Ok(())
    }

    /// Reads the file again and writes the outcome to the log.
    pub fn reload(&self) {
        let file = self.file.display();
        let outcome = config::read(&self.file, &self.common.commands);
        let outcome = outcome.map_err(|why| why.to_string()).and_then(|config| {
            let mut in_force = lock(&self.config);
            let before = in_force.clone();
            self.apply_over(&mut in_force, config).map(|()| describe(&before, &in_force))
        });
        match outcome {
            Ok(what) => (self.common.log)(&format!("configuration '{file}' reloaded: {what}")),
            Err(why) => (self.common.log)(&format!(
                "configuration '{file}' is refused, the old one stays in force: {why}"
            )),
        }
    }
}

/// Returns what differs between two configurations, for the log.
fn describe(before: &Config, after: &Config) -> String {
    let named = |config: &Config, name: &str| -> Option<Pool> {
        config.pools.iter().find(|pool| pool.name == name).cloned()
    };
    let mut parts = Vec::new();
    for pool in &after.pools {
        match named(before, &pool.name) {
            None => parts.push(format!("pool {} is new", pool.name)),
            Some(old) if old != *pool => parts.push(format!("pool {} has changed", pool.name)),
            Some(_) => {}
        }
    }
    for pool in before.pools.iter().filter(|pool| named(after, &pool.name).is_none()) {
        parts.push(format!("pool {} is gone", pool.name));
    }
    if before.threads != after.threads || before.admin != after.admin {
        parts.push("'threads' and 'admin' take effect at the next start".to_owned());
    }
    if parts.is_empty() {
        parts.push("nothing has changed but, perhaps, certificates".to_owned());
    }
    parts.join("; ")
}
