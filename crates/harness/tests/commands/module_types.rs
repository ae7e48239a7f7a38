//! What holds for values of every type that Redis has in a module: transactions, scripts,
//! functions, rights, tracking, events, expiry and eviction. `harness::module_types` is the table
//! of types; docs/internals/types.md says where the rest is tested.

use harness::client::{Client, ask, encode, ok};
use harness::contents::contents;
use harness::info::number;
use harness::module_types::{KEYS, ModuleType, TYPES, fill, keys, send, words};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

fn start(arguments: &[&str]) -> Server {
    let all = [&["--save", ""], arguments].concat();
    Server::start(&Program::under_test(), Options::arguments(&all)).expect("it starts")
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}

/// Sends a request in a way of its own, and returns what the request itself is answered.
type Way = fn(&mut Client, &str) -> Reply;

fn transaction(client: &mut Client, request: &str) -> Reply {
    ok(client, "MULTI");
    assert_eq!(text(&send(client, request, "")), "QUEUED");
    let Reply::Array(mut replies) = ok(client, "EXEC") else { panic!("{request}: no array") };
    replies.remove(0)
}

/// Calls what runs its arguments as a request, with the keys of the request as its keys.
fn call(client: &mut Client, before: [&str; 2], request: &str) -> Reply {
    let keys = keys(request, "");
    let mut all: Vec<String> = before.map(str::to_owned).into();
    all.push(keys.len().to_string());
    all.extend(keys);
    all.extend(words(request, ""));
    client.command(&all).expect("it answers")
}

fn script(client: &mut Client, request: &str) -> Reply {
    call(client, ["EVAL", "return redis.call(unpack(ARGV))"], request)
}

fn function(client: &mut Client, request: &str) -> Reply {
    let library = "#!lua name=all\nredis.register_function('all', function(keys, args) return \
                   redis.call(unpack(args)) end)";
    ok(client, &["FUNCTION", "LOAD", "REPLACE", library]);
    call(client, ["FCALL", "all"], request)
}

#[test]
fn transactions_scripts_and_functions_do_what_requests_do() {
    let server = start(&[]);
    let mut client = server.client();
    let requests: Vec<&str> = TYPES.iter().flat_map(ModuleType::requests).collect();
    let expected: Vec<Reply> =
        requests.iter().map(|request| send(&mut client, request, "")).collect();
    let values = contents(&mut client);
    assert_eq!(values.len(), KEYS);
    for (name, way) in [("MULTI", transaction as Way), ("EVAL", script), ("FCALL", function)] {
        ok(&mut client, "FLUSHALL");
        for (request, expected) in requests.iter().zip(&expected) {
            assert_eq!(way(&mut client, request), *expected, "{name} of {request}");
        }
        assert_eq!(contents(&mut client), values, "{name}");
    }
}

#[test]
fn a_watched_key_that_changes_ends_a_transaction() {
    let server = start(&[]);
    let [mut client, mut other] = [server.client(), server.client()];
    fill(&mut client, "");
    for row in &TYPES {
        ok(&mut client, &["WATCH", &row.key("")]);
        send(&mut other, row.change[0], "");
        ok(&mut client, "MULTI");
        ok(&mut client, "PING");
        assert!(ok(&mut client, "EXEC").is_nil(), "{}", row.name);
    }
}

/// The category of a type holds all its commands and no others, and key patterns count.
#[test]
fn rights_are_by_category_and_by_key() {
    let server = start(&[]);
    let mut admin = server.client();
    for row in &TYPES {
        let category = row.category;
        for (user, rights) in [
            ("without", format!("~* +@all -@{category}")),
            ("only", format!("~mine:* +@{category}")),
        ] {
            ok(&mut admin, &format!("ACL SETUSER {user} reset on nopass {rights}"));
        }
        let [mut without, mut only] = [server.client(), server.client()];
        ok(&mut without, "AUTH without x");
        ok(&mut only, "AUTH only x");
        for request in row.requests() {
            let refusals = [
                ask(&mut without, &words(request, "mine:").join(" ")),
                ask(&mut only, &words(request, "others:").join(" ")),
            ];
            for reply in refusals {
                assert!(text(&reply).starts_with("NOPERM"), "{request}: {reply:?}");
            }
            send(&mut only, request, "mine:");
        }
        ok(&mut without, "SET mine:text 1");
        assert!(text(&ask(&mut only, "SET mine:text 1")).starts_with("NOPERM"));
    }
}

#[test]
fn what_a_client_has_cached_is_invalidated() {
    let server = start(&[]);
    let mut writer = server.client();
    fill(&mut writer, "");
    let mut reader = server.connect(Protocol::Resp3).expect("it connects");
    ok(&mut reader, "CLIENT TRACKING ON");
    for row in &TYPES {
        send(&mut reader, row.read, "");
        send(&mut writer, row.change[0], "");
        let key = Reply::Bulk(row.key("").into_bytes());
        let expected =
            Reply::Push(vec![Reply::Bulk(b"invalidate".to_vec()), Reply::Array(vec![key])]);
        assert_eq!(reader.message().expect("it is told"), expected, "{}", row.name);
    }
}

