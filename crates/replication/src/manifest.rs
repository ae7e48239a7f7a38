//! The manifest: which files make up the append-only log.
//!
//! ```text
//!   file appendonly.aof.3.base.rdb seq 3 type b     a snapshot, at most one
//!   file appendonly.aof.2.base.rdb seq 2 type h     history: replaced, to be deleted
//!   file appendonly.aof.5.incr.aof seq 5 type i     what was written since, in this order
//!   file appendonly.aof.6.incr.aof seq 6 type i
//! ```
//!
//! Format, rules and words of complaint are Redis 7's, whose tools read these files.

use config::{quote_word, split_words};
use std::fmt;
use structs::numbers::parse_i64;

/// Bytes a line may have.
const LONGEST_LINE: usize = 1024;

/// One file of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFile {
    /// Its name, without a directory.
    pub name: Vec<u8>,
    /// Counted from 1, for each kind by itself.
    pub seq: i64,
}

impl LogFile {
    /// Returns the name for messages.
    pub fn display(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// The files of the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    /// The snapshot that the log begins with.
    pub base: Option<LogFile>,
    /// Files that others have replaced, to be deleted; the latest first.
    pub history: Vec<LogFile>,
    /// What was written since, oldest first; the last one is being written.
    pub incr: Vec<LogFile>,
    base_seq: i64,
    incr_seq: i64,
}

/// How the base file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BaseFormat {
    /// An RDB file.
    Rdb,
    /// Commands.
    Aof,
}

/// Why a text is no manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestError {
    /// Number and text of the line, if it is about one.
    pub line: Option<(usize, String)>,
    /// What is wrong, in Redis's words.
    pub problem: &'static str,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n*** FATAL AOF MANIFEST FILE ERROR ***\n")?;
        if let Some((number, text)) = &self.line {
            writeln!(f, "Reading the manifest file, at line {number}\n")?;
            writeln!(f, ">>> '{text}'\n")?;
        }
        write!(f, "{}", self.problem)
    }
}

