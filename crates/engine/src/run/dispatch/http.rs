//! Rejects requests of HTTP (`resp::http`).

use crate::cx::Cx;
use crate::session::Fate;

/// Closes the connection without an answer.
#[cold]
pub(super) fn reject(cx: &mut Cx<'_>) {
    cx.session.fate = Fate::Close;
    let now_s = cx.engine.clock.wall_s();
    let line = cx.engine.stats.http_log.line(now_s, &cx.session.client.addr);
    if let (Some(line), Some(host)) = (line, cx.engine.host()) {
        host.warn(&line);
    }
}
