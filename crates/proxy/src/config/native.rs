//! Our own format, for what Twemproxy's has no words for; see `docs/proxy.md`.

use super::{Admin, Config};
use forward::placement::hash::Hash;
use forward::placement::{Distribution, Member};
use forward::settings::{
    Address, Invalid, Limits, ListenerTls, Login, Pool, PoolKind, Reads, Server, ServerTls,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a reply may take where nothing is said: a server that stands still holds its clients no
/// longer.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    threads: usize,
    admin: Option<String>,
    #[serde(default)]
    admin_open: bool,
    #[serde(default)]
    admin_hosts: Vec<String>,
    #[serde(default)]
    pool: BTreeMap<String, Table>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Servers,
    Single,
    Sentinel,
    Cluster,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum ReadsName {
    Primary,
    Replicas,
    All,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: KindName,
    #[serde(default)]
    listen: Vec<String>,
    #[serde(default)]
    listen_tls: Vec<String>,
    tls: Option<ListenerTls>,
    server_tls: Option<ServerTls>,
    #[serde(default)]
    sentinel_tls: bool,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    #[serde(default)]
    servers: Vec<Line>,
    server: Option<String>,
    #[serde(default)]
    sentinels: Vec<String>,
    master: Option<String>,
    #[serde(default)]
    seeds: Vec<String>,
    hash: Option<String>,
    hash_tag: Option<String>,
    distribution: Option<String>,
    timeout_ms: Option<u64>,
    backlog: Option<u32>,
    keepalive: Option<bool>,
    server_connections: Option<u16>,
    reads: Option<ReadsName>,
    max_lag_bytes: Option<u64>,
    #[serde(default)]
    preconnect: bool,
    user: Option<String>,
    password: Option<String>,
    client_user: Option<String>,
    client_password: Option<String>,
    #[serde(default)]
    db: u32,
    #[serde(default)]
    eject: bool,
    failure_limit: Option<u32>,
    retry_ms: Option<u64>,
    #[serde(default)]
    strict: bool,
    #[serde(default)]
    proxy_protocol: bool,
    max_clients: Option<usize>,
    max_exclusive: Option<usize>,
    client_backlog_bytes: Option<usize>,
    client_output_bytes: Option<usize>,
    server_queue_bytes: Option<usize>,
    queue_bytes: Option<usize>,
    request_bytes: Option<usize>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    address: String,
    name: Option<String>,
    weight: Option<u32>,
}

/// Reads a file's text.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Config, Invalid> {
    let file: File = toml::from_str(text).map_err(|why| Invalid(why.to_string()))?;
    let mut config = Config {
        threads: file.threads,
        admin: file.admin.map(|address| Admin {
            address,
            is_open: file.admin_open,
            names: file.admin_hosts,
        }),
        pools: Vec::new(),
    };
    for (name, table) in &file.pool {
        let pool =
            table.pool(name).map_err(|Invalid(why)| Invalid(format!("pool '{name}': {why}")))?;
        config.pools.push(pool);
    }
    Ok(config)
}

fn address(text: &str) -> Result<Address, Invalid> {
    Address::parse(text).ok_or_else(|| Invalid(format!("'{text}' is no address")))
}

fn addresses(texts: &[String]) -> Result<Vec<Address>, Invalid> {
    texts.iter().map(|text| address(text)).collect()
}

fn login(user: Option<&String>, password: Option<&String>) -> Option<Login> {
    password.map(|password| Login { user: user.cloned(), password: password.clone() })
}

fn capitals(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.to_uppercase()).collect()
}

impl Table {
    fn kind(&self) -> Result<PoolKind, Invalid> {
        Ok(match self.kind {
            KindName::Servers => {
                let servers: Result<Vec<Server>, Invalid> =
                    self.servers.iter().map(Line::server).collect();
                PoolKind::Servers(servers?)
            }
            KindName::Single => {
                let text = self.server.as_ref();
                let text = text.ok_or_else(|| Invalid("set 'server'".into()))?;
                let member = Member { name: text.clone(), weight: 1 };
                PoolKind::Single(Server { address: address(text)?, member })
            }
            KindName::Sentinel => PoolKind::Sentinel {
                sentinels: addresses(&self.sentinels)?,
                master: self.master.clone().ok_or_else(|| Invalid("set 'master'".into()))?,
            },
            KindName::Cluster => PoolKind::Cluster { seeds: addresses(&self.seeds)? },
        })
    }

