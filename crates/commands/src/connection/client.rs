//! `CLIENT`: what a connection is and what others are
//!
//! Other connections belong to other threads: what is shown of them is what their threads have copied
//! into the registry, and what is done to them goes through their threads' mailboxes.

use super::list_line::{kind_of, line};
use super::names::check_name;
use engine::clients::Client;
use engine::mailbox::Message;
use engine::session::{Fate, ReplyMode, Tracking};
use engine::tracking::Cacher;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};
use std::sync::atomic::Ordering::Relaxed;

/// `CLIENT HELP`.
pub static CLIENT_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Connection,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Returns helpful text about the different subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `CLIENT ID`.
pub static CLIENT_ID: Command = Command {
    name: "id",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Returns the unique client ID of the connection.",
    run: client_id,
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
    summary: "Marks this client as an import source when the server is in import \
        mode.",
    args: &[Arg::one_of("enabled", &[Arg::token("on", "ON"), Arg::token("off", "OFF")])],
    run: client_import_source,
    ..Command::ROW
};

/// `CLIENT KILL`.
pub static CLIENT_KILL: Command = Command {
    name: "kill",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    summary: "Terminates open connections.",
    history: &[
        ("2.8.12", "Added new filter format."),
        ("2.8.12", "`ID` option."),
        ("3.2.0", "Added `master` type in for `TYPE` option."),
        (
            "5.0.0",
            "Replaced `slave` `TYPE` with `replica`. `slave` still \
             supported for backward compatibility.",
        ),
        ("6.2.0", "`LADDR` option."),
        ("8.0.0", "`MAXAGE` option."),
        (
            "8.0.0",
            "Replaced `master` `TYPE` with `primary`. `master` still \
             supported for backward compatibility.",
        ),
        ("8.1.0", "`ID` option accepts multiple IDs."),
        (
            "9.0.0",
            "Added filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA, \
             and IP. And negative filters NOT-ID, NOT-TYPE, NOT-ADDR, NOT-LADDR, NOT-USER, \
             NOT-FLAGS, NOT-NAME, NOT-LIB-NAME, NOT-LIB-VER, NOT-DB, NOT-CAPA, NOT-IP.",
        ),
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
                    Arg::new("name", ArgKind::String).after("NAME").optional().since("9.0.0"),
                    Arg::new("idle", ArgKind::Integer).after("IDLE").optional().since("9.0.0"),
                    Arg::new("flags", ArgKind::String).after("FLAGS").optional().since("9.0.0"),
                    Arg::new("lib-name", ArgKind::String)
                        .after("LIB-NAME")
                        .optional()
                        .since("9.0.0"),
                    Arg::new("lib-ver", ArgKind::String).after("LIB-VER").optional().since("9.0.0"),
                    Arg::new("db", ArgKind::Integer).after("DB").optional().since("9.0.0"),
                    Arg::new("capa", ArgKind::String).after("CAPA").optional().since("9.0.0"),
                    Arg::new("ip", ArgKind::String).after("IP").optional().since("9.0.0"),
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
                    Arg::new("not-client-id", ArgKind::Integer)
                        .after("NOT-ID")
                        .optional()
                        .multiple()
                        .since("9.0.0"),
                    Arg::new("not-username", ArgKind::String)
                        .after("NOT-USER")
                        .optional()
                        .since("9.0.0"),
                    Arg::new("not-addr", ArgKind::String)
                        .after("NOT-ADDR")
                        .optional()
                        .since("9.0.0")
                        .shown_as("ip:port"),
                    Arg::new("not-laddr", ArgKind::String)
                        .after("NOT-LADDR")
                        .optional()
                        .since("9.0.0")
                        .shown_as("ip:port"),
                    Arg::new("not-name", ArgKind::String)
                        .after("NOT-NAME")
                        .optional()
                        .since("9.0.0"),
                    Arg::new("not-flags", ArgKind::String)
                        .after("NOT-FLAGS")
                        .optional()
                        .since("9.0.0"),
                    Arg::new("not-lib-name", ArgKind::String)
                        .after("NOT-LIB-NAME")
                        .optional()
                        .since("9.0.0"),
                    Arg::new("not-lib-ver", ArgKind::String)
                        .after("NOT-LIB-VER")
                        .optional()
                        .since("9.0.0"),
                    Arg::new("not-db", ArgKind::Integer).after("NOT-DB").optional().since("9.0.0"),
                    Arg::new("not-capa", ArgKind::String)
                        .after("NOT-CAPA")
                        .optional()
                        .since("9.0.0"),
                    Arg::new("not-ip", ArgKind::String).after("NOT-IP").optional().since("9.0.0"),
                ],
            )
            .multiple(),
        ],
    )],
    run: client_kill,
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
    summary: "Sets information specific to the client or connection.",
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