/// Returns a client that hears of events, named by a pattern.
fn listener(server: &Server, pattern: &str) -> Client {
    let mut client = server.client();
    ok(&mut client, "CONFIG SET notify-keyspace-events KEA");
    ok(&mut client, &format!("PSUBSCRIBE __keyevent@0__:{pattern}"));
    client
}

/// Returns the next event and its key.
fn event(listener: &mut Client) -> (String, String) {
    let message = listener.message().expect("an event");
    let words: Vec<String> = message.elements().unwrap_or_default().iter().map(text).collect();
    let [_, _, channel, key] = <[String; 4]>::try_from(words).expect("a message of a pattern");
    (channel.trim_start_matches("__keyevent@0__:").to_owned(), key)
}

#[test]
fn changes_are_events() {
    let server = start(&[]);
    let mut client = server.client();
    fill(&mut client, "");
    for row in &TYPES {
        let mut listener = listener(&server, "*");
        send(&mut client, row.change[0], "");
        assert_eq!(event(&mut listener), (row.event.to_owned(), row.key("")));
    }
}

/// Nothing looks at the keys: DBSIZE counts those that are there.
#[test]
fn values_expire_without_being_looked_at() {
    let server = start(&[]);
    let mut client = server.client();
    fill(&mut client, "");
    let keys = contents(&mut client)
        .into_keys()
        .map(|(_, key)| String::from_utf8_lossy(&key).into_owned());
    let mut keys: Vec<String> = keys.collect();
    let mut listener = listener(&server, "expired");
    for key in &keys {
        ok(&mut client, &["PEXPIRE", key, "50"]);
    }
    eventually("all have expired", || ask(&mut client, "DBSIZE") == Reply::Integer(0));
    assert_eq!(number(&mut client, "expired_keys") as usize, KEYS);
    let mut expired: Vec<String> = keys.iter().map(|_| event(&mut listener).1).collect();
    expired.sort_unstable();
    keys.sort_unstable();
    assert_eq!(expired, keys);
    // Nothing of them is left that a new key could meet.
    assert_eq!(ok(&mut client, "TS.QUERYINDEX kind=gauge"), Reply::Array(Vec::new()));
    fill(&mut client, "");
    assert_eq!(contents(&mut client).len(), KEYS);
}

/// Keys of one type that [`evicted`] makes, with as many tags.
const TAGS: usize = 500;

/// Fills a server with keys of one type, and halves the memory that they may take. Returns how many
/// there were, and how many were evicted.
fn evicted(client: &mut Client, row: &ModuleType) -> (u64, u64) {
    ok(client, "CONFIG SET maxmemory 0");
    ok(client, "FLUSHALL SYNC");
    let empty = number(client, "used_memory");
    let before = number(client, "evicted_keys");
    for at in 0..TAGS {
        let tag = format!("{{{at}}}");
        let batch = row.make.iter().flat_map(|request| encode(&words(request, &tag)));
        client.send_raw(&batch.collect::<Vec<u8>>()).expect("it sends");
        for request in row.make {
            let reply = client.reply().expect("a reply");
            assert!(!reply.is_error(), "{request}: {reply:?}");
        }
    }
    let count = ok(client, "DBSIZE").integer().expect("a number") as u64;
    let full = number(client, "used_memory");
    let limit = empty + (full - empty) / 2;
    ok(client, &format!("CONFIG SET maxmemory {limit}"));
    eventually("a write has found room", || {
        let is_taken = !ask(client, "SET plain 1").is_error();
        is_taken && number(client, "evicted_keys") > before
    });
    assert!(number(client, "used_memory") < full, "{}", row.name);
    (count, number(client, "evicted_keys") - before)
}

#[test]
fn keys_of_every_type_are_evicted() {
    let server = start(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    for row in &TYPES {
        let (count, evicted) = evicted(&mut client, row);
        println!("{}: {evicted} of {count} keys are evicted", row.name);
        assert!(evicted > 0, "{}: {evicted} of {count}", row.name);
    }
}

#[test]
fn growing_is_refused_when_memory_is_full() {
    let server = start(&["--maxmemory-policy", "noeviction"]);
    let mut client = server.client();
    fill(&mut client, "");
    let before = contents(&mut client);
    ok(&mut client, "CONFIG SET maxmemory 1");
    for row in &TYPES {
        for (request, tag) in [(row.make[0], "new:"), (row.change[0], "")] {
            let reply = ask(&mut client, &words(request, tag).join(" "));
            assert!(text(&reply).starts_with("OOM"), "{request}: {reply:?}");
        }
        send(&mut client, row.read, "");
    }
    assert_eq!(contents(&mut client), before);
}
