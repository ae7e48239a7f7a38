//! A database that follows servers elsewhere, and the way back.

use super::places::{self, Primaries};
use super::{End, Work, estimate, ready, table};
use crate::site::Database;
use process::memory::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use transfer::follow::{Transfer, TransferState};
use transfer::locate::{self, Locate, Part, Servers, open, target};
use transfer::place::ServersUrl;
use transfer::source::Problem;
use transfer::target::Target;

/// How long an attempt that failed is waited for, at first and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// How long a server may take to say what it is.
const LIMIT: Duration = Duration::from_secs(10);

/// The version whose snapshots Dunlin reads, as servers say it.
const VERSION: &str = "9.0.0";

/// Bytes behind that count as in step.
const IN_STEP: u64 = 64 << 10;

/// What an import was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Import {
    /// The source, with its password.
    #[serde(with = "crate::sealed")]
    pub source: String,
    /// It is to end when the database has what the source has by then.
    #[serde(default)]
    pub is_finishing: bool,
}

/// What an export was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Export {
    /// The target, with its password.
    #[serde(with = "crate::sealed")]
    pub target: String,
    /// See [`Import::is_finishing`].
    #[serde(default)]
    pub is_finishing: bool,
}

/// Removes all that the target has.
fn empty(target: &mut Target) -> Result<(), Problem> {
    target.send_all(0, &[b"FLUSHALL"])?;
    target.settle()?;
    for pipe in 0..target.pipes() {
        // Old servers have no functions, and so nothing to remove.
        target.ask_all(pipe, 0, &[vec![b"FUNCTION", b"FLUSH"]])?;
    }
    Ok(())
}

impl Import {
    /// Follows the source until it is told to end.
    ///
    /// # Errors
    /// It cannot be done, or was stopped.
    pub fn run(&self, work: &Work) -> Result<(), End> {
        let servers = servers(&self.source)?;
        let database = ready(&mut work.store(), &work.database)?;
        places::fence(work, &database);
        let primaries = Primaries::new(work, &database);
        let connect = || places::target(work, &primaries);
        follow(work, &servers, &connect, VERSION)
    }
}

impl Export {
    /// Keeps the target as the database is, until it is told to end.
    ///
    /// # Errors
    /// It cannot be done, or was stopped.
    pub fn run(&self, work: &Work) -> Result<(), End> {
        let servers = servers(&self.target)?;
        let database: Database = ready(&mut work.store(), &work.database)?;
        let primaries = Primaries::new(work, &database);
        let name = work.connection_name();
        fence(&servers, &name);
        let version = version_of(&servers);
        let connect = || {
            let target = target(&servers, &name)?;
            work.check_owner().map_err(|problem| Problem::Again(problem.to_string()))?;
            Ok(target)
        };
        follow(work, &primaries, &connect, &version)
    }
}

fn servers(text: &str) -> Result<Servers, End> {
    ServersUrl::parse(text).and_then(Servers::new).map_err(End::Failed)
}

/// Closes the connections of a node that had the job before.
fn fence(servers: &Servers, name: &str) {
    let close = |part: &Part| -> Result<(), Problem> {
        let mut link = open(servers, &part.address, LIMIT)?;
        let clients = link.ask(&["CLIENT", "LIST"])?.text();
        let name = format!(" name={name} ");
        for line in clients.lines().filter(|line| line.contains(&name)) {
            let id = line.split(' ').find_map(|field| field.strip_prefix("id="));
            link.ask(&["CLIENT", "KILL", "ID", id.unwrap_or("0")])?;
        }
        Ok(())
    };
    // The attempts meet whatever is wrong here again, and say so.
    let _ = servers.parts().and_then(|parts| parts.iter().try_for_each(close));
}

/// Returns the version to name to sources so that their snapshots can be loaded by the target: that
/// of Valkey 9 if the target knows what it brought, otherwise none.
fn version_of(servers: &Servers) -> String {
    let ask = || -> Result<String, Problem> {
        let parts = servers.parts()?;
        let mut link = open(servers, &parts[0].address, LIMIT)?;
        Ok(link.ask(&["INFO", "server"])?.text())
    };
    let info = ask().unwrap_or_default();
    let field = |name: &str| crate::talk::field(&info, name).map(str::to_owned);
    let valkey = field("valkey_version").unwrap_or_default();
    let major = valkey.split('.').next().and_then(|text| text.parse::<u32>().ok());
    let is_ours = field("dunlin_version").is_some();
    if is_ours || major.is_some_and(|major| major >= 9) { VERSION.into() } else { String::new() }
}

