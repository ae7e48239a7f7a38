//! `dunlin completions SHELL`: what a shell completes after `dunlin`.
//!
//! The tools read their arguments with clap and describe themselves. `server` has the options of the
//! configuration's table; `check` is described here, and its arguments are read by the rules of
//! redis-check-rdb and redis-check-aof.

use crate::usage;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Arg, ArgAction, Command, CommandFactory as _, Parser, ValueHint};
use clap_complete::Shell;
use process::facts;
use std::ffi::OsString;

/// Prints a script that lets a shell complete commands and options.
#[derive(Parser)]
#[command(
    name = "dunlin completions",
    version = facts::VERSION,
    after_help = "Where the scripts go:
  bash   dunlin completions bash > ~/.local/share/bash-completion/completions/dunlin
  zsh    dunlin completions zsh > _dunlin, in a folder of $fpath
  fish   dunlin completions fish > ~/.config/fish/completions/dunlin.fish

The guide: docs/quickstart.md"
)]
struct Completions {
    /// The shell
    #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"])
        .try_map(|name| name.parse::<Shell>()))]
    shell: Shell,
}

/// Returns what `dunlin completions` prints for its arguments.
///
/// # Errors
/// The arguments make no sense, or ask for help. The error says it.
pub fn script(words: &[OsString]) -> Result<String, clap::Error> {
    let name = OsString::from("dunlin completions");
    let asked = Completions::try_parse_from([&name].into_iter().chain(words))?;
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, &mut command(), "dunlin", &mut script);
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Returns what `dunlin check --help` prints.
pub fn help_of_check() -> String {
    check().render_help().to_string()
}

/// Returns whether words are the name of a command, or of a subcommand.
pub fn is_command(words: &[&str]) -> bool {
    let mut found = &command();
    words.iter().all(|word| {
        found.find_subcommand(word).is_some_and(|inner| {
            found = inner;
            true
        })
    })
}

/// Returns the whole command line.
fn command() -> Command {
    let plain = |name, about| Command::new(name).about(about).disable_help_flag(true);
    Command::new("dunlin")
        .disable_help_subcommand(true)
        .subcommand(server())
        .subcommand(cli::command().name("cli"))
        .subcommand(check().name("check"))
        .subcommand(node::cluster_command().name("cluster"))
        .subcommand(node::node_command().name("node"))
        .subcommand(proxy::run::command().name("proxy"))
        .subcommand(plain("container", "The entry point of the container image"))
        .subcommand(console::command().name("console"))
        .subcommand(bench::command().name("bench"))
        .subcommand(Completions::command().name("completions"))
        .subcommand(
            plain("help", "Prints the help of a command")
                .arg(Arg::new("command").value_parser(usage::COMMANDS)),
        )
        .subcommand(plain("version", "Prints the version"))
}

/// `dunlin server`: a file, and every option of the table.
fn server() -> Command {
    let file = Arg::new("config").value_hint(ValueHint::FilePath);
    let options = config::OPTIONS.iter().map(|option| {
        Arg::new(option.name()).long(option.name()).action(ArgAction::Append).value_name("VALUE")
    });
    Command::new("server").about("Runs the data store").arg(file).args(options)
}

/// `dunlin check`.
fn check() -> Command {
    let file = || Arg::new("file").value_hint(ValueHint::FilePath);
    let aof = Command::new("aof")
        .about("Checks an append-only file")
        .arg(Arg::new("fix").long("fix").action(ArgAction::SetTrue))
        .arg(Arg::new("time").long("truncate-to-timestamp").value_name("SECONDS"))
        .arg(file());
    Command::new("dunlin check")
        .version(facts::VERSION)
        .about("Checks the files of a server")
        .override_usage(
            "dunlin check rdb FILE\n       \
             dunlin check aof [--fix | --truncate-to-timestamp SECONDS] FILE|MANIFEST",
        )
        .after_help(CHECK)
        .disable_help_subcommand(true)
        .subcommand(Command::new("rdb").about("Checks a snapshot").arg(file()))
        .subcommand(aof)
}

const CHECK: &str = "\
Reads a snapshot as a server does at start, and says what is in it and, with the place in the file,
what is wrong with it. Nothing is changed. The status is 0 if the file is sound.

Of an append-only file, or all files of a manifest, --fix cuts off an end that is not sound, after
asking; --truncate-to-timestamp cuts off what was written later than that, if the file notes times
(aof-timestamp-enabled).

The guide: docs/operations.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn each_shell_completes_options_of_each_command() {
        for shell in ["bash", "zsh", "fish"] {
            let script = script(&[shell.into()]).expect("the shell is known");
            for word in [
                "appendonly",
                "intrinsic-latency",
                "mbuf-size",
                "truncate-to-timestamp",
                "etcd-members",
                "create-db",
                "against",
                "cacert",
                "experiment",
            ] {
                assert!(script.contains(word), "{shell} completes no {word}");
            }
        }
        for refused in [&["tcsh"][..], &["powershell"], &[], &["bash", "zsh"]] {
            let words: Vec<OsString> = refused.iter().map(OsString::from).collect();
            assert!(script(&words).is_err_and(|why| why.use_stderr()), "{refused:?}");
        }
    }
}
