//! Reading a configuration: a file, standard input, the command line, and what they include.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::args::Arguments;
use crate::include::expand_pattern;
use crate::origin::{LineSource, Origin};
use crate::spec::{Effect, Kind, Spec};
use crate::store::{Config, default_of};
use crate::suggest;
use crate::table::{DEPRECATED, OPTIONS, index_of, position};
use crate::value::{SavePoint, Value, parse};
use structs::words::split_words;

/// How deep files may include each other; a file that includes itself is an error, not a loop.
const MAX_INCLUDE_DEPTH: usize = 64;

/// A directive that is not an option: someone else knows what to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The words of the line after the directive's name.
    pub words: Vec<Vec<u8>>,
    /// Where it stands.
    pub origin: Origin,
}

impl Directive {
    /// The error that stops the start when the directive turns out to be wrong.
    pub fn error(&self, reason: impl Into<String>) -> LoadError {
        LoadError::Line { origin: self.origin.clone(), reason: reason.into(), hint: None }
    }
}

/// A configuration that was read without an error.
#[derive(Debug)]
pub struct Loaded {
    /// The values.
    pub config: Arc<Config>,
    /// The absolute path of the configuration file, for `CONFIG REWRITE`.
    pub file: Option<PathBuf>,
    /// `rename-command` lines: the command and its new name, which may be empty.
    pub renames: Vec<Directive>,
    /// `user` lines: the name and the rules.
    pub users: Vec<Directive>,
    /// `loadmodule` lines, which have no effect.
    pub modules: Vec<Directive>,
    /// The directives that were given but have no effect, each once, in order.
    pub without_effect: Vec<&'static str>,
    /// `maxmemory` was given, though it may be 0.
    pub has_maxmemory: bool,
}