/// Makes attempts until one ends well.
fn follow(
    work: &Work,
    sources: &dyn Locate,
    connect: &(dyn Fn() -> Result<Target, Problem> + Sync),
    version: &str,
) -> Result<(), End> {
    let control = &work.desk.control;
    let mut wait = BACK_OFF.0;
    let table = table()?;
    loop {
        if work.desk.is_stopped() {
            return Err(End::Stopped);
        }
        let began = Instant::now();
        let is_over = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let (percent, text) = describe(&control.states(), &control.trouble(), began);
                    work.desk.say(percent, text);
                    std::thread::sleep(Duration::from_millis(200));
                }
            });
            let outcome = attempt(work, sources, connect, (table, version));
            is_over.store(true, SeqCst);
            outcome
        });
        match outcome {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(End::Stopped),
            Err(Problem::Final(text)) => return Err(End::Failed(text)),
            Err(Problem::Again(text) | Problem::Moving(text)) => {
                process::log!(Warning, "Job {} begins again: {text}", work.id);
                work.desk.say(0, format!("it begins again: {text}"));
                control.note(&text);
                if began.elapsed() > Duration::from_secs(60) {
                    wait = BACK_OFF.0;
                }
                work.desk.pause(wait)?;
                wait = (wait * 2).min(BACK_OFF.1);
            }
        }
    }
}

fn attempt(
    work: &Work,
    sources: &dyn Locate,
    connect: &(dyn Fn() -> Result<Target, Problem> + Sync),
    (table, version): (&'static spec::CommandTable<spec::NotRun>, &str),
) -> Result<bool, Problem> {
    // A source that is not there, or that has what the target cannot take, must not cost the target
    // what it has.
    let parts = sources.parts()?;
    let databases = locate::keyspace(sources, &parts, LIMIT)?.into_keys().collect();
    let mut target = connect()?;
    target.check_databases(&databases)?;
    empty(&mut target)?;
    drop(target);
    let control = &work.desk.control;
    Transfer { sources, target: connect, table, version, control }.run()
}

/// Says how far all sources are together.
fn describe(states: &[TransferState], trouble: &str, began: Instant) -> (u8, String) {
    let again = match trouble {
        "" => String::new(),
        text => format!(" (begun again: {text})"),
    };
    let sum = |of: fn(&TransferState) -> u64| states.iter().map(of).sum::<u64>();
    let (bytes, keys, all_keys) = (sum(|it| it.bytes), sum(|it| it.keys), sum(|it| it.total_keys));
    let waiting = states.iter().filter(|it| !it.is_loaded).count();
    if states.is_empty() || waiting > 0 {
        let (percent, left) = estimate(keys, all_keys, began);
        let of = if all_keys > 0 { format!(" of {all_keys}") } else { String::new() };
        let text = format!("loads: {keys}{of} keys, {}{left}{again}", Bytes(bytes));
        return (percent.min(98), text);
    }
    let requests = sum(|it| it.requests);
    let behind: Option<u64> = states.iter().map(|it| it.behind).sum();
    let text = match behind {
        None => format!("the source is looked for{again}"),
        Some(behind) if behind <= IN_STEP => format!(
            "in step, {behind} bytes behind: {keys} keys, {requests} writes since. Stop the writers or lead them over, \
             then finish it{again}"
        ),
        Some(behind) => {
            format!(
                "follows, {} behind: {keys} keys, {requests} writes since{again}",
                Bytes(behind)
            )
        }
    };
    (99, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_when_to_switch() {
        let loading = TransferState { keys: 5, total_keys: 10, ..TransferState::default() };
        let (percent, text) = describe(&[loading], "", Instant::now());
        assert!(percent == 50 && text.starts_with("loads: 5 of 10 keys"), "{text}");
        let done = TransferState { is_loaded: true, behind: Some(14), ..loading };
        assert!(describe(&[done], "", Instant::now()).1.starts_with("in step, 14 bytes behind"));
        assert!(describe(&[done, loading], "x", Instant::now()).1.ends_with("(begun again: x)"));
        let lost = TransferState { behind: None, ..done };
        assert!(
            describe(&[done, lost], "", Instant::now()).1.starts_with("the source is looked for")
        );
    }
}
