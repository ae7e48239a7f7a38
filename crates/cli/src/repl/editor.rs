//! The editing of lines on a terminal: completion, hints, history.

use super::help::Catalogue;
use crate::flavor::Flavor;
use crate::session::Session;
use rustyline::completion::Completer;
use rustyline::config::{CompletionType, Config};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use std::borrow::Cow;
use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// How many lines the history keeps.
const KEPT_LINES: usize = 100;

/// The editor.
pub struct Editor {
    lines: rustyline::Editor<Known, MemHistory>,
    /// The file of the history, and what is to be in it.
    file: Option<PathBuf>,
    kept: Vec<String>,
}

impl Editor {
    /// An editor that knows these commands; reads the history and the preferences.
    pub fn new(flavor: Flavor, catalogue: Catalogue) -> rustyline::Result<Editor> {
        let config = Config::builder()
            .completion_type(CompletionType::Circular)
            .max_history_size(KEPT_LINES)?
            .history_ignore_space(false)
            .auto_add_history(false)
            .build();
        let history = MemHistory::with_config(&config);
        let mut lines = rustyline::Editor::with_history(config, history)?;
        lines.set_helper(Some(Known { catalogue, hints: Cell::new(true) }));
        let file = dotfile(flavor.history());
        let kept: Vec<String> = file
            .as_ref()
            .and_then(|path| std::fs::read(path).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
            .unwrap_or_default();
        for line in &kept {
            lines.add_history_entry(line)?;
        }
        let mut editor = Editor { lines, file, kept };
        let preferences = dotfile(flavor.preferences());
        for line in preferences.and_then(|path| std::fs::read_to_string(path).ok()).iter() {
            for line in line.lines() {
                match line.trim().to_lowercase().as_str() {
                    ":set hints" => editor.show_hints(true),
                    ":set nohints" => editor.show_hints(false),
                    _ => {}
                }
            }
        }
        Ok(editor)
    }

    /// Reads a line; nothing at the end of input and for Ctrl-C.
    pub fn read(&mut self, prompt: &str) -> Option<String> {
        self.lines.readline(prompt).ok()
    }

    /// Adds a line to the history, and to its file unless it holds a secret.
    pub fn remember(&mut self, line: &[u8], may_be_kept: bool) {
        let line = String::from_utf8_lossy(line).into_owned();
        // A line that cannot be remembered is no reason to stop.
        let _ = self.lines.add_history_entry(&line);
        if !may_be_kept || self.kept.last() == Some(&line) {
            return;
        }
        self.kept.push(line);
        let surplus = self.kept.len().saturating_sub(KEPT_LINES);
        self.kept.drain(..surplus);
        let Some(path) = &self.file else { return };
        let opened =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        if let Ok(mut file) = opened {
            let _ = file.write_all((self.kept.join("\n") + "\n").as_bytes());
        }
    }

    /// Asks about the commands again if there was no server to ask before.
    pub fn refresh(&mut self, session: &mut Session) {
        if let Some(known) = self.lines.helper_mut()
            && known.catalogue.is_empty()
            && session.link.is_some()
            && !session.in_multi
            && !session.subscribed
        {
            known.catalogue = Catalogue::load(session);
        }
    }

    /// What is known about commands.
    pub fn catalogue(&self) -> Catalogue {
        self.lines.helper().map(|known| known.catalogue.clone()).unwrap_or_default()
    }

    /// Shows hints from now on, or none.
    pub fn show_hints(&mut self, show: bool) {
        if let Some(known) = self.lines.helper() {
            known.hints.set(show);
        }
    }
}

/// The file that a variable names, or one in the home directory. `/dev/null` is none.
fn dotfile((variable, name): (&str, &str)) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(path)).filter(|path| path.as_os_str() != "/dev/null");
    }
    Some(PathBuf::from(std::env::var_os("HOME")?).join(name))
}

/// Asks for a password; what is typed is shown as stars.
pub fn password(prompt: &str) -> Option<String> {
    let mut lines =
        rustyline::Editor::<Masked, MemHistory>::with_history(Config::default(), MemHistory::new())
            .ok()?;
    lines.set_helper(Some(Masked));
    lines.readline(prompt).ok()
}

/// What completes and hints.
struct Known {
    catalogue: Catalogue,
    hints: Cell<bool>,
}

impl Helper for Known {}
impl Validator for Known {}

impl Completer for Known {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, self.catalogue.completions(&line[..at])))
    }
}

impl Hinter for Known {
    type Hint = Arguments;

    fn hint(&self, line: &str, at: usize, _: &Context<'_>) -> Option<Arguments> {
        if !self.hints.get() || at < line.len() || line.is_empty() {
            return None;
        }
        self.catalogue.hint(line).map(Arguments)
    }
}

/// A hint that is shown and cannot be taken over: it names arguments.
struct Arguments(String);

impl rustyline::hint::Hint for Arguments {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Highlighter for Known {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[0;90;49m{hint}\x1b[0m"))
    }
}

/// Shows stars instead of what is typed.
struct Masked;

impl Helper for Masked {}
impl Validator for Masked {}
impl Hinter for Masked {
    type Hint = String;
}
impl Completer for Masked {
    type Candidate = String;
}

impl Highlighter for Masked {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        Cow::Owned("*".repeat(line.chars().count()))
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        true
    }
}
