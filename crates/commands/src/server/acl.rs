//! `ACL CAT|DELUSER|DRYRUN|GENPASS|GETUSER|LIST|LOAD|LOG|SAVE|SETUSER|USERS|WHOAMI`
//!
//! Users, their rules and what they allow are the engine's ([`engine::acl`]).

use crate::cluster::define;
use engine::acl::category::{Category, categories};
use engine::acl::log::Refused;
use engine::acl::selector::Selector;
use engine::acl::{DEFAULT_USER, Denial, Request};
use engine::membership::Definition;
use engine::request_keys::RequestKeys;
use engine::routing::{Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};

/// The most bits that GENPASS makes up.
const MAX_BITS: i64 = 4096;

/// `ACL DELUSER`.
pub static ACL_DELUSER: Command = Command {
    name: "deluser",
    arity: -3,
    categories: &["nodes"],
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(N) for a user with N rules",
    summary: "Deletes users, and closes their connections.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::new("username", ArgKind::String).multiple()],
    secrets: Some(|words, found| (2..words.len()).for_each(found)),
    audit_secrets: Some(|_, _| {}),
    run: acl_deluser,
    ..Command::ROW
};

/// `ACL DRYRUN`.
pub static ACL_DRYRUN: Command = Command {
    name: "dryrun",
    arity: -4,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Server,
    since: "7.0.0",
    complexity: "O(1).",
    summary: "Whether a user may run a command, without running it.",
    args: &[
        Arg::new("username", ArgKind::String),
        Arg::new("command", ArgKind::String),
        Arg::new("arg", ArgKind::String).optional().multiple(),
    ],
    run: acl_dryrun,
    ..Command::ROW
};

/// `ACL GETUSER`.
pub static ACL_GETUSER: Command = Command {
    name: "getuser",
    arity: 3,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(N) for a user with N rules",
    summary: "What a user may do.",
    history: &[
        ("6.2.0", "Rules may be about channels."),
        ("7.0.0", "The reply has selectors; patterns of keys and channels are told as rules."),
        ("9.1.0", "Rules may be about databases."),
    ],
    args: &[Arg::new("username", ArgKind::String)],
    secrets: Some(|words, found| (2..words.len()).for_each(found)),
    run: acl_getuser,
    ..Command::ROW
};

/// `ACL LIST`.
pub static ACL_LIST: Command = Command {
    name: "list",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(N) for N users",
    summary: "All users as lines of an ACL file.",
    run: acl_list,
    ..Command::ROW
};

/// `ACL LOAD`.
pub static ACL_LOAD: Command = Command {
    name: "load",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(N) for N users",
    summary: "Reads the users from the ACL file anew.",
    run: acl_load,
    ..Command::ROW
};

/// `ACL SETUSER`.
pub static ACL_SETUSER: Command = Command {
    name: "setuser",
    arity: -3,
    categories: &["nodes"],
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(N) for N rules",
    summary: "Makes a user, or changes what one may do.",
    history: &[
        ("6.2.0", "Rules may be about channels."),
        ("7.0.0", "Rules may have selectors and rights to read or write keys."),
        ("9.1.0", "Rules may be about databases."),
    ],
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[
        Arg::new("username", ArgKind::String),
        Arg::new("rule", ArgKind::String).optional().multiple(),
    ],
    secrets: Some(|words, found| (2..words.len()).for_each(found)),
    audit_secrets: Some(|words, found| {
        (3..words.len()).filter(|&at| !is_plain_rule(words[at])).for_each(found);
    }),
    run: acl_setuser,
    ..Command::ROW
};

/// `ACL USERS`.
pub static ACL_USERS: Command = Command {
    name: "users",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(N) for N users",
    summary: "The names of all users.",
    run: acl_users,
    ..Command::ROW
};

/// `ACL CAT`.
pub static ACL_CAT: Command = Command {
    name: "cat",
    arity: -2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(1)",
    summary: "The categories of commands, or the commands of one.",
    args: &[Arg::new("category", ArgKind::String).optional()],
    run: acl_cat,
    ..Command::ROW
};

/// `ACL GENPASS`.
pub static ACL_GENPASS: Command = Command {
    name: "genpass",
    arity: -2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(1)",
    summary: "Makes up a password that is hard to guess.",
    args: &[Arg::new("bits", ArgKind::Integer).optional()],
    run: acl_genpass,
    ..Command::ROW
};

