//! `--cluster`: makes, shows, mends and changes a cluster, with the commands and the output of
//! redis-cli and valkey-cli.
//!
//! | file | what it has |
//! |---|---|
//! | `node.rs` | a node, its connection and what it says about itself |
//! | `nodes.rs` | all nodes of a cluster |
//! | `create.rs`, `change.rs`, `check.rs`, `fix/` | a command or some each |
//! | `plan.rs`, `rebalance.rs`, `reshard.rs` | which slots go where |
//! | `moves.rs`, `keys.rs` | the moving, by the servers' jobs or key by key |
//! | `import.rs`, `backup.rs` | data from and to elsewhere |
//!
//! An error is the text for the user; an empty one was printed where it arose.

mod backup;
mod change;
mod check;
mod create;
mod fix;
mod import;
mod keys;
mod moves;
mod node;
mod nodes;
mod plan;
mod rebalance;
mod reshard;

use crate::options::{ClusterOptions, Options};
use crate::session::emit;
use node::Node;
use nodes::Cluster;
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

/// How many slots a cluster has.
const SLOTS: usize = structs::crc16::SLOTS as usize;

/// How many arguments a command has.
enum Arity {
    Exactly(usize),
    AtLeast(usize),
}

const COMMANDS: [(&str, Arity); 13] = [
    ("create", Arity::AtLeast(1)),
    ("check", Arity::AtLeast(1)),
    ("info", Arity::AtLeast(1)),
    ("fix", Arity::AtLeast(1)),
    ("reshard", Arity::AtLeast(1)),
    ("rebalance", Arity::AtLeast(1)),
    ("add-node", Arity::Exactly(2)),
    ("del-node", Arity::Exactly(2)),
    ("call", Arity::AtLeast(2)),
    ("set-timeout", Arity::Exactly(2)),
    ("import", Arity::Exactly(1)),
    ("backup", Arity::Exactly(2)),
    ("help", Arity::Exactly(0)),
];

/// Runs the command of the options.
pub fn run(options: &Options, wanted: &ClusterOptions) -> ExitCode {
    let words: Vec<String> =
        wanted.words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let Some((command, arguments)) = words.split_first() else {
        eprintln!("--cluster wants a command:\n{HELP}");
        return ExitCode::FAILURE;
    };
    let Some((_, arity)) = COMMANDS.iter().find(|(name, _)| name == command) else {
        eprintln!("Unknown --cluster subcommand");
        return ExitCode::FAILURE;
    };
    let fits = match *arity {
        Arity::Exactly(count) => arguments.len() == count,
        Arity::AtLeast(count) => arguments.len() >= count,
    };
    if !fits {
        eprintln!("[ERR] Wrong number of arguments for specified --cluster sub command");
        return ExitCode::FAILURE;
    }
    match dispatch(options, wanted, command, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            if !text.is_empty() {
                bad(&text);
            }
            ExitCode::FAILURE
        }
    }
}

fn dispatch(
    options: &Options,
    wanted: &ClusterOptions,
    command: &str,
    arguments: &[String],
) -> Result<(), String> {
    match command {
        "create" => create::run(options, wanted, arguments),
        "check" => check::command(&mut cluster(options, arguments)?, wanted),
        "info" => check::info(&mut cluster(options, arguments)?),
        "fix" => fix::command(&mut cluster(options, arguments)?, wanted),
        "reshard" => reshard::run(&mut cluster(options, arguments)?, wanted),
        "rebalance" => rebalance::run(&mut cluster(options, arguments)?, wanted),
        "add-node" => change::add_node(options, wanted, &arguments[0], &arguments[1]),
        "del-node" => change::del_node(options, &arguments[0], &arguments[1]),
        "call" => change::call(options, wanted),
        "set-timeout" => change::set_timeout(options, &arguments[0], &arguments[1]),
        "import" => import::run(options, wanted, &arguments[0]),
        "backup" => backup::run(options, wanted, &arguments[0], &arguments[1]),
        _ => {
            emit(HELP.as_bytes());
            Ok(())
        }
    }
}

