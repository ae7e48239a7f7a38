//! Requests of a stream at a target that has several shards.
//!
//! A request goes out as it came if its keys are on one shard. What can be split by its keys is cut.
//! Anything else whose keys are on several shards is carried out with copies of its keys on one of
//! them, whose results are brought back: the target has no other writer that could come
//! between. A transaction whose keys are on one shard stays one; another is cut into its requests.
//!
//! Only writes are applied. What is done with each, its command's row says (`spec::Applied`). A
//! source is a server of somebody else, and the target takes the requests as those of a user that
//! may do everything.

use crate::source::Problem;
use crate::target::Target;
use resp::Value;
use route::slots::{self, SLOTS};
use spec::keys::for_each_key;
use spec::{Applied, CommandTable, Databases, KeyFlags, NotRun, Resolved, Streamed, Way};
use std::collections::BTreeSet;

/// Keys that SCAN is asked for at a time.
const SCAN_COUNT: &[u8] = b"1000";

/// Slots as ranges, both ends included.
pub type Ranges = Vec<(u16, u16)>;

/// A request, owned.
type Words = Vec<Vec<u8>>;

/// See the head of this file.
pub struct Applier<'a> {
    /// Where requests go.
    pub target: Target,
    table: &'a CommandTable<NotRun>,
    db: u32,
    transaction: Option<Vec<(u32, Words)>>,
    /// The source's slots, if there are other sources: FLUSHALL concerns these only.
    slots: Option<Ranges>,
    /// Requests of the stream that were applied.
    pub count: u64,
}

/// A key of a request: the place of its word, and whether it is written.
type Key = (usize, bool);

fn refs(words: &Words) -> Vec<&[u8]> {
    words.iter().map(Vec::as_slice).collect()
}

/// Returns a text whose slot is that of the key.
fn tag(key: &[u8]) -> String {
    let slot = slots::of(key);
    let texts = (0..1_000_000_u32).map(|number| number.to_string());
    texts.into_iter().find(|text| slots::of(text.as_bytes()) == slot).unwrap_or_default()
}

