//! Why a file was not loaded, with messages that name the file and the offset.

use engine::load::{BadRecord, Why};
use rdb::file::{Foreign, Scanner};
use std::fmt;

/// Why and where loading failed.
#[derive(Debug)]
pub struct Failure(Box<Details>);

#[derive(Debug)]
struct Details {
    file: String,
    /// Offset in bytes from the container's beginning.
    offset: u64,
    cause: Cause,
    doing: Option<&'static str>,
    key: Option<Vec<u8>>,
    kind: Option<(u8, &'static str)>,
}

/// Why a file was not loaded.
#[derive(Debug)]
pub enum Cause {
    /// Reading failed, or no thread could be started.
    Read(std::io::Error),
    /// The file ends before it should.
    Truncated,
    /// The bytes make no sense.
    Malformed(rdb::Error),
    /// The checksum is wrong.
    Checksum {
        /// The checksum of the bytes.
        computed: u64,
        /// The checksum in the file.
        stored: u64,
    },
    /// An item that this server does not support.
    Foreign(Foreign),
    /// A function library that cannot be loaded, and why.
    Library(String),
    /// A key exists already. Its database.
    Duplicate(u32),
    /// A database does not exist.
    NoSuchDb {
        /// The database in the file.
        db: u32,
        /// The number of databases.
        databases: u32,
    },
    /// The server is to stop.
    Cancelled,
}

impl Failure {
    /// Creates a failure at an offset.
    pub fn new(file: &str, offset: u64, cause: Cause) -> Failure {
        let file = file.to_owned();
        Failure(Box::new(Details { file, offset, cause, doing: None, key: None, kind: None }))
    }

    /// Creates a failure at the scanner's position.
    pub(super) fn at(file: &str, scanner: &Scanner, cause: Cause) -> Failure {
        Failure(Box::new(Details {
            file: file.to_owned(),
            offset: scanner.position(),
            cause,
            doing: Some(scanner.doing().name()),
            key: scanner.key().map(<[u8]>::to_vec),
            kind: scanner.kind(),
        }))
    }

    /// Creates a failure about a record of a batch that begins at `offset`. The file's name is
    /// added later.
    pub(super) fn of_record(offset: u64, bad: BadRecord, databases: u32) -> Failure {
        let cause = match bad.why {
            Why::Malformed(error) => Cause::Malformed(error),
            Why::Duplicate => Cause::Duplicate(bad.db),
            Why::NoSuchDb => Cause::NoSuchDb { db: bad.db, databases },
        };
        let is_value = matches!(cause, Cause::Malformed(_));
        Failure(Box::new(Details {
            file: String::new(),
            offset: offset + bad.at as u64,
            doing: is_value.then_some("read-object-value"),
            key: Some(bad.key),
            kind: is_value.then(|| (bad.kind, rdb::file::type_name(bad.kind))),
            cause,
        }))
    }

    /// Adds the file's name.
    pub(super) fn in_file(mut self, file: &str) -> Failure {
        self.0.file = file.to_owned();
        self
    }

    /// Returns the cause.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { file, offset, .. } = &*self.0;
        match &self.0.cause {
            Cause::Cancelled => return write!(f, "Loading {file} was cancelled"),
            Cause::Foreign(thing) => {
                return write!(
                    f,
                    "{file} has at offset {offset} {thing}, which is not supported. Nothing was \
                     loaded in its place; rdb-skip-unknown-types yes loads the rest"
                );
            }
            Cause::Library(why) => {
                return write!(
                    f,
                    "{file} has at offset {offset} a library of functions that cannot be loaded: {why}"
                );
            }
            Cause::Malformed(rdb::Error::UnsupportedType(kind)) => {
                let key = self.0.key.as_deref().unwrap_or_default().escape_ascii();
                return write!(
                    f,
                    "{file} has at offset {offset} the value of key '{key}', of type {kind}, which \
                     this version does not know (or the file is damaged). Where it ends is not \
                     known either, so nothing \
                     behind it can be loaded, not even with rdb-skip-unknown-types"
                );
            }
            Cause::Malformed(rdb::Error::Version(version)) => {
                write!(
                    f,
                    "Can't load {file} at offset {offset}: unsupported RDB version {version}"
                )?;
                if *version > rdb::NEWEST_VERSION {
                    f.write_str("; rdb-version-check relaxed tries to load it")?;
                }
                return Ok(());
            }
            Cause::Read(error) => write!(f, "Can't read {file} at offset {offset}: {error}")?,
            Cause::Truncated => {
                write!(f, "Short read loading {file}: it ends unexpectedly at offset {offset}")?;
            }
            Cause::Malformed(error) => write!(f, "{file} is corrupt at offset {offset}: {error}")?,
            Cause::Checksum { computed, stored } => write!(
                f,
                "{file} is corrupt: RDB CRC error at offset {offset}. Wrong RDB checksum expected: \
                 ({computed:x}) but got ({stored:x})"
            )?,
            Cause::Duplicate(db) => {
                write!(f, "{file} has a duplicated key in DB {db} near offset {offset}")?;
            }
            Cause::NoSuchDb { db, databases } => write!(
                f,
                "{file} has at offset {offset} database {db}, but the server is configured for \
                 {databases} databases"
            )?,
        }
        if let Some(doing) = self.0.doing {
            write!(f, " (while doing {doing}")?;
            if let Some((number, name)) = self.0.kind {
                write!(f, ", type {number} {name}")?;
            }
            f.write_str(")")?;
        }
        if let Some(key) = &self.0.key {
            write!(f, ", key '{}'", key.escape_ascii())?;
        }
        Ok(())
    }
}
