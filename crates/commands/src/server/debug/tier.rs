//! `DEBUG TIER DEMOTE [key …]`: values go to the flash tier at once, however small or hot they are

use super::unknown;
use engine::{Args, Cx, Error, Outcome};

pub(super) fn tier(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if !args[2].eq_ignore_ascii_case(b"demote") {
        return Err(unknown(args));
    }
    let keys: Vec<&[u8]> = args.from(3).to_vec();
    let demoted = engine::tier::demote_all(&mut cx.db, &keys);
    let count = demoted.map_err(|why| Error::format(format!("ERR {why}")))?;
    cx.reply.integer(count as i64);
    Ok(())
}
