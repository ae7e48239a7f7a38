//! The copies of databases as the console shows a server: `/api/v1/copies/ID/…` is the interface
//! of the admin port of the copy of that name. Requests run as a user that may do everything: a
//! request that is let in here is the administrator's of the cluster, who may set every user's
//! password.
//!
//! `/metrics/copies` has the series of the copies of this machine.

use super::Site;
use crate::shared::Shared;
use crate::site::{CONSOLE, INTERNAL, Placed, Stage, console_password};
use crate::talk;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use client::{Address, Login};
use cluster::id::Id;
use console::Target;
use console::host::{Boxed, Host, Peer, Purpose, Stream, ThreadTime};
use metrics::text::join;
use process::log;
use process::threads::times_of;
use rustls::ServerConfig;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;
use web::rest::{ApiError, PREFIX};

/// Copies that are looked at each second at a time. The one that was asked about longest ago makes
/// way.
const MAX_TARGETS: usize = 32;
/// A copy about which no page asks for so long is not looked at any more.
const MAX_SILENCE: Duration = Duration::from_secs(300);
/// How often that is checked.
const PERIOD: Duration = Duration::from_secs(60);

/// What the paths of copies begin with, below the prefix.
const FOLDER: &str = "/copies/";

/// The copies that pages look at.
#[derive(Clone, Default)]
pub struct Targets(Arc<Mutex<HashMap<Id, Kept>>>);

struct Kept {
    target: Arc<Target>,
    asked: Instant,
}

impl Kept {
    fn is_needed(&self) -> bool {
        self.asked.elapsed() < MAX_SILENCE || self.target.is_watched()
    }
}

impl Targets {
    /// Returns what looks at a copy, and begins to look at it if need be.
    fn of(&self, shared: &Arc<Shared>, copy: Id) -> Arc<Target> {
        let mut kept = lock(&self.0);
        if let Some(known) = kept.get_mut(&copy) {
            known.asked = Instant::now();
            return Arc::clone(&known.target);
        }
        if kept.len() >= MAX_TARGETS
            && let Some((&oldest, _)) = kept.iter().min_by_key(|(_, it)| it.asked)
        {
            kept.remove(&oldest);
        }
        let host = CopyHost { shared: Arc::clone(shared), copy, of: Figures::Database };
        let target = Arc::new(Target::new(Arc::new(host)));
        kept.insert(copy, Kept { target: Arc::clone(&target), asked: Instant::now() });
        let targets = self.clone();
        tokio::spawn(async move {
            while targets.still_has(copy) {
                tokio::time::sleep(PERIOD).await;
            }
        });
        target
    }

    /// Forgets a copy that is not needed. Returns whether it is there still.
    fn still_has(&self, copy: Id) -> bool {
        let mut kept = lock(&self.0);
        let is_needed = kept.get(&copy).is_some_and(Kept::is_needed);
        if !is_needed {
            kept.remove(&copy);
        }
        is_needed
    }
}

/// Returns whether a path is one of a copy.
pub fn is_of_copy(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|path| path.starts_with(FOLDER))
}

/// Answers a request about a copy.
pub async fn answer(site: &Site, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let rest = path.strip_prefix(PREFIX).and_then(|path| path.strip_prefix(FOLDER));
    let (name, rest) = rest.unwrap_or_default().split_once('/').unwrap_or_default();
    let shared = &site.call.shared;
    let found = name.parse::<Id>().ok().filter(|&copy| CopyHost::find(shared, copy).is_some());
    // Its sessions are this port's.
    let Some(copy) = found.filter(|_| rest != "session" || only_asks(&request)) else {
        return ApiError::missing("copy").into_response();
    };
    site.targets.of(shared, copy).answer(&format!("/{rest}"), request).await
}

fn only_asks(request: &Request) -> bool {
    web::rest::only_reads(request.method())
}

/// How long a copy may take to answer a scrape. Prometheus waits for ten seconds.
const MAX_SCRAPE: Duration = Duration::from_secs(5);

