//! Users, their rules and what they allow, over a small command table.

use super::*;
use crate::command::{Channels, Command, Flags, Group, KeyFlags, KeySpec};
use crate::request_keys::RequestKeys;
use keyspace::keyspace::Assignment;
use keyspace::{DbIndex, Keyspace};

const RO: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);

static GET: Command = Command {
    name: "get",
    flags: Flags::READONLY,
    group: Group::String,
    keys: &[KeySpec::one(RO)],
    arity: 2,
    ..Command::ROW
};
/// It may read, but does so only if it is asked to.
static SET: Command = Command {
    name: "set",
    flags: Flags::WRITE,
    group: Group::String,
    keys: &[KeySpec::one(RO.with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE))],
    find_keys: Some(|words, found| {
        let reads = words.get(3).is_some_and(|word| *word == b"get");
        let access = if reads { RO } else { KeyFlags::OW };
        found(1, access.with(KeyFlags::UPDATE));
        Ok(())
    }),
    arity: -3,
    ..Command::ROW
};
static PUBLISH: Command =
    Command { name: "publish", channels: Channels::First, arity: 3, ..Command::ROW };
static PSUBSCRIBE: Command =
    Command { name: "psubscribe", channels: Channels::Patterns, arity: -2, ..Command::ROW };
static CONFIG_GET: Command = Command { name: "get", flags: Flags::ADMIN, ..Command::ROW };
static CONFIG_SET: Command = Command { name: "set", flags: Flags::ADMIN, ..Command::ROW };
static CONFIG: Command =
    Command { name: "config", subcommands: &[&CONFIG_GET, &CONFIG_SET], ..Command::ROW };

fn acl(password: &[u8]) -> Acl {
    let rows = [&GET, &SET, &PUBLISH, &PSUBSCRIBE, &CONFIG];
    let table = Box::leak(Box::new(CommandTable::build(&rows, &[])));
    let acl = Acl::new(table, &Config::new());
    acl.require_password(password);
    acl
}

fn words(text: &str) -> Vec<&[u8]> {
    text.split(' ').map(str::as_bytes).collect()
}

#[track_caller]
fn change(acl: &Acl, name: &str, rules: &str) {
    acl.change(name.as_bytes(), &words(rules)).expect("the rules are right");
}

#[track_caller]
fn check(acl: &Acl, name: &str, request: &str, expected: Result<(), Denial>) {
    let keyspace = Keyspace::new(1, Assignment::ByHash);
    let words = words(request);
    let row = acl.table.lookup(&words).expect("the command is in the table");
    let keys = RequestKeys::of(&keyspace, row.command, &words);
    let request = Request { row, words: &words, keys: &keys, db: DbIndex(0), databases: 16 };
    let user = acl.user(name.as_bytes()).expect("the user is there");
    // The short way says no more than the long one.
    assert!(!user.allows_one_key(row, &words) || user.check(&request).is_ok());
    assert_eq!(user.check(&request).map_err(|(denial, _)| denial), expected);
}

#[track_caller]
fn describes(acl: &Acl, name: &str, expected: &str) {
    let user = acl.user(name.as_bytes()).expect("the user is there");
    assert_eq!(user.describe().escape_ascii().to_string(), expected);
}

#[test]
fn the_option_and_the_rules_are_about_the_same_passwords() {
    let acl = acl(b"first");
    assert!(!acl.is_open());
    change(&acl, "default", ">second");
    for password in [b"first".as_slice(), b"second"] {
        assert!(acl.authenticate(b"default", password).is_some());
    }
    acl.require_password(b"third");
    assert!(acl.authenticate(b"default", b"third").is_some());
    assert!(acl.authenticate(b"default", b"second").is_none());
    change(&acl, "default", "nopass");
    assert!(acl.is_open());
}

#[test]
fn rules_are_applied_all_or_none() {
    let acl = acl(b"a");
    assert!(acl.change(b"default", &words(">b <c")).is_err());
    assert!(acl.authenticate(b"default", b"b").is_none());
    assert!(acl.change(b"bob", &words("on (")).is_err());
    assert!(acl.user(b"bob").is_none());
}

