//! Every spelling that redis-cli and valkey-cli know, and what it means: a table, so that a change
//! of how arguments are read cannot lose one.

use super::{Mode, Options};
use crate::flavor::Flavor;
use std::ffi::OsString;

/// Returns what a command line says, as the fields that it changes; or why it is refused.
fn read(flavor: Flavor, line: &str) -> String {
    // `''` is an empty word, `~` a blank in a word.
    let word = |word: &str| match word {
        "''" => OsString::new(),
        word => word.replace('~', " ").into(),
    };
    let options = match Options::parse(flavor, line.split_whitespace().map(word).collect()) {
        Ok(options) => options,
        Err(why) => return format!("refused: {}", why.lines().next().unwrap_or_default()),
    };
    if let Mode::Print(text) = &options.mode {
        let first = text.trim_start().lines().next().unwrap_or_default();
        return format!("prints: {first}");
    }
    let (before, mut found) = (Options::new(flavor), Vec::new());
    macro_rules! compare {
        ($($name:ident)*) => {
            $(let (old, new) = (format!("{:?}", before.$name), format!("{:?}", options.$name));
            if old != new {
                found.push(format!("{}={new}", stringify!($name)));
            })*
        };
    }
    compare!(place timeout user password password_visible ask_password no_warning database);
    compare!(protocol);
    compare!(repeat interval last_from_input quoted_input exit_status cluster family is_tls tls);
    compare!(show_pushes mode count cursor top pipe_timeout verbose manage);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let own = [
        ("tag", options.tag_from_input.as_deref()),
        ("pattern", options.pattern.as_deref()),
        ("between", Some(&options.style.between_elements[..]).filter(|it| *it != b"\n")),
        ("after", Some(&options.style.after_reply[..]).filter(|it| *it != b"\n")),
    ];
    for (name, value) in own.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        found.push(format!("{name}={}", text(value)));
    }
    if options.style.format != before.style.format {
        found.push(format!("format={:?}", options.style.format));
    }
    if !options.words.is_empty() {
        let words: Vec<String> = options.words.iter().map(|word| text(word)).collect();
        found.push(format!("words={}", words.join("|")));
    }
    found.join(" ")
}

