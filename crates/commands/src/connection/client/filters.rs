//! The filters of CLIENT LIST and CLIENT KILL: all that are given must hold, and none of those
//! that begin with NOT-

use super::super::list_line::{kind_of, letters};
use engine::clients::{Client, flag};
use engine::{Arg, ArgKind, Args, Cx, Error};
use std::sync::atomic::Ordering::Relaxed;
use structs::numbers::parse_i64;

// How COMMAND DOCS shows the filters that both commands have had from the same version on.
pub(super) const NAME: Arg =
    Arg::new("name", ArgKind::String).after("NAME").optional().since("9.0.0");
pub(super) const IDLE: Arg =
    Arg::new("idle", ArgKind::Integer).after("IDLE").optional().since("9.0.0");
pub(super) const FLAGS: Arg =
    Arg::new("flags", ArgKind::String).after("FLAGS").optional().since("9.0.0");
pub(super) const LIB_NAME: Arg =
    Arg::new("lib-name", ArgKind::String).after("LIB-NAME").optional().since("9.0.0");
pub(super) const LIB_VER: Arg =
    Arg::new("lib-ver", ArgKind::String).after("LIB-VER").optional().since("9.0.0");
pub(super) const DB: Arg = Arg::new("db", ArgKind::Integer).after("DB").optional().since("9.0.0");
pub(super) const CAPA: Arg =
    Arg::new("capa", ArgKind::String).after("CAPA").optional().since("9.0.0");
pub(super) const IP: Arg = Arg::new("ip", ArgKind::String).after("IP").optional().since("9.0.0");
pub(super) const NOT_CLIENT_ID: Arg = Arg::new("not-client-id", ArgKind::Integer)
    .after("NOT-ID")
    .optional()
    .multiple()
    .since("9.0.0");
pub(super) const NOT_USERNAME: Arg =
    Arg::new("not-username", ArgKind::String).after("NOT-USER").optional().since("9.0.0");
pub(super) const NOT_ADDR: Arg = Arg::new("not-addr", ArgKind::String)
    .after("NOT-ADDR")
    .optional()
    .since("9.0.0")
    .shown_as("ip:port");
pub(super) const NOT_LADDR: Arg = Arg::new("not-laddr", ArgKind::String)
    .after("NOT-LADDR")
    .optional()
    .since("9.0.0")
    .shown_as("ip:port");
pub(super) const NOT_NAME: Arg =
    Arg::new("not-name", ArgKind::String).after("NOT-NAME").optional().since("9.0.0");
pub(super) const NOT_FLAGS: Arg =
    Arg::new("not-flags", ArgKind::String).after("NOT-FLAGS").optional().since("9.0.0");
pub(super) const NOT_LIB_NAME: Arg =
    Arg::new("not-lib-name", ArgKind::String).after("NOT-LIB-NAME").optional().since("9.0.0");
pub(super) const NOT_LIB_VER: Arg =
    Arg::new("not-lib-ver", ArgKind::String).after("NOT-LIB-VER").optional().since("9.0.0");
pub(super) const NOT_DB: Arg =
    Arg::new("not-db", ArgKind::Integer).after("NOT-DB").optional().since("9.0.0");
pub(super) const NOT_CAPA: Arg =
    Arg::new("not-capa", ArgKind::String).after("NOT-CAPA").optional().since("9.0.0");
pub(super) const NOT_IP: Arg =
    Arg::new("not-ip", ArgKind::String).after("NOT-IP").optional().since("9.0.0");
/// The line of both commands' histories about them.
pub(super) const ADDED_IN_9: (&str, &str) = (
    "9.0.0",
    "Added filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA, \
             and IP. And negative filters NOT-ID, NOT-TYPE, NOT-ADDR, NOT-LADDR, NOT-USER, \
             NOT-FLAGS, NOT-NAME, NOT-LIB-NAME, NOT-LIB-VER, NOT-DB, NOT-CAPA, NOT-IP.",
);

/// The letters that a client's flags can have, here or in Redis.
const LETTERS: &[u8] = b"OSMPxbtRBdcuAUreTIiEN";

/// What is asked of a client; of a filter that is given twice the later counts.
#[derive(Default)]
pub(super) struct Filters {
    wanted: Traits,
    unwanted: Traits,
    skips_me: Option<bool>,
    min_age_s: i64,
    min_idle_s: i64,
}

