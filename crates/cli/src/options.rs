//! The command line, read as redis-cli reads it: options come first, the rest is the command.

use crate::flavor::Flavor;
use crate::format::{Format, Style};
use crate::words::unquote;
use client::tls::TlsOptions;
use client::{Address, Family};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

mod cluster;
mod command;
#[cfg(test)]
mod spellings;
mod uri;

pub use cluster::ClusterOptions;
pub use command::command;

use command::Line;

/// The protocol that a session begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// What the server begins with; `-2`.
    Two,
    /// `-3`
    Three,
    /// RESP3 if the server knows it: what JSON is best made from.
    PreferThree,
}

/// What to do beside sending commands.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Send the command, or ask for commands.
    Commands,
    /// `--eval FILE`
    Eval(PathBuf),
    /// `--latency`
    Latency,
    /// `--latency-history`
    LatencyHistory,
    /// `--latency-dist`
    LatencyDistribution,
    /// `--intrinsic-latency SECONDS`
    IntrinsicLatency(u64),
    /// `--lru-test KEYS`
    LruTest(u64),
    /// `--stat`
    Stat,
    /// `--scan`
    Scan,
    /// `--bigkeys`
    BigKeys,
    /// `--memkeys`, with the number of elements to sample.
    MemKeys(Option<u64>),
    /// `--keystats`, likewise.
    KeyStats(Option<u64>),
    /// `--hotkeys`, with the number of keys.
    HotKeys(usize),
    /// `--pipe`
    Pipe,
    /// `--rdb FILE`
    Rdb(PathBuf),
    /// `--functions-rdb FILE`
    FunctionsRdb(PathBuf),
    /// `--replica`
    Replica,
    /// Print this and end with success.
    Print(String),
}

/// The command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name that the program was called by.
    pub flavor: Flavor,
    /// Where the server is.
    pub place: Address,
    /// For connecting; no limit if nothing is said.
    pub timeout: Option<Duration>,
    /// For AUTH.
    pub user: Option<String>,
    /// For AUTH.
    pub password: Option<String>,
    /// Whether the password came by `-a` or `-u`, where other users can see it.
    pub password_visible: bool,
    /// Ask for the password.
    pub ask_password: bool,
    /// No warning about a visible password.
    pub no_warning: bool,
    /// For SELECT.
    pub database: i64,
    /// The protocol.
    pub protocol: Protocol,
    /// How often to send the command; negative is forever.
    pub repeat: i64,
    /// The pause between, if it was set.
    pub interval: Option<Duration>,
    /// Append standard input as the last argument.
    pub last_from_input: bool,
    /// Replace this argument by standard input.
    pub tag_from_input: Option<Vec<u8>>,
    /// Words are quoted strings.
    pub quoted_input: bool,
    /// End with status 1 when the server answers with an error.
    pub exit_status: bool,
    /// Follow redirections.
    pub cluster: bool,
    /// Which addresses come first.
    pub family: Family,
    /// Connections use TLS.
    pub is_tls: bool,
    /// How.
    pub tls: TlsOptions,
    /// How to write replies.
    pub style: Style,
    /// Whether pushes are written.
    pub show_pushes: bool,
    /// What to do.
    pub mode: Mode,
    /// Of the modes that scan.
    pub pattern: Option<Vec<u8>>,
    /// Of the modes that scan.
    pub count: u64,
    /// Where to begin to scan.
    pub cursor: u64,
    /// How many keys to list.
    pub top: usize,
    /// How many seconds `--pipe` waits for replies at the end; 0 is forever.
    pub pipe_timeout: u64,
    /// Say more.
    pub verbose: bool,
    /// What `--cluster` and its options say.
    pub manage: Option<ClusterOptions>,
    /// The command.
    pub words: Vec<Vec<u8>>,
}

/// How many keys `--hotkeys` lists.
const HOT_KEYS: usize = 16;

