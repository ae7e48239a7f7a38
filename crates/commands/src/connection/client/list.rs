//! `CLIENT LIST [filters]`: a line for each connection
//!
//! Other connections belong to other threads: what is shown of them is what their threads have
//! copied into the registry.

use super::super::list_line::line;
use super::filters::{self, Filters};
use engine::clients::forwarding::{Own, Reach};
use engine::routing::Merge;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use std::sync::atomic::Ordering::Relaxed;

/// `CLIENT LIST`.
pub static CLIENT_LIST: Command = Command {
    name: "list",
    arity: -2,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::OUTSIDE),
    group: Group::Connection,
    since: "2.4.0",
    complexity: "O(N) for N connections",
    summary: "Describes the connections, one a line.",
    history: &[
        ("2.8.12", "The reply has the client's `id`."),
        ("5.0.0", "Takes `TYPE`."),
        ("6.0.0", "The reply has the `user`."),
        ("6.2.0", "The reply has `argv-mem`, `tot-mem`, `laddr` and `redir`; takes `ID`."),
        ("7.0.0", "The reply has `resp`, `multi-mem`, `rbs` and `rbp`."),
        ("7.0.3", "The reply has `ssub`."),
        ("8.0.0", "`TYPE` takes `primary` for `master`, which still works."),
        ("8.1.0", "Takes `USER`, `ADDR`, `LADDR`, `SKIPME` and `MAXAGE`."),
        filters::ADDED_IN_9,
    ],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::one_of(
            "client-type",
            &[
                Arg::token("normal", "NORMAL"),
                Arg::token("master", "MASTER"),
                Arg::token("replica", "REPLICA"),
                Arg::token("pubsub", "PUBSUB"),
            ],
        )
        .after("TYPE")
        .optional()
        .since("5.0.0"),
        Arg::new("client-id", ArgKind::Integer).after("ID").optional().multiple().since("6.2.0"),
        Arg::new("username", ArgKind::String).after("USER").optional().since("8.1.0"),
        Arg::new("addr", ArgKind::String)
            .after("ADDR")
            .optional()
            .since("8.1.0")
            .shown_as("ip:port"),
        Arg::new("laddr", ArgKind::String)
            .after("LADDR")
            .optional()
            .since("8.1.0")
            .shown_as("ip:port"),
        Arg::one_of("skipme", &[Arg::token("yes", "YES"), Arg::token("no", "NO")])
            .after("SKIPME")
            .optional()
            .since("8.1.0"),
        Arg::new("maxage", ArgKind::Integer).after("MAXAGE").optional().since("8.1.0"),
        filters::NAME,
        filters::IDLE,
        filters::FLAGS,
        filters::LIB_NAME,
        filters::LIB_VER,
        filters::DB,
        filters::CAPA,
        filters::IP,
        Arg::one_of(
            "not-client-type",
            &[
                Arg::token("normal", "NORMAL"),
                Arg::token("master", "MASTER"),
                Arg::token("replica", "REPLICA"),
                Arg::token("pubsub", "PUBSUB"),
            ],
        )
        .after("NOT-TYPE")
        .optional()
        .since("9.0.0"),
        filters::NOT_CLIENT_ID,
        filters::NOT_USERNAME,
        filters::NOT_ADDR,
        filters::NOT_LADDR,
        filters::NOT_NAME,
        filters::NOT_FLAGS,
        filters::NOT_LIB_NAME,
        filters::NOT_LIB_VER,
        filters::NOT_DB,
        filters::NOT_CAPA,
        filters::NOT_IP,
    ],
    run: client_list,
    ..Command::ROW
};

/// Shows the registry what it does not know of the asking client yet: everything since the batch
/// began, and the request that runs.
pub(super) fn publish_own(cx: &Cx<'_>, args: Args<'_>) {
    cx.session.publish(cx.now().0);
    cx.session.client.live.argv_bytes.store(args.bytes(), Relaxed);
}

fn client_list(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 3 {
        return Err(Error::Syntax);
    }
    let filters = Filters::parse(cx, args)?;
    publish_own(cx, args);
    if cx.asks_about_all_clients() {
        cx.ask_nodes(Reach::All, (Merge::Text, Own::Nothing), args);
        return Ok(());
    }
    let (me, now) = (cx.asking_client(), cx.now().0);
    let mut out = String::new();
    for client in cx.engine.clients.all() {
        // A node asks for the clients of the one server that its own client sees.
        let is_hidden = cx.session.is_link && client.is_link();
        if !is_hidden && filters.allow(&client, me, now, false) {
            out.push_str(&line(cx.engine, &client, now));
        }
    }
    cx.reply.verbatim("txt", out.as_bytes());
    Ok(())
}