/// Traits that a client can be asked to have, or not to have.
#[derive(Default)]
struct Traits {
    ids: Option<Vec<u64>>,
    kind: Option<&'static str>,
    addr: Option<Vec<u8>>,
    laddr: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    name: Option<Vec<u8>>,
    flags: Option<Vec<u8>>,
    lib_name: Option<Vec<u8>>,
    lib_version: Option<Vec<u8>>,
    db: Option<u32>,
    capabilities: Option<Vec<u8>>,
    ip: Option<Vec<u8>>,
}

impl Filters {
    /// The filter of CLIENT KILL's old form.
    pub(super) fn by_addr(addr: &[u8]) -> Filters {
        let wanted = Traits { addr: Some(addr.to_vec()), ..Traits::default() };
        Filters { wanted, skips_me: Some(false), ..Filters::default() }
    }

    /// The filters from word 2 on.
    pub(super) fn parse(cx: &Cx<'_>, args: Args<'_>) -> Result<Filters, Error> {
        let mut filters = Filters::default();
        let mut at = 2;
        while let Some(word) = args.get(at) {
            let word = word.to_ascii_lowercase();
            at += 1;
            let (name, is_negative) = match word.strip_prefix(b"not-") {
                Some(name) => (name, true),
                None => (word.as_slice(), false),
            };
            if name == b"id" {
                let traits = if is_negative { &mut filters.unwanted } else { &mut filters.wanted };
                at = parse_ids(args, at, traits.ids.get_or_insert_default())?;
                continue;
            }
            let value = args.get(at).ok_or(Error::Syntax)?;
            at += 1;
            if is_negative {
                filters.unwanted.set(cx, name, value, true)?;
            } else if !filters.set_own(name, value)? {
                filters.wanted.set(cx, name, value, false)?;
            }
        }
        Ok(filters)
    }