/// `ACL HELP`.
pub static ACL_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `ACL LOG`.
pub static ACL_LOG: Command = Command {
    name: "log",
    arity: -2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(N) for N entries in the reply",
    summary: "What users were refused lately.",
    history: &[("7.2.0", "Entries have an ID, and the times of their first and last event.")],
    args: &[Arg::one_of(
        "operation",
        &[Arg::new("count", ArgKind::Integer), Arg::token("reset", "RESET")],
    )
    .optional()],
    run: acl_log,
    ..Command::ROW
};

/// `ACL SAVE`.
pub static ACL_SAVE: Command = Command {
    name: "save",
    arity: 2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(N) for N users",
    summary: "Writes the users into the ACL file.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: acl_save,
    ..Command::ROW
};

/// `ACL WHOAMI`.
pub static ACL_WHOAMI: Command = Command {
    name: "whoami",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    since: "6.0.0",
    complexity: "O(1)",
    summary: "The user of this connection.",
    run: acl_whoami,
    ..Command::ROW
};

/// `ACL`.
pub static ACL: Command = Command {
    name: "acl",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Server,
    since: "6.0.0",
    complexity: "That of the subcommand",
    summary: "The commands about users and what they may do.",
    subcommands: &[
        &ACL_DELUSER,
        &ACL_DRYRUN,
        &ACL_GETUSER,
        &ACL_LIST,
        &ACL_LOAD,
        &ACL_SETUSER,
        &ACL_USERS,
        &ACL_CAT,
        &ACL_GENPASS,
        &ACL_HELP,
        &ACL_LOG,
        &ACL_SAVE,
        &ACL_WHOAMI,
    ],
    help: &[
        "CAT [<category>]",
        "    List all commands that belong to <category>, or all command categories",
        "    when no category is specified.",
        "DELUSER <username> [<username> ...]",
        "    Delete a list of users.",
        "DRYRUN <username> <command> [<arg> ...]",
        "    Returns whether the user can execute the given command without executing the command.",
        "GETUSER <username>",
        "    Get the user's details.",
        "GENPASS [<bits>]",
        "    Generate a secure 256-bit user password. The optional `bits` argument can",
        "    be used to specify a different size.",
        "LIST",
        "    Show users details in config file format.",
        "LOAD",
        "    Reload users from the ACL file.",
        "LOG [<count> | RESET]",
        "    Show the ACL log entries.",
        "SAVE",
        "    Save the current config to the ACL file.",
        "SETUSER <username> <rule> [<rule> ...]",
        "    Create or modify a user with the specified rules.",
        "USERS",
        "    List all the registered usernames.",
        "WHOAMI",
        "    Return the current connection username.",
    ],
    routing: Routing::by(Way::OneServer),
    ..Command::ROW
};

/// A subcommand with more words than it takes.
fn too_many_words(args: Args<'_>) -> Error {
    let mut text = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
    text.extend_from_slice(&args[1][..args[1].len().min(128)]);
    text.extend_from_slice(b"'. Try ACL HELP.");
    Error::Bytes(text)
}

fn quoting(before: &str, quoted: &[u8], after: &str) -> Error {
    Error::Bytes([before.as_bytes(), b"'", quoted, b"'", after.as_bytes()].concat())
}

fn acl_whoami(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let user = cx.session.client.names().user.clone();
    cx.reply.bulk(user.as_bytes());
    Ok(())
}

fn acl_users(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let names = cx.engine.acl.names();
    cx.reply.array(names.len());
    names.iter().for_each(|name| cx.reply.bulk(name.as_bytes()));
    Ok(())
}

fn acl_list(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let lines = cx.engine.acl.lines();
    cx.reply.array(lines.len());
    lines.iter().for_each(|line| cx.reply.bulk(&[b"user ", line.as_slice()].concat()));
    Ok(())
}

fn acl_getuser(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Some(user) = cx.engine.acl.user(args[2]) else {
        cx.reply.null();
        return Ok(());
    };
    cx.reply.map(7);
    cx.reply.bulk(b"flags");
    let flags = user.flags();
    cx.reply.set(flags.len());
    flags.iter().for_each(|flag| cx.reply.bulk(flag.as_bytes()));
    cx.reply.bulk(b"passwords");
    cx.reply.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| cx.reply.bulk(hash.hex().as_bytes()));
    write_selector(cx, user.root());
    cx.reply.bulk(b"selectors");
    cx.reply.array(user.selectors.len());
    for selector in &user.selectors {
        cx.reply.map(4);
        write_selector(cx, selector);
    }
    Ok(())
}

fn write_selector(cx: &mut Cx<'_>, selector: &Selector) {
    for (name, rules) in [
        ("commands", selector.describe_commands().into_bytes()),
        ("keys", selector.describe_keys()),
        ("channels", selector.describe_channels()),
        ("databases", selector.describe_databases().into_bytes()),
    ] {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(&rules);
    }
}

