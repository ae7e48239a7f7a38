//! Runs requests on a replica's connection. The connection carries the replication stream, so a
//! reply would become part of it. A replica sends only acknowledgements, which have no reply. If a
//! request has a reply, the reply is dropped and the connection is closed.

use super::{NotNow, process};
use crate::args::Args;
use crate::cx::Cx;
use crate::session::Fate;
use crate::table::Resolved;

/// Runs one request of a replica.
#[cold]
pub(crate) fn process_of_replica(
    cx: &mut Cx<'_>,
    resolved: Option<&'static Resolved>,
    args: Args<'_>,
) -> Result<(), NotNow> {
    let started = cx.reply.place();
    let row = resolved.or_else(|| cx.engine.table.resolve(args.words()).ok());
    process(cx, resolved, args)?;
    if let Some(suspension) = &mut cx.session.suspension {
        suspension.is_silent = true;
    }
    if cx.reply.len_since(started) == 0 {
        return Ok(());
    }
    let name = row.map_or("<unknown>", |row| row.full_name.as_str());
    if let Some(error) = cx.reply.text_since(started).strip_prefix(b"-")
        && let Some(host) = cx.engine.host()
    {
        let error = String::from_utf8_lossy(error.trim_ascii_end()).replace(char::is_control, " ");
        host.warn(&format!(
            "== CRITICAL == This master is sending an error to its replica: '{error}' after processing the command \
             '{name}'"
        ));
    }
    cx.reply.truncate(started);
    cx.session.misuse = Some(format!("Replica generated a reply to command '{name}'"));
    cx.session.fate = Fate::Close;
    Ok(())
}
