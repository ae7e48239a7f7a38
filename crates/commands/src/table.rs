//! What containers share: their HELP.

use engine::{Args, Cx, Outcome};

/// The answer of every container's HELP subcommand: the lines of its row.
pub(crate) fn help(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let Some(container) = cx.resolved.parent else { return Ok(()) };
    let name = container.name.to_ascii_uppercase();
    cx.reply.array(container.help.len() + 3);
    cx.reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    container.help.iter().for_each(|line| cx.reply.simple(line));
    cx.reply.simple("HELP");
    cx.reply.simple("    Print this help.");
    Ok(())
}