fn acl_setuser(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if engine::acl::has_blanks(args[2]) {
        return Err(Error::text("ERR Usernames can't contain spaces or null characters"));
    }
    if cx.shares_user(args[2]) {
        let rules = args.from(3).iter().map(|rule| rule.to_vec()).collect();
        return define(cx, Definition::SetUser(args[2].to_vec(), rules));
    }
    let changed = cx.engine.acl.change(args[2], args.from(3));
    changed.map_err(|why| Error::format(format!("ERR {why}")))?;
    end_denied(cx);
    cx.reply.ok();
    Ok(())
}

/// Returns whether a word of ACL SETUSER is a rule for certain, and so no password: neither one
/// that is given, as `>PASSWORD` or as a hash, nor one whose mark was forgotten.
fn is_plain_rule(word: &[u8]) -> bool {
    const NAMED: [&[u8]; 16] = [
        b"on",
        b"off",
        b"nopass",
        b"resetpass",
        b"reset",
        b"clearselectors",
        b"sanitize-payload",
        b"skip-sanitize-payload",
        b"allkeys",
        b"resetkeys",
        b"allchannels",
        b"resetchannels",
        b"allcommands",
        b"nocommands",
        b"alldbs",
        b"resetdbs",
    ];
    match word.first() {
        Some(b'+' | b'-' | b'~' | b'&' | b'%') => true,
        Some(b'(') => !word.iter().any(|byte| b"><#!".contains(byte)),
        _ => NAMED.iter().any(|name| word.eq_ignore_ascii_case(name)),
    }
}

fn acl_deluser(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.from(2).iter().any(|name| *name == DEFAULT_USER.as_bytes()) {
        return Err(Error::text("ERR The 'default' user cannot be removed"));
    }
    if args.from(2).iter().all(|name| cx.shares_user(name)) {
        let names = args.from(2).iter().map(|name| name.to_vec()).collect();
        return define(cx, Definition::DeleteUsers(names));
    }
    let mut removed = 0;
    for name in args.from(2) {
        if cx.engine.acl.remove(name) {
            removed += 1;
            close_clients_of(cx, &String::from_utf8_lossy(name));
        }
    }
    cx.reply.integer(removed);
    Ok(())
}

/// Closes the connections of a user that is gone or another one now.
fn close_clients_of(cx: &mut Cx<'_>, name: &str) {
    for client in cx.engine.clients.all() {
        if client.names().user == name {
            crate::connection::close(cx, &client);
        }
    }
}

/// Ends what users may not do any more: closes clients that are subscribed to such channels, and has
/// other nodes end commands that wait there.
fn end_denied(cx: &mut Cx<'_>) {
    let denied = cx.engine.denied_subscribers();
    denied.iter().for_each(|client| crate::connection::close(cx, client));
    cx.end_forbidden_waits();
}

fn acl_dryrun(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let user = cx.engine.acl.user(args[2]);
    let user = user.ok_or_else(|| quoting("ERR User ", args[2], " not found"))?;
    let words = args.from(3);
    let Some(row) = cx.engine.table.lookup(words) else {
        return Err(quoting("ERR Command ", args[3], " not found"));
    };
    if !row.command.accepts(words.len()) {
        return Err(Error::Arity(row.full_name.clone().into()));
    }
    let keys = RequestKeys::of(&cx.engine.keyspace, row.command, words);
    let databases = cx.engine.keyspace.databases();
    let request = Request { row, words, keys: &keys, db: cx.db.index, databases };
    let Err((denial, word)) = user.check(&request) else {
        cx.reply.ok();
        return Ok(());
    };
    let object = words.get(word).copied().unwrap_or_default();
    let (before, object, after) = match denial {
        Denial::Command => ("run the '", row.full_name.as_bytes(), "' command"),
        Denial::Key => ("access the '", object, "' key"),
        Denial::Channel => ("access the '", object, "' channel"),
        Denial::Database => ("access database ", object, ""),
    };
    let start = format!("User {} has no permissions to {before}", user.name);
    cx.reply.bulk(&[start.as_bytes(), object, after.as_bytes()].concat());
    Ok(())
}

fn acl_cat(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    match args.from(2) {
        [] => {
            cx.reply.array(categories().count());
            categories().for_each(|category| cx.reply.bulk(category.name().as_bytes()));
        }
        [name] => {
            let category = Category::named(name).ok_or_else(|| {
                quoting("ERR Unknown category ", &name[..name.len().min(128)], "")
            })?;
            let rows: Vec<_> =
                cx.engine.table.all().iter().filter(|row| category.has(row)).collect();
            cx.reply.array(rows.len());
            rows.iter().for_each(|row| cx.reply.bulk(row.full_name.as_bytes()));
        }
        _ => return Err(too_many_words(args)),
    }
    Ok(())
}

