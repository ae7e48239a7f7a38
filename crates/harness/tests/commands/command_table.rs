//! What the server tells about its commands is what the reference tells about its own: COMMAND
//! INFO, COMMAND DOCS, each container's HELP, and the keys found in requests.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};
use harness::script::suite::scripts;
use harness::script::{Action, Script};
use harness::server::{Options, Program, Server};
use std::collections::BTreeSet;

/// Two servers to ask, or none if there is no reference.
fn servers() -> Option<[Server; 2]> {
    let reference = Program::reference_or_skip()?;
    let start = |program: Program| Server::start(&program, Options::default()).unwrap();
    Some([start(Program::under_test()), start(reference)])
}

/// What only Dunlin has: subcommands, and the lines of HELP about them.
const OUR_OWN: &[&str] = &[
    "client|commit-mode",
    "COMMIT-MODE (",
    "    Set which copies of a write",
    "client|maint_notifications",
    "MAINT_NOTIFICATIONS (",
    "    Tell this connection of fail-overs",
    // Redis 8.4 has it.
    "cluster|migration",
];

/// Commands with options of later Redises, which their documentation has and the reference's has
/// not.
const EXTENDED: &[&str] =
    &["set", "bitop", "zinterstore", "zunionstore", "zinter", "zunion", "xread", "xadd"];

fn is_our_own(reply: &Reply) -> bool {
    let name = match reply {
        Reply::Array(items) if is_description(reply) => items[0].shown(),
        other => other.shown(),
    };
    OUR_OWN.iter().any(|own| name.contains(own))
}

/// Fields of COMMAND DOCS that are in our own words.
const OWN_WORDS: &[&str] = &["summary", "complexity", "history"];

/// What is in no order, sorted, without what is in our own words.
fn comparable(reply: Reply) -> Reply {
    match reply {
        Reply::Map(pairs) => {
            let mut pairs: Vec<(Reply, Reply)> = pairs
                .into_iter()
                .filter(|(name, _)| !OWN_WORDS.contains(&&*name.shown()) && !is_our_own(name))
                .map(|(name, value)| (name, comparable(value)))
                .collect();
            pairs.sort_by_key(|(name, _)| name.shown());
            Reply::Map(pairs)
        }
        Reply::Set(items) => {
            let mut items: Vec<Reply> = items.into_iter().map(comparable).collect();
            items.sort_by_key(|item| format!("{item:?}"));
            Reply::Set(items)
        }
        Reply::Array(items) => {
            let known = items.into_iter().filter(|item| !is_our_own(item));
            let mut items: Vec<Reply> = known.map(comparable).collect();
            // The subcommands within a container's description.
            if items.len() > 1 && items.iter().all(is_description) {
                items.sort_by_key(|item| format!("{item:?}"));
            }
            Reply::Array(items)
        }
        other => other,
    }
}

fn is_description(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(items) if items.len() == 10)
}