    /// Sets what has no negative; `false` if it is none of that.
    fn set_own(&mut self, name: &[u8], value: &[u8]) -> Result<bool, Error> {
        match name {
            b"maxage" => self.min_age_s = positive(value, "maxage")?,
            b"idle" => self.min_idle_s = positive(value, "idle")?,
            b"skipme" if value.eq_ignore_ascii_case(b"yes") => self.skips_me = Some(true),
            b"skipme" if value.eq_ignore_ascii_case(b"no") => self.skips_me = Some(false),
            b"skipme" => return Err(Error::Syntax),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether they hold for a client; `skips_me` says whether the asking client is passed over
    /// unless SKIPME says otherwise.
    pub(super) fn allow(&self, client: &Client, me: u64, now_ms: i64, skips_me: bool) -> bool {
        let age_s = (now_ms - client.created_ms) / 1000;
        let idle_s = (now_ms - client.live.last_seen_ms.load(Relaxed)) / 1000;
        !(client.id == me && self.skips_me.unwrap_or(skips_me))
            && (self.min_age_s == 0 || age_s >= self.min_age_s)
            && (self.min_idle_s == 0 || idle_s >= self.min_idle_s)
            && self.wanted.of(client).iter().all(|has| *has != Some(false))
            && self.unwanted.of(client).iter().all(|has| *has != Some(true))
    }
}

impl Traits {
    fn set(
        &mut self,
        cx: &Cx<'_>,
        name: &[u8],
        value: &[u8],
        is_negative: bool,
    ) -> Result<(), Error> {
        let text = || Some(value.to_vec());
        let of_filter = |negative: &'static str| {
            if is_negative {
                format!("the {negative} filter")
            } else {
                "the provided filter".into()
            }
        };
        match name {
            b"type" => self.kind = Some(parse_kind(value)?),
            b"addr" => self.addr = text(),
            b"laddr" => self.laddr = text(),
            b"user" => {
                if cx.engine.acl.user(value).is_none() {
                    return Err(cx.no_such_user(value));
                }
                self.user = text();
            }
            b"name" => self.name = text(),
            b"flags" => {
                if !value.iter().all(|letter| LETTERS.contains(letter)) {
                    let filter = of_filter("NOT-FLAGS");
                    let before = format!("ERR Unknown flags found in {filter}: ");
                    return Err(quoting(&before, value, ""));
                }
                self.flags = text();
            }
            b"lib-name" => self.lib_name = text(),
            b"lib-ver" => self.lib_version = text(),
            b"db" => {
                let name = if is_negative { "NOT-DB" } else { "DB" };
                self.db = Some(parse_db(value, name, cx.engine.keyspace.databases())?);
            }
            b"capa" => {
                if !value.iter().all(|letter| *letter == b'r') {
                    let filter = of_filter("NOT-CAPA");
                    let before = format!("ERR Unknown capa found in {filter}: ");
                    return Err(quoting(&before, value, ""));
                }
                self.capabilities = text();
            }
            b"ip" => self.ip = text(),
            _ => return Err(Error::Syntax),
        }
        Ok(())
    }

    /// Whether a client has each of the traits that are asked for.
    fn of(&self, client: &Client) -> [Option<bool>; 12] {
        let bits = client.flags();
        let names = client.names();
        // What has no name has not the empty one either.
        let is = |own: &[u8], asked: &Vec<u8>| !own.is_empty() && own == asked.as_slice();
        let letters = || letters(bits).into_bytes();
        let can_redirect = bits & flag::CAN_REDIRECT != 0;
        [
            self.ids.as_ref().map(|ids| ids.contains(&client.id)),
            self.kind.map(|kind| kind == kind_of(client)),
            self.addr.as_ref().map(|addr| client.addr.as_bytes() == addr.as_slice()),
            self.laddr.as_ref().map(|laddr| client.laddr.as_bytes() == laddr.as_slice()),
            self.user.as_ref().map(|user| names.user.as_bytes() == user.as_slice()),
            self.name.as_ref().map(|name| is(&names.name, name)),
            self.flags.as_ref().map(|asked| asked.iter().all(|flag| letters().contains(flag))),
            self.lib_name.as_ref().map(|name| is(&names.lib_name, name)),
            self.lib_version.as_ref().map(|version| is(&names.lib_version, version)),
            self.db.map(|db| client.live.db.load(Relaxed) == db),
            self.capabilities.as_ref().map(|asked| asked.is_empty() || can_redirect),
            self.ip.as_ref().map(|ip| is_from(client.addr.as_bytes(), ip)),
        ]
    }
}

/// Whether an address, `ip:port` or `[ip]:port`, is of this IP. A Unix socket's ends in `:0`.
fn is_from(addr: &[u8], ip: &[u8]) -> bool {
    let addr = addr.strip_prefix(b"[").unwrap_or(addr);
    let Some(rest) = addr.strip_prefix(ip) else { return false };
    let rest = rest.strip_prefix(b"]").unwrap_or(rest);
    rest.strip_prefix(b":").is_some_and(|port| !port.starts_with(b"0"))
}

fn quoting(before: &str, quoted: &[u8], after: &str) -> Error {
    Error::Bytes([before.as_bytes(), quoted, after.as_bytes()].concat())
}

/// Client numbers up to the first word that is none; returns where that is.
fn parse_ids(args: Args<'_>, mut at: usize, ids: &mut Vec<u64>) -> Result<usize, Error> {
    while let Some(id) = args.get(at).and_then(parse_i64) {
        if id < 1 {
            return Err(Error::text("ERR client-id should be greater than 0"));
        }
        ids.push(id as u64);
        at += 1;
    }
    Ok(at)
}

fn parse_kind(value: &[u8]) -> Result<&'static str, Error> {
    Ok(match value.to_ascii_lowercase().as_slice() {
        b"normal" => "normal",
        b"slave" | b"replica" => "replica",
        b"pubsub" => "pubsub",
        b"master" | b"primary" => "primary",
        _ => return Err(quoting("ERR Unknown client type '", value, "'")),
    })
}

fn positive(value: &[u8], name: &str) -> Result<i64, Error> {
    let number = parse_i64(value)
        .ok_or_else(|| Error::format(format!("ERR {name} is not an integer or out of range")))?;
    if number <= 0 {
        return Err(Error::format(format!("ERR {name} should be greater than 0")));
    }
    Ok(number)
}

fn parse_db(value: &[u8], name: &str, databases: u32) -> Result<u32, Error> {
    let number = parse_i64(value)
        .and_then(|number| i32::try_from(number).ok())
        .ok_or_else(|| Error::format(format!("ERR {name} is not an integer or out of range")))?;
    let most = databases - 1;
    u32::try_from(number)
        .ok()
        .filter(|db| *db <= most)
        .ok_or_else(|| Error::format(format!("ERR {name} number should be between 0 and {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ip_is_the_whole_of_it() {
        assert!(is_from(b"127.0.0.1:5000", b"127.0.0.1"));
        assert!(is_from(b"[::1]:5000", b"::1"));
        assert!(!is_from(b"127.0.0.10:5000", b"127.0.0.1"));
        assert!(!is_from(b"/tmp/socket:0", b"/tmp/socket"));
        assert!(!is_from(b"127.0.0.1:5000", b"127.0.0.1:5000"));
    }
}
