//! `dunlin container`: the entry point of the image, with the conventions of the official images of
//! Redis and Valkey.
//!
//! Arguments that begin with an option or name a `.conf` file are the server's. As root, the data's
//! folder is given to user 999, which the server then runs as. New files are the owner's alone.
//! What is not the server is run as it is.

use crate::{environment, health, system};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The user and group that the server runs as.
const USER: u32 = 999;

/// Links to the program in the image.
const OWN_NAMES: [&str; 13] = [
    "dunlin",
    "redis-server",
    "valkey-server",
    "redis-cli",
    "valkey-cli",
    "redis-benchmark",
    "valkey-benchmark",
    "redis-check-rdb",
    "valkey-check-rdb",
    "redis-check-aof",
    "valkey-check-aof",
    "redis-sentinel",
    "valkey-sentinel",
];

/// What decides beside the arguments.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Whether the container runs as root.
    pub is_root: bool,
    /// Options of the server that variables of other images stand for.
    pub options: Vec<OsString>,
    /// Arguments of the server that they hold, as `VALKEY_EXTRA_FLAGS` does.
    pub arguments: Vec<OsString>,
    /// `ALLOW_EMPTY_PASSWORD`, if it is set.
    pub allows_no_password: Option<bool>,
    /// `SKIP_DROP_PRIVS`: stay root.
    pub stay_root: bool,
    /// `SKIP_FIX_PERMS`: leave the owner of the data as it is.
    pub leave_owner: bool,
    /// `DUNLIN_CLOSED`: without a password, answer this container alone.
    pub closed: bool,
}

impl Surroundings {
    fn here() -> Result<Surroundings, String> {
        let get = |name: &str| std::env::var_os(name);
        let is_set = |name: &str| get(name).is_some_and(|value| !value.is_empty());
        Ok(Surroundings {
            is_root: system::is_root(),
            options: environment::options(&get)?,
            arguments: environment::arguments(&get),
            allows_no_password: environment::allows_no_password(&get),
            stay_root: is_set("SKIP_DROP_PRIVS"),
            leave_owner: is_set("SKIP_FIX_PERMS") || !is_start_of_container(),
            closed: is_set("DUNLIN_CLOSED"),
        })
    }

    /// Returns what the server is told unless the arguments say otherwise later on.
    fn defaults(&self) -> Vec<OsString> {
        let mut defaults = Vec::new();
        if !self.closed {
            defaults.extend(["--protected-mode-private-networks", "yes"]);
        }
        defaults.extend(["--maxmemory-from-limit", "yes"]);
        let has_password = self.options.iter().any(|word| word == "--requirepass");
        if self.allows_no_password == Some(true) && !has_password {
            defaults.extend(["--protected-mode", "no"]);
        }
        let defaults = defaults.into_iter().map(OsString::from);
        defaults.chain(self.options.iter().cloned()).collect()
    }
}

/// Returns whether this is the first process of a container, or runs in the image's folder of data. Elsewhere the working
/// folder is not the server's: it may be anything of a user's.
fn is_start_of_container() -> bool {
    let is_data = |folder: std::path::PathBuf| folder.starts_with("/data");
    std::process::id() == 1 || std::env::current_dir().is_ok_and(is_data)
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The command.
    pub words: Vec<OsString>,
    /// Whether it is the server.
    pub is_server: bool,
    /// Whether the folder is given to the user first.
    pub fixes_owner: bool,
    /// Whether root is given up.
    pub drops_root: bool,
}

/// Decides, from the arguments of the container.
///
/// # Errors
/// The server shall have a password, and has none; the text says what to do.
pub fn plan(args: Vec<OsString>, around: &Surroundings) -> Result<Plan, String> {
    let mut words = args;
    let is_option = |word: &OsString| {
        let word = word.as_bytes();
        word.starts_with(b"-") || word.ends_with(b".conf")
    };
    if words.first().is_none_or(is_option) {
        words.insert(0, "redis-server".into());
    }
    let name = base_name(&words[0]);
    let first = match name {
        "redis-server" | "valkey-server" => Some(1),
        "dunlin" if words.get(1).is_some_and(|word| word == "server") => Some(2),
        _ => None,
    };
    let Some(first) = first else {
        return Ok(Plan { words, is_server: false, fixes_owner: false, drops_root: false });
    };
    words.extend(around.arguments.iter().cloned());
    let asks = ["-v", "--version", "-h", "--help"];
    let only_asks = words.get(first).is_some_and(|word| asks.iter().any(|asked| word == asked));
    if !only_asks {
        let has_file = words.get(first).is_some_and(|word| !word.as_bytes().starts_with(b"-"));
        let at = first + usize::from(has_file);
        words.splice(at..at, around.defaults());
        // A file may have a password.
        let has_password = has_file || words.iter().any(sets_password);
        if around.allows_no_password == Some(false) && !has_password {
            return Err(NO_PASSWORD.into());
        }
    }
    let drops_root = around.is_root && !around.stay_root && !only_asks;
    Ok(Plan { words, is_server: true, fixes_owner: drops_root && !around.leave_owner, drops_root })
}

