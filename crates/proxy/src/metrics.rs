//! Figures for Prometheus, and for people.

use crate::pool::Shared;
use crate::reload::Service;
use crate::stats::{Count, PoolStats, ServerStats, TIMES};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use structs::sync::lock;

/// A pool's figures, of all threads together.
struct PoolView {
    shared: Arc<Shared>,
    threads: Vec<Arc<PoolStats>>,
    /// The servers' names, and whether each is taken out.
    servers: Vec<(String, bool)>,
}

fn views(service: &Service) -> Vec<PoolView> {
    let view = |shared: Arc<Shared>| {
        let threads = lock(&shared.stats).clone();
        let topology = shared.topology();
        let is_out = |at: usize| topology.ejected.get(at).is_some_and(Option::is_some);
        let named = |(at, address)| (shared.server_name(at, address), is_out(at));
        let servers = topology.servers.iter().enumerate().map(named).collect();
        PoolView { shared, threads, servers }
    };
    service.common.pools().into_iter().map(view).filter(|view| !view.threads.is_empty()).collect()
}

impl PoolView {
    fn sum(&self, pick: fn(&PoolStats) -> &Count) -> u64 {
        self.threads.iter().map(|stats| pick(stats).get()).fold(0, u64::wrapping_add)
    }

    fn of(&self, server: usize, pick: impl Fn(&ServerStats) -> u64) -> u64 {
        let one = |stats: &Arc<PoolStats>| pick(&stats.servers[server % stats.servers.len()]);
        self.threads.iter().map(one).fold(0, u64::wrapping_add)
    }

    fn waiting(&self, server: usize) -> u64 {
        let ended = self.of(server, |s| s.responses.get() + s.lost.get());
        self.of(server, |s| s.requests.get()).saturating_sub(ended)
    }

