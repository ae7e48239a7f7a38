//! The routes that change a database or a machine while it serves. Each says first what it would
//! do, and is a job then.

use super::Call;
use super::routes::{change_once, give_away, work};
use super::wire::{
    Begun, Drain, HotKeyShown, MachineChange, MoveSlots, Named, Rebalance, SlotMap, Update,
    UserChange, UserRemoval, Zone,
};
use crate::change::{self, Owner};
use crate::keys::SiteKeys;
use crate::members::Of;
use crate::reshape::{forecast, measure};
use crate::servers::check_rules;
use crate::settings::{Measure, check_name, sha256};
use crate::shared::Shared;
use crate::show::PlanShown;
use crate::site::{Aim, Database, DatabaseUser, INTERNAL, JobKind, Site, unchanged};
use crate::store::{Problem, Store, put};
use axum::http::Method;
use cluster::coordinator::Transaction;
use cluster::slots::{COUNT, Slots};
use cluster::view::View;
use console::rest::{ApiError, Done, Route};

/// The routes.
pub fn routes() -> Vec<Route<Call>> {
    vec![
        Route::post(
            "/cluster/databases",
            "Change a database while it runs, or only plan it: memory, shards up and down, replicas, options",
            update,
        )
        .by(Method::PATCH),
        Route::post(
            "/cluster/databases/rebalance",
            "Move slots until shards carry the same, or only plan it",
            rebalance,
        ),
        Route::post(
            "/cluster/databases/move",
            "Move certain slots to a shard, or only plan it",
            move_slots,
        ),
        Route::get("/cluster/databases/slots", "What the slots of a database have", slots),
        Route::post(
            "/cluster/databases/slots/count",
            "The same, and what requests for them use: it is counted for two seconds",
            count_slots,
        ),
        Route::post("/cluster/databases/users", "Create or change a user of a database", set_user),
        Route::post("/cluster/databases/users", "Delete a user of a database", remove_user)
            .by(Method::DELETE),
        Route::post("/cluster/machines/zone", "Say what fails together with a machine", zone),
        Route::post(
            "/cluster/machines/add",
            "Move copies from machines that have more to one that has fewer",
            fill,
        ),
        Route::post(
            "/cluster/machines/remove",
            "Give the copies of a machine away, end its node, and forget it",
            remove,
        ),
        Route::post(
            "/cluster/machines/drain",
            "Hand over what a machine leads, and move its copies to others, or only plan it",
            drain,
        ),
    ]
}

/// A name for events, which also says that it was asked for.
fn owner(call: &Call, shared: &Shared) -> Result<Owner, Problem> {
    Ok(Owner { request_id: call.request_id.clone(), ..shared.owner()? })
}

/// A request that has begun a job before begins nothing.
pub(crate) fn before(
    site: &Site,
    call: &Call,
    kind: JobKind,
    about: (&str, &str),
) -> Result<Option<Begun>, Problem> {
    let owner = Owner { machine: String::new(), lease: 0, request_id: call.request_id.clone() };
    let job = change::begun_before(site, &owner, kind, about)?;
    Ok(job.map(|job| Begun { job: Some(job), plan: None }))
}

