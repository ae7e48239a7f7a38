//! CSV: redis-benchmark's columns first, so that scripts keep working, and more to their right.

use super::document::Latency;
use crate::measure::{Measured, Tally};

/// The first line.
pub fn head() -> String {
    "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
     \"p99_latency_ms\",\"max_latency_ms\",\"p99.9_latency_ms\",\"p99.99_latency_ms\",\"requests\",\
     \"errors\",\"misses\",\"server_cpu_us\",\"server_rss_bytes\",\"refused\"\n"
        .into()
}

/// A run's lines: one for each operation, and one for all if there are several.
pub fn rows(measured: &Measured, precision: usize) -> String {
    let mut text = String::new();
    for tally in &measured.tallies {
        text += &row(measured, tally, tally.requests(), precision);
    }
    if measured.tallies.len() > 1 {
        let mut total = measured.total();
        total.name.clone_from(&measured.name);
        text += &row(measured, &total, measured.requests(), precision);
    }
    text
}

fn row(measured: &Measured, tally: &Tally, requests: u64, precision: usize) -> String {
    let latency = Latency::new(&tally.latencies);
    let refusal = tally.refusal();
    // Without a figure there is an empty field, so that no script takes a refusal for one.
    let figure = |text: String| if refusal.is_some() { String::new() } else { text };
    let mut fields = vec![
        tally.name.replace('"', "\"\""),
        figure(format!("{:.2}", requests as f64 / measured.seconds.max(1e-9))),
    ];
    for value in [
        latency.mean,
        latency.min,
        latency.p50,
        latency.p95,
        latency.p99,
        latency.max,
        latency.p999,
        latency.p9999,
    ] {
        fields.push(figure(format!("{value:.precision$}")));
    }
    fields.push(requests.to_string());
    fields.push(tally.errors.to_string());
    fields.push(if tally.reads { tally.misses.to_string() } else { String::new() });
    fields.push(figure(measured.server_us().map_or_else(String::new, |us| format!("{us:.3}"))));
    let rss = measured.server.as_ref().map(|cost| cost.rss_bytes.to_string());
    fields.push(rss.unwrap_or_default());
    let refusal = refusal.map(|refusal| refusal.to_string().replace('"', "\"\""));
    fields.push(refusal.unwrap_or_default());
    format!("\"{}\"\n", fields.join("\",\""))
}