fn check(table: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (line, wanted) in table {
        let read = read(Flavor::Redis, line);
        if read != *wanted {
            wrong.push(format!("{line}\n    is     {read}\n    wanted {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn where_the_server_is() {
    check(&[
        ("", ""),
        ("-h db", r#"place=Tcp { host: "db", port: 6379 }"#),
        ("-p 7", r#"place=Tcp { host: "127.0.0.1", port: 7 }"#),
        ("-h db -p 7", r#"place=Tcp { host: "db", port: 7 }"#),
        ("-p 7 -h db", r#"place=Tcp { host: "db", port: 7 }"#),
        ("-p 7 -p 8", r#"place=Tcp { host: "127.0.0.1", port: 8 }"#),
        ("-h one -h two", r#"place=Tcp { host: "two", port: 6379 }"#),
        ("-s /tmp/x", r#"place=Unix("/tmp/x")"#),
        ("-h db -s /tmp/x", r#"place=Unix("/tmp/x")"#),
        ("-s /tmp/x -h db", r#"place=Tcp { host: "db", port: 6379 }"#),
        ("-h ''", r#"place=Tcp { host: "", port: 6379 }"#),
        (
            "-u redis://u:p@h:7/3",
            "place=Tcp { host: \"h\", port: 7 } user=Some(\"u\") password=Some(\"p\") \
             password_visible=true database=3",
        ),
        ("-u redis://h:7 -p 8 -n 1", r#"place=Tcp { host: "h", port: 8 } database=1"#),
        ("-u rediss://h", r#"place=Tcp { host: "h", port: 6379 } is_tls=true"#),
        ("-t 2.5", "timeout=Some(2.5s)"),
        ("-t 0", ""),
        ("-4", "family=V4"),
        ("-6", "family=V6"),
        ("-c", "cluster=true"),
        ("-p port", "refused: Invalid server port."),
        ("-t -1", "refused: Invalid connection timeout for -t."),
        ("-u http://x", "refused: Invalid URI scheme"),
    ]);
}

#[test]
fn who_logs_in_and_how_it_speaks() {
    check(&[
        ("-a secret", r#"password=Some("secret") password_visible=true"#),
        ("--pass secret", r#"password=Some("secret") password_visible=true"#),
        ("-a -x", r#"password=Some("-x") password_visible=true"#),
        ("-a --raw", r#"password=Some("--raw") password_visible=true"#),
        ("-a ''", r#"password=Some("") password_visible=true"#),
        ("--user me", r#"user=Some("me")"#),
        ("--askpass", "ask_password=true"),
        ("-a x --askpass", "password_visible=true ask_password=true"),
        ("--no-auth-warning", "no_warning=true"),
        ("-n 5", "database=5"),
        ("-n 5x", "database=5"),
        ("-n -1", "database=-1"),
        ("-2", ""),
        ("-3", "protocol=Three"),
        ("-3 -2", ""),
        ("--tls", "is_tls=true"),
        ("--mptcp", ""),
    ]);
    let tls = |line| read(Flavor::Redis, line);
    for (line, part) in [
        ("--tls --insecure", "insecure: true"),
        ("--tls --sni h", r#"sni: Some("h")"#),
        ("--tls --cacert f", r#"cacert: Some("f")"#),
        ("--tls --cacertdir d", r#"cacertdir: Some("d")"#),
        ("--tls --cert f", r#"cert: Some("f")"#),
        ("--tls --key f", r#"key: Some("f")"#),
        ("--tls --tls-ciphers l", r#"ciphers: Some("l")"#),
        ("--tls --tls-ciphersuites l", r#"ciphersuites: Some("l")"#),
    ] {
        assert!(tls(line).contains(part), "{line}: {}", tls(line));
    }
}

#[test]
fn what_is_sent() {
    check(&[
        ("GET k", "words=GET|k"),
        ("-x SET k", "last_from_input=true words=SET|k"),
        ("-X tag SET k tag", "tag=tag words=SET|k|tag"),
        ("-x -X tag SET", "refused: Options -x and -X are mutually exclusive."),
        ("-r 3 PING", "repeat=3 words=PING"),
        ("-r -1 PING", "repeat=-1 words=PING"),
        ("-r 3 -i 0.5 PING", "repeat=3 interval=Some(500ms) words=PING"),
        ("-e PING", "exit_status=true words=PING"),
        ("--quoted-input SET k", "quoted_input=true words=SET|k"),
        ("--eval f k , a", r#"mode=Eval("f") words=k|,|a"#),
        // Options end where the command begins.
        ("ECHO -n", "words=ECHO|-n"),
        ("SET k -h", "words=SET|k|-h"),
        ("SET k v --raw", "words=SET|k|v|--raw"),
        ("-n 1 SET -p --help", "database=1 words=SET|-p|--help"),
        ("'' k", "words=|k"),
        ("-r 2 ECHO two~words", "repeat=2 words=ECHO|two words"),
    ]);
}

#[test]
fn how_replies_are_written() {
    check(&[
        ("--no-raw", "format=People"),
        ("--no-raw --raw", ""),
        ("--csv", "format=Csv"),
        ("--csv --raw", ""),
        ("--json", "protocol=PreferThree format=Json"),
        ("--quoted-json", "protocol=PreferThree format=QuotedJson"),
        ("-3 --json", "protocol=Three format=Json"),
        ("--json -2", "format=Json"),
        ("-d , PING", "between=, words=PING"),
        ("-d ''", "between="),
        ("-d -", "between=-"),
        ("-D ;", "after=;"),
        ("--show-pushes yes", "show_pushes=true"),
        ("--show-pushes no", ""),
        ("--verbose", "verbose=true"),
    ]);
}

#[test]
fn what_is_done_instead_of_commands() {
    check(&[
        ("--latency", "mode=Latency"),
        ("--latency-history", "mode=LatencyHistory"),
        ("--latency-dist", "mode=LatencyDistribution"),
        ("--latency-dist --mono", "mode=LatencyDistribution"),
        ("--latency -i 2", "interval=Some(2s) mode=Latency"),
        ("--intrinsic-latency 5", "mode=IntrinsicLatency(5)"),
        ("--lru-test 100", "mode=LruTest(100)"),
        ("--stat", "mode=Stat"),
        ("--scan", "mode=Scan"),
        ("--scan --pattern a*", "mode=Scan pattern=a*"),
        ("--scan --quoted-pattern \"a\\x62\"", "mode=Scan pattern=ab"),
        ("--scan --pattern -x --count 7", "mode=Scan count=7 pattern=-x"),
        ("--bigkeys", "mode=BigKeys"),
        ("--memkeys", "mode=MemKeys(None)"),
        ("--memkeys-samples 5", "mode=MemKeys(Some(5))"),
        ("--keystats", "mode=KeyStats(None)"),
        ("--keystats-samples 5", "mode=KeyStats(Some(5))"),
        ("--keystats --top 3 --cursor 9", "mode=KeyStats(None) cursor=9 top=3"),
        ("--hotkeys", "mode=HotKeys(16)"),
        ("--hotkeys-count 4", "mode=HotKeys(4)"),
        ("--pipe", "mode=Pipe"),
        ("--pipe --pipe-timeout 0", "mode=Pipe pipe_timeout=0"),
        ("--rdb f", r#"mode=Rdb("f")"#),
        ("--rdb -", r#"mode=Rdb("-")"#),
        ("--functions-rdb f", r#"mode=FunctionsRdb("f")"#),
        ("--replica", "mode=Replica"),
        ("--slave", "mode=Replica"),
        ("--ldb", "refused: There is no debugger of Lua scripts here."),
        ("--ldb-sync-mode", "refused: There is no debugger of Lua scripts here."),
    ]);
}

#[test]
fn what_is_printed_and_what_is_refused() {
    for line in ["--help", "-h", "-p 7 --help", "-p 7 -h"] {
        assert_eq!(
            read(Flavor::Redis, line),
            "prints: Sends commands to a server that speaks RESP"
        );
    }
    let version = format!("prints: redis-cli {}", env!("CARGO_PKG_VERSION"));
    for line in ["-v", "--version", "-p 7 -v"] {
        assert_eq!(read(Flavor::Redis, line), version);
    }
    for line in ["--nosuch", "-q", "-p", "--user", "-pfoo", "--cluster-nosuch", "--clu"] {
        let read = read(Flavor::Redis, line);
        assert!(read.starts_with("refused: "), "{line}: {read}");
    }
    let said = |flavor, line| read(flavor, line);
    for (line, name) in [("--nosuch", "--nosuch"), ("-n 1 -q", "-q"), ("-n 1 -p", "-p")] {
        let wanted = format!("refused: Unrecognized option or bad number of args for: '{name}'");
        assert_eq!(said(Flavor::Redis, line), wanted);
        assert_eq!(said(Flavor::Valkey, line), wanted);
    }
    let own = said(Flavor::Dunlin, "--nosuch");
    assert_eq!(own, "refused: error: unexpected argument '--nosuch' found");
}

#[test]
fn how_a_cluster_is_managed() {
    let manage = |line: &str| {
        let words = line.split(' ').map(OsString::from).collect();
        let options = Options::parse(Flavor::Redis, words).expect("it is understood");
        let wanted = options.manage.expect("a cluster is managed");
        let words: Vec<_> = wanted.words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        (words.join(" "), wanted.clone(), options.words.len())
    };
    let (words, options, left) =
        manage("--cluster create a:1 b:2 --cluster-replicas 1 --cluster-yes --cluster-timeout 5");
    assert_eq!((&words[..], left), ("create a:1 b:2", 0));
    assert_eq!((options.replicas, options.yes, options.timeout_ms), (1, true, 5));
    let (words, options, _) = manage(
        "-p 7 --cluster rebalance a:1 --cluster-weight x=1.5 y=0 --cluster-use-empty-masters \
         --cluster-threshold 1.5 --cluster-pipeline 3 --cluster-simulate",
    );
    assert_eq!(words, "rebalance a:1");
    assert_eq!(options.weights, [("x".to_owned(), 1.5), ("y".to_owned(), 0.0)]);
    assert_eq!((options.threshold, options.pipeline), (1.5, 3));
    assert!(options.use_empty && options.simulate);
    let (_, options, _) = manage(
        "--cluster import a:1 --cluster-from b:2 --cluster-from-user u --cluster-from-pass -p \
         --cluster-copy --cluster-replace --cluster-from-askpass",
    );
    assert_eq!(options.from.as_deref(), Some("b:2"));
    assert_eq!(options.from_user.as_deref(), Some("u"));
    assert_eq!(options.from_password.as_deref(), Some("-p"));
    assert!(options.copy && options.replace && options.from_ask_password);
    let (_, options, _) = manage("--cluster reshard a:1 --cluster-to x --cluster-slots 9");
    assert_eq!((options.to.as_deref(), options.slots), (Some("x"), Some(9)));
    for (line, primary) in [
        ("--cluster add-node a b --cluster-slave --cluster-master-id m", "m"),
        ("--cluster add-node a b --cluster-replica --cluster-primary-id m", "m"),
        ("--cluster add-node a b --cluster-replica --cluster-primaries-id m", "m"),
    ] {
        let (words, options, _) = manage(line);
        assert_eq!((&words[..], options.primary.as_deref()), ("add-node a b", Some(primary)));
        assert!(options.as_replica);
    }
    let (_, options, _) = manage(
        "--cluster fix a --cluster-search-multiple-owners --cluster-fix-with-unreachable-masters \
         --cluster-only-masters --cluster-only-replicas --cluster-use-atomic-slot-migration",
    );
    assert!(options.search_owners && options.fix_unreachable && options.use_jobs);
    assert!(options.only_primaries && options.only_replicas);
    for line in [
        "--cluster-replicas x",
        "--cluster-replicas",
        "--cluster-threshold nan",
        "--cluster-weight",
        "--cluster-weight x=-1",
        "--cluster-slots many",
    ] {
        let words = line.split(' ').map(OsString::from).collect();
        assert!(Options::parse(Flavor::Redis, words).is_err(), "{line}");
    }
}

#[test]
fn every_option_of_the_table_means_something() {
    let command = super::command(Flavor::Dunlin);
    command.clone().debug_assert();
    let forms = command.get_arguments().filter(|arg| arg.get_id() != "command");
    for arg in forms {
        let short = arg.get_short().map(|short| format!("-{short}"));
        let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
        for name in short.into_iter().chain(longs.into_iter().map(|long| format!("--{long}"))) {
            let mut words = vec![OsString::from(&name)];
            if arg.get_action().takes_values() {
                words.push(if name == "--cluster-weight" { "x=1" } else { "1" }.into());
            }
            // It is understood, or refused with a reason; it does not panic.
            let _ = Options::parse(Flavor::Dunlin, words);
        }
    }
}
