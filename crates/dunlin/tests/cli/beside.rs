//! Commands and formats.

use crate::support::{Printed, cli, dunlin, ours, run, theirs};
use harness::server::Server;
use harness::tls::Authority;

/// Runs a line of words in both programs, on a server that was emptied before each.
pub fn both(server: &Server, name: &str, words: &[&str], input: &str) -> Option<[Printed; 2]> {
    let port = server.port().to_string();
    let mut words = words.to_vec();
    words.splice(0..0, ["-p", &port]);
    let their_command = theirs(name)?;
    Some([ours(name), their_command].map(|command| {
        prepare(server);
        run(command, &words, input.as_bytes())
    }))
}

pub fn prepare(server: &Server) {
    let mut client = server.client();
    for words in [
        &["FLUSHALL"][..],
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"],
        &["SET", "text", "two words"],
        &["SET", "odd", "\"\x01\r\n\\é"],
        &["RPUSH", "list", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"],
        &["HSET", "hash", "f", "v"],
        &["ZADD", "zset", "1.5", "a"],
        &["SADD", "set", "x"],
        &["XADD", "stream", "1-1", "a", "b"],
    ] {
        client.command(words).unwrap();
    }
}

#[track_caller]
pub fn same(server: &Server, name: &str, words: &[&str], input: &str) {
    let Some([our, their]) = both(server, name, words, input) else { return };
    assert_eq!(our, their, "{name} {words:?} with {input:?}");
}

/// Requests whose replies are of each type.
const REQUESTS: [&[&str]; 17] = [
    &["get", "text"],
    &["get", "odd"],
    &["get", "nothing"],
    &["set", "a", "b"],
    &["strlen", "text"],
    &["lrange", "list", "0", "-1"],
    &["lrange", "nothing", "0", "-1"],
    &["hgetall", "hash"],
    &["hgetall", "nothing"],
    &["smembers", "set"],
    &["smembers", "nothing"],
    &["zrange", "zset", "0", "-1", "withscores"],
    &["zscore", "zset", "a"],
    &["xrange", "stream", "-", "+"],
    &["nothing", "at", "all"],
    &["lolwut", "version", "x"],
    &["config", "get", "maxmemory-policy"],
];

#[test]
fn every_format_writes_every_type_of_reply() {
    let server = dunlin(&[]);
    for format in [
        &["--raw"][..],
        &["--no-raw"],
        &["--csv"],
        &["--json"],
        &["--quoted-json"],
        &["--no-raw", "-3"],
        &["--csv", "-3"],
        &["--raw", "-3"],
        &["--json", "-2"],
        &["-d", ";", "-D", "|"],
    ] {
        for request in REQUESTS {
            same(&server, "redis-cli", &[format, request].concat(), "");
        }
    }
}

#[test]
fn types_of_resp3_are_written() {
    let server = dunlin(&["--enable-debug-command", "yes"]);
    for kind in ["double", "null", "map", "set", "push", "verbatim", "true", "false", "integer"] {
        for format in ["--raw", "--no-raw", "--csv", "--json", "--quoted-json"] {
            let words = ["-3", format, "debug", "protocol", kind];
            same(&server, "valkey-cli", &words, "");
        }
    }
    let nested = "return {1,{2,3,{}},{{'x',false}},redis.error_reply('MY e')}";
    for format in ["--raw", "--no-raw", "--csv", "--json"] {
        same(&server, "redis-cli", &[format, "eval", nested, "0"], "");
    }
    let script = "redis.setresp(3); return {map={a={map={b={1,2}}},c={}}}";
    assert!(cli(server.port(), &["-3", "--no-raw", "eval", script, "0"], "").status == Some(0));
}

#[test]
fn options_do_what_they_do_there() {
    let server = dunlin(&[]);
    let port = server.port();
    for (words, input) in [
        (&["-r", "3", "incr", "n"][..], ""),
        (&["-r", "2", "-i", "0.01", "ping"], ""),
        (&["-x", "set", "a"], "from input\n"),
        (&["-X", "tag", "set", "tag", "v"], "key"),
        (&["-X", "tag", "set", "k", "v"], "key"),
        (&["-X", "tag", "-x", "set", "k"], ""),
        (&["--quoted-input", "set", "\"a\\x00b\"", "v"], ""),
        (&["--quoted-input", "set", "\"a", "v"], ""),
        (&["-e", "nothing"], ""),
        (&["-e", "get", "text"], ""),
        (&["-n", "3", "set", "a", "b"], ""),
        (&["-n", "99", "ping"], ""),
        (&["-a", "wrong", "ping"], ""),
        (&["-a", "wrong", "--no-auth-warning", "ping"], ""),
        (&["--user", "u", "--pass", "wrong", "ping"], ""),
        (&["--show-pushes", "x", "ping"], ""),
        (&["-p"], ""),
        (&["--nothing"], ""),
        (&["-u", "http://x", "ping"], ""),
        (&["-h", "name.invalid", "ping"], ""),
        (&["-p", "1", "ping"], ""),
        (&["-s", "/nothing", "ping"], ""),
        (&["-t", "x", "ping"], ""),
        (&["--eval", "/nothing"], ""),
        (&["shutdown", "abort"], ""),
        (&["--scan"], ""),
        (&["--no-raw", "--scan", "--pattern", "*t", "--count", "3"], ""),
        (&["--scan", "--quoted-pattern", "\"\\x6fdd\""], ""),
    ] {
        same(&server, "redis-cli", words, input);
        same(&server, "valkey-cli", words, input);
    }
    let uri = format!("redis://127.0.0.1:{port}/2");
    same(&server, "redis-cli", &["-u", &uri, "set", "a", "b"], "");
}

#[test]
fn lines_from_a_pipe_are_commands() {
    let server = dunlin(&[]);
    for input in [
        "set a \"b c\"\nget a\n\n  get \"a\"  \r\nget 'a\nping\n",
        "3 incr n\n0 incr n\nget n",
        "multi\nselect 2\nget a\nexec\nmulti\nget a\ndiscard\nexec\n",
        ":set x\n:x\nquit\nping\n",
        "nothing\nexit",
        "subscribe a b\nunsubscribe a\nping\nunsubscribe\nget text\n",
    ] {
        for format in ["--raw", "--no-raw"] {
            if format == "--no-raw" || !input.contains("subscribe") {
                same(&server, "redis-cli", &[format], input);
            }
        }
    }
    let input = "subscribe a\nget text\nunsubscribe a\nhgetall hash\nreset\nhgetall hash\n";
    same(&server, "redis-cli", &["--no-raw", "-3"], input);
}

#[test]
fn passwords_come_from_the_environment_or_the_uri() {
    let server = dunlin(&["--requirepass", "se cret"]);
    let port = server.port().to_string();
    for variable in ["REDISCLI_AUTH", "VALKEYCLI_AUTH"] {
        let mut command = ours("dunlin cli");
        command.args(["cli", "-p", &port]);
        // `run` removes what the machine may have set, so the variable is set by env(1).
        let mut through = std::process::Command::new("env");
        through.arg(format!("{variable}=se cret")).arg(command.get_program());
        through.args(command.get_args());
        assert_eq!(run(through, &["ping"], b"").out, "PONG\n", "{variable}");
    }
    let uri = format!("redis://default:se%20cret@127.0.0.1:{port}");
    let printed = cli(server.port(), &["-u", &uri, "--no-auth-warning", "ping"], "");
    assert_eq!((printed.out.as_str(), printed.err.as_str()), ("PONG\n", ""));
    let printed = cli(server.port(), &["ping"], "");
    assert_eq!(printed.out, "NOAUTH Authentication required.\n\n");
}

#[test]
fn scripts_are_sent_with_keys_and_arguments() {
    let server = dunlin(&[]);
    let path = std::env::temp_dir().join(format!("dunlin-cli-{}.lua", std::process::id()));
    std::fs::write(&path, "return {KEYS[1], ARGV[1], ARGV[2], #KEYS}").unwrap();
    let file = path.display().to_string();
    let words = ["--no-raw", "--eval", &file, "k", ",", "a", "b"];
    let printed = cli(server.port(), &words, "");
    assert_eq!(printed.out, "1) \"k\"\n2) \"a\"\n3) \"b\"\n4) (integer) 1\n");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn tls_is_spoken() {
    let authority = Authority::new("cli");
    authority.sign("localhost");
    let tls_port = harness::server::free_port().unwrap();
    let options = authority.options(tls_port, "localhost");
    let server = dunlin(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let ca = authority.path("ca.crt");
    let uri = format!("rediss://localhost:{tls_port}");
    let large = "x".repeat(100_000);
    let printed = cli(server.port(), &["-u", &uri, "--cacert", &ca, "-x", "echo"], &large);
    assert_eq!(printed.out, large + "\n", "{}", printed.err);
    let printed = cli(server.port(), &["-u", &uri, "--insecure", "ping"], "");
    assert_eq!(printed.out, "PONG\n", "{}", printed.err);
    let printed = cli(server.port(), &["-u", &uri, "ping"], "");
    assert_eq!(printed.status, Some(1));
    assert!(printed.err.contains("Could not connect"), "{}", printed.err);
}
