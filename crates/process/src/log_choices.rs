//! What a line of the log has to choose from: its level, the process's role, the formats.

/// How much a message matters; `loglevel` is the lowest level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// A lot of detail for development.
    Debug = 0,
    /// Rarely useful detail, but less of it.
    Verbose = 1,
    /// What an operator wants to see; the default.
    Notice = 2,
    /// Something that needs attention.
    Warning = 3,
    /// As `loglevel`: log nothing. No message has this level.
    Nothing = 4,
}

/// What the process is, shown as one letter in every line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// `X`
    Sentinel = 0,
    /// `C`: a child process.
    Child = 1,
    /// `S`
    Replica = 2,
    /// `M`
    Primary = 3,
}

/// `log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Format {
    /// Redis's own.
    Legacy = 0,
    /// `key=value` pairs.
    Logfmt = 1,
    /// One JSON object a line.
    Json = 2,
}

/// `log-timestamp-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TimestampFormat {
    /// `21 Nov 2025 01:24:51.123`
    Legacy = 0,
    /// `2025-11-21T01:24:51.123+01:00`
    Iso8601 = 1,
    /// Milliseconds since the Unix epoch.
    Milliseconds = 2,
}

/// Implements the conversion from the number kept in an atomic, and from and to option names.
macro_rules! choices {
    ($type:ident: $($variant:ident = $name:literal),+) => {
        impl $type {
            pub(super) const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub(super) fn from_index(index: u8) -> Self {
                Self::ALL[usize::from(index).min(Self::ALL.len() - 1)]
            }

            /// The choice of this name, as written in a configuration file (any case).
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.name().eq_ignore_ascii_case(name))
            }

            /// Its name in configuration files and structured log lines.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}
choices!(Level: Debug = "debug", Verbose = "verbose", Notice = "notice", Warning = "warning", Nothing = "nothing");
choices!(Role: Sentinel = "sentinel", Child = "RDB/AOF", Replica = "replica", Primary = "primary");
choices!(Format: Legacy = "legacy", Logfmt = "logfmt", Json = "json");
choices!(TimestampFormat: Legacy = "legacy", Iso8601 = "iso8601", Milliseconds = "milliseconds");
