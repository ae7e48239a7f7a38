//! A database of the cluster as a source or target of a transfer.

use super::Work;
use crate::change;
use crate::site::Database;
use crate::store::Store;
use crate::talk::{self, Answer};
use cluster::view::View;
use rustls::ClientConfig;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::sync::lock;
use transfer::locate::{self, Keyspace, Locate, Part};
use transfer::place::{Address, Login};
use transfer::source::Problem;
use transfer::target::{Route, Target};

/// How long a copy may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// The primaries of a database, as etcd has them.
pub struct Primaries {
    store: Mutex<Store>,
    name: String,
    login: Login,
    /// The copies speak TLS.
    is_tls: bool,
}

fn again(problem: crate::store::Problem) -> Problem {
    match problem {
        crate::store::Problem::Away(text) => Problem::Again(text),
        problem => Problem::Final(problem.to_string()),
    }
}

/// How nodes log in to the copies of a database.
pub fn login(database: &Database) -> Login {
    let login = database.login();
    Login { user: login.user.into(), password: login.password.into() }
}

impl Primaries {
    /// Of a database.
    pub fn new(work: &Work, database: &Database) -> Primaries {
        let (name, is_tls) = (work.database.clone(), database.login().is_tls);
        Primaries { store: Mutex::new(work.store()), name, login: login(database), is_tls }
    }

    /// The database and its topology.
    ///
    /// # Errors
    /// etcd is away, or it is gone.
    pub fn view(&self) -> Result<(Database, View), Problem> {
        let mut store = lock(&self.store);
        let site = store.read().map_err(crate::store::Problem::from).map_err(again)?;
        let database = change::database(&site, &self.name).map_err(again)?.value.clone();
        let view = store.view(database.id).map_err(again)?;
        let view = view.ok_or_else(|| Problem::Final("its topology is gone".into()))?;
        Ok((database, view))
    }
}

/// Returns where the primary of each shard is.
///
/// # Errors
/// A shard has none, or slots are on their way.
pub fn primaries(database: &Database, view: &View) -> Result<Vec<Part>, Problem> {
    let topology = &view.topology.value;
    let is_moving = !topology.moves.is_empty()
        || topology.rehash.is_some()
        || topology.shards.iter().any(|it| !it.migrating.is_empty() || !it.importing.is_empty());
    if is_moving {
        return Err(Problem::Moving("slots are being moved between the shards".into()));
    }
    let mut parts = Vec::new();
    for shard in topology.shards.iter().filter(|shard| !shard.slots.is_empty()) {
        let placed = database.primary(shard).filter(|_| view.is_alive(shard.holder));
        let placed = placed.ok_or_else(|| Problem::Again("a shard has no primary".into()))?;
        let slots = shard.slots.ranges().to_vec();
        parts.push(Part { address: (placed.host.clone(), placed.port), slots: Some(slots) });
    }
    parts.sort_by(|one, other| one.slots.cmp(&other.slots));
    Ok(parts)
}

impl Locate for Primaries {
    fn parts(&self) -> Result<Vec<Part>, Problem> {
        let (database, view) = self.view()?;
        primaries(&database, &view)
    }

    fn login(&self) -> Login {
        self.login.clone()
    }

    fn rules(&self) -> Result<Option<Arc<ClientConfig>>, Problem> {
        match (self.is_tls, talk::rules()) {
            (false, _) => Ok(None),
            (true, Some(rules)) => Ok(Some(rules)),
            (true, None) => {
                let text = "the copies speak TLS, and this machine has no certificates";
                Err(Problem::Again(text.into()))
            }
        }
    }
}

/// Connects to a database as a target. The job must be this node's when the connections are there.
///
/// # Errors
/// No copy answers, or the job is another node's.
pub fn target(work: &Work, primaries: &Primaries) -> Result<Target, Problem> {
    let (database, view) = primaries.view()?;
    let parts = self::primaries(&database, &view)?;
    let name = work.connection_name();
    let target = match database.settings.endpoint.is_cluster() {
        true => locate::target(primaries, &name)?,
        false => {
            let address: &Address = &parts[0].address;
            let link = locate::named(primaries, address, &name)?;
            let is_one_shard = parts.len() == 1;
            // Rules may put keys of one slot of Redis's on several shards.
            let is_by_slot = view.topology.value.hashing.is_empty();
            let route = Route::One { is_one_shard, is_by_slot };
            Target::new(vec![(address.clone(), link)], route)
        }
    };
    work.check_owner().map_err(again)?;
    Ok(target)
}

/// Closes the connections of a node that had this job before.
pub fn fence(work: &Work, database: &Database) {
    let name = format!(" name={} ", work.connection_name());
    for placed in &database.copies {
        let address = (&*placed.host, placed.port);
        let list: &[&[&str]] = &[&["CLIENT", "LIST"]];
        // A copy that does not answer is not written to by others either.
        let Ok(answers) = talk::ask(address, database.login(), list, ANSWER) else { continue };
        let [Answer::Text(clients)] = &answers[..] else { continue };
        for line in clients.lines().filter(|line| line.contains(&name)) {
            let id = line.split(' ').find_map(|field| field.strip_prefix("id="));
            let kill = ["CLIENT", "KILL", "ID", id.unwrap_or("0")];
            let _ = talk::ask(address, database.login(), &[&kill], ANSWER);
        }
    }
}

/// Counts the keys of a database, through each primary.
///
/// # Errors
/// One does not answer.
pub fn keyspace(database: &Database, view: &View) -> Result<Keyspace, crate::store::Problem> {
    let parts = primaries(database, view)
        .map_err(|problem| crate::store::Problem::Away(problem.text().to_owned()))?;
    let mut keys = Keyspace::new();
    for Part { address: (host, port), .. } in &parts {
        let address = (&**host, *port);
        let info = talk::info(address, database.login(), &["keyspace"], ANSWER);
        let info =
            info.map_err(|error| crate::store::Problem::Away(format!("{host}:{port}: {error}")))?;
        locate::add_keyspace(&mut keys, &info);
    }
    Ok(keys)
}