impl<'a> Applier<'a> {
    /// For the stream of a source that has these slots, if there are others.
    pub fn new(
        target: Target,
        table: &'a CommandTable<NotRun>,
        slots: Option<Ranges>,
    ) -> Applier<'a> {
        Applier { target, table, db: 0, transaction: None, slots, count: 0 }
    }

    /// Whether a transaction has begun in the stream and not ended.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Applies a request of the stream.
    ///
    /// # Errors
    /// The target refuses something, or the request cannot be carried out there.
    pub fn apply(&mut self, words: &[&[u8]]) -> Result<(), Problem> {
        let Some(name) = words.first() else { return Ok(()) };
        let row = match self.row(words) {
            Ok(row) => row,
            // What is passed over may have subcommands that are not known here.
            Err(_) if self.table.find(name).is_some_and(|it| it.applied == Applied::Skip) => {
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
        match row.applied {
            Applied::Select => {
                let db = words.get(1).and_then(|word| parsed(word));
                self.db = db.ok_or_else(|| Problem::Again("SELECT without a number".into()))?;
                Ok(())
            }
            Applied::Skip => Ok(()),
            Applied::Refuse => Err(refusal(row)),
            Applied::Begin => {
                self.transaction = Some(Vec::new());
                Ok(())
            }
            Applied::End => match self.transaction.take() {
                Some(requests) => self.execute(&requests),
                None => Ok(()),
            },
            Applied::AtKeys
            | Applied::AtEach
            | Applied::FlushAll
            | Applied::FlushDatabase
            | Applied::FlushSlot
            | Applied::SwapDatabases
            | Applied::LoadLibrary
            | Applied::DeleteLibrary => {
                self.check_databases(row.command.databases, words)?;
                self.count += 1;
                match &mut self.transaction {
                    Some(requests) => {
                        requests.push((self.db, words.iter().map(|word| word.to_vec()).collect()));
                        Ok(())
                    }
                    None => self.single(self.db, words),
                }
            }
        }
    }

    /// Carries out a request outside of transactions.
    fn single(&mut self, db: u32, words: &[&[u8]]) -> Result<(), Problem> {
        let row = self.row(words)?;
        if let Some(done) = self.for_all(row, db, words) {
            return done;
        }
        let keys = self.keys(words)?;
        let texts: Vec<&[u8]> = keys.iter().map(|(at, _)| words[*at]).collect();
        let Some(first) = texts.first() else {
            return match self.target.pipes() {
                1 => self.target.send(0, db, words),
                _ => Err(Problem::Final(format!(
                    "{} without keys cannot be sent to a cluster",
                    words[0].escape_ascii()
                ))),
            };
        };
        if self.target.are_together(&texts) {
            let pipe = self.target.pipe_of(first);
            return self.target.send(pipe, db, words);
        }
        if let Way::Split { groups, .. } = row.way_of(words)
            && let Some(range) = groups.words(words)
        {
            return words[range].chunks_exact(groups.step()).try_for_each(|group| {
                let pipe = self.target.pipe_of(group[0]);
                let sent = groups.piece(words, group, |piece| self.target.send(pipe, db, piece));
                sent.unwrap_or(Ok(()))
            });
        }
        self.across(db, words, &keys)
    }

    /// Carries out what concerns all shards. Returns `None` if it is something else.
    fn for_all(
        &mut self,
        row: &Resolved<NotRun>,
        db: u32,
        words: &[&[u8]],
    ) -> Option<Result<(), Problem>> {
        Some(match row.applied {
            Applied::FlushAll => self.flush(None),
            Applied::FlushDatabase => self.flush(Some(db)),
            Applied::FlushSlot => self.flush_slot(words),
            Applied::LoadLibrary => {
                let source = words.last().copied().unwrap_or_default();
                self.target.send_all(db, &[words[0], b"LOAD", b"REPLACE", source])
            }
            // The second time there is nothing left.
            Applied::DeleteLibrary if self.slots.is_some() => self.settle_and(|target| {
                for pipe in 0..target.pipes() {
                    target.ask_all(pipe, db, &[words.to_vec()])?;
                }
                Ok(())
            }),
            Applied::SwapDatabases if self.slots.is_some() || self.target.pipes() > 1 => Err(
                Problem::Final("the source has swapped databases, which a cluster cannot".into()),
            ),
            Applied::AtEach | Applied::DeleteLibrary | Applied::SwapDatabases => {
                self.target.send_all(db, words)
            }
            Applied::AtKeys
            | Applied::Select
            | Applied::Begin
            | Applied::End
            | Applied::Skip
            | Applied::Refuse => return None,
        })
    }

    fn settle_and(
        &mut self,
        work: impl FnOnce(&mut Target) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        self.target.settle()?;
        work(&mut self.target)
    }

    /// Removes all keys of the source, of one database or of all.
    fn flush(&mut self, db: Option<u32>) -> Result<(), Problem> {
        let Some(slots) = self.slots.clone() else {
            let command: &[u8] = if db.is_some() { b"FLUSHDB" } else { b"FLUSHALL" };
            return self.target.send_all(db.unwrap_or(0), &[command]);
        };
        self.flush_slots(db, &slots)
    }

    /// Removes all keys of one slot of the source, from all databases: CLUSTER FLUSHSLOT.
    fn flush_slot(&mut self, words: &[&[u8]]) -> Result<(), Problem> {
        let slot = words.get(2).and_then(|word| parsed(word));
        let slot = slot.filter(|slot: &u16| usize::from(*slot) < SLOTS).ok_or_else(|| {
            Problem::Final("the source sends CLUSTER FLUSHSLOT of a slot that is none".into())
        })?;
        self.flush_slots(None, &vec![(slot, slot)])
    }

    /// Removes the keys of some slots, of one database or of all.
    fn flush_slots(&mut self, db: Option<u32>, slots: &Ranges) -> Result<(), Problem> {
        self.target.settle()?;
        for pipe in 0..self.target.pipes() {
            // What this source has is in databases that its stream has named.
            let databases = db.map_or_else(|| self.target.databases(pipe), |db| [db].into());
            for db in databases {
                self.flush_slots_of(pipe, db, slots)?;
            }
        }
        self.target.settle()
    }

    /// Removes the keys of some slots from a database of a shard.
    fn flush_slots_of(&mut self, pipe: usize, db: u32, slots: &Ranges) -> Result<(), Problem> {
        let mut cursor = b"0".to_vec();
        loop {
            let reply = self.target.ask(pipe, db, &[b"SCAN", &cursor, b"COUNT", SCAN_COUNT])?;
            let nonsense = || Problem::Again("the target's answer to SCAN makes no sense".into());
            let [Value::Bulk(next), keys] = reply.items() else { return Err(nonsense()) };
            for key in keys.items().iter().filter_map(Value::bytes) {
                let slot = slots::of(key);
                if slots.iter().any(|(first, last)| (*first..=*last).contains(&slot)) {
                    self.target.send(pipe, db, &[b"UNLINK", key])?;
                }
            }
            cursor.clone_from(next);
            if cursor == b"0" {
                return Ok(());
            }
        }
    }

    fn row(&self, words: &[&[u8]]) -> Result<&'a Resolved<NotRun>, Problem> {
        self.table.resolve_logged(words).map_err(|why| {
            let text = String::from_utf8_lossy(&why.line()).into_owned();
            Problem::Final(format!("the source sends a command that is not known here: {text}"))
        })
    }

    /// Makes sure that the target has the databases that a request names (MOVE, COPY, SWAPDB).
    fn check_databases(&mut self, of_row: Databases, words: &[&[u8]]) -> Result<(), Problem> {
        let Databases::Named(find) = of_row else { return Ok(()) };
        let mut named = BTreeSet::new();
        find(words, &mut |at| named.extend(words.get(at).and_then(|word| parsed::<u32>(word))));
        self.target.check_databases(&named)
    }

    fn keys(&self, words: &[&[u8]]) -> Result<Vec<Key>, Problem> {
        let row = self.row(words)?;
        let mut keys: Vec<Key> = Vec::new();
        let found = for_each_key(row.command, words, |at, flags| {
            keys.push((at, !flags.has(KeyFlags::RO)));
        });
        match found {
            Ok(()) => Ok(keys),
            Err(_) => Err(Problem::Final(format!(
                "the source sends {} with keys that make no sense",
                row.full_name
            ))),
        }
    }

    /// Carries out a transaction.
    fn execute(&mut self, requests: &[(u32, Words)]) -> Result<(), Problem> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut is_plain = true;
        for (_, words) in requests {
            let words = refs(words);
            is_plain &= self.row(&words)?.applied == Applied::AtKeys;
            keys.extend(self.keys(&words)?.into_iter().map(|(at, _)| words[at].to_vec()));
        }
        let dbs_differ = requests.iter().any(|(db, _)| *db != requests[0].0);
        let texts = refs(&keys);
        let one_by_one = |it: &mut Self| {
            requests.iter().try_for_each(|(db, words)| it.single(*db, &refs(words)))
        };
        let ([(db, _), _, ..], Some(first), true, false) =
            (requests, texts.first(), is_plain, dbs_differ)
        else {
            return one_by_one(self);
        };
        let pipe = self.target.pipe_of(first);
        if self.target.are_together(&texts) {
            self.target.send(pipe, *db, &[b"MULTI"])?;
            for (_, words) in requests {
                self.target.send(pipe, *db, &refs(words))?;
            }
            return self.target.send(pipe, *db, &[b"EXEC"]);
        }
        if !self.target.may_be_together() {
            return one_by_one(self);
        }
        let mut all: Vec<Vec<&[u8]>> = vec![vec![b"MULTI"]];
        all.extend(requests.iter().map(|(_, words)| refs(words)));
        all.push(vec![b"EXEC"]);
        self.target.settle()?;
        let replies = self.target.ask_all(pipe, *db, &all)?;
        match replies.iter().find_map(Value::refusal) {
            None => Ok(()),
            Some(text) if text.starts_with("CROSSSLOT") => one_by_one(self),
            Some(text) => Err(Problem::Final(format!("the target refuses a transaction: {text}"))),
        }
    }

    /// Carries out a request whose keys are on several shards. See the head of this file.
    fn across(&mut self, db: u32, words: &[&[u8]], keys: &[Key]) -> Result<(), Problem> {
        self.target.settle()?;
        if self.target.may_be_together() {
            let reply = self.target.ask_all(0, db, &[words.to_vec()])?;
            match reply.iter().find_map(Value::refusal) {
                None => return Ok(()),
                Some(text) if text.starts_with("CROSSSLOT") => {}
                Some(text) => {
                    let name = words[0].escape_ascii();
                    return Err(Problem::Final(format!("the target refuses {name}: {text}")));
                }
            }
        }
        let base = keys.iter().find(|(_, writes)| *writes).unwrap_or(&keys[0]);
        let tag = tag(words[base.0]);
        // A key that comes twice is one copy.
        let number = |key: &[u8]| keys.iter().position(|(at, _)| words[*at] == key).unwrap_or(0);
        let copy = |key: &[u8]| format!("{{{tag}}}:dunlin-transfer:{}", number(key)).into_bytes();
        let mut changed = words.iter().map(|word| word.to_vec()).collect::<Words>();
        for (at, _) in keys {
            changed[*at] = copy(words[*at]);
            self.copy_key(db, words[*at], &changed[*at])?;
        }
        let home = self.target.pipe_of(&changed[base.0]);
        self.target.ask(home, db, &refs(&changed))?;
        for (at, writes) in keys {
            if *writes {
                self.copy_key(db, &changed[*at], words[*at])?;
            }
        }
        for (at, _) in keys {
            self.target.ask(home, db, &[b"UNLINK", &changed[*at]])?;
        }
        Ok(())
    }

    /// Makes `to` what `from` is.
    fn copy_key(&mut self, db: u32, from: &[u8], to: &[u8]) -> Result<(), Problem> {
        let (source, home) = (self.target.pipe_of(from), self.target.pipe_of(to));
        let asked: [Vec<&[u8]>; 2] = [vec![b"DUMP", from], vec![b"PEXPIRETIME", from]];
        let replies = self.target.ask_all(source, db, &asked)?;
        match &replies[..] {
            [Value::Null, _] => self.target.ask(home, db, &[b"UNLINK", to])?,
            [Value::Bulk(payload), Value::Integer(expiry)] => {
                let expiry = (*expiry).max(0).to_string();
                let mut words: Vec<&[u8]> = vec![b"RESTORE", to, expiry.as_bytes(), payload];
                words.push(b"REPLACE");
                if expiry != "0" {
                    words.push(b"ABSTTL");
                }
                self.target.ask(home, db, &words)?
            }
            replies => {
                let why =
                    replies.iter().find_map(Value::refusal).unwrap_or("no reason is given".into());
                return Err(Problem::Final(format!("the target refuses DUMP: {why}")));
            }
        };
        Ok(())
    }
}

/// Returns why a request of a stream is not carried out.
fn refusal(row: &Resolved<NotRun>) -> Problem {
    let name = row.full_name.replace('|', " ").to_uppercase();
    Problem::Final(match row.command.streamed() {
        Streamed::Script => format!(
            "the source sends {name}, and scripts of a source are not run: let it send what they write. Redis 3.2 and 4 \
             do so after redis.replicate_commands() in the script, later versions by default"
        ),
        _ => format!("the source sends {name}, which is no write of data"),
    })
}

fn parsed<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Returns the number of the connection for each slot.
///
/// # Errors
/// Slots are of no connection.
pub fn slot_map(parts: &[Ranges]) -> Result<Vec<u16>, String> {
    let mut map: Vec<Option<u16>> = vec![None; SLOTS];
    for (number, ranges) in (0..).zip(parts) {
        for (first, last) in ranges {
            map[usize::from(*first)..=usize::from(*last)].fill(Some(number));
        }
    }
    let map: Option<Vec<u16>> = map.into_iter().collect();
    map.ok_or_else(|| "some slots of the cluster have no primary".into())
}
