//! Which faults there are and when: by the seed alone. Kinds of faults come beside each other, each
//! on a track of its own.

use harness::rng::Rng;
use std::time::Duration;

/// How many machines there are.
pub const MACHINES: usize = 5;

/// How many shards the database has.
pub const SHARDS: usize = 3;

/// How long faults go on until all is mended.
pub const ROUND: Duration = Duration::from_secs(30);

/// What happens to a machine or a shard, which are numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A machine reaches nothing, and clients do not reach it.
    Alone(usize),
    /// A machine reaches no other, but clients reach it.
    AloneWithClients(usize),
    /// A machine and the next one do not reach the three others.
    Divided(usize),
    /// Two machines and two others, of which only this one reaches all.
    Bridge(usize),
    /// Each machine reaches two others alone.
    Ring,
    HeardByNone(usize),
    HearsNone(usize),
    /// What one machine sends to the next is lost.
    OneWay(usize),
    /// A machine is alone again and again.
    Flapping(usize),
    /// What a machine sends is late and gets lost.
    SlowLink(usize),
    PrimaryKilled(usize),
    ReplicaKilled(usize),
    NodeKilled(usize),
    EtcdKilled(usize),
    /// All processes of a machine.
    MachineKilled(usize),
    PrimaryStopped(usize),
    ReplicaStopped(usize),
    NodeStopped(usize),
    EtcdStopped(usize),
    MachineStopped(usize),
    /// No process of a machine can write.
    DiskFull(usize),
    LogWritesFail(usize),
    LogFsyncsFail(usize),
    LogFsyncsStuck(usize),
    ClockJumps(usize),
    /// A part of the slots goes to this shard.
    SlotsMove(usize),
    /// The database gets other hashing rules.
    RulesChange(usize),
    /// A replica of a shard takes over by order.
    Switch(usize),
}

use Fault::*;

impl Fault {
    /// The word that faults of the kind are counted by.
    pub fn kind(self) -> String {
        let text = format!("{self:?}");
        text.split('(').next().unwrap_or_default().to_owned()
    }
}

/// A fault that begins some time after the one before on its track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub after: Duration,
    pub fault: Fault,
    pub lasts: Duration,
}

/// What runs beside each other in a round.
pub type Tracks = Vec<Vec<Event>>;

type Make = fn(usize) -> Fault;

/// The faults of each track.
const TRACKS: [&[(Make, usize)]; 5] = [
    &[
        (Alone, MACHINES),
        (AloneWithClients, MACHINES),
        (Divided, MACHINES),
        (Bridge, MACHINES),
        (|_| Ring, 1),
        (HeardByNone, MACHINES),
        (HearsNone, MACHINES),
        (OneWay, MACHINES),
        (Flapping, MACHINES),
        (SlowLink, MACHINES),
    ],
    &[
        (PrimaryKilled, SHARDS),
        (ReplicaKilled, SHARDS),
        (NodeKilled, MACHINES),
        (EtcdKilled, ETCDS),
        (MachineKilled, MACHINES),
    ],
    &[
        (PrimaryStopped, SHARDS),
        (ReplicaStopped, SHARDS),
        (NodeStopped, MACHINES),
        (EtcdStopped, ETCDS),
        (MachineStopped, MACHINES),
    ],
    &[
        (DiskFull, MACHINES),
        (LogWritesFail, MACHINES),
        (LogFsyncsFail, MACHINES),
        (LogFsyncsStuck, MACHINES),
        (ClockJumps, MACHINES),
    ],
    &[(SlotsMove, SHARDS), (RulesChange, 3), (Switch, SHARDS)],
];

/// The first machines have a server of etcd each.
const ETCDS: usize = 3;

/// Returns the rounds of a seed. A longer run begins as a shorter one does.
pub fn schedule(seed: u64, rounds: usize) -> Vec<Tracks> {
    let track = |number: usize| {
        let mut rng = Rng::new(seed ^ (number as u64 + 1) << 40);
        let mut left = Vec::new();
        (0..rounds).map(|_| events(TRACKS[number], &mut left, &mut rng)).collect::<Vec<_>>()
    };
    let tracks: Vec<Vec<Vec<Event>>> = (0..TRACKS.len()).map(track).collect();
    (0..rounds).map(|round| tracks.iter().map(|track| track[round].clone()).collect()).collect()
}

/// The events of a track in a round. Each fault comes once before any comes again.
fn events(faults: &[(Make, usize)], left: &mut Vec<(Make, usize)>, rng: &mut Rng) -> Vec<Event> {
    let mut events = Vec::new();
    let mut time = Duration::ZERO;
    loop {
        let mut between = |from, to| Duration::from_millis(rng.between(from, to).unsigned_abs());
        let (after, lasts) = (between(1000, 9000), between(2000, 9000));
        time += after + lasts;
        if time > ROUND {
            return events;
        }
        if left.is_empty() {
            left.extend_from_slice(faults);
        }
        let (make, targets) = left.swap_remove(rng.below(left.len()));
        events.push(Event { after, fault: make(rng.below(targets)), lasts });
    }
}

#[test]
fn a_seed_has_one_schedule_and_all_faults_come() {
    let of = |seed| schedule(seed, 10);
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    assert_eq!(of(7)[..4], schedule(7, 4));
    let kinds: std::collections::BTreeSet<String> =
        of(7).into_iter().flatten().flatten().map(|event| event.fault.kind()).collect();
    assert_eq!(kinds.len(), TRACKS.iter().map(|track| track.len()).sum::<usize>());
}
