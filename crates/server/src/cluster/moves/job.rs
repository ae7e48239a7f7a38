//! One job's present phase, on a thread of its own: copying and handing over, or dropping a copy.

use super::link::Link;
use crate::cluster::publish::wait_until_shown;
use crate::log;
use cluster::change::moves::decision::{Decision, Next};
use cluster::change::moves::{self, Attempt};
use cluster::coordinator::{Coordinator, Outcome, Revision};
use cluster::id::Id;
use cluster::topology::{Holder, Move, MovePhase};
use cluster::view::{Keys, View};
use engine::Engine;
use engine::exporting::{Export, Spoiled};
use engine::journal::JournalPos;
use engine::membership::Published;
use etcd::Client;
use std::sync::Arc;
use std::time::{Duration, Instant};
use structs::give_way;

/// Bytes that are sent together.
const TOGETHER: usize = 64 << 10;

/// How long the thread rests after a failure, and when there is nothing to do.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(200);
const REST: Duration = Duration::from_millis(1);

/// How often the rest after a failure doubles: a target without memory would be filled again and
/// again.
const MAX_DOUBLINGS: u32 = 5;

/// The target is close behind when it has answered in this time: then what is missing is there
/// within the pause.
const NEAR: Duration = Duration::from_millis(10);

/// How many bytes may be missing there then.
const NEAR_BYTES: usize = 256 << 10;

/// Answers of the target that came too late before writers are slowed down.
const PATIENT_ROUNDS: u32 = 10;

/// By how much longer requests for the slots wait each time to slow writers down.
const SLOW_DOWN: Duration = Duration::from_millis(20);

/// How long requests that hold keys may take to end when the slots are to be handed over.
const HOLDERS: Duration = Duration::from_millis(20);

/// How long the target may take to show that the slots are its own. They are in any case.
const SHOWN: Duration = Duration::from_secs(1);

/// How long the thread rests at most before it looks at the job's rate again.
const LONGEST_REST: Duration = Duration::from_millis(10);

/// See the head of this file.
pub(super) struct Job {
    pub engine: &'static Engine,
    pub client: Client,
    pub keys: Keys,
    pub me: Id,
    pub id: Id,
}

/// A copy on its way to a target.
struct Copying {
    export: Export,
    link: Link,
    /// What the copy rests on.
    attempt: Attempt,
    /// Bytes per second; 0 is no limit.
    rate: u64,
    /// Bytes of the output that the journal had while the thread rested.
    followed: usize,
    /// The publication that was looked at last.
    seen: u64,
    /// Since when requests for the slots wait, if they do.
    waiting_since: Option<Instant>,
}

impl Job {
    /// Works until the phase is over.
    pub fn run(mut self) {
        let mut failures = 0;
        while let Some((published, job)) = self.task() {
            let outcome = match job.phase() {
                MovePhase::Copying => self.copy(&published, &job),
                MovePhase::Trimming | MovePhase::Clearing => self.drop_copy(&job),
            };
            let Err(why) = outcome else { return };
            let moves = &self.engine.membership.moves;
            if moves.progress(self.id).obstacle != why {
                log!(Warning, "Cluster: the move {} waits: {why}", self.id);
            }
            moves.note(self.id, |progress| {
                progress.obstacle = why;
                progress.retries += 1;
            });
            let (began, sides) = (Instant::now(), sides(&published, &job));
            let rest = REST_AFTER_FAILURE * (1 << failures.min(MAX_DOUBLINGS));
            failures += 1;
            while began.elapsed() < rest && self.sides() == Some(sides.clone()) {
                std::thread::sleep(REST_AFTER_FAILURE / 4);
            }
        }
    }

    /// See [`sides`].
    fn sides(&self) -> Option<(Move, Option<Holder>)> {
        self.task().map(|(published, job)| sides(&published, &job))
    }

    /// The job, if this server has something to do for it.
    fn task(&self) -> Option<(Arc<Published>, Move)> {
        task(self.engine, self.me, self.id)
    }

    fn note(&self, state: &'static str) {
        self.engine.membership.moves.note(self.id, |progress| progress.state = state);
    }

    /// Sends the target a copy and what changes meanwhile, and hands the slots over.
    fn copy(&mut self, published: &Published, job: &Move) -> Result<(), String> {
        let (_, attempt) =
            moves::copying(&published.view, self.me, self.id).ok_or("the target has gone")?;
        self.note("connecting");
        let mut link = Link::open(self.engine, &published.view, attempt.target)?;
        link.import(self.id)?;
        self.engine.membership.moves.note(self.id, |progress| {
            progress.state = "snapshotting";
            progress.sent_bytes = 0;
        });
        let export = self.engine.export(&job.slots);
        let mut copying = Copying {
            export,
            link,
            attempt,
            rate: job.rate,
            followed: 0,
            seen: 0,
            waiting_since: None,
        };
        self.copy_all(&mut copying)?;
        loop {
            self.note("streaming");
            self.deliver(&mut copying)?;
            self.note("waiting-to-pause");
            while self.engine.debug.holds_before_pause() {
                self.deliver(&mut copying)?;
                std::thread::sleep(REST);
            }
            self.catch_up(&mut copying)?;
            self.note("failover-paused");
            let began = copying.waiting_since.take().unwrap_or_else(Instant::now);
            if let Some(end) = copying.export.pause(HOLDERS) {
                return self.hand_over(copying, end, began);
            }
            std::thread::sleep(REST_AFTER_FAILURE);
        }
    }

