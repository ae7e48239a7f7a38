//! What is said and set of a client alone: AUTH, HELLO, and CLIENT about its own connection.

use super::Hub;
use super::client::{Client, Flow};
use super::hops::{MAX_HOPS, hops_of};
use super::tracked::Tracking;
use crate::policy::Policy;
use crate::pool::Session;
use crate::settings::Login;
use resp::Protocol;
use resp::bulk::{push_bulk, push_header};
use route::{join, raw};
use std::time::Instant;
use structs::numbers;
use subtle::ConstantTimeEq as _;

impl<P: Policy> Hub<P> {
    /// Checks a password. Returns what is wrong.
    fn authenticate(
        &self,
        client: &mut Client,
        user: Option<&[u8]>,
        password: &[u8],
    ) -> Option<&'static str> {
        let is_right = match &self.pools[client.pool].shared.config.client_login {
            Some(login) => is_login(login, user, password),
            None if user.is_none() => {
                return Some(
                    "-ERR AUTH <password> called without any password configured for the default user. \
                     Are you sure your configuration is correct?",
                );
            }
            // Without a password every word is right.
            None => user == Some(&b"default"[..]),
        };
        if is_right {
            client.is_authenticated = true;
            return None;
        }
        Some("-WRONGPASS invalid username-password pair or user is disabled.")
    }

    /// `AUTH [user] password`
    pub(super) fn auth(&self, client: &mut Client, words: &[&[u8]], out: &mut Vec<u8>) {
        let login = match words {
            [_, password] => Some((None, *password)),
            [_, user, password] => Some((Some(*user), *password)),
            _ => None,
        };
        match login {
            Some((user, password)) => {
                let error = self.authenticate(client, user, password);
                raw_line(out, error.unwrap_or("+OK"));
            }
            None => raw::push_error(out, "ERR syntax error"),
        }
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`
    pub(super) fn hello(&mut self, client: &mut Client, words: &[&[u8]], out: &mut Vec<u8>) {
        let mut protocol = client.session.protocol;
        if let Some(version) = words.get(1) {
            protocol = match *version {
                b"2" => Protocol::Resp2,
                b"3" => Protocol::Resp3,
                other if numbers::parse_u64(other).is_none() => {
                    let why = "ERR Protocol version is not an integer or out of range";
                    return raw::push_error(out, why);
                }
                _ => return raw::push_error(out, "NOPROTO unsupported protocol version"),
            };
        }
        let (mut name, mut login) = (None, None);
        let mut rest = words.get(2..).unwrap_or_default();
        loop {
            match rest {
                [] => break,
                [option, user, password, more @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    login = Some((*user, *password));
                    rest = more;
                }
                [option, word, more @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    if let Some(why) = name_error("Client names", word) {
                        return raw::push_error(out, &why);
                    }
                    name = Some(word.to_vec());
                    rest = more;
                }
                [option, ..] => {
                    let option = String::from_utf8_lossy(option);
                    let why = format!("ERR Syntax error in HELLO option '{option}'");
                    return raw::push_error(out, &why);
                }
            }
        }
        if let Some((user, password)) = login
            && let Some(error) = self.authenticate(client, Some(user), password)
        {
            return raw_line(out, error);
        }
        if !client.is_authenticated {
            return raw::push_error(
                out,
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                 HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                 select the RESP protocol version at the same time",
            );
        }
        client.session.protocol = protocol;
        client.name = name.unwrap_or_else(|| std::mem::take(&mut client.name));
        let is_three = protocol == Protocol::Resp3;
        push_header(out, if is_three { b'%' } else { b'*' }, if is_three { 7 } else { 14 });
        push_bulk(out, b"server");
        push_bulk(out, b"redis");
        push_bulk(out, b"version");
        push_bulk(out, self.commands.redis_version.as_bytes());
        push_bulk(out, b"proto");
        raw::push_integer(out, if is_three { 3 } else { 2 });
        push_bulk(out, b"id");
        raw::push_integer(out, client.number as i64);
        for (key, value) in [(&b"mode"[..], &b"standalone"[..]), (b"role", b"master")] {
            push_bulk(out, key);
            push_bulk(out, value);
        }
        push_bulk(out, b"modules");
        push_header(out, b'*', 0);
    }

    /// What CLIENT says and sets of the client's own connection alone.
    pub(super) fn about_itself(
        &self,
        now: Instant,
        client: &mut Client,
        words: &[&[u8]],
        out: &mut Vec<u8>,
    ) {
        let sub = subcommand(words);
        let argument = words.get(2).copied().unwrap_or_default();
        match (&sub[..], words.len()) {
            ("SETNAME", 3) => match name_error("Client names", argument) {
                None => {
                    client.name = argument.to_vec();
                    raw_line(out, "+OK");
                }
                Some(why) => raw::push_error(out, &why),
            },
            ("GETNAME", 2) if client.name.is_empty() => {
                raw::push_null(out, client.session.protocol);
            }
            ("GETNAME", 2) => push_bulk(out, &client.name),
            ("ID", 2) => raw::push_integer(out, client.number as i64),
            ("INFO", _) => {
                let line = line(client, now);
                join::push_text(out, line.as_bytes(), client.session.protocol);
            }
            ("CAPA", 3..) => {
                let is_redirect = |word: &&[u8]| word.eq_ignore_ascii_case(b"redirect");
                client.can_redirect |= words[2..].iter().any(is_redirect);
                raw_line(out, "+OK");
            }
            ("SETINFO", 4) => set_info(client, argument, words[3], out),
            ("NO-EVICT" | "NO-TOUCH", _) => raw_line(out, "+OK"),
            ("MAINT_NOTIFICATIONS", 3..) => {
                client.wants_notices = argument.eq_ignore_ascii_case(b"ON");
                if client.wants_notices && client.session.protocol == Protocol::Resp2 {
                    client.wants_notices = false;
                    raw::push_error(out, "ERR maintenance notices need RESP3");
                } else {
                    raw_line(out, "+OK");
                }
            }
            ("TRACKINGINFO", 2) => tracking_info(client, out),
            ("GETREDIR", 2) => raw::push_integer(out, tracking_redirection(client)),
            _ => raw::push_error(
                out,
                &format!(
                    "ERR 'client {}' does not work through the proxy: its servers know the proxy's \
                     connections, not yours",
                    sub.to_lowercase()
                ),
            ),
        }
    }
}

/// The second word of a request, in capital letters.
pub(super) fn subcommand(words: &[&[u8]]) -> String {
    words.get(1).map_or_else(String::new, |word| String::from_utf8_lossy(word).to_uppercase())
}

pub(super) fn raw_line(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(line.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Why a name is none that a client may give itself.
pub(super) fn name_error(what: &str, name: &[u8]) -> Option<String> {
    let is_valid = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    (!is_valid)
        .then(|| format!("ERR {what} cannot contain spaces, newlines or special characters."))
}

fn is_login(login: &Login, user: Option<&[u8]>, password: &[u8]) -> bool {
    let expected = login.user.as_deref().unwrap_or("default").as_bytes();
    let is_user = user.unwrap_or(b"default") == expected;
    is_user && bool::from(login.password.as_bytes().ct_eq(password))
}

/// A client as CLIENT INFO has it, with every field that libraries read. What servers hold for it
/// is not known here: 0.
pub(super) fn line(client: &Client, now: Instant) -> String {
    let resp = if client.session.protocol == Protocol::Resp3 { 3 } else { 2 };
    let library = |at: usize| client.library.as_ref().map_or(&[][..], |library| &library[at]);
    let text = |bytes| String::from_utf8_lossy(bytes);
    let multi = client.multi.as_ref().map_or(-1, |multi| multi.len() as i64);
    let [channels, patterns, shard_channels] =
        client.subscriptions.as_ref().map_or([0; 3], |subscriptions| subscriptions.counts());
    let (flags, capabilities) = (client.flags(), client.capabilities());
    let age = now.saturating_duration_since(client.since).as_secs();
    let Client { number, peer, session: Session { db, .. }, name, .. } = client;
    format!(
        "id={number} addr={peer} laddr=:0 fd=-1 name={} age={age} idle=0 flags={flags} capa={capabilities} db={db} \
         sub={channels} psub={patterns} ssub={shard_channels} multi={multi} watch=0 qbuf=0 qbuf-free=0 \
         argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=client user=default \
         redir=-1 resp={resp} lib-name={} lib-ver={} tot-net-in=0 tot-net-out=0 tot-cmds=0\n",
        text(name),
        text(library(0)),
        text(library(1))
    )
}

/// `CLIENT SETINFO LIB-NAME|LIB-VER text`
fn set_info(client: &mut Client, attribute: &[u8], text: &[u8], out: &mut Vec<u8>) {
    let at = match &attribute.to_ascii_uppercase()[..] {
        b"LIB-NAME" => 0,
        b"LIB-VER" => 1,
        _ => {
            let attribute = String::from_utf8_lossy(attribute);
            return raw::push_error(out, &format!("ERR Unrecognized option '{attribute}'"));
        }
    };
    if let Some(why) = name_error(if at == 0 { "lib-name" } else { "lib-ver" }, text) {
        return raw::push_error(out, &why);
    }
    client.library.get_or_insert_default()[at] = text.to_vec();
    raw_line(out, "+OK");
}

/// `CLIENT TRACKINGINFO`
fn tracking_info(client: &Client, out: &mut Vec<u8>) {
    let is_on = client.tracking.is_some();
    let off = Tracking::default();
    let tracking = client.tracking.as_deref().unwrap_or(&off);
    let has_chosen = client.caching.is_some();
    let flags: Vec<&[u8]> = [
        (!is_on, &b"off"[..]),
        (is_on, b"on"),
        (tracking.is_broadcast, b"bcast"),
        (tracking.opts_in, b"optin"),
        (tracking.opts_in && has_chosen, b"caching-yes"),
        (tracking.opts_out, b"optout"),
        (tracking.opts_out && has_chosen, b"caching-no"),
        (tracking.no_loop, b"noloop"),
    ]
    .into_iter()
    .filter_map(|(is_set, flag)| is_set.then_some(flag))
    .collect();
    let (map, pairs, set) = match client.session.protocol {
        Protocol::Resp2 => (b'*', 6, b'*'),
        Protocol::Resp3 => (b'%', 3, b'~'),
    };
    push_header(out, map, pairs);
    push_bulk(out, b"flags");
    push_header(out, set, flags.len());
    flags.iter().for_each(|flag| push_bulk(out, flag));
    push_bulk(out, b"redirect");
    raw::push_integer(out, tracking_redirection(client));
    push_bulk(out, b"prefixes");
    push_header(out, b'*', tracking.prefixes.len());
    tracking.prefixes.iter().for_each(|prefix| push_bulk(out, prefix));
}

/// `CLIENT GETREDIR`: messages come on the client's own connection, if any do.
fn tracking_redirection(client: &Client) -> i64 {
    if client.tracking.is_some() { 0 } else { -1 }
}

impl<P: Policy> Hub<P> {
    /// A client has a new name, which may be that of a proxy's connection. Returns the error to
    /// answer if the proxies lead to each other, and [`Flow::Later`] if earlier requests have to be
    /// answered first, because the next ones take other connections.
    pub(super) fn introduced(&mut self, client: &mut Client, name: &[u8]) -> Result<Flow, String> {
        let hops = hops_of(name);
        if name.starts_with(self.common.link_name.as_bytes()) && hops > 0 {
            return Err(raw::LOOP.to_owned());
        }
        if hops > MAX_HOPS {
            return Err(format!(
                "{} this request has come through {MAX_HOPS} proxies, which lead to each other; name \
                 other servers in their pools",
                raw::LOOP_CODE
            ));
        }
        if client.session.hops != hops {
            if !client.is_idle() {
                return Ok(self.come_again(client));
            }
            client.session.hops = hops;
        }
        Ok(Flow::Done)
    }
}
