//! `dunlin bench`: puts load on any server that speaks RESP and says honestly what came of it.
//!
//! To this crate Dunlin is one more server behind a port: it uses no code of the server's. The
//! design is in `docs/internals/bench.md`, the user's guide in `docs/bench.md`.

mod experiment;
mod generator;
mod ledger;
mod measure;
mod modes;
mod options;
mod report;
mod sentinel;
mod verify;
mod workload;

use clap::{CommandFactory, FromArgMatches, Parser};
use options::args::BenchArgs;
use std::ffi::OsString;
use std::process::ExitCode;
use structs::misspelling;

/// Returns the command line of `dunlin bench`, for completions.
pub fn command() -> clap::Command {
    BenchArgs::command()
        .subcommand(options::args::AuditArgs::command().name("audit"))
        .subcommand(options::args::ExperimentArgs::command().name("experiment"))
}

/// Runs `dunlin bench` with the arguments after these two words.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let command_line = quoted(&arguments);
    let mut words = vec![OsString::from("dunlin bench")];
    let first = arguments.first().and_then(|word| word.to_str()).unwrap_or_default();
    match first {
        "audit" => {
            words[0] = "dunlin bench audit".into();
            words.extend(arguments.into_iter().skip(1));
            finish(modes::audit::run(&options::args::AuditArgs::parse_from(words)))
        }
        "experiment" => {
            words[0] = "dunlin bench experiment".into();
            words.extend(arguments.into_iter().skip(1));
            let args = options::args::ExperimentArgs::parse_from(words);
            finish(experiment::run(&args, &command_line))
        }
        _ => {
            if let Some(mode) = misspelling::closest(first.as_bytes(), ["audit", "experiment"]) {
                // No server's command is called anything like it.
                eprintln!(
                    "dunlin bench: '{first}' is no command; did you mean 'dunlin bench {mode}'?"
                );
                return ExitCode::from(MISUSE);
            }
            words.extend(arguments);
            let matches = BenchArgs::command().get_matches_from(words);
            let result = BenchArgs::from_arg_matches(&matches)
                .map_err(|error| error.to_string())
                .and_then(|args| options::resolve::job(&args, &matches, command_line));
            match result {
                Ok(job) => finish(modes::run(&job)),
                Err(why) => {
                    eprintln!("dunlin bench: {why}\nFor more information, try '--help'.");
                    ExitCode::from(MISUSE)
                }
            }
        }
    }
}

/// The status for arguments that make no sense, as in most Unix programs.
const MISUSE: u8 = 2;

/// How a command ended that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All is well.
    Clean,
    /// There were errors, losses or wrong values.
    Unclean,
    /// Ctrl-C.
    Interrupted,
}

fn finish(result: Result<End, String>) -> ExitCode {
    match result {
        Ok(End::Clean) => ExitCode::SUCCESS,
        Ok(End::Unclean) => ExitCode::FAILURE,
        Ok(End::Interrupted) => ExitCode::from(130),
        Err(why) => {
            eprintln!("dunlin bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The command line as it could be typed again, without the password.
fn quoted(arguments: &[OsString]) -> String {
    let mut line = String::from("dunlin bench");
    let mut secret = false;
    for word in arguments {
        let word = word.to_string_lossy();
        line.push(' ');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
        if std::mem::take(&mut secret) {
            line.push_str("***");
        } else if !word.is_empty() && word.chars().all(plain) {
            line.push_str(&without_password(&word));
        } else {
            line.push('\'');
            line.push_str(&without_password(&word).replace('\'', "'\\''"));
            line.push('\'');
        }
        secret = matches!(&*word, "-a" | "--pass" | "--authenticate");
    }
    line
}

/// A report does not show a URL's password.
fn without_password(word: &str) -> String {
    match (word.split_once("://"), word.rsplit_once('@')) {
        (Some((scheme, _)), Some((login, place))) if login.len() > scheme.len() + 3 => {
            format!("{scheme}://***@{place}")
        }
        _ => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again_and_tells_no_password() {
        let words = ["-a", "secret", "-u", "redis://me:secret@h:1", "EVAL", "return 'x'", "0"];
        let line = quoted(&words.map(OsString::from));
        assert_eq!(line, r"dunlin bench -a *** -u redis://***@h:1 EVAL 'return '\''x'\''' 0");
    }
}