    /// Goes on until the whole copy is sent.
    fn copy_all(&mut self, copying: &mut Copying) -> Result<(), String> {
        while !copying.export.is_complete() {
            copying.export.step().map_err(spoiled)?;
            if copying.export.output().len() >= TOGETHER {
                self.ensure_wanted(copying)?;
                let bytes = copying.export.output().len() - copying.followed;
                self.send(copying)?;
                self.keep_to_rate(copying, bytes)?;
                // Threads that serve clients come first.
                let _ = give_way::offer();
            }
        }
        self.ensure_wanted(copying)?;
        self.send(copying)
    }

    /// Rests for as long as so many bytes take at the job's rate, which may change meanwhile. What
    /// clients write is not counted: the copy would never be complete.
    fn keep_to_rate(&self, copying: &mut Copying, bytes: usize) -> Result<(), String> {
        let began = Instant::now();
        while copying.rate > 0 {
            let due = Duration::from_secs_f64(bytes as f64 / copying.rate as f64);
            let Some(left) = due.checked_sub(began.elapsed()) else { break };
            std::thread::sleep(left.min(LONGEST_REST));
            copying.export.follow().map_err(spoiled)?;
            self.ensure_wanted(copying)?;
            if copying.export.output().len() >= TOGETHER {
                self.send(copying)?;
            }
        }
        copying.followed = copying.export.output().len();
        Ok(())
    }

    fn send(&self, copying: &mut Copying) -> Result<(), String> {
        copying.followed = 0;
        let bytes = copying.export.output().len() as u64;
        if bytes == 0 {
            return Ok(());
        }
        copying.link.send(copying.export.output())?;
        let lag = copying.export.lag();
        self.engine.membership.moves.note(self.id, |progress| {
            progress.sent_bytes += bytes;
            progress.lag_bytes = lag;
        });
        Ok(())
    }

    /// Waits until the target has what was sent.
    fn confirm(&self, copying: &mut Copying) -> Result<(), String> {
        copying.link.confirm()?;
        let now_s = super::now_s();
        self.engine.membership.moves.note(self.id, |progress| progress.answered_s = now_s);
        Ok(())
    }

    /// Whether the job is still there, and its target.
    fn ensure_wanted(&self, copying: &mut Copying) -> Result<(), String> {
        let version = self.engine.membership.version();
        if version != copying.seen {
            let (published, _) = self.task().ok_or("it is not this server's any more")?;
            let present = moves::copying(&published.view, self.me, self.id);
            let Some((job, attempt)) = present else { return Err("the target has gone".into()) };
            if attempt.given_up != copying.attempt.given_up {
                return Err(
                    "the target has given up the copy, which waited for the decision".into()
                );
            }
            if attempt != copying.attempt {
                return Err("the source or the target has another primary".into());
            }
            copying.rate = job.rate;
            copying.seen = version;
        }
        Ok(())
    }

    /// Goes on until what is missing at the target is little enough for requests to wait for it. If
    /// the target does not catch up, requests for the slots wait, each time for longer, so that it
    /// does.
    fn catch_up(&self, copying: &mut Copying) -> Result<(), String> {
        let mut rounds = 0;
        loop {
            let asked = Instant::now();
            let missing = self.deliver(copying)?;
            if asked.elapsed() <= NEAR && missing <= NEAR_BYTES {
                return Ok(());
            }
            rounds += 1;
            if rounds < PATIENT_ROUNDS {
                continue;
            }
            copying.export.slow_down();
            let began = *copying.waiting_since.insert(Instant::now());
            while began.elapsed() < SLOW_DOWN * (rounds - PATIENT_ROUNDS + 1) {
                if self.deliver(copying)? <= NEAR_BYTES {
                    // They wait until the slots are handed over.
                    return Ok(());
                }
            }
            copying.export.resume();
            copying.waiting_since = None;
        }
    }

    /// Sends what there is, and waits until the target has it. Returns how many bytes for it have
    /// come meanwhile.
    fn deliver(&self, copying: &mut Copying) -> Result<usize, String> {
        self.ensure_wanted(copying)?;
        copying.export.follow().map_err(spoiled)?;
        while !copying.export.is_complete() {
            copying.export.step().map_err(spoiled)?;
        }
        self.send(copying)?;
        self.confirm(copying)?;
        copying.export.follow().map_err(spoiled)?;
        Ok(copying.export.output().len())
    }

