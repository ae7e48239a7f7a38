//! CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR.
//!
//! A client's keys are tracked on connections of its own, one to each server.

use super::Hub;
use super::client::Client;
use super::request::Flow;
use super::wire::Wire;
use crate::policy::Policy;
use resp::Protocol;
use resp::bulk::{push_bulk, push_header};
use route::raw;
use std::sync::Arc;

const NEEDS_RESP3: &str =
    "ERR proxy: CLIENT TRACKING needs RESP3, whose messages reach you; say HELLO 3";
const NO_REDIRECT: &str = "ERR proxy: REDIRECT names a connection to the server, and yours is to the \
    proxy; say HELLO 3, and messages come on this connection";
const OFF_FIRST: &str = "before disabling tracking for this client, and then re-enabling it with a \
    different mode.";

/// What a client wants to be told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    is_broadcast: bool,
    opts_in: bool,
    opts_out: bool,
    no_loop: bool,
    /// In ascending order.
    prefixes: Vec<Vec<u8>>,
}

impl Tracking {
    /// Reads the words of CLIENT TRACKING as a server does. `None`: it is to be off.
    fn parse(words: &[&[u8]]) -> Result<Option<Tracking>, &'static str> {
        let mut wanted = Tracking::default();
        let mut rest = words.get(3..).unwrap_or_default();
        while let [option, more @ ..] = rest {
            rest = more;
            match (&option.to_ascii_uppercase()[..], more) {
                (b"BCAST", _) => wanted.is_broadcast = true,
                (b"OPTIN", _) => wanted.opts_in = true,
                (b"OPTOUT", _) => wanted.opts_out = true,
                (b"NOLOOP", _) => wanted.no_loop = true,
                (b"PREFIX", [prefix, more @ ..]) => {
                    wanted.prefixes.push(prefix.to_vec());
                    rest = more;
                }
                (b"REDIRECT", [_, ..]) => return Err(NO_REDIRECT),
                _ => return Err("ERR syntax error"),
            }
        }
        let switch = words.get(2).copied().unwrap_or_default();
        match &switch.to_ascii_uppercase()[..] {
            b"ON" => Ok(Some(wanted)),
            b"OFF" => Ok(None),
            _ => Err("ERR syntax error"),
        }
    }

    /// Adds what the client has asked for before.
    ///
    /// # Errors
    /// Why a server does not do this.
    fn behind(mut self, old: Option<&Tracking>) -> Result<Tracking, String> {
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
        }
        if old.is_some_and(|old| old.is_broadcast != self.is_broadcast) {
            return Err(format!("ERR You can't switch BCAST mode on/off {OFF_FIRST}"));
        }
        if self.is_broadcast && (self.opts_in || self.opts_out) {
            return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
        }
        if self.opts_in && self.opts_out {
            return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
        }
        let is_other =
            |old: &Tracking| (old.opts_in && self.opts_out) || (old.opts_out && self.opts_in);
        if old.is_some_and(is_other) {
            return Err(format!("ERR You can't switch OPTIN/OPTOUT mode {OFF_FIRST}"));
        }
        let known = old.map_or(&[][..], |old| &old.prefixes);
        if let Some(why) = overlapping(known, &self.prefixes) {
            return Err(why);
        }
        let is_about_all = self.is_broadcast && self.prefixes.is_empty();
        if is_about_all && known.iter().all(|prefix| !prefix.is_empty()) {
            self.prefixes.push(Vec::new());
        }
        self.prefixes.extend_from_slice(known);
        self.prefixes.sort_unstable();
        Ok(self)
    }

    /// The request that makes a server track this for a connection for which it tracks `before`:
    /// prefixes add up there.
    pub(super) fn request(&self, before: Option<&Tracking>) -> Vec<u8> {
        let mut words: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON"];
        let options: [(bool, &[u8]); 4] = [
            (self.is_broadcast, b"BCAST"),
            (self.opts_in, b"OPTIN"),
            (self.opts_out, b"OPTOUT"),
            (self.no_loop, b"NOLOOP"),
        ];
        words.extend(options.iter().filter(|option| option.0).map(|option| option.1));
        let known = before.map_or(&[][..], |before| &before.prefixes);
        let new =
            || self.prefixes.iter().filter(move |prefix| known.binary_search(prefix).is_err());
        // No prefix stands for all keys, and then the others are not asked for.
        if new().all(|prefix| !prefix.is_empty()) {
            new().for_each(|prefix| words.extend([&b"PREFIX"[..], prefix]));
        }
        raw::request(&words)
    }
}

/// The error about a new prefix that overlaps with another, if one does.
fn overlapping(known: &[Vec<u8>], new: &[Vec<u8>]) -> Option<String> {
    let all = known.iter().map(|it| (it, true)).chain(new.iter().map(|it| (it, false)));
    let mut all: Vec<(&Vec<u8>, bool)> = all.collect();
    // A prefix stands right before those that begin with it.
    all.sort_unstable();
    let pair = all
        .windows(2)
        .find(|pair| pair[1].0.starts_with(pair[0].0) && !(pair[0].1 && pair[1].1))?;
    let (prefix, other) = if pair[0].1 { (pair[1], pair[0]) } else { (pair[0], pair[1]) };
    let which = if other.1 { "an existing" } else { "another provided" };
    Some(format!(
        "ERR Prefix '{}' overlaps with {which} prefix '{}'. Prefixes for a single client must not overlap.",
        String::from_utf8_lossy(prefix.0),
        String::from_utf8_lossy(other.0)
    ))
}

