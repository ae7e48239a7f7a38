//! What the reactors' hubs share: the commands, and where each slot's requests go.

use crate::bus::{self, Way};
use crate::log;
use crate::tls::{self, Certificates, OutgoingOptions};
use cluster::id::Id;
use cluster::topology::{Replica, Shard};
use engine::Engine;
use engine::clients::forwarding::Reach;
use engine::membership::Published;
use forward::hub::{Commands, Common, server_at};
use forward::pool::{self, MAX_SERVERS, Place, SlotRule};
use forward::settings::{Address, Invalid, Limits, Login, Pool, PoolKind, ServerTls};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::crc16::SLOTS;
use structs::sync::lock;

/// See the module.
pub struct Shared {
    /// The server's.
    pub engine: &'static Engine,
    /// What hubs of one process share.
    pub common: Arc<Common>,
    pool: Arc<pool::Shared>,
    /// The publication whose slots the pool has.
    followed: AtomicU64,
    /// Held while what was published is taken over.
    taking_over: Mutex<()>,
    /// The servers that lead a shard.
    leads: Mutex<Arc<[u16]>>,
    /// Those of them that are alive, and not this one.
    others: Mutex<Arc<[u16]>>,
    tls: Mutex<LinkTls>,
}

/// The certificates that links use.
#[derive(Default)]
struct LinkTls {
    /// The options that links follow. `None`: they have not been taken over yet.
    options: Option<OutgoingOptions>,
    /// What the pool has rules for, or refuses links for. `None`: links are plain.
    of: Option<Certificates>,
    /// The options that do not work, why, and when they are tried again.
    failed: Option<(OutgoingOptions, String, Instant)>,
}

/// After how long options about TLS that do not work are tried again.
const RETRY: Duration = Duration::from_secs(1);

impl Shared {
    /// For a server that is a node of a cluster.
    pub fn new(engine: &'static Engine) -> Arc<Shared> {
        let rows: Vec<_> = commands::rows().iter().map(|row| row.described()).collect();
        let commands = Commands::new(&rows, commands::REDIS_VERSION);
        let mut config = Pool::new("cluster", PoolKind::Cluster { seeds: Vec::new() });
        config.keepalive = true;
        config.login = login(engine);
        // Whether links use TLS is a matter of the rules, which CONFIG SET may bring later.
        config.server_tls = Some(ServerTls::default());
        // A client has one such connection to a shard at most, so clients are the limit.
        config.limits = Limits { exclusive: usize::MAX, ..Limits::default() };
        let pool = pool::Shared::new(config);
        let common = Common::new(&commands, vec![Some(Arc::clone(&pool))], log_line);
        let text = |digest: &[u8]| engine.script_text(digest);
        let _ = pool.script.set(pool::Texts(Box::new(text)));
        let [leads, others] = [(); 2].map(|()| Mutex::new(Arc::from([])));
        let (followed, tls) = (AtomicU64::new(0), Mutex::default());
        let taking_over = Mutex::default();
        let shared = Shared { engine, common, pool, followed, taking_over, leads, others, tls };
        shared.follow_tls();
        let shared = Arc::new(shared);
        let places = Arc::downgrade(&shared);
        let find = move |host: &str, port| places.upgrade()?.place_at(host, port);
        let _ = shared.pool.places.set(pool::Places(Box::new(find)));
        shared
    }

    /// Takes over what was published last.
    #[inline]
    pub fn follow(&self) {
        let version = self.engine.membership.version();
        if self.followed.load(SeqCst) != version {
            self.take_over(version);
        }
    }

    #[cold]
    fn take_over(&self, version: u64) {
        // Others wait: with what was there before they would go on by links in clear.
        let _one_at_a_time = lock(&self.taking_over);
        if self.followed.load(SeqCst) == version {
            return;
        }
        // The bus may be used from now on, or no more.
        self.follow_tls();
        self.take_over_view();
        self.followed.store(version, SeqCst);
    }

