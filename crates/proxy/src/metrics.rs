//! Figures for Prometheus, and for people.

use crate::reload::Service;
use forward::pool::{Place, Shared};
use forward::stats::{Count, PoolStats, ServerStats, TIMES};
use metrics::text::{Exposition, Kind, Label};
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
        let named =
            |(at, place): (usize, &Place)| (shared.server_name(at, &place.address), is_out(at));
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
        let one = |stats: &Arc<PoolStats>| pick(stats.of(server));
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

type OfPool = (&'static str, Kind, &'static str, fn(&PoolView) -> u64);
type OfServer = (&'static str, Kind, &'static str, fn(&PoolView, usize) -> u64);

/// Name, type, help.
const OF_POOLS: [OfPool; 9] = [
    ("clients", Kind::Gauge, "Connected clients.", |v| v.sum(|s| &s.client_connections)),
    ("clients_accepted_total", Kind::Counter, "Clients that have connected.", |v| {
        v.sum(|s| &s.accepted)
    }),
    ("client_errors_total", Kind::Counter, "Clients whose connection broke.", |v| {
        v.sum(|s| &s.client_err)
    }),
    ("forward_errors_total", Kind::Counter, "Failures of servers.", |v| {
        v.sum(|s| &s.forward_error)
    }),
    ("fragments_total", Kind::Counter, "Parts of requests that were split.", |v| {
        v.sum(|s| &s.fragments)
    }),
    ("ejections_total", Kind::Counter, "Servers taken out.", |v| v.sum(|s| &s.server_ejects)),
    ("exclusive_connections", Kind::Gauge, "Connections that one client has for itself.", |v| {
        v.shared.exclusive.load(SeqCst) as u64
    }),
    ("switches_total", Kind::Counter, "Changes of the master.", |v| v.shared.switches.load(SeqCst)),
    ("servers", Kind::Gauge, "Servers.", |v| v.servers.len() as u64),
];

const OF_SERVERS: [OfServer; 13] = [
    ("requests_total", Kind::Counter, "Requests.", |v, at| v.of(at, |s| s.requests.get())),
    ("responses_total", Kind::Counter, "Replies.", |v, at| v.of(at, |s| s.responses.get())),
    ("request_bytes_total", Kind::Counter, "Bytes of requests.", |v, at| {
        v.of(at, |s| s.request_bytes.get())
    }),
    ("response_bytes_total", Kind::Counter, "Bytes of replies.", |v, at| {
        v.of(at, |s| s.response_bytes.get())
    }),
    ("large_responses_total", Kind::Counter, "Replies of more than 64 KiB.", |v, at| {
        v.of(at, |s| s.large_responses.get())
    }),
    ("server_errors_total", Kind::Counter, "Connections that broke.", |v, at| {
        v.of(at, |s| s.server_err.get())
    }),
    ("server_closed_total", Kind::Counter, "Connections that the server closed.", |v, at| {
        v.of(at, |s| s.server_eof.get())
    }),
    ("timeouts_total", Kind::Counter, "Requests or connections that took too long.", |v, at| {
        v.of(at, |s| s.server_timedout.get())
    }),
    ("connections", Kind::Gauge, "Connections.", |v, at| v.of(at, |s| s.server_connections.get())),
    ("queue", Kind::Gauge, "Requests without a reply.", PoolView::waiting),
    ("queue_bytes", Kind::Gauge, "Bytes of requests without a reply.", |v, at| {
        v.of(at, |s| s.queue_bytes.get())
    }),
    ("refused_total", Kind::Counter, "Requests refused because the queue was full.", |v, at| {
        v.of(at, |s| s.refused.get())
    }),
    ("ejected", Kind::Gauge, "1 while the server is taken out.", |v, at| {
        u64::from(v.servers[at].1)
    }),
];

/// Everything, for Prometheus.
pub fn exposition(service: &Service) -> String {
    let views = views(service);
    let mut out = Exposition::default();
    out.family("dunlin_proxy_info", Kind::Gauge, "The version.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let uptime = service.started.elapsed().as_secs() as f64;
    out.single("dunlin_proxy_uptime_seconds", Kind::Gauge, "Seconds since the start.", uptime);
    for (name, kind, help, figure) in OF_POOLS {
        let name = format!("dunlin_proxy_{name}");
        let mut family = out.family(&name, kind, help);
        for view in &views {
            family.sample(&[("pool", &view.shared.config.name)], figure(view) as f64);
        }
    }
    for (name, kind, help, figure) in OF_SERVERS {
        let name = format!("dunlin_proxy_{name}");
        let mut family = out.family(&name, kind, help);
        for view in &views {
            for at in 0..view.servers.len() {
                family.sample(&labels(view, at), figure(view, at) as f64);
            }
        }
    }
    times(&mut out, &views);
    out.into_text()
}

fn labels(view: &PoolView, at: usize) -> [Label<'_>; 2] {
    [("pool", &view.shared.config.name), ("server", &view.servers[at].0)]
}

/// How long replies took, as a histogram of each server.
fn times(out: &mut Exposition, views: &[PoolView]) {
    let help = "From a request's departure to its reply.";
    let mut family = out.family("dunlin_proxy_response_seconds", Kind::Histogram, help);
    for view in views {
        for at in 0..view.servers.len() {
            let [pool, server] = labels(view, at);
            let mut count = 0;
            for class in 0..=TIMES.len() {
                count += view.of(at, |s| s.times.counts[class].get());
                let end = match TIMES.get(class) {
                    Some(micros) => (*micros as f64 / 1e6).to_string(),
                    None => "+Inf".to_owned(),
                };
                family.suffixed("_bucket", &[pool, server, ("le", &end)], count as f64);
            }
            let sum = view.of(at, |s| s.times.sum.get()) as f64 / 1e6;
            family.suffixed("_sum", &[pool, server], sum);
            family.suffixed("_count", &[pool, server], count as f64);
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
    }
}
