//! `MIGRATE host port key|"" destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 user
//! password] [KEYS key [key …]]`
//!
//! Moves keys to another server: each is sent as RESTORE and deleted here once that has answered
//! `+OK`. `docs/internals/long-commands.md` says how it waits for the other server without being in
//! the way, and what is left of keys when the connection breaks.

use engine::cold_values::with_value;
use engine::keys::InvalidKeys;
use engine::peer::Peer;
use engine::routing::{Routing, Way};
use engine::{
    Arg, ArgKind, Args, Begin, Command, Cx, Error, Find, Flags, Group, KeyFlags, KeySpec, Outcome,
    value,
};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::time::Duration;

/// What happens to the keys.
const MOVED: KeyFlags = KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE);

/// `MIGRATE`.
pub static MIGRATE: Command = Command {
    name: "migrate",
    arity: -6,
    flags: Flags::WRITE.with(Flags::ASKS_PEER),
    keys: &[
        KeySpec::at(3, MOVED),
        KeySpec::new(
            MOVED.with(KeyFlags::INCOMPLETE),
            Begin::Keyword("KEYS", -2),
            Find::Range { last: -1, step: 1, limit: 0 },
        ),
    ],
    find_keys: Some(find_keys),
    secrets: Some(find_secrets),
    group: Group::Generic,
    categories: &["dangerous"],
    since: "2.6.0",
    complexity: "Those of DUMP and DEL here and of RESTORE at the target, and the transfer between",
    summary: "Sends keys to another server and deletes them here.",
    history: &[
        ("3.0.0", "Takes `COPY` and `REPLACE`."),
        ("3.0.6", "Takes `KEYS`."),
        ("4.0.7", "Takes `AUTH`."),
        ("6.0.0", "Takes `AUTH2`."),
    ],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::new("host", ArgKind::String),
        Arg::new("port", ArgKind::Integer),
        Arg::one_of("key-selector", &[Arg::key("key", 0), Arg::token("empty-string", "")]),
        Arg::new("destination-db", ArgKind::Integer),
        Arg::new("timeout", ArgKind::Integer),
        Arg::token("copy", "COPY").optional().since("3.0.0"),
        Arg::token("replace", "REPLACE").optional().since("3.0.0"),
        Arg::one_of(
            "authentication",
            &[
                Arg::new("auth", ArgKind::String).after("AUTH").shown_as("password").since("4.0.7"),
                Arg::block(
                    "auth2",
                    &[Arg::new("username", ArgKind::String), Arg::new("password", ArgKind::String)],
                )
                .after("AUTH2")
                .since("6.0.0"),
            ],
        )
        .optional(),
        Arg::key("keys", 1).after("KEYS").shown_as("key").optional().multiple().since("3.0.6"),
    ],
    routing: Routing::by(Way::OneServer),
    run: migrate,
    ..Command::ROW
};

/// The options, as places of words.
struct MigrateOptions {
    copies: bool,
    replaces: bool,
    /// The password, or the user and the password.
    credentials: Option<Range<usize>>,
    keys: Range<usize>,
}

fn parse(words: &[&[u8]]) -> Result<MigrateOptions, Error> {
    let mut options =
        MigrateOptions { copies: false, replaces: false, credentials: None, keys: 3..4 };
    let mut at = 6;
    while let Some(word) = words.get(at) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let left = words.len() - at - 1;
        if is("copy") {
            options.copies = true;
        } else if is("replace") {
            options.replaces = true;
        } else if is("auth") && left >= 1 {
            options.credentials = Some(at + 1..at + 2);
            at += 1;
        } else if is("auth2") && left >= 2 {
            options.credentials = Some(at + 1..at + 3);
            at += 2;
        } else if is("keys") {
            if !words[3].is_empty() {
                return Err(Error::text(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the \
                     empty string",
                ));
            }
            options.keys = at + 1..words.len();
            break;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    Ok(options)
}

fn find_keys(words: &[&[u8]], found: &mut dyn FnMut(usize, KeyFlags)) -> Result<(), InvalidKeys> {
    let keys = match parse(words) {
        Ok(options) => options.keys,
        // The reference finds the first key all the same.
        Err(Error::Syntax) => 3..4,
        Err(_) => return Err(InvalidKeys),
    };
    if keys.is_empty() {
        return Err(InvalidKeys);
    }
    keys.for_each(|at| found(at, MOVED));
    Ok(())
}

fn find_secrets(words: &[&[u8]], found: &mut dyn FnMut(usize)) {
    // A password is one even where the request is wrong elsewhere.
    let mut at = 6;
    while let Some(word) = words.get(at) {
        let secrets = if word.eq_ignore_ascii_case(b"auth") {
            1
        } else if word.eq_ignore_ascii_case(b"auth2") {
            2
        } else if word.eq_ignore_ascii_case(b"keys") {
            return;
        } else {
            0
        };
        (at + 1..=at + secrets).filter(|&at| at < words.len()).for_each(&mut *found);
        at += 1 + secrets;
    }
}

fn migrate(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let words = args.words();
    let options = parse(words)?;
    let timeout = args.integer(5)?;
    let db = args.integer(4)?;
    if !cx.may_wait() {
        // Under the locks of a reactor.
        let is_there =
            options.keys.clone().any(|at| cx.db.lookup_no_effects(args.key(at)).is_some());
        if !is_there {
            cx.reply.simple("NOKEY");
            return Ok(());
        }
        // A transaction or a script keeps its locks until its end, whatever it does meanwhile.
        if !cx.in_transaction && cx.script.is_none() {
            return Err(Error::TakesLong);
        }
    }
    let millis = u64::try_from(timeout).ok().filter(|&millis| millis > 0).unwrap_or(1000);
    let target = MigrateTarget { args, options, db, timeout: Duration::from_millis(millis) };
    let mut peer = target.reach(cx)?;
    cx.hold_keys()?;
    let mut transfer = target.transfer(cx, &mut *peer)?;
    if transfer.failure.as_ref().is_some_and(|failure| failure.may_be_repeated) {
        peer = target.reach(cx)?;
        transfer = target.transfer(cx, &mut *peer)?;
    }
    let copies = cx.session.awaited_copies;
    if copies > 0 && transfer.failure.is_none() && !transfer.moved.is_empty() {
        confirm(&mut *peer, copies)?;
    }
    target.delete(cx, &transfer.moved);
    // The keys that have moved are gone whatever happened to the others.
    match transfer.failure {
        None => peer.keep(),
        Some(failure) => return Err(transfer.refusal.unwrap_or(failure.error())),
    }
    match transfer.refusal {
        Some(refusal) => return Err(refusal),
        None if transfer.moved.is_empty() => cx.reply.simple("NOKEY"),
        None => cx.reply.ok(),
    }
    Ok(())
}

/// Where the keys go.
struct MigrateTarget<'a> {
    args: Args<'a>,
    options: MigrateOptions,
    db: i64,
    timeout: Duration,
}

