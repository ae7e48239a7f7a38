//! What databases and machines did: samples of the last day of each, in bounded memory.
//!
//! Each node asks all copies of the cluster, so the console of any of them has the history. A node
//! asks a few copies a second: with many copies the samples are further apart.

use crate::shared::Shared;
use crate::site::{Database, Placed, Site, Stage};
use crate::talk;
use cluster::id::Id;
use console::samples::{Fold, History, Sample, Samples};
use metrics::info::Fields;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use structs::sync::lock;

/// The least time between two looks at all copies.
const LOOK: Duration = Duration::from_secs(10);

/// Copies that are asked in a second.
const MOST_A_SECOND: u32 = 10;

/// Copies that are asked at a time.
const AT_A_TIME: usize = 8;

/// How often the thread looks whether it is to end.
const STEP: Duration = Duration::from_millis(100);

/// How long a copy that does not answer counts as it was, if that is longer than two looks.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// Machines and databases that have a history: it takes about a hundred kilobytes.
const MAX_SUBJECTS: usize = 500;

/// Seconds between the samples of a ring, and how many it keeps: an hour, and a day.
const RINGS: [(u64, usize); 2] = [(10, 360), (60, 1440)];

/// What a sample has: names, units, and how samples are joined.
const COLUMNS: [(&str, &str, Fold); 7] = [
    ("commands", "1/s", Fold::Mean),
    ("memory", "bytes", Fold::Mean),
    ("memory_limit", "bytes", Fold::Mean),
    ("clients", "", Fold::Mean),
    ("keys", "", Fold::Mean),
    ("cpu", "cores", Fold::Mean),
    ("lag", "bytes", Fold::Max),
];

/// What a history is of. Machines come first: there are fewer of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// A machine.
    Machine(String),
    /// A database.
    Database(String),
}

/// See the head of this file.
#[derive(Clone, Default)]
pub struct Figures(Arc<Mutex<BTreeMap<Subject, Arc<History>>>>);

impl Figures {
    /// The samples of the last so many seconds. `None`: there is none yet.
    pub fn window(&self, of: &Subject, seconds: u64) -> Option<Samples> {
        let history = lock(&self.0).get(of).map(Arc::clone)?;
        let columns = COLUMNS.iter().map(|(name, unit, _)| (*name, *unit));
        Some(history.answer(seconds, now(), columns))
    }

    /// Returns why there are no samples of one that has no history.
    pub fn absence(&self) -> String {
        match lock(&self.0).len() {
            MAX_SUBJECTS.. => format!(
                "Only {MAX_SUBJECTS} machines and databases have samples, machines before databases"
            ),
            _ => "There are no samples yet: copies are asked every ten seconds".to_owned(),
        }
    }

    /// Adds a sample. If all histories are taken, the last database makes way for a machine.
    fn add(&self, of: Subject, values: Vec<f32>) {
        let mut all = lock(&self.0);
        if all.len() >= MAX_SUBJECTS && !all.contains_key(&of) {
            let last = all.last_key_value().map(|(last, _)| last);
            let gives_way =
                matches!((&of, last), (Subject::Machine(_), Some(Subject::Database(_))));
            if !gives_way {
                return;
            }
            all.pop_last();
        }
        let make = || {
            let folds = COLUMNS.iter().map(|(.., fold)| *fold).collect();
            Arc::new(History::new(folds, &RINGS))
        };
        all.entry(of).or_insert_with(make).add(&Sample { at: now(), values });
    }

    /// Forgets what the site does not have any more.
    fn keep(&self, site: &Site) {
        lock(&self.0).retain(|subject, _| match subject {
            Subject::Database(name) => site.databases.contains_key(name),
            Subject::Machine(name) => site.machines.contains_key(name),
        });
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Asks all copies now and again until `is_over`.
pub fn watch(shared: &Shared, figures: &Figures, is_over: &AtomicBool) {
    let mut heard = Heard::default();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let site = shared.site();
        let asked = look(&site, figures, &mut heard, is_over);
        figures.keep(&site);
        let period = LOOK.max(Duration::from_secs(1) * asked / MOST_A_SECOND);
        while began.elapsed() < period && !is_over.load(Ordering::Relaxed) {
            sleep(STEP);
        }
        heard.period = began.elapsed();
    }
}

/// What a copy, a database or a machine does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Load {
    commands: f64,
    memory: f64,
    memory_limit: f64,
    clients: f64,
    keys: f64,
    /// Processors; in what a copy says of itself their seconds since it has started.
    cpu: f64,
    lag: f64,
}

