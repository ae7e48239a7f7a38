//! Two servers that are sent the same requests.

use super::Op;
use super::compare::{Compare, texts};
use crate::client::Client;
use crate::notation::print;
use crate::reply::{Protocol, Reply};
use crate::server::{Backend, Options, Program, Server};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;

/// A difference between the servers.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Index of the request that showed it; the sequence's length if only the data in the end did.
    pub at: usize,
    /// What it is about: the command, for telling differences apart.
    pub about: String,
    /// Both replies, for reading.
    pub text: String,
}

/// One of the two servers with its connections.
struct Side {
    program: Program,
    options: Options,
    server: Option<Server>,
    clients: Vec<Client>,
    /// If the server has a flash tier: the connection on which values are sent there.
    demoter: Option<Client>,
}

impl Side {
    /// Fresh connections to a server that is running and empty.
    fn reset(&mut self, protocol: Protocol, settings: &[(&str, &str)]) -> io::Result<()> {
        self.clients.clear();
        if self.server.is_none() || self.connect(protocol).is_err() {
            self.clients.clear();
            self.server = None;
            self.server = Some(Server::start(&self.program, self.options.clone())?);
            self.connect(protocol)?;
        }
        for request in [&["FLUSHALL"][..], &["FUNCTION", "FLUSH"], &["SCRIPT", "FLUSH"]] {
            self.ask(0, request)?;
        }
        let mut request = vec!["CONFIG", "SET"];
        request.extend(settings.iter().flat_map(|(name, value)| [*name, *value]));
        let reply = self.ask(0, &request)?;
        if reply.is_error() { Err(io::Error::other(print(&reply))) } else { Ok(()) }
    }

    fn connect(&mut self, protocol: Protocol) -> io::Result<()> {
        let server = self.server.as_ref().ok_or_else(|| io::Error::other("no server"))?;
        for _ in 0..2 {
            self.clients.push(server.connect(protocol)?);
        }
        if self.has_tier() {
            let mut demoter = server.connect(protocol)?;
            demoter.command(&["DEBUG", "TIER", "FILTER", "yes"])?;
            demoter.command(&["DEBUG", "DEFRAG-ALL", "1"])?;
            self.demoter = Some(demoter);
        }
        Ok(())
    }

    fn has_tier(&self) -> bool {
        self.options.arguments.iter().any(|word| word == "--tier-dir")
    }

    /// Sends every value that can go to the flash tier, if there is one.
    fn demote(&mut self) -> io::Result<()> {
        let Some(client) = &mut self.demoter else { return Ok(()) };
        let reply = client.command(&["DEBUG", "TIER", "DEMOTE"])?;
        if reply.is_error() { Err(io::Error::other(print(&reply))) } else { Ok(()) }
    }

    fn ask<W: AsRef<[u8]>>(&mut self, client: usize, words: &[W]) -> io::Result<Reply> {
        self.clients[client].command(words)
    }

