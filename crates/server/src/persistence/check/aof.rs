//! `dunlin check aof [--fix | --truncate-to-timestamp T] FILE|MANIFEST`, which is also
//! `redis-check-aof`: checks whether an append-only log is sound, and cuts off an unsound end.
//!
//! It prints what redis-check-aof prints, for scripts that search its output. Each fault is printed
//! with its offset. Files of any size are read in pieces.

use super::check_rdb;
use crate::persistence::aof::data_end;
use process::{facts, os_error};
use replication::{FileEnd, Item, Manifest, StreamReader};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// What to do with an unsound log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repair {
    Nothing,
    /// Cut off the unsound end.
    Fix,
    /// Cut off everything written after this time (seconds since the epoch).
    TruncateTo(i64),
}

/// The result for a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Sound,
    Empty,
    Truncated,
    TruncatedToTime,
}

/// Why the check ends early. The reason has been printed.
enum Stop {
    Failed,
    /// The output cannot be written.
    Output,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Stop {
        Stop::Output
    }
}

/// Runs the subcommand. `args` are its arguments.
pub fn run_check_aof(program: &str, args: &[OsString]) -> ExitCode {
    let mut out = io::stdout().lock();
    let words: Vec<&OsStr> = args.iter().map(OsString::as_os_str).collect();
    let (repair, path) = match words.as_slice() {
        [option] if *option == "-v" || *option == "--version" => {
            let done = writeln!(out, "{program} {}", facts::VERSION);
            return if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        [path] => (Repair::Nothing, *path),
        [option, path] if *option == "--fix" => (Repair::Fix, *path),
        [option, time, path] if *option == "--truncate-to-timestamp" => {
            match time.to_str().and_then(|time| time.parse().ok()) {
                Some(time) => (Repair::TruncateTo(time), *path),
                None => {
                    // The exit status reports it, too.
                    let _ = writeln!(out, "Invalid timestamp, aborting...");
                    return ExitCode::FAILURE;
                }
            }
        }
        _ => {
            let _ = writeln!(
                out,
                "Usage: {program} [--fix|--truncate-to-timestamp $timestamp] \
                 <file.manifest|file.aof>"
            );
            return ExitCode::FAILURE;
        }
    };
    let answer = || {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).is_ok() && line.starts_with(['y', 'Y'])
    };
    match (Check { out: &mut out, repair, may_cut: &answer }).run(Path::new(path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed | Stop::Output) => ExitCode::FAILURE,
    }
}

struct Check<'c> {
    out: &'c mut dyn Write,
    repair: Repair,
    /// Asks the user whether the file may be cut.
    may_cut: &'c dyn Fn() -> bool,
}