impl std::error::Error for ManifestError {}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// The first line that is not as it should be.
    pub fn parse(text: &[u8]) -> Result<Manifest, ManifestError> {
        let mut manifest = Manifest::default();
        if text.is_empty() {
            return Err(ManifestError { line: None, problem: "Found an empty AOF manifest" });
        }
        for (index, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
            if line.first() == Some(&b'#') {
                continue;
            }
            if line.last() != Some(&b'\n') || line.len() > LONGEST_LINE {
                let problem = "The AOF manifest file contains too long line";
                return Err(ManifestError { line: None, problem });
            }
            let line = line.trim_ascii();
            manifest.add_line(line).map_err(|problem| {
                let text = String::from_utf8_lossy(line).into_owned();
                ManifestError { line: Some((index + 1, text)), problem }
            })?;
        }
        // A new file must not have the name of one that is about to be deleted.
        for file in &manifest.history {
            let is_incr = file.name.ends_with(b".incr.aof");
            let last = if is_incr { &mut manifest.incr_seq } else { &mut manifest.base_seq };
            *last = file.seq.max(*last);
        }
        Ok(manifest)
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        const INVALID: &str = "Invalid AOF manifest file format";
        let words = split_words(line).ok_or(INVALID)?;
        // More pairs than are known are for later versions to use.
        if words.len() < 6 || !words.len().is_multiple_of(2) {
            return Err(INVALID);
        }
        let (mut name, mut seq, mut kind) = (None, 0, 0);
        for pair in words.chunks_exact(2) {
            let [key, value] = pair else { continue };
            if key.eq_ignore_ascii_case(b"file") {
                if value.contains(&b'/') || value.contains(&b'\\') {
                    return Err("File can't be a path, just a filename");
                }
                name = Some(value.clone());
            } else if key.eq_ignore_ascii_case(b"seq") {
                seq = parse_i64(value).unwrap_or(0);
            } else if key.eq_ignore_ascii_case(b"type") {
                kind = value.first().copied().unwrap_or(0);
            }
        }
        // Behind the last number there is none.
        let is_number = seq != 0 && seq < i64::MAX;
        let name = name.filter(|name| !name.is_empty() && is_number && kind != 0).ok_or(INVALID)?;
        let file = LogFile { name, seq };
        match kind {
            b'b' if self.base.is_some() => return Err("Found duplicate base file information"),
            b'b' => {
                self.base_seq = seq;
                self.base = Some(file);
            }
            b'h' => self.history.push(file),
            b'i' if seq <= self.incr_seq => return Err("Found a non-monotonic sequence number"),
            b'i' => {
                self.incr_seq = seq;
                self.incr.push(file);
            }
            _ => return Err("Unknown AOF file type"),
        }
        Ok(())
    }

    /// Returns the manifest's text.
    pub fn format(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut add = |file: &LogFile, kind: &str| {
            text.extend_from_slice(b"file ");
            text.extend_from_slice(&as_word(&file.name));
            text.extend_from_slice(format!(" seq {} type {kind}\n", file.seq).as_bytes());
        };
        self.base.iter().for_each(|file| add(file, "b"));
        self.history.iter().for_each(|file| add(file, "h"));
        self.incr.iter().for_each(|file| add(file, "i"));
        text
    }

    /// Returns whether there is nothing to load.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.incr.is_empty()
    }

    /// Returns the files to load, in order.
    pub fn files(&self) -> impl Iterator<Item = &LogFile> {
        self.base.iter().chain(&self.incr)
    }

    /// Returns whether it names this file, be it as one that is history.
    pub fn names(&self, name: &[u8]) -> bool {
        self.files().chain(&self.history).any(|file| file.name == name)
    }

    /// Returns whether a further base would get this name.
    pub fn is_next_base(&self, stem: &[u8], name: &[u8]) -> bool {
        let is = |suffix| named(stem, self.base_seq + 1, suffix) == name;
        is("base.rdb") || is("base.aof")
    }

    /// Returns whether a further increment would get this name.
    pub fn is_next_incr(&self, stem: &[u8], name: &[u8]) -> bool {
        named(stem, self.incr_seq + 1, "incr.aof") == name
    }

    /// Makes an old-style file the base of a new log.
    pub fn adopt(&mut self, name: &[u8]) {
        self.base_seq = 1;
        self.base = Some(LogFile { name: name.to_vec(), seq: 1 });
    }

    /// Makes the present base history and adds a new one. Returns the new one's name.
    pub fn replace_base(&mut self, stem: &[u8], format: BaseFormat) -> LogFile {
        self.history.splice(0..0, self.base.take());
        self.base_seq += 1;
        let suffix = match format {
            BaseFormat::Rdb => "rdb",
            BaseFormat::Aof => "aof",
        };
        let name = named(stem, self.base_seq, &format!("base.{suffix}"));
        self.base.insert(LogFile { name, seq: self.base_seq }).clone()
    }

    /// Adds an increment, which is written from now on. Returns its name.
    pub fn add_incr(&mut self, stem: &[u8]) -> LogFile {
        self.incr_seq += 1;
        let file = LogFile { name: named(stem, self.incr_seq, "incr.aof"), seq: self.incr_seq };
        self.incr.push(file.clone());
        file
    }

    /// Forgets history and says what of it is to be deleted: not what is to be loaded as well,
    /// since Valkey may give a new increment the name of an old one.
    pub fn take_history(&mut self) -> Vec<LogFile> {
        let mut history = std::mem::take(&mut self.history);
        history.retain(|old| self.files().all(|file| file.name != old.name));
        history
    }

    /// Makes all increments but the last `keep` history: a new base contains them.
    pub fn retire_incr(&mut self, keep: usize) {
        let retired = self.incr.len().saturating_sub(keep);
        for file in self.incr.drain(..retired) {
            self.history.insert(0, file);
        }
    }
}

/// Returns a name as it stands in the manifest: between quotes only if it must be.
fn as_word(name: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    if name.iter().all(is_plain) { name.to_vec() } else { quote_word(name) }
}

