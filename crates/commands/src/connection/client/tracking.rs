//! `CLIENT TRACKING`, `TRACKINGINFO`, `CACHING`, `GETREDIR`: server-assisted caching

use super::modes::parse_switch;
use engine::dispatch;
use engine::session::Tracking;
use engine::tracking::{Cacher, PrefixList};
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome, View};
use resp::Protocol;
use std::sync::Arc;

/// `CLIENT TRACKING`.
pub static CLIENT_TRACKING: Command = Command {
    name: "tracking",
    arity: -3,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "6.0.0",
    complexity: "O(1), more with prefixes",
    summary: "Has a client told when keys that it has read change.",
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

/// `CLIENT TRACKINGINFO`.
pub static CLIENT_TRACKINGINFO: Command = Command {
    name: "trackinginfo",
    arity: 2,
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Connection,
    since: "6.2.0",
    complexity: "O(1)",
    summary: "How CLIENT TRACKING stands on this connection.",
    run: client_trackinginfo,
    ..Command::ROW
};

/// `CLIENT CACHING`.
pub static CLIENT_CACHING: Command = Command {
    name: "caching",
    arity: 3,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::SETS_CACHING),
    group: Group::Connection,
    since: "6.0.0",
    complexity: "O(1)",
    summary: "Says whether the keys of the next command are tracked.",
    args: &[Arg::one_of("mode", &[Arg::token("yes", "YES"), Arg::token("no", "NO")])],
    run: client_caching,
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
    summary: "Which connection gets the invalidations of this one.",
    run: client_getredir,
    ..Command::ROW
};

fn client_getredir(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let redirect = cx.session.tracking().map_or(-1, |t| t.redirect as i64);
    cx.reply.integer(redirect);
    Ok(())
}

fn client_caching(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Some(tracking) = cx.session.tracking_mut() else {
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

struct Wanted<'a> {
    on: bool,
    tracking: Tracking,
    prefixes: Vec<&'a [u8]>,
    broadcast: bool,
}

fn parse_tracking<'a>(cx: &Cx<'_>, args: Args<'a>) -> Result<Wanted<'a>, Error> {
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
            wanted.prefixes.push(args[at]);
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    wanted.on = parse_switch(args)?;
    Ok(wanted)
}

fn check_tracking(cx: &Cx<'_>, wanted: &Wanted<'_>) -> Result<(), Error> {
    if !wanted.broadcast && !wanted.prefixes.is_empty() {
        return Err(Error::text("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    let old = cx.session.tracking();
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
        return Err(Error::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    if old.is_some_and(|old| (old.opt_in && options.opt_out) || (old.opt_out && options.opt_in)) {
        return Err(Error::text(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ));
    }
    let known =
        || old.and_then(|old| old.broadcast.as_ref()).into_iter().flat_map(|all| all.iter());
    if let Some(index) = first_overlapping(known(), &wanted.prefixes) {
        let prefix = &wanted.prefixes[index];
        if let Some(other) = known().find(|other| overlap(prefix, other)) {
            return Err(overlapping(prefix, "an existing", other));
        }
        if let Some(other) = wanted.prefixes[index + 1..].iter().find(|p| overlap(prefix, p)) {
            return Err(overlapping(prefix, "another provided", other));
        }
    }
    Ok(())
}

/// The first of these prefixes that overlaps with another of them or a known one. In lexical order
/// a prefix stands right before those that begin with it.
fn first_overlapping<'p>(
    known: impl Iterator<Item = &'p [u8]>,
    wanted: &[&'p [u8]],
) -> Option<usize> {
    let known = known.map(|prefix| (prefix, None));
    let wanted = wanted.iter().enumerate().map(|(index, &prefix)| (prefix, Some(index)));
    let mut all: Vec<(&[u8], Option<usize>)> = known.chain(wanted).collect();
    all.sort_unstable();
    let mut open: Vec<(&[u8], Option<usize>)> = Vec::new();
    let mut first: Option<usize> = None;
    for (prefix, index) in all {
        while open.pop_if(|(shorter, _)| !prefix.starts_with(shorter)).is_some() {}
        if let Some((_, of_shorter)) = open.last() {
            first = [first, index, *of_shorter].into_iter().flatten().min();
        }
        open.push((prefix, index));
    }
    first
}

/// Whether some key has both prefixes.
fn overlap(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn overlapping(prefix: &[u8], which: &str, other: &[u8]) -> Error {
    Error::format(format!(
        "ERR Prefix '{}' overlaps with {which} prefix '{}'. Prefixes for a single client must not \
         overlap.",
        String::from_utf8_lossy(prefix),
        String::from_utf8_lossy(other)
    ))
}

/// Lets the other nodes of the cluster track what the client reads there.
fn track_elsewhere(cx: &mut Cx<'_>, args: Args<'_>, wanted: &Wanted<'_>) -> Result<(), Error> {
    let options = &wanted.tracking;
    if cx.session.protocol == Protocol::Resp2 || options.redirect != 0 {
        return Err(Error::text(
            "ERR With cluster-endpoint single CLIENT TRACKING needs RESP3 and no REDIRECT; say HELLO 3",
        ));
    }
    check_tracking(cx, wanted)?;
    cx.forward_beside(args);
    Ok(())
}

fn client_tracking(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let wanted = parse_tracking(cx, args)?;
    let id = cx.session.id();
    match wanted.on {
        true if cx.view() == View::OneServer => track_elsewhere(cx, args, &wanted)?,
        true => {}
        false => cx.track_no_more_elsewhere(),
    }
    if !wanted.on {
        cx.session.set_tracking(None);
        cx.session.tracking_broken = false;
        cx.engine.tracking.remove(id);
        dispatch::deliver_last_pushes(cx);
        cx.reply.ok();
        return Ok(());
    }
    check_tracking(cx, &wanted)?;
    let mut tracking = wanted.tracking;
    if wanted.broadcast {
        let names_prefixes = !wanted.prefixes.is_empty();
        let old = cx.session.set_tracking(None).and_then(|old| old.broadcast);
        let mut prefixes: Vec<&[u8]> = old.iter().flat_map(|old| old.iter()).collect();
        prefixes.extend(wanted.prefixes);
        if !names_prefixes && !prefixes.iter().any(|prefix| prefix.is_empty()) {
            // Every key is below the empty one.
            prefixes.push(b"");
        }
        prefixes.sort();
        tracking.broadcast = Some(Arc::new(PrefixList::new(&prefixes)));
    }
    cx.engine.tracking.set(Cacher {
        client: id,
        redirect: (tracking.redirect != 0).then_some(tracking.redirect),
        no_loop: tracking.no_loop,
        prefixes: tracking.broadcast.clone(),
    });
    cx.session.tracking_broken = false;
    cx.session.set_tracking(Some(Box::new(tracking)));
    cx.reply.ok();
    Ok(())
}

fn client_trackinginfo(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let tracking = cx.session.tracking().cloned();
    let mut flags = vec![if tracking.is_some() { "on" } else { "off" }];
    let mut prefixes = Arc::<PrefixList>::default();
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