/// `CLIENT TRACKINGINFO`.
pub static CLIENT_TRACKINGINFO: Command = Command {
    name: "trackinginfo",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "Returns information about server-assisted client-side caching for the \
        connection.",
    run: client_trackinginfo,
    ..Command::ROW
};

/// `CLIENT CACHING`.
pub static CLIENT_CACHING: Command = Command {
    name: "caching",
    arity: 3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "6.0.0",
    complexity: "O(1)",
    summary: "Instructs the server whether to track the keys in the next request.",
    args: &[Arg::one_of("mode", &[Arg::token("yes", "YES"), Arg::token("no", "NO")])],
    run: client_caching,
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
    summary: "A client claims its capability.",
    args: &[Arg::new("capability", ArgKind::String).multiple()],
    run: client_capa,
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
    summary: "Returns the name of the connection.",
    run: client_getname,
    ..Command::ROW
};

/// `CLIENT GETREDIR`.
pub static CLIENT_GETREDIR: Command = Command {
    name: "getredir",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "6.0.0",
    complexity: "O(1)",
    summary: "Returns the client ID to which the connection's tracking notifications \
        are redirected.",
    run: client_getredir,
    ..Command::ROW
};

/// `CLIENT LIST`.
pub static CLIENT_LIST: Command = Command {
    name: "list",
    arity: -2,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "2.4.0",
    complexity: "O(N) where N is the number of client connections",
    summary: "Lists open connections.",
    history: &[
        ("2.8.12", "Added unique client `id` field."),
        ("5.0.0", "Added optional `TYPE` filter."),
        ("6.0.0", "Added `user` field."),
        (
            "6.2.0",
            "Added `argv-mem`, `tot-mem`, `laddr` and `redir` fields and \
             the optional `ID` filter.",
        ),
        ("7.0.0", "Added `resp`, `multi-mem`, `rbs` and `rbp` fields."),
        ("7.0.3", "Added `ssub` field."),
        (
            "8.0.0",
            "Replaced `master` `TYPE` with `primary`. `master` still \
             supported for backward compatibility.",
        ),
        ("8.1.0", "Added filters USER, ADDR, LADDR, SKIPME, and MAXAGE."),
        (
            "9.0.0",
            "Added filters NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA, \
             and IP. And negative filters NOT-ID, NOT-TYPE, NOT-ADDR, NOT-LADDR, NOT-USER, \
             NOT-FLAGS, NOT-NAME, NOT-LIB-NAME, NOT-LIB-VER, NOT-DB, NOT-CAPA, NOT-IP.",
        ),
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
        Arg::new("name", ArgKind::String).after("NAME").optional().since("9.0.0"),
        Arg::new("idle", ArgKind::Integer).after("IDLE").optional().since("9.0.0"),
        Arg::new("flags", ArgKind::String).after("FLAGS").optional().since("9.0.0"),
        Arg::new("lib-name", ArgKind::String).after("LIB-NAME").optional().since("9.0.0"),
        Arg::new("lib-ver", ArgKind::String).after("LIB-VER").optional().since("9.0.0"),
        Arg::new("db", ArgKind::Integer).after("DB").optional().since("9.0.0"),
        Arg::new("capa", ArgKind::String).after("CAPA").optional().since("9.0.0"),
        Arg::new("ip", ArgKind::String).after("IP").optional().since("9.0.0"),
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
        Arg::new("not-client-id", ArgKind::Integer)
            .after("NOT-ID")
            .optional()
            .multiple()
            .since("9.0.0"),
        Arg::new("not-username", ArgKind::String).after("NOT-USER").optional().since("9.0.0"),
        Arg::new("not-addr", ArgKind::String)
            .after("NOT-ADDR")
            .optional()
            .since("9.0.0")
            .shown_as("ip:port"),
        Arg::new("not-laddr", ArgKind::String)
            .after("NOT-LADDR")
            .optional()
            .since("9.0.0")
            .shown_as("ip:port"),
        Arg::new("not-name", ArgKind::String).after("NOT-NAME").optional().since("9.0.0"),
        Arg::new("not-flags", ArgKind::String).after("NOT-FLAGS").optional().since("9.0.0"),
        Arg::new("not-lib-name", ArgKind::String).after("NOT-LIB-NAME").optional().since("9.0.0"),
        Arg::new("not-lib-ver", ArgKind::String).after("NOT-LIB-VER").optional().since("9.0.0"),
        Arg::new("not-db", ArgKind::Integer).after("NOT-DB").optional().since("9.0.0"),
        Arg::new("not-capa", ArgKind::String).after("NOT-CAPA").optional().since("9.0.0"),
        Arg::new("not-ip", ArgKind::String).after("NOT-IP").optional().since("9.0.0"),
    ],
    run: client_list,
    ..Command::ROW
};

