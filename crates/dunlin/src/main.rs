//! The `dunlin` binary: which subcommand is meant, and nothing else.

mod admin;
#[cfg(feature = "mimalloc")]
mod allocator;
mod completions;
mod usage;

#[cfg(feature = "mimalloc")]
use allocator::Mimalloc as Allocator;
use keyspace::memory::Counting;
use process::facts;
#[cfg(not(feature = "mimalloc"))]
use std::alloc::System as Allocator;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Counts what is allocated, for `maxmemory` and INFO.
#[global_allocator]
static ALLOCATOR: Counting<Allocator> = Counting(Allocator);

/// The status for arguments that make no sense, as in most Unix programs.
const MISUSE: u8 = 2;

/// The words of the longest command, `cluster hashing try`, and one more.
const MAX_COMMAND_WORDS: usize = 4;

fn main() -> ExitCode {
    #[cfg(feature = "mimalloc")]
    keyspace::memory::set_purging(allocator::PURGING);
    let args: Vec<OsString> = std::env::args_os().collect();
    if boot::machine::is_init(&args.first().cloned().unwrap_or_default().to_string_lossy()) {
        boot::machine::run();
    }
    run(parse(args))
}

fn run(request: Request) -> ExitCode {
    match request {
        Request::Container(args) => match boot::container::enter(args) {
            Ok(words) => run(parse(words)),
            Err(status) => status,
        },
        Request::Server(args) => server::run(args, Some(admin::start)),
        Request::CheckRdb { program, args } => {
            server::persistence::check::run_check_rdb(&program, &args)
        }
        Request::CheckAof { program, args } => {
            server::persistence::check::run_check_aof(&program, &args)
        }
        Request::Bench(args) => bench::run(args),
        Request::Proxy(args) => proxy::run(args, proxied_commands),
        Request::Console(args) => console::run(args),
        Request::Node(args) => {
            node::set_commands(described_commands(), commands::check_user);
            node::run_node(args)
        }
        Request::Cluster(args) => {
            node::set_commands(described_commands(), commands::check_user);
            node::run_cluster(args)
        }
        Request::Cli { program, args } => cli::run(&program, args),
        Request::Print(text) => print(&text),
        Request::Refuse(text) => {
            eprint!("{text}");
            ExitCode::from(MISUSE)
        }
    }
}

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// Run the server; the program's name and the server's own arguments.
    Server(Vec<OsString>),
    /// Check a snapshot; what the program is called and its own arguments.
    CheckRdb { program: String, args: Vec<OsString> },
    /// Check an append-only log, likewise.
    CheckAof { program: String, args: Vec<OsString> },
    /// Run the load generator, with its own arguments.
    Bench(Vec<OsString>),
    /// Send commands to a server; what the program is called and its own arguments.
    Cli { program: String, args: Vec<OsString> },
    /// Run the proxy, with its own arguments.
    Proxy(Vec<OsString>),
    /// Be the entry point of a container, with its arguments.
    Container(Vec<OsString>),
    /// Serve the console of another server, with its own arguments.
    Console(Vec<OsString>),
    /// Run the node of a machine, with its own arguments.
    Node(Vec<OsString>),
    /// A command for a cluster, with its own arguments.
    Cluster(Vec<OsString>),
    /// Print this and succeed.
    Print(String),
    /// Say this on standard error and fail.
    Refuse(String),
}

fn parse(mut args: Vec<OsString>) -> Request {
    let program = args.first().cloned().unwrap_or_default();
    if is_server_name(&program) {
        return parse_server(args);
    }
    if is_named(&program, &["redis-sentinel", "valkey-sentinel"]) {
        return Request::Refuse(usage::sentinel());
    }
    if let Some(tool) = parse_tool(&program, &args) {
        return tool;
    }
    let Some(command) = args.get(1) else {
        return Request::Refuse(usage::program());
    };
    if let Some(version) = version_of(&args[1..]) {
        return Request::Print(version);
    }
    match command.to_str() {
        Some("server") => {
            args.remove(1);
            parse_server(args)
        }
        Some("check") => parse_check(&mut args),
        Some("bench") => Request::Bench(args.split_off(2)),
        Some("proxy") => Request::Proxy(args.split_off(2)),
        Some("container") if args.get(2).is_some_and(|word| word == "--help" || word == "-h") => {
            Request::Print(usage::container())
        }
        Some("container") => Request::Container(args.split_off(2)),
        Some("console") => Request::Console(args.split_off(2)),
        Some("node") => Request::Node(args.split_off(2)),
        Some("cluster") => Request::Cluster(args.split_off(2)),
        Some("cli") => Request::Cli { program: "dunlin cli".into(), args: args.split_off(2) },
        Some("completions") => parse_completions(&args[2..]),
        Some("help" | "--help" | "-h") => parse_help(&args[2..]),
        Some("version" | "--version" | "-v" | "-V") => {
            Request::Print(format!("dunlin {}\n", facts::version_and_commit()))
        }
        _ => Request::Refuse(usage::unknown_command(&command.to_string_lossy())),
    }
}