    fn take_over_view(&self) {
        let Some(published) = self.engine.membership.newest() else { return };
        let slots = self.slots(&published);
        let view = &published.view;
        let shards = view.topology.value.shards.iter();
        let slotless = shards.filter(|shard| shard.slots.is_empty() && view.is_alive(shard.holder));
        let slotless: Vec<u16> =
            slotless.filter_map(|shard| self.server(&published, shard)).collect();
        let followers = view
            .topology
            .value
            .shards
            .iter()
            .flat_map(|shard| shard.copies.iter().filter(|copy| copy.id != shard.holder.id));
        let living = followers.filter(|copy| view.alive.contains_key(&copy.id));
        let followers = living.filter_map(|copy| self.server_of(&published, copy)).collect();
        let next = published.next().map(|next| {
            let owner = |slot| {
                published
                    .future_owner(slot)
                    .and_then(|at| view.topology.value.shards.get(usize::from(at)))
            };
            let servers =
                (0..SLOTS).map(|slot| owner(slot).and_then(|shard| self.server(&published, shard)));
            (Arc::clone(&next.hashing), servers.collect())
        });
        let rule = SlotRule { hashing: Arc::clone(published.hashing()), next };
        let walk = self.walk(&published);
        self.pool.change(|topology| {
            (topology.slots, topology.slotless, topology.rule) = (slots, slotless, rule);
            (topology.followers, topology.walk) = (followers, walk);
        });
        let shards = published.view.topology.value.shards.iter();
        *lock(&self.leads) = shards.filter_map(|shard| self.server(&published, shard)).collect();
        let is_other =
            |shard: &&Shard| shard.holder.id != published.me && view.is_alive(shard.holder);
        let others = view.topology.value.shards.iter().filter(is_other);
        *lock(&self.others) = others.filter_map(|shard| self.server(&published, shard)).collect();
    }

    /// The numbers of the living servers that lead a shard, without this one.
    pub fn others(&self) -> Arc<[u16]> {
        Arc::clone(&lock(&self.others))
    }

    /// The numbers of the servers that lead these shards; no shards: all that there are with slots.
    pub fn leaders_of(&self, shards: &[Id]) -> Vec<u16> {
        let Some(published) = self.engine.membership.newest() else { return Vec::new() };
        let is_meant = |shard: &&Shard| match shards {
            [] => !shard.slots.is_empty(),
            shards => shards.contains(&shard.id),
        };
        let shards = published.view.topology.value.shards.iter().filter(is_meant);
        shards.filter_map(|shard| self.server(&published, shard)).collect()
    }

    /// The numbers of the living servers among these nodes.
    pub fn nodes(&self, reach: Reach) -> Vec<u16> {
        let Some(published) = self.engine.membership.newest() else { return Vec::new() };
        let view = &published.view;
        let mut found = Vec::new();
        for shard in &view.topology.value.shards {
            for copy in &shard.copies {
                let is_meant = match reach {
                    Reach::All => true,
                    Reach::Others => copy.id != published.me,
                    Reach::Leaders => copy.id == shard.holder.id,
                };
                let is_alive = copy.id == published.me || view.alive.contains_key(&copy.id);
                if is_meant && is_alive {
                    found.extend(self.server_of(&published, copy));
                }
            }
        }
        found
    }

    /// The numbers of the servers that lead a shard.
    pub fn leads(&self) -> Arc<[u16]> {
        Arc::clone(&lock(&self.leads))
    }

    /// The number of the server that leads a shard.
    fn server(&self, published: &Published, shard: &Shard) -> Option<u16> {
        self.server_of(published, shard.copy(shard.holder.id)?)
    }

    /// The number of a copy's server. While the bus is used each copy has one.
    fn server_of(&self, published: &Published, copy: &Replica) -> Option<u16> {
        // By what the pool has rules for: the bus may be used, or no more, since they were made.
        let of = lock(&self.tls).of;
        server_at(&self.pool, &place_of(published, copy, of)?)
    }

    /// Where the copy is reached that clients reach at this place. `None`: that is not known at the
    /// moment.
    fn place_at(&self, host: &str, port: u16) -> Option<Place> {
        let of = lock(&self.tls).of;
        let published = self.engine.membership.newest()?;
        match bus::copy_at(&published, host, port) {
            Some(copy) => place_of(&published, copy, of),
            // A copy that is newer than what this one has read. The bus is another port.
            None if of == Some(Certificates::Bus) => None,
            None => Some(Place { address: Address::Tcp(host.into(), port), rules: number_of(of) }),
        }
    }

    /// Takes over how replicas log in.
    pub fn follow_login(&self) {
        let login = login(self.engine);
        if self.pool.login() != login {
            self.pool.set_login(login);
        }
        let _one_at_a_time = lock(&self.taking_over);
        if self.follow_tls() {
            self.followed.store(0, SeqCst);
        }
    }