impl<P: Policy> Hub<P> {
    /// `CLIENT TRACKING ON|OFF …`
    pub(super) fn track<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        let wanted = match Tracking::parse(words) {
            Ok(None) => Ok(None),
            Ok(Some(_)) if client.session.protocol == Protocol::Resp2 => {
                Err(NEEDS_RESP3.to_owned())
            }
            Ok(Some(wanted)) => wanted.behind(client.tracking.as_deref()).map(Some),
            Err(why) => Err(why.to_owned()),
        };
        match wanted.and_then(|wanted| self.set_tracking(wire, client, wanted)) {
            Ok(()) => client.answer(wire, b"+OK\r\n"),
            Err(why) => client.answer(wire, &raw::error(&why)),
        }
        Flow::Done
    }

    /// Has all servers track this for the client.
    fn set_tracking<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        wanted: Option<Tracking>,
    ) -> Result<(), String> {
        client.caching = None;
        if wanted.as_ref() == client.tracking.as_deref() {
            return Ok(());
        }
        client.tracking = wanted.map(Arc::new);
        // Connections that are for nothing else by now are let go.
        self.settle_soon(client);
        let mut servers: Vec<usize> = client.own.iter().map(|own| own.0).collect();
        if client.tracking.is_some() {
            servers.extend(self.pools[client.pool].every());
        }
        servers.into_iter().try_for_each(|server| {
            let own = self.acquire_own(wire, client, server).map_err(|why| why.text())?;
            self.bring_in_step(wire, client, own);
            Ok(())
        })
    }
}

/// `CLIENT CACHING YES|NO`
pub(super) fn choose_caching(
    client: &mut Client,
    answer: &[u8],
    request: &[u8],
    out: &mut Vec<u8>,
) {
    match caching_error(client, answer) {
        Some(why) => raw::push_error(out, why),
        None => {
            client.caching = Some(request.to_vec());
            out.extend_from_slice(b"+OK\r\n");
        }
    }
}

/// Why CLIENT CACHING with this answer is not for this client.
fn caching_error(client: &Client, answer: &[u8]) -> Option<&'static str> {
    match (client.tracking.as_deref(), &answer.to_ascii_uppercase()[..]) {
        (None, _) => Some(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
             OPTOUT mode enabled",
        ),
        (Some(tracking), b"YES") if !tracking.opts_in => {
            Some("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
        }
        (Some(tracking), b"NO") if !tracking.opts_out => {
            Some("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
        }
        (Some(_), b"YES" | b"NO") => None,
        _ => Some("ERR syntax error"),
    }
}

/// `CLIENT TRACKINGINFO`
pub(super) fn info(client: &Client, out: &mut Vec<u8>) {
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
    raw::push_integer(out, redirection(client));
    push_bulk(out, b"prefixes");
    push_header(out, b'*', tracking.prefixes.len());
    tracking.prefixes.iter().for_each(|prefix| push_bulk(out, prefix));
}

/// `CLIENT GETREDIR`: messages come on the client's own connection, if any do.
pub(super) fn redirection(client: &Client) -> i64 {
    if client.tracking.is_some() { 0 } else { -1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&[u8]> {
        text.split(' ').map(str::as_bytes).collect()
    }

    fn wanted(text: &str) -> Tracking {
        Tracking::parse(&words(text)).expect("it can be read").expect("it is on")
    }

    #[test]
    fn prefixes_of_several_requests_add_up_and_must_not_overlap() {
        let old = wanted("client tracking on prefix b bcast prefix a").behind(None);
        let old = old.expect("they do not overlap");
        let request = |text| raw::request(&words(text));
        assert_eq!(old.request(None), request("CLIENT TRACKING ON BCAST PREFIX a PREFIX b"));
        let more = wanted("CLIENT TRACKING ON BCAST NOLOOP PREFIX c").behind(Some(&old));
        let more = more.expect("it does not overlap");
        assert_eq!(
            more.request(None),
            request("CLIENT TRACKING ON BCAST NOLOOP PREFIX a PREFIX b PREFIX c")
        );
        assert_eq!(more.request(Some(&old)), request("CLIENT TRACKING ON BCAST NOLOOP PREFIX c"));
        let all = wanted("CLIENT TRACKING ON BCAST").behind(Some(&more)).expect("it is for all");
        assert_eq!(all.request(None), request("CLIENT TRACKING ON BCAST"));
        assert_eq!(all.request(Some(&more)), request("CLIENT TRACKING ON BCAST"));
        let why = wanted("CLIENT TRACKING ON BCAST PREFIX ab").behind(Some(&old));
        let why = why.expect_err("a covers ab");
        assert!(why.starts_with("ERR Prefix 'ab' overlaps with an existing prefix 'a'"), "{why}");
        let why = wanted("CLIENT TRACKING ON BCAST PREFIX ab PREFIX a").behind(None);
        assert!(why.expect_err("a covers ab").contains("another provided prefix"));
    }

    #[test]
    fn modes_that_servers_refuse_are_refused() {
        let old = wanted("CLIENT TRACKING ON OPTIN");
        for (text, old) in [
            ("CLIENT TRACKING ON PREFIX a", None),
            ("CLIENT TRACKING ON BCAST", Some(&old)),
            ("CLIENT TRACKING ON OPTOUT", Some(&old)),
            ("CLIENT TRACKING ON OPTIN OPTOUT", None),
            ("CLIENT TRACKING ON BCAST OPTIN", None),
        ] {
            assert!(wanted(text).behind(old).is_err(), "{text}");
        }
        for text in ["CLIENT TRACKING ON FOO", "CLIENT TRACKING MAYBE"] {
            assert_eq!(Tracking::parse(&words(text)), Err("ERR syntax error"), "{text}");
        }
    }
}