/// Reads a database and its topology.
fn read<T>(
    store: &mut Store,
    name: &str,
    work: impl FnOnce(Of<'_>, &Site) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let site = store.read()?;
    let at = change::database(&site, name)?;
    let view = store.view(at.value.id)?;
    let view: View = view.ok_or_else(|| Problem::Wrong("its topology is gone".into()))?;
    let keys: &SiteKeys = &store.keys;
    work(Of { keys, name, at, view: &view }, &site)
}

/// Changes a database, or only says what that would do.
pub fn change_database(
    call: &Call,
    shared: &Shared,
    store: &mut Store,
    name: &str,
    dry_run: bool,
    changed: impl Fn(&Database) -> Result<Database, Problem>,
) -> Result<Begun, Problem> {
    let known = store.read()?;
    if let Some(begun) = before(&known, call, JobKind::Update, (name, ""))? {
        return Ok(begun);
    }
    let (plan, is_same) = read(store, name, |of, site| {
        let (old, new) = (&of.at.value, changed(&of.at.value)?);
        change::check_update(site, name, old, &new)?;
        let what = |it: &Database| (it.settings.clone(), it.users.clone(), it.old_secret.clone());
        let is_same = what(old) == what(&new) && new.old_secret.is_empty();
        let plan = forecast::update(of, site, &new)?;
        // What an earlier job has left is done, too.
        let is_quiet = plan.copies.is_empty() && plan.removed.is_empty() && plan.moves.is_empty();
        Ok((plan, is_same && is_quiet))
    })?;
    if dry_run || call.dry_run || is_same {
        return Ok(Begun { job: None, plan: Some(plan) });
    }
    let owner = owner(call, shared)?;
    let job = store.change(|site, keys, _| {
        if let Some(job) = change::begun_before(site, &owner, JobKind::Update, (name, ""))? {
            return Ok((job, Transaction::default()));
        }
        let at = change::database(site, name)?;
        change::update(site, keys, (name, &changed(&at.value)?), &owner)
    })?;
    store.note(&format!("database '{name}' is being changed"));
    Ok(Begun { job: Some(job), plan: Some(plan) })
}

async fn update(call: Call, asked: Update) -> Result<Begun, ApiError> {
    work(call.clone(), move |shared, store| {
        change_database(&call, shared, store, &asked.name, asked.dry_run, |old| {
            let new = change::with_settings(old, &asked.changes.apply(&old.settings)?);
            // An earlier version's gets its first one.
            match asked.new_secret && !old.secret.is_empty() {
                true => change::with_new_secret(&new),
                false => Ok(new),
            }
        })
    })
    .await
}

/// Begins to move slots, or only says what that would do.
fn begin_moves(
    call: &Call,
    shared: &Shared,
    store: &mut Store,
    (name, kind, aim): (&str, JobKind, &Aim),
    dry_run: bool,
) -> Result<Begun, Problem> {
    let known = store.read()?;
    if let Some(begun) = before(&known, call, kind, (name, ""))? {
        return Ok(begun);
    }
    let plan: PlanShown = read(store, name, |of, site| {
        change::check_free(site, name, &of.at.value)?;
        forecast::slots(of, kind, aim)
    })?;
    if dry_run || call.dry_run {
        return Ok(Begun { job: None, plan: Some(plan) });
    }
    let owner = owner(call, shared)?;
    let job = store.change(|site, keys, _| {
        if let Some(job) = change::begun_before(site, &owner, kind, (name, ""))? {
            return Ok((job, Transaction::default()));
        }
        change::move_slots(site, keys, (name, kind, aim.clone()), &owner)
    })?;
    store.note(&format!("slots of database '{name}' are being moved"));
    Ok(Begun { job: Some(job), plan: Some(plan) })
}

async fn rebalance(call: Call, asked: Rebalance) -> Result<Begun, ApiError> {
    work(call.clone(), move |shared, store| {
        let aim = Aim { by: Some(asked.by), ..Aim::default() };
        let about = (&*asked.name, JobKind::Rebalance, &aim);
        begin_moves(&call, shared, store, about, asked.dry_run)
    })
    .await
}

async fn move_slots(call: Call, asked: MoveSlots) -> Result<Begun, ApiError> {
    work(call.clone(), move |shared, store| {
        let slots = read_slots(&asked.slots)?;
        let to = asked.shard.checked_sub(1);
        let to = to.ok_or_else(|| Problem::Wrong("shards are counted from 1".into()))?;
        let aim = Aim { slots: Some(slots), to: Some(to), ..Aim::default() };
        let about = (&*asked.name, JobKind::Move, &aim);
        begin_moves(&call, shared, store, about, asked.dry_run)
    })
    .await
}

/// Reads slots as users write them: 0-99,200.
fn read_slots(text: &str) -> Result<Slots, Problem> {
    let wrong = |part: &str| {
        Problem::Wrong(format!("'{part}' are no slots: write 0-99,200, with slots from 0 to 16383"))
    };
    let slot = |text: &str| text.trim().parse::<u16>().ok().filter(|slot| *slot < COUNT);
    let mut named = vec![false; usize::from(COUNT)];
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (slot(first), slot(last)) {
            (Some(first), Some(last)) if first <= last => {
                named[usize::from(first)..=usize::from(last)].fill(true);
            }
            _ => return Err(wrong(part)),
        }
    }
    let slots = Slots::from_fn(|slot| named[usize::from(slot)]);
    if slots.is_empty() { Err(wrong(text)) } else { Ok(slots) }
}