    /// Takes over the rules of TLS for links, if the options about it have changed. Those that do
    /// not work are tried again: until then links go on by the rules before, if these are for the
    /// same port, and otherwise none is made. Returns whether another port of each node may count
    /// now.
    fn follow_tls(&self) -> bool {
        let config = &&self.engine.config;
        // Held all the time: what another thread has seen earlier is not taken over later.
        let mut tls = lock(&self.tls);
        let of = bus::certificates(self.engine, config.tls_cluster());
        let options = tls::outgoing_options(config, of);
        if tls.options.as_ref() == Some(&options) {
            tls.failed = None;
            return false;
        }
        let before = tls.failed.take();
        let before = before.filter(|(failed, ..)| *failed == options);
        if before.as_ref().is_some_and(|(.., at)| Instant::now() < *at) {
            tls.failed = before;
            return false;
        }
        match of.map(|of| tls::outgoing(config, of)).transpose() {
            Ok(rules) => {
                self.pool.set_server_rules(number_of(of), rules);
                tls.options = Some(options);
            }
            Err(why) => {
                if before.is_none_or(|(_, said, _)| said != why) {
                    log!(Warning, "Cluster: links to other nodes: {why}");
                }
                if of != tls.of || tls.options.is_none() {
                    self.pool.refuse_links(number_of(of), Invalid(why.clone()));
                    tls.options = None;
                }
                tls.failed = Some((options, why, Instant::now() + RETRY));
            }
        }
        tls.of = of;
        true
    }

    /// What SCAN's cursors call the shards with slots, and the servers that lead them.
    fn walk(&self, published: &Published) -> Vec<(u16, u16)> {
        let all = numbered(&published.view.topology.value.shards).into_iter();
        let with_slots = all.filter(|(_, shard)| !shard.slots.is_empty());
        with_slots
            .filter_map(|(number, shard)| Some((number, self.server(published, shard)?)))
            .collect()
    }

    /// The number of each slot's server.
    fn slots(&self, published: &Published) -> Vec<Option<u16>> {
        let mut slots = vec![None; usize::from(SLOTS)];
        for shard in &published.view.topology.value.shards {
            let server = self.server(published, shard);
            for &(first, last) in shard.slots.ranges() {
                slots[usize::from(first)..=usize::from(last)].fill(server);
            }
        }
        slots
    }
}

/// Gives each shard a number that comes from its name, so that a walk goes on when another copy
/// leads, at another node, and when other shards come and go. Of two shards with the same number the
/// one with the greater name gets the next free one.
fn numbered(shards: &[Shard]) -> BTreeMap<u16, &Shard> {
    let mut by_name: Vec<&Shard> = shards.iter().collect();
    by_name.sort_unstable_by_key(|shard| shard.id);
    let mut numbered = BTreeMap::new();
    for shard in by_name.into_iter().take(MAX_SERVERS) {
        let mut number = shard.id.number() % MAX_SERVERS as u16;
        while numbered.contains_key(&number) {
            number = (number + 1) % MAX_SERVERS as u16;
        }
        numbered.insert(number, shard);
    }
    numbered
}

/// Where a copy is reached by these certificates. `None`: it has no port for them.
fn place_of(published: &Published, copy: &Replica, of: Option<Certificates>) -> Option<Place> {
    // Not what clients are told.
    let port = match Way::to(published, copy, of) {
        Ok(way) if way.port == 0 => return None,
        Ok(way) => way.port,
        // A server that was started a moment ago does not know the port of a copy that is away.
        // What is asked at port 0 fails: no shard is left out, and no link to the port of clients
        // from before goes on in clear.
        Err(_) => 0,
    };
    let address = Address::Tcp(copy.address.host.clone(), port);
    Some(Place { address, rules: number_of(of) })
}

/// The number of the pool's rules for links by these certificates. Each has its own: while copies
/// begin or cease to use the bus, a thread may still make a link to a port that counted before.
fn number_of(of: Option<Certificates>) -> usize {
    match of {
        None => 0,
        Some(Certificates::Server) => 1,
        Some(Certificates::Bus) => 2,
    }
}

/// As replicas log in.
fn login(engine: &Engine) -> Option<Login> {
    let password = engine.config.primaryauth();
    let user = engine.config.primaryuser();
    let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    (!password.is_empty())
        .then(|| Login { user: (!user.is_empty()).then(|| text(&user)), password: text(&password) })
}

fn log_line(line: &str) {
    log!(Notice, "Cluster: {line}");
}
