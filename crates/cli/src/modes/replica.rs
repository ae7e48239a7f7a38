//! `--replica`: prints the commands that a replica receives. `--rdb`: keeps the snapshot.

use super::scan::fail;
use crate::flavor::Flavor;
use crate::format::Format;
use crate::session::describe;
use crate::session::{Session, emit};
use client::Client;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// What a snapshot is to have in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// All.
    Everything,
    /// The functions alone.
    Functions,
}

/// The version of Valkey whose snapshots have a form for all that there is. A file is kept in
/// whatever form it comes.
const NEWEST: &str = "9.0.0";

/// How long a mark is that ends a transfer of unknown length.
const MARK: usize = 40;

/// `--rdb`
pub fn save(session: &mut Session, path: &Path, contents: Contents) -> ExitCode {
    configure(session, &["REPLCONF", "capa", "eof"]);
    // Without a version a server sends its oldest form, or none if that cannot hold the data.
    session.ask(&["REPLCONF", "version", NEWEST]);
    // Both are hints to the server; a server that does not know them sends more than is needed.
    configure(session, &["REPLCONF", "rdb-only", "1"]);
    if contents == Contents::Functions
        && !configure(session, &["REPLCONF", "rdb-filter-only", "functions"])
    {
        fail("Failed requesting functions only RDB from server, aborting");
    }
    let (primary, shown) = (primary(session), path.display());
    let target: Box<dyn Write> = if path.as_os_str() == "-" {
        Box::new(io::stdout())
    } else {
        match File::create(path) {
            Ok(file) => Box::new(file),
            Err(error) => fail(&format!("Error opening '{shown}': {}", describe(&error))),
        }
    };
    let link = session.connected();
    let (length, result) = match begin(link) {
        Ok(length) => {
            match length {
                Length::Bytes(count) => {
                    eprintln!("SYNC sent to {primary}, writing {count} bytes to '{shown}'")
                }
                Length::Mark(_) => eprintln!(
                    "SYNC sent to {primary}, writing bytes of bulk transfer until EOF marker to \
                     '{shown}'"
                ),
            }
            (Some(length.clone()), receive(link, &length, target))
        }
        Err(error) => (None, Err(error)),
    };
    match result {
        Ok(bytes) => {
            if path.as_os_str() != "-"
                && let Err(error) = File::open(path).and_then(|file| file.sync_all())
            {
                fail(&format!("Fail to fsync '{shown}': {}", describe(&error)));
            }
            match length {
                Some(Length::Mark(_)) => {
                    eprintln!("Transfer finished with success after {bytes} bytes");
                }
                _ => eprintln!("Transfer finished with success."),
            }
            ExitCode::SUCCESS
        }
        Err(error) => fail(&format!("Error: {}", describe(&error))),
    }
}

/// `--replica`
pub fn run(session: &mut Session) -> ExitCode {
    configure(session, &["REPLCONF", "capa", "eof"]);
    // Of no part of the data: the snapshot is thrown away.
    configure(session, &["REPLCONF", "rdb-filter-only", ""]);
    if let Err(error) = session.connected().send(&["SYNC"]).and_then(|()| follow(session)) {
        fail(&format!("Error: {}", describe(&error)));
    }
    ExitCode::SUCCESS
}

/// Throws a snapshot away and prints the commands that follow it. For after SYNC was sent.
pub fn follow(session: &mut Session) -> io::Result<()> {
    let primary = primary(session);
    let mut style = session.options.style.clone();
    style.format = Format::Csv;
    let link = session.connected();
    let length = read_length(link)?;
    match &length {
        Length::Bytes(count) => emit(
            format!("SYNC with {primary}, discarding {count} bytes of bulk transfer...\n")
                .as_bytes(),
        ),
        Length::Mark(_) => emit(
            format!("SYNC with {primary}, discarding bytes of bulk transfer until EOF marker...\n")
                .as_bytes(),
        ),
    }
    receive(link, &length, io::sink())?;
    emit(format!("SYNC done. Logging commands from {primary}.\n").as_bytes());
    loop {
        let command = link.value()?;
        emit(&style.write(&command));
    }
}

fn primary(session: &Session) -> &'static str {
    if session.options.flavor == Flavor::Redis { "master" } else { "primary" }
}

/// Sends a setting; returns whether the server knows it.
fn configure(session: &mut Session, words: &[&str]) -> bool {
    eprintln!("sending {}", words.join(" "));
    let reply = session.ask(words);
    if reply.is_error() {
        eprintln!("{} error: {}", words[..2].join(" "), reply.text_or_error());
    }
    !reply.is_error()
}

/// How the end of a snapshot is found.
#[derive(Clone, Debug)]
enum Length {
    Bytes(u64),
    Mark(Vec<u8>),
}

fn begin(link: &mut Client) -> io::Result<Length> {
    link.send(&["SYNC"])?;
    read_length(link)
}

fn read_length(link: &mut Client) -> io::Result<Length> {
    let text = loop {
        match link.line()? {
            // A primary sends empty lines while it prepares a snapshot.
            Some(line) if line.is_empty() => {}
            Some(line) => break line,
            None => drop(link.receive(None)?),
        }
    };
    if let Some(mark) = text.strip_prefix("$EOF:").filter(|mark| mark.len() == MARK) {
        return Ok(Length::Mark(mark.as_bytes().to_vec()));
    }
    match text.strip_prefix('$').and_then(|count| count.parse().ok()) {
        Some(count) => Ok(Length::Bytes(count)),
        None => Err(io::Error::other(format!("SYNC with the primary failed: {text}"))),
    }
}

/// Takes some of the bytes that have come, at most so many; waits if there are none.
fn some(link: &mut Client, most: usize) -> io::Result<Vec<u8>> {
    while link.bytes().is_empty() {
        link.receive(None)?;
    }
    let count = most.min(link.bytes().len());
    let bytes = link.bytes()[..count].to_vec();
    link.consume(count);
    Ok(bytes)
}

/// Copies a snapshot; returns how many bytes it has, with the mark that ends it.
fn receive(link: &mut Client, length: &Length, mut target: impl Write) -> io::Result<u64> {
    let mut total = 0;
    match length {
        Length::Bytes(count) => {
            while total < *count {
                let most = usize::try_from(count - total).unwrap_or(usize::MAX);
                let bytes = some(link, most)?;
                target.write_all(&bytes)?;
                total += bytes.len() as u64;
            }
        }
        Length::Mark(mark) => {
            // The last bytes are held back until it is known that they are not the mark.
            let mut held: Vec<u8> = Vec::new();
            loop {
                held.extend(some(link, usize::MAX)?);
                if held.ends_with(mark) {
                    held.truncate(held.len() - MARK);
                    target.write_all(&held)?;
                    total += (held.len() + MARK) as u64;
                    break;
                }
                let sure = held.len().saturating_sub(MARK);
                target.write_all(&held[..sure])?;
                total += sure as u64;
                held.drain(..sure);
            }
        }
    }
    target.flush()?;
    Ok(total)
}