fn named(stem: &[u8], seq: i64, suffix: &str) -> Vec<u8> {
    [stem, format!(".{seq}.{suffix}").as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> &'static str {
        Manifest::parse(text.as_bytes()).unwrap_err().problem
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut manifest = Manifest::default();
        let stem = b"append only.aof";
        manifest.replace_base(stem, BaseFormat::Aof);
        manifest.add_incr(stem);
        manifest.add_incr(stem);
        let base = manifest.replace_base(stem, BaseFormat::Rdb);
        assert_eq!(base.name, b"append only.aof.2.base.rdb");
        manifest.retire_incr(1);
        let text = manifest.format();
        assert_eq!(
            String::from_utf8_lossy(&text),
            "file \"append only.aof.2.base.rdb\" seq 2 type b\n\
             file \"append only.aof.1.incr.aof\" seq 1 type h\n\
             file \"append only.aof.1.base.aof\" seq 1 type h\n\
             file \"append only.aof.2.incr.aof\" seq 2 type i\n"
        );
        assert_eq!(Manifest::parse(&text), Ok(manifest));
    }

    #[test]
    fn complaints_are_redis_s() {
        let good = "file a.1.base.rdb seq 1 type b\n";
        assert!(Manifest::parse(good.as_bytes()).is_ok());
        assert!(Manifest::parse(b"# nothing yet\n").unwrap().is_empty());
        assert_eq!(problem(""), "Found an empty AOF manifest");
        assert_eq!(problem("\n"), "Invalid AOF manifest file format");
        assert_eq!(problem("file a seq 1\n"), "Invalid AOF manifest file format");
        assert_eq!(problem("file a seq 1 type\n"), "Invalid AOF manifest file format");
        assert_eq!(problem("file a seq x type b\n"), "Invalid AOF manifest file format");
        let last = format!("file a seq {} type i\n", i64::MAX);
        assert_eq!(problem(&last), "Invalid AOF manifest file format");
        assert_eq!(problem("file ../a seq 1 type b\n"), "File can't be a path, just a filename");
        assert_eq!(problem("file a seq 1 type x\n"), "Unknown AOF file type");
        assert_eq!(problem("file a seq 1 type b"), "The AOF manifest file contains too long line");
        assert_eq!(problem(&format!("{good}{good}")), "Found duplicate base file information");
        let incr = "file a seq 2 type i\n";
        assert_eq!(problem(&format!("{incr}{incr}")), "Found a non-monotonic sequence number");
        let error = Manifest::parse(format!("{good}nonsense\n").as_bytes()).unwrap_err();
        assert_eq!(error.line, Some((2, "nonsense".to_owned())));
        assert!(error.to_string().contains("Reading the manifest file, at line 2\n"));
    }

    #[test]
    fn a_new_file_has_no_name_of_history() {
        let text = b"file a.2.base.rdb seq 2 type b\n\
                     file a.3.base.rdb seq 3 type h\n\
                     file a.2.incr.aof seq 2 type h\n\
                     file a.1.incr.aof seq 1 type h\n";
        let mut manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.add_incr(b"a").name, b"a.3.incr.aof");
        assert_eq!(manifest.add_incr(b"a").name, b"a.4.incr.aof");
        assert_eq!(manifest.replace_base(b"a", BaseFormat::Rdb).name, b"a.4.base.rdb");
    }

    #[test]
    fn what_is_to_be_loaded_is_not_deleted_with_history() {
        let text = b"file a.2.base.rdb seq 2 type b\n\
                     file a.1.incr.aof seq 1 type h\n\
                     file a.1.base.rdb seq 1 type h\n\
                     file a.1.incr.aof seq 1 type i\n";
        let mut manifest = Manifest::parse(text).unwrap();
        let old: Vec<_> = manifest.take_history().into_iter().map(|file| file.name).collect();
        assert_eq!(old, [b"a.1.base.rdb"]);
        assert!(manifest.history.is_empty() && manifest.files().count() == 2);
    }

    #[test]
    fn unknown_pairs_are_for_later_versions() {
        let text = b"FILE a.1.incr.aof shape round SEQ 1 TYPE i\n";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.files().count(), 1);
    }
}