/// Why a server does not start.
const NO_PASSWORD: &str = "ALLOW_EMPTY_PASSWORD says that there has to be a password, and there is \
     none: set REDIS_PASSWORD or REDIS_PASSWORD_FILE";

/// Returns whether an argument, which may hold blanks, gives the server a password.
fn sets_password(word: &OsString) -> bool {
    let options = [&b"--requirepass"[..], b"--user", b"--aclfile"];
    options.iter().any(|option| word.as_bytes().starts_with(option))
}

fn base_name(word: &OsStr) -> &str {
    Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// Does what a plan says up to the command. Returns the words of the command if it is this program;
/// runs it otherwise, which returns only if that fails.
pub fn enter(args: Vec<OsString>) -> Result<Vec<OsString>, ExitCode> {
    if args.first().is_some_and(|word| word == "--healthcheck") {
        let first = std::fs::read("/proc/1/cmdline").unwrap_or_default();
        return Err(health::check(!is_other_command(&first)));
    }
    let plan = Surroundings::here().and_then(|around| plan(args, &around)).map_err(|why| {
        eprintln!("dunlin: {why}");
        ExitCode::from(2)
    })?;
    if plan.fixes_owner {
        give(Path::new("."));
    }
    if plan.drops_root
        && let Err(error) = system::become_user(USER, USER)
    {
        eprintln!("dunlin: the server stays root, which this container cannot give up: {error}");
    }
    if plan.is_server {
        system::tighten_umask(0o077);
    }
    if OWN_NAMES.contains(&base_name(&plan.words[0])) {
        return Ok(plan.words);
    }
    let error = Command::new(&plan.words[0]).args(&plan.words[1..]).exec();
    eprintln!("dunlin: {}: {error}", plan.words[0].to_string_lossy());
    Err(ExitCode::from(127))
}

/// Returns whether a command line, its words ended by NULs, is the entry point's with another
/// command than the server. A server has a title in place of its arguments.
fn is_other_command(line: &[u8]) -> bool {
    let words: Vec<_> = line.split(|&byte| byte == 0).filter(|word| !word.is_empty()).collect();
    let is_entry = |pair: &[&[u8]]| pair[0].ends_with(b"dunlin") && pair[1] == b"container";
    let Some(at) = words.windows(2).position(is_entry) else { return false };
    let rest = words[at + 2..].iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
    plan(rest, &Surroundings::default()).is_ok_and(|plan| !plan.is_server)
}

/// Gives a folder and all below it to the server's user. What cannot be given stays; the server
/// says so if that matters.
fn give(path: &Path) {
    let Ok(facts) = path.symlink_metadata() else { return };
    if facts.uid() != USER {
        let _ = std::os::unix::fs::lchown(path, Some(USER), Some(USER));
    }
    if facts.is_dir() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            give(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn line(plan: &Plan) -> String {
        let words: Vec<_> = plan.words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    const SET: &str = "--protected-mode-private-networks yes --maxmemory-from-limit yes";

    #[test]
    fn options_and_files_are_the_servers() {
        let around = Surroundings::default();
        for (args, wanted) in [
            ("", format!("redis-server {SET}")),
            ("redis-server", format!("redis-server {SET}")),
            ("--port 7", format!("redis-server {SET} --port 7")),
            ("/etc/x.conf", format!("redis-server /etc/x.conf {SET}")),
            ("x.conf --port 7", format!("redis-server x.conf {SET} --port 7")),
            ("/usr/local/bin/valkey-server a b", format!("/usr/local/bin/valkey-server a {SET} b")),
            ("dunlin server --port 7", format!("dunlin server {SET} --port 7")),
            ("redis-server --version", "redis-server --version".into()),
            ("redis-server -", format!("redis-server {SET} -")),
        ] {
            let plan = plan(words(args), &around).unwrap();
            assert_eq!((line(&plan), plan.is_server), (wanted, true), "{args}");
        }
        for args in ["redis-cli ping", "sh -c true", "dunlin bench", "redis-sentinel x"] {
            let plan = plan(words(args), &around).unwrap();
            assert_eq!((line(&plan), plan.is_server), (args.into(), false));
        }
    }

    #[test]
    fn an_argument_may_hold_blanks() {
        let plan = plan(vec!["--requirepass x".into()], &Surroundings::default()).unwrap();
        assert_eq!(plan.words.last().unwrap(), "--requirepass x");
    }

    #[test]
    fn the_environment_adds_and_takes_away() {
        let root = Surroundings { is_root: true, ..Surroundings::default() };
        let both = |around: &Surroundings| {
            let plan = plan(words("--port 7"), around).unwrap();
            (plan.fixes_owner, plan.drops_root)
        };
        assert_eq!(both(&root), (true, true));
        assert_eq!(both(&Surroundings::default()), (false, false));
        assert_eq!(both(&Surroundings { leave_owner: true, ..root.clone() }), (false, true));
        assert_eq!(both(&Surroundings { stay_root: true, ..root.clone() }), (false, false));
        let said = |args: &str, around: &Surroundings| line(&plan(words(args), around).unwrap());
        let extra = Surroundings { arguments: words("--save 60 1"), ..root.clone() };
        assert!(said("--port 7", &extra).ends_with("--port 7 --save 60 1"));
        let closed = Surroundings { closed: true, ..root.clone() };
        assert!(!said("", &closed).contains("private"));
        assert!(!plan(words("redis-cli ping"), &root).unwrap().drops_root);
    }

    #[test]
    fn passwords_of_the_environment_come_before_arguments() {
        let options = ["--requirepass".into(), "a b".into()].to_vec();
        let around = Surroundings { options, ..Surroundings::default() };
        let said = |args: &str, around: &Surroundings| {
            plan(words(args), around)
                .map(|plan| line(&plan))
                .map_err(|why| why.contains("has to be"))
        };
        let wanted = format!("redis-server x.conf {SET} --requirepass a b --port 7");
        assert_eq!(said("x.conf --port 7", &around), Ok(wanted));
        // Others than the server have nothing of it.
        assert_eq!(said("redis-cli ping", &around), Ok("redis-cli ping".into()));
        let open = Surroundings { allows_no_password: Some(true), ..Surroundings::default() };
        assert!(said("", &open).unwrap().ends_with("--protected-mode no"));
        let both = Surroundings { allows_no_password: Some(true), ..around.clone() };
        assert!(!said("", &both).unwrap().contains("--protected-mode no"));
        let closed = Surroundings { allows_no_password: Some(false), ..Surroundings::default() };
        assert_eq!(said("--port 7", &closed), Err(true));
        let given = Surroundings { allows_no_password: Some(false), ..around };
        assert!(said("--port 7", &given).is_ok());
        for args in ["x.conf", "--requirepass x", "--user default on", "redis-cli", "--version"] {
            assert!(said(args, &closed).is_ok(), "{args}");
        }
    }

    #[test]
    fn another_command_than_the_server_is_not_asked() {
        let is_other = |line: &str| is_other_command(line.replace(' ', "\0").as_bytes());
        for line in ["redis-cli ping", "dunlin proxy -c x", "dunlin cluster up", "valkey-sentinel"]
        {
            assert!(is_other(&format!("/usr/local/bin/dunlin container {line} ")), "{line}");
            assert!(is_other(&format!("/sbin/docker-init -- dunlin container {line} ")), "{line}");
        }
        for line in ["", "redis-server", "--port 7", "x.conf", "dunlin server", "valkey-server x"] {
            assert!(!is_other(&format!("/usr/local/bin/dunlin container {line} ")), "{line}");
        }
        for line in ["redis-server *:6379", "sh -c redis-server ", "dunlin proxy ", ""] {
            assert!(!is_other(line), "{line}");
        }
    }
}