#[test]
fn a_user_may_send_what_its_rules_allow() {
    let acl = acl(b"");
    assert!(!acl.is_restricting());
    change(&acl, "bob", "on >x ~a* %R~r* %W~w* &c* +get +set +publish +psubscribe");
    assert!(acl.is_restricting());
    check(&acl, "bob", "get a1", Ok(()));
    check(&acl, "bob", "get r1", Ok(()));
    check(&acl, "bob", "get w1", Err(Denial::Key));
    check(&acl, "bob", "set r1 v", Err(Denial::Key));
    check(&acl, "bob", "set w1 v", Ok(()));
    check(&acl, "bob", "publish c1 m", Ok(()));
    check(&acl, "bob", "publish d m", Err(Denial::Channel));
    check(&acl, "bob", "psubscribe c1*", Err(Denial::Channel));
    check(&acl, "bob", "psubscribe c*", Ok(()));
    check(&acl, "bob", "config get x", Err(Denial::Command));
    for (pattern, key, expected) in [
        ("a\\*", "a*", Ok(())),
        ("a\\*", "ab", Err(Denial::Key)),
        ("[ab]*", "bc", Ok(())),
        ("a*b*", "a1b2", Ok(())),
        ("a*b*", "a*b", Ok(())),
        ("a*b*", "a", Err(Denial::Key)),
        ("a", "ab", Err(Denial::Key)),
        ("a:*", "a:", Ok(())),
    ] {
        change(&acl, "eve", &format!("resetkeys ~{pattern} +get"));
        check(&acl, "eve", &format!("get {key}"), expected);
    }
    change(&acl, "bob", "(%R~x* +get)");
    check(&acl, "bob", "get x1", Ok(()));
    check(&acl, "bob", "set x1 v", Err(Denial::Key));
    // The other selector came nearer.
    change(&acl, "bob", "db=1");
    check(&acl, "bob", "get a1", Err(Denial::Key));
    change(&acl, "ann", "on ~* +@all db=1");
    check(&acl, "ann", "get a1", Err(Denial::Database));
}

#[test]
fn the_short_way_takes_the_most_that_a_command_may_do_with_its_key() {
    let acl = acl(b"");
    change(&acl, "bob", "on >x ~a* %W~w* +get +set (%R~x* +get)");
    let user = acl.user(b"bob").expect("the user is there");
    for (request, expected) in [
        ("set a1 v", true),
        ("set a1 v get", true),
        ("get x1", true),
        // It is allowed, which only its other words show.
        ("set w1 v", false),
        ("set w1 v get", false),
    ] {
        let words = words(request);
        let row = acl.table.lookup(&words).expect("the command is in the table");
        assert_eq!(user.allows_one_key(row, &words), expected, "{request}");
    }
    check(&acl, "bob", "set w1 v", Ok(()));
    check(&acl, "bob", "set w1 v get", Err(Denial::Key));
}

#[test]
fn descriptions_are_those_of_the_reference() {
    let acl = acl(b"");
    describes(&acl, "default", "on nopass ~* &* +@all");
    change(&acl, "bob", "on ~a* %R~r* %W~w* &c* +get -set +config -config|set");
    describes(
        &acl,
        "bob",
        "on ~a* %R~r* %W~w* resetchannels &c* -@all +get -set +config -config|set",
    );
    change(&acl, "bob", "-config (~sel* +@all -get) db=2,0");
    describes(
        &acl,
        "bob",
        "on ~a* %R~r* %W~w* resetchannels &c* db=0,2 -@all +get -set -config (~sel* resetchannels \
         +@all -get)",
    );
    change(&acl, "bob", "resetdbs clearselectors allkeys allchannels nocommands +set|x");
    describes(&acl, "bob", "on ~* &* resetdbs -@all +set|x");
}

