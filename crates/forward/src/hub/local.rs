//! What the proxy answers itself.

use super::Hub;
use super::client::{Client, Replies};
use super::request::Flow;
use super::tracking::{self, choose_caching};
use super::wire::Wire;
use crate::failure::Failure;
use crate::policy::Policy;
use crate::pool::Session;
use crate::settings::Login;
use resp::Protocol;
use resp::bulk::{push_bulk, push_header};
use route::join;
use route::raw;
use spec::Local;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;
use structs::numbers;
use subtle::ConstantTimeEq as _;

impl<P: Policy> Hub<P> {
    /// A command that needs no server.
    pub(super) fn local<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        local: Local,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        let mut out = Vec::new();
        match local {
            Local::Ping if words.len() > 2 => {
                raw::push_error(&mut out, "ERR wrong number of arguments for 'ping' command");
            }
            Local::Ping => ping(client, words.get(1).copied(), &mut out),
            Local::Echo => push_bulk(&mut out, words[1]),
            Local::Quit => {
                client.answer(wire, b"+OK\r\n");
                client.is_leaving = true;
                if client.is_idle() {
                    wire.finish(client.id);
                }
                return Flow::Done;
            }
            Local::Reset => return self.reset(wire, client),
            Local::Hello => {
                if !client.is_idle() {
                    return self.come_again(client);
                }
                self.hello(client, words, &mut out);
            }
            Local::Auth => self.auth(client, words, &mut out),
            Local::Select => return self.select(wire, client, words[1], request),
            Local::Client => return self.about_client(wire, client, words, request),
            Local::Asking => raw_line(&mut out, "+OK"),
            Local::Command => match route::plan::Placement::any(&self.pools[client.pool]) {
                Some(server) => {
                    let slot = super::client::Slot::Waiting;
                    self.forward(wire, client, server, request, slot);
                    return Flow::Done;
                }
                None => raw::push_error(&mut out, &Failure::NoServer.text()),
            },
        }
        client.answer(wire, &out);
        Flow::Done
    }

    fn reset<W: Wire>(&mut self, wire: &mut W, client: &mut Client) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        self.end_subscriptions(wire, client);
        self.abandon(wire, client);
        client.tracking = None;
        client.caching = None;
        self.release(wire, client);
        let config = &self.pools[client.pool].shared.config;
        client.session = Session { db: config.db, ..Session::default() };
        client.name.clear();
        client.is_authenticated = config.client_login.is_none();
        // It ends CLIENT REPLY OFF, but is itself the request whose reply SKIP skips.
        client.is_muted &= client.replies != Replies::Off;
        client.replies = Replies::On;
        client.answer(wire, b"+RESET\r\n");
        Flow::Done
    }

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

    fn about_client<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
        request: &[u8],
    ) -> Flow {
        let mut out = Vec::new();
        let sub = subcommand(words);
        let argument = words.get(2).copied().unwrap_or_default();
        match (&sub[..], words.len()) {
            ("SETNAME", 3) if name_error("Client names", argument).is_none() => {
                match self.introduced(client, argument) {
                    Ok(Flow::Done) => self.about_itself(wire.now(), client, words, &mut out),
                    Ok(Flow::Later) => return Flow::Later,
                    Err(why) => raw::push_error(&mut out, &why),
                }
            }
            ("LIST" | "KILL" | "UNBLOCK" | "PAUSE" | "UNPAUSE", _) => {
                return self.administer(wire, client, &sub, words);
            }
            ("REPLY", 3) => {
                match &argument.to_ascii_uppercase()[..] {
                    b"ON" => {
                        (client.replies, client.is_muted) = (Replies::On, false);
                        raw_line(&mut out, "+OK");
                    }
                    b"OFF" => client.replies = Replies::Off,
                    b"SKIP" if client.replies == Replies::On => client.replies = Replies::Skip,
                    b"SKIP" => {}
                    _ => raw::push_error(&mut out, "ERR syntax error"),
                }
                if out.is_empty() {
                    return Flow::Done;
                }
            }
            ("TRACKING", 3..) => return self.track(wire, client, words),
            ("CACHING", 3) => choose_caching(client, argument, request, &mut out),
            _ => self.about_itself(wire.now(), client, words, &mut out),
        }
        client.answer(wire, &out);
        Flow::Done
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
            ("TRACKINGINFO", 2) => tracking::info(client, out),
            ("GETREDIR", 2) => raw::push_integer(out, tracking::redirection(client)),
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
fn subcommand(words: &[&[u8]]) -> String {
    words.get(1).map_or_else(String::new, |word| String::from_utf8_lossy(word).to_uppercase())
}

fn raw_line(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(line.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Why a name is none that a client may give itself.
fn name_error(what: &str, name: &[u8]) -> Option<String> {
    let is_valid = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    (!is_valid)
        .then(|| format!("ERR {what} cannot contain spaces, newlines or special characters."))
}

fn ping(client: &Client, argument: Option<&[u8]>, out: &mut Vec<u8>) {
    let is_subscribed = client.subscriptions.as_ref().is_some_and(|subs| !subs.is_empty());
    match argument {
        _ if is_subscribed && client.session.protocol == Protocol::Resp2 => {
            push_header(out, b'*', 2);
            push_bulk(out, b"pong");
            push_bulk(out, argument.unwrap_or_default());
        }
        Some(word) => push_bulk(out, word),
        None => raw_line(out, "+PONG"),
    }
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

/// The header of the PROXY protocol, version 1 or 2, at the start of a connection. Returns its
/// length and the client's address, if it says one; `None` if it is not complete.
pub(super) fn proxy_header(input: &[u8]) -> Result<Option<(usize, Option<String>)>, &'static str> {
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    const MAX_LINE: usize = 107;
    let invalid = "its connection does not begin with a PROXY header";
    if input.starts_with(SIGNATURE) {
        let Some(&[command, family, high, low]) = input[12..].first_chunk() else {
            return Ok(None);
        };
        let len = 16 + usize::from(u16::from_be_bytes([high, low]));
        let Some(body) = input.get(16..len) else { return Ok(None) };
        let peer = match command {
            // The proxy speaks for itself, as in a health check.
            0x20 => None,
            0x21 => binary_address(family, body).ok_or(invalid)?,
            _ => return Err(invalid),
        };
        return Ok(Some((len, peer)));
    }
    if SIGNATURE.starts_with(input) || b"PROXY ".starts_with(input) {
        return Ok(None);
    }
    if !input.starts_with(b"PROXY ") {
        return Err(invalid);
    }
    let Some(end) = input.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
        return if input.len() < MAX_LINE { Ok(None) } else { Err(invalid) };
    };
    let text = std::str::from_utf8(&input[..end]).map_err(|_| invalid)?.trim_end();
    let words: Vec<&str> = text.split(' ').collect();
    let peer = match words[..] {
        [_, "TCP4" | "TCP6", ip, _, port, _] => {
            let ip = ip.parse().map_err(|_| invalid)?;
            let port = port.parse().map_err(|_| invalid)?;
            Some(SocketAddr::new(ip, port).to_string())
        }
        [_, "UNKNOWN", ..] => None,
        _ => return Err(invalid),
    };
    Ok(Some((end + 1, peer)))
}

/// Returns the client's address, if the family is one that has such. `None`: the header is shorter
/// than its family's addresses, or there is no such family.
fn binary_address(family: u8, body: &[u8]) -> Option<Option<String>> {
    let len = match family >> 4 {
        0 => 0,
        1 => 12,
        2 => 36,
        3 => 216,
        _ => return None,
    };
    let body = body.get(..len)?;
    let (ip, port) = match family {
        0x11 => (Ipv4Addr::from(*body.first_chunk::<4>()?).into(), body.get(8..10)?),
        0x21 => (Ipv6Addr::from(*body.first_chunk::<16>()?).into(), body.get(32..34)?),
        _ => return Some(None),
    };
    Some(Some(SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]])).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_headers_are_read() {
        let one = b"PROXY TCP4 10.0.0.1 10.0.0.2 5555 6379\r\nPING\r\n";
        assert_eq!(proxy_header(one), Ok(Some((40, Some("10.0.0.1:5555".into())))));
        let mut two = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        two.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x15, 0xb3, 0x18, 0xeb]);
        assert_eq!(proxy_header(&two), Ok(Some((28, Some("10.0.0.1:5555".into())))));
        for cut in 1..28 {
            assert_eq!(proxy_header(&two[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(proxy_header(b"PROXY UNKNOWN\r\n"), Ok(Some((15, None))));
        // Fewer bytes than the family's addresses take, and families that there are not.
        let header = |command: u8, family: u8, len: u8| {
            let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
            header.extend([command, family, 0, len]);
            header.resize(16 + usize::from(len), 1);
            proxy_header(&header).map(|found| found.map(|found| found.0))
        };
        for (family, len) in
            [(0x11, 4), (0x11, 11), (0x21, 35), (0x12, 11), (0x31, 215), (0x41, 12)]
        {
            assert!(header(0x21, family, len).is_err(), "{family:x} {len}");
        }
        for (family, len) in [(0x11, 12), (0x11, 40), (0x21, 36), (0x31, 216), (0, 0)] {
            assert_eq!(header(0x21, family, len), Ok(Some(16 + usize::from(len))), "{family:x}");
        }
        assert_eq!(header(0x20, 0x11, 0), Ok(Some(16)));
        assert!(header(0x22, 0x11, 12).is_err() && header(0x11, 0x11, 12).is_err());
        assert_eq!(proxy_header(b"PRO"), Ok(None));
        assert!(proxy_header(b"*1\r\n$4\r\nPING\r\n").is_err());
    }
}
