//! The checks of text options: each says in Redis's words why a value is refused.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::compaction::parse_compaction;
use crate::proc_title;
use crate::rates::parse_rate_limits;
use crate::shed::parse_client_patterns;

type Verdict = Result<(), &'static str>;

/// The longest host name a cluster announces, with the byte that ends it in C.
const HOSTNAME_LIMIT: usize = 256;

/// The longest host that can be announced: a full name of DNS.
const ADDRESS_LIMIT: usize = 253;

fn refuse_unless(ok: bool, reason: &'static str) -> Verdict {
    if ok { Ok(()) } else { Err(reason) }
}

pub(crate) fn dbfilename(name: &[u8]) -> Verdict {
    refuse_unless(!name.is_empty(), "dbfilename can't be empty")?;
    refuse_unless(!is_path(name), "dbfilename can't be a path, just a filename")
}

pub(crate) fn appendfilename(name: &[u8]) -> Verdict {
    refuse_unless(!name.is_empty(), "appendfilename can't be empty")?;
    refuse_unless(!is_path(name), "appendfilename can't be a path, just a filename")
}

pub(crate) fn appenddirname(name: &[u8]) -> Verdict {
    refuse_unless(!name.is_empty(), "appenddirname can't be empty")?;
    refuse_unless(!is_path(name), "appenddirname can't be a path, just a dirname")
}

pub(crate) fn hash_seed(text: &[u8]) -> Verdict {
    refuse_unless(text.len() <= 256, "hash-seed must be less than or equal to 256 characters")
}

/// Names of hosts with blanks between them. A star or an empty label would be more than was meant.
pub(crate) fn host_names(text: &[u8]) -> Verdict {
    let is_label = |label: &[u8]| {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        !label.is_empty() && label.iter().all(allowed)
    };
    let is_name = |name: &[u8]| {
        name.strip_prefix(b".").unwrap_or(name).split(|byte| *byte == b'.').all(is_label)
    };
    let are_names = text.split(|byte| *byte == b' ').filter(|name| !name.is_empty()).all(is_name);
    refuse_unless(are_names, "admin-hosts are names of hosts with blanks between them")
}

/// Groups of [`crate::RateLimit`].
pub(crate) fn rate_limits(text: &[u8]) -> Verdict {
    parse_rate_limits(text).map(drop)
}

/// Words of [`crate::ClientPattern`].
pub(crate) fn shed_clients(text: &[u8]) -> Verdict {
    parse_client_patterns(text).map(drop)
}

/// The words of a coordinator's addresses; the server reads the addresses themselves.
pub(crate) fn cluster_coordinator(text: &[u8]) -> Verdict {
    let is_plain = text.iter().all(|byte| byte.is_ascii_graphic());
    refuse_unless(is_plain, "cluster-coordinator is a list of addresses with commas")
}

/// A part of the names of etcd's keys.
pub(crate) fn cluster_name(name: &[u8]) -> Verdict {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_name = (1..=64).contains(&name.len()) && name.iter().all(is_plain);
    refuse_unless(is_name, "cluster-name is 1 to 64 letters, digits, '-', '_' and '.'")
}

/// The error rate of a Bloom filter.
pub(crate) fn error_rate(text: &[u8]) -> Verdict {
    let is_rate = decimal(text).is_some_and(|rate| rate > 0.0 && rate < 1.0);
    refuse_unless(is_rate, "argument must be a number between 0 and 1")
}

/// How far two values of a time series may be apart.
pub(crate) fn value_difference(text: &[u8]) -> Verdict {
    let is_one = decimal(text).is_some_and(|difference| difference >= 0.0);
    refuse_unless(is_one, "argument must be a number that is not negative")
}

pub(crate) fn compaction_policy(text: &[u8]) -> Verdict {
    refuse_unless(
        parse_compaction(text).is_some(),
        "rules are aggregator:bucket:retention[:align], with semicolons between them",
    )
}

/// Returns a text as a finite number.
pub(crate) fn decimal(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

pub(crate) fn cluster_config_file(name: &[u8]) -> Verdict {
    refuse_unless(!name.is_empty(), "cluster-config-file can't be empty")
}

fn is_path(name: &[u8]) -> bool {
    name.contains(&b'/') || name.contains(&b'\\')
}

pub(crate) fn announced_hostname(name: &[u8]) -> Verdict {
    refuse_unless(name.len() < HOSTNAME_LIMIT, "Hostnames must be less than 256 characters")?;
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    refuse_unless(
        name.iter().all(allowed),
        "Hostnames may only contain alphanumeric characters, hyphens or dots",
    )
}

pub(crate) fn announced_nodename(name: &[u8]) -> Verdict {
    refuse_unless(is_plain(name), "Announced human node name contained invalid character")
}

pub(crate) fn announced_ip(address: &[u8]) -> Verdict {
    refuse_unless(address.len() <= ADDRESS_LIMIT, "cluster-announce-ip is too long")?;
    refuse_unless(is_plain(address), "cluster-announce-ip contains invalid character")
}

/// Whether a string can stand in the cluster's state file without being quoted.
fn is_plain(text: &[u8]) -> bool {
    const SPECIAL: &[u8] = b"!\"#$%&'()*+,;<=>?@[\\]^{|}~";
    text.iter().all(|byte| byte.is_ascii_graphic() && !SPECIAL.contains(byte))
}

pub(crate) fn ipv4(address: &[u8]) -> Verdict {
    refuse_unless(parses::<Ipv4Addr>(address), "Invalid IPv4 address")
}

pub(crate) fn ipv6(address: &[u8]) -> Verdict {
    refuse_unless(parses::<Ipv6Addr>(address), "Invalid IPv6 address")
}

fn parses<T: std::str::FromStr>(text: &[u8]) -> bool {
    text.is_empty() || str::from_utf8(text).is_ok_and(|text| text.parse::<T>().is_ok())
}

pub(crate) fn proc_title_template(template: &[u8]) -> Verdict {
    refuse_unless(
        proc_title::is_valid(template),
        "template format is invalid or contains unknown variables",
    )
}

/// Only the shape of the name is checked: no locale is loaded.
pub(crate) fn locale(name: &[u8]) -> Verdict {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.@-".contains(byte);
    refuse_unless(name.iter().all(allowed), "Invalid locale name")
}