async fn slots(call: Call, asked: Named) -> Result<SlotMap, ApiError> {
    map_of(call, asked, Counts::No).await
}

async fn count_slots(call: Call, asked: Named) -> Result<SlotMap, ApiError> {
    map_of(call, asked, Counts::Requests).await
}

/// Whether the primaries are made to count for a while.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    No,
    Requests,
}

async fn map_of(call: Call, asked: Named, counts: Counts) -> Result<SlotMap, ApiError> {
    let counts = counts == Counts::Requests;
    work(call, move |_, store| {
        read(store, &asked.name, |of, _| {
            let by = if counts { Measure::Cpu } else { Measure::Keys };
            let (figures, hot_keys) = std::thread::scope(|scope| {
                let hot_keys =
                    counts.then(|| scope.spawn(|| measure::hot_keys(&of.at.value, of.view)));
                (measure::slots(&of.at.value, of.view, by), hot_keys.map(|thread| thread.join()))
            });
            let (figures, hot_keys) = (figures?, hot_keys.transpose());
            let hot_keys = hot_keys.map_err(|_| Problem::Away("the node ends".into()))?;
            let hot_keys = hot_keys.transpose()?.flatten();
            let hot_keys = hot_keys.map(|keys| keys.into_iter().map(shown).collect());
            let used = |figure: fn(&measure::Used) -> u64| {
                figures
                    .used
                    .as_ref()
                    .map(|used| used.iter().map(|it| measure::a_second(figure(it))).collect())
            };
            let (cpu_us, network_bytes) = (used(|it| it.cpu_us), used(|it| it.network_bytes));
            let requests = used(|it| it.requests);
            let mut shards = vec![0; usize::from(COUNT)];
            for number in of.at.value.shards() {
                for slot in of.shard(number).into_iter().flat_map(|shard| shard.slots.iter()) {
                    shards[usize::from(slot)] = number + 1;
                }
            }
            let (keys, bytes) = (figures.keys, figures.bytes);
            Ok(SlotMap { shards, keys, bytes, requests, cpu_us, network_bytes, hot_keys })
        })
    })
    .await
}

fn shown(it: measure::HotKey) -> HotKeyShown {
    let measure::HotKey { key, slot, shard, used } = it;
    let measure::Used { cpu_us, network_bytes, .. } = used;
    let (cpu_us, network_bytes) = (measure::a_second(cpu_us), measure::a_second(network_bytes));
    let key = String::from_utf8_lossy(&key).into_owned();
    HotKeyShown { key, slot, shard, cpu_us, network_bytes }
}

/// The words of a user's rules. Passwords and resets are not among them: they have fields of their
/// own.
fn rules(text: &str) -> Result<Vec<String>, Problem> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let is_rule = |word: &String| {
        let first = word.as_bytes()[0];
        let is_word =
            ["allkeys", "allchannels", "allcommands", "nocommands", "resetkeys"].contains(&&**word);
        is_word || b"+-~&%(".contains(&first) || word.ends_with(')')
    };
    match words.iter().find(|word| !is_rule(word)) {
        None => {
            check_rules(words.iter().map(String::as_str)).map_err(Problem::Wrong)?;
            Ok(words)
        }
        Some(word) => Err(Problem::Wrong(format!(
            "'{word}' is no rule: write commands (+@read, -flushall), keys (~cache:*, %R~x) and channels (&*)"
        ))),
    }
}