const HELP: &str = "\
Cluster Manager Commands:
  create         host1:port1 ... hostN:portN
                 --cluster-replicas <arg>
  check          <host:port> or <host> <port> - separated by either colon or space
                 --cluster-search-multiple-owners
  info           <host:port> or <host> <port> - separated by either colon or space
  fix            <host:port> or <host> <port> - separated by either colon or space
                 --cluster-search-multiple-owners
                 --cluster-fix-with-unreachable-primaries
  reshard        <host:port> or <host> <port> - separated by either colon or space
                 --cluster-from <arg>
                 --cluster-to <arg>
                 --cluster-slots <arg>
                 --cluster-yes
                 --cluster-timeout <arg>
                 --cluster-pipeline <arg>
                 --cluster-replace
                 --cluster-use-atomic-slot-migration
  rebalance      <host:port> or <host> <port> - separated by either colon or space
                 --cluster-weight <node1=w1...nodeN=wN>
                 --cluster-use-empty-primaries
                 --cluster-timeout <arg>
                 --cluster-simulate
                 --cluster-pipeline <arg>
                 --cluster-threshold <arg>
                 --cluster-replace
                 --cluster-use-atomic-slot-migration
  add-node       new_host:new_port existing_host:existing_port
                 --cluster-replica
                 --cluster-primary-id <arg>
  del-node       host:port node_id
  call           host:port command arg arg .. arg
                 --cluster-only-primaries
                 --cluster-only-replicas
  set-timeout    host:port milliseconds
  import         host:port
                 --cluster-from <arg>
                 --cluster-from-user <arg>
                 --cluster-from-pass <arg>
                 --cluster-from-askpass
                 --cluster-copy
                 --cluster-replace
  backup         host:port backup_directory
  help           

For check, fix, reshard, del-node, set-timeout, info, rebalance, call, import, backup you can specify the host and port of any working node in the cluster.

Cluster Manager Options:
  --cluster-yes  Automatic yes to cluster commands prompts

Databases over several machines, with nodes that start the servers: dunlin cluster help

";

/// Says on standard error that the arguments are wrong. Returns the error for that.
fn misused(text: &str) -> String {
    eprintln!("{text}");
    String::new()
}

/// Prints a line.
fn say(text: &str) {
    emit(format!("{text}\n").as_bytes());
}

/// Prints a step of the work.
fn step(text: &str) {
    colored("29;1", text);
}

/// Prints a success.
fn good(text: &str) {
    colored("32;1", text);
}

/// Prints something to look at.
fn warn(text: &str) {
    colored("33;1", text);
}

/// Prints an error.
fn bad(text: &str) {
    colored("31;1", text);
}

fn colored(color: &str, text: &str) {
    let shows_colors = std::io::stdout().is_terminal()
        && std::env::var("TERM").is_ok_and(|terminal| terminal.contains("xterm"));
    if shows_colors { say(&format!("\x1b[{color}m{text}\x1b[0m")) } else { say(text) }
}

/// The cluster of the node that the arguments name: `HOST:PORT` or `HOST PORT`.
fn cluster(options: &Options, arguments: &[String]) -> Result<Cluster, String> {
    let (host, port) = match arguments {
        [address] => address_of(address)?,
        [host, port, ..] => address_of(&format!("{host}:{port}"))?,
        [] => return Err(misused(INVALID_ADDRESS)),
    };
    Cluster::load(Node::connect(options, &host, port)?)
}

const INVALID_ADDRESS: &str = "[ERR] Invalid arguments: you need to pass either a valid address \
                               (ie. 120.0.0.1:7000) or space separated IP and port (ie. 120.0.0.1 \
                               7000)";

/// Host and port of `HOST:PORT`, `[HOST]:PORT` or `HOST:PORT@BUS`.
fn address_of(text: &str) -> Result<(String, u16), String> {
    parse_address(text).ok_or_else(|| misused(INVALID_ADDRESS))
}

fn parse_address(text: &str) -> Option<(String, u16)> {
    let plain = text.split('@').next().unwrap_or(text);
    let (host, port) = plain.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Asks and reads a line; nothing at the end of the input.
fn ask(question: &str) -> Option<String> {
    emit(question.as_bytes());
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim().to_owned())
}

/// Asks whether it may be done.
fn confirm(question: &str) -> bool {
    ask(&format!("{question} (type 'yes' to accept): ")).as_deref() == Some("yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!(parse_address("a.b:7000"), Some(("a.b".to_owned(), 7000)));
        assert_eq!(parse_address("[::1]:7000"), Some(("::1".to_owned(), 7000)));
        assert_eq!(parse_address("::1:7000@17000"), Some(("::1".to_owned(), 7000)));
        for wrong in ["a.b", "a.b:", ":7000", "a.b:0", "a.b:70000"] {
            assert_eq!(parse_address(wrong), None, "{wrong}");
        }
    }
}
