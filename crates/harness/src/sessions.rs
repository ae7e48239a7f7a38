//! Random sessions: what clients say about their connections (database, protocol, tracking, replies,
//! watched keys, transactions), between reads and writes, to one server and to what looks like one.
//!
//! Every reply and every database has to be the same. A seed tells which requests are sent, and a
//! failure prints it with what was sent. `DUNLIN_SESSIONS` makes more sessions than the default.

use crate::client::{Client, ask};
use crate::environment::variable;
use crate::reply::{Protocol, Reply};
use crate::rng::Rng;

/// Databases that are used.
const DATABASES: usize = 3;
/// Clients of each server.
const CLIENTS: usize = 2;
/// Requests of a session.
const STEPS: usize = 80;

/// What is compared, and what with.
pub struct Worlds<'w> {
    /// Connects to one server.
    pub reference: &'w dyn Fn() -> Client,
    /// Connects to what looks like one.
    pub subject: &'w dyn Fn() -> Client,
    /// Keys of which the subject takes any two in one transaction.
    pub keys: [&'w str; 3],
    /// Whether the subject takes SELECT inside of MULTI.
    pub selects_in_multi: bool,
}

/// What a client gets replies for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replies {
    On,
    Off,
    Skip,
}

/// A client of both, and what the test knows of it.
struct Session {
    reference: Client,
    subject: Client,
    protocol: Protocol,
    replies: Replies,
    is_in_multi: bool,
}

impl Session {
    fn new(worlds: &Worlds<'_>) -> Session {
        Session {
            reference: (worlds.reference)(),
            subject: (worlds.subject)(),
            protocol: Protocol::Resp2,
            replies: Replies::On,
            is_in_multi: false,
        }
    }

    /// Returns a request that both answer alike whatever came before.
    fn request(&self, worlds: &Worlds<'_>, rng: &mut Rng) -> Vec<String> {
        let key = *rng.pick(&worlds.keys);
        let list = format!("{key}:list");
        let db = rng.below(DATABASES);
        let value = rng.below(1000);
        let text = match rng.below(if self.is_in_multi { 46 } else { 66 }) {
            0..4 => format!("SET {key} {value}"),
            4..8 => format!("INCR {key}"),
            8..11 => format!("GET {key}"),
            11 => format!("DEL {key} {list}"),
            12..14 => format!("RPUSH {list} {value}"),
            14 => format!("LPOP {list}"),
            15 => "PING".to_owned(),
            16 => "GET".to_owned(),
            17 => "NOSUCHCOMMAND".to_owned(),
            18 => format!("BLPOP {list} 0.001"),
            19..27 if self.is_in_multi && !worlds.selects_in_multi => format!("EXISTS {key}"),
            19..26 => format!("SELECT {db}"),
            26 => (*rng.pick(&["SELECT 99", "SELECT x", "SELECT -1", "SELECT"])).to_owned(),
            27..31 if self.is_in_multi => "EXEC".to_owned(),
            27..31 => "MULTI".to_owned(),
            31..34 => "EXEC".to_owned(),
            34 => "MULTI".to_owned(),
            35 => "DISCARD".to_owned(),
            36..40 => format!("WATCH {key}"),
            40 => "UNWATCH".to_owned(),
            41 => (*rng.pick(&["MULTI x", "EXEC x", "DISCARD x", "WATCH", "RESET x"])).to_owned(),
            // Under CLIENT REPLY OFF alone it has a reply.
            42 if self.replies == Replies::On => "RESET".to_owned(),
            42..46 => format!("STRLEN {key}"),
            46..49 => format!("HELLO {}", rng.pick(&["2", "3"])),
            49..53 => format!("CLIENT REPLY {}", rng.pick(&["ON", "OFF", "SKIP", "SKIP"])),
            53..57 if self.protocol == Protocol::Resp3 => {
                let modes = ["ON", "ON OPTIN", "ON NOLOOP", "ON BCAST", "ON BCAST PREFIX z", "OFF"];
                format!("CLIENT TRACKING {}", rng.pick(&modes))
            }
            53..57 => "CLIENT TRACKING OFF".to_owned(),
            57..59 => "CLIENT TRACKINGINFO".to_owned(),
            59 => "CLIENT GETREDIR".to_owned(),
            60 => "CLIENT CACHING YES".to_owned(),
            61 => "CLIENT SETNAME me".to_owned(),
            62 => "CLIENT GETNAME".to_owned(),
            63 => (*rng.pick(&["CLIENT", "CLIENT GETNAME x", "CLIENT NOSUCH", "AUTH default x"]))
                .to_owned(),
            _ => "AUTH x".to_owned(),
        };
        text.split(' ').map(str::to_owned).collect()
    }