/// Returns what a link with the name of a tool asks for. The tool is called by the link's name,
/// without its path.
fn parse_tool(program: &OsStr, args: &[OsString]) -> Option<Request> {
    let (maker, tool) = Path::new(program).file_name()?.to_str()?.split_once('-')?;
    if !["redis", "valkey"].contains(&maker) {
        return None;
    }
    let (program, args) = (format!("{maker}-{tool}"), args[1..].to_vec());
    let only = match &args[..] {
        [word] => word.to_str().unwrap_or_default(),
        _ => "",
    };
    Some(match (tool, only) {
        ("check-rdb" | "check-aof", "-h" | "--help") => {
            Request::Print(completions::help_of_check())
        }
        ("check-rdb", _) => Request::CheckRdb { program, args },
        ("check-aof", _) => Request::CheckAof { program, args },
        ("benchmark", "-v" | "--version") => {
            Request::Print(format!("{program} {}\n", facts::version_and_commit()))
        }
        ("benchmark", _) => Request::Bench(args),
        ("cli", _) => Request::Cli { program, args },
        _ => return None,
    })
}

/// `dunlin help COMMAND …`: what the command says for `--help`.
fn parse_help(topics: &[OsString]) -> Request {
    let Some(topic) = topics.first().map(|topic| topic.to_string_lossy()) else {
        return Request::Print(usage::program());
    };
    match topic.as_ref() {
        "help" | "version" => Request::Print(usage::program()),
        known if usage::COMMANDS.contains(&known) => {
            let around = |word: &str| [OsString::from(word)].into_iter();
            parse(around("dunlin").chain(topics.iter().cloned()).chain(around("--help")).collect())
        }
        unknown => Request::Refuse(usage::unknown_command(unknown)),
    }
}

/// Returns what `--version` or `-V` prints behind a command and its subcommands. `server` and `cli`
/// have forms of their own, which scripts know from redis-server and redis-cli. Behind
/// `container redis-server` it is the server's.
fn version_of(words: &[OsString]) -> Option<String> {
    let asks = |word: &OsString| word == "--version" || word == "-V";
    let depth = words.iter().take(MAX_COMMAND_WORDS).position(asks)?;
    let names: Vec<&str> = words[..depth].iter().filter_map(|word| word.to_str()).collect();
    let has_own_form = ["server", "cli"].contains(names.first()?);
    (!has_own_form && names.len() == depth && completions::is_command(&names))
        .then(|| format!("dunlin {} {}\n", names.join(" "), facts::version_and_commit()))
}

/// `dunlin completions SHELL`.
fn parse_completions(words: &[OsString]) -> Request {
    match completions::script(words) {
        Ok(script) => Request::Print(script),
        Err(why) if why.use_stderr() => Request::Refuse(why.to_string()),
        Err(help) => Request::Print(help.to_string()),
    }
}

/// `dunlin check KIND FILE …`.
fn parse_check(args: &mut Vec<OsString>) -> Request {
    match args.get(2).and_then(|kind| kind.to_str()) {
        Some("rdb" | "aof") if args.get(3).is_some_and(|word| word == "--help" || word == "-h") => {
            Request::Print(completions::help_of_check())
        }
        Some("rdb") if args.len() > 3 => {
            Request::CheckRdb { program: "dunlin check rdb".into(), args: args.split_off(3) }
        }
        Some("aof") if args.len() > 3 => {
            Request::CheckAof { program: "dunlin check aof".into(), args: args.split_off(3) }
        }
        Some("-h" | "--help") => Request::Print(completions::help_of_check()),
        _ => Request::Refuse(completions::help_of_check()),
    }
}

