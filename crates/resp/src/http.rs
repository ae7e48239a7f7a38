//! Recognises requests of HTTP. A web page can make its reader's browser send such a request to a
//! server behind a firewall, with commands in its body. None of them may run, so the connection is
//! closed at the first line that only HTTP has: `POST …`, or a header `Host: …`.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

/// Least number of seconds between two log lines.
const LOG_INTERVAL_S: i64 = 60;

/// Returns whether a request whose name is no command comes from HTTP.
pub fn is_http(name: &[u8]) -> bool {
    let header = b"host:";
    let starts_header =
        name.get(..header.len()).is_some_and(|start| start.eq_ignore_ascii_case(header));
    starts_header || name.eq_ignore_ascii_case(b"post")
}

/// Remembers when connections that were closed for this were last logged.
#[derive(Debug, Default)]
pub struct HttpLog(AtomicI64);

impl HttpLog {
    /// Returns the line for the log about a connection from `peer`, closed at a wall clock's time in
    /// seconds. Returns one for the first case of each minute.
    #[cold]
    pub fn line(&self, now_s: i64, peer: &str) -> Option<String> {
        let last_s = self.0.load(Relaxed);
        let is_due = last_s == 0 || (now_s - last_s).abs() > LOG_INTERVAL_S;
        if !is_due || self.0.compare_exchange(last_s, now_s, Relaxed, Relaxed).is_err() {
            return None;
        }
        Some(format!(
            "Possible SECURITY ATTACK detected. A client sends POST or Host: as HTTP does, which is how a web page \
             reaches servers through a browser. Connection from {peer} closed."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_http_are_known() {
        for name in ["POST", "post", "Host:", "HOST:8080", "host:a"] {
            assert!(is_http(name.as_bytes()), "{name}");
        }
        for name in ["GET", "POSTS", "Host", "hos", ""] {
            assert!(!is_http(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn one_line_a_minute_is_logged() {
        let log = HttpLog::default();
        assert!(log.line(1000, "a").is_some_and(|line| line.contains("Connection from a closed")));
        assert_eq!(log.line(1030, "a"), None);
        assert!(log.line(1061, "a").is_some());
    }
}