impl Check<'_> {
    fn run(&mut self, path: &Path) -> Result<(), Stop> {
        let manifest = if is_rdb(path) { None } else { self.manifest(path)? };
        match manifest {
            Some(manifest) => self.check_parts(path, &manifest),
            None => {
                writeln!(self.out, "Start checking Old-Style AOF")?;
                let name = path.display().to_string();
                let verdict = self.check_file(&name, path, true)?;
                self.say(verdict, "", &name)
            }
        }
    }

    fn failed<T>(&mut self, text: &str) -> Result<T, Stop> {
        writeln!(self.out, "{text}")?;
        Err(Stop::Failed)
    }

    /// Returns the manifest that this file contains, or `None` if the file is a log.
    fn manifest(&mut self, path: &Path) -> Result<Option<Manifest>, Stop> {
        match is_manifest(path) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                let (name, why) = (path.display(), os_error(&error));
                return self.failed(&format!("Cannot open file {name}: {why}"));
            }
        }
        match std::fs::read(path).map(|text| Manifest::parse(&text)) {
            Ok(Ok(manifest)) => Ok(Some(manifest)),
            Ok(Err(error)) => self.failed(&error.to_string()),
            Err(error) => {
                let (name, why) = (path.display(), os_error(&error));
                self.failed(&format!("Cannot open file {name}: {why}"))
            }
        }
    }

    fn check_parts(&mut self, path: &Path, manifest: &Manifest) -> Result<(), Stop> {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let path_of = |name: &[u8]| -> PathBuf { folder.join(OsStr::from_bytes(name)) };
        writeln!(self.out, "Start checking Multi Part AOF")?;
        if let Some(base) = &manifest.base {
            let path = path_of(&base.name);
            let format = if is_rdb(&path) { "RDB" } else { "RESP" };
            writeln!(self.out, "Start to check BASE AOF ({format} format).")?;
            let verdict = self.check_file(&base.display(), &path, manifest.incr.is_empty())?;
            self.say(verdict, "BASE ", &base.display())?;
        }
        if !manifest.incr.is_empty() {
            writeln!(self.out, "Start to check INCR files.")?;
        }
        for (number, file) in manifest.incr.iter().enumerate() {
            let is_last = number + 1 == manifest.incr.len();
            let verdict = self.check_file(&file.display(), &path_of(&file.name), is_last)?;
            self.say(verdict, "INCR ", &file.display())?;
        }
        writeln!(self.out, "All AOF files and manifest are valid")?;
        Ok(())
    }

    fn say(&mut self, verdict: Verdict, kind: &str, name: &str) -> Result<(), Stop> {
        match (verdict, self.repair) {
            (Verdict::Sound, _) => writeln!(self.out, "{kind}AOF {name} is valid")?,
            (Verdict::Empty, _) => writeln!(self.out, "{kind}AOF {name} is empty")?,
            (Verdict::TruncatedToTime, Repair::TruncateTo(time)) => {
                writeln!(self.out, "Successfully truncated AOF {name} to timestamp {time}")?;
            }
            _ => writeln!(self.out, "Successfully truncated AOF {name}")?,
        }
        Ok(())
    }

    fn check_file(&mut self, name: &str, path: &Path, is_last: bool) -> Result<Verdict, Stop> {
        let opened = File::open(path).and_then(|file| {
            let end = data_end(&file)?;
            let len = file.metadata()?.len();
            let size = if has_zeros(&file, end.at)? { len } else { end.at };
            Ok((file, end, size))
        });
        let (mut file, end, size) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let (path, why) = (path.display(), os_error(&error));
                return self.failed(&format!("Cannot open file {path}: {why}, aborting..."));
            }
        };
        if size == 0 {
            return Ok(Verdict::Empty);
        }
        let begin = if is_rdb(path) { self.check_preamble(&mut file, end.at)? } else { 0 };
        file.seek(SeekFrom::Start(begin))?;
        let found = self.read(&mut file.take(end.at - begin), begin, end, name)?;
        if let Some(cut) = found.later_at {
            return self.truncate_to_time(name, path, is_last, cut);
        }
        if let Some(trouble) = &found.trouble {
            writeln!(self.out, "{trouble}")?;
        } else if size > end.at {
            writeln!(self.out, "0x{:16x}: Zeros up to the end of the file", end.at)?;
        }
        let excess = size - found.valid;
        if excess == 0
            && let Repair::TruncateTo(time) = self.repair
        {
            writeln!(self.out, "Truncate nothing in AOF {name} to timestamp {time}")?;
            return Ok(Verdict::Sound);
        }
        writeln!(
            self.out,
            "AOF analyzed: filename={name}, size={size}, ok_up_to={}, ok_up_to_line={}, \
             diff={excess}",
            found.valid,
            found.line + 1
        )?;
        if excess == 0 {
            return Ok(Verdict::Sound);
        }
        if self.repair != Repair::Fix {
            return self.failed(&format!(
                "AOF {name} is not valid. Use the --fix option to try fixing it."
            ));
        }
        if !is_last {
            return self
                .failed(&format!("Failed to truncate AOF {name} because it is not the last file"));
        }
        writeln!(
            self.out,
            "This will shrink the AOF {name} from {size} bytes, with {excess} bytes, to {} bytes",
            found.valid
        )?;
        write!(self.out, "Continue? [y/N]: ")?;
        self.out.flush()?;
        if !(self.may_cut)() {
            return self.failed("Aborting...");
        }
        if let Err(error) = cut_off(path, found.valid) {
            let why = os_error(&error);
            return self.failed(&format!("Failed to truncate AOF {name}: {why}"));
        }
        Ok(Verdict::Truncated)
    }

    fn check_preamble(&mut self, file: &mut File, size: u64) -> Result<u64, Stop> {
        let end = check_rdb(file, 0, size, self.out, &mut io::sink())?;
        match end {
            Some(summary) => {
                writeln!(self.out, "RDB preamble is OK, proceeding with AOF tail...")?;
                Ok(summary.end)
            }
            None => self.failed("RDB preamble of AOF file is not sane, aborting."),
        }
    }

    fn truncate_to_time(
        &mut self,
        name: &str,
        path: &Path,
        is_last: bool,
        cut: u64,
    ) -> Result<Verdict, Stop> {
        let Repair::TruncateTo(time) = self.repair else { return Ok(Verdict::Sound) };
        let path_name = path.display();
        if cut == 0 {
            return self.failed(&format!(
                "AOF {path_name} has nothing before timestamp {time}, aborting..."
            ));
        }
        if !is_last {
            writeln!(
                self.out,
                "Failed to truncate AOF {path_name} to timestamp {time} to offset {cut} because it \
                 is not the last file."
            )?;
            return self.failed(
                "If you insist, please delete all files after this file according to the manifest \
                 file and delete the corresponding records in manifest file manually. Then re-run \
                 redis-check-aof.",
            );
        }
        if let Err(error) = cut_off(path, cut) {
            let why = os_error(&error);
            return self
                .failed(&format!("Failed to truncate AOF {name} to timestamp {time}: {why}"));
        }
        Ok(Verdict::TruncatedToTime)
    }

    /// Reads commands to the end or to the first invalid one.
    fn read(
        &mut self,
        file: &mut impl Read,
        begin: u64,
        end: FileEnd,
        name: &str,
    ) -> Result<Found, Stop> {
        let mut reader = StreamReader::of_file(begin, end);
        let (mut buf, mut filled, mut words) = (Vec::new(), 0, Vec::new());
        let mut found = Found { valid: begin, line: 0, later_at: None, trouble: None };
        let mut lines = 0;
        loop {
            buf.resize((filled + PIECE).max(buf.len()), 0);
            let read = match file.read(&mut buf[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    return self.failed(&format!("Failed to read from AOF {name}, aborting..."));
                }
                Ok(read) => read,
            };
            filled += read;
            let mut at = 0;
            loop {
                let offset = reader.offset();
                let used = match reader.next(&buf[at..filled], &mut words) {
                    Ok(Item::Command { consumed }) => {
                        lines += 1 + 2 * words.len() as u64;
                        consumed
                    }
                    Ok(Item::Timestamp { seconds, consumed }) => {
                        if matches!(self.repair, Repair::TruncateTo(time) if seconds > time) {
                            found.later_at = Some(reader.in_batch().unwrap_or(offset));
                            return Ok(found);
                        }
                        lines += 1;
                        consumed
                    }
                    Ok(Item::Place { consumed, .. }) => {
                        lines += 1;
                        consumed
                    }
                    Ok(Item::Comment { consumed }) => {
                        // Later data may be older.
                        if matches!(self.repair, Repair::TruncateTo(_))
                            && buf[at..filled].starts_with(b"#TS:")
                        {
                            return self.failed(&format!(
                                "0x{offset:16x}: Invalid timestamp annotation in AOF {name}"
                            ));
                        }
                        lines += 1;
                        consumed
                    }
                    Ok(Item::Incomplete { .. }) => break,
                    Ok(Item::Torn) => {
                        found.trouble = Some(format!(
                            "0x{offset:16x}: A batch that was never whole on the disk"
                        ));
                        return Ok(found);
                    }
                    Err(corrupt) => {
                        found.trouble =
                            Some(format!("0x{:16x}: {}", corrupt.offset, corrupt.problem));
                        return Ok(found);
                    }
                };
                at += used;
                found.valid = reader.valid();
                if reader.open_transaction().is_none() {
                    found.line = lines;
                }
            }
            buf.copy_within(at..filled, 0);
            filled -= at;
            if read == 0 {
                break;
            }
        }
        if filled > 0 {
            found.trouble = Some(format!("0x{:16x}: Unexpected end of file", reader.offset()));
        } else if reader.open_transaction().is_some() {
            let offset = reader.offset();
            found.trouble =
                Some(format!("0x{offset:16x}: Reached EOF before reading EXEC for MULTI"));
        }
        Ok(found)
    }
}

