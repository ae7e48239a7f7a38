//! What differs between the names that the program is called by.

use std::path::Path;

/// The name that the program answers to. It decides texts and the names of files and variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// `dunlin cli`.
    Dunlin,
    /// A link named `redis-cli`.
    Redis,
    /// A link named `valkey-cli`.
    Valkey,
}

impl Flavor {
    /// From the name of the link, or [`Flavor::Dunlin`].
    pub fn of(program: &str) -> Flavor {
        match Path::new(program).file_name().and_then(|name| name.to_str()) {
            Some("redis-cli") => Flavor::Redis,
            Some("valkey-cli") => Flavor::Valkey,
            _ => Flavor::Dunlin,
        }
    }

    /// The program in texts.
    pub fn program(self) -> &'static str {
        match self {
            Flavor::Dunlin => "dunlin cli",
            Flavor::Redis => "redis-cli",
            Flavor::Valkey => "valkey-cli",
        }
    }

    /// The server in texts.
    pub fn server(self) -> &'static str {
        match self {
            Flavor::Dunlin => "the server",
            Flavor::Redis => "Redis",
            Flavor::Valkey => "Valkey",
        }
    }

    /// The prompt's word before the path of a Unix socket.
    pub fn prompt(self) -> &'static str {
        match self {
            Flavor::Dunlin => "dunlin",
            Flavor::Redis => "redis",
            Flavor::Valkey => "valkey",
        }
    }

    /// Variables that may hold the password, the first that is set wins.
    pub fn password_variables(self) -> [&'static str; 2] {
        match self {
            Flavor::Redis => ["REDISCLI_AUTH", "VALKEYCLI_AUTH"],
            Flavor::Dunlin | Flavor::Valkey => ["VALKEYCLI_AUTH", "REDISCLI_AUTH"],
        }
    }

    /// The variable that names the history's file, and its name in the home directory otherwise.
    pub fn history(self) -> (&'static str, &'static str) {
        match self {
            Flavor::Dunlin => ("DUNLINCLI_HISTFILE", ".dunlincli_history"),
            Flavor::Redis => ("REDISCLI_HISTFILE", ".rediscli_history"),
            Flavor::Valkey => ("VALKEYCLI_HISTFILE", ".valkeycli_history"),
        }
    }

    /// The same of the file with preferences.
    pub fn preferences(self) -> (&'static str, &'static str) {
        match self {
            Flavor::Dunlin => ("DUNLINCLI_RCFILE", ".dunlinclirc"),
            Flavor::Redis => ("REDISCLI_RCFILE", ".redisclirc"),
            Flavor::Valkey => ("VALKEYCLI_RCFILE", ".valkeyclirc"),
        }
    }
}