/// Asks both servers the same and reports the requests whose replies differ.
#[track_caller]
fn compare(servers: &[Server; 2], protocol: Protocol, requests: &[String]) {
    let [mut ours, mut theirs] =
        [&servers[0], &servers[1]].map(|server| server.connect(protocol).unwrap());
    let differences: Vec<String> = requests
        .iter()
        .filter_map(|request| {
            let [our, their] = [ask(&mut ours, request), ask(&mut theirs, request)].map(comparable);
            (our != their).then(|| format!("{protocol} {request}\n    {our:?}\n    {their:?}"))
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Our commands that the reference has too, without subcommands.
fn names(servers: &[Server; 2]) -> Vec<String> {
    let theirs = names_of(&servers[1]);
    let mut names = names_of(&servers[0]);
    names.retain(|name| theirs.contains(name));
    names
}

fn names_of(server: &Server) -> Vec<String> {
    let mut client = server.client();
    let list = ask(&mut client, "COMMAND LIST");
    let names =
        list.elements().expect("COMMAND LIST replies with an array").iter().map(Reply::shown);
    names.filter(|name| !name.contains('|')).collect()
}

#[test]
fn info_is_that_of_the_reference() {
    let Some(servers) = servers() else { return };
    let requests: Vec<String> =
        names(&servers).iter().map(|name| format!("COMMAND INFO {name}")).collect();
    compare(&servers, Protocol::Resp2, &requests);
    compare(&servers, Protocol::Resp3, &requests);
}

/// Under RESP3 alone: there a map is one.
#[test]
fn docs_are_those_of_the_reference() {
    let Some(servers) = servers() else { return };
    let mut names = names(&servers);
    names.retain(|name| !EXTENDED.contains(&name.as_str()));
    let requests: Vec<String> = names.iter().map(|name| format!("COMMAND DOCS {name}")).collect();
    compare(&servers, Protocol::Resp3, &requests);
}

#[test]
fn help_is_that_of_the_reference() {
    let Some(servers) = servers() else { return };
    let mut client = servers[0].connect(Protocol::Resp3).unwrap();
    let requests: Vec<String> = names(&servers)
        .iter()
        .filter(|name| {
            let info = ask(&mut client, &format!("COMMAND INFO {name}|help"));
            !info.elements().is_some_and(|items| items[0].is_nil())
        })
        .map(|name| format!("{name} HELP"))
        .collect();
    assert!(!requests.is_empty());
    compare(&servers, Protocol::Resp2, &requests);
    compare(&servers, Protocol::Resp3, &requests);
}

/// Requests, right and wrong, in which keys are looked for.
const REQUESTS: &[&str] = &[
    "get k",
    "get",
    "get k v",
    "set k v",
    "set k v GET",
    "set k get",
    "mset a 1 b 2",
    "mset a 1 b",
    "msetex 2 a 1 b 2 EX 5",
    "msetex 2 a 1 b",
    "msetex 2 a 1",
    "del a b c",
    "rename a b",
    "copy a b DB 1",
    "object encoding k",
    "object",
    "object nosuch k",
    "memory usage k",
    "blpop a b 0",
    "blpop a",
    "lmpop 2 a b LEFT",
    "lmpop 3 a b LEFT",
    "blmpop 0 2 a b LEFT",
    "blmove a b LEFT RIGHT 0",
    "smove a b m",
    "sintercard 2 a b LIMIT 1",
    "sinterstore d a b",
    "zunion 2 a b WEIGHTS 1 2",
    "zunion 0 a",
    "zunion -1 a",
    "zunion x a",
    "zunion 9223372036854775807 a",
    "zunion 99999999999999999999 a",
    "zunionstore d 2 a b",
    "zunionstore d 3 a b",
    "zrangestore d s 0 -1",
    "bzmpop 0 1 a MIN",
    "bitop AND d a b",
    "bitfield k",
    "bitfield k GET u8 0",
    "bitfield k OVERFLOW WRAP GET u8 0",
    "bitfield k GET u8 0 SET u8 0 1",
    "bitfield k GET u8",
    "lcs a b LEN",
    "watch a b",
    "spublish c m",
    "ssubscribe c",
    "ping",
    "nosuch a",
    "client|kill a",
    "get|a b",
];

#[test]
fn keys_are_found_as_by_the_reference() {
    let Some(servers) = servers() else { return };
    let requests: Vec<String> = REQUESTS
        .iter()
        .flat_map(|request| {
            ["GETKEYS", "GETKEYSANDFLAGS"].map(|how| format!("COMMAND {how} {request}"))
        })
        .collect();
    compare(&servers, Protocol::Resp2, &requests);
    compare(&servers, Protocol::Resp3, &requests);
}

/// The requests of all command scripts, each once, as they stand there.
fn requests_of_scripts() -> BTreeSet<String> {
    let scripts = scripts("").into_iter().map(|path| Script::load(&path).unwrap());
    let requests = scripts.flat_map(|script| script.steps).filter_map(|step| match step.action {
        Action::Ask { request, .. } | Action::Send { request, .. } => Some(request),
        _ => None,
    });
    // A variable is known only while its script runs, and quotes would have to be taken off.
    requests.filter(|request| !request.contains(['$', '"', '\''])).collect()
}

#[test]
fn keys_of_all_scripts_are_found_as_by_the_reference() {
    let Some(servers) = servers() else { return };
    // Both know the command: there are some of Redis 8 that the reference lacks.
    let known = [&servers[0], &servers[1]].map(names_of);
    let is_known = |request: &String| {
        let mut words = request.split(' ');
        let name = words.next().unwrap_or_default();
        let with_sub = format!("{name}|{}", words.next().unwrap_or_default()).to_lowercase();
        !OUR_OWN.contains(&with_sub.as_str())
            && known.iter().all(|known| known.iter().any(|known| known.eq_ignore_ascii_case(name)))
    };
    let requests: Vec<String> = requests_of_scripts()
        .into_iter()
        .filter(is_known)
        .map(|request| format!("COMMAND GETKEYSANDFLAGS {request}"))
        .collect();
    assert!(requests.len() > 1000, "{} requests", requests.len());
    compare(&servers, Protocol::Resp2, &requests);
}

#[test]
fn lists_are_filtered_as_by_the_reference() {
    let Some(servers) = servers() else { return };
    let [ours, theirs] =
        [&servers[0], &servers[1]].map(|server| server.connect(Protocol::Resp3).unwrap());
    let [mut ours, mut theirs] = [ours, theirs];
    let known = |client: &mut Client, request: &str| -> Vec<String> {
        let reply = ask(client, request);
        let mut names: Vec<String> =
            reply.elements().unwrap_or_default().iter().map(Reply::shown).collect();
        names.sort();
        names
    };
    let all = known(&mut ours, "COMMAND LIST");
    let all_of_theirs = known(&mut theirs, "COMMAND LIST");
    let filters = [
        "ACLCAT read",
        "ACLCAT Dangerous",
        "ACLCAT keyspace",
        "ACLCAT pubsub",
        "ACLCAT connection",
        "ACLCAT nosuch",
        "ACLCAT @read",
        "PATTERN Z*",
        "PATTERN client|k*",
        "MODULE nosuch",
    ];
    for filter in filters {
        let request = format!("COMMAND LIST FILTERBY {filter}");
        let mut expected = known(&mut theirs, &request);
        // Not all of the reference's commands are here.
        expected.retain(|name| all.contains(name));
        let mut here = known(&mut ours, &request);
        // Nor are all of ours there.
        here.retain(|name| all_of_theirs.contains(name));
        assert_eq!(here, expected, "{filter}");
    }
}