/// Returns the series of this machine's copies, as their own admin port would have them, with
/// labels that say which copy it is. One that does not answer is down, and holds up no other.
pub async fn expose(shared: &Arc<Shared>) -> String {
    let site = shared.site();
    let of_machine = |placed: &&Placed| placed.machine == shared.machine && !placed.is_leaving;
    let databases = site.databases.iter().filter(|(_, at)| at.value.stage == Stage::Ready);
    let scrapes: Vec<_> = databases
        .flat_map(|(name, at)| at.value.copies.iter().filter(of_machine).map(move |it| (name, it)))
        .map(|(name, placed)| {
            let labels = [name.clone(), placed.shard.to_string(), placed.copy.to_string()];
            let of = Figures::Own;
            let host = CopyHost { shared: Arc::clone(shared), copy: placed.copy, of };
            (labels, tokio::spawn(console::scrape(Arc::new(host), MAX_SCRAPE, times_of)))
        })
        .collect();
    let mut texts = Vec::new();
    for (labels, scrape) in scrapes {
        // It fails only if it panics, which ends the process.
        texts.push((labels, scrape.await.unwrap_or_default()));
    }
    let labelled = texts.iter().map(|([database, shard, copy], text)| {
        ([("database", &**database), ("shard", &**shard), ("copy", &**copy)], &**text)
    });
    join(&labelled.collect::<Vec<_>>())
}

/// A copy of a database.
struct CopyHost {
    shared: Arc<Shared>,
    copy: Id,
    of: Figures,
}

/// What a copy is asked about, if it answers for all keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figures {
    /// The whole database, as its clients see it.
    Database,
    /// Itself.
    Own,
}

/// Where a copy is, and the password by which nodes log in to it; empty if there is none.
struct Found {
    address: Address,
    secret: String,
    is_tls: bool,
}

impl CopyHost {
    /// Returns where a copy is, if a database has it.
    fn find(shared: &Shared, copy: Id) -> Option<Found> {
        let site = shared.site();
        site.databases.values().find_map(|at| {
            let placed = at.value.copies.iter().find(|placed| placed.copy == copy)?;
            let login = at.value.login();
            Some(Found {
                address: Address::tcp(&placed.host, placed.port),
                secret: login.password.to_owned(),
                is_tls: login.is_tls,
            })
        })
    }
}

async fn connect(found: Option<Found>, of: Figures) -> io::Result<Box<dyn Stream>> {
    let gone = || io::Error::other("no database has this copy any more");
    let Found { address, secret, is_tls } = found.ok_or_else(gone)?;
    let rules = || {
        let rules = talk::rules();
        rules.ok_or_else(|| io::Error::other(crate::talk::NO_CERTIFICATES))
    };
    let tls = is_tls.then(rules).transpose()?;
    let mut stream = console::open(&address, tls).await?;
    if !secret.is_empty() {
        let login = Login { user: CONSOLE, password: &console_password(&secret) };
        if console::authenticate(&mut stream, login).await.is_err() {
            // A copy that an earlier version started does not know that user yet.
            let login = Login { user: INTERNAL, password: &secret };
            console::authenticate(&mut stream, login).await?;
        }
    }
    if of == Figures::Own {
        console::order(&mut stream, talk::AS_COPY).await?;
    }
    Ok(stream)
}

impl Host for CopyHost {
    fn open(&self, _: Purpose) -> Boxed<io::Result<Box<dyn Stream>>> {
        Box::pin(connect(CopyHost::find(&self.shared, self.copy), self.of))
    }

    fn readiness(&self) -> Boxed<Result<(), String>> {
        let opening = self.open(Purpose::Watching);
        Box::pin(async move { opening.await.map(drop).map_err(|error| error.to_string()) })
    }

    fn refuses(&self, _: Peer) -> bool {
        false
    }

    fn trusted_names(&self) -> String {
        String::new()
    }

    fn standing_user(&self) -> Option<String> {
        let secret = CopyHost::find(&self.shared, self.copy).map(|found| found.secret);
        let has_one = secret.is_some_and(|secret| !secret.is_empty());
        Some(if has_one { CONSOLE } else { "default" }.to_owned())
    }

    fn tls(&self) -> Option<Arc<ServerConfig>> {
        None
    }

    fn threads(&self) -> Vec<ThreadTime> {
        Vec::new()
    }

    fn name(&self) -> String {
        let found = CopyHost::find(&self.shared, self.copy);
        found.map_or_else(|| self.copy.to_string(), |found| found.address.to_string())
    }

    fn log(&self, line: &str) {
        log!(Notice, "{line}");
    }
}
