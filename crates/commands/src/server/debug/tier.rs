//! `DEBUG TIER DEMOTE [key …]`: values go to the flash tier at once, however small or hot they are
//!
//! `DEBUG TIER FILTER yes|no`: values that are read come back only after a second use, though there
//! is room

use super::unknown;
use engine::{Args, Cx, Error, Outcome};
use std::sync::atomic::Ordering::Relaxed;

pub(super) fn tier(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if args[2].eq_ignore_ascii_case(b"filter") && args.len() == 4 {
        let filters = args[3].eq_ignore_ascii_case(b"yes");
        cx.engine.tier.filters_always.store(filters, Relaxed);
        cx.reply.ok();
        return Ok(());
    }
    if !args[2].eq_ignore_ascii_case(b"demote") {
        return Err(unknown(args));
    }
    let keys: Vec<&[u8]> = args.from(3).to_vec();
    let demoted = engine::tier::demote_all(&mut cx.db, &keys);
    let count = demoted.map_err(|why| Error::format(format!("ERR {why}")))?;
    cx.reply.integer(count as i64);
    Ok(())
}