/// `CLIENT NO-TOUCH`.
pub static CLIENT_NO_TOUCH: Command = Command {
    name: "no-touch",
    arity: 3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "7.2.0",
    complexity: "O(1)",
    summary: "Controls whether commands sent by the client affect the LRU/LFU of \
        accessed keys.",
    args: &[Arg::one_of("enabled", &[Arg::token("on", "ON"), Arg::token("off", "OFF")])],
    run: client_no_touch,
    ..Command::ROW
};

/// `CLIENT UNBLOCK`.
pub static CLIENT_UNBLOCK: Command = Command {
    name: "unblock",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "5.0.0",
    complexity: "O(log N) where N is the number of client connections",
    summary: "Unblocks a client blocked by a blocking command from a different \
        connection.",
    args: &[
        Arg::new("client-id", ArgKind::Integer),
        Arg::one_of(
            "unblock-type",
            &[Arg::token("timeout", "TIMEOUT"), Arg::token("error", "ERROR")],
        )
        .optional(),
    ],
    run: client_unblock,
    ..Command::ROW
};

/// `CLIENT INFO`.
pub static CLIENT_INFO: Command = Command {
    name: "info",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "Returns information about the connection.",
    tips: &["nondeterministic_output"],
    run: client_info,
    ..Command::ROW
};

/// `CLIENT NO-EVICT`.
pub static CLIENT_NO_EVICT: Command = Command {
    name: "no-evict",
    arity: 3,
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "7.0.0",
    complexity: "O(1)",
    summary: "Sets the client eviction mode of the connection.",
    args: &[Arg::one_of("enabled", &[Arg::token("on", "ON"), Arg::token("off", "OFF")])],
    run: client_no_evict,
    ..Command::ROW
};

/// `CLIENT PAUSE`.
pub static CLIENT_PAUSE: Command = Command {
    name: "pause",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "3.0.0",
    complexity: "O(1)",
    summary: "Suspends commands processing.",
    history: &[("6.2.0", "`CLIENT PAUSE WRITE` mode added along with the `mode` option.")],
    args: &[
        Arg::new("timeout", ArgKind::Integer),
        Arg::one_of("mode", &[Arg::token("write", "WRITE"), Arg::token("all", "ALL")])
            .optional()
            .since("6.2.0"),
    ],
    run: client_pause,
    ..Command::ROW
};

/// `CLIENT REPLY`.
pub static CLIENT_REPLY: Command = Command {
    name: "reply",
    arity: 3,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::NO_MULTI)
        .with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "3.2.0",
    complexity: "O(1)",
    summary: "Instructs the server whether to reply to commands.",
    args: &[Arg::one_of(
        "action",
        &[Arg::token("on", "ON"), Arg::token("off", "OFF"), Arg::token("skip", "SKIP")],
    )],
    run: client_reply,
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
    summary: "Sets the connection name.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::new("connection-name", ArgKind::String)],
    run: client_setname,
    ..Command::ROW
};