/// What came of sending the keys.
#[derive(Default)]
struct Transfer {
    /// The words of the keys that were acknowledged.
    moved: Vec<usize>,
    /// The first error that the other server answered.
    refusal: Option<Error>,
    /// The end of the connection.
    failure: Option<Failure>,
}

/// The connection is of no use any more.
struct Failure {
    is_writing: bool,
    /// Nothing was answered, and it did not take too long either.
    may_be_repeated: bool,
}

impl Failure {
    fn new(is_writing: bool, error: &io::Error) -> Failure {
        Failure { is_writing, may_be_repeated: error.kind() != ErrorKind::TimedOut }
    }

    fn error(&self) -> Error {
        Error::text(if self.is_writing {
            "IOERR error or timeout writing to target instance"
        } else {
            "IOERR error or timeout reading to target instance"
        })
    }
}

/// Why the other server is not ready for the keys.
enum Obstacle {
    Failure(Failure),
    Refusal(Error),
}

impl From<Failure> for Obstacle {
    fn from(failure: Failure) -> Obstacle {
        Obstacle::Failure(failure)
    }
}

/// What the client is told of a connection that could not be made. The other servers find out that
/// they were refused when they write.
fn unreachable(error: Option<&io::Error>) -> Error {
    let is_refused = error.is_some_and(|error| {
        matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset)
    });
    Error::text(if is_refused {
        "IOERR error or timeout writing to target instance"
    } else {
        "IOERR error or timeout connecting to the client"
    })
}

