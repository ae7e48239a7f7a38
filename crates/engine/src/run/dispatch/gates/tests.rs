use super::*;
use crate::clients::Client;
use crate::clock::{Clock, ManualTime};
use crate::command::Command;
use crate::scripts::ScriptRules;
use crate::session::Session;
use config::{Config, SetContext};
use keyspace::Millis;
use std::sync::Arc;

static GET: Command = Command { name: "get", flags: Flags::READONLY, ..Command::ROW };
static SET: Command =
    Command { name: "set", flags: Flags::WRITE.with(Flags::DENYOOM), ..Command::ROW };
static WAIT: Command = Command { name: "wait", flags: Flags::NOSCRIPT, ..Command::ROW };
static MULTI: Command =
    Command { name: "multi", flags: Flags::NO_MULTI.with(Flags::NO_AUTH), ..Command::ROW };
static DEBUG: Command = Command { name: "debug", flags: Flags::PROTECTED, ..Command::ROW };
static ROWS: &[&Command] = &[&GET, &SET, &WAIT, &MULTI, &DEBUG];

/// Asserts the reply to each command of `ROWS` in this state: the first word of its refusal, or
/// nothing.
#[track_caller]
fn check<const N: usize>(gates: [Gate; N], set_up: impl Fn(&mut Cx<'_>), expected: [&str; 5]) {
    let clock = Clock::manual(ManualTime::starting_at(Millis(1)));
    let engine = Engine::new(Config::new(), ROWS, &[], 1, clock);
    let thread = engine.context(0);
    let client = Arc::new(Client::unconnected(1, 0, Millis(1)));
    let mut session = Session::new(client, engine.acl.default_user(), true);
    let mut out = resp::Output::default();
    let mut cx = Cx::new(engine, &thread, &mut session, Millis(1), &mut out);
    set_up(&mut cx);
    let args = Args::new(&[b"a word"]);
    let told = engine.table.all().iter().map(|row| match pass(&mut cx, row, args, gates) {
        Ok(()) => String::new(),
        Err(Refusal::NotNow(reason)) => format!("{reason:?}"),
        Err(Refusal::Error(error)) => String::from_utf8_lossy(&error.line()).into_owned(),
        Err(Refusal::Forward(_)) => panic!("nothing is forwarded without a cluster"),
    });
    for ((row, told), expected) in ROWS.iter().zip(told).zip(expected) {
        assert_eq!(told.is_empty(), expected.is_empty(), "{}: {told}", row.name);
        assert!(told.contains(expected), "{}: {told}", row.name);
    }
}

/// DEBUG is refused first.
fn with_debug([a, b, c, d]: [&str; 4]) -> [&str; 5] {
    [a, b, c, d, "DEBUG"]
}

#[test]
fn a_client_passes_what_concerns_clients() {
    check(CLIENT, |_| {}, ["", "", "", "", "DEBUG"]);
    let in_multi = |cx: &mut Cx<'_>| {
        cx.session.set_multi(Some(Box::default()));
    };
    check(CLIENT, in_multi, ["", "", "", "inside a transaction", "DEBUG"]);
    let subscribed = |cx: &mut Cx<'_>| {
        cx.session.change_subscriptions(|all| all.channels.insert(Box::from(&b"channel"[..])));
    };
    check(CLIENT, subscribed, with_debug(["Can't execute"; 4]));
    let loading = |cx: &mut Cx<'_>| cx.engine.loading.begin(1, Millis(1));
    check(CLIENT, loading, with_debug(["LOADING"; 4]));
}

#[test]
fn a_script_passes_what_concerns_scripts() {
    let script = |rules: ScriptRules| move |cx: &mut Cx<'_>| cx.script = Some(rules);
    let rules = ScriptRules::default();
    check(SCRIPT, script(rules), ["", "", "not allowed from script", "", "DEBUG"]);
    let read_only = ScriptRules { is_read_only: true, ..rules };
    let expected = ["", "read-only scripts", "not allowed from script", "", "DEBUG"];
    check(SCRIPT, script(read_only), expected);
    let full = ScriptRules { is_out_of_memory: true, ..rules };
    check(SCRIPT, script(full), ["", "OOM", "not allowed from script", "", "DEBUG"]);
    let has_begun = ScriptRules { has_written: true, ..full };
    check(SCRIPT, script(has_begun), ["", "", "not allowed from script", "", "DEBUG"]);
}

#[test]
fn a_script_that_has_written_comes_to_its_end() {
    let without_replicas = |has_written| {
        move |cx: &mut Cx<'_>| {
            let wanted = [(&b"min-replicas-to-write"[..], &b"1"[..])];
            cx.engine.config.set(&wanted, SetContext::default(), &mut |_| Ok(())).unwrap();
            cx.script = Some(ScriptRules { has_written, ..ScriptRules::default() });
        }
    };
    let without_disk = |has_written| {
        move |cx: &mut Cx<'_>| {
            cx.engine.append_log.set_broken("No space left on device");
            cx.script = Some(ScriptRules { has_written, ..ScriptRules::default() });
        }
    };
    let refused = |with: &'static str| ["", with, "not allowed from script", "", "DEBUG"];
    check(SCRIPT, without_replicas(false), refused("NOREPLICAS"));
    check(SCRIPT, without_replicas(true), refused(""));
    check(SCRIPT, without_disk(false), refused("MISCONF"));
    check(SCRIPT, without_disk(true), refused(""));
}

#[test]
fn what_a_client_may_not_at_the_moment_does_not_concern_its_script() {
    let rules = Some(ScriptRules::default());
    let in_multi = |cx: &mut Cx<'_>| {
        cx.session.set_multi(Some(Box::default()));
        cx.session.set_authenticated(false);
        cx.script = rules;
    };
    check(SCRIPT, in_multi, ["", "", "not allowed from script", "", "DEBUG"]);
}
