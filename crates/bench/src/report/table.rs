//! What people read: an aligned table for each run, and what has to be said beside it.

use super::document::{Latency, curve, ms};
use crate::measure::cycles::Cycles;
use crate::measure::{Measured, Tally};
use crate::options::{Load, Output, Pacing, Target};
use std::fmt::Write;

/// A last column beside the others is at least so wide.
const SHORTEST_REMARK: usize = 20;

/// The one line of `-q`, as redis-benchmark writes it, and what went wrong.
pub fn line(measured: &Measured, precision: usize) -> String {
    let mut text = String::new();
    for tally in &measured.tallies {
        let rate = tally.requests() as f64 / measured.seconds.max(1e-9);
        let p50 = Latency::new(&tally.latencies).p50;
        let name = &tally.name;
        if let Some(refusal) = tally.refusal() {
            let _ = writeln!(text, "{name}: {refusal}");
            continue;
        }
        let _ = writeln!(text, "{name}: {rate:.2} requests per second, p50={p50:.precision$} msec");
    }
    text + &troubles(measured)
}

/// Columns with the first to the left and the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            if column == 0 {
                line += &(cell.clone() + &pad);
            } else {
                line += &format!("  {pad}{cell}");
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The same within so many columns: the last column is to the left and goes on in further lines, or
/// stands below its row where there is no room beside it.
pub fn fitted(rows: &[Vec<String>], columns: usize) -> String {
    let firsts: Vec<Vec<String>> =
        rows.iter().map(|row| row[..row.len().saturating_sub(1)].to_vec()).collect();
    let before = aligned(&firsts);
    let width = before.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let beside = columns.saturating_sub(width + 2);
    let is_beside = beside >= SHORTEST_REMARK;
    let (indent, rest) = if is_beside { (width + 2, beside) } else { (4, columns - 4) };
    let mut text = String::new();
    for (line, row) in before.lines().zip(rows) {
        let remark = row.last().map_or(String::new(), |remark| wrapped(remark, rest));
        let mut parts = remark.lines();
        let first = if is_beside { parts.next().unwrap_or_default() } else { "" };
        let pad = " ".repeat(width - line.chars().count());
        let _ = writeln!(text, "{}", format!("{line}{pad}  {first}").trim_end());
        for part in parts {
            let _ = writeln!(text, "{}{part}", " ".repeat(indent));
        }
    }
    text
}

/// Lines of at most so many characters, broken between words.
pub fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                *line = format!("{line} {word}");
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// A number with its thousands apart.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0
            && (digits.len() - index).is_multiple_of(3)
            && digits.as_bytes()[index - 1] != b'-'
        {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Bytes in a unit that fits.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 || unit == "GiB" {
            let digits = if unit == "B" { 0 } else { 1 };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    String::new()
}

/// Everything about a run.
pub fn table(target: &Target, load: &Load, measured: &Measured, output: &Output) -> String {
    let mut text = format!("\n{} on {}\n", measured.name, target.address);
    let _ = writeln!(
        text,
        "{} clients, pipeline {}, {} thread{}, {}, {:.2} s{}\n",
        load.clients,
        load.pipeline,
        load.threads,
        if load.threads == 1 { "" } else { "s" },
        match load.pacing {
            Pacing::Closed => "closed loop".to_owned(),
            Pacing::Limited(rate) => format!("at most {} requests/s", grouped(rate)),
            Pacing::Open(rate) => format!("open loop at {} requests/s", grouped(rate)),
        },
        measured.seconds,
        if measured.interrupted { " (interrupted)" } else { "" },
    );
    text += &figures(measured, output);
    text.push('\n');
    for tally in &measured.tallies {
        if let Some(refusal) = tally.refusal() {
            let _ = writeln!(text, "! {}: {refusal}", tally.name);
        }
    }
    if measured.refusal().is_some() {
        return text + &troubles(measured);
    }
    text += &costs(measured);
    text += &troubles(measured);
    if output.histogram && measured.requests() > 0 {
        text += &distribution(measured, output.precision);
    }
    text
}

fn figures(measured: &Measured, output: &Output) -> String {
    let reads = measured.tallies.iter().any(|tally| tally.reads);
    let mut head = vec!["ms".to_owned(), "requests".into(), "req/s".into(), "errors".into()];
    if reads {
        head.push("misses".into());
    }
    head.extend(["mean".to_owned(), "min".into()]);
    head.extend(output.percentiles.iter().map(|percentile| format!("p{percentile}")));
    head.push("max".into());
    let mut rows = vec![head];
    let mut row = |tally: &Tally, requests: u64| {
        let latency = Latency::new(&tally.latencies);
        let refused = tally.refusal().is_some();
        let rate = grouped(requests as f64 / measured.seconds.max(1e-9));
        let mut row = vec![
            tally.name.clone(),
            grouped(requests as f64),
            if refused { "-".into() } else { rate },
            grouped(tally.errors as f64),
        ];
        if reads {
            let known = tally.reads && !refused;
            row.push(if known { grouped(tally.misses as f64) } else { "-".into() });
        }
        if refused {
            row.resize(rows[0].len(), "-".into());
            rows.push(row);
            return;
        }
        let digits = output.precision;
        row.push(format!("{:.digits$}", latency.mean));
        row.push(format!("{:.digits$}", latency.min));
        for percentile in &output.percentiles {
            let value = ms(tally.latencies.value_at_quantile(percentile / 100.0));
            row.push(format!("{value:.digits$}"));
        }
        row.push(format!("{:.digits$}", latency.max));
        rows.push(row);
    };
    for tally in &measured.tallies {
        row(tally, tally.requests());
    }
    if measured.tallies.len() > 1 {
        row(&measured.total(), measured.requests());
    }
    aligned(&rows)
}

fn costs(measured: &Measured) -> String {
    let mut text = String::new();
    if let (Some(cost), Some(us)) = (&measured.server, measured.server_us()) {
        let _ = writeln!(
            text,
            "server     {us:.3} µs CPU/request, {:.2} cores, RSS {} (peak {}), from {}",
            cost.cpu_seconds / measured.seconds.max(1e-9),
            bytes(cost.rss_bytes),
            bytes(cost.rss_peak_bytes),
            cost.from,
        );
        let _ = match (&cost.cycles, measured.server_cycles()) {
            (Some(Cycles::Uncounted(why)), _) => writeln!(text, "           cycles: {why}"),
            (Some(Cycles::Counted { with_kernel, .. }), Some(cycles)) => {
                let part = if *with_kernel { "" } else { " in user space alone" };
                writeln!(text, "           {cycles:.0} cycles/request{part}")
            }
            _ => Ok(()),
        };
    }
    let _ = write!(
        text,
        "generator  {:.3} µs CPU/request, busiest thread {:.0} %",
        measured.own_us(),
        measured.own.busiest * 100.0
    );
    if let Some(late) = measured.own.late_p99_ns {
        let _ = write!(text, ", sent late by {:.3} ms (p99)", ms(late));
    }
    text.push('\n');
    let counts = &measured.counts;
    let megabytes = |count: u64| count as f64 / 1e6 / measured.seconds.max(1e-9);
    let _ = writeln!(
        text,
        "traffic    {:.1} MB/s sent, {:.1} MB/s received",
        megabytes(counts.bytes_out),
        megabytes(counts.bytes_in)
    );
    if counts.checked > 0 {
        let _ = writeln!(
            text,
            "verified   {} values, {} wrong",
            grouped(counts.checked as f64),
            counts.wrong
        );
    }
    text
}

/// What went wrong, and what makes the figures less than they seem.
pub fn troubles(measured: &Measured) -> String {
    let counts = &measured.counts;
    let mut text = String::new();
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            let _ = writeln!(text, "! {} {what}", grouped(count as f64));
        }
    };
    let refused = |error: &str| -> u64 {
        let with = |tally: &&Tally| tally.refusal().is_some_and(|refusal| refusal.error == error);
        measured.tallies.iter().filter(with).map(|tally| tally.errors).sum()
    };
    for (error, count) in &counts.error_texts {
        if *count <= refused(error) {
            // Said already, as the reason why there is no figure.
            continue;
        }
        say(*count, &format!("× {error}"));
    }
    say(counts.moved, "MOVED");
    say(counts.ask, "ASK");
    let why = counts.first_loss.as_deref().unwrap_or("");
    say(counts.lost_connections, &format!("connections lost, first: {why}"));
    say(counts.lost_requests, "requests lost with their connection");
    say(counts.reconnections, "reconnections");
    say(counts.unfinished, "requests unanswered at the end; the time they had waited is counted");
    let wrong = counts.first_wrong.as_deref().unwrap_or("");
    say(counts.wrong, &format!("values wrong, first: {wrong}"));
    if let Some(given_up) = &counts.given_up {
        let _ = writeln!(text, "! {given_up}");
    }
    if measured.generator_was_the_limit() {
        let busy = measured.own.busiest * 100.0;
        let _ = writeln!(
            text,
            "! The generator was the limit: a thread of it was busy {busy:.0} % of the time. \
             More --threads or another machine would measure more of the server."
        );
    }
    text
}

