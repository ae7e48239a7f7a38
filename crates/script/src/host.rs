//! What scripts need of the server.

/// The script is to end at once; no `pcall` of it notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop;

/// Levels of `redis.log`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// `LOG_DEBUG`.
    Debug,
    /// `LOG_VERBOSE`.
    Verbose,
    /// `LOG_NOTICE`.
    Notice,
    /// `LOG_WARNING`.
    Warning,
}

/// What `redis.set_repl` says about the commands from there on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicateTo {
    /// They go to the append-only file.
    pub append_only_file: bool,
    /// They go to replicas.
    pub replicas: bool,
}

/// The server, as a running script sees it.
pub trait Host {
    /// Runs a command and appends its reply to `reply`; an error reply too.
    ///
    /// # Errors
    /// The script must end.
    fn call(&mut self, words: &[&[u8]], is_resp3: bool, reply: &mut Vec<u8>) -> Result<(), Stop>;

    /// Whether the script's user may run this command; `None` if there is no such command.
    fn may_run(&mut self, words: &[&[u8]]) -> Option<bool>;

    /// Writes a line into the server's log.
    fn log(&mut self, level: LogLevel, line: &[u8]);

    /// From here on commands are replicated so.
    fn replicate_to(&mut self, to: ReplicateTo);

    /// Called now and then while the script runs.
    ///
    /// # Errors
    /// The script must end.
    fn tick(&mut self) -> Result<(), Stop>;
}

/// What scripts are told about the server.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// `SERVER_NAME`.
    pub name: &'static str,
    /// `REDIS_VERSION`, three numbers.
    pub redis_version: &'static str,
    /// `VALKEY_VERSION`, the version whose scripting interface this is.
    pub valkey_version: &'static str,
}

/// A version as one number, a byte for each part.
pub(crate) fn version_number(version: &str) -> f64 {
    let part = |text: &str| text.parse::<u32>().unwrap_or(0);
    f64::from(version.split('.').take(3).fold(0, |number, text| number << 8 | part(text)))
}