/// `CLIENT TRACKING`.
pub static CLIENT_TRACKING: Command = Command {
    name: "tracking",
    arity: -3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "6.0.0",
    complexity: "O(1). Some options may introduce additional complexity.",
    summary: "Controls server-assisted client-side caching for the connection.",
    args: &[
        Arg::one_of("status", &[Arg::token("on", "ON"), Arg::token("off", "OFF")]),
        Arg::new("client-id", ArgKind::Integer).after("REDIRECT").optional(),
        Arg::new("prefix", ArgKind::String).after("PREFIX").optional().multiple_token(),
        Arg::token("bcast", "BCAST").optional(),
        Arg::token("optin", "OPTIN").optional(),
        Arg::token("optout", "OPTOUT").optional(),
        Arg::token("noloop", "NOLOOP").optional(),
    ],
    run: client_tracking,
    ..Command::ROW
};

/// `CLIENT UNPAUSE`.
pub static CLIENT_UNPAUSE: Command = Command {
    name: "unpause",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "6.2.0",
    complexity: "O(N) Where N is the number of paused clients",
    summary: "Resumes processing commands from paused clients.",
    run: client_unpause,
    ..Command::ROW
};

/// `CLIENT`.
pub static CLIENT: Command = Command {
    name: "client",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Connection,
    since: "2.4.0",
    complexity: "Depends on subcommand.",
    summary: "A container for client connection commands.",
    subcommands: &[
        &CLIENT_HELP,
        &CLIENT_ID,
        &CLIENT_IMPORT_SOURCE,
        &CLIENT_KILL,
        &CLIENT_SETINFO,
        &CLIENT_TRACKINGINFO,
        &CLIENT_CACHING,
        &CLIENT_CAPA,
        &CLIENT_GETNAME,
        &CLIENT_GETREDIR,
        &CLIENT_LIST,
        &CLIENT_NO_TOUCH,
        &CLIENT_UNBLOCK,
        &CLIENT_INFO,
        &CLIENT_NO_EVICT,
        &CLIENT_PAUSE,
        &CLIENT_REPLY,
        &CLIENT_SETNAME,
        &CLIENT_TRACKING,
        &CLIENT_UNPAUSE,
    ],
    help: &[
        "CACHING (YES|NO)",
        "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
        "CAPA <option> [options...]",
        "    The client claims its some capability options. Options are:",
        "    * REDIRECT",
        "      The client can handle redirection during primary and replica failover in standalone mode.",
        "GETREDIR",
        "    Return the client ID we are redirecting to when tracking is enabled.",
        "GETNAME",
        "    Return the name of the current connection.",
        "ID",
        "    Return the ID of the current connection.",
        "INFO",
        "    Return information about the current client connection.",
        "KILL <ip:port>",
        "    Kill connection made from <ip:port>.",
        "KILL <option> <value> [<option> <value> [...]]",
        "    Kill connections. Options are:",
        "    * ADDR (<ip:port>|<unixsocket>:0)",
        "      Kill connections made from the specified address.",
        "    * LADDR (<ip:port>|<unixsocket>:0)",
        "      Kill connections made to the specified local address.",
        "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
        "      Kill connections by type.",
        "    * USER <username>",
        "      Kill connections authenticated by <username>.",
        "    * SKIPME (YES|NO)",
        "      Skip killing current connection (default: yes).",
        "    * ID <client-id> [<client-id>...]",
        "      Kill connections by client IDs.",
        "    * MAXAGE <maxage>",
        "      Kill connections older than the specified age.",
        "    * FLAGS <flags>",
        "      Kill connections that include the specified flags.",
        "    * NAME <client-name>",
        "      Kill connections with the specified name.",
        "    * IDLE <idle>",
        "      Kill connections with idle time greater than or equal to <idle> seconds.",
        "    * LIB-NAME <library-name>",
        "      Kill connections with the specified library name.",
        "    * LIB-VER <library-version>",
        "      Kill connections with the specified library version.",
        "    * DB <db-id>",
        "      Kill connections currently operating on the specified database ID.",
        "    * CAPA <capa>",
        "      Kill connections currently with the specified capa.",
        "    * IP <ip>",
        "      Kill connections made from the specified ip.",
        "LIST [options ...]",
        "    Return information about client connections. Options:",
        "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
        "      Return clients of specified type.",
        "    * USER <username>",
        "      Return clients authenticated by <username>.",
        "    * ADDR <ip:port>",
        "      Return clients connected from the specified address.",
        "    * LADDR <ip:port>",
        "      Return clients connected to the specified local address.",
        "    * ID <client-id> [<client-id>...]",
        "      Return clients with the specified IDs.",
        "    * SKIPME (YES|NO)",
        "      Exclude the current client from the list (default: no).",
        "    * MAXAGE <maxage>",
        "      List connections older than the specified age.",
        "    * FLAGS <flags>",
        "      Return clients with the specified flags.",
        "    * NAME <client-name>",
        "      Return clients with the specified name.",
        "    * IDLE <idle>",
        "      Return clients with idle time greater than or equal to <idle> seconds.",
        "    * LIB-NAME <lib-name>",
        "      Return clients with the specified lib name.",
        "    * LIB-VER <lib-version>",
        "      Return clients with the specified lib version.",
        "    * DB <db-id>",
        "      Return clients currently operating on the specified database ID.",
        "    * CAPA <capa>",
        "      Return connections currently with the specified capa.",
        "    * IP <ip>",
        "      Return connections made from the specified ip.",
        "UNPAUSE",
        "    Stop the current client pause, resuming traffic.",
        "PAUSE <timeout> [WRITE|ALL]",
        "    Suspend all, or just write, clients for <timeout> milliseconds.",
        "REPLY (ON|OFF|SKIP)",
        "    Control the replies sent to the current connection.",
        "SETNAME <name>",
        "    Assign the name <name> to the current connection.",
        "SETINFO <option> <value>",
        "    Set client meta attr. Options are:",
        "    * LIB-NAME: the client lib name.",
        "    * LIB-VER: the client lib version.",
        "UNBLOCK <clientid> [TIMEOUT|ERROR]",
        "    Unblock the specified blocked client.",
        "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
        "         [OPTIN] [OPTOUT] [NOLOOP]",
        "    Control server assisted client side caching.",
        "TRACKINGINFO",
        "    Report tracking status for the current connection.",
        "NO-EVICT (ON|OFF)",
        "    Protect current client connection from eviction.",
        "NO-TOUCH (ON|OFF)",
        "    Will not touch LRU/LFU stats when this mode is on.",
        "IMPORT-SOURCE (ON|OFF)",
        "    Mark this connection as an import source if import-mode is enabled.",
        "    Sync tools can set their connections into 'import-source' state to visit",
        "    expired keys.",
    ],
    ..Command::ROW
};