#[test]
fn wrong_rules_say_what_is_wrong() {
    let acl = acl(b"");
    for (rule, text) in [
        ("+nocmd", "Unknown command or category name in ACL"),
        ("+@nocat", "Unknown command or category name in ACL"),
        ("+config|nosub", "Unknown command or category name in ACL"),
        ("-get|x", "Unknown command or category name in ACL"),
        ("+get|x|y", "Unknown command or category name in ACL"),
        ("-config|get|x", "Unknown command or category name in ACL"),
        ("+config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("%X~a", "Syntax error"),
        ("db=x", "Syntax error"),
        ("(nopass)", "Syntax error"),
        ("nonsense", "Syntax error"),
        ("<a", "The password you are trying to remove from the user does not exist"),
    ] {
        let error = acl.change(b"bob", &[rule.as_bytes()]).expect_err(rule);
        assert_eq!(error, format!("Error in ACL SETUSER modifier '{rule}': {text}"));
    }
}

#[test]
fn a_session_follows_the_changes_of_its_user() {
    let acl = acl(b"");
    change(&acl, "bob", "on nopass ~* +get");
    let mut session = acl.authenticate(b"bob", b"").expect("any password will do");
    assert!(!session.current(&acl).may_do_everything());
    change(&acl, "bob", "+@all &*");
    assert!(session.current(&acl).may_do_everything());
    assert!(acl.remove(b"bob") && !acl.remove(b"bob"));
    assert_eq!(session.current(&acl).name, "bob");
}

#[test]
fn what_is_saved_can_be_loaded() {
    let first = acl(b"secret");
    change(&first, "bob", "on >x ~a* +get (~b +set)");
    let other = acl(b"");
    change(&other, "gone", "on");
    let changed = other.load(&first.file_text(), "users.acl").expect("it was saved");
    assert_eq!(changed, ["default", "gone"]);
    assert_eq!(other.lines(), first.lines());
    assert!(other.authenticate(b"bob", b"x").is_some());
    other.load(b"\n  \n", "users.acl").expect("an empty file is right");
    assert!(other.is_open());
}

#[test]
fn a_wrong_line_changes_nothing() {
    let acl = acl(b"secret");
    let text = b"user default on nopass ~* &* +@all\nuser bob +nocmd\n\nbob on\nuser default on\n";
    let error = acl.load(text, "users.acl").expect_err("line 2 is wrong");
    assert!(error.starts_with("users.acl:2: Error in ACL SETUSER modifier '+nocmd'"), "{error}");
    assert!(error.contains("users.acl:4 should start with user keyword"), "{error}");
    assert!(error.contains("Duplicate user 'default' found on line 5"), "{error}");
    assert!(!acl.is_open());
}

#[test]
fn bytes_that_are_no_text_name_no_user() {
    let acl = acl(b"");
    assert!(acl.change(b"\xff", &words("on nopass")).is_err());
    change(&acl, "\u{fffd}", "on >secret");
    for name in [&b"\xff"[..], b"\xfe"] {
        assert!(acl.authenticate(name, b"secret").is_none() && acl.user(name).is_none());
        assert!(!acl.remove(name));
        let line = [b"user ", name, b" on"].concat();
        assert!(acl.load(&line, "users.acl").is_err());
    }
    assert!(acl.authenticate("\u{fffd}".as_bytes(), b"secret").is_some());
}

#[test]
fn users_of_all_nodes_change_by_their_text() {
    let acl = acl(b"");
    let words =
        |rules: &[&str]| rules.iter().map(|rule| rule.as_bytes().to_vec()).collect::<Vec<_>>();
    acl.change(b"node", &[b"on", b"nopass", b"~*", b"+@all"]).expect("the rules are in order");
    let text = acl.shared_text(b"node");
    assert!(!String::from_utf8_lossy(&text).contains("user node"));
    let text = acl.set_in_text(&text, b"app", &words(&["on", ">p", "~app:*", "+get"]));
    let text = text.expect("the rules are in order");
    let wrong = acl.set_in_text(&text, b"app", &words(&["+nothing"]));
    assert!(wrong.is_err_and(|why| why.contains("+nothing")));
    assert!(acl.user(b"app").is_none(), "a text changes nothing by itself");
    assert_eq!(acl.load_shared(&text, b"node"), Ok(Vec::new()));
    assert!(acl.authenticate(b"app", b"p").is_some() && acl.user(b"node").is_some());
    let (text, removed) =
        acl.remove_from_text(&text, &words(&["app", "default", "other"])).expect("it can be read");
    assert_eq!(removed, 1);
    assert_eq!(acl.load_shared(&text, b"node"), Ok(vec!["app".to_owned()]));
    assert!(acl.user(b"app").is_none() && acl.user(b"default").is_some());
}

#[test]
fn a_link_is_for_users_that_are_said_to_be_nodes() {
    let acl = acl(b"");
    for (rules, may_be) in [
        ("~* &* -@all +@nodes", true),
        ("~* &* +@all", true),
        ("~* &* +@all +@nodes -config|set", true),
        ("~* &* +@all -get", false),
        ("~* &* +@all -config|set", false),
        ("~* &* +@nodes -get", false),
        ("~* &* +@nodes db=0", false),
        ("~a* &* +@nodes", false),
        ("~* &a* +@nodes", false),
    ] {
        change(&acl, "node", &format!("reset on nopass {rules}"));
        let user = acl.user(b"node").expect("it is there");
        assert_eq!(acl.may_be_node(&user), may_be, "{rules}");
    }
}
