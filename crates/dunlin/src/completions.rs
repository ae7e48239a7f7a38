//! `dunlin completions SHELL`: what a shell completes after `dunlin`.
//!
//! The tools read their arguments with clap and describe themselves. `server` has the options of the
//! configuration's table.

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;

/// Returns the script for a shell, or `None` if there is none.
pub fn script(shell: &str) -> Option<String> {
    let shell: Shell = shell.parse().ok().filter(|shell| {
        // Their scripts are made by the same code, but were not tried.
        matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish)
    })?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "dunlin", &mut script);
    String::from_utf8(script).ok()
}

/// Returns the whole command line.
fn command() -> Command {
    let plain = |name, about| Command::new(name).about(about).disable_help_flag(true);
    let topics = ["server", "cli", "check", "cluster", "node", "proxy", "console", "bench"];
    Command::new("dunlin")
        .disable_help_subcommand(true)
        .subcommand(server())
        .subcommand(cli::command().name("cli"))
        .subcommand(check())
        .subcommand(node::cluster_command().name("cluster"))
        .subcommand(node::node_command().name("node"))
        .subcommand(proxy::run::command().name("proxy"))
        .subcommand(plain("container", "The entry point of the container image"))
        .subcommand(console::command().name("console"))
        .subcommand(bench::command().name("bench"))
        .subcommand(
            plain("completions", "Prints a script for a shell")
                .arg(Arg::new("shell").value_parser(["bash", "zsh", "fish"])),
        )
        .subcommand(
            plain("help", "Prints the help of a command")
                .arg(Arg::new("command").value_parser(topics)),
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
    Command::new("check")
        .about("Checks the files of a server")
        .disable_help_subcommand(true)
        .subcommand(Command::new("rdb").about("Checks a snapshot").arg(file()))
        .subcommand(aof)
}

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
            let script = script(shell).expect("the shell is known");
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
        assert_eq!(script("tcsh"), None);
        assert_eq!(script("powershell"), None);
    }
}