impl Options {
    /// What holds without arguments.
    pub fn new(flavor: Flavor) -> Options {
        let terminal = std::io::stdout().is_terminal() || std::env::var_os("FAKETTY").is_some();
        Options {
            flavor,
            place: Address::tcp("127.0.0.1", 6379),
            timeout: None,
            user: None,
            password: None,
            password_visible: false,
            ask_password: false,
            no_warning: false,
            database: 0,
            protocol: Protocol::Two,
            repeat: 1,
            interval: None,
            last_from_input: false,
            tag_from_input: None,
            quoted_input: false,
            exit_status: false,
            cluster: false,
            family: Family::Any,
            is_tls: false,
            tls: TlsOptions::default(),
            style: Style {
                format: if terminal { Format::People } else { Format::Raw },
                between_elements: b"\n".to_vec(),
                after_reply: b"\n".to_vec(),
            },
            show_pushes: terminal,
            mode: Mode::Commands,
            pattern: None,
            count: 10,
            cursor: 0,
            top: 10,
            pipe_timeout: 30,
            verbose: false,
            manage: None,
            words: Vec::new(),
        }
    }

    /// Reads the arguments. The error is for the user.
    pub fn parse(flavor: Flavor, args: Vec<std::ffi::OsString>) -> Result<Options, String> {
        let mut options = Options::new(flavor);
        let (said, words) = match command::parse(flavor, args)? {
            Line::Said(said, words) => (said, words),
            Line::Print(text) => {
                options.mode = Mode::Print(text);
                return Ok(options);
            }
        };
        for (name, values) in said {
            match values.first() {
                _ if name.starts_with("--cluster") => {
                    options.manage.get_or_insert_default().set(&name, &values)?;
                }
                Some(value) => options.valued(&name, value)?,
                None => options.switch(&name)?,
            }
        }
        options.words = words;
        options.finish()?;
        Ok(options)
    }

    /// Does what an option without a value says.
    fn switch(&mut self, name: &str) -> Result<(), String> {
        match name {
            "-x" => self.last_from_input = true,
            "--no-auth-warning" => self.no_warning = true,
            "--askpass" => self.ask_password = true,
            "--raw" => self.style.format = Format::Raw,
            "--no-raw" => self.style.format = Format::People,
            "--quoted-input" => self.quoted_input = true,
            "--csv" => self.style.format = Format::Csv,
            "--json" | "--quoted-json" => {
                let quoted = name == "--quoted-json";
                self.style.format = if quoted { Format::QuotedJson } else { Format::Json };
                if self.protocol == Protocol::Two {
                    self.protocol = Protocol::PreferThree;
                }
            }
            "--latency" => self.mode = Mode::Latency,
            "--latency-history" => self.mode = Mode::LatencyHistory,
            "--latency-dist" => self.mode = Mode::LatencyDistribution,
            "--mono" => {}
            "--replica" => self.mode = Mode::Replica,
            "--stat" => self.mode = Mode::Stat,
            "--scan" => self.mode = Mode::Scan,
            "--pipe" => self.mode = Mode::Pipe,
            "--bigkeys" => self.mode = Mode::BigKeys,
            "--memkeys" => self.mode = Mode::MemKeys(None),
            "--keystats" => self.mode = Mode::KeyStats(None),
            "--hotkeys" => self.mode = Mode::HotKeys(HOT_KEYS),
            "-c" => self.cluster = true,
            "-e" => self.exit_status = true,
            "--verbose" => self.verbose = true,
            "-4" => self.family = Family::V4,
            "-6" => self.family = Family::V6,
            "-2" => self.protocol = Protocol::Two,
            "-3" => self.protocol = Protocol::Three,
            "--tls" => self.is_tls = true,
            "--insecure" => self.tls.insecure = true,
            // Multipath TCP is a hint; without it the connection is an ordinary one.
            "--mptcp" => {}
            "ldb" | "ldb-sync-mode" => {
                return Err("There is no debugger of Lua scripts here.".into());
            }
            _ => unreachable!("{name} is in the table and means nothing"),
        }
        Ok(())
    }

