//! What a command can answer instead of a reply; the texts are Redis's, byte for byte.

use std::borrow::Cow;

/// A client error. [`Error::text`] is the one place where they become text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The key holds another type.
    WrongType,
    /// The options make no sense.
    Syntax,
    /// An argument is not a 64-bit integer.
    NotInteger,
    /// An argument is not a number.
    NotFloat,
    /// An index or value is out of range.
    OutOfRange(&'static str),
    /// There is no such key (where that is an error).
    NoSuchKey,
    /// INCR and friends would overflow.
    Overflow,
    /// A sum is NaN or infinite.
    NanOrInfinity,
    /// A string would grow beyond `proto-max-bulk-len`.
    StringTooLong,
    /// The wrong number of arguments for this command.
    Arity(Cow<'static, str>),
    /// An expiry that is not positive or overflows, for this command.
    InvalidExpire(&'static str),
    /// Memory is over its limit.
    OutOfMemory,
    /// Snapshots are asked for and fail.
    Misconfigured,
    /// `EXEC` after a queueing error.
    ExecAborted,
    /// The client has to authenticate.
    NoAuth,
    /// The data set is not there yet.
    Loading,
    /// A write on a replica.
    ReadOnlyReplica,
    /// The client is sent to the primary, at this host and port.
    Redirect(String, u16),
    /// There is no cluster as far as the client sees.
    NoCluster,
    /// Another node of the cluster has the keys, no node has them, or they are on different nodes.
    /// The text begins with its code.
    Elsewhere(String),
    /// The replica has lost its primary, and does not answer with what it has.
    MasterDown,
    /// A value that the command needs is not in RAM ([`Db::value`](crate::Db::value)): dispatch has
    /// it read and runs the command again.
    Cold,
    /// Not a reply: the request is run again on a background thread
    /// ([`Cx::is_for_background`](crate::Cx::is_for_background)).
    TakesLong,
    /// Not a reply: another thread has locked a stripe that the command needs. The request is run
    /// again, or answered with BUSY.
    StripeTaken,
    /// No answer at all: the script that runs is undone and begins again.
    StartAgain,
    /// A text of the command's own, with its code (`ERR …`).
    Text(Cow<'static, str>),
    /// A text of the command's own that quotes what the client sent.
    Bytes(Vec<u8>),
}

/// Returns a key as messages show it.
pub(crate) fn shown(key: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(key).chars().take(64).collect();
    text.escape_default().to_string()
}

impl Error {
    /// Returns an error of `ERR ` and a fixed text.
    pub const fn text(text: &'static str) -> Error {
        Error::Text(Cow::Borrowed(text))
    }

    /// Returns an error of a formatted text that begins with its code.
    pub fn format(text: String) -> Error {
        Error::Text(Cow::Owned(text))
    }

    /// Returns the error for a key that no hashing rule of the database matches, so that no shard
    /// has it.
    pub fn unmatched(key: &[u8]) -> Error {
        Error::Elsewhere(format!(
            "ERR Key '{}' matches no hashing rule of the database",
            shown(key)
        ))
    }

    /// Returns the error's line, without the leading `-`.
    pub fn line(&self) -> Cow<'_, [u8]> {
        let text: Cow<'_, str> = match self {
            Error::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value".into()
            }
            Error::Syntax => "ERR syntax error".into(),
            Error::NotInteger => "ERR value is not an integer or out of range".into(),
            Error::NotFloat => "ERR value is not a valid float".into(),
            Error::OutOfRange(what) => format!("ERR {what}").into(),
            Error::NoSuchKey => "ERR no such key".into(),
            Error::Overflow => "ERR increment or decrement would overflow".into(),
            Error::NanOrInfinity => "ERR increment would produce NaN or Infinity".into(),
            Error::StringTooLong => {
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)".into()
            }
            Error::Arity(name) => {
                format!("ERR wrong number of arguments for '{name}' command").into()
            }
            Error::InvalidExpire(name) => {
                format!("ERR invalid expire time in '{name}' command").into()
            }
            Error::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.".into(),
            Error::Misconfigured => {
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to \
                 persist to disk. Commands that may modify the data set are disabled, because this \
                 instance is configured to report errors during writes if RDB snapshotting fails \
                 (stop-writes-on-bgsave-error option). Please check the Redis logs for details \
                 about the RDB error."
                    .into()
            }
            Error::ExecAborted => {
                "EXECABORT Transaction discarded because of previous errors.".into()
            }
            Error::NoAuth => "NOAUTH Authentication required.".into(),
            Error::Loading => "LOADING Redis is loading the dataset in memory".into(),
            Error::ReadOnlyReplica => {
                "READONLY You can't write against a read only replica.".into()
            }
            Error::Redirect(host, port) => format!("REDIRECT {host}:{port}").into(),
            Error::NoCluster => "ERR This instance has cluster support disabled".into(),
            Error::Elsewhere(text) => text.as_str().into(),
            Error::MasterDown => {
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
                    .into()
            }
            // Dispatch lets neither of these out.
            Error::Cold => "ERR a value that the command needs is not in memory".into(),
            Error::StartAgain => "ERR the script begins again".into(),
            Error::StripeTaken => "ERR a part of the keys cannot be read now".into(),
            Error::TakesLong => "ERR the reply is too long to be made here".into(),
            Error::Text(text) => Cow::Borrowed(text.as_ref()),
            Error::Bytes(bytes) => return Cow::Borrowed(bytes),
        };
        match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

/// Why a request cannot run now. It has had no effect and is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotNow {
    /// Another thread has locked a stripe, or has yet to read its messages: try again in the next
    /// turn.
    Busy,
    /// CLIENT PAUSE: try again then, or when told to.
    Paused,
    /// Its user, or its address, has had what `rate-limits` allows: try again in a while.
    Limited,
    /// A long command, a snapshot or a full journal is in the way: try again when told to.
    Held,
    /// Values that are not in RAM are being read.
    Cold,
    /// Requests before it have not been answered by other nodes: try again when they have.
    Forwarded,
}