    fn log_tail(&self) -> String {
        let log = self.server.as_ref().map(Server::log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(30).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Thresholds at which small values change their encoding: the usual ones, and such that most
/// values of a random sequence change it.
const SETTINGS: [&[(&str, &str)]; 2] = [
    &[
        ("hash-max-listpack-entries", "512"),
        ("hash-max-listpack-value", "64"),
        ("list-max-listpack-size", "-2"),
        ("set-max-intset-entries", "512"),
        ("set-max-listpack-entries", "128"),
        ("set-max-listpack-value", "64"),
        ("zset-max-listpack-entries", "128"),
        ("zset-max-listpack-value", "64"),
    ],
    &[
        ("hash-max-listpack-entries", "5"),
        ("hash-max-listpack-value", "20"),
        ("list-max-listpack-size", "4"),
        ("set-max-intset-entries", "5"),
        ("set-max-listpack-entries", "6"),
        ("set-max-listpack-value", "20"),
        ("zset-max-listpack-entries", "5"),
        ("zset-max-listpack-value", "20"),
    ],
];

/// The server under test and the reference.
pub struct Duel {
    sides: [Side; 2],
    /// Which protocol and settings sequences run under.
    protocol: Protocol,
    settings: usize,
    /// Whether SORT has run. In the reference it leaves a sorted set in its big encoding, which
    /// Dunlin does not follow: reading changes nothing.
    sorted: bool,
    /// Whether a script has run.
    scripted: bool,
    /// Whether a payload has been restored.
    restored: bool,
    /// Per connection, how the requests queued in its transaction are compared.
    queued: [Vec<Compare>; 2],
}

type Replies = (Reply, Reply);

impl Duel {
    /// Starts both.
    pub fn new(tested: Program, reference: Program, backend: Option<Backend>) -> io::Result<Duel> {
        // Blocking commands time out when the clock ticks: often, or they take all the time.
        let often = Options::arguments(&["--hz", "500"]);
        let options = Options { backend, ..often.clone() };
        Duel::with_options(tested, options, reference, often)
    }

    /// Starts both, the server under test with a flash tier: before most requests all its values go
    /// there.
    pub fn on_flash(tested: Program, reference: Program) -> io::Result<Duel> {
        let tier = ["--tier-dir", "tier", "--tier-segment-size", "1mb", "--maxmemory", "500mb"];
        let debug = ["--enable-debug-command", "yes", "--hz", "500"];
        let options = Options::arguments(&[&tier[..], &debug].concat());
        Duel::with_options(tested, options, reference, Options::arguments(&["--hz", "500"]))
    }

    fn with_options(
        tested: Program,
        options: Options,
        reference: Program,
        often: Options,
    ) -> io::Result<Duel> {
        let side = |program, options| Side {
            program,
            options,
            server: None,
            clients: Vec::new(),
            demoter: None,
        };
        let mut duel = Duel {
            sides: [side(tested, options), side(reference, often)],
            protocol: Protocol::Resp2,
            settings: 0,
            sorted: false,
            scripted: false,
            restored: false,
            queued: Default::default(),
        };
        duel.reset()?;
        Ok(duel)
    }

    /// Which of the commands each server knows, by asking for each without arguments.
    pub fn known(&self, names: &BTreeSet<String>) -> io::Result<[BTreeSet<String>; 2]> {
        let mut known = [BTreeSet::new(), BTreeSet::new()];
        for (side, known) in self.sides.iter().zip(&mut known) {
            let server = side.server.as_ref().ok_or_else(|| io::Error::other("no server"))?;
            for name in names {
                // A connection each: some of them change its state.
                let reply = server.connect(Protocol::Resp2)?.command(&[name])?;
                let unknown =
                    reply.text().is_some_and(|text| text.starts_with(b"ERR unknown command"));
                if !unknown {
                    known.insert(name.clone());
                }
            }
        }
        Ok(known)
    }

    /// The names of all commands of each server.
    pub fn commands(&mut self) -> io::Result<[BTreeSet<String>; 2]> {
        let mut commands = [BTreeSet::new(), BTreeSet::new()];
        for (side, commands) in self.sides.iter_mut().zip(&mut commands) {
            let reply = side.ask(0, &["COMMAND", "LIST"])?;
            let names = texts(&reply);
            commands.extend(names.iter().map(|name| String::from_utf8_lossy(name).to_lowercase()));
        }
        Ok(commands)
    }

    /// Runs sequences under what follows from the seed.
    pub fn configure(&mut self, seed: u64) {
        self.protocol = if seed & 1 == 0 { Protocol::Resp2 } else { Protocol::Resp3 };
        self.settings = usize::from(seed & 2 != 0);
    }

    /// What the sequences run under, for a report.
    pub fn configuration(&self) -> String {
        let small = if self.settings == 1 { ", small encoding thresholds" } else { "" };
        format!("{}{small}", self.protocol)
    }

    /// Sends a sequence to both servers, empty before it; the first difference, if there is one.
    pub fn run(&mut self, ops: &[Op]) -> Option<Difference> {
        if let Err(error) = self.reset() {
            return Some(self.broken(0, "start", &error));
        }
        for (at, op) in ops.iter().enumerate() {
            match self.step(op) {
                Ok(None) => {}
                Ok(Some(text)) => return Some(Difference { at, about: op.name(), text }),
                Err(error) => return Some(self.broken(at, &op.name(), &error)),
            }
        }
        match self.final_state() {
            Ok(None) => None,
            Ok(Some(text)) => {
                Some(Difference { at: ops.len(), about: "the data in the end".to_owned(), text })
            }
            Err(error) => Some(self.broken(ops.len(), "the data in the end", &error)),
        }
    }

    fn reset(&mut self) -> io::Result<()> {
        self.queued = Default::default();
        (self.sorted, self.scripted, self.restored) = (false, false, false);
        for side in &mut self.sides {
            side.reset(self.protocol, SETTINGS[self.settings])?;
        }
        Ok(())
    }

    /// A connection that failed: a crash, a hang, or bytes that are not the protocol.
    fn broken(&mut self, at: usize, about: &str, error: &io::Error) -> Difference {
        let text =
            format!("{error}\nthe end of the tested server's log:\n{}", self.sides[0].log_tail());
        for side in &mut self.sides {
            side.clients.clear();
            side.server = None;
        }
        Difference { at, about: format!("{about}, connection"), text }
    }

    /// Sends one request to both servers.
    fn both<W: AsRef<[u8]>>(&mut self, client: usize, words: &[W]) -> io::Result<Replies> {
        for side in &mut self.sides {
            side.clients[client].send(words)?;
        }
        let [a, b] = &mut self.sides;
        Ok((a.clients[client].reply()?, b.clients[client].reply()?))
    }

    /// Whether both replies are encodings of a sorted set that SORT may have changed, of a number
    /// that a script has set, which the reference keeps as a text, or of a restored string that a
    /// command has looked at and left, which the reference has unpacked.
    fn tolerates(&self, a: &Reply, b: &Reply) -> bool {
        let encodings = (a.text(), b.text());
        // A value that comes back from flash takes the small form if it fits, as after a restart.
        let (small, large) =
            ([&b"listpack"[..], b"intset"], [&b"quicklist"[..], b"hashtable", b"skiplist"]);
        if self.sides[0].has_tier()
            && let (Some(ours), Some(theirs)) = encodings
            && small.contains(&ours)
            && (large.contains(&theirs) || small.contains(&theirs))
        {
            return true;
        }
        // A push counts the bytes of the words alone, so a small list may be larger than the limit,
        // and comes back large, also as after a restart.
        if self.sides[0].has_tier() && encodings == (Some(b"quicklist"), Some(b"listpack")) {
            return true;
        }
        (self.sorted && encodings == (Some(b"listpack"), Some(b"skiplist")))
            || (self.scripted && encodings == (Some(b"int"), Some(b"embstr")))
            || (self.restored && encodings == (Some(b"embstr"), Some(b"raw")))
    }

    fn step(&mut self, op: &Op) -> io::Result<Option<String>> {
        // It follows from the request alone, so that a sequence that is cut down goes on failing.
        let luck = BuildHasherDefault::<DefaultHasher>::default().hash_one(&op.words);
        if !luck.is_multiple_of(4) {
            self.sides[0].demote()?;
        }
        self.sorted |= op.name().starts_with("sort");
        self.restored |= op.compare == Compare::Dump || op.name() == "restore";
        self.scripted |= op.name().starts_with("eval") || op.name().starts_with("fcall");
        let in_transaction = !self.queued[op.client].is_empty();
        match op.compare {
            Compare::Pop if !in_transaction => self.pop(op),
            Compare::Scan if !in_transaction => self.scan(op),
            Compare::Dump if !in_transaction => self.dump(op),
            Compare::Sort if !in_transaction => self.sort(op),
            Compare::RandomKey if !in_transaction => {
                let (a, b) = self.both(op.client, &op.words)?;
                match a.text() {
                    Some(key) if b.text().is_some() => {
                        let exists = self.sides[1].ask(op.client, &[b"EXISTS", key])?;
                        Ok(unless(exists == Reply::Integer(1), &a, &b))
                    }
                    _ => Ok(unless(a == b, &a, &b)),
                }
            }
            _ => {
                let (a, b) = self.both(op.client, &op.words)?;
                let same = self.same(op, &a, &b);
                self.follow_transaction(op, &a);
                if same && op.compare == Compare::Random && !in_transaction {
                    return self.check_random(op, &a, &b);
                }
                Ok(unless(same, &a, &b))
            }
        }
    }

    /// Compares; the reply of EXEC by what each of its commands asks for.
    fn same(&self, op: &Op, a: &Reply, b: &Reply) -> bool {
        let queued = &self.queued[op.client];
        match (a, b) {
            (Reply::Array(a), Reply::Array(b))
                if op.name() == "exec" && a.len() + 1 == queued.len() =>
            {
                let compares = queued.iter().skip(1);
                a.len() == b.len()
                    && compares
                        .zip(a.iter().zip(b))
                        .all(|(compare, (a, b))| compare.same(a, b) || self.tolerates(a, b))
            }
            _ => op.compare.same(a, b) || self.tolerates(a, b),
        }
    }

    /// Remembers what is queued: MULTI itself first, to tell an empty transaction from none.
    fn follow_transaction(&mut self, op: &Op, reply: &Reply) {
        let queued = &mut self.queued[op.client];
        match op.name().as_str() {
            "multi" if !reply.is_error() => *queued = vec![Compare::Equal],
            "exec" | "discard" => queued.clear(),
            _ if *reply == Reply::Simple(b"QUEUED".to_vec()) => queued.push(op.compare),
            _ => {}
        }
    }

    /// What one server popped is taken from the other, so that they stay alike.
    fn pop(&mut self, op: &Op) -> io::Result<Option<String>> {
        let reply = self.sides[0].ask(op.client, &op.words)?;
        let Some(member) = reply.text().filter(|_| !reply.is_error()) else {
            let other = self.sides[1].ask(op.client, &op.words)?;
            return Ok(unless(reply == other, &reply, &other));
        };
        let removed = self.sides[1].ask(op.client, &[b"SREM", op.words[1].as_slice(), member])?;
        Ok(unless(removed == Reply::Integer(1), &reply, &removed))
    }

    fn scan(&mut self, op: &Op) -> io::Result<Option<String>> {
        // A cursor that no reply has named is a place in the server's own table.
        let cursor = op.words.get(cursor_of(op));
        if cursor.is_some_and(|cursor| cursor != b"0" && cursor.iter().all(u8::is_ascii_digit)) {
            let (a, b) = self.both(op.client, &op.words)?;
            return Ok(unless(a.is_error() == b.is_error(), &a, &b));
        }
        let mut found = Vec::new();
        for side in &mut self.sides {
            found.push(scan_all(side, op)?);
        }
        if found[0] == found[1] {
            return Ok(None);
        }
        Ok(Some(format!(
            "the tested server found\n{}\nthe reference found\n{}",
            found[0], found[1]
        )))
    }

    fn dump(&mut self, op: &Op) -> io::Result<Option<String>> {
        let (a, b) = self.both(op.client, &op.words)?;
        let (Reply::Bulk(ours), Reply::Bulk(theirs)) = (&a, &b) else {
            return Ok(unless(a == b, &a, &b));
        };
        let mut texts = Vec::new();
        for (side, payload) in self.sides.iter_mut().zip([theirs, ours]) {
            let reply =
                side.ask(op.client, &[b"RESTORE".as_slice(), b"x1", b"0", payload, b"REPLACE"])?;
            if reply.is_error() {
                texts.push(format!(
                    "{} cannot restore the other's payload {}: {}",
                    side.program.name(),
                    print(&Reply::Bulk(payload.clone())),
                    print(&reply)
                ));
            }
        }
        Ok(if texts.is_empty() { None } else { Some(texts.join("\n")) })
    }

    fn sort(&mut self, op: &Op) -> io::Result<Option<String>> {
        let (a, b) = self.both(op.client, &op.words)?;
        let key = op.words[1].as_slice();
        let (kind, other) = self.both(op.client, &[b"TYPE", key])?;
        if kind == other && kind.text() == Some(b"zset") {
            for side in &mut self.sides {
                let payload = side.ask(op.client, &[b"DUMP", key])?;
                let ttl = side.ask(op.client, &[b"PTTL", key])?;
                if let (Reply::Bulk(payload), Reply::Integer(ttl)) = (payload, ttl) {
                    let ttl = ttl.max(0).to_string();
                    let words = [b"RESTORE".as_slice(), key, ttl.as_bytes(), &payload, b"REPLACE"];
                    side.ask(op.client, &words)?;
                }
            }
        }
        Ok(unless(Compare::Sort.same(&a, &b), &a, &b))
    }

    /// A random selection has been of the right shape: it also has to be of what is there, and
    /// without repetition if its count is not negative.
    fn check_random(&mut self, op: &Op, a: &Reply, b: &Reply) -> io::Result<Option<String>> {
        if a.is_error() || a.is_nil() {
            return Ok(None);
        }
        let key = op.words[1].as_slice();
        let contents = match op.name().as_str() {
            "srandmember" => self.sides[1].ask(op.client, &[b"SMEMBERS", key])?,
            "hrandfield" => self.sides[1].ask(op.client, &[b"HGETALL", key])?,
            _ => {
                let words: [&[u8]; 5] = [b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"];
                self.sides[1].ask(op.client, &words)?
            }
        };
        let there: BTreeSet<_> = texts(&contents).into_iter().collect();
        let given = texts(a);
        let distinct = given.iter().collect::<BTreeSet<_>>().len() == given.len();
        let repeats = op.words.len() != 3 || op.words[2].starts_with(b"-");
        Ok(unless(given.iter().all(|text| there.contains(text)) && (repeats || distinct), a, b))
    }

    /// Compares all there is: every database's keys, types, values, encodings and times to live.
    fn final_state(&mut self) -> io::Result<Option<String>> {
        // Connection 0 may be inside a transaction.
        self.both(0, &["DISCARD"])?;
        self.sides[0].demote()?;
        for db in ["0", "1"] {
            self.both(0, &["SELECT", db])?;
            let (a, b) = self.both(0, &["KEYS", "*"])?;
            if !Compare::Unordered.same(&a, &b) {
                return Ok(Some(format!("KEYS * in database {db}\n{}", versus(&a, &b))));
            }
            for key in texts(&a) {
                if let Some(text) = self.same_key(&key)? {
                    let key = Reply::Bulk(key);
                    return Ok(Some(format!("key {} in database {db}: {text}", print(&key))));
                }
            }
        }
        Ok(None)
    }

    fn same_key(&mut self, key: &[u8]) -> io::Result<Option<String>> {
        let (kind, other) = self.both(0, &[b"TYPE", key])?;
        let read: &[&[u8]] = match kind.text() {
            Some(b"string") => &[b"GET"],
            Some(b"list") => &[b"LRANGE", b"0", b"-1"],
            Some(b"set") => &[b"SMEMBERS"],
            Some(b"zset") => &[b"ZRANGE", b"0", b"-1", b"WITHSCORES"],
            Some(b"hash") => &[b"HGETALL"],
            Some(b"stream") => &[b"XRANGE", b"-", b"+"],
            _ => return Ok(unless(kind == other, &kind, &other)),
        };
        let contents = match kind.text() {
            Some(b"set") => Compare::Unordered,
            Some(b"hash") => Compare::Pairs,
            _ => Compare::Equal,
        };
        let mut request = read.to_vec();
        request.insert(1, key);
        for (request, compare) in [
            (&[b"TYPE", key][..], Compare::Equal),
            (&request, contents),
            (&[b"OBJECT", b"ENCODING", key], Compare::Equal),
            (&[b"PTTL", key], Compare::Millis),
            // An error for what is no stream.
            (&[b"XINFO", b"GROUPS", key], Compare::Groups),
        ] {
            let (a, b) = self.both(0, request)?;
            if !compare.same(&a, &b) && !self.tolerates(&a, &b) {
                let name = String::from_utf8_lossy(request[0]).into_owned();
                return Ok(Some(format!("{name}\n{}", versus(&a, &b))));
            }
        }
        Ok(None)
    }
}

/// The word that is the cursor.
fn cursor_of(op: &Op) -> usize {
    if op.name() == "scan" { 1 } else { 2 }
}

/// A member with its score, or a field with its value. The reference prints scores of a large
/// sorted set in more digits than they need.
fn print_pair(op: &Op, pair: &[Reply]) -> String {
    let score = |reply: &Reply| std::str::from_utf8(reply.text()?).ok()?.parse::<f64>().ok();
    match pair {
        [member, value] if op.name() == "zscan" && score(value).is_some() => {
            format!("{}: {:?}", print(member), score(value))
        }
        _ => pair.iter().map(print).collect::<Vec<_>>().join(": "),
    }
}

/// A whole iteration, as the sorted list of what it found, or its error.
fn scan_all(side: &mut Side, op: &Op) -> io::Result<String> {
    let mut words = op.words.clone();
    let cursor = cursor_of(op);
    let pairs = matches!(op.name().as_str(), "hscan" | "zscan")
        && !words.iter().any(|word| word == b"NOVALUES" || word == b"NOSCORES");
    let mut found = BTreeSet::new();
    for _ in 0..100_000 {
        let reply = side.ask(op.client, &words)?;
        let Some([Reply::Bulk(next), Reply::Array(items)]) = reply.elements() else {
            return Ok(print(&reply));
        };
        for item in items.chunks(if pairs { 2 } else { 1 }) {
            found.insert(print_pair(op, item));
        }
        if next == b"0" {
            return Ok(found.into_iter().collect::<Vec<_>>().join("\n"));
        }
        words[cursor] = next.clone();
    }
    Ok("an iteration without end".to_owned())
}

fn unless(same: bool, a: &Reply, b: &Reply) -> Option<String> {
    if same { None } else { Some(versus(a, b)) }
}

fn versus(a: &Reply, b: &Reply) -> String {
    format!("the tested server replied\n{}\nthe reference replied\n{}", print(a), print(b))
}