    /// Does what an option with a value says.
    fn valued(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value).into_owned();
        let path = || PathBuf::from(std::ffi::OsStr::from_bytes(value));
        match name {
            "-h" => self.place = Address::tcp(text, self.port()),
            "-p" => {
                let port = text.parse().map_err(|_| "Invalid server port.".to_owned())?;
                if let Address::Tcp { port: place, .. } = &mut self.place {
                    *place = port;
                }
            }
            "-s" => self.place = Address::Unix(path()),
            "-t" => {
                let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0);
                let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                let limit = limit.ok_or("Invalid connection timeout for -t.")?;
                self.timeout = Some(limit).filter(|limit| !limit.is_zero());
            }
            "-a" => self.set_password(text),
            "--user" => self.user = Some(text),
            "-u" => uri::apply(self, &text)?,
            "-r" => self.repeat = whole(&text),
            "-i" => {
                let seconds = text.parse::<f64>().unwrap_or_default();
                self.interval = Duration::try_from_secs_f64(seconds).ok();
            }
            "-n" => self.database = whole(&text),
            "-X" => self.tag_from_input = Some(value.to_vec()),
            "-d" => self.style.between_elements = value.to_vec(),
            "-D" => self.style.after_reply = value.to_vec(),
            "--show-pushes" => match text.chars().next().map(|first| first.to_ascii_lowercase()) {
                Some('y') => self.show_pushes = true,
                Some('n') => self.show_pushes = false,
                _ => eprintln!("Unknown --show-pushes value '{text}' (valid: '[y]es', '[n]o')"),
            },
            "--lru-test" => self.mode = Mode::LruTest(count(&text)),
            "--intrinsic-latency" => self.mode = Mode::IntrinsicLatency(count(&text)),
            "--eval" => self.mode = Mode::Eval(path()),
            "--rdb" => self.mode = Mode::Rdb(path()),
            "--functions-rdb" => self.mode = Mode::FunctionsRdb(path()),
            "--pipe-timeout" => self.pipe_timeout = count(&text),
            "--memkeys-samples" => self.mode = Mode::MemKeys(Some(count(&text))),
            "--keystats-samples" => self.mode = Mode::KeyStats(Some(count(&text))),
            "--hotkeys-count" => self.mode = Mode::HotKeys(count(&text) as usize),
            "--cursor" => self.cursor = count(&text),
            "--top" => self.top = count(&text) as usize,
            "--pattern" => self.pattern = Some(value.to_vec()),
            "--quoted-pattern" => {
                let pattern = unquote(value);
                let refusal = "Invalid quoted string specified for --quoted-pattern.";
                self.pattern = Some(pattern.ok_or(refusal)?);
            }
            "--count" => self.count = count(&text),
            "--sni" => self.tls.sni = Some(text),
            "--cacert" => self.tls.cacert = Some(path()),
            "--cacertdir" => self.tls.cacertdir = Some(path()),
            "--cert" => self.tls.cert = Some(path()),
            "--key" => self.tls.key = Some(path()),
            "--tls-ciphers" => self.tls.ciphers = Some(text),
            "--tls-ciphersuites" => self.tls.ciphersuites = Some(text),
            _ => unreachable!("{name} is in the table and means nothing"),
        }
        Ok(())
    }

    fn port(&self) -> u16 {
        match self.place {
            Address::Tcp { port, .. } => port,
            Address::Unix(_) => 6379,
        }
    }

    fn set_password(&mut self, password: String) {
        self.password = Some(password);
        self.password_visible = true;
    }

    /// Checks what goes together, and looks at the environment.
    fn finish(&mut self) -> Result<(), String> {
        if matches!(self.mode, Mode::Print(_)) {
            return Ok(());
        }
        if self.last_from_input && self.tag_from_input.is_some() {
            return Err("Options -x and -X are mutually exclusive.".into());
        }
        if self.ask_password {
            self.password = None;
        } else if self.password.is_none() {
            let variables = self.flavor.password_variables();
            self.password = variables.iter().find_map(|name| std::env::var(name).ok());
        }
        Ok(())
    }
}

/// A number as `atoi` reads it: what does not begin with digits is 0.
fn whole(text: &str) -> i64 {
    let text = text.trim_start();
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text[sign..].chars().take_while(char::is_ascii_digit).count();
    text[..sign + digits].parse().unwrap_or_default()
}

fn count(text: &str) -> u64 {
    u64::try_from(whole(text)).unwrap_or_default()
}
