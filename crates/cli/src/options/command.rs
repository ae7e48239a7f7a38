//! The options as a table, from which `clap` reads arguments, prints the help and completes.
//!
//! Arguments are redis-cli's: options first, and with the first word that is none the command
//! begins, whose words may look like options. The last of several that contradict each other holds,
//! so what was said is replayed in its order ([`said`]) rather than asked for by name. `-h` is the
//! host as in redis-cli; alone at the end it is the help ([`parse`]), which `clap` cannot say.

use crate::flavor::Flavor;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// The id of the argument that is the command.
const WORDS: &str = "command";

/// Options by headings: how one is spelled, with the name of its value if it has one, and what it
/// is. `VALUE...` is several values.
type Section = (&'static str, &'static [(&'static str, &'static str)]);

const SECTIONS: &[Section] = &[
    (
        "Connection",
        &[
            ("-h HOST", "Name or address of the server (127.0.0.1)"),
            ("-p PORT", "Its port (6379)"),
            ("-s PATH", "A Unix socket instead"),
            (
                "-u URI",
                "redis://USER:PASSWORD@HOST:PORT/DATABASE; rediss:// for TLS; and valkey(s)://",
            ),
            ("-t SECONDS", "Give up connecting after this time"),
            ("-4", "Try IPv4 addresses first"),
            ("-6", "Try IPv6 addresses first"),
            ("-a --pass PASSWORD", "Password; others can see it, the variable VARIABLE is safer"),
            ("--user NAME", "User of the password"),
            ("--askpass", "Ask for the password"),
            ("--no-auth-warning", "No warning about a password in the arguments"),
            ("-n NUMBER", "Database"),
            ("-2", "Speak RESP2"),
            ("-3", "Speak RESP3"),
            ("-c", "Follow redirections of a cluster"),
            ("--mptcp", "Multipath TCP is a hint: the connection is an ordinary one"),
        ],
    ),
    (
        "TLS",
        &[
            ("--tls", "Encrypt"),
            ("--cacert FILE", "The authorities that are trusted"),
            ("--cacertdir DIR", "A folder of them"),
            ("--insecure", "Trust every certificate"),
            ("--sni HOST", "The name that the server's certificate has"),
            ("--cert FILE", "A certificate of this client"),
            ("--key FILE", "Its key"),
            ("--tls-ciphers LIST", "Ciphers of TLS 1.2"),
            ("--tls-ciphersuites LIST", "Ciphers of TLS 1.3"),
        ],
    ),
    (
        "Commands",
        &[
            ("-r COUNT", "Send the command so often; -1 is for ever"),
            ("-i SECONDS", "Pause between; also of --scan, --stat, --bigkeys and the like"),
            ("-x", "Append standard input as the last argument"),
            ("-X TAG", "Replace the argument TAG by standard input"),
            ("--quoted-input", "Arguments are quoted strings: '\"a\\x00b\"'"),
            ("-e", "End with status 1 when the server answers with an error"),
            ("--eval FILE", "Run a Lua script with the words: KEY ... , ARGUMENT ..."),
        ],
    ),
    (
        "Output",
        &[
            ("--raw", "Bytes; the default unless a terminal reads them"),
            ("--no-raw", "Typed and quoted, for people"),
            ("--csv", "CSV"),
            ("--json", "JSON"),
            ("--quoted-json", "JSON of ASCII only"),
            ("-d TEXT", "Between elements of raw output"),
            ("-D TEXT", "After replies of raw output"),
            ("--show-pushes YES|NO", "Whether to print pushes"),
            ("--verbose", "Say more"),
        ],
    ),
    (
        "Looking at a server",
        &[
            ("--stat", "A line of figures each second"),
            ("--latency", "Round trips, measured without end; once if no terminal reads them"),
            ("--latency-history", "The same, in a line for each interval"),
            ("--latency-dist", "The same, as a spectrum"),
            ("--mono", "Accepted: the spectrum is of one colour"),
            ("--intrinsic-latency SECONDS", "How long this machine takes away a processor"),
            ("--scan", "List keys"),
            ("--pattern PATTERN", "Only such keys"),
            ("--quoted-pattern PATTERN", "Only such keys; the pattern is a quoted string"),
            ("--count COUNT", "How many keys to ask for at a time"),
            ("--bigkeys", "The keys with most elements"),
            ("--memkeys", "The keys that take most memory"),
            ("--memkeys-samples COUNT", "The same, of so many elements of each"),
            ("--keystats", "Both, and how sizes are distributed"),
            ("--keystats-samples COUNT", "The same, of so many elements of each"),
            ("--top COUNT", "How many keys to list"),
            ("--cursor CURSOR", "Where to go on"),
            ("--hotkeys", "The keys used most, where the policy is an LFU one"),
            ("--hotkeys-count COUNT", "The same, so many"),
            ("--replica --slave", "Print the commands that a replica receives"),
            ("--lru-test KEYS", "The hit ratio of a cache under a load of 80 to 20"),
        ],
    ),
    (
        "Moving data",
        &[
            ("--pipe", "Send standard input, which is RESP, and count the replies"),
            ("--pipe-timeout SECONDS", "How long to wait for them at the end (30; 0 is for ever)"),
            ("--rdb FILE", "Take a snapshot over the network; - is standard output"),
            ("--functions-rdb FILE", "The same of the functions alone"),
        ],
    ),
    (
        "Clusters",
        &[
            ("--cluster WORD...", "Make, check and change a cluster; --cluster help says how"),
            ("--cluster-replicas COUNT", "Of each primary"),
            ("--cluster-yes", "Ask nothing"),
            ("--cluster-from NODES", "Where slots are taken from, or all; the source of an import"),
            ("--cluster-from-user NAME", "User at the source of an import"),
            ("--cluster-from-pass PASSWORD", "Password there"),
            ("--cluster-from-askpass", "Ask for it"),
            ("--cluster-to NODE", "Where slots go"),
            ("--cluster-slots COUNT", "How many"),
            ("--cluster-weight NODE=WEIGHT...", "Shares of nodes"),
            ("--cluster-threshold PERCENT", "How far a node may be from its share (2)"),
            ("--cluster-timeout MS", "How long a MIGRATE may take (60000)"),
            ("--cluster-pipeline COUNT", "Keys of a MIGRATE (10)"),
            (
                "--cluster-use-empty-primaries --cluster-use-empty-masters",
                "Give slots to nodes that have none",
            ),
            ("--cluster-simulate", "Change nothing"),
            ("--cluster-replace", "A key of the source replaces that of the target"),
            ("--cluster-copy", "An import leaves the keys where they are"),
            ("--cluster-search-multiple-owners", "Look at each slot of each primary"),
            (
                "--cluster-fix-with-unreachable-primaries --cluster-fix-with-unreachable-masters",
                "Take the slots of primaries that are away",
            ),
            ("--cluster-use-atomic-slot-migration", "Have the servers move slots, by jobs"),
            ("--cluster-replica --cluster-slave", "The new node becomes a replica"),
            (
                "--cluster-primary-id --cluster-master-id --cluster-primaries-id NODE",
                "Of this primary",
            ),
            ("--cluster-only-primaries --cluster-only-masters", "Only of primaries"),
            ("--cluster-only-replicas", "Only of replicas"),
        ],
    ),
];

