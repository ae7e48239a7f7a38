//! Copies that are driven on threads of their own, with a real etcd and real clocks. Their data are
//! positions, which a replica takes from its primary at once.

use crate::process::{Etcd, PATIENCE, start};
use cluster::change;
use cluster::copy::{Action, Copy, Facts, Role, Settings};
use cluster::driver::Driver;
use cluster::id::{Epoch, Id, Incarnation, Position};
use cluster::slots::Slots;
use cluster::topology::{Address, Holder, Replica};
use cluster::view::Keys;
use cluster::{Moment, coordinator::Coordinator};
use etcd::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A question of a primary: who asks, in which epoch, and when it was sent.
type Ask = (Holder, Epoch, Moment);

/// What a copy shows the others and the test.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    pub(crate) role: Option<Role>,
    pub(crate) is_alone: bool,
    is_present: bool,
    pub(crate) is_member: bool,
    /// The lease has ended by this copy's clock, whatever others have promised.
    has_promises_only: bool,
    position: Position,
    lists: BTreeSet<Id>,
    asks: Vec<Ask>,
    /// Promises to this copy: from whom, in which epoch, when it had asked, for how long.
    promises: Vec<(Id, Epoch, Moment, Moment)>,
}

#[derive(Default)]
pub(crate) struct Shared {
    shown: Mutex<BTreeMap<Id, Shown>>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<Id, Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy on a thread.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The copies of a test.
pub(crate) struct Cluster {
    pub(crate) etcd: Etcd,
    ttl: Moment,
    /// How long a copy waits for changes before it looks around.
    look: Moment,
    /// How long the test waits for a state.
    pub(crate) patience: Duration,
    begun: Instant,
    pub(crate) shared: Arc<Shared>,
    running: BTreeMap<Id, Running>,
}

pub(crate) fn keys() -> Keys {
    Keys::new("test")
}

fn id(at: u8) -> Id {
    Id::new([at; 20])
}

fn replica(id: Id) -> Replica {
    let host = "127.0.0.1".to_owned();
    let address = Address { host, port: 7000, ..Address::default() };
    Replica { id, address, member: None, is_never_promoted: false }
}

/// What a copy's thread does.
struct Host {
    driver: Driver<Client>,
    id: Id,
    incarnation: Incarnation,
    shared: Arc<Shared>,
    begun: Instant,
    frozen: Option<Epoch>,
    position: Position,
    /// Since when the coordinator has been away, and a lease's time.
    away_since: Option<Moment>,
    ttl: Moment,
    look: Moment,
}

impl Host {
    fn run(mut self, stop: &AtomicBool) {
        let begun = self.begun;
        let clock = move || begun.elapsed();
        while !stop.load(Ordering::Acquire) {
            let facts = self.facts();
            for action in self.driver.turn(&clock, &facts, |_| {}) {
                self.act(action, clock());
            }
            self.exchange(clock());
            if !self.driver.wait(&clock, self.look) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.shared.lock().remove(&self.id);
    }

    fn facts(&mut self) -> Facts {
        let shown = self.shared.lock();
        let mut is_listed = false;
        let copy = self.driver.copy();
        if let Role::Follows(holder, epoch) = copy.role()
            && copy.accepts(epoch)
            && let Some(primary) = shown.get(&holder.id)
            && primary.role == Some(Role::Leads(epoch))
            && primary.position.epoch == epoch
        {
            self.position = primary.position;
            is_listed = primary.lists.contains(&self.id);
        }
        Facts {
            position: self.position,
            is_whole: true,
            frozen: self.frozen,
            is_listed,
            ..Facts::default()
        }
    }

    fn act(&mut self, action: Action, sent: Moment) {
        match action {
            Action::Freeze(epoch) => self.frozen = self.frozen.max(Some(epoch)),
            Action::Lead(epoch) => {
                self.position = Position { epoch, offset: self.position.offset + 1 };
            }
            Action::Ask(epoch) => {
                let from = Holder { id: self.id, incarnation: self.incarnation };
                let copy = self.driver.copy();
                let shard = copy.view().and_then(|view| view.topology.value.shard_of(self.id));
                let others = shard.iter().flat_map(|shard| &shard.copies);
                let mut shown = self.shared.lock();
                for other in others.filter(|other| other.id != self.id) {
                    if let Some(other) = shown.get_mut(&other.id) {
                        other.asks.push((from, epoch, sent));
                    }
                }
            }
            _ => {}
        }
    }

    /// Reads what the others have said, answers, and shows how this copy is.
    fn exchange(&mut self, now: Moment) {
        let mut shown = self.shared.lock();
        let mine = shown.entry(self.id).or_default();
        let asks = std::mem::take(&mut mine.asks);
        let mut copy = self.driver.copy();
        for (from, epoch, sent, time) in std::mem::take(&mut mine.promises) {
            copy.promised(from, epoch, sent, time);
        }
        let is_present = copy.is_coordinator_present();
        self.away_since = if is_present { None } else { self.away_since.or(Some(now)) };
        let shard = copy.view().and_then(|view| view.topology.value.shard_of(self.id));
        mine.role = Some(copy.role());
        mine.is_alone = copy.is_alone(now);
        mine.is_present = is_present;
        mine.has_promises_only = self.away_since.is_some_and(|since| now > since + self.ttl);
        mine.position = self.position;
        mine.lists = shard.iter().flat_map(|it| it.copies.iter().map(|copy| copy.id)).collect();
        mine.is_member = shard
            .and_then(|shard| shard.copy(self.id)?.member)
            .is_some_and(|member| member == self.incarnation);
        for (from, epoch, sent) in asks {
            if let Some(time) = copy.promise(now, epoch, from)
                && let Some(primary) = shown.get_mut(&from.id)
            {
                primary.promises.push((self.id, epoch, sent, time));
            }
        }
    }
}

impl Cluster {
    pub(crate) fn new(name: &str, ttl: Moment, look: Moment) -> Cluster {
        let shared = Arc::new(Shared::default());
        let etcd = start(name);
        let (patience, begun, running) = (PATIENCE, Instant::now(), BTreeMap::new());
        Cluster { etcd, ttl, look, patience, begun, shared, running }
    }

