//! The names under which a port answers requests without a password.

use axum::http::{HeaderMap, header};

/// The path of the metrics.
pub const METRICS: &str = "/metrics";

/// The path of the metrics of a node's copies.
pub const COPY_METRICS: &str = "/metrics/copies";

/// Returns whether a request without a password is answered under the name in its Host header. A
/// page elsewhere can have a name of its own lead to this port, but neither an address nor a name
/// of this machine. Metrics are answered under a name without a dot, too, as containers of one
/// network have: no page of the internet has such a name, and a page of the same network would
/// learn figures only. `names` are further ones that the operator vouches for, with blanks between
/// them; one that begins with a dot stands for all names that end so.
pub fn is_trusted_name(headers: &HeaderMap, path: &str, names: &str) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    if [METRICS, COPY_METRICS].contains(&path) && !name.is_empty() && !name.contains('.') {
        return true;
    }
    let name = name.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok()
        || names.split_whitespace().any(|given| is_named(name, given))
}

/// Returns whether `name` is the given one, or below it if that begins with a dot.
fn is_named(name: &str, given: &str) -> bool {
    let Some(start) = name.len().checked_sub(given.len()) else { return false };
    let is_whole = start == 0 || given.starts_with('.');
    is_whole && name.is_char_boundary(start) && name[start..].eq_ignore_ascii_case(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_host(host: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a value"));
        headers
    }

    #[test]
    fn names_that_a_page_elsewhere_can_have_are_not_trusted() {
        let is_trusted = |host: &str, path: &str| is_trusted_name(&of_host(host), path, "");
        for path in ["/", "/api/v1/now", METRICS] {
            for host in ["localhost", "localhost:80", "127.0.0.1:80", "[::1]:80", "10.0.0.1"] {
                assert!(is_trusted(host, path), "{host}");
            }
            for host in ["a.example", "localhost.example", "127.0.0.1.example:80", ""] {
                assert!(!is_trusted(host, path), "{host}");
            }
        }
        for host in ["dunlin:9121", "dunlin", "my_server:80"] {
            assert!(is_trusted(host, METRICS) && is_trusted(host, COPY_METRICS), "{host}");
            assert!(!is_trusted(host, "/api/v1/now"), "{host}");
        }
        for host in ["ai.", ":80"] {
            assert!(!is_trusted(host, METRICS), "{host}");
        }
    }

    #[test]
    fn an_operator_vouches_for_names() {
        let is_trusted =
            |host: &str| is_trusted_name(&of_host(host), "/api/v1/now", "db.example  .svc.local");
        for host in ["db.example", "DB.example:80", "db.example.", "a.svc.local", "a.b.SVC.local:9"]
        {
            assert!(is_trusted(host), "{host}");
        }
        for host in [
            "a.db.example",
            "xdb.example",
            "example",
            "svc.local",
            "asvc.local",
            "db.example.org",
            "",
        ] {
            assert!(!is_trusted(host), "{host}");
        }
    }
}