fn client_id(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.reply.integer(cx.session.id() as i64);
    Ok(())
}

fn client_info(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.session.publish(cx.now().0);
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
    cx.session.client.names().name = name.to_vec();
    cx.reply.ok();
    Ok(())
}

fn client_setinfo(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.is(2, "lib-name") {
        cx.session.client.names().lib_name = check_name(args[3], "lib-name")?.to_vec();
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

/// The filters of CLIENT LIST and CLIENT KILL; all that are given must hold.
#[derive(Default)]
struct Filters {
    ids: Vec<u64>,
    kind: Option<String>,
    addr: Option<String>,
    laddr: Option<String>,
    user: Option<String>,
    name: Option<Vec<u8>>,
    min_age_s: Option<i64>,
    skip_me: Option<bool>,
}

fn parse_filters(args: Args<'_>, mut at: usize, kills: bool) -> Result<Filters, Error> {
    let mut filters = Filters::default();
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    while at < args.len() {
        let Some(value) = args.get(at + 1) else { return Err(Error::Syntax) };
        if args.is(at, "id") {
            at += 1;
            while let Some(word) = args.get(at)
                && let Some(id) = structs::numbers::parse_i64(word)
            {
                if id < 1 {
                    let text = "ERR client-id should be greater than 0";
                    return Err(if kills {
                        Error::text(text)
                    } else {
                        Error::text("ERR Invalid client ID")
                    });
                }
                filters.ids.push(id as u64);
                at += 1;
                if kills && filters.ids.is_empty() {
                    break;
                }
            }
            if filters.ids.is_empty() {
                return Err(if kills {
                    Error::text("ERR client-id should be greater than 0")
                } else {
                    Error::text("ERR Invalid client ID")
                });
            }
            continue;
        }
        if args.is(at, "type") {
            let kind = text(value).to_ascii_lowercase();
            let known = ["normal", "master", "primary", "replica", "slave", "pubsub"];
            if !known.contains(&kind.as_str()) {
                let text = format!("ERR Unknown client type '{}'", text(value));
                return Err(Error::format(text));
            }
            filters.kind = Some(kind);
        } else if args.is(at, "addr") {
            filters.addr = Some(text(value));
        } else if args.is(at, "laddr") {
            filters.laddr = Some(text(value));
        } else if args.is(at, "user") {
            if kills && value != b"default" {
                let text = format!("ERR No such user '{}'", text(value));
                return Err(Error::format(text));
            }
            filters.user = Some(text(value));
        } else if args.is(at, "name") {
            filters.name = Some(value.to_vec());
        } else if args.is(at, "maxage") {
            let age = structs::numbers::parse_i64(value)
                .ok_or(Error::text("ERR maxage is not an integer or out of range"))?;
            if age <= 0 {
                return Err(Error::text("ERR maxage should be greater than 0"));
            }
            filters.min_age_s = Some(age);
        } else if args.is(at, "skipme") {
            filters.skip_me = Some(match () {
                () if args.is(at + 1, "yes") => true,
                () if args.is(at + 1, "no") => false,
                () => return Err(Error::Syntax),
            });
        } else {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    Ok(filters)
}

impl Filters {
    fn allow(&self, client: &Client, me: u64, now_ms: i64, skips_me_by_default: bool) -> bool {
        let kind = kind_of(client);
        let same_kind =
            |wanted: &String| wanted == kind || (wanted == "slave" && kind == "replica");
        (self.ids.is_empty() || self.ids.contains(&client.id))
            && self.kind.as_ref().is_none_or(same_kind)
            && self.addr.as_ref().is_none_or(|addr| *addr == client.addr)
            && self.laddr.as_ref().is_none_or(|laddr| *laddr == client.laddr)
            && self.user.as_ref().is_none_or(|user| *user == client.names().user)
            && self.name.as_ref().is_none_or(|name| *name == client.names().name)
            && self.min_age_s.is_none_or(|age| now_ms - client.created_ms >= age * 1000)
            && !(client.id == me && self.skip_me.unwrap_or(skips_me_by_default))
    }
}

fn client_list(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let filters = parse_filters(args, 2, false)?;
    let now = cx.now().0;
    cx.session.publish(now);
    let mut out = String::new();
    for client in cx.engine.clients.all() {
        if filters.allow(&client, cx.session.id(), now, false) {
            out.push_str(&line(cx.engine, &client, now));
        }
    }
    cx.reply.verbatim("txt", out.as_bytes());
    Ok(())
}

fn client_kill(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let is_old_form = args.len() == 3;
    let (filters, skips_me) = if is_old_form {
        let addr = Some(String::from_utf8_lossy(args[2]).into_owned());
        (Filters { addr, ..Filters::default() }, false)
    } else {
        (parse_filters(args, 2, true)?, true)
    };
    let (me, now) = (cx.session.id(), cx.now().0);
    let mut killed = 0;
    for client in cx.engine.clients.all() {
        if !filters.allow(&client, me, now, skips_me) {
            continue;
        }
        killed += 1;
        if client.id == me {
            cx.session.fate = Fate::CloseAfterReplies;
        } else {
            cx.engine.clients.remove(client.id);
            cx.engine.mailboxes[client.thread].post(Message::Kill(client.id));
        }
    }
    if !is_old_form {
        cx.reply.integer(killed);
    } else if killed > 0 {
        cx.reply.ok();
    } else {
        return Err(Error::text("ERR No such client"));
    }
    Ok(())
}

/// ON or OFF.
fn parse_switch(args: Args<'_>) -> Result<bool, Error> {
    if args.is(2, "on") {
        Ok(true)
    } else if args.is(2, "off") {
        Ok(false)
    } else {
        Err(Error::Syntax)
    }
}

fn client_no_evict(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    cx.session.no_evict = parse_switch(args)?;
    cx.reply.ok();
    Ok(())
}

fn client_no_touch(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    cx.session.no_touch = parse_switch(args)?;
    cx.db.touches = !cx.session.no_touch;
    cx.reply.ok();
    Ok(())
}

fn client_import_source(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    parse_switch(args)?;
    Err(if cx.in_transaction {
        Error::Syntax
    } else {
        Error::text("ERR Server is not in import mode")
    })
}

fn client_capa(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    // Capabilities that the server does not know are no error: clients announce what they can.
    cx.reply.ok();
    Ok(())
}

fn client_pause(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let timeout = args
        .integer(2)
        .map_err(|_| Error::text("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Error::text("ERR timeout is negative"));
    }
    let writes_only = match args.len() {
        3 => false,
        4 if args.is(3, "write") => true,
        4 if args.is(3, "all") => false,
        _ => return Err(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let pause = &cx.engine.pause;
    let until = cx.now().0.saturating_add(timeout);
    // A pause is only ever made longer or stricter.
    let is_paused = pause.until_ms.load(Relaxed) > cx.now().0;
    pause
        .writes_only
        .store(writes_only && (!is_paused || pause.writes_only.load(Relaxed)), Relaxed);
    pause.until_ms.fetch_max(until, Relaxed);
    cx.reply.ok();
    Ok(())
}

fn client_unpause(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    cx.engine.pause.until_ms.store(0, Relaxed);
    cx.engine.mailboxes.iter().for_each(|mailbox| mailbox.post(Message::Recheck));
    cx.reply.ok();
    Ok(())
}

fn client_reply(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    cx.session.reply_mode = if args.is(2, "on") {
        cx.reply.ok();
        ReplyMode::On
    } else if args.is(2, "off") {
        ReplyMode::Off
    } else if args.is(2, "skip") {
        match cx.session.reply_mode {
            ReplyMode::Off => ReplyMode::Off,
            _ => ReplyMode::Skip,
        }
    } else {
        return Err(Error::Syntax);
    };
    Ok(())
}

fn client_unblock(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let with_error = match args.len() {
        3 => false,
        4 if args.is(3, "timeout") => false,
        4 if args.is(3, "error") => true,
        _ => {
            return Err(Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let id = args.integer(2)?;
    let client = u64::try_from(id).ok().and_then(|id| cx.engine.clients.get(id));
    let is_blocked = client.as_ref().is_some_and(|client| {
        client.live.flags.load(Relaxed) & engine::clients::flag::BLOCKED != 0
    });
    if let Some(client) = client.filter(|_| is_blocked) {
        cx.engine.mailboxes[client.thread].post(Message::Unblock(client.id, with_error));
    }
    cx.reply.integer(i64::from(is_blocked));
    Ok(())
}

fn client_getredir(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let redirect = cx.session.tracking.as_ref().map_or(-1, |t| t.redirect as i64);
    cx.reply.integer(redirect);
    Ok(())
}

fn client_caching(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Some(tracking) = &mut cx.session.tracking else {
        return Err(Error::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
             OPTOUT mode enabled",
        ));
    };
    if args.is(2, "yes") {
        if !tracking.opt_in {
            return Err(Error::text(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        tracking.caching = Some(true);
    } else if args.is(2, "no") {
        if !tracking.opt_out {
            return Err(Error::text(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        tracking.caching = Some(false);
    } else {
        return Err(Error::Syntax);
    }
    cx.reply.ok();
    Ok(())
}

struct Wanted {
    on: bool,
    tracking: Tracking,
    prefixes: Vec<Box<[u8]>>,
    broadcast: bool,
}

fn parse_tracking(cx: &Cx<'_>, args: Args<'_>) -> Result<Wanted, Error> {
    let mut wanted =
        Wanted { on: false, tracking: Tracking::default(), prefixes: Vec::new(), broadcast: false };
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "redirect") && at + 1 < args.len() {
            at += 1;
            if wanted.tracking.redirect != 0 {
                return Err(Error::text("ERR A client can only redirect to a single other client"));
            }
            let id = args.integer(at)?;
            if cx.engine.clients.get(u64::try_from(id).unwrap_or(0)).is_none() {
                return Err(Error::text("ERR The client ID you want redirect to does not exist"));
            }
            wanted.tracking.redirect = id as u64;
        } else if args.is(at, "bcast") {
            wanted.broadcast = true;
        } else if args.is(at, "optin") {
            wanted.tracking.opt_in = true;
        } else if args.is(at, "optout") {
            wanted.tracking.opt_out = true;
        } else if args.is(at, "noloop") {
            wanted.tracking.no_loop = true;
        } else if args.is(at, "prefix") && at + 1 < args.len() {
            at += 1;
            wanted.prefixes.push(Box::from(args[at]));
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    wanted.on = parse_switch(args)?;
    Ok(wanted)
}

fn check_tracking(cx: &Cx<'_>, wanted: &Wanted) -> Result<(), Error> {
    if !wanted.broadcast && !wanted.prefixes.is_empty() {
        return Err(Error::text("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    let old = cx.session.tracking.as_ref();
    if old.is_some_and(|old| old.broadcast.is_some() != wanted.broadcast) {
        return Err(Error::text(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ));
    }
    let options = &wanted.tracking;
    if wanted.broadcast && (options.opt_in || options.opt_out) {
        return Err(Error::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if options.opt_in && options.opt_out {
        return Err(Error::text("ERR You can't use both OPTIN and OPTOUT"));
    }
    if old.is_some_and(|old| (old.opt_in && options.opt_out) || (old.opt_out && options.opt_in)) {
        return Err(Error::text(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ));
    }
    let known: Vec<&Box<[u8]>> =
        old.and_then(|old| old.broadcast.as_ref()).into_iter().flatten().collect();
    for (index, prefix) in wanted.prefixes.iter().enumerate() {
        let others = wanted.prefixes[index + 1..].iter().chain(known.iter().copied());
        for other in others {
            if prefix.starts_with(other) || other.starts_with(prefix) {
                return Err(Error::format(format!(
                    "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single \
                     client must not overlap.",
                    String::from_utf8_lossy(prefix),
                    String::from_utf8_lossy(other)
                )));
            }
        }
    }
    Ok(())
}

fn client_tracking(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let wanted = parse_tracking(cx, args)?;
    let id = cx.session.id();
    if !wanted.on {
        cx.session.tracking = None;
        cx.session.tracking_broken = false;
        cx.engine.tracking.remove(id);
        cx.reply.ok();
        return Ok(());
    }
    check_tracking(cx, &wanted)?;
    let mut tracking = wanted.tracking;
    if wanted.broadcast {
        let mut prefixes =
            cx.session.tracking.take().and_then(|old| old.broadcast).unwrap_or_default();
        prefixes.extend(wanted.prefixes);
        tracking.broadcast = Some(prefixes);
    }
    cx.engine.tracking.set(Cacher {
        client: id,
        target: if tracking.redirect == 0 { id } else { tracking.redirect },
        no_loop: tracking.no_loop,
        prefixes: tracking.broadcast.clone(),
    });
    cx.session.tracking_broken = false;
    cx.session.tracking = Some(Box::new(tracking));
    cx.reply.ok();
    Ok(())
}

fn client_trackinginfo(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let tracking = cx.session.tracking.clone();
    let mut flags = vec![if tracking.is_some() { "on" } else { "off" }];
    let mut prefixes = Vec::new();
    let mut redirect = -1;
    if let Some(tracking) = tracking {
        redirect = tracking.redirect as i64;
        for (is_set, name) in [
            (tracking.broadcast.is_some(), "bcast"),
            (tracking.opt_in, "optin"),
            (tracking.opt_in && tracking.caching == Some(true), "caching-yes"),
            (tracking.opt_out, "optout"),
            (tracking.opt_out && tracking.caching == Some(false), "caching-no"),
            (tracking.no_loop, "noloop"),
            (cx.session.tracking_broken, "broken_redirect"),
        ] {
            if is_set {
                flags.push(name);
            }
        }
        prefixes = tracking.broadcast.unwrap_or_default();
    }
    cx.reply.map(3);
    cx.reply.bulk(b"flags");
    cx.reply.set(flags.len());
    flags.iter().for_each(|flag| cx.reply.bulk(flag.as_bytes()));
    cx.reply.bulk(b"redirect");
    cx.reply.integer(redirect);
    cx.reply.bulk(b"prefixes");
    cx.reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| cx.reply.bulk(prefix));
    Ok(())
}
