//! `dunlin cli`: commands for any server that speaks RESP, from arguments, from a pipe, or typed.
//!
//! Options, output formats and exit statuses are those of redis-cli and valkey-cli, which links of
//! these names replace. To this crate Dunlin is one more server behind a port: what it knows about
//! commands it asks the server (COMMAND DOCS).

mod flavor;
mod format;
mod interrupt;
mod modes;
mod options;
mod repl;
mod session;
mod words;

use flavor::Flavor;
use options::{Mode, Options};
use session::Session;
use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;

/// Returns the command line of `dunlin cli`.
pub fn command() -> clap::Command {
    options::command(Flavor::Dunlin)
}

/// Runs the program that was called by this name, with the arguments after it.
pub fn run(program: &str, args: Vec<OsString>) -> ExitCode {
    interrupt::end_on_closed_pipe();
    let mut options = match Options::parse(Flavor::of(program), args) {
        Ok(options) => options,
        Err(text) => return refuse(&text),
    };
    if let Mode::Print(text) = &options.mode {
        session::emit(text.as_bytes());
        return ExitCode::SUCCESS;
    }
    if options.password_visible && !options.no_warning && !options.ask_password {
        eprintln!(
            "Warning: Using a password with '-a' or '-u' option on the command line interface may \
             not be safe."
        );
    }
    if options.ask_password {
        options.password = repl::ask_password();
    }
    if options.quoted_input {
        let words: Option<Vec<_>> = options.words.iter().map(|word| words::unquote(word)).collect();
        match words {
            Some(words) => options.words = words,
            None => {
                session::emit(b"Invalid quoted string\n");
                return ExitCode::FAILURE;
            }
        }
    }
    let mode = options.mode.clone();
    if let Some(mut wanted) = options.manage.take() {
        return match with_input(&options, &mut wanted.words) {
            Ok(()) => modes::cluster::run(&options, &wanted),
            Err(text) => refuse(&text),
        };
    }
    let session = Session::new(options);
    match mode {
        Mode::Commands if session.options.words.is_empty() => repl::run(session),
        Mode::Commands => one_command(session),
        Mode::Eval(path) => evaluate(session, &path),
        mode => modes::run(session, mode),
    }
}

fn refuse(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::FAILURE
}

/// Sends the command of the arguments.
fn one_command(mut session: Session) -> ExitCode {
    let mut words = session.options.words.clone();
    if let Err(text) = with_input(&session.options, &mut words) {
        return refuse(&text);
    }
    issue(&mut session, &words)
}

/// Puts standard input where `-x` or `-X` wants it.
fn with_input(options: &Options, words: &mut Vec<Vec<u8>>) -> Result<(), String> {
    if !options.last_from_input && options.tag_from_input.is_none() {
        return Ok(());
    }
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).map_err(|error| format!("Error: {error}"))?;
    match &options.tag_from_input {
        None => words.push(input),
        Some(tag) => {
            let word = words.iter_mut().find(|word| *word == tag);
            *word.ok_or("Using -X option but stdin tag not match.")? = input;
        }
    }
    Ok(())
}

fn issue(session: &mut Session, words: &[Vec<u8>]) -> ExitCode {
    let name = session::lower(words, 0);
    if name == "help" || name == "?" {
        session.connect();
        repl::help::print(session, &words[1..]);
        return ExitCode::SUCCESS;
    }
    let done = session.command(words, session.options.repeat);
    session.messages_forever();
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `--eval FILE KEY … , ARGUMENT …`
fn evaluate(mut session: Session, path: &std::path::Path) -> ExitCode {
    let script = match std::fs::read(path) {
        Ok(script) => script,
        Err(error) => {
            let why = session::describe(&error);
            return refuse(&format!("Can't open file '{}': {why}", path.display()));
        }
    };
    let mut given = session.options.words.split(|word| word == b",");
    let keys = given.next().unwrap_or_default();
    let mut words = vec![b"EVAL".to_vec(), script, keys.len().to_string().into_bytes()];
    words.extend_from_slice(keys);
    let comma = session.options.words.len().min(keys.len() + 1);
    words.extend_from_slice(&session.options.words[comma..]);
    issue(&mut session, &words)
}