/// `--version` and `--help` count only as the first argument, as in redis-server: further on they
/// would be directives. `config` reads the rest by Redis's rules, for which `clap` is not made: each
/// directive is an option, some take any number of values, and a value may begin with `--`.
fn parse_server(args: Vec<OsString>) -> Request {
    match args.get(1).and_then(|first| first.to_str()) {
        Some("-v" | "--version") => Request::Print(usage::server_version()),
        Some("-h" | "--help") => {
            let program = args.first().filter(|program| is_server_name(program));
            let name = program.and_then(|program| Path::new(program).file_name()?.to_str());
            Request::Print(usage::server(name.unwrap_or("dunlin server")))
        }
        _ if args.iter().any(|word| word == "--sentinel") => Request::Refuse(usage::sentinel()),
        _ => Request::Server(args),
    }
}

/// A link with one of these names makes existing scripts start Dunlin.
fn is_server_name(program: &OsStr) -> bool {
    is_named(program, &["redis-server", "valkey-server"])
}

fn is_named(program: &OsStr, names: &[&str]) -> bool {
    let name = Path::new(program).file_name();
    name.is_some_and(|name| names.iter().any(|&known| name == known))
}

/// The commands that nodes know when they copy data: those of ours, without what runs them.
fn described_commands() -> spec::CommandTable<spec::NotRun> {
    let rows: Vec<_> = commands::rows().iter().map(|row| row.described()).collect();
    spec::CommandTable::build(&rows, &[])
}

/// The commands that the proxy knows without asking servers: those of ours, without what runs them.
fn proxied_commands() -> Arc<forward::hub::Commands> {
    let rows: Vec<_> = commands::rows().iter().map(|row| row.described()).collect();
    forward::hub::Commands::new(&rows, commands::REDIS_VERSION)
}

