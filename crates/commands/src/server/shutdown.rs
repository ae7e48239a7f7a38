//! `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]`

use engine::engine::ShutdownRequest;
use engine::session::Fate;
use engine::{Arg, Args, Command, Cx, Error, Flags, Group, Outcome};

/// `SHUTDOWN`.
pub static SHUTDOWN: Command = Command {
    name: "shutdown",
    arity: -1,
    categories: &["nodes"],
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::NO_MULTI)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::AUDITED),
    group: Group::Server,
    since: "1.0.0",
    complexity: "O(N) for N keys that are saved, O(1) without saving",
    summary: "Ends the server, after what has to be saved is saved.",
    history: &[
        ("7.0.0", "Takes `NOW`, `FORCE` and `ABORT`."),
        ("9.0.0", "Takes `SAFE` and `FAILOVER`."),
    ],
    args: &[Arg::one_of(
        "abort-selector",
        &[
            Arg::block(
                "save-selector-block",
                &[
                    Arg::one_of(
                        "save-selector",
                        &[Arg::token("nosave", "NOSAVE"), Arg::token("save", "SAVE")],
                    )
                    .optional(),
                    Arg::token("now", "NOW").optional().since("7.0.0"),
                    Arg::token("force", "FORCE").optional().since("7.0.0"),
                    Arg::token("safe", "SAFE").optional().since("9.0.0"),
                    Arg::token("failover", "FAILOVER").optional().since("9.0.0"),
                ],
            ),
            Arg::token("abort", "ABORT").since("7.0.0"),
        ],
    )
    .optional()],
    run: shutdown,
    ..Command::ROW
};

fn parse(cx: &Cx<'_>, args: Args<'_>) -> Result<ShutdownRequest, Error> {
    let mut request = ShutdownRequest::default();
    for index in 1..args.len() {
        if args.is(index, "nosave") && request.save != Some(true) {
            request.save = Some(false);
        } else if args.is(index, "save") && request.save != Some(false) {
            request.save = Some(true);
        } else if args.is(index, "now") {
            request.now = true;
        } else if args.is(index, "force") {
            request.force = true;
        } else if args.is(index, "safe") {
            request.safe = true;
        } else if !args.is(index, "failover") {
            return Err(Error::Syntax);
        } else if !cx.engine.membership.is_on() {
            return Err(Error::text("ERR SHUTDOWN FAILOVER is only supported in cluster mode."));
        }
        // A node of a cluster hands its shard over without FAILOVER, too.
    }
    Ok(request)
}

fn shutdown(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let host = cx.engine.host();
    if args.len() == 2 && args.is(1, "abort") {
        if !host.is_some_and(|host| host.abort_shutdown()) {
            return Err(Error::text("ERR No shutdown in progress."));
        }
        cx.reply.ok();
        return Ok(());
    }
    let request = parse(cx, args)?;
    let by = describe(cx);
    // The connection ends with the server; there is a reply only if that does not end.
    let reply = cx.late_reply();
    match host {
        Some(host) => host.shutdown(&by, request, reply),
        None => cx.session.fate = Fate::Close,
    }
    Ok(())
}

/// The source of the request, for the log.
fn describe(cx: &Cx<'_>) -> String {
    let client = &cx.session.client;
    let names = client.names();
    let hides = cx.engine.config.hide_user_data_from_log();
    let shown = |text: &[u8]| {
        if hides { "*redacted*".to_owned() } else { String::from_utf8_lossy(text).into_owned() }
    };
    format!(
        "id={} addr={} laddr={} fd={} name={} user={} lib-name={} lib-ver={}",
        client.id,
        client.addr,
        client.laddr,
        client.fd,
        shown(&names.name),
        shown(names.user.as_bytes()),
        String::from_utf8_lossy(&names.lib_name),
        String::from_utf8_lossy(&names.lib_version)
    )
}