/// A database with another user.
fn with_user(old: &Database, asked: &UserChange) -> Result<Database, Problem> {
    let UserChange { user, .. } = asked;
    check_name("user", user)?;
    if [INTERNAL, "default"].contains(&&**user) {
        let why = "the user 'default' has the database's password; 'dunlin-internal' is the nodes'";
        return Err(Problem::Wrong(why.into()));
    }
    if old.secret.is_empty() {
        let why = "the database is of an earlier version: change its password once (update-db)";
        return Err(Problem::Wrong(why.into()));
    }
    let known = old.users.get(user);
    let password = asked.password.as_deref().filter(|text| !text.is_empty()).map(sha256);
    let password_sha256 = password.or_else(|| known.map(|it| it.password_sha256.clone()));
    let password_sha256 = password_sha256
        .ok_or_else(|| Problem::Wrong(format!("the new user '{user}' needs a password")))?;
    let words = asked.rules.as_deref().map(rules).transpose()?;
    let rules = words.or_else(|| known.map(|it| it.rules.clone())).unwrap_or_default();
    let mut users = old.users.clone();
    users.insert(user.clone(), DatabaseUser { rules, password_sha256 });
    Ok(Database { users, ..old.clone() })
}

async fn set_user(call: Call, asked: UserChange) -> Result<Begun, ApiError> {
    work(call.clone(), move |shared, store| {
        change_database(&call, shared, store, &asked.name, asked.dry_run, |old| {
            with_user(old, &asked)
        })
    })
    .await
}

async fn remove_user(call: Call, asked: UserRemoval) -> Result<Begun, ApiError> {
    work(call.clone(), move |shared, store| {
        let UserRemoval { name, user, dry_run } = &asked;
        change_database(&call, shared, store, name, *dry_run, |old| {
            let (mut users, mut former_users) = (old.users.clone(), old.former_users.clone());
            if users.remove(user).is_none() {
                let why = format!("the database '{name}' has no user '{user}'");
                return Err(Problem::Missing(why));
            }
            former_users.push(user.clone());
            Ok(Database { users, former_users, ..old.clone() })
        })
    })
    .await
}

async fn zone(call: Call, asked: Zone) -> Result<Done, ApiError> {
    work(call.clone(), move |_, store| {
        let Zone { name, zone } = &asked;
        if !zone.is_empty() {
            check_name("zone", zone)?;
        }
        let is_new = change_once(&call, store, |site, keys, _| {
            let known = change::machine(site, name)?;
            let compares = vec![unchanged(keys.machine(name), known.spec.revision)];
            let changes = vec![put(keys.zone(name), zone.clone().into_bytes())];
            Ok(Transaction { compares, changes })
        })?;
        if is_new {
            store.note(&format!("machine '{name}' is in zone '{zone}'"));
        }
        Ok(Done::new())
    })
    .await
}

async fn drain(call: Call, asked: Drain) -> Result<Begun, ApiError> {
    let kind = if asked.switch_only { JobKind::Switch } else { JobKind::Drain };
    let plans = !asked.switch_only && !asked.waits;
    give_away(call, (asked.name, kind), asked.dry_run, plans).await
}

async fn remove(call: Call, asked: MachineChange) -> Result<Begun, ApiError> {
    give_away(call, (asked.name, JobKind::Remove), asked.dry_run, true).await
}

async fn fill(call: Call, asked: MachineChange) -> Result<Begun, ApiError> {
    give_away(call, (asked.name, JobKind::Fill), asked.dry_run, true).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_rules_are_checked() {
        let read = read_slots("0-2, 5,16383").expect("they are slots");
        assert_eq!(read.iter().collect::<Vec<_>>(), [0, 1, 2, 5, 16383]);
        for wrong in ["", "a", "3-1", "16384", "1-", "-"] {
            assert!(read_slots(wrong).is_err(), "{wrong}");
        }
        assert_eq!(rules("+@read ~a:* &*").map(|words| words.len()), Ok(3));
        for wrong in [">word", "#00", "nopass", "reset", "on"] {
            assert!(rules(wrong).is_err(), "{wrong}");
        }
    }
}
