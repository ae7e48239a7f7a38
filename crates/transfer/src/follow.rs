//! One transfer: the snapshots of several sources into a target, then their streams, until it is
//! told to end.
//!
//! While the process lives, a source that is lost is asked for the rest of its stream. Whatever
//! else goes wrong begins the transfer again with an empty target: then it is not known which
//! requests the target has carried out, and most cannot be carried out twice.

use crate::apply::Applier;
use crate::load::Loader;
use crate::locate::{Locate, Part, open};
use crate::place::Address;
use crate::source::{Begun, Handshake, Position, Problem, Source};
use crate::target::Target;
use client::Client;
use resp::Value;
use spec::{CommandTable, NotRun};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use structs::sync::lock;

/// How long a source is tried to be found again before the transfer begins again.
const RECONNECT: Duration = Duration::from_secs(120);

/// How often the source is asked how far its stream goes, and the cluster whether its slots are
/// where they were.
const LOOK: Duration = Duration::from_millis(500);

/// Requests that are applied before the replies are waited for.
const ROUND: usize = 2000;

/// How long a server may take to say how it is.
const LIMIT: Duration = Duration::from_secs(10);

/// How far one source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransferState {
    /// Its snapshot is in the target.
    pub is_loaded: bool,
    /// Bytes of the snapshot that were read.
    pub bytes: u64,
    /// Bytes of the snapshot, 0 if they are not known.
    pub total_bytes: u64,
    /// Keys that were read.
    pub keys: u64,
    /// Keys that the source had, 0 if it is not known.
    pub total_keys: u64,
    /// Requests of the stream that the target has confirmed.
    pub requests: u64,
    /// Bytes of the stream that the target has not confirmed.
    pub behind: Option<u64>,
}

/// What a transfer and its watchers share.
#[derive(Default)]
pub struct Control {
    /// It is to be given up.
    pub is_stopped: AtomicBool,
    /// It is to end when the target has what the source has by now.
    pub is_finishing: AtomicBool,
    states: Mutex<Vec<TransferState>>,
    /// Why the last attempt ended.
    trouble: Mutex<String>,
}

impl Control {
    /// How far each source is.
    pub fn states(&self) -> Vec<TransferState> {
        lock(&self.states).clone()
    }

    /// Why the last attempt ended, empty if there was none.
    pub fn trouble(&self) -> String {
        lock(&self.trouble).clone()
    }

    /// Notes why it waits.
    pub fn note(&self, text: &str) {
        text.clone_into(&mut lock(&self.trouble));
    }

    fn update(&self, number: usize, change: impl FnOnce(&mut TransferState)) {
        if let Some(state) = lock(&self.states).get_mut(number) {
            change(state);
        }
    }
}

/// What a transfer needs.
pub struct Transfer<'a> {
    /// Where the data are.
    pub sources: &'a dyn Locate,
    /// Connects to the target.
    pub target: &'a (dyn Fn() -> Result<Target, Problem> + Sync),
    /// The commands.
    pub table: &'a CommandTable<NotRun>,
    /// The version of servers whose snapshots the target reads; empty for the oldest form.
    pub version: &'a str,
    /// See there.
    pub control: &'a Control,
}

/// What ends the application of a stream.
enum Broken {
    /// The source is lost, and everything that it has sent is in the target.
    Source(Problem),
    /// Something else.
    Other(Problem),
}

impl From<Problem> for Broken {
    fn from(problem: Problem) -> Broken {
        Broken::Other(problem)
    }
}

/// What the threads of an attempt share.
struct Attempt<'a> {
    transfer: &'a Transfer<'a>,
    parts: &'a [Part],
    /// Another source has failed.
    is_over: AtomicBool,
    /// Sources whose streams were applied as far as they went when it was told to end.
    finished: AtomicUsize,
}

impl Transfer<'_> {
    /// Makes an attempt: everything from the beginning, into a target that is empty. Returns
    /// whether it has ended as it should; otherwise it was stopped.
    ///
    /// # Errors
    /// Why it has to begin again, or cannot be done.
    pub fn run(&self) -> Result<bool, Problem> {
        let parts = self.sources.parts()?;
        *lock(&self.control.states) = vec![TransferState::default(); parts.len()];
        let attempt = Attempt {
            transfer: self,
            parts: &parts,
            is_over: AtomicBool::new(false),
            finished: AtomicUsize::new(0),
        };
        let mut first = None;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..parts.len())
                .map(|number| {
                    let attempt = &attempt;
                    scope.spawn(move || {
                        let outcome = attempt.source(number);
                        if outcome.is_err() {
                            attempt.is_over.store(true, SeqCst);
                        }
                        outcome
                    })
                })
                .collect();
            let watched = attempt.watch();
            for thread in threads {
                let outcome = thread.join().expect("a panic ends the process");
                first = first.take().or(outcome.err());
            }
            first = first.take().or(watched.err());
        });
        match first {
            Some(problem) => Err(problem),
            None => Ok(attempt.has_finished()),
        }
    }
}