    fn pool(&self, name: &str) -> Result<Pool, Invalid> {
        let mut pool = Pool::new(name, self.kind()?);
        pool.listen = addresses(&self.listen)?;
        pool.listen_tls = addresses(&self.listen_tls)?;
        pool.tls.clone_from(&self.tls);
        pool.server_tls.clone_from(&self.server_tls);
        pool.sentinel_tls = self.sentinel_tls;
        pool.sentinel_login = login(self.sentinel_user.as_ref(), self.sentinel_password.as_ref());
        if let Some(hash) = &self.hash {
            let known = Hash::named(hash);
            pool.keys.hash = known.ok_or_else(|| Invalid(format!("hash '{hash}' is unknown")))?;
        }
        if let Some(tag) = &self.hash_tag {
            let [open, close] = tag.as_bytes()[..] else {
                return Err(Invalid("'hash_tag' is two characters".into()));
            };
            pool.keys.tag = Some([open, close]);
        }
        if let Some(distribution) = &self.distribution {
            let known = Distribution::named(distribution);
            let unknown = || Invalid(format!("distribution '{distribution}' is unknown"));
            pool.distribution = known.ok_or_else(unknown)?;
        }
        match self.timeout_ms {
            None => pool.timeout = Some(DEFAULT_TIMEOUT),
            Some(0) => {}
            Some(ms) => pool.set_timeout(Some(Duration::from_millis(ms))),
        }
        pool.backlog = self.backlog.unwrap_or(pool.backlog);
        (pool.keepalive, pool.preconnect) = (self.keepalive.unwrap_or(true), self.preconnect);
        pool.server_connections = self.server_connections.unwrap_or(1).max(1);
        pool.reads = match self.reads {
            None | Some(ReadsName::Primary) => Reads::Primary,
            Some(ReadsName::Replicas) => Reads::Replicas,
            Some(ReadsName::All) => Reads::All,
        };
        pool.max_lag = self.max_lag_bytes.unwrap_or(pool.max_lag);
        pool.login = login(self.user.as_ref(), self.password.as_ref());
        pool.client_login = login(self.client_user.as_ref(), self.client_password.as_ref());
        pool.db = self.db;
        pool.ejection.is_on = self.eject;
        pool.ejection.failure_limit = self.failure_limit.unwrap_or(2).max(1);
        let retry_after = self.retry_ms.map(Duration::from_millis);
        pool.ejection.retry_after = retry_after.unwrap_or(pool.ejection.retry_after);
        (pool.is_strict, pool.proxy_protocol) = (self.strict, self.proxy_protocol);
        pool.limits = self.limits();
        (pool.allow, pool.deny) = (capitals(&self.allow), capitals(&self.deny));
        Ok(pool)
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            clients: self.max_clients,
            exclusive: self.max_exclusive.unwrap_or(default.exclusive),
            client_backlog: self.client_backlog_bytes.unwrap_or(default.client_backlog),
            client_output: self.client_output_bytes.unwrap_or(default.client_output),
            server_queue: self.server_queue_bytes.unwrap_or(default.server_queue),
            queue: self.queue_bytes.unwrap_or(default.queue),
            request: self.request_bytes.unwrap_or(default.request),
            long: default.long,
        }
    }
}

impl Line {
    fn server(&self) -> Result<Server, Invalid> {
        let name = self.name.clone().unwrap_or_else(|| self.address.clone());
        let member = Member { name, weight: self.weight.unwrap_or(1).max(1) };
        Ok(Server { address: address(&self.address)?, member })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_every_kind_are_read() {
        let config = parse(
            r#"
threads = 2
admin = "127.0.0.1:9000"
[pool.a]
kind = "servers"
listen = ["127.0.0.1:1", "/tmp/a.sock"]
hash_tag = "{}"
deny = ["flushall"]
servers = [{ address = "127.0.0.1:6379", name = "one" }, { address = "127.0.0.1:6380", weight = 2 }]
[pool.b]
kind = "single"
listen = ["127.0.0.1:2"]
server = "127.0.0.1:6379"
[pool.c]
kind = "sentinel"
listen = ["127.0.0.1:3"]
sentinels = ["127.0.0.1:26379"]
master = "mymaster"
[pool.d]
kind = "cluster"
listen = ["127.0.0.1:4"]
seeds = ["127.0.0.1:7000"]
"#,
        )
        .expect("valid");
        assert_eq!(config.pools.len(), 4);
        assert_eq!(config.pools[0].deny, ["FLUSHALL"]);
        assert!(matches!(config.pools[3].kind, PoolKind::Cluster { .. }));
        let timeouts = |more: &str| {
            let single = "[pool.a]\nkind = \"single\"\nlisten = [\"127.0.0.1:1\"]\n";
            let text = format!("{single}server = \"127.0.0.1:2\"\n{more}");
            let pool = parse(&text).expect("valid").pools.remove(0);
            (pool.timeout.map(|t| t.as_secs()), pool.connect_timeout.as_secs())
        };
        assert_eq!(timeouts(""), (Some(60), 5));
        assert_eq!(timeouts("timeout_ms = 0"), (None, 5));
        assert_eq!(timeouts("timeout_ms = 2000"), (Some(2), 2));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| parse(text).expect_err("invalid").0;
        assert!(wrong("treads = 1").contains("treads"));
        let single = "[pool.a]\nkind = \"single\"\nlisten = [\"127.0.0.1:1\"]\n";
        assert!(wrong(single).contains("set 'server'"));
        assert!(wrong(&format!("{single}server = \"x\"")).contains("'x' is no address"));
    }
}
