//! Twemproxy's configuration, version 0.5, unchanged.
//!
//! A pool is a map at the top. A server is `host:port:weight [name]`. Without a name its address is
//! the name that ketama's points are made of.

use super::Config;
use ::config::yaml::{self, Yaml};
use forward::placement::hash::Hash;
use forward::placement::{Distribution, Member};
use forward::settings::{Address, Invalid, Login, Pool, PoolKind, Server};
use std::time::Duration;

/// Reads a file's text.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Config, Invalid> {
    let documents = yaml::load(text).map_err(Invalid)?;
    let [Yaml::Hash(top)] = &documents[..] else {
        return Err(Invalid("a map of pools is expected".into()));
    };
    let mut config = Config::default();
    for (name, pool) in top {
        let name = scalar(name).ok_or_else(|| Invalid("a pool's name is expected".into()))?;
        let pool = read_pool(&name, pool)
            .map_err(|Invalid(why)| Invalid(format!("pool '{name}': {why}")))?;
        config.pools.push(pool);
    }
    Ok(config)
}

/// A word or number as it was written, as Twemproxy sees it.
fn scalar(value: &Yaml) -> Option<String> {
    Some(match value {
        Yaml::String(text) | Yaml::Real(text) => text.clone(),
        Yaml::Integer(number) => number.to_string(),
        Yaml::Boolean(value) => value.to_string(),
        _ => return None,
    })
}

fn invalid<T>(key: &str, what: &str) -> Result<T, Invalid> {
    Err(Invalid(format!("'{key}': {what}")))
}

fn read_pool(name: &str, value: &Yaml) -> Result<Pool, Invalid> {
    let Yaml::Hash(map) = value else { return Err(Invalid("a map is expected".into())) };
    let mut pool = Pool::new(name, PoolKind::Servers(Vec::new()));
    let (mut is_redis, mut has_servers) = (false, false);
    for (key, value) in map {
        let key = scalar(key).unwrap_or_default();
        if key == "servers" {
            let Yaml::Array(lines) = value else { return invalid(&key, "a list is expected") };
            let servers: Result<Vec<Server>, Invalid> = lines.iter().map(read_server).collect();
            (pool.kind, has_servers) = (PoolKind::Servers(servers?), true);
            continue;
        }
        let Some(text) = scalar(value) else { return invalid(&key, "one value is expected") };
        if key == "redis" {
            is_redis = boolean(&key, &text)?;
        } else {
            set(&mut pool, &key, &text)?;
        }
    }
    if !is_redis {
        return Err(Invalid(
            "it speaks memcached ('redis' is not true), which this proxy does not; set 'redis: true' \
             if its servers speak Redis's protocol"
                .into(),
        ));
    }
    if !has_servers {
        return Err(Invalid("it has no 'servers'".into()));
    }
    Ok(pool)
}

fn set(pool: &mut Pool, key: &str, text: &str) -> Result<(), Invalid> {
    match key {
        "listen" => match Address::parse(text) {
            Some(address) => pool.listen = vec![address],
            None => return invalid(key, "host:port or a path is expected"),
        },
        "client_connections" => {
            pool.limits.clients = Some(number(key, text)? as usize).filter(|most| *most > 0);
        }
        "hash" => match Hash::named(text) {
            Some(hash) => pool.keys.hash = hash,
            None => return invalid(key, "not one of Twemproxy's hash functions"),
        },
        "hash_tag" => match text.as_bytes() {
            [open, close] => pool.keys.tag = Some([*open, *close]),
            _ => return invalid(key, "two characters are expected"),
        },
        "distribution" => match Distribution::named(text) {
            Some(distribution) => pool.distribution = distribution,
            None => return invalid(key, "ketama, modula or random is expected"),
        },
        "timeout" => {
            pool.set_timeout(match text {
                "-1" => None,
                text => Some(Duration::from_millis(number(key, text)?)).filter(|t| !t.is_zero()),
            });
        }
        "backlog" => pool.backlog = number(key, text)?.min(65_535) as u32,
        "tcpkeepalive" => pool.keepalive = boolean(key, text)?,
        "preconnect" => pool.preconnect = boolean(key, text)?,
        "redis_auth" => {
            let login = Login { user: None, password: text.to_owned() };
            pool.client_login = Some(login.clone());
            pool.login = Some(login);
        }
        "redis_db" => pool.db = number(key, text)? as u32,
        "server_connections" => match number(key, text)?.min(u64::from(u16::MAX)) {
            0 => return invalid(key, "at least 1 is expected"),
            count => pool.server_connections = count as u16,
        },
        "auto_eject_hosts" => pool.ejection.is_on = boolean(key, text)?,
        "server_retry_timeout" => {
            pool.ejection.retry_after = Duration::from_millis(number(key, text)?);
        }
        "server_failure_limit" => pool.ejection.failure_limit = number(key, text)?.max(1) as u32,
        _ => return invalid(key, "Twemproxy 0.5 has no such key"),
    }
    Ok(())
}

