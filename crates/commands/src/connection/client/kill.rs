//! `CLIENT KILL ip:port`, `CLIENT KILL filters`: closes connections
//!
//! Those of other threads are closed by way of their mailboxes; from the reply on they are not
//! served and begin nothing.

use super::filters::{self, Filters};
use engine::clients::Client;
use engine::clients::forwarding::{Own, Reach};
use engine::routing::Merge;
use engine::session::Fate;
use engine::{Arg, ArgKind, Args, Command, Cx, Flags, Group, Outcome};

/// `CLIENT KILL`.
pub static CLIENT_KILL: Command = Command {
    name: "kill",
    arity: -3,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::AUDITED)
        .with(Flags::OUTSIDE),
    group: Group::Connection,
    since: "2.4.0",
    complexity: "O(N) for N connections",
    summary: "Closes the connections that match.",
    history: &[
        ("2.8.12", "Takes filters as pairs of a name and a value."),
        ("2.8.12", "Takes `ID`."),
        ("3.2.0", "`TYPE` takes `master`."),
        ("5.0.0", "`TYPE` takes `replica` for `slave`, which still works."),
        ("6.2.0", "Takes `LADDR`."),
        ("8.0.0", "Takes `MAXAGE`."),
        ("8.0.0", "`TYPE` takes `primary` for `master`, which still works."),
        ("8.1.0", "`ID` takes several numbers."),
        filters::ADDED_IN_9,
    ],
    args: &[Arg::one_of(
        "filter",
        &[
            Arg::new("old-format", ArgKind::String).deprecated("2.8.12").shown_as("ip:port"),
            Arg::one_of(
                "new-format",
                &[
                    Arg::new("client-id", ArgKind::Integer)
                        .after("ID")
                        .optional()
                        .multiple()
                        .since("2.8.12"),
                    Arg::one_of(
                        "client-type",
                        &[
                            Arg::token("normal", "NORMAL"),
                            Arg::token("master", "MASTER").since("3.2.0"),
                            Arg::token("primary", "PRIMARY").since("8.0.0"),
                            Arg::token("slave", "SLAVE"),
                            Arg::token("replica", "REPLICA").since("5.0.0"),
                            Arg::token("pubsub", "PUBSUB"),
                        ],
                    )
                    .after("TYPE")
                    .optional()
                    .since("2.8.12"),
                    Arg::new("username", ArgKind::String).after("USER").optional(),
                    Arg::new("addr", ArgKind::String).after("ADDR").optional().shown_as("ip:port"),
                    Arg::new("laddr", ArgKind::String)
                        .after("LADDR")
                        .optional()
                        .since("6.2.0")
                        .shown_as("ip:port"),
                    Arg::one_of("skipme", &[Arg::token("yes", "YES"), Arg::token("no", "NO")])
                        .after("SKIPME")
                        .optional(),
                    Arg::new("maxage", ArgKind::Integer).after("MAXAGE").optional().since("8.0.0"),
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
                            Arg::token("primary", "PRIMARY"),
                            Arg::token("slave", "SLAVE"),
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
            )
            .multiple(),
        ],
    )],
    run: client_kill,
    ..Command::ROW
};

fn client_kill(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let is_old_form = args.len() == 3;
    let filters = if is_old_form { Filters::by_addr(args[2]) } else { Filters::parse(cx, args)? };
    cx.session.publish(cx.now().0);
    let (me, now) = (cx.asking_client(), cx.now().0);
    let (mut killed, mut waiting) = (0, Vec::new());
    for client in cx.engine.clients.all() {
        if client.is_link() && cx.engine.is_one_address() || !filters.allow(&client, me, now, true)
        {
            continue;
        }
        killed += 1;
        if client.waits_elsewhere() {
            waiting.push(client.id);
        }
        close(cx, &client);
    }
    cx.end_waits_elsewhere(&waiting);
    let is_complete = match is_old_form {
        true => killed > 0,
        // Each number is of one client.
        false => args.is(2, "id") && killed as usize == args.len() - 3,
    };
    if !is_complete && cx.asks_about_all_clients() {
        let join = match is_old_form {
            true => (Merge::AnyGood, Own::NoSuchClient),
            false => (Merge::Sum, Own::Count(killed)),
        };
        cx.ask_nodes(Reach::Others, join, args);
    } else if !is_old_form {
        cx.reply.integer(killed.into());
    } else if killed > 0 {
        cx.reply.ok();
    } else {
        return Err(cx.no_such_client());
    }
    Ok(())
}

/// Closes a client's connection; that of the client that asks after its replies.
pub(crate) fn close(cx: &mut Cx<'_>, client: &Client) {
    if client.id == cx.session.id() {
        cx.session.fate = Fate::CloseAfterReplies;
    } else {
        cx.engine.close_client(client);
    }
}
