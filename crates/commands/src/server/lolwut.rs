//! `LOLWUT`: a flock that turns as one.

use engine::{Arg, ArgKind, Args, Command, Cx, Flags, Group, Outcome};

/// `LOLWUT`.
pub static LOLWUT: Command = Command {
    name: "lolwut",
    arity: -1,
    flags: Flags::READONLY.with(Flags::FAST),
    group: Group::Server,
    since: "5.0.0",
    complexity: "",
    summary: "Draws something and says which version this is.",
    args: &[Arg::new("version", ArgKind::Integer).after("VERSION").optional()],
    run: lolwut,
    ..Command::ROW
};

fn lolwut(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args.is(1, "version") && args.len() > 2 {
        // There is one picture, for whatever version is asked for.
        args.integer(2)?;
    }
    let mut text = String::new();
    for row in 0..8 {
        for _ in 0..48 {
            let bird = cx.db.random() % 24;
            text.push(match bird {
                0 if row < 6 => 'v',
                1 if row < 6 => '^',
                _ if row == 7 => '~',
                _ => ' ',
            });
        }
        text.push('\n');
    }
    text.push_str(concat!("Dunlin ver. ", env!("CARGO_PKG_VERSION"), "\n"));
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}
