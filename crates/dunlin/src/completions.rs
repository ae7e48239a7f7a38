//! `dunlin completions SHELL`: what a shell completes after `dunlin`.
//!
//! The tools that read their arguments with clap describe themselves. `server` has the options of the
//! configuration's table; those of `cli` and `proxy` are read from their help.

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
        .subcommand(from_help("cli", "Sends commands to a server", &cli::help()))
        .subcommand(check())
        .subcommand(node::cluster_command().name("cluster"))
        .subcommand(node::node_command().name("node"))
        .subcommand(from_help("proxy", "One address for several servers", proxy::run::USAGE))
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

/// A command whose options are those that its help names: long ones anywhere, short ones at the beginning of a line.
fn from_help(name: &'static str, about: &'static str, help: &str) -> Command {
    let mut command = Command::new(name).about(about).disable_help_flag(true);
    let mut known = Vec::new();
    for line in help.lines() {
        let entry = line.trim_start();
        // Two blanks are between an option and what it means.
        let column = if entry.starts_with('-') { entry.split("  ").next() } else { None };
        let first = words(column.unwrap_or_default());
        for (option, value) in first.into_iter().chain(words(line)) {
            let long = option.strip_prefix("--");
            let is_short = long.is_none() && option.len() == 2 && column.is_some();
            let in_column = column.is_some_and(|column| column.contains(option));
            if known.iter().any(|other| other == option)
                || (long.is_none() && !(is_short && in_column))
            {
                continue;
            }
            known.push(option.to_owned());
            command = command.arg(option_of(option, value));
        }
    }
    command
}

/// Returns the options in a text, each with the name of its value.
fn words(text: &str) -> Vec<(&str, Option<&str>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let bare = |word: &'_ str| word.trim_end_matches([',', ';', '.', ')', ']']).len();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let option = &word[..bare(word)];
        let name = option.trim_start_matches('-');
        let is_option = option.starts_with('-')
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !is_option {
            continue;
        }
        let next = words.get(at + 1).filter(|_| option.len() == word.len());
        let value = next.map(|next| &next[..bare(next)]).filter(|next| {
            !next.is_empty() && next.chars().all(|c| c.is_ascii_uppercase() || c == '|')
        });
        found.push((option, value));
    }
    found
}

/// An option by its name with hyphens.
fn option_of(option: &str, value: Option<&str>) -> Arg {
    // clap keeps names for ever; the program ends when the script is printed.
    let name: &'static str = option.to_owned().leak();
    let arg = match name.strip_prefix("--") {
        Some(long) => Arg::new(name).long(long),
        None => Arg::new(name).short(name.chars().nth(1).unwrap_or('-')),
    };
    match value {
        None => arg.action(ArgAction::SetTrue),
        Some(value) => {
            let is_file = matches!(value, "FILE" | "PATH" | "DIR");
            let hint = if is_file { ValueHint::FilePath } else { ValueHint::Unknown };
            let value: &'static str = value.to_owned().leak();
            arg.action(ArgAction::Append).value_name(value).value_hint(hint)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn options_are_read_from_a_help() {
        let text = "Usage: x -z [OPTION ...]\n  -r COUNT, --rate FILE  so often; -1 is for ever, with --top N\n";
        let command = from_help("x", "x", text);
        let names: Vec<_> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        assert_eq!(names, ["-r", "--rate", "--top"]);
        let rate = command.get_arguments().nth(1).map(Arg::get_value_hint);
        assert_eq!(rate, Some(ValueHint::FilePath));
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