impl Load {
    /// Adds a copy, which has used so many processors. Replicas run what their primaries do and
    /// have the same keys: a database counts those of its primaries, a machine what its processes
    /// do.
    fn add(&mut self, said: Said, cores: f64, is_of_machine: bool) {
        let Said { is_primary, load } = said;
        if is_primary || is_of_machine {
            self.commands += load.commands;
            self.memory += load.memory;
            self.memory_limit += load.memory_limit;
            self.keys += load.keys;
        }
        self.clients += load.clients;
        self.cpu += cores;
        self.lag = self.lag.max(load.lag);
    }

    /// The values of a sample, in the order of [`COLUMNS`].
    fn values(&self) -> Vec<f32> {
        let Load { commands, memory, memory_limit, clients, keys, cpu, lag } = *self;
        [commands, memory, memory_limit, clients, keys, cpu, lag].map(|it| it as f32).to_vec()
    }
}

/// What a copy says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Said {
    is_primary: bool,
    load: Load,
}

impl Said {
    fn read(info: &str) -> Said {
        let fields = Fields::parse(info);
        let number = |name: &str| fields.text(name).parse::<f64>().unwrap_or_default();
        let is_primary = fields.text("role") == "master";
        let lag = number("slave_read_repl_offset") - number("slave_repl_offset");
        let load = Load {
            commands: number("instantaneous_ops_per_sec"),
            memory: number("used_memory"),
            memory_limit: number("maxmemory"),
            clients: number("connected_clients"),
            keys: fields
                .databases()
                .filter_map(|(_, line)| metrics::info::number(line, "keys"))
                .sum(),
            cpu: number("used_cpu_user") + number("used_cpu_sys"),
            lag: if is_primary { 0.0 } else { lag.max(0.0) },
        };
        Said { is_primary, load }
    }
}

/// What a copy has said last.
#[derive(Clone, Copy)]
struct Known {
    at: Instant,
    said: Said,
    /// Processors that it has used since it was asked before.
    cores: f64,
}

/// What copies have said.
#[derive(Default)]
struct Heard {
    copies: HashMap<Id, Known>,
    /// From the look before to this one.
    period: Duration,
}

impl Heard {
    /// Notes what a copy says, and returns what counts: one that does not answer is what it was,
    /// for a while.
    fn note(&mut self, copy: Id, said: Option<Said>, now: Instant) -> Option<(Said, f64)> {
        let before = self.copies.get(&copy).copied();
        let since = |known: &Known| now.saturating_duration_since(known.at);
        let Some(said) = said else {
            let silence = MAX_SILENCE.max(2 * self.period);
            let known = before.filter(|known| since(known) <= silence);
            return known.map(|known| (known.said, known.cores));
        };
        let cores = before.map_or(0.0, |known| {
            // A copy that was started again begins anew.
            ((said.load.cpu - known.said.load.cpu) / since(&known).as_secs_f64().max(0.001))
                .max(0.0)
        });
        self.copies.insert(copy, Known { at: now, said, cores });
        Some((said, cores))
    }
}

/// Asks all copies. Returns how many.
fn look(site: &Site, figures: &Figures, heard: &mut Heard, is_over: &AtomicBool) -> u32 {
    let ready = site.databases.iter().filter(|(_, at)| at.value.stage == Stage::Ready);
    let copies: Vec<(&String, &Database, &Placed)> = ready
        .flat_map(|(name, at)| at.value.copies.iter().map(move |it| (name, &at.value, it)))
        .filter(|(.., placed)| !placed.is_leaving && site.is_alive(&placed.machine))
        .collect();
    let mut sums: BTreeMap<Subject, Load> = BTreeMap::new();
    for some in copies.chunks(AT_A_TIME) {
        if is_over.load(Ordering::Relaxed) {
            return 0;
        }
        for (&(name, _, placed), said) in some.iter().zip(ask(some)) {
            let Some((said, cores)) = heard.note(placed.copy, said, Instant::now()) else {
                continue;
            };
            let (database, machine) =
                (Subject::Database(name.clone()), Subject::Machine(placed.machine.clone()));
            sums.entry(database).or_default().add(said, cores, false);
            sums.entry(machine).or_default().add(said, cores, true);
        }
    }
    heard.copies.retain(|copy, _| copies.iter().any(|(.., placed)| placed.copy == *copy));
    for (subject, sums) in sums {
        figures.add(subject, sums.values());
    }
    copies.len().try_into().unwrap_or(u32::MAX)
}

