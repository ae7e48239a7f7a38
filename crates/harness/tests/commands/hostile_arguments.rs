//! Every command with hostile arguments: numbers at the ends of their ranges, lengths that are not,
//! options in the wrong places, keys of the wrong types. What the replies are is for other tests to
//! say; here the server has to survive them, answer others meanwhile, and send whole replies.
//!
//! Debug builds check arithmetic, so that an overflow anywhere ends the server and fails the test.
//! `DUNLIN_HOSTILE_SECONDS` is how long each server is tormented (default 3), `DUNLIN_SEED` how.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, encode, is_gone};
use harness::environment::variable;
use harness::reply::{Protocol, Reply, decode};
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Commands that do what they are asked, which would end the test rather than the server. (A pause
/// of all commands for weeks is one of CLIENT UNPAUSE too, as in Redis.)
const NOT_ASKED: [&str; 7] =
    ["shutdown", "debug", "config", "acl", "quit", "flushall", "client pause"];
/// Requests on one connection.
const BATCH: usize = 25;
/// Longer than any reply takes, shorter than a stall.
const PATIENCE: Duration = Duration::from_secs(10);

const NUMBERS: [&str; 32] = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "-2",
    "63",
    "64",
    "255",
    "4294967294",
    "4294967295",
    "4294967296",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "8388607",
    "8388608",
    "9223372036854775807",
    "9223372036854775806",
    "-9223372036854775808",
    "-9223372036854775807",
    "9223372036854775",
    "-9223372036854776",
    "18446744073709551615",
    "99999999999999999999999",
    "1e308",
    "-1.7e308",
    "5e-324",
    "inf",
    "-inf",
    "nan",
];

const WORDS: [&str; 28] = [
    "",
    " ",
    "*",
    "#",
    "$",
    "%",
    "-",
    "+",
    "(",
    "[",
    "(1",
    "(-inf",
    "[a",
    "[",
    "[^]*",
    "\\",
    "????*[",
    "w_*->f",
    "w_*",
    "u8",
    "i64",
    "u63",
    "u64",
    "#9223372036854775807",
    "#4294967295",
    "a\0b\r\n",
    "0x1p3",
    "\u{ffff}",
];

const KEYS: [&str; 13] = [
    "string",
    "number",
    "list",
    "long-list",
    "set",
    "integers",
    "big-set",
    "hash",
    "big-hash",
    "zset",
    "big-zset",
    "expiring",
    "absent",
];

/// What can be asked: each command, or subcommand, with the words of its syntax.
struct Syntax {
    name: Vec<String>,
    tokens: Vec<String>,
}

/// The value of a field in a reply of COMMAND DOCS.
fn field<'r>(of: &'r Reply, name: &str) -> Option<&'r Reply> {
    let Reply::Map(fields) = of else { return None };
    fields.iter().find(|(field, _)| field.text() == Some(name.as_bytes())).map(|(_, value)| value)
}

fn collect_tokens(arguments: &Reply, tokens: &mut Vec<String>) {
    for argument in arguments.elements().unwrap_or_default() {
        tokens.extend(field(argument, "token").map(Reply::shown));
        if let Some(inner) = field(argument, "arguments") {
            collect_tokens(inner, tokens);
        }
    }
}

fn collect_syntaxes(docs: &Reply, syntaxes: &mut Vec<Syntax>) {
    let Reply::Map(commands) = docs else { panic!("COMMAND DOCS is a map: {docs:?}") };
    for (name, doc) in commands {
        let name: Vec<String> = name.shown().split('|').map(str::to_owned).collect();
        let mut tokens = Vec::new();
        if let Some(arguments) = field(doc, "arguments") {
            collect_tokens(arguments, &mut tokens);
        }
        if let Some(inner) = field(doc, "subcommands") {
            collect_syntaxes(inner, syntaxes);
        }
        if !NOT_ASKED.contains(&&*name[0]) && !NOT_ASKED.contains(&&*name.join(" ")) {
            syntaxes.push(Syntax { name, tokens });
        }
    }
}

fn argument(rng: &mut Rng, syntax: &Syntax) -> Vec<u8> {
    match rng.below(20) {
        0..=4 => rng.pick(&KEYS).as_bytes().to_vec(),
        5..=10 => rng.pick(&NUMBERS).as_bytes().to_vec(),
        11..=14 if !syntax.tokens.is_empty() => rng.pick(&syntax.tokens).as_bytes().to_vec(),
        15 => vec![b'x'; *rng.pick(&[1, 64, 65, 4096, 70_000])],
        16 => (0..rng.below(30)).map(|_| rng.bits() as u8).collect(),
        17 => rng.between(-3, 12).to_string().into_bytes(),
        _ => rng.pick(&WORDS).as_bytes().to_vec(),
    }
}

fn request(rng: &mut Rng, syntaxes: &[Syntax]) -> Vec<Vec<u8>> {
    let syntax = rng.pick(syntaxes);
    let mut words: Vec<Vec<u8>> = syntax.name.iter().map(|word| word.as_bytes().to_vec()).collect();
    // Most syntaxes begin with a key, and without one little is looked at.
    if rng.chance(75) {
        words.push(rng.pick(&KEYS).as_bytes().to_vec());
    }
    let most = if rng.chance(5) { 40 } else { 7 };
    for _ in 0..rng.below(most) {
        words.push(argument(rng, syntax));
    }
    words
}