    /// The keys that were sampled most often.
    fn hot(&self) -> Vec<(Vec<u8>, u64)> {
        let mut counts: HashMap<Vec<u8>, u64> = HashMap::new();
        for stats in &self.threads {
            for (key, count) in lock(&stats.hot).counts() {
                *counts.entry(key.clone()).or_default() += count;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().filter(|known| known.1 > 1).collect();
        counts.sort_by_key(|known| std::cmp::Reverse(known.1));
        counts.truncate(10);
        counts
    }
}

/// A label's value.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

type OfPool = (&'static str, &'static str, &'static str, fn(&PoolView) -> u64);
type OfServer = (&'static str, &'static str, &'static str, fn(&PoolView, usize) -> u64);

/// Name, type, help.
const OF_POOLS: [OfPool; 9] = [
    ("clients", "gauge", "Connected clients.", |v| v.sum(|s| &s.client_connections)),
    ("clients_accepted_total", "counter", "Clients that have connected.", |v| {
        v.sum(|s| &s.accepted)
    }),
    ("client_errors_total", "counter", "Clients whose connection broke.", |v| {
        v.sum(|s| &s.client_err)
    }),
    ("forward_errors_total", "counter", "Failures of servers.", |v| v.sum(|s| &s.forward_error)),
    ("fragments_total", "counter", "Parts of requests that were split.", |v| {
        v.sum(|s| &s.fragments)
    }),
    ("ejections_total", "counter", "Servers taken out.", |v| v.sum(|s| &s.server_ejects)),
    ("exclusive_connections", "gauge", "Connections that one client has for itself.", |v| {
        v.shared.exclusive.load(SeqCst) as u64
    }),
    ("switches_total", "counter", "Changes of the master.", |v| v.shared.switches.load(SeqCst)),
    ("servers", "gauge", "Servers.", |v| v.servers.len() as u64),
];

const OF_SERVERS: [OfServer; 11] = [
    ("requests_total", "counter", "Requests.", |v, at| v.of(at, |s| s.requests.get())),
    ("responses_total", "counter", "Replies.", |v, at| v.of(at, |s| s.responses.get())),
    ("request_bytes_total", "counter", "Bytes of requests.", |v, at| {
        v.of(at, |s| s.request_bytes.get())
    }),
    ("response_bytes_total", "counter", "Bytes of replies.", |v, at| {
        v.of(at, |s| s.response_bytes.get())
    }),
    ("large_responses_total", "counter", "Replies of more than 64 KiB.", |v, at| {
        v.of(at, |s| s.large_responses.get())
    }),
    ("server_errors_total", "counter", "Connections that broke.", |v, at| {
        v.of(at, |s| s.server_err.get())
    }),
    ("server_closed_total", "counter", "Connections that the server closed.", |v, at| {
        v.of(at, |s| s.server_eof.get())
    }),
    ("timeouts_total", "counter", "Requests or connections that took too long.", |v, at| {
        v.of(at, |s| s.server_timedout.get())
    }),
    ("connections", "gauge", "Connections.", |v, at| v.of(at, |s| s.server_connections.get())),
    ("queue", "gauge", "Requests without a reply.", PoolView::waiting),
    ("ejected", "gauge", "1 while the server is taken out.", |v, at| u64::from(v.servers[at].1)),
];

/// Everything, for Prometheus.
pub fn exposition(service: &Service) -> String {
    let views = views(service);
    let mut out = String::new();
    let uptime = service.started.elapsed().as_secs();
    let _ = write!(
        out,
        "# HELP dunlin_proxy_info The version.\n# TYPE dunlin_proxy_info gauge\n\
         dunlin_proxy_info{{version=\"{}\"}} 1\n\
         # HELP dunlin_proxy_uptime_seconds Seconds since the start.\n\
         # TYPE dunlin_proxy_uptime_seconds gauge\ndunlin_proxy_uptime_seconds {uptime}\n",
        env!("CARGO_PKG_VERSION"),
    );
    for (name, kind, help, figure) in OF_POOLS {
        let name = format!("dunlin_proxy_{name}");
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for view in &views {
            let pool = label(&view.shared.config.name);
            let _ = writeln!(out, "{name}{{pool=\"{pool}\"}} {}", figure(view));
        }
    }
    for (name, kind, help, figure) in OF_SERVERS {
        let name = format!("dunlin_proxy_{name}");
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for view in &views {
            for at in 0..view.servers.len() {
                let _ = writeln!(out, "{name}{{{}}} {}", labels(view, at), figure(view, at));
            }
        }
    }
    times(&mut out, &views);
    out
}

fn labels(view: &PoolView, at: usize) -> String {
    let (pool, server) = (label(&view.shared.config.name), label(&view.servers[at].0));
    format!("pool=\"{pool}\",server=\"{server}\"")
}

/// How long replies took, as a histogram of each server.
fn times(out: &mut String, views: &[PoolView]) {
    let name = "dunlin_proxy_response_seconds";
    let _ = write!(
        out,
        "# HELP {name} From a request's departure to its reply.\n# TYPE {name} histogram\n"
    );
    for view in views {
        for at in 0..view.servers.len() {
            let labels = labels(view, at);
            let mut count = 0;
            for class in 0..=TIMES.len() {
                count += view.of(at, |s| s.times.counts[class].get());
                let end = match TIMES.get(class) {
                    Some(micros) => (*micros as f64 / 1e6).to_string(),
                    None => "+Inf".to_owned(),
                };
                let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{end}\"}} {count}");
            }
            let sum = view.of(at, |s| s.times.sum.get()) as f64 / 1e6;
            let _ = write!(out, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}\n");
        }
    }
}

/// A text that is safe within HTML.
fn html(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { '.' } else { c }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What there is, for people. The browser asks again every other second.
pub fn page(service: &Service) -> String {
    let mut out = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>dunlin proxy</title>\
         <h1>dunlin proxy</h1>",
    );
    let _ = write!(out, "<p>Up for {} s.</p>", service.started.elapsed().as_secs());
    for view in views(service) {
        let _ = write!(
            out,
            "<h2>Pool {}</h2><p>{} clients, {} exclusive connections, {} failures of servers, {} \
             switches.</p><table border=\"1\"><tr><th>server<th>state<th>connections<th>requests\
             <th>queue<th>bytes out<th>bytes in<th>large replies<th>timeouts<th>errors",
            html(&view.shared.config.name),
            view.sum(|s| &s.client_connections),
            view.shared.exclusive.load(SeqCst),
            view.sum(|s| &s.forward_error),
            view.shared.switches.load(SeqCst),
        );
        for (at, (name, is_out)) in view.servers.iter().enumerate() {
            let _ = write!(out, "<tr><td>{}<td>", html(name));
            let failures = view.shared.failures[at].load(SeqCst);
            out.push_str(match (is_out, failures) {
                (true, _) => "ejected",
                (false, 0) => "ok",
                _ => "failing",
            });
            let figures = [
                view.of(at, |s| s.server_connections.get()),
                view.of(at, |s| s.requests.get()),
                view.waiting(at),
                view.of(at, |s| s.request_bytes.get()),
                view.of(at, |s| s.response_bytes.get()),
                view.of(at, |s| s.large_responses.get()),
                view.of(at, |s| s.server_timedout.get()),
                view.of(at, |s| s.server_err.get()),
            ];
            for figure in figures {
                let _ = write!(out, "<td>{figure}");
            }
        }
        out.push_str("</table>");
        let hot = view.hot();
        if !hot.is_empty() {
            out.push_str("<p>Keys asked for most (of 256 requests one is looked at):</p><ol>");
            for (key, count) in hot {
                let key = String::from_utf8_lossy(&key).into_owned();
                let _ = write!(out, "<li>{} ({count})", html(&key));
            }
            out.push_str("</ol>");
        }
    }
    out.push_str("</html>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(html("<b>&\"\u{1b}"), "&lt;b&gt;&amp;&quot;.");
        assert_eq!(label("a\"b\\c\n"), "a\\\"b\\\\c\\n");
    }
}