/// Why the configuration cannot be used. The server prints it and exits with status 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// A line is wrong.
    Line {
        /// The line.
        origin: Origin,
        /// What is wrong with it.
        reason: String,
        /// What was probably meant.
        hint: Option<String>,
    },
    /// The configuration as a whole is wrong.
    Whole {
        /// What is wrong with it.
        reason: String,
    },
    /// A file cannot be read. Redis logs this rather than to print it in the form of the others.
    Open {
        /// The file.
        path: PathBuf,
        /// The reason the system gives.
        reason: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title =
            concat!("\n*** FATAL CONFIG FILE ERROR (Dunlin ", env!("CARGO_PKG_VERSION"), ") ***\n");
        match self {
            LoadError::Line { origin, reason, hint } => {
                writeln!(f, "{title}{origin}\n{reason}")?;
                hint.iter().try_for_each(|hint| writeln!(f, "{hint}"))
            }
            LoadError::Whole { reason } => writeln!(f, "{title}{reason}"),
            LoadError::Open { path, reason } => {
                write!(f, "Fatal error, can't open config file '{}': {reason}", path.display())?;
                port_meant(path)
                    .map_or(Ok(()), |port| write!(f, "\nA port is an option: --port {port}"))
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// The port that was given where the path of the configuration file is expected.
fn port_meant(path: &Path) -> Option<u16> {
    path.file_name()?.to_str()?.parse().ok()
}

/// Reads the configuration the command line asks for: the file first, then `stdin` if it is
/// asked for, then the options.
///
/// Nothing but files is touched: the working directory of the process stays what it is (see
/// [`Config::dir`]), though the log file is created if it does not exist, to find out now
/// whether it can be.
pub fn load(arguments: &Arguments, stdin: &mut dyn Read) -> Result<Loaded, LoadError> {
    let dir = working_directory()?;
    let file = arguments.file.as_ref().map(|file| dir.join(file));
    let mut loader = Loader::new(dir);
    if let Some(path) = &file {
        loader.read(&LineSource::File(path.clone()), &read_file(path)?)?;
    }
    if arguments.reads_stdin {
        let mut text = Vec::new();
        stdin.read_to_end(&mut text).map_err(|error| LoadError::Open {
            path: PathBuf::from("-"),
            reason: system_reason(&error),
        })?;
        loader.read(&LineSource::StandardInput, &text)?;
    }
    loader.read(&LineSource::CommandLine, &arguments.options)?;
    loader.finish(file)
}

/// Reads a configuration from text alone, for tests and tools.
pub fn load_text(text: &[u8]) -> Result<Loaded, LoadError> {
    let mut loader = Loader::new(working_directory()?);
    loader.read(&LineSource::Text, text)?;
    loader.finish(None)
}

fn working_directory() -> Result<PathBuf, LoadError> {
    std::env::current_dir().map_err(|error| LoadError::Whole {
        reason: format!("Can't find the working directory: {}", system_reason(&error)),
    })
}

struct Loader {
    config: Arc<Config>,
    /// Where relative paths start: the working directory, or `dir` once that was read.
    dir: PathBuf,
    include_depth: usize,
    /// The points of all `save` lines so far; the first line replaces the default.
    save_points: Option<Vec<SavePoint>>,
    /// The next `save` line starts over: it stands behind an `include` of its own file.
    is_behind_include: bool,
    renames: Vec<Directive>,
    users: Vec<Directive>,
    modules: Vec<Directive>,
    has_module_options: bool,
    without_effect: Vec<&'static str>,
    has_maxmemory: bool,
}

impl Loader {
    fn new(dir: PathBuf) -> Loader {
        Loader {
            config: Config::new(),
            dir,
            include_depth: 0,
            save_points: None,
            is_behind_include: false,
            renames: Vec::new(),
            users: Vec::new(),
            modules: Vec::new(),
            has_module_options: false,
            without_effect: Vec::new(),
            has_maxmemory: false,
        }
    }

    fn read(&mut self, place: &LineSource, text: &[u8]) -> Result<(), LoadError> {
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = trim(line);
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let origin = Origin { place: place.clone(), number: at + 1, line: line.to_vec() };
            let Some(mut words) = split_words(line) else {
                let reason = "Unbalanced quotes in configuration line".to_string();
                return Err(LoadError::Line { origin, reason, hint: None });
            };
            if words.is_empty() {
                continue;
            }
            let name = words.remove(0).to_ascii_lowercase();
            let at_line = |reason| LoadError::Line { origin: origin.clone(), reason, hint: None };
            match position(&name) {
                Some(at) => self.set_option(at, words).map_err(at_line)?,
                None => self.directive(&name, words, origin)?,
            }
        }
        Ok(())
    }

    fn set_option(&mut self, at: usize, mut words: Vec<Vec<u8>>) -> Result<(), String> {
        let spec = &OPTIONS[at];
        if spec.takes_many_words()
            && let [only] = words.as_slice()
            && !only.is_empty()
        {
            // `save "60 1"` is what `save 60 1` is. Words that do not split are none at all.
            words = split_words(only).unwrap_or_default();
        }
        let value = parse(spec, &words, &self.config.load(at))?;
        let value = self.config.resolve_in(&self.dir, spec, value)?;
        let value = match value {
            Value::Save(points) => Value::Save(self.add_save_points(&words, &points).into()),
            other => other,
        };
        if let (Kind::Directory, Value::Text(dir)) = (spec.kind, &value) {
            self.dir = dir.as_path().to_path_buf();
        }
        self.config.store(at, value);
        self.has_maxmemory |= spec.name() == "maxmemory";
        self.note_effect(spec.name(), spec.effect());
        Ok(())
    }

    /// Lines of `save` add up; `save ""` starts over, and so does the first one behind an
    /// `include`, since what a file says is to win over what it includes before.
    fn add_save_points(&mut self, words: &[Vec<u8>], points: &[SavePoint]) -> Vec<SavePoint> {
        let starts_over = std::mem::take(&mut self.is_behind_include) || words.len() == 1;
        let all = self.save_points.get_or_insert_default();
        if starts_over {
            all.clear();
        }
        all.extend_from_slice(points);
        all.clone()
    }

    fn note_effect(&mut self, name: &'static str, effect: Effect) {
        if effect == Effect::NotYet && !self.without_effect.contains(&name) {
            self.without_effect.push(name);
        }
    }

    /// Handles a line that does not set an option.
    fn directive(
        &mut self,
        name: &[u8],
        words: Vec<Vec<u8>>,
        origin: Origin,
    ) -> Result<(), LoadError> {
        let count = words.len();
        let directive = Directive { words, origin };
        match name {
            b"include" if count == 1 => return self.include(&directive),
            b"rename-command" if count == 2 => self.renames.push(directive),
            b"user" if count >= 1 => self.users.push(directive),
            b"loadmodule" if count >= 1 => {
                self.modules.push(directive);
                self.note_effect("loadmodule", Effect::NotYet);
            }
            b"sentinel" if count == 0 => {}
            b"sentinel" => {
                return Err(directive.error("sentinel directive while not in sentinel mode"));
            }
            _ if count == 1 && is_deprecated(name) => {}
            _ if name.contains(&b'.') && count == 0 => {
                return Err(directive.error("Module config specified without value"));
            }
            _ if name.contains(&b'.') => self.has_module_options = true,
            _ if count > 0 && !self.modules.is_empty() && is_of_bundled_module(name) => {}
            _ => {
                return Err(LoadError::Line {
                    origin: directive.origin,
                    reason: "Bad directive or wrong number of arguments".into(),
                    hint: suggest::closest(name).map(|known| format!("Did you mean '{known}'?")),
                });
            }
        }
        Ok(())
    }

    fn include(&mut self, directive: &Directive) -> Result<(), LoadError> {
        if self.include_depth == MAX_INCLUDE_DEPTH {
            return Err(directive.error("Files include each other too deeply"));
        }
        let pattern = &directive.words[0];
        let mut texts = Vec::new();
        if pattern.iter().any(|byte| b"*?[".contains(byte)) {
            for path in expand_pattern(&self.dir, pattern) {
                let text = read_file(&path)?;
                texts.push((path, text));
            }
        } else {
            let given = Path::new(std::ffi::OsStr::from_bytes(pattern));
            let unreadable = |error: io::Error| LoadError::Open {
                path: given.to_path_buf(),
                reason: system_reason(&error),
            };
            let path = self.dir.join(given);
            let text = fs::read(&path).map_err(unreadable)?;
            texts.push((path, text));
        }
        self.include_depth += 1;
        self.is_behind_include = false;
        for (path, text) in texts {
            self.read(&LineSource::File(path), &text)?;
        }
        self.is_behind_include = true;
        self.include_depth -= 1;
        Ok(())
    }

    /// Checks what no line alone can be blamed for.
    fn finish(self, file: Option<PathBuf>) -> Result<Loaded, LoadError> {
        let config = self.config;
        let whole = |reason: String| Err(LoadError::Whole { reason });
        let logfile = config.logfile();
        if !logfile.is_empty() {
            let path = self.dir.join(logfile.as_path());
            if let Err(error) = fs::OpenOptions::new().append(true).create(true).open(&path) {
                let reason = system_reason(&error);
                return whole(format!("Can't open the log file: {reason} ({})", path.display()));
            }
        }
        if config.cluster_enabled() && config.replicaof().is_some() {
            return whole("replicaof directive not allowed in cluster mode".into());
        }
        if self.has_module_options && self.modules.is_empty() {
            return whole(
                "Module Configuration detected without loadmodule directive or no ApplyConfig \
                 call: aborting"
                    .into(),
            );
        }
        const DIR: usize = index_of("dir");
        if config.load(DIR) == default_of(DIR) {
            config.store(DIR, Value::Text(self.dir.as_os_str().as_bytes().into()));
        }
        Ok(Loaded {
            config,
            file,
            renames: self.renames,
            users: self.users,
            modules: self.modules,
            without_effect: self.without_effect,
            has_maxmemory: self.has_maxmemory,
        })
    }
}

impl Config {
    /// What is stored for a value a user asked for, with `dir` as the working directory so far.
    pub(crate) fn resolve(&self, spec: &Spec, value: Value) -> Result<Value, String> {
        self.resolve_in(&self.dir(), spec, value)
    }

    fn resolve_in(&self, dir: &Path, spec: &Spec, value: Value) -> Result<Value, String> {
        const HZ: usize = index_of("hz");
        match (spec.kind, value) {
            (Kind::Directory, Value::Text(given)) => {
                let path =
                    enter(&dir.join(given.as_path())).map_err(|error| system_reason(&error))?;
                Ok(Value::Text(path.as_os_str().as_bytes().into()))
            }
            // Out of range is not an error: `hz` is a hint.
            (_, Value::Number(hz)) if spec.name() == OPTIONS[HZ].name() => {
                Ok(Value::Number(hz.clamp(1, 500)))
            }
            (_, value) => Ok(value),
        }
    }
}

/// The real path of a directory, if the process could make it its working directory.
fn enter(path: &Path) -> io::Result<PathBuf> {
    let real = fs::canonicalize(path)?;
    if fs::metadata(&real)?.is_dir() {
        Ok(real)
    } else {
        Err(io::Error::from(io::ErrorKind::NotADirectory))
    }
}

/// Whether an option is of a module that comes with Redis 8, whose options need no dot.
fn is_of_bundled_module(name: &[u8]) -> bool {
    [&b"search-"[..], b"ts-", b"bf-", b"cf-"].iter().any(|prefix| name.starts_with(prefix))
}

fn is_deprecated(name: &[u8]) -> bool {
    DEPRECATED.iter().any(|known| known.as_bytes() == name)
}

fn trim(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| b" \t\r\n".contains(byte);
    let start = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
    let end = line.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &line[start..end]
}

fn read_file(path: &Path) -> Result<Vec<u8>, LoadError> {
    fs::read(path).map_err(|error| LoadError::Open {
        path: path.to_path_buf(),
        reason: system_reason(&error),
    })
}

/// The system's text for an error, as C's `strerror` gives it.
pub(crate) fn system_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_string(),
        None if error.kind() == io::ErrorKind::NotADirectory => "Not a directory".into(),
        None => text,
    }
}
