//! Rejects requests of HTTP. A web page can make its reader's browser send such a request to a
//! server behind a firewall, with commands in its body. None of them may run, so the connection is
//! closed at the first line that only HTTP has: `POST …`, or a header `Host: …`.

use crate::cx::Cx;
use crate::session::Fate;
use std::sync::atomic::Ordering::Relaxed;

/// Least number of seconds between two log lines.
const LOG_INTERVAL_S: i64 = 60;

/// Returns whether a request whose name is no command comes from HTTP.
pub(super) fn is_http(name: &[u8]) -> bool {
    let header = b"host:";
    let starts_header =
        name.get(..header.len()).is_some_and(|start| start.eq_ignore_ascii_case(header));
    starts_header || name.eq_ignore_ascii_case(b"post")
}

/// Closes the connection without an answer. Logs the first case of each minute.
#[cold]
pub(super) fn reject(cx: &mut Cx<'_>) {
    cx.session.fate = Fate::Close;
    let (now_s, last) = (cx.engine.clock.wall_s(), &cx.engine.stats.http_logged_at_s);
    let last_s = last.load(Relaxed);
    let is_due = last_s == 0 || (now_s - last_s).abs() > LOG_INTERVAL_S;
    if !is_due || last.compare_exchange(last_s, now_s, Relaxed, Relaxed).is_err() {
        return;
    }
    if let Some(host) = cx.engine.host() {
        host.warn(&format!(
            "Possible SECURITY ATTACK detected. A client sends POST or Host: as HTTP does, which is how a web page \
             reaches servers through a browser. Connection from {} closed.",
            cx.session.client.addr
        ));
    }
}