impl MigrateTarget<'_> {
    /// A connection on which the keys can be sent.
    ///
    /// # Errors
    /// What the client is told.
    fn reach(&self, cx: &Cx<'_>) -> Result<Box<dyn Peer>, Error> {
        let mut is_first = true;
        loop {
            let Some(host) = cx.engine.host() else { return Err(unreachable(None)) };
            let peer = host.connect(self.args[1], self.args[2], self.timeout);
            let mut peer = peer.map_err(|error| unreachable(Some(&error)))?;
            match self.introduce(&mut *peer) {
                Ok(()) => return Ok(peer),
                Err(Obstacle::Refusal(error)) => return Err(error),
                Err(Obstacle::Failure(failure)) if !is_first || !failure.may_be_repeated => {
                    return Err(failure.error());
                }
                Err(Obstacle::Failure(_)) => is_first = false,
            }
        }
    }

    /// Authenticates, and selects the database.
    fn introduce(&self, peer: &mut dyn Peer) -> Result<(), Obstacle> {
        let mut request = Vec::new();
        let mut answers = 0;
        if let Some(credentials) = self.options.credentials.clone() {
            push_count(&mut request, credentials.len() + 1);
            push_word(&mut request, b"AUTH");
            credentials.for_each(|at| push_word(&mut request, self.args[at]));
            answers += 1;
        }
        if *peer.selected() != Some(self.db) {
            push_count(&mut request, 2);
            push_word(&mut request, b"SELECT");
            push_word(&mut request, self.db.to_string().as_bytes());
            answers += 1;
        }
        *peer.selected() = None;
        send(peer, &request)?;
        let mut refusal = None;
        for _ in 0..answers {
            refusal = refusal.or(read_answer(peer)?);
        }
        if let Some(refusal) = refusal {
            return Err(Obstacle::Refusal(refusal));
        }
        *peer.selected() = Some(self.db);
        Ok(())
    }

    /// Sends the keys that are there, and reads what is answered.
    ///
    /// # Errors
    /// A value could not be read here, before anything was sent of it.
    fn transfer(&self, cx: &mut Cx<'_>, peer: &mut dyn Peer) -> Result<Transfer, Error> {
        let mut transfer = Transfer::default();
        let mut sent = Vec::new();
        for at in self.options.keys.clone() {
            let Some(request) = self.request(cx, at)? else { continue };
            sent.push(at);
            if let Err(failure) = send(peer, &request) {
                transfer.failure = Some(failure);
                return Ok(transfer);
            }
        }
        for (answered, at) in sent.into_iter().enumerate() {
            match read_answer(peer) {
                Ok(None) => transfer.moved.push(at),
                Ok(Some(refusal)) => _ = transfer.refusal.get_or_insert(refusal),
                Err(mut failure) => {
                    failure.may_be_repeated &= answered == 0;
                    transfer.failure = Some(failure);
                    break;
                }
            }
        }
        Ok(transfer)
    }

    /// The request that makes a key there; `None` if it is not here.
    fn request(&self, cx: &Cx<'_>, at: usize) -> Result<Option<Vec<u8>>, Error> {
        let key = self.args.key(at);
        let Some(entry) = cx.db.lookup_read(key) else { return Ok(None) };
        // What is left of a millisecond is one.
        let ttl_ms = entry.expiry().map_or(0, |at| (at.0 - cx.now().0).max(1));
        let compression = value::compression(&cx.engine.config);
        let payload = with_value(cx.engine, entry, |entry| {
            rdb::dump(value::view(entry).object(), compression)
        })?;
        let mut request = Vec::with_capacity(payload.len() + key.bytes.len() + 64);
        push_count(&mut request, if self.options.replaces { 5 } else { 4 });
        // A slot that moves is not the other server's yet.
        let is_node = cx.engine.membership.is_on();
        push_word(&mut request, if is_node { &b"RESTORE-ASKING"[..] } else { b"RESTORE" });
        push_word(&mut request, key.bytes);
        push_word(&mut request, ttl_ms.to_string().as_bytes());
        push_word(&mut request, &payload);
        if self.options.replaces {
            push_word(&mut request, b"REPLACE");
        }
        Ok(Some(request))
    }

    /// Deletes the keys that have moved.
    fn delete(&self, cx: &mut Cx<'_>, moved: &[usize]) {
        if self.options.copies {
            return;
        }
        let mut deleted = Vec::with_capacity(moved.len());
        for &at in moved {
            // One whose time has come meanwhile is gone by itself.
            if cx.db.delete(self.args.key(at)) {
                deleted.push(self.args[at]);
            }
        }
        if !deleted.is_empty() {
            cx.db.propagate_as(|p| {
                p.begin(deleted.len() + 1);
                p.word(b"DEL");
                deleted.iter().for_each(|key| p.word(key));
            });
        }
    }
}

fn push_count(request: &mut Vec<u8>, words: usize) {
    request.extend_from_slice(format!("*{words}\r\n").as_bytes());
}

fn push_word(request: &mut Vec<u8>, word: &[u8]) {
    request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    request.extend_from_slice(word);
    request.extend_from_slice(b"\r\n");
}

fn send(peer: &mut dyn Peer, bytes: &[u8]) -> Result<(), Failure> {
    peer.send(bytes).map_err(|error| Failure::new(true, &error))
}

/// Waits until so many replicas of the other server have what it was sent. It is a node of this
/// server's cluster.
///
/// # Errors
/// They do not, in time.
fn confirm(peer: &mut dyn Peer, copies: usize) -> Result<(), Error> {
    let request = format!("CLIENT CAPA cluster\r\nWAIT {copies} 2000\r\n");
    send(peer, request.as_bytes()).map_err(|failure| failure.error())?;
    read_answer(peer).map_err(|failure| failure.error())?;
    let line = peer.line().map_err(|error| Failure::new(false, &error).error())?;
    let count = line.strip_prefix(b":").and_then(|count| str::from_utf8(count).ok()?.parse().ok());
    match count {
        Some(count) if copies <= count => Ok(()),
        _ => Err(Error::text("NOREPLICAS The replicas of the target instance lack the keys")),
    }
}

/// Reads one answer: an acknowledgement, or the other server's error.
fn read_answer(peer: &mut dyn Peer) -> Result<Option<Error>, Failure> {
    let line = peer.line().map_err(|error| Failure::new(false, &error))?;
    match line.split_first() {
        Some((b'+', b"OK")) => Ok(None),
        Some((b'-', text)) => {
            let mut error = b"ERR Target instance replied with error: ".to_vec();
            error.extend_from_slice(text);
            Ok(Some(Error::Bytes(error)))
        }
        // That is no server of this protocol, or the two have lost step.
        _ => Err(Failure { is_writing: false, may_be_repeated: false }),
    }
}