    /// Returns whether a request has a reply, and notes what it does to later ones.
    fn has_reply(&mut self, words: &[String]) -> bool {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let before = self.replies;
        if before == Replies::Skip {
            self.replies = Replies::On;
        }
        let is_said = before == Replies::On;
        match words[..] {
            ["MULTI"] => self.is_in_multi = true,
            ["EXEC", ..] | ["DISCARD"] => self.is_in_multi = false,
            ["RESET"] => (self.is_in_multi, self.replies) = (false, Replies::On),
            ["CLIENT", "REPLY", mode] if !self.is_in_multi => {
                match mode {
                    "ON" => self.replies = Replies::On,
                    "OFF" => self.replies = Replies::Off,
                    _ if self.replies == Replies::On => self.replies = Replies::Skip,
                    _ => {}
                }
                return mode == "ON";
            }
            _ => {}
        }
        is_said
    }

    /// Sends a request to both. Returns what differs.
    fn ask(&mut self, words: &[String]) -> Result<(), String> {
        for client in [&mut self.reference, &mut self.subject] {
            client.send(words).map_err(|why| format!("{words:?} cannot be sent: {why}"))?;
        }
        // A reply is one of the protocol that HELLO asks for, and messages may come before it.
        let is_switch = matches!(&words[0][..], "HELLO" | "RESET");
        self.protocol = match words {
            [name, version] if name == "HELLO" && version == "3" => Protocol::Resp3,
            [name, ..] if name == "HELLO" => Protocol::Resp2,
            [name] if name == "RESET" => Protocol::Resp2,
            _ => self.protocol,
        };
        let has_reply = self.has_reply(words);
        let (protocol, reads) =
            (self.protocol, if is_switch { Protocol::Resp3 } else { self.protocol });
        let [expected, found] = [&mut self.reference, &mut self.subject].map(|client| {
            client.set_protocol(reads);
            let reply = has_reply.then(|| client.reply().map_err(|why| why.to_string()));
            client.set_protocol(protocol);
            reply
        });
        let (Some(expected), Some(found)) = (expected, found) else { return Ok(()) };
        let is_hello = words[0] == "HELLO";
        let is_same = match (&expected, &found) {
            // They tell each client's number.
            (Ok(expected), Ok(found)) if is_hello => expected.is_error() == found.is_error(),
            (Ok(expected), Ok(found)) => expected == found,
            _ => false,
        };
        match is_same {
            true => Ok(()),
            false => Err(format!("{words:?}: expected {expected:?}, found {found:?}")),
        }
    }
}

/// All that is in the databases.
fn contents(client: &mut Client, keys: &[&str]) -> Vec<Reply> {
    let mut found = Vec::new();
    for db in 0..DATABASES {
        ask(client, &format!("SELECT {db}"));
        for key in keys {
            found.push(ask(client, &format!("GET {key}")));
            found.push(ask(client, &format!("LRANGE {key}:list 0 -1")));
        }
    }
    found
}

fn session(worlds: &Worlds<'_>, seed: u64, sent: &mut Vec<String>) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    for connect in [worlds.reference, worlds.subject] {
        let mut client = connect();
        for db in 0..DATABASES {
            ask(&mut client, &format!("SELECT {db}"));
            for key in worlds.keys {
                ask(&mut client, &format!("DEL {key} {key}:list"));
            }
        }
    }
    let mut sessions: Vec<Session> = (0..CLIENTS).map(|_| Session::new(worlds)).collect();
    let mut at = 0;
    for _ in 0..STEPS {
        // What a client has sent has certainly been carried out only when it has got a reply.
        if sessions[at].replies == Replies::On && sent.last().is_some_and(|it| !it.ends_with('-')) {
            at = rng.below(CLIENTS);
        }
        let request = sessions[at].request(worlds, &mut rng);
        sent.push(format!("{at}: {}", request.join(" ")));
        let (was_on, replies) = (sessions[at].replies == Replies::On, sent.len() - 1);
        sessions[at].ask(&request)?;
        if !was_on || sessions[at].replies != Replies::On {
            sent[replies].push_str(" -");
        }
    }
    for session in &mut sessions {
        // The last requests have been carried out when this is answered.
        for request in [&["DISCARD"][..], &["CLIENT", "REPLY", "ON"]] {
            let request: Vec<String> = request.iter().map(|word| (*word).to_owned()).collect();
            session.ask(&request)?;
        }
    }
    let [expected, found] =
        [worlds.reference, worlds.subject].map(|connect| contents(&mut connect(), &worlds.keys));
    match expected == found {
        true => Ok(()),
        false => Err(format!("the databases differ: expected {expected:?}, found {found:?}")),
    }
}

/// Compares the sessions of these seeds.
///
/// # Panics
/// A reply or a database differs.
pub fn compare(worlds: &Worlds<'_>, seeds: std::ops::Range<u64>) {
    let count = variable("DUNLIN_SESSIONS").unwrap_or(seeds.end - seeds.start);
    for seed in seeds.start..seeds.start + count {
        let mut sent = Vec::new();
        if let Err(why) = session(worlds, seed, &mut sent) {
            panic!("seed {seed}: {why}, after\n{}", sent.join("\n"));
        }
    }
}
