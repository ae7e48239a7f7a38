//! Commands line by line: typed on a terminal, with completion, hints and history, or from a pipe.

mod editor;
pub mod help;
mod secret;

use crate::interrupt;
use crate::session::{Session, emit, lower};
use crate::words::split;
use editor::Editor;
use help::Catalogue;
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs until the end of input, `quit` or `exit`.
pub fn run(mut session: Session) -> ExitCode {
    session.interactive = true;
    interrupt::install();
    // Without a server there is a prompt all the same; each command tries again to connect.
    session.connect();
    if std::io::stdin().is_terminal() { typed(&mut session) } else { piped(&mut session) }
}

/// Asks for a password without showing it. Returns none at the end of input.
pub fn ask_password() -> Option<String> {
    editor::password("Please input password: ")
}

enum Next {
    Continue,
    Quit,
}

fn typed(session: &mut Session) -> ExitCode {
    let catalogue = Catalogue::load(session);
    let mut editor = match Editor::new(session.options.flavor, catalogue) {
        Ok(editor) => editor,
        Err(error) => {
            eprintln!("Error: {error}");
            return ExitCode::FAILURE;
        }
    };
    loop {
        let Some(line) = editor.read(&session.prompt()) else {
            // The end of input ends the subscriptions first.
            if session.subscribed && session.connect() {
                continue;
            }
            return ExitCode::SUCCESS;
        };
        if line.is_empty() {
            continue;
        }
        if let Next::Quit = line_of_input(session, line.as_bytes(), Some(&mut editor)) {
            return ExitCode::SUCCESS;
        }
        editor.refresh(session);
    }
}

fn piped(session: &mut Session) -> ExitCode {
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        match input.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return ExitCode::SUCCESS,
            Ok(_) => {}
        }
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Next::Quit = line_of_input(session, line, None) {
            return ExitCode::SUCCESS;
        }
    }
}

fn line_of_input(session: &mut Session, line: &[u8], mut editor: Option<&mut Editor>) -> Next {
    let Some(words) = split(line) else {
        emit(b"Invalid argument(s)\n");
        if let Some(editor) = &mut editor {
            editor.remember(line, secret::may_be_kept(&[]));
        }
        return Next::Continue;
    };
    if words.is_empty() {
        return Next::Continue;
    }
    // `5 incr x` sends the command five times.
    let number = String::from_utf8_lossy(&words[0]).parse::<i64>();
    let (repeat, words) = match number {
        Ok(count) if words.len() > 1 && count > 0 => (count, &words[1..]),
        Ok(_) if words.len() > 1 => {
            let program = session.options.flavor.program();
            emit(format!("Invalid {program} repeat command option value.\n").as_bytes());
            return Next::Continue;
        }
        _ => (1, &words[..]),
    };
    if let Some(editor) = &mut editor {
        editor.remember(line, secret::may_be_kept(words));
    }
    let name = lower(words, 0);
    match (name.as_str(), words.len()) {
        ("quit" | "exit", _) => return Next::Quit,
        ("help" | "?", _) => match &editor {
            Some(editor) => editor.catalogue().print(&session.options, &words[1..]),
            None => help::print(session, &words[1..]),
        },
        ("connect", 3) => {
            let port = lower(words, 2).parse().unwrap_or_default();
            session.place = client::Address::tcp(lower(words, 1), port);
            session.connect();
        }
        ("clear", 1) => emit(b"\x1b[H\x1b[2J"),
        _ if name.starts_with(':') => prefer(session, &name, words, editor),
        _ => issue(session, words, repeat),
    }
    if session.subscribed {
        session.messages();
    }
    Next::Continue
}

/// How long a command takes before its time is printed.
const SLOW: Duration = Duration::from_millis(500);

fn issue(session: &mut Session, words: &[Vec<u8>], repeat: i64) {
    let start = Instant::now();
    session.command(words, repeat);
    let took = start.elapsed();
    if took >= SLOW && session.options.style.format == crate::format::Format::People {
        emit(format!("({:.2}s)\n", took.as_secs_f64()).as_bytes());
    }
}

/// `:set hints`, `:set nohints`, `:get pubsub`.
fn prefer(session: &Session, name: &str, words: &[Vec<u8>], editor: Option<&mut Editor>) {
    let program = session.options.flavor.program();
    let text = match (name, lower(words, 1).as_str()) {
        (":set", value @ ("hints" | "nohints")) => {
            if let Some(editor) = editor {
                editor.show_hints(value == "hints");
            }
            return;
        }
        (":get", "pubsub") => format!("{}\n", u8::from(session.subscribed)),
        (":set", other) if words.len() > 1 => format!("unknown {program} preference '{other}'\n"),
        (":get", other) if words.len() > 1 => format!("unknown {program} get option '{other}'\n"),
        _ => format!("unknown {program} internal command '{name}'\n"),
    };
    emit(text.as_bytes());
}
