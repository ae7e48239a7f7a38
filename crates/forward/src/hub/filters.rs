//! The filters of CLIENT LIST and CLIENT KILL.

use super::client::Client;
use std::time::Instant;
use structs::numbers;

const SYNTAX: &str = "ERR syntax error";

/// The letters that a client's flags can have at servers.
const LETTERS: &[u8] = b"OSMPxbtRBdcuAUreTIiEN";

/// What a client can be asked to have, or not to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trait {
    Ids,
    Kind,
    Addr,
    Laddr,
    User,
    Name,
    Flags,
    LibName,
    LibVersion,
    Db,
    Capabilities,
    Ip,
}

/// Which clients are meant.
#[derive(Debug, Default)]
pub(super) struct Filters {
    /// Traits with the texts of which a client has to have one, or none if it is negative. Of a trait
    /// that is given twice the later counts; numbers of clients add up.
    traits: Vec<(Trait, bool, Vec<Vec<u8>>)>,
    skips_me: Option<bool>,
    min_age_s: u64,
}

impl Filters {
    /// Reads words behind the subcommand. `user` is the only one that there is.
    ///
    /// # Errors
    /// What is wrong with them, as servers say it.
    pub fn parse(words: &[&[u8]], user: &str) -> Result<Filters, String> {
        if words.len() == 1 {
            return Err(SYNTAX.to_owned());
        }
        let mut filters = Filters::default();
        let mut words = words.iter().copied().peekable();
        while let Some(word) = words.next() {
            let word = word.to_ascii_lowercase();
            let (name, is_negative) = match word.strip_prefix(b"not-") {
                Some(name) => (name, true),
                None => (&word[..], false),
            };
            if name == b"id" {
                let mut ids = Vec::new();
                while let Some(word) = words.next_if(|word| numbers::parse_i64(word).is_some()) {
                    ids.push(id(word)?);
                }
                filters.add(Trait::Ids, is_negative, ids);
                continue;
            }
            let value = words.next().ok_or(SYNTAX)?;
            if is_negative || !filters.set_own(name, value)? {
                let (kind, value) = asked(name, value, is_negative, user)?;
                filters.set(kind, is_negative, vec![value]);
            }
        }
        Ok(filters)
    }

