//! Runs many scripts: finds them, keeps a server for those that can share one, cleans it between.

use super::run::{Place, check};
use super::{Action, Script};
use crate::client::Client;
use crate::notation::print;
use crate::reply::{Protocol, Reply};
use crate::server::{Backend, Options, Program, Server, repository};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// All scripts of the repository whose path contains `filter`, in order.
pub fn scripts(filter: &str) -> Vec<PathBuf> {
    fn visit(folder: &Path, found: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "test") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(&repository().join("tests/commands"), &mut found);
    found.retain(|path| path.to_string_lossy().contains(filter));
    found.sort();
    found
}

/// A place to run scripts: a program, an I/O back-end, and a running server for all the scripts
/// that do not ask for one of their own.
pub struct Stage {
    program: Program,
    backend: Option<Backend>,
    shared: Option<Shared>,
}

struct Shared {
    server: Server,
    /// The configuration at the start, to return to after a script that changes it.
    config: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Stage {
    /// A stage without a server yet.
    pub fn new(program: Program, backend: Option<Backend>) -> Stage {
        Stage { program, backend, shared: None }
    }

    /// Runs one script under one protocol.
    pub fn check(&mut self, script: &Script, protocol: Protocol) -> Result<(), String> {
        if script.only.is_some_and(|only| only != protocol) {
            return Ok(());
        }
        let result = self.with_server(script, |server| check(script, server, protocol)).flatten();
        // Only Dunlin is known to fail: the reference passes, or the script is wrong.
        match (&script.fails, result) {
            (Some(_), Err(_)) if self.program.is_dunlin() => Ok(()),
            (Some(reason), Ok(())) if self.program.is_dunlin() => Err(format!(
                "{}: passes now; remove the line `# fails: {reason}` from it",
                script.path.display()
            )),
            (_, result) => result,
        }
    }

    /// Calls `act` with the server the script asks for: its own, or the shared one made clean.
    pub fn with_server<T>(
        &mut self,
        script: &Script,
        act: impl FnOnce(&mut Server) -> T,
    ) -> Result<T, String> {
        let complain = |error: io::Error| format!("{}: {error}", script.path.display());
        if script.needs_own_server() {
            let options = Options {
                arguments: script.server.clone().unwrap_or_default(),
                config: script.config.clone(),
                backend: self.backend,
            };
            let mut server = Server::start(&self.program, options).map_err(complain)?;
            return Ok(act(&mut server));
        }
        let mut shared = match self.shared.take() {
            Some(shared) => shared,
            None => Shared::start(&self.program, self.backend).map_err(complain)?,
        };
        let result = act(&mut shared.server);
        match shared.clean() {
            Ok(()) => self.shared = Some(shared),
            // Most likely the script has killed it: the next one gets a new server.
            Err(error) => {
                return Err(format!(
                    "{}: after this script the server is gone ({error}); its log:\n{}",
                    script.path.display(),
                    shared.server.log()
                ));
            }
        }
        Ok(result)
    }
}

impl Shared {
    fn start(program: &Program, backend: Option<Backend>) -> io::Result<Shared> {
        let server = Server::start(program, Options { backend, ..Options::default() })?;
        let config = configuration(&mut server.connect(Protocol::Resp2)?)?;
        Ok(Shared { server, config })
    }

    fn clean(&mut self) -> io::Result<()> {
        clean(&mut self.server, &self.config)
    }
}

/// Makes the next script find nothing of the last one; `before` is the configuration to return to.
pub fn clean(place: &mut dyn Place, before: &[(Vec<u8>, Vec<u8>)]) -> io::Result<()> {
    let mut client = place.connect()?;
    for request in [
        &["CLIENT", "UNPAUSE"][..],
        &["FLUSHALL"],
        &["SLOWLOG", "RESET"],
        &["LATENCY", "RESET"],
        &["DEBUG", "SET-ACTIVE-EXPIRE", "1"],
    ] {
        client.command(request)?;
    }
    for (name, value) in configuration(&mut client)? {
        let before = before.iter().find(|(known, _)| *known == name);
        if let Some((_, before)) = before.filter(|(_, before)| *before != value) {
            let request = [b"CONFIG", &b"SET"[..], &name, before];
            let reply = client.command(&request)?;
            if reply.is_error() {
                let name = String::from_utf8_lossy(&name).into_owned();
                return Err(io::Error::other(format!("{name}: {}", print(&reply))));
            }
        }
    }
    client.command(&["CONFIG", "RESETSTAT"])?;
    // Connections the script left are closed by the server when it gets to it.
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        match client.command(&["CLIENT", "LIST"])? {
            Reply::Bulk(list) if list.iter().filter(|byte| **byte == b'\n').count() > 1 => {
                place.pass(Duration::from_millis(1));
            }
            _ => break,
        }
    }
    // This connection must not be in the next script's CLIENT LIST either.
    client.command(&["QUIT"])?;
    client.expect_closed()
}

/// All options and their values.
pub fn configuration(client: &mut Client) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let reply = client.command(&["CONFIG", "GET", "*"])?;
    let words: Vec<Vec<u8>> = reply
        .elements()
        .unwrap_or_default()
        .iter()
        .map(|item| item.text().unwrap_or_default().to_vec())
        .collect();
    Ok(words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

/// The commands and, as `container|subcommand`, the subcommands that scripts ask for, in lower
/// case.
pub fn commands_used(scripts: &[Script]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for step in scripts.iter().flat_map(|script| &script.steps) {
        let request = match &step.action {
            Action::Ask { request, .. }
            | Action::Retry { request, .. }
            | Action::Send { request, .. } => request.to_ascii_lowercase(),
            _ => continue,
        };
        let mut words = request.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        if let Some(second) = words.next() {
            used.insert(format!("{name}|{second}"));
        }
        used.insert(name);
    }
    used
}