impl Attempt<'_> {
    fn goes_on(&self) -> bool {
        !self.is_over.load(SeqCst) && !self.transfer.control.is_stopped.load(SeqCst)
    }

    fn has_finished(&self) -> bool {
        self.finished.load(SeqCst) == self.parts.len()
    }

    /// Looks whether the slots stay where they are, until the attempt ends.
    fn watch(&self) -> Result<(), Problem> {
        let mut looked = Instant::now();
        let is_cluster = self.parts.len() > 1;
        while self.goes_on() && !self.has_finished() {
            std::thread::sleep(Duration::from_millis(50));
            if !is_cluster || looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            // Primaries that cannot be found are looked for by those that need them.
            let moved = match self.transfer.sources.parts() {
                Ok(parts) => self.slots_differ(&parts),
                Err(problem) => matches!(problem, Problem::Moving(_)),
            };
            if moved {
                self.is_over.store(true, SeqCst);
                return Err(Problem::Again("slots of the source have moved".into()));
            }
        }
        Ok(())
    }

    fn slots_differ(&self, parts: &[Part]) -> bool {
        let slots =
            |parts: &[Part]| parts.iter().map(|part| part.slots.clone()).collect::<Vec<_>>();
        slots(parts) != slots(self.parts)
    }

    fn source(&self, number: usize) -> Result<(), Problem> {
        let part = &self.parts[number];
        let target = (self.transfer.target)()?;
        let slots = part.slots.clone().filter(|_| self.parts.len() > 1);
        let mut applier = Applier::new(target, self.transfer.table, slots);
        self.note_keys(number, part);
        let mut address = part.address.clone();
        let Some((mut source, _)) = self.begin(&address, None)? else { return Ok(()) };
        if !self.load(number, &mut source, &mut applier)? {
            return Ok(());
        }
        let (mut goal, mut reached) = (None, false);
        while self.goes_on() {
            let aim = (&mut goal, &mut reached);
            let outcome = self.stream((number, &address), &mut source, &mut applier, aim);
            match outcome {
                Ok(()) => return Ok(()),
                Err(Broken::Source(problem)) => {
                    let from = source.position().clone();
                    match self.reconnect(number, &from, &problem)? {
                        Some(again) => (source, address) = again,
                        None => return Ok(()),
                    }
                }
                Err(Broken::Other(problem)) => return Err(problem),
            }
        }
        Ok(())
    }

    fn note_keys(&self, number: usize, part: &Part) {
        // Without it there is no estimate of the time left.
        let size = open(self.transfer.sources, &part.address, LIMIT)
            .and_then(|mut link| Ok(link.ask(&["DBSIZE"])?));
        if let Ok(Value::Integer(keys)) = size {
            self.transfer.control.update(number, |state| {
                state.total_keys = u64::try_from(keys).unwrap_or(0);
            });
        }
    }

    fn begin(
        &self,
        address: &Address,
        wanted: Option<&Position>,
    ) -> Result<Option<(Source, Begun)>, Problem> {
        let at = |problem: Problem| match problem {
            Problem::Again(text) => Problem::Again(format!("{}:{}: {text}", address.0, address.1)),
            problem @ (Problem::Moving(_) | Problem::Final(_)) => problem,
        };
        let sources = self.transfer.sources;
        let (login, rules) = (sources.login(), sources.rules()?);
        let handshake = Handshake { version: self.transfer.version, snapshot_only: false };
        let source = Source::open((address, &login), rules.as_ref(), handshake);
        let mut source = source.map_err(Problem::from).map_err(at)?;
        source.ask(wanted).map_err(Problem::from).map_err(at)?;
        let begun = source.answer(&|| self.goes_on()).map_err(at)?;
        Ok(begun.map(|begun| (source, begun)))
    }

    /// Loads the snapshot. Returns whether it was loaded; otherwise it was stopped.
    fn load(
        &self,
        number: usize,
        source: &mut Source,
        applier: &mut Applier<'_>,
    ) -> Result<bool, Problem> {
        let control = self.transfer.control;
        let Some(size) = source.size(&|| self.goes_on())? else { return Ok(false) };
        if let crate::source::Size::Known(bytes) = size {
            control.update(number, |state| state.total_bytes = bytes);
        }
        let mut loader = Loader::default();
        let target = &mut applier.target;
        let mut send = |load: crate::load::Load<'_>| match load.key {
            Some(key) => target.send(target.pipe_of(key), load.db, load.words),
            None => target.send_all(load.db, load.words),
        };
        while !loader.is_done() {
            if !self.goes_on() {
                return Ok(false);
            }
            match loader.take(source.bytes(), &mut send)? {
                Some(taken) => source.consume(taken),
                None => {
                    source.receive()?;
                    let loaded = loader.loaded();
                    control.update(number, |state| {
                        (state.bytes, state.keys) = (loaded.bytes, loaded.keys);
                    });
                }
            }
        }
        while !source.end_of_snapshot(size)? {
            source.receive()?;
        }
        applier.target.settle()?;
        let loaded = loader.loaded();
        control.update(number, |state| {
            (state.bytes, state.keys, state.is_loaded) = (loaded.bytes, loaded.keys, true);
        });
        source.acknowledge(source.position().offset, true)?;
        Ok(true)
    }

    /// Applies the stream until it is told to end.
    fn stream(
        &self,
        (number, address): (usize, &Address),
        source: &mut Source,
        applier: &mut Applier<'_>,
        (goal, reached): (&mut Option<u64>, &mut bool),
    ) -> Result<(), Broken> {
        let control = self.transfer.control;
        let mut watcher: Option<Client> = None;
        let mut looked: Option<Instant> = None;
        let mut words: Vec<Range<usize>> = Vec::new();
        while self.goes_on() {
            let mut count = 0;
            while count < ROUND
                && let Some(len) = source.request(&mut words)?
            {
                let bytes = source.bytes();
                let texts: Vec<&[u8]> = words.iter().map(|place| &bytes[place.clone()]).collect();
                applier.apply(&texts)?;
                source.pass(len);
                count += 1;
            }
            applier.target.settle()?;
            let applied = source.position().offset;
            source.acknowledge(applied, false).map_err(Broken::Source)?;
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                let end = self.end_of(address, &mut watcher);
                let is_finishing = control.is_finishing.load(SeqCst);
                *goal = goal.or(end.filter(|_| is_finishing));
                let requests = applier.count;
                control.update(number, |state| {
                    state.requests = requests;
                    state.behind = end.map(|end| end.saturating_sub(applied));
                });
            }
            let has_reached = goal.is_some_and(|goal| applied >= goal);
            if has_reached && !applier.is_in_transaction() && !std::mem::replace(reached, true) {
                self.finished.fetch_add(1, SeqCst);
            }
            if self.has_finished() {
                return Ok(());
            }
            if count == 0 {
                source.receive().map_err(Broken::Source)?;
            }
        }
        Ok(())
    }

    /// Asks how far the stream of a source goes.
    fn end_of(&self, address: &Address, watcher: &mut Option<Client>) -> Option<u64> {
        if watcher.is_none() {
            *watcher = open(self.transfer.sources, address, LIMIT).ok();
        }
        let info = watcher.as_mut()?.order(&["INFO", "replication"]);
        let Ok(info) = info else {
            *watcher = None;
            return None;
        };
        let info = info.text();
        let field = |line: &str| line.strip_prefix("master_repl_offset:")?.trim_end().parse().ok();
        info.lines().find_map(field)
    }

    /// Finds the source again, and the stream where it was.
    fn reconnect(
        &self,
        number: usize,
        from: &Position,
        why: &Problem,
    ) -> Result<Option<(Source, Address)>, Problem> {
        let began = Instant::now();
        let mut last = why.text().to_owned();
        while self.goes_on() {
            self.transfer.control.update(number, |state| state.behind = None);
            let outcome = self.transfer.sources.parts().and_then(|parts| {
                if self.slots_differ(&parts) {
                    return Err(Problem::Final("slots of the source have moved".into()));
                }
                let address = parts[number].address.clone();
                let begun = self.begin(&address, Some(from))?;
                Ok(begun.map(|(source, begun)| (source, begun, address)))
            });
            match outcome {
                Ok(None) => return Ok(None),
                Ok(Some((source, Begun::Continues, address))) => {
                    return Ok(Some((source, address)));
                }
                Ok(Some((_, Begun::Full, _))) => {
                    let text = format!("the source has not kept the rest of its stream ({last})");
                    return Err(Problem::Again(text));
                }
                Err(Problem::Final(text)) => return Err(Problem::Again(text)),
                Err(Problem::Again(text) | Problem::Moving(text)) => last = text,
            }
            if began.elapsed() > RECONNECT {
                return Err(Problem::Again(format!("the source is not there: {last}")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(None)
    }
}