    /// Sets what has no negative. Returns whether it is of that kind.
    fn set_own(&mut self, name: &[u8], value: &[u8]) -> Result<bool, String> {
        match (name, &value.to_ascii_lowercase()[..]) {
            (b"skipme", b"yes") => self.skips_me = Some(true),
            (b"skipme", b"no") => self.skips_me = Some(false),
            (b"skipme", _) => return Err(SYNTAX.to_owned()),
            (b"maxage", _) => self.min_age_s = positive(value, "maxage")?,
            (b"idle", _) => {
                positive(value, "idle")?;
                return Err("ERR proxy: how long clients have been idle is not known".to_owned());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set(&mut self, kind: Trait, is_negative: bool, values: Vec<Vec<u8>>) {
        self.traits.retain(|known| (known.0, known.1) != (kind, is_negative));
        self.traits.push((kind, is_negative, values));
    }

    fn add(&mut self, kind: Trait, is_negative: bool, mut values: Vec<Vec<u8>>) {
        let same = |known: &&mut (Trait, bool, _)| (known.0, known.1) == (kind, is_negative);
        match self.traits.iter_mut().find(same) {
            Some(known) => known.2.append(&mut values),
            None => self.traits.push((kind, is_negative, values)),
        }
    }

    /// Returns whether they hold for a client. `skips_me` says whether the asking client is passed over
    /// unless SKIPME says otherwise.
    pub fn allow(
        &self,
        client: &Client,
        user: &str,
        asker: u64,
        skips_me: bool,
        now: Instant,
    ) -> bool {
        let age_s = now.saturating_duration_since(client.since).as_secs();
        let has = |kind: Trait, values: &[Vec<u8>]| {
            let own = own(client, user, kind);
            values.iter().any(|value| match kind {
                Trait::Flags | Trait::Capabilities => value.iter().all(|it| own.contains(it)),
                // What has no name has not the empty one either.
                _ => !own.is_empty() && own == *value,
            })
        };
        !(client.number == asker && self.skips_me.unwrap_or(skips_me))
            && age_s >= self.min_age_s
            && self
                .traits
                .iter()
                .all(|(kind, is_negative, values)| has(*kind, values) != *is_negative)
    }
}

pub(super) fn id(value: &[u8]) -> Result<Vec<u8>, String> {
    match numbers::parse_u64(value) {
        Some(1..) => Ok(value.to_vec()),
        _ => Err("ERR client-id should be greater than 0".to_owned()),
    }
}

/// The trait of this name, and what is asked of it. `user` is the only one that there is.
fn asked(
    name: &[u8],
    value: &[u8],
    is_negative: bool,
    user: &str,
) -> Result<(Trait, Vec<u8>), String> {
    let filter = |negative| if is_negative { negative } else { "the provided" };
    let kind = match name {
        b"type" => {
            let kind: &[u8] = match &value.to_ascii_lowercase()[..] {
                b"normal" => b"normal",
                b"pubsub" => b"pubsub",
                b"master" | b"primary" | b"replica" | b"slave" => b"server",
                _ => return Err(unknown("client type '", value, "'")),
            };
            return Ok((Trait::Kind, kind.to_vec()));
        }
        b"user" if value != user.as_bytes() => {
            return Err(format!("ERR No such user '{}'", String::from_utf8_lossy(value)));
        }
        b"flags" if !value.iter().all(|letter| LETTERS.contains(letter)) => {
            let filter = filter("the NOT-FLAGS");
            return Err(unknown(&format!("flags found in {filter} filter: "), value, ""));
        }
        b"capa" if !value.iter().all(|letter| *letter == b'r') => {
            let filter = filter("the NOT-CAPA");
            return Err(unknown(&format!("capa found in {filter} filter: "), value, ""));
        }
        b"db" if numbers::parse_i64(value).is_none() => {
            let name = if is_negative { "NOT-DB" } else { "DB" };
            return Err(format!("ERR {name} is not an integer or out of range"));
        }
        b"user" => Trait::User,
        b"flags" => Trait::Flags,
        b"capa" => Trait::Capabilities,
        b"addr" => Trait::Addr,
        b"laddr" => Trait::Laddr,
        b"name" => Trait::Name,
        b"lib-name" => Trait::LibName,
        b"lib-ver" => Trait::LibVersion,
        b"db" => Trait::Db,
        b"ip" => Trait::Ip,
        _ => return Err(SYNTAX.to_owned()),
    };
    Ok((kind, value.to_vec()))
}

fn positive(value: &[u8], name: &str) -> Result<u64, String> {
    match numbers::parse_i64(value) {
        Some(number @ 1..) => Ok(number as u64),
        Some(_) => Err(format!("ERR {name} should be greater than 0")),
        None => Err(format!("ERR {name} is not an integer or out of range")),
    }
}

fn unknown(before: &str, value: &[u8], after: &str) -> String {
    format!("ERR Unknown {before}{}{after}", String::from_utf8_lossy(value))
}

/// A client's trait as text; empty if it has none.
fn own(client: &Client, user: &str, kind: Trait) -> Vec<u8> {
    let library = |at: usize| client.library.as_ref().map_or_else(Vec::new, |it| it[at].clone());
    match kind {
        Trait::Ids => client.number.to_string().into_bytes(),
        Trait::Kind if client.is_subscribed() => b"pubsub".to_vec(),
        Trait::Kind => b"normal".to_vec(),
        Trait::Addr => client.peer.clone().into_bytes(),
        // The address of the listener is not known here.
        Trait::Laddr => Vec::new(),
        Trait::User => user.as_bytes().to_vec(),
        Trait::Name => client.name.clone(),
        Trait::Flags => client.flags().as_bytes().to_vec(),
        Trait::Capabilities => client.capabilities().as_bytes().to_vec(),
        Trait::LibName => library(0),
        Trait::LibVersion => library(1),
        Trait::Db => client.session.db.to_string().into_bytes(),
        Trait::Ip => {
            let host = client.peer.rsplit_once(':').map_or(&client.peer[..], |(host, _)| host);
            host.trim_start_matches('[').trim_end_matches(']').as_bytes().to_vec()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Id;

    #[test]
    fn filters_choose_clients_as_servers_do() {
        let now = Instant::now();
        let mut client = Client::new(Id::default(), 7, 0, "10.0.0.1:99".to_owned(), now);
        client.name = b"me".to_vec();
        let allows = |text: &str| {
            let words: Vec<&[u8]> = text.split_whitespace().map(str::as_bytes).collect();
            Filters::parse(&words, "default").map(|it| it.allow(&client, "default", 9, true, now))
        };
        for text in [
            "",
            "ID 7",
            "id 1 7 9",
            "NOT-ID 8",
            "ADDR 10.0.0.1:99",
            "IP 10.0.0.1",
            "TYPE normal",
            "USER default",
            "NAME me",
            "DB 0",
            "not-name you SKIPME no",
            "NOT-LIB-NAME x",
            "ID 8 ID 7",
            "FLAGS N",
            "NOT-FLAGS bN",
            "NOT-CAPA r",
        ] {
            assert_eq!(allows(text), Ok(true), "{text}");
        }
        for text in [
            "ID 8",
            "NOT-ID 7",
            "NAME you",
            "TYPE pubsub",
            "LIB-NAME x",
            "MAXAGE 5",
            "DB 1",
            "CAPA r",
            "FLAGS x",
        ] {
            assert_eq!(allows(text), Ok(false), "{text}");
        }
        for text in [
            "ID", "ID 0", "ID x", "NAME", "TYPE x", "USER bob", "SKIPME x", "x y", "FLAGS Z",
            "IDLE 1",
        ] {
            assert!(allows(text).is_err(), "{text}");
        }
        let words: [&[u8]; 2] = [b"ID", b"7"];
        let me = Filters::parse(&words, "default").expect("valid");
        assert!(!me.allow(&client, "default", 7, true, now), "KILL passes the asking client over");
        assert!(me.allow(&client, "default", 7, false, now));
    }
}
