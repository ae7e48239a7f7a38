//! What a configuration says. Two formats lead here: Twemproxy's YAML and our own TOML.

pub mod native;
pub mod nutcracker;
use forward::hub::Commands;
use forward::settings::{Address, Invalid, Pool, PoolKind, Reads, Server};
use std::path::Path;

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Threads that serve clients; 0 for one a processor.
    pub threads: usize,
    /// Where `/metrics`, `/healthz` and `/readyz` are answered.
    pub admin: Option<Admin>,
    /// The pools, in the file's order.
    pub pools: Vec<Pool>,
}

/// The admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// A host and a port.
    pub address: String,
    /// Whether other machines may see more than probes.
    pub is_open: bool,
    /// Names under which it answers beside addresses and localhost; one that begins with a dot stands
    /// for all that end so.
    pub names: Vec<String>,
}

/// Reads a file: TOML if its name ends in `.toml`, else Twemproxy's YAML.
///
/// # Errors
/// What is wrong with it.
pub fn read(path: &Path, commands: &Commands) -> Result<Config, Invalid> {
    let text = std::fs::read_to_string(path).map_err(|why| Invalid(why.to_string()))?;
    let config = if path.extension().is_some_and(|ending| ending == "toml") {
        native::parse(&text)
    } else {
        nutcracker::parse(&text)
    }?;
    check(&config)?;
    for pool in &config.pools {
        check_commands(pool, commands)
            .map_err(|why| Invalid(format!("pool '{}': {why}", pool.name)))?;
    }
    Ok(config)
}

const NO_REPLICAS: &str = "'reads' is for kinds that know replicas, sentinel and cluster";

/// What both formats have to observe.
fn check(config: &Config) -> Result<(), Invalid> {
    if config.pools.is_empty() {
        return Err(Invalid("there is no pool".into()));
    }
    let mut listens = Vec::new();
    for pool in &config.pools {
        let refuse = |why: String| Err(Invalid(format!("pool '{}': {why}", pool.name)));
        if pool.listen.is_empty() && pool.listen_tls.is_empty() {
            return refuse("it listens nowhere; set 'listen' or 'listen_tls'".into());
        }
        check_tls(pool).or_else(|Invalid(why)| refuse(why))?;
        for address in pool.listen.iter().chain(&pool.listen_tls) {
            if listens.contains(&address) {
                return refuse(format!("another pool listens on {address}, too"));
            }
            listens.push(address);
        }
        match &pool.kind {
            PoolKind::Servers(servers) => {
                if servers.is_empty() {
                    return refuse("it has no servers".into());
                }
                let mut names: Vec<&str> = servers.iter().map(|s| &s.member.name[..]).collect();
                names.sort_unstable();
                if pool.reads != Reads::Primary {
                    return refuse(NO_REPLICAS.into());
                }
                if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                    return refuse(format!("two servers are called '{}'", pair[0]));
                }
            }
            PoolKind::Sentinel { sentinels, .. } if sentinels.is_empty() => {
                return refuse("it has no sentinels".into());
            }
            PoolKind::Cluster { seeds } if seeds.is_empty() => {
                return refuse("it has no seeds".into());
            }
            PoolKind::Single(_) if pool.reads != Reads::Primary => {
                return refuse(NO_REPLICAS.into());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses names in `allow` and `deny` that would have no effect.
fn check_commands(pool: &Pool, commands: &Commands) -> Result<(), String> {
    for (key, names) in [("allow", &pool.allow), ("deny", &pool.deny)] {
        for name in names {
            let why = match commands.has(name) {
                true => continue,
                false if name.starts_with('=') => continue,
                false if name.starts_with('@') => "is a category; name its commands",
                false if name.contains('|') => "is no subcommand",
                // The names of modules' commands have a dot.
                false if name.contains('.') => continue,
                false => "is no command; put = before the name of one that only the servers know",
            };
            return Err(format!("'{key}': '{}' {why}", name.to_lowercase()));
        }
    }
    Ok(())
}

/// Returns whether all files of certificates can be used.
fn check_tls(pool: &Pool) -> Result<(), Invalid> {
    match &pool.tls {
        Some(tls) => drop(tls.load()?),
        None if pool.listen_tls.is_empty() => {}
        None => return Err(Invalid("'listen_tls' needs a certificate; set 'tls'".into())),
    }
    if let Some(path) = pool.listen_tls.iter().find(|at| matches!(at, Address::Unix(..))) {
        return Err(Invalid(format!("{path}: a Unix socket does not speak TLS")));
    }
    if let Some(tls) = &pool.server_tls {
        let rules = tls.load()?;
        let servers: &[Server] = match &pool.kind {
            PoolKind::Servers(servers) => servers,
            PoolKind::Single(server) => std::slice::from_ref(server),
            _ => &[],
        };
        for server in servers {
            tls.client(&rules, &server.address)?;
        }
    }
    if pool.sentinel_tls && pool.server_tls.is_none() {
        return Err(Invalid("'sentinel_tls' needs 'server_tls'".into()));
    }
    Ok(())
}
