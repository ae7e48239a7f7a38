//! What a client wants its servers to track: the words of CLIENT TRACKING, and the request that
//! has a server do it.

use route::raw;

pub(super) const NEEDS_RESP3: &str =
    "ERR proxy: CLIENT TRACKING needs RESP3, whose messages reach you; say HELLO 3";

const NO_REDIRECT: &str = "ERR proxy: REDIRECT names a connection to the server, and yours is to the \
    proxy; say HELLO 3, and messages come on this connection";

const OFF_FIRST: &str = "before disabling tracking for this client, and then re-enabling it with a \
    different mode.";

/// What a client wants to be told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    pub(super) is_broadcast: bool,
    pub(super) opts_in: bool,
    pub(super) opts_out: bool,
    pub(super) no_loop: bool,
    /// In ascending order.
    pub(super) prefixes: Vec<Vec<u8>>,
}

impl Tracking {
    /// Reads the words of CLIENT TRACKING as a server does. `None`: it is to be off.
    pub(super) fn parse(words: &[&[u8]]) -> Result<Option<Tracking>, &'static str> {
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
    pub(super) fn behind(mut self, old: Option<&Tracking>) -> Result<Tracking, String> {
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
