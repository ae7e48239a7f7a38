//! The routes that change a database or a machine while it serves. Each says first what it would
//! do, and is a job then.

use super::Call;
use super::carry::{Order, Planned, Subject, carry, once};
use super::routes::give_away;
use super::wire::{
    Begun, Drain, HotKeyShown, MachineChange, MoveSlots, Named, Rebalance, SlotMap, Update,
    UserChange, UserRemoval, Zone,
};
use super::work::work;
use crate::change;
use crate::keys::SiteKeys;
use crate::members::Of;
use crate::reshape::{forecast, measure};
use crate::servers::check_rules;
use crate::settings::{Measure, check_name, sha256};
use crate::show::PlanShown;
use crate::site::{Aim, CONSOLE, Database, DatabaseUser, INTERNAL, JobKind, Site, unchanged};
use crate::store::{Problem, Store, put};
use axum::http::Method;
use cluster::coordinator::Transaction;
use cluster::slots::{COUNT, Slots};
use cluster::view::View;
use web::rest::{ApiError, Done, Route};

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
pub async fn change_database(
    call: Call,
    (name, dry_run): (String, bool),
    changed: impl Fn(&Database) -> Result<Database, Problem> + Clone + Send + 'static,
) -> Result<Begun, ApiError> {
    let about = Subject::database(JobKind::Update, &name).dry(dry_run);
    let plan = move |store: &mut Store, _: &Site, _| {
        let (plan, is_done) = read(store, &name, |of, site| {
            let (old, new) = (&of.at.value, changed(&of.at.value)?);
            change::check_update(site, &name, old, &new)?;
            let what =
                |it: &Database| (it.settings.clone(), it.users.clone(), it.old_secret.clone());
            let is_same = what(old) == what(&new) && new.old_secret.is_empty();
            let plan = forecast::update(of, site, &new)?;
            // What an earlier job has left is done, too.
            let is_quiet =
                plan.copies.is_empty() && plan.removed.is_empty() && plan.moves.is_empty();
            Ok((plan, is_same && is_quiet))
        })?;
        Ok(Planned { shown: Some(plan), is_done, work: (name, changed) })
    };
    carry(call, about, plan, |(name, changed), site, (keys, _), owner| {
        let at = change::database(site, name)?;
        change::update(site, keys, (name, &changed(&at.value)?), owner)
    })
    .await
}

async fn update(call: Call, asked: Update) -> Result<Begun, ApiError> {
    let Update { name, new_secret, dry_run, changes } = asked;
    change_database(call, (name, dry_run), move |old| {
        let new = change::with_settings(old, &changes.apply(&old.settings)?);
        if new_secret { change::with_new_secret(&new) } else { Ok(new) }
    })
    .await
}

/// Begins to move slots, or only says what that would do.
async fn begin_moves(
    call: Call,
    (kind, name, dry_run): (JobKind, String, bool),
    aim: Aim,
) -> Result<Begun, ApiError> {
    let about = Subject::database(kind, &name).dry(dry_run);
    let plan = move |store: &mut Store, _: &Site, _| {
        let plan: PlanShown = read(store, &name, |of, site| {
            change::check_free(site, &name, &of.at.value)?;
            forecast::slots(of, kind, &aim)
        })?;
        Ok(Planned::new(Some(plan), (name, aim)))
    };
    carry(call, about, plan, move |(name, aim), site, (keys, _), owner| {
        change::move_slots(site, keys, (name, kind, aim.clone()), owner)
    })
    .await
}

async fn rebalance(call: Call, asked: Rebalance) -> Result<Begun, ApiError> {
    let aim = Aim { by: Some(asked.by), ..Aim::default() };
    begin_moves(call, (JobKind::Rebalance, asked.name, asked.dry_run), aim).await
}

async fn move_slots(call: Call, asked: MoveSlots) -> Result<Begun, ApiError> {
    let slots = read_slots(&asked.slots)?;
    let to = asked.shard.checked_sub(1);
    let to = to.ok_or_else(|| Problem::Wrong("shards are counted from 1".into()))?;
    let aim = Aim { slots: Some(slots), to: Some(to), ..Aim::default() };
    begin_moves(call, (JobKind::Move, asked.name, asked.dry_run), aim).await
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
                    .map(|used| used.iter().map(|it| measure::per_second(figure(it))).collect())
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
    let (cpu_us, network_bytes) = (measure::per_second(cpu_us), measure::per_second(network_bytes));
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
    if [INTERNAL, CONSOLE].contains(&&**user) {
        return Err(Problem::Wrong(format!("'{user}' is the nodes': take another name")));
    }
    if user == "default" {
        let why = "the user 'default' has the database's password, which changes with the database";
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
    change_database(call, (asked.name.clone(), asked.dry_run), move |old| with_user(old, &asked))
        .await
}

/// A database without one of its users.
fn without_user(old: &Database, name: &str, user: &str) -> Result<Database, Problem> {
    let (mut users, mut former_users) = (old.users.clone(), old.former_users.clone());
    if users.remove(user).is_none() {
        return Err(Problem::Missing(format!("the database '{name}' has no user '{user}'")));
    }
    former_users.push(user.to_owned());
    Ok(Database { users, former_users, ..old.clone() })
}

async fn remove_user(call: Call, asked: UserRemoval) -> Result<Begun, ApiError> {
    let UserRemoval { name, user, dry_run } = asked;
    change_database(call, (name.clone(), dry_run), move |old| without_user(old, &name, &user)).await
}

async fn zone(call: Call, Zone { name, zone }: Zone) -> Result<Done, ApiError> {
    if !zone.is_empty() {
        check_name("zone", &zone).map_err(Problem::from)?;
    }
    let event = Order::new(format!("machine '{name}' is in zone '{zone}'"));
    once(call, event, move |site, keys| {
        let known = change::machine(site, &name)?;
        let compares = vec![unchanged(keys.machine(&name), known.spec.revision)];
        let changes = vec![put(keys.zone(&name), zone.clone().into_bytes())];
        Ok(Transaction { compares, changes })
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