/// Asks copies at the same time. One that does not answer says nothing.
fn ask(copies: &[(&String, &Database, &Placed)]) -> Vec<Option<Said>> {
    talk::side_by_side(copies, |(_, database, placed)| {
        let address = (&*placed.host, placed.port);
        let info = talk::info(address, database.login(), &["everything"], talk::ANSWER);
        info.ok().as_deref().map(Said::read)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::with_database;

    const PRIMARY: &str = "role:master\r\ninstantaneous_ops_per_sec:10\r\nused_memory:100\r\n\
        maxmemory:1000\r\nconnected_clients:3\r\nused_cpu_user:1.5\r\nused_cpu_sys:0.5\r\n\
        # Keyspace\r\ndb0:keys=5,expires=1\r\ndb3:keys=2,expires=0\r\n";
    const REPLICA: &str = "role:slave\r\ninstantaneous_ops_per_sec:9\r\nused_memory:90\r\n\
        slave_read_repl_offset:50\r\nslave_repl_offset:20\r\nconnected_clients:1\r\n\
        db0:keys=7,expires=1\r\n";

    #[test]
    fn a_database_counts_its_primaries_and_a_machine_its_processes() {
        let (primary, replica) = (Said::read(PRIMARY), Said::read(REPLICA));
        let (mut database, mut machine) = (Load::default(), Load::default());
        for said in [primary, replica] {
            database.add(said, 0.25, false);
            machine.add(said, 0.25, true);
        }
        assert_eq!(database.values(), [10.0, 100.0, 1000.0, 4.0, 7.0, 0.5, 30.0]);
        assert_eq!(machine.values(), [19.0, 190.0, 1000.0, 4.0, 14.0, 0.5, 30.0]);
    }

    #[test]
    fn processors_are_counted_from_one_look_to_the_next() {
        let (mut heard, began) = (Heard::default(), Instant::now());
        let copy = "1".repeat(40).parse().expect("an id");
        let mut look = |cpu, after| {
            let load = Load { cpu, ..Load::default() };
            let said = Some(Said { is_primary: true, load });
            heard.note(copy, said, began + Duration::from_secs(after)).map(|(_, cores)| cores)
        };
        assert_eq!(look(100.0, 0), Some(0.0), "nothing is known of before");
        assert_eq!(look(105.0, 10), Some(0.5));
        assert_eq!(look(1.0, 20), Some(0.0), "it was started again");
    }

    #[test]
    fn a_copy_that_does_not_answer_is_what_it_was_for_a_while() {
        let (mut heard, began) = (Heard::default(), Instant::now());
        let copy = "1".repeat(40).parse().expect("an id");
        let load = Load { memory: 7.0, ..Load::default() };
        let said = Said { is_primary: true, load };
        assert_eq!(heard.note(copy, None, began), None);
        assert_eq!(heard.note(copy, Some(said), began), Some((said, 0.0)));
        assert_eq!(heard.note(copy, None, began + MAX_SILENCE), Some((said, 0.0)));
        let late = began + MAX_SILENCE + Duration::from_secs(1);
        assert_eq!(heard.note(copy, None, late), None);
        heard.period = MAX_SILENCE;
        assert_eq!(heard.note(copy, None, late), Some((said, 0.0)), "one look has failed");
        assert_eq!(heard.note(copy, None, late + MAX_SILENCE), None);
    }

    #[test]
    fn what_the_site_does_not_have_any_more_is_forgotten() {
        let (site, _) = with_database(Stage::Ready);
        let figures = Figures::default();
        let of = |name: &str| Subject::Database(name.into());
        figures.add(of("d"), vec![1.0; COLUMNS.len()]);
        figures.add(of("gone"), vec![1.0; COLUMNS.len()]);
        figures.add(Subject::Machine("a".into()), vec![1.0; COLUMNS.len()]);
        figures.keep(&site);
        assert!(figures.window(&of("gone"), 60).is_none());
        assert!(figures.window(&of("d"), 60).is_some());
        assert!(figures.window(&Subject::Machine("a".into()), 60).is_some());
    }

    #[test]
    fn the_number_of_histories_is_bounded() {
        let figures = Figures::default();
        let add = |of: Subject| figures.add(of, vec![0.0; COLUMNS.len()]);
        add(Subject::Database("0".into()));
        assert!(figures.absence().contains("no samples yet"));
        for number in 0..2 * MAX_SUBJECTS {
            add(Subject::Database(number.to_string()));
        }
        assert_eq!(lock(&figures.0).len(), MAX_SUBJECTS);
        assert!(figures.absence().starts_with("Only 500 "), "{}", figures.absence());
        for number in 0..2 * MAX_SUBJECTS {
            add(Subject::Machine(number.to_string()));
        }
        let all = lock(&figures.0);
        assert_eq!(all.len(), MAX_SUBJECTS);
        assert!(all.keys().all(|of| matches!(of, Subject::Machine(_))), "they come first");
    }
}
