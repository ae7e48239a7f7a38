//! `CLIENT ID`, `INFO`, `GETNAME`, `SETNAME`, `SETINFO`, `CAPA`, `IMPORT-SOURCE`: what a connection
//! is and says of itself

use super::super::list_line::line;
use super::super::names::check_name;
use super::list::publish_own;
use super::modes::parse_switch;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use std::sync::atomic::Ordering::Relaxed;
use structs::numbers::parse_u64;

/// How CLIENT CAPA's word of a link begins that names the user for whom the next requests are.
const ACTS_FOR: &[u8] = b"for:";

/// The client of another node that alone uses a link from now on.
const SERVES: &[u8] = b"client:";

/// `CLIENT ID`.
pub static CLIENT_ID: Command = Command {
    name: "id",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "The number of this connection.",
    run: client_id,
    ..Command::ROW
};

/// `CLIENT INFO`.
pub static CLIENT_INFO: Command = Command {
    name: "info",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Connection,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "What CLIENT LIST says about this connection.",
    tips: &["nondeterministic_output"],
    run: client_info,
    ..Command::ROW
};

/// `CLIENT GETNAME`.
pub static CLIENT_GETNAME: Command = Command {
    name: "getname",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "2.6.9",
    complexity: "O(1)",
    summary: "The name that this connection was given.",
    run: client_getname,
    ..Command::ROW
};

/// `CLIENT SETNAME`.
pub static CLIENT_SETNAME: Command = Command {
    name: "setname",
    arity: 3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "2.6.9",
    complexity: "O(1)",
    summary: "Gives this connection a name.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::new("connection-name", ArgKind::String)],
    run: client_setname,
    ..Command::ROW
};

/// `CLIENT SETINFO`.
pub static CLIENT_SETINFO: Command = Command {
    name: "setinfo",
    arity: 4,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "7.2.0",
    complexity: "O(1)",
    summary: "Tells the server which library a client uses.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "attr",
        &[
            Arg::new("libname", ArgKind::String).after("LIB-NAME"),
            Arg::new("libver", ArgKind::String).after("LIB-VER"),
        ],
    )],
    run: client_setinfo,
    ..Command::ROW
};

/// `CLIENT CAPA`.
pub static CLIENT_CAPA: Command = Command {
    name: "capa",
    arity: -3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "8.0.0",
    complexity: "O(1)",
    summary: "Tells the server what a client understands.",
    args: &[Arg::new("capability", ArgKind::String).multiple()],
    run: client_capa,
    ..Command::ROW
};

/// `CLIENT IMPORT-SOURCE`.
pub static CLIENT_IMPORT_SOURCE: Command = Command {
    name: "import-source",
    arity: 3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "8.1.0",
    complexity: "O(1)",
    summary: "Says that this client brings keys in, which do not expire meanwhile.",
    args: &[Arg::one_of("enabled", &[Arg::token("on", "ON"), Arg::token("off", "OFF")])],
    run: client_import_source,
    ..Command::ROW
};

fn client_id(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.reply.integer(cx.session.id() as i64);
    Ok(())
}

fn client_info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    publish_own(cx, args);
    let text = line(cx.engine, &cx.session.client, cx.now().0);
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn client_getname(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let name = cx.session.client.names().name.clone();
    cx.reply.bulk_or_null((!name.is_empty()).then_some(&name));
    Ok(())
}

fn client_setname(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let name = check_name(args[2], "Client names")?;
    cx.session.rename(|names| names.name = name.to_vec());
    cx.reply.ok();
    Ok(())
}

fn client_setinfo(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.is(2, "lib-name") {
        let library = check_name(args[3], "lib-name")?.to_vec();
        cx.session.rename(|names| names.lib_name = library);
    } else if args.is(2, "lib-ver") {
        cx.session.client.names().lib_version = check_name(args[3], "lib-ver")?.to_vec();
    } else {
        let mut text = b"ERR Unrecognized option '".to_vec();
        text.extend_from_slice(args[2]);
        text.push(b'\'');
        return Err(Error::Bytes(text));
    }
    cx.reply.ok();
    Ok(())
}

fn client_capa(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let acl = &cx.engine.acl;
    let may_be_link = acl.may_be_node(cx.session.user.current(acl));
    // Capabilities that the server does not know are no error: clients announce what they can.
    for word in args.from(2) {
        cx.session.can_redirect |= word.eq_ignore_ascii_case(b"redirect");
        cx.session.speaks_cluster |= word.eq_ignore_ascii_case(b"cluster");
        // CLIENT LIST and CLIENT KILL pass links over, so no other user may be one.
        cx.session.is_link |= may_be_link && word.eq_ignore_ascii_case(b"node");
        // The proxy says it, too, whatever its user may do.
        if word.eq_ignore_ascii_case(b"again") {
            cx.session.returned = Some(Box::default());
        }
        // A link says for which user's client its requests are, and for which client. It is heeded
        // only if the link's own user may do what nodes do, so that no client gets more rights by
        // it.
        let is_heeded = may_be_link && cx.session.is_link;
        if let Some(name) = word.strip_prefix(ACTS_FOR).filter(|_| is_heeded) {
            let user = cx.engine.acl.user_of_link(name);
            cx.session.client.names().acts_for = Some(user.name().to_owned());
            cx.session.acts_for = Some(user);
        }
        if let Some(id) = word.strip_prefix(SERVES).filter(|_| is_heeded) {
            let id = parse_u64(id).unwrap_or(0);
            cx.session.client.live.origin.store(id, Relaxed);
        }
    }
    cx.reply.ok();
    Ok(())
}

fn client_import_source(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if !args.is(2, "off") && !cx.engine.config.import_mode() {
        return Err(Error::text("ERR Server is not in import mode"));
    }
    let is_source = parse_switch(args)?;
    cx.session.is_import_source = is_source;
    cx.db.set_import_source(is_source);
    cx.reply.ok();
    Ok(())
}