/// Returns the command line of a program of this name.
pub fn command(flavor: Flavor) -> Command {
    let program = flavor.program();
    let words = Arg::new(WORDS)
        .value_name("COMMAND")
        .help("The command with its arguments; without one it asks for commands")
        .num_args(0..)
        .trailing_var_arg(true)
        .value_parser(value_parser!(OsString));
    let hidden = |name| Arg::new(name).long(name).action(ArgAction::SetTrue).hide(true);
    let mut command = Command::new(program)
        .bin_name(program)
        .version(env!("CARGO_PKG_VERSION"))
        .about("Sends commands to a server that speaks RESP")
        .after_help("The guide: docs/operations.md")
        .override_usage(format!("{program} [OPTION ...] [COMMAND [ARGUMENT ...]]"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .arg(words)
        .args([hidden("ldb"), hidden("ldb-sync-mode")]);
    for (heading, options) in SECTIONS {
        for (spelling, help) in *options {
            let help = help.replace("VARIABLE", flavor.password_variables()[0]);
            command = command.arg(argument(spelling).help(help).help_heading(*heading));
        }
    }
    let help = Arg::new("help").long("help").action(ArgAction::Help).help("Print this");
    let version = Arg::new("version").short('v').long("version").action(ArgAction::Version);
    command.args([help, version.help("Print the version")])
}

/// Makes an argument from its spelling. Its id is its first name.
fn argument(spelling: &'static str) -> Arg {
    let (names, values): (Vec<&str>, Vec<&str>) =
        spelling.split(' ').partition(|word| word.starts_with('-'));
    let mut arg = Arg::new(names[0]);
    for name in names {
        arg = match name.strip_prefix("--") {
            Some(long) if arg.get_long().is_none() => arg.long(long),
            Some(other) => arg.visible_alias(other),
            None => arg.short(name.chars().nth(1).expect("a letter")),
        };
    }
    let Some(&value) = values.first() else { return arg.action(ArgAction::SetTrue) };
    let arg = arg.action(ArgAction::Append).value_parser(value_parser!(OsString));
    match value.strip_suffix("...") {
        Some(value) => arg.value_name(value).num_args(0..),
        None => {
            let is_path = matches!(value, "FILE" | "PATH" | "DIR");
            let hint = if is_path { ValueHint::AnyPath } else { ValueHint::Unknown };
            // `-a -x` is a password, `-n -1` a number.
            arg.value_name(value).allow_hyphen_values(true).value_hint(hint)
        }
    }
}

/// What was asked for.
pub enum Line {
    /// Options in their order, each with its values, and the command.
    Said(Vec<(String, Vec<Vec<u8>>)>, Vec<Vec<u8>>),
    /// Print this and end with success.
    Print(String),
}

/// Reads arguments.
///
/// # Errors
/// Why they make no sense, for the user.
pub fn parse(flavor: Flavor, args: Vec<OsString>) -> Result<Line, String> {
    let last = args.last().map(|last| last.to_string_lossy().into_owned()).unwrap_or_default();
    let mut command = command(flavor).no_binary_name(true);
    match command.try_get_matches_from_mut(args) {
        Ok(matches) => {
            let words = matches.get_many::<OsString>(WORDS).into_iter().flatten();
            let words = words.cloned().map(OsStringExt::into_vec).collect();
            Ok(Line::Said(said(&matches), words))
        }
        Err(why) => match why.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Line::Print(why.to_string())),
            // The help of old: -h without a host.
            ErrorKind::InvalidValue if last == "-h" => {
                Ok(Line::Print(command.render_help().to_string()))
            }
            _ => Err(refusal(flavor, &why, &last)),
        },
    }
}