/// The result of reading commands.
struct Found {
    /// The end of the sound part.
    valid: u64,
    line: u64,
    /// Where data after the requested time begins.
    later_at: Option<u64>,
    trouble: Option<String>,
}

/// Returns whether a file is a manifest: its first line without an annotation begins like a
/// manifest's, or it has a manifest's name and that line does not begin like a log. A manifest that
/// was taken for a log would be cut off.
fn is_manifest(path: &Path) -> io::Result<bool> {
    let mut lines = BufReader::new(File::open(path)?);
    while let Some(b'#') = lines.fill_buf()?.first() {
        lines.skip_until(b'\n')?;
    }
    let mut beginning = Vec::new();
    lines.take(5).read_to_end(&mut beginning)?;
    let is_named_so = path.as_os_str().as_bytes().ends_with(b".manifest");
    Ok(beginning == b"file " || (is_named_so && beginning.first() != Some(&b'*')))
}

fn is_rdb(path: &Path) -> bool {
    let mut magic = [0; 5];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && rdb::file::is_rdb(magic)
}

/// Returns whether there are zeros in the space after a file's data. Other servers do not skip
/// them.
fn has_zeros(file: &File, data_end: u64) -> io::Result<bool> {
    let mut buf = vec![0; PIECE];
    let mut at = data_end;
    loop {
        match file.read_at(&mut buf, at) {
            Ok(0) => return Ok(false),
            Ok(read) if buf[..read].contains(&0) => return Ok(true),
            Ok(read) => at += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn cut_off(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> String {
        let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
        format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>())
    }

    /// Runs a check. Returns its output, and whether it succeeded.
    fn check(path: &Path, repair: Repair) -> (String, bool) {
        let mut out = Vec::new();
        let done = Check { out: &mut out, repair, may_cut: &|| true }.run(path);
        (String::from_utf8_lossy(&out).into_owned(), done.is_ok())
    }

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("check-aof-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn an_unfinished_end_is_found_and_cut_off() {
        let folder = folder("fix");
        let path = folder.join("a.aof");
        let good = command(&["SELECT", "0"]) + &command(&["SET", "k", "v"]);
        std::fs::write(&path, &good).unwrap();
        let (text, is_ok) = check(&path, Repair::Nothing);
        assert!(is_ok && text.contains("is valid"), "{text}");
        std::fs::write(&path, good.clone() + &command(&["MULTI"]) + &command(&["INCR", "n"]))
            .unwrap();
        let (text, is_ok) = check(&path, Repair::Nothing);
        assert!(!is_ok && text.contains("Reached EOF before reading EXEC for MULTI"), "{text}");
        assert!(text.contains(&format!("ok_up_to={},", good.len())), "{text}");
        assert!(text.contains("Use the --fix option"), "{text}");
        let (text, is_ok) = check(&path, Repair::Fix);
        assert!(is_ok && text.contains("Successfully truncated AOF"), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), good.as_bytes());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn zeros_that_others_would_refuse_are_cut_off() {
        let folder = folder("zeros");
        let path = folder.join("a.aof");
        let good = command(&["SET", "k", "v"]);
        for begin in ["", &good] {
            std::fs::write(&path, [begin.as_bytes(), &[0; 1000]].concat()).unwrap();
            let (text, is_ok) = check(&path, Repair::Nothing);
            let trouble = format!("0x{:16x}: Zeros up to the end of the file", begin.len());
            assert!(!is_ok && text.contains(&trouble), "{text}");
            let (text, is_ok) = check(&path, Repair::Fix);
            assert!(is_ok && text.contains("Successfully truncated AOF"), "{text}");
            assert_eq!(std::fs::read(&path).unwrap(), begin.as_bytes());
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_fault_in_an_earlier_file_is_not_cut_off() {
        let folder = folder("parts");
        let manifest = folder.join("a.manifest");
        std::fs::write(
            &manifest,
            "file a.1.base.aof seq 1 type b\nfile a.1.incr.aof seq 1 type i\n",
        )
        .unwrap();
        std::fs::write(folder.join("a.1.base.aof"), command(&["SET", "k", "v"]) + "*x").unwrap();
        let (text, is_ok) = check(&manifest, Repair::Fix);
        assert!(!is_ok && text.contains("Cannot open") || text.contains("not the last"), "{text}");
        assert!(text.contains("0x              1c: Expected a number, got: 'x'"), "{text}");
        std::fs::write(folder.join("a.1.base.aof"), command(&["SET", "k", "v"])).unwrap();
        std::fs::write(folder.join("a.1.incr.aof"), "").unwrap();
        let (text, is_ok) = check(&manifest, Repair::Nothing);
        assert!(is_ok && text.contains("INCR AOF a.1.incr.aof is empty"), "{text}");
        assert!(text.contains("All AOF files and manifest are valid"), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_manifest_is_never_cut_off() {
        let folder = folder("manifests");
        let path = folder.join("a.manifest");
        std::fs::write(folder.join("i"), command(&["SET", "k", "v"])).unwrap();
        for text in ["FILE i seq 1 type i\n", "file\ti seq 1 type i\n", "seq 1 type i file i\n"] {
            std::fs::write(&path, text).unwrap();
            let (said, is_ok) = check(&path, Repair::Fix);
            assert!(is_ok && said.contains("INCR AOF i is valid"), "{text}: {said}");
            assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes());
        }
        for (text, why) in [("", "Found an empty"), ("xfile i seq 1 type i\n", "Invalid AOF")] {
            std::fs::write(&path, text).unwrap();
            let (said, is_ok) = check(&path, Repair::Fix);
            assert!(!is_ok && said.contains(why), "{text}: {said}");
            assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes());
        }
        // A log is a log, whatever its name.
        std::fs::write(&path, command(&["SET", "k", "v"])).unwrap();
        assert!(check(&path, Repair::Nothing).1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_log_is_cut_back_to_a_time() {
        let folder = folder("time");
        let path = folder.join("a.aof");
        let before = "#TS:100\r\n".to_owned() + &command(&["SET", "k", "1"]);
        std::fs::write(&path, before.clone() + "#TS:200\r\n" + &command(&["SET", "k", "2"]))
            .unwrap();
        assert!(check(&path, Repair::TruncateTo(300)).0.contains("Truncate nothing"));
        let (text, is_ok) = check(&path, Repair::TruncateTo(150));
        assert!(is_ok && text.contains("Successfully truncated AOF"), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), before.as_bytes());
        let (text, is_ok) = check(&path, Repair::TruncateTo(50));
        assert!(!is_ok && text.contains("has nothing before timestamp 50"), "{text}");
        // The real time of a damaged annotation is unknown.
        let damaged = before.clone() + "#TS:2x0\r\n" + &command(&["SET", "k", "2"]);
        std::fs::write(&path, &damaged).unwrap();
        assert!(check(&path, Repair::Nothing).1);
        let (text, is_ok) = check(&path, Repair::TruncateTo(150));
        let trouble = format!("0x{:16x}: Invalid timestamp annotation", before.len());
        assert!(!is_ok && text.contains(&trouble), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), damaged.as_bytes());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