    /// Requests for the slots wait since `began`, and the journal has nothing more for them behind
    /// `end`. Gives the target what is missing, and the slots.
    fn hand_over(
        &mut self,
        mut copying: Copying,
        end: JournalPos,
        began: Instant,
    ) -> Result<(), String> {
        copying.export.follow_to(end).map_err(spoiled)?;
        while !copying.export.is_complete() {
            copying.export.step().map_err(spoiled)?;
        }
        self.send(&mut copying)?;
        copying.link.prepare()?;
        self.confirm(&mut copying)?;
        self.note("failover-granted");
        while self.engine.debug.holds_before_decision() {
            self.ensure_wanted(&mut copying)?;
            std::thread::sleep(REST);
        }
        let revision = self.decide(copying.attempt)?;
        self.await_view(revision);
        // Until the target knows, it would send clients back.
        let given = Instant::now();
        while given.elapsed() < SHOWN && copying.link.shows(revision) == Ok(false) {
            std::thread::sleep(REST);
        }
        copying.export.resume();
        let pause = began.elapsed();
        log!(Notice, "Cluster: the move {} is over, its slots waited for {pause:?}", self.id);
        self.engine.membership.moves.note(self.id, |progress| {
            progress.state = "success";
            progress.obstacle.clear();
            progress.pause_ms = pause.as_millis() as u64;
        });
        Ok(())
    }

    /// Makes the transaction that gives the slots to the target. Returns its revision. When this
    /// returns an error, the transaction was not made, and never will be.
    fn decide(&mut self, attempt: Attempt) -> Result<Revision, String> {
        let newest = self.engine.membership.newest().ok_or("there is no view")?;
        let mut decision = Decision::new(newest.view.clone(), self.me, self.id, attempt);
        drop(newest);
        loop {
            match decision.next() {
                Next::Commit(transaction) => {
                    decision.committed(self.client.commit(&transaction));
                }
                // Without the coordinator it takes as long as it takes.
                Next::Read => match self.read(decision.view()) {
                    Some(view) => decision.read(view),
                    None => std::thread::sleep(REST),
                },
                Next::Given(revision) => return Ok(revision),
                Next::Kept(revision) => {
                    self.await_view(revision);
                    return Err("it was not to be handed over".into());
                }
            }
        }
    }

    /// Waits until this server's clients see what was there at this revision, for as long as it
    /// takes: requests for the slots must not go on before.
    fn await_view(&self, revision: Revision) {
        let shown = || self.engine.membership.newest().map(|published| published.view.revision);
        let mut before = shown();
        while shown().is_none_or(|shown| shown < revision) {
            std::thread::sleep(REST);
            // etcd was started with older files, and this server leads no more.
            if shown() < before {
                return;
            }
            before = shown();
        }
    }

    /// Reads the newest view. `None`: the coordinator is away.
    fn read(&mut self, old: &View) -> Option<View> {
        super::read(&mut self.client, &self.keys, old)
    }

    /// Drops what this server has of slots that have left, or that it does not get.
    fn drop_copy(&mut self, job: &Move) -> Result<(), String> {
        let phase = job.phase();
        let (published, _) = self.task().ok_or("it is not this server's any more")?;
        let (engine, me, id) = (self.engine, self.me, self.id);
        let is_due =
            move || task(engine, me, id).is_some_and(|(_, present)| present.phase() == phase);
        let own = published.own_shard().ok_or("this server has no shard")?;
        let slots = job.slots.without(&own.slots);
        if !self.engine.drop_slots(&slots, is_due) {
            return Err("this server leads no more".into());
        }
        // It rests on the view of before: if another primary has taken over meanwhile, which may lack
        // the last deletions, that one drops its copy first.
        let Some(transaction) = moves::finish(&published.view, self.id) else { return Ok(()) };
        match self.client.commit(&transaction) {
            Ok(Outcome::Done(revision)) => {
                wait_until_shown(self.engine, revision);
                Ok(())
            }
            Ok(Outcome::Conflict) => Err("others change the cluster at the same time".into()),
            Err(_) => Err("the coordinator is away".into()),
        }
    }
}

/// What an attempt depends on: the job, and the primary of its target.
fn sides(published: &Published, job: &Move) -> (Move, Option<Holder>) {
    let target = published.view.topology.value.shard(job.to);
    (job.clone(), target.map(|shard| shard.holder))
}

/// The job, if this server has something to do for it.
fn task(engine: &Engine, me: Id, id: Id) -> Option<(Arc<Published>, Move)> {
    let published = engine.membership.newest().filter(|published| published.leads)?;
    let job = moves::tasks(&published.view, me).find(|job| job.id == id)?.clone();
    Some((published, job))
}

fn spoiled(why: Spoiled) -> String {
    why.0.into()
}