/// Returns why arguments are refused: as redis-cli says it if the program is called by that name,
/// otherwise with what was perhaps meant. `last` is the last argument.
fn refusal(flavor: Flavor, why: &clap::Error, last: &str) -> String {
    let name = match (why.kind(), why.get(ContextKind::InvalidArg)) {
        // No value is wrong in itself, so the last option lacks one.
        (ErrorKind::InvalidValue, _) => Some(last),
        (ErrorKind::UnknownArgument, Some(ContextValue::String(name))) => Some(&name[..]),
        _ => None,
    };
    match name.filter(|_| flavor != Flavor::Dunlin) {
        Some(name) => format!("Unrecognized option or bad number of args for: '{name}'"),
        None => why.to_string().trim_end().to_owned(),
    }
}

/// Returns what was said, in the order in which it was.
fn said(matches: &ArgMatches) -> Vec<(String, Vec<Vec<u8>>)> {
    let mut found = Vec::new();
    for id in matches.ids().map(|id| id.as_str()).filter(|id| *id != WORDS) {
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let mut places = matches.indices_of(id).into_iter().flatten();
        match matches.try_get_raw_occurrences(id) {
            Ok(Some(occurrences)) if !is_switch(matches, id) => {
                for values in occurrences {
                    let values: Vec<&OsStr> = values.collect();
                    let place = places.by_ref().take(values.len().max(1)).last();
                    let values = values.into_iter().map(|it| it.to_owned().into_vec()).collect();
                    found.push((place.unwrap_or_default(), id.to_owned(), values));
                }
            }
            _ => found.push((places.last().unwrap_or_default(), id.to_owned(), Vec::new())),
        }
    }
    found.sort_by_key(|(place, ..)| *place);
    found.into_iter().map(|(_, id, values)| (id, values)).collect()
}

/// Returns whether an option has no value.
fn is_switch(matches: &ArgMatches, id: &str) -> bool {
    matches!(matches.try_get_one::<bool>(id), Ok(Some(_)))
}