fn number(key: &str, text: &str) -> Result<u64, Invalid> {
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) => invalid(key, "a number is expected"),
    }
}

fn boolean(key: &str, text: &str) -> Result<bool, Invalid> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => invalid(key, "true or false is expected"),
    }
}

/// `host:port:weight [name]` or `/path:weight [name]`.
fn read_server(line: &Yaml) -> Result<Server, Invalid> {
    const FORM: &str = "host:port:weight or /path:weight and perhaps a name are expected";
    let line = scalar(line).unwrap_or_default();
    let mut words = line.split_whitespace();
    let parts = words.next().and_then(|word| word.rsplit_once(':'));
    let Some((address, weight)) = parts else { return invalid("servers", FORM) };
    let name = words.next();
    let (Some(parsed), Ok(weight)) = (Address::parse(address), weight.parse()) else {
        return invalid("servers", FORM);
    };
    if weight == 0 || words.next().is_some() {
        return invalid("servers", FORM);
    }
    // As in libketama, the usual port of memcached is not part of the name.
    let default_name = match &parsed {
        Address::Tcp(host, 11211) => host.clone(),
        _ => address.to_owned(),
    };
    let name = name.map_or(default_name, str::to_owned);
    Ok(Server { address: parsed, member: Member { name, weight } })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"
alpha:
  listen: 127.0.0.1:22121
  client_connections: 100
  hash: murmur
  hash_tag: "{}"
  distribution: modula
  timeout: 400
  backlog: 1024
  tcpkeepalive: true
  preconnect: true
  redis: true
  redis_auth: secret
  redis_db: 2
  server_connections: 1
  auto_eject_hosts: true
  server_retry_timeout: 2000
  server_failure_limit: 3
  servers:
   - 127.0.0.1:6379:1 one
   - 127.0.0.1:6380:2
   - /run/redis.sock:1 three
beta:
  listen: /tmp/beta.sock 0666
  redis: true
  servers:
   - 10.0.0.1:11211:1
"#;

    #[test]
    fn every_key_is_read() {
        let config = parse(FULL).expect("valid");
        let [alpha, beta] = &config.pools[..] else { panic!("two pools") };
        assert_eq!(alpha.keys.hash, Hash::Murmur);
        assert_eq!(alpha.keys.tag, Some(*b"{}"));
        assert_eq!(alpha.distribution, Distribution::Modula);
        assert_eq!(alpha.timeout, Some(Duration::from_millis(400)));
        assert_eq!(alpha.limits.clients, Some(100));
        assert_eq!((alpha.backlog, alpha.db), (1024, 2));
        assert!(alpha.keepalive && alpha.preconnect && alpha.ejection.is_on);
        assert_eq!(alpha.ejection.failure_limit, 3);
        assert_eq!(alpha.login.as_ref().expect("a login").password, "secret");
        let PoolKind::Servers(servers) = &alpha.kind else { panic!("servers") };
        let names: Vec<&str> = servers.iter().map(|s| &s.member.name[..]).collect();
        assert_eq!(names, ["one", "127.0.0.1:6380", "three"]);
        assert_eq!(servers[1].member.weight, 2);
        assert_eq!(beta.listen, [Address::Unix("/tmp/beta.sock".into(), Some(0o666))]);
        let PoolKind::Servers(servers) = &beta.kind else { panic!("servers") };
        assert_eq!(servers[0].member.name, "10.0.0.1");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| parse(text).expect_err("invalid").0;
        assert!(wrong("a:\n  listen: 1.1.1.1:1\n  servers:\n   - a:1:1\n").contains("memcached"));
        assert!(wrong("a:\n  redis: true\n  listn: x\n").contains("'listn'"));
        assert!(wrong("a:\n  redis: true\n  servers:\n   - a:1\n").contains("weight"));
        assert!(wrong("a: 1").contains("a map"));
        assert!(wrong("- a").contains("map of pools"));
        assert!(wrong("a: [").contains("not YAML"));
    }
}