/// Prints to standard output; a reader that has gone away (`dunlin help | head -1`) is no failure.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        parse(line.split(' ').map(OsString::from).collect())
    }

    fn server(line: &str) -> Request {
        Request::Server(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn the_server_gets_its_arguments_untouched() {
        assert_eq!(request("dunlin server"), server("dunlin"));
        assert_eq!(request("dunlin server a.conf --port 1"), server("dunlin a.conf --port 1"));
        assert_eq!(request("dunlin server - --version"), server("dunlin - --version"));
    }

    #[test]
    fn the_load_generator_gets_its_own() {
        let words = |line: &str| line.split_whitespace().map(OsString::from).collect();
        assert_eq!(request("dunlin bench -q -t set"), Request::Bench(words("-q -t set")));
        assert_eq!(request("dunlin help bench"), Request::Bench(words("--help")));
    }

    #[test]
    fn links_to_the_tools_are_the_tools() {
        let cli = |program: &str, args: &[&str]| Request::Cli {
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
        };
        assert_eq!(request("dunlin cli -p 7 ping"), cli("dunlin cli", &["-p", "7", "ping"]));
        assert_eq!(request("dunlin help cli"), cli("dunlin cli", &["--help"]));
        assert_eq!(request("/bin/redis-cli server"), cli("redis-cli", &["server"]));
        assert_eq!(request("valkey-cli"), cli("valkey-cli", &[]));
        for line in ["redis-benchmark -q", "/usr/bin/valkey-benchmark -q"] {
            assert_eq!(request(line), Request::Bench(vec!["-q".into()]), "{line}");
        }
        for asks in ["-v", "--version"] {
            let version = format!("redis-benchmark {}\n", facts::version_and_commit());
            let line = format!("/bin/redis-benchmark {asks}");
            assert_eq!(request(&line), Request::Print(version));
        }
        // Not one of the tools.
        assert!(matches!(request("/bin/redis-dunlin server"), Request::Server(_)));
    }

    #[test]
    fn a_link_named_like_another_server_is_the_server() {
        assert_eq!(request("src/redis-server a.conf"), server("src/redis-server a.conf"));
        assert_eq!(request("valkey-server"), server("valkey-server"));
        assert_eq!(request("redis-server server"), server("redis-server server"));
        let Request::Print(text) = request("/bin/redis-server -v") else { panic!() };
        let version = format!("Dunlin server v={} sha=", server::REDIS_VERSION);
        let own = format!(" bits=64 dunlin={}\n", facts::VERSION);
        assert!(text.starts_with(&version) && text.ends_with(&own), "{text}");
    }

    #[test]
    fn a_sentinel_is_refused_by_option_and_by_name() {
        let refusal = Request::Refuse(usage::sentinel());
        for line in [
            "dunlin server --sentinel",
            "dunlin server sentinel.conf --port 1 --sentinel",
            "redis-server sentinel.conf --sentinel",
            "/usr/bin/redis-sentinel sentinel.conf",
            "valkey-sentinel",
        ] {
            assert_eq!(request(line), refusal, "{line}");
        }
    }

    #[test]
    fn files_are_checked_by_subcommand_or_by_name() {
        let expected = |program: &str, args: &[&str]| Request::CheckRdb {
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
        };
        assert_eq!(request("dunlin check rdb a.rdb"), expected("dunlin check rdb", &["a.rdb"]));
        assert_eq!(request("/bin/redis-check-rdb x"), expected("redis-check-rdb", &["x"]));
        assert_eq!(request("redis-check-aof --help"), request("dunlin check --help"));
        assert_eq!(request("redis-check-rdb"), expected("redis-check-rdb", &[]));
        let log = Request::CheckAof {
            program: "dunlin check aof".into(),
            args: vec!["--fix".into(), "x".into()],
        };
        assert_eq!(request("dunlin check aof --fix x"), log);
        assert!(matches!(request("valkey-check-aof x"), Request::CheckAof { .. }));
        for line in ["dunlin check", "dunlin check aof", "dunlin check rdb", "dunlin check tdb x"] {
            assert!(matches!(request(line), Request::Refuse(_)), "{line}");
        }
        assert!(matches!(request("dunlin help check"), Request::Print(_)));
    }

    #[test]
    fn help_names_the_program_as_it_was_called_without_its_path() {
        for (line, called) in [
            ("dunlin server --help", "dunlin server"),
            ("/opt/dunlin server --help", "dunlin server"),
            ("./redis-server -h", "redis-server"),
        ] {
            let Request::Print(text) = request(line) else { panic!() };
            assert!(text.contains(&format!("\n\nUsage: {called} [CONFIG]")), "{text}");
        }
        assert_eq!(request("dunlin help"), request("dunlin --help"));
        assert_eq!(request("dunlin help version"), request("dunlin help"));
        assert_eq!(request("dunlin help container"), request("dunlin container --help"));
        let up = Request::Cluster(vec!["up".into(), "--help".into()]);
        assert_eq!(request("dunlin help cluster up"), up);
        for command in usage::COMMANDS {
            let line = format!("dunlin help {command}");
            assert!(!matches!(request(&line), Request::Refuse(_)), "{command}");
        }
        assert!(matches!(request("dunlin help server"), Request::Print(_)));
        assert!(
            matches!(request("dunlin --version"), Request::Print(text) if text.starts_with("dunlin "))
        );
    }

    #[test]
    fn every_command_says_its_version() {
        for line in
            ["bench", "check", "completions", "console", "container", "node", "proxy", "cluster"]
        {
            let Request::Print(text) = request(&format!("dunlin {line} --version")) else {
                panic!("{line}")
            };
            assert_eq!(text, format!("dunlin {line} {}\n", facts::version_and_commit()));
        }
        for line in ["cluster up", "cluster hashing try", "bench audit", "check rdb", "node"] {
            for asks in ["--version", "-V"] {
                let Request::Print(text) = request(&format!("dunlin {line} {asks}")) else {
                    panic!("{line} {asks}")
                };
                assert_eq!(text, format!("dunlin {line} {}\n", facts::version_and_commit()));
            }
        }
        assert!(matches!(
            request("dunlin container redis-server --version"),
            Request::Container(_)
        ));
        // What comes later is an argument of the command.
        for line in ["dunlin bench -n 1 --version", "dunlin proxy -o -V", "dunlin check rdb x -V"] {
            assert!(!matches!(request(line), Request::Print(_)), "{line}");
        }
        let check = request("dunlin check --help");
        assert_eq!(request("dunlin check rdb --help"), check);
        assert_eq!(request("dunlin check aof -h"), check);
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        let Request::Refuse(text) = request("dunlin sever") else { panic!() };
        assert!(text.contains("'sever'; did you mean 'dunlin server'?"), "{text}");
        let Request::Refuse(text) = request("dunlin nothing") else { panic!() };
        assert!(text.contains("'dunlin help' lists them all"), "{text}");
        for words in ["--port", "redis.conf"] {
            let Request::Refuse(text) = request(&format!("dunlin {words} 7000")) else { panic!() };
            assert_eq!(text, format!("dunlin: did you mean 'dunlin server {words}'?\n"));
        }
        assert!(matches!(request("dunlin"), Request::Refuse(_)));
        assert!(matches!(request("dunlin help nothing"), Request::Refuse(_)));
    }
}