/// Makes the keys what their names say, as far as they are not.
fn fill(client: &mut Client) -> io::Result<()> {
    let mut ask = |words: &[&str]| client.command(words).map(drop);
    ask(&["SET", "string", "some text"])?;
    ask(&["SET", "number", "9223372036854775800"])?;
    ask(&["SET", "expiring", "soon", "PX", "100000"])?;
    let numbers: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let long: Vec<String> = numbers.iter().map(|number| format!("member-{number}")).collect();
    let pairs: Vec<&str> = numbers.iter().zip(&long).flat_map(|(a, b)| [&**a, &**b]).collect();
    for (command, key, words) in [
        ("RPUSH", "list", &pairs[..6]),
        ("RPUSH", "long-list", &pairs[..]),
        ("SADD", "set", &["a", "b", "c"][..]),
        ("SADD", "integers", &["1", "-1", "9223372036854775807"]),
        ("SADD", "big-set", &pairs),
        ("HSET", "hash", &["1", "9223372036854775807", "f", "1e308"]),
        ("HSET", "big-hash", &pairs),
        ("ZADD", "zset", &["-inf", "a", "1", "b", "inf", "c"]),
        ("ZADD", "big-zset", &pairs),
    ] {
        ask(&["DEL", key])?;
        ask(&[&[command, key], words].concat())?;
    }
    Ok(())
}

/// Sends the requests and checks that what comes back, as far as it comes, are replies. Some block,
/// subscribe or never end: the connection is left after a while.
fn torment(server: &Server, requests: &[Vec<Vec<u8>>]) -> Result<(), String> {
    let mut stream = TcpStream::connect(server.address()).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
    let bytes: Vec<u8> = requests.iter().flat_map(|words| encode(words)).collect();
    let mut replies = Vec::new();
    let mut room = [0; 65536];
    let sent = stream.write_all(&bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    // CLIENT KILL may be among the requests.
    if let Err(error) = sent
        && !is_gone(&error)
        && error.kind() != ErrorKind::NotConnected
    {
        return Err(error.to_string());
    }
    loop {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(read) => replies.extend_from_slice(&room[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock || is_gone(&error) => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    // HELLO changes the protocol in the middle, and a replica is sent a snapshot and the log, so
    // only other batches are followed to their end.
    let mut rest = &replies[..];
    while let Ok(Some((_, used))) = decode(rest, Protocol::Resp2) {
        rest = &rest[used..];
    }
    let changes = |words: &Vec<Vec<u8>>| matches!(&words[0][..], b"hello" | b"psync" | b"sync");
    match decode(rest, Protocol::Resp2) {
        Err(why) if !requests.iter().any(changes) => {
            let start = &rest[..rest.len().min(200)];
            Err(format!("{why}: {}", start.escape_ascii()))
        }
        _ => Ok(()),
    }
}

fn shown(requests: &[Vec<Vec<u8>>]) -> String {
    let word = |word: &Vec<u8>| {
        let start = &word[..word.len().min(80)];
        format!("\"{}\"", start.escape_ascii())
    };
    let line = |words: &Vec<Vec<u8>>| words.iter().map(word).collect::<Vec<_>>().join(" ");
    requests.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn no_argument_brings_the_server_down() {
    let seconds = Duration::from_secs(variable("DUNLIN_HOSTILE_SECONDS").unwrap_or(3));
    let first_seed = variable("DUNLIN_SEED").unwrap_or(1);
    let program = Program::under_test();
    for backend in program.backends() {
        // A string of 512 MB is allowed, and asked for here all the time.
        let limits = ["--proto-max-bulk-len", "1mb", "--maxmemory", "300mb", "--databases", "4"];
        // SRANDMEMBER with a count of minus two thousand millions is obeyed, up to this.
        let output = ["--client-output-buffer-limit", "normal 32mb 0 0"];
        let limits = [&limits[..], &output].concat();
        let options = Options { backend, ..Options::arguments(&limits) };
        let server = Server::start(&program, options).unwrap();
        let mut docs = server.connect(Protocol::Resp3).unwrap();
        let mut syntaxes = Vec::new();
        collect_syntaxes(&docs.command(&["COMMAND", "DOCS"]).unwrap(), &mut syntaxes);
        assert!(syntaxes.len() > 150, "{}", syntaxes.len());
        let end = Instant::now() + seconds;
        let mut seed = first_seed;
        while Instant::now() < end {
            let mut rng = Rng::new(seed);
            let requests: Vec<_> = (0..BATCH).map(|_| request(&mut rng, &syntaxes)).collect();
            let failed = |why: String| -> ! {
                panic!("DUNLIN_SEED={seed}: {why}\nafter\n{}\n{}", shown(&requests), server.log())
            };
            if let Err(why) = torment(&server, &requests) {
                failed(why);
            }
            let start = Instant::now();
            let probed = server.connect(Protocol::Resp2).and_then(|mut client| {
                client.command(&["CLIENT", "UNPAUSE"])?;
                client.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
                fill(&mut client)?;
                // It adds up much of what the requests have left behind.
                client.command(&["INFO", "everything"])?;
                client.command(&["PING"])
            });
            match probed {
                Ok(Reply::Simple(text)) if text == b"PONG" => {}
                other => failed(format!("PING was answered by {other:?}")),
            }
            if start.elapsed() > PATIENCE {
                failed(format!("the server took {:?} to answer", start.elapsed()));
            }
            seed += 1;
        }
        println!("{} batches from seed {first_seed}", seed - first_seed);
        let status = server.stop().unwrap();
        assert!(status.success(), "the server ended with {status}");
    }
}