    fn driver(&self, id: Id, incarnation: Incarnation) -> Driver<Client> {
        let settings = Settings {
            retry: Moment::from_millis(100),
            grace: Moment::from_millis(200),
            switch: Moment::from_secs(1),
            ..Settings::of_lease(self.ttl)
        };
        let client = Client::new(
            vec![self.etcd.endpoint.clone()],
            Moment::from_millis(1500).min(self.ttl / 4),
        );
        let copy = Copy::new(id, incarnation, settings);
        Driver::new(copy, client, keys(), replica(id), incarnation)
    }

    /// Starts a copy without data.
    pub(crate) fn start(&mut self, id: Id, incarnation: u64) {
        let incarnation = Incarnation(incarnation);
        let host = Host {
            driver: self.driver(id, incarnation),
            id,
            incarnation,
            shared: Arc::clone(&self.shared),
            begun: self.begun,
            frozen: None,
            position: Position::default(),
            away_since: None,
            ttl: self.ttl,
            look: self.look,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // There may be thousands.
        let builder = std::thread::Builder::new().stack_size(512 << 10);
        let thread = builder.spawn(move || host.run(&stopped)).expect("there are threads enough");
        self.running.insert(id, Running { stop, thread: Some(thread) });
    }

    /// Ends copies, all at once. Their leases are left to end by themselves.
    pub(crate) fn end(&mut self, ids: &BTreeSet<Id>) {
        let ended = self.running.extract_if(.., |id, _| ids.contains(id));
        let ended: Vec<Running> = ended.map(|(_, running)| running).collect();
        ended.iter().for_each(|running| running.stop.store(true, Ordering::Release));
    }

    /// Waits until the copies show something.
    pub(crate) fn until<T>(
        &self,
        what: &str,
        found: impl Fn(&BTreeMap<Id, Shown>) -> Option<T>,
    ) -> T {
        let begun = Instant::now();
        while begun.elapsed() < self.patience {
            if let Some(found) = found(&self.shared.lock()) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the copies do not come to this: {what}");
    }

    /// Waits until one copy leads and all others are members behind it. Returns the leader.
    fn in_step(&self, copies: usize) -> (Id, Epoch) {
        self.until("one leads, the others follow", |shown| {
            let leaders = shown.iter().filter_map(|(&id, shown)| match shown.role {
                Some(Role::Leads(epoch)) if shown.is_alone && shown.is_present => Some((id, epoch)),
                _ => None,
            });
            let leaders: Vec<_> = leaders.collect();
            let members = shown.values().filter(|it| it.is_member && it.is_present).count();
            (leaders.len() == 1 && members == copies).then(|| leaders[0])
        })
    }

    /// Three copies of one shard, made as operators make them.
    fn of_three(name: &str, ttl: Moment) -> Cluster {
        let mut cluster = Cluster::new(name, ttl, Moment::from_millis(20));
        let ids = [id(1), id(2), id(3)];
        ids.iter().for_each(|&id| cluster.start(id, 1));
        cluster.until("each is alone", |shown| {
            let leads = |id| shown.get(id).is_some_and(|shown: &Shown| shown.is_alone);
            ids.iter().all(leads).then_some(())
        });
        let mut client = cluster.etcd.client();
        let all = Slots::from_fn(|_| true);
        let mut operator = cluster.driver(ids[0], Incarnation(1));
        operator.operate(|view| change::add_slots(view, ids[0], &all)).expect("they are free");
        for &copy in &ids[1..] {
            // A copy may get a new lease between reading and writing.
            let meet = |client: &mut Client, operator: &mut Driver<Client>| {
                let home = client.range(&keys().home(copy), None).expect("etcd is there").items;
                let home = home[0].revision;
                let own = cluster.view(client, copy);
                operator.operate(|view| match change::meet(&own, view, |_| Ok(home))? {
                    Some(transaction) => Ok(transaction),
                    None => unreachable!("the copy is in a database of its own"),
                })
            };
            let met = (0..10).any(|_| meet(&mut client, &mut operator).is_ok());
            assert!(met, "the copies do not meet");
            operator.operate(|view| change::replicate(view, copy, ids[0], false)).expect("empty");
        }
        cluster
    }

    fn view(&self, client: &mut Client, database: Id) -> cluster::view::View {
        let range = client.range(&keys().database(database), None).expect("etcd is there");
        cluster::view::View::decode(&keys(), database, &range).expect("valid").expect("there")
    }
}

#[test]
fn another_copy_takes_over_and_the_old_one_comes_back_as_a_replica() {
    let mut cluster = Cluster::of_three("takes-over", Moment::from_secs(6));
    let (first, epoch) = cluster.in_step(3);
    cluster.running.remove(&first);
    let (second, later) = cluster.until("another leads", |shown| {
        shown.iter().find_map(|(&id, shown)| match shown.role {
            Some(Role::Leads(later)) if shown.is_alone && id != first => Some((id, later)),
            _ => None,
        })
    });
    assert!(later > epoch && second != first);
    // It comes back without data, which never win.
    cluster.start(first, 2);
    let (leader, _) = cluster.in_step(3);
    assert_ne!(leader, first);
}

#[test]
fn without_etcd_the_primary_goes_on_by_promises() {
    let mut cluster = Cluster::of_three("by-promises", Moment::from_secs(6));
    let (leader, _) = cluster.in_step(3);
    cluster.etcd.kill();
    cluster.until("it is alone by promises", |shown| {
        let shown = shown.get(&leader)?;
        (shown.has_promises_only && shown.is_alone).then_some(())
    });
    cluster.etcd.start_again();
    let (still, _) = cluster.in_step(3);
    assert_eq!(still, leader, "etcd's absence has demoted the primary");
}
