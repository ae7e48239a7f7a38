//! `HELLO [protover [AUTH username password] [SETNAME clientname]]`

use super::auth::authenticate;
use super::names::check_name;
use engine::routing::{Local, Routing, Way};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome, Protocol};

/// `HELLO`.
pub static HELLO: Command = Command {
    name: "hello",
    arity: -1,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::NO_AUTH)
        .with(Flags::ALLOW_BUSY),
    group: Group::Connection,
    since: "6.0.0",
    complexity: "O(1)",
    summary: "Chooses the protocol; can log in and name the connection too.",
    history: &[
        ("8.1.0", "The reply has an `availability_zone` if one is configured."),
        ("6.2.0", "Without `protover` it says how the connection is."),
    ],
    args: &[Arg::block(
        "arguments",
        &[
            Arg::new("protover", ArgKind::Integer),
            Arg::block(
                "auth",
                &[Arg::new("username", ArgKind::String), Arg::new("password", ArgKind::String)],
            )
            .after("AUTH")
            .optional(),
            Arg::new("clientname", ArgKind::String).after("SETNAME").optional(),
        ],
    )
    .optional()],
    secrets: Some(secrets),
    routing: Routing::by(Way::Local(Local::Hello)),
    run: hello,
    ..Command::ROW
};

#[derive(Default)]
struct HelloOptions<'a> {
    protocol: Option<Protocol>,
    credentials: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

fn parse(args: Args<'_>) -> Result<HelloOptions<'_>, Error> {
    let mut options = HelloOptions::default();
    if let Some(version) = args.get(1) {
        let version = structs::numbers::parse_i64(version)
            .ok_or(Error::text("ERR Protocol version is not an integer or out of range"))?;
        options.protocol = Some(match version {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(Error::text("NOPROTO unsupported protocol version")),
        });
    }
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "auth") && at + 2 < args.len() {
            options.credentials = Some((args[at + 1], args[at + 2]));
            at += 3;
        } else if args.is(at, "setname") && at + 1 < args.len() {
            options.name = Some(check_name(args[at + 1], "Client names")?);
            at += 2;
        } else {
            let mut text = b"ERR Syntax error in HELLO option '".to_vec();
            text.extend_from_slice(args[at]);
            text.push(b'\'');
            return Err(Error::Bytes(text));
        }
    }
    Ok(options)
}

/// The name and the password that follow AUTH.
fn secrets(words: &[&[u8]], found: &mut dyn FnMut(usize)) {
    let auth = words.iter().skip(2).position(|word| word.eq_ignore_ascii_case(b"auth"));
    if let Some(at) = auth {
        found(at + 3);
        found(at + 4);
    }
}

fn hello(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args)?;
    if let Some((user, password)) = options.credentials {
        authenticate(cx, args, user, password)?;
    }
    if !cx.session.is_authenticated() && !cx.engine.acl.is_open() {
        return Err(Error::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = options.name {
        cx.session.rename(|names| names.name = name.to_vec());
    }
    if let Some(protocol) = options.protocol {
        if protocol == Protocol::Resp2 {
            // The connections on which other nodes track speak RESP3.
            cx.track_no_more_elsewhere();
        }
        cx.session.protocol = protocol;
        cx.reply.set_protocol(protocol);
    }
    let protocol = if cx.reply.is_resp3() { 3 } else { 2 };
    let zone = cx.engine.config.availability_zone();
    cx.reply.map(7 + usize::from(!zone.is_empty()));
    for (name, value) in [("server", "redis"), ("version", crate::server::REDIS_VERSION)] {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(value.as_bytes());
    }
    cx.reply.bulk(b"proto");
    cx.reply.integer(protocol);
    cx.reply.bulk(b"id");
    cx.reply.integer(cx.session.id() as i64);
    for (name, value) in [("mode", crate::server::mode(cx)), ("role", "master")] {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(value.as_bytes());
    }
    cx.reply.bulk(b"modules");
    crate::server::module::write_list(cx);
    if !zone.is_empty() {
        cx.reply.bulk(b"availability_zone");
        cx.reply.bulk(&zone);
    }
    Ok(())
}