fn acl_genpass(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let bits = match args.len() {
        2 => 256,
        3 => args.integer(2)?,
        _ => return Err(too_many_words(args)),
    };
    if !(1..=MAX_BITS).contains(&bits) {
        return Err(Error::format(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to {MAX_BITS}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut random)
        .map_err(|why| Error::format(format!("ERR no random numbers to be had: {why}")))?;
    let mut password: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    password.truncate(digits);
    cx.reply.bulk(password.as_bytes());
    Ok(())
}

fn acl_load(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let file = cx.engine.config.aclfile();
    let host = cx.engine.host().filter(|_| !file.is_empty()).ok_or(NO_FILE)?;
    let loaded =
        host.read_acl_file().and_then(|text| cx.engine.acl.load(&text, &file.to_string_lossy()));
    let changed = loaded.map_err(|why| Error::format(format!("ERR {why}")))?;
    for name in changed.iter().filter(|name| *name != DEFAULT_USER) {
        close_clients_of(cx, name);
    }
    end_denied(cx);
    cx.reply.ok();
    Ok(())
}

fn acl_save(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let is_configured = !cx.engine.config.aclfile().is_empty();
    let host = cx.engine.host().filter(|_| is_configured).ok_or(NO_FILE)?;
    host.write_acl_file(&cx.engine.acl.file_text())
        .map_err(|why| Error::format(format!("ERR {why}")))?;
    cx.reply.ok();
    Ok(())
}

const NO_FILE: Error = Error::text(
    "ERR This instance is not configured to use an ACL file. You may want to specify users via the \
     ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a configuration file \
     set) in order to store users in the configuration.",
);

fn acl_log(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let count = match args.len() {
        2 => 10,
        3 if args.is(2, "reset") => {
            cx.engine.acl.log.reset();
            cx.reply.ok();
            return Ok(());
        }
        3 => usize::try_from(args.integer(2)?).unwrap_or(0),
        _ => return Err(too_many_words(args)),
    };
    let entries = cx.engine.acl.log.get(count);
    cx.reply.array(entries.len());
    entries.iter().for_each(|entry| write_refused(cx, entry));
    Ok(())
}

fn write_refused(cx: &mut Cx<'_>, entry: &Refused) {
    let now_ms = cx.now().0;
    cx.reply.map(10);
    cx.reply.bulk(b"count");
    cx.reply.integer(entry.count as i64);
    for (name, text) in [
        ("reason", entry.reason.as_bytes()),
        ("context", entry.context.as_bytes()),
        ("object", &entry.object),
        ("username", &entry.user),
    ] {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(text);
    }
    cx.reply.bulk(b"age-seconds");
    cx.reply.double((now_ms - entry.updated_ms) as f64 / 1000.0);
    cx.reply.bulk(b"client-info");
    cx.reply.bulk(entry.client.as_bytes());
    for (name, number) in [
        ("entry-id", entry.id as i64),
        ("timestamp-created", entry.created_ms),
        ("timestamp-last-updated", entry.updated_ms),
    ] {
        cx.reply.bulk(name.as_bytes());
        cx.reply.integer(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_log_shows_rules_and_no_password() {
        let shown = |words: &[&str]| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let shown = ACL_SETUSER.audited(&words);
            let text = |word: &&[u8]| String::from_utf8_lossy(word).into_owned();
            shown[2..].iter().map(text).collect::<Vec<_>>().join(" ")
        };
        let rules = ["acl", "setuser", "bob", "ON", "+@read", "-get", "~a", "%R~b", "&c", "nopass"];
        assert_eq!(shown(&rules), "bob ON +@read -get ~a %R~b &c nopass");
        for secret in [">pw", "<pw", "#5e88", "!5e88", "pw", "", "(>pw)", "(+get #5e88)", "ONpw"] {
            assert_eq!(shown(&["acl", "setuser", "bob", secret]), "bob (redacted)", "{secret}");
        }
        assert_eq!(shown(&["acl", "setuser", "bob", "(+get ~a)"]), "bob (+get ~a)");
        assert_eq!(ACL_DELUSER.audited(&[b"acl", b"deluser", b"bob"])[2], b"bob");
        // MONITOR shows neither.
        assert_eq!(ACL_DELUSER.shown(&[b"acl", b"deluser", b"bob"])[2], b"(redacted)");
    }
}
