//! Transactions over lists that clients run and record, by MULTI or as scripts. They are checked as
//! [histories](crate::history::transactions).

use crate::client::{Client, encode};
use crate::history::transactions::{Step, Transaction, check};
use crate::reply::Reply;
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lists that are used together. They lie in one slot.
const LISTS: usize = 3;
/// Transactions until other lists are used, so that lists stay short and the check quick.
const TRANSACTIONS: u64 = 40;
/// The most steps of a transaction.
const STEPS: usize = 4;

/// Does what a transaction does, with a reply as EXEC's: a key and an element for each step, which
/// is empty for a read.
const SCRIPT: &str = "local replies = {} \
     for step = 1, #KEYS do \
       if ARGV[step] == '' then \
         replies[step] = redis.call('LRANGE', KEYS[step], 0, -1) \
       else \
         replies[step] = redis.call('RPUSH', KEYS[step], ARGV[step]) \
       end \
     end \
     return replies";

/// What has become of a transaction.
#[derive(Debug)]
pub enum Outcome {
    /// It was confirmed.
    Confirmed,
    /// It was refused, or is in doubt; the connection can be used on.
    Failed(String),
    /// The connection cannot be used on.
    Lost(String),
}

/// The transactions that ran, by the lists that they used.
#[derive(Default)]
pub struct ListTransactions {
    begun: AtomicU64,
    histories: Mutex<BTreeMap<u64, Vec<Transaction>>>,
}

impl ListTransactions {
    /// Runs a transaction of random steps and records it. `clock` returns nanoseconds.
    pub fn run(
        &self,
        number: usize,
        client: &mut Client,
        rng: &mut Rng,
        clock: impl Fn() -> u64,
    ) -> Outcome {
        let begun = self.begun.fetch_add(1, SeqCst);
        let set = begun / TRANSACTIONS;
        let step = |at: usize| match (rng.below(LISTS), rng.below(2)) {
            (list, 0) => Step::Read { list, elements: Vec::new() },
            (list, _) => Step::Append { list, element: begun * STEPS as u64 + at as u64 },
        };
        let steps: Vec<Step> = (0..1 + begun as usize % STEPS).map(step).collect();
        let called = clock();
        let replies = match rng.below(3) {
            0 => ask_script(client, set, &steps),
            _ => ask_multi(client, set, &steps),
        };
        let record = |steps, returned| {
            let transaction = Transaction { client: number, called, returned, steps };
            self.histories().entry(set).or_default().push(transaction);
        };
        let doubt = |steps: Vec<Step>| {
            // What one in doubt has read is not known.
            record(
                steps.into_iter().filter(|it| matches!(it, Step::Append { .. })).collect(),
                None,
            );
        };
        match replies {
            Ok(Replies::Together(reply)) => match filled_in(&steps, &reply) {
                Some(steps) => {
                    record(steps, Some(clock()));
                    Outcome::Confirmed
                }
                None => {
                    doubt(steps);
                    Outcome::Failed(format!("{reply:?}"))
                }
            },
            Ok(Replies::Singly(reply)) => {
                steps.into_iter().for_each(|step| doubt(vec![step]));
                Outcome::Failed(format!("{reply:?}"))
            }
            Err(why) => {
                doubt(steps);
                Outcome::Lost(why.to_string())
            }
        }
    }

    /// The sets of lists that transactions have used.
    pub fn sets(&self) -> Vec<u64> {
        self.histories().keys().copied().collect()
    }

    /// Reads all lists of a set as the last of its transactions. Returns whether that was possible.
    pub fn read_all(&self, set: u64, client: &mut Client, clock: impl Fn() -> u64) -> bool {
        let read = |list| Step::Read { list, elements: Vec::new() };
        let steps: Vec<Step> = (0..LISTS).map(read).collect();
        let called = clock();
        let Ok(Replies::Together(reply)) = ask_multi(client, set, &steps) else { return false };
        let Some(steps) = filled_in(&steps, &reply).filter(|it| it.len() == LISTS) else {
            return false;
        };
        let last = Transaction { client: usize::MAX, called, returned: Some(clock()), steps };
        self.histories().entry(set).or_default().push(last);
        true
    }

    /// Checks all of them, after each set was read. Returns how many there are.
    ///
    /// # Errors
    /// What no order explains.
    pub fn verdict(&self) -> Result<usize, String> {
        let histories = self.histories();
        for (set, transactions) in histories.iter() {
            check(transactions).map_err(|why| format!("lists {set}: {why}"))?;
        }
        Ok(histories.values().map(Vec::len).sum())
    }

    fn histories(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<Transaction>>> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a step's list, and the element that it appends.
fn named(set: u64, step: &Step) -> (String, Option<u64>) {
    let (list, element) = match step {
        Step::Append { list, element } => (list, Some(*element)),
        Step::Read { list, .. } => (list, None),
    };
    (format!("{{lists:{set}}}:{list}"), element)
}

/// What came back of a transaction.
enum Replies {
    /// The reply to all of it.
    Together(Reply),
    /// MULTI was refused with this, so each step may have run alone.
    Singly(Reply),
}

fn ask_script(client: &mut Client, set: u64, steps: &[Step]) -> io::Result<Replies> {
    let (keys, elements): (Vec<String>, Vec<Option<u64>>) =
        steps.iter().map(|step| named(set, step)).unzip();
    let elements = elements.iter().map(|it| it.map_or_else(String::new, |it| it.to_string()));
    let mut words = vec!["EVAL".to_owned(), SCRIPT.to_owned(), steps.len().to_string()];
    words.extend(keys);
    words.extend(elements);
    client.command(&words).map(Replies::Together)
}

fn ask_multi(client: &mut Client, set: u64, steps: &[Step]) -> io::Result<Replies> {
    let mut requests = encode(&["MULTI"]);
    for step in steps {
        requests.extend(match named(set, step) {
            (key, Some(element)) => encode(&["RPUSH", &key, &element.to_string()]),
            (key, None) => encode(&["LRANGE", &key, "0", "-1"]),
        });
    }
    requests.extend(encode(&["EXEC"]));
    client.send_raw(&requests)?;
    let begun = client.reply()?;
    for _ in 0..steps.len() {
        client.reply()?;
    }
    let replies = client.reply()?;
    Ok(if begun.is_error() { Replies::Singly(begun) } else { Replies::Together(replies) })
}

/// The steps with what they have read. `None`: the reply is not that of a transaction that ran.
fn filled_in(steps: &[Step], reply: &Reply) -> Option<Vec<Step>> {
    let replies = reply.elements().filter(|replies| replies.len() == steps.len())?;
    let filled = |(step, reply): (&Step, &Reply)| match step {
        Step::Append { .. } => matches!(reply, Reply::Integer(_)).then(|| step.clone()),
        Step::Read { list, .. } => {
            let number = |reply: &Reply| std::str::from_utf8(reply.text()?).ok()?.parse().ok();
            let elements = reply.elements()?.iter().map(number).collect::<Option<_>>()?;
            Some(Step::Read { list: *list, elements })
        }
    };
    // A step may fail alone; it has done nothing.
    steps.iter().zip(replies).filter(|(_, reply)| !reply.is_error()).map(filled).collect()
}