fn distribution(measured: &Measured, precision: usize) -> String {
    let total = measured.total();
    let mut rows = vec![vec!["percentile".to_owned(), "ms".into(), "requests above".into()]];
    let all = total.latencies.len();
    for (percentile, value) in curve(&total.latencies, 1) {
        let above = all - total.latencies.count_between(0, (value * 1e6) as u64).min(all);
        let digits = if percentile > 99.0 { 4 } else { 2 };
        rows.push(vec![
            format!("{percentile:.digits$}"),
            format!("{value:.precision$}"),
            grouped(above as f64),
        ]);
    }
    format!("\n{}", aligned(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(1_234_567.4), "1 234 567");
        assert_eq!(grouped(-1234.0), "-1 234");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3072.0 GiB");
    }

    #[test]
    fn a_last_column_goes_on_below() {
        let rows = [
            vec!["a".into(), "1".into(), "one two three four five six seven".into()],
            vec!["bcd".into(), "22".into(), String::new()],
        ];
        assert_eq!(
            fitted(&rows, 30),
            "a     1  one two three four\n         five six seven\nbcd  22\n"
        );
        assert_eq!(
            fitted(&rows, 20),
            "a     1\n    one two three\n    four five six\n    seven\nbcd  22\n"
        );
        assert_eq!(wrapped("one two  three", 7), "one two\nthree");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "1".into()], vec!["bcd".into(), "22".into()]];
        assert_eq!(aligned(&rows), "a     1\nbcd  22\n");
    }
}
