//! Options and users of a database, told to the copies that run.

use crate::change::Step;
use crate::copies::files::{self, Users, live_options};
use crate::site::{Database, INTERNAL, Login, Placed};
use crate::talk::{self, Answer};
use cluster::view::View;
use std::collections::BTreeMap;

/// Returns whether a copy has refused something because etcd did not answer it. It is asked again.
fn waits_for_etcd(why: &str) -> bool {
    match why.split_once(' ') {
        Some(("AWAY", _)) => true,
        // Copies of version 0.1 have no code for it, so their text is all there is.
        Some(("ERR", text)) => text.starts_with("The coordinator of the cluster is away"),
        _ => false,
    }
}

/// Sets options and users on all copies that run; the others get them when they start. All copies
/// know the users by which they log in before one logs in so. `None`: it is done.
pub fn apply(database: &Database, view: &View) -> Option<Step> {
    let users = files::users(database);
    let former = database.former_users.iter().filter(|name| !database.users.contains_key(*name));
    let former: Vec<&str> = former.map(String::as_str).collect();
    let of_nodes = |users: &Users<'_>| order(database, view, 30, |_| orders(users, true));
    let step = match of_nodes(&users) {
        // These rules are our own. Only copies of an earlier version refuse them, which lack the
        // category of nodes. What refuses the other rules, too, is at fault.
        Some(Step::Fails(_)) => of_nodes(&files::users_for_all_versions(database)),
        step => step,
    };
    if step.is_some() {
        return step;
    }
    let shards = database.shards();
    let options: BTreeMap<usize, Vec<(&'static str, String)>> =
        shards.into_iter().map(|shard| (shard, live_options(database, shard))).collect();
    order(database, view, 60, |placed| {
        let mut words = vec!["CONFIG", "SET"];
        let options = options.get(&placed.shard).into_iter().flatten();
        let options = options.map(|(name, value)| (*name, &**value));
        words.extend(
            options.chain(users.logins.iter().copied()).flat_map(|(name, value)| [name, value]),
        );
        let gone = (!former.is_empty()).then(|| [&["ACL", "DELUSER"], &former[..]].concat());
        [words].into_iter().chain(orders(&users, false)).chain(gone).collect()
    })
}

/// Returns the requests that make users: those of nodes, or the others.
fn orders<'a>(users: &'a Users<'_>, are_of_nodes: bool) -> Vec<Vec<&'a str>> {
    let chosen = users.rules.iter().filter(|(user, _)| (*user == INTERNAL) == are_of_nodes);
    let order = |(user, rules): &'a (&str, Vec<String>)| {
        let words = ["ACL", "SETUSER", *user].into_iter();
        words.chain(rules.iter().map(String::as_str)).collect()
    };
    chosen.map(order).collect()
}

/// Sends commands to all copies that run, at the same time: a copy that does not answer keeps
/// nothing from the others. Returns why it is not done; a refusal comes first.
fn order<'a>(
    database: &Database,
    view: &View,
    percent: u8,
    commands: impl Fn(&Placed) -> Vec<Vec<&'a str>> + Sync,
) -> Option<Step> {
    let runs = |placed: &&Placed| !placed.is_leaving && view.alive.contains_key(&placed.copy);
    let copies = database.copies.iter().filter(runs);
    let steps =
        talk::side_by_side(copies, |placed| tell(database, placed, percent, &commands(placed)));
    steps.into_iter().flatten().min_by_key(|step| !matches!(step, Step::Fails(_)))
}

/// Sends commands to a copy. Returns why it is not done.
fn tell(database: &Database, placed: &Placed, percent: u8, commands: &[Vec<&str>]) -> Option<Step> {
    // Without a password a long request is refused before its words are read.
    let ping: &[&str] = &["PING"];
    let commands: Vec<&[&str]> =
        [ping].into_iter().chain(commands.iter().map(Vec::as_slice)).collect();
    let Placed { machine, host, port, .. } = placed;
    let send = |login: Login<'_>| {
        let answers = talk::ask((host, *port), login, &commands, talk::ANSWER)?;
        match &answers[0] {
            Answer::Text(_) => Ok(answers),
            Answer::Error(why) => Err(std::io::Error::other(why.clone())),
        }
    };
    let Ok(answers) = send(database.login()).or_else(|_| send(database.old_login())) else {
        let why = format!("the copy on machine '{machine}', port {port}, does not answer");
        return Some(Step::Waits(percent, why));
    };
    let why = answers.into_iter().find_map(|answer| match answer {
        Answer::Error(why) => Some(why),
        Answer::Text(_) => None,
    })?;
    Some(if waits_for_etcd(&why) {
        let why = format!("the copy on machine '{machine}' waits for etcd: {why}");
        Step::Waits(percent, why)
    } else {
        Step::Fails(format!("machine '{machine}' refuses it: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_without_etcd_is_known_by_the_code_and_one_of_0_1_by_its_text() {
        for why in [
            "AWAY etcd is elsewhere",
            "ERR The coordinator of the cluster is away",
            "ERR The coordinator of the cluster is away: timed out",
        ] {
            assert!(waits_for_etcd(why), "{why}");
        }
        for why in ["ERR Error in ACL SETUSER modifier 'AWAY x': Syntax error", "AWAYS x", "AWAY"] {
            assert!(!waits_for_etcd(why), "{why}");
        }
    }
}
