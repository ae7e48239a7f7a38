//! LATENCY DOCTOR's report: the figures of each kind of event, and what may help.

use config::Config;
use engine::latency::{Series, Slow};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What may help, in the order it is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Advice {
    EnableSlowlog,
    LowerSlowlogThreshold,
    ReadSlowlog,
    GiveMoreCpu,
    SplitBigKeys,
    SpreadExpiry,
    AvoidMassEviction,
}

/// The report on these events.
pub(super) fn report(config: &Config, events: &[(Slow, Series)], now_s: i64) -> String {
    let threshold_ms = config.latency_monitor_threshold();
    if events.is_empty() && threshold_ms == 0 {
        return "The latency monitor is off, so there is nothing to report. \"CONFIG SET \
                latency-monitor-threshold <milliseconds>\" turns it on.\n"
            .to_owned();
    }
    if events.is_empty() {
        return "The latency monitor has seen no spike so far.\n".to_owned();
    }
    let mut out = "Latency spikes have been seen in this server.\n\n".to_owned();
    let mut advice = BTreeSet::new();
    for (number, (event, series)) in (1..).zip(events) {
        let figures = describe(series, now_s);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{number}. {}: {figures}", event.name());
        advise(*event, config, &mut advice);
    }
    out.push_str("\nWhat may help:\n\n");
    for advice in advice {
        let _ = writeln!(out, "- {}", text(advice, threshold_ms));
    }
    out
}

fn describe(series: &Series, now_s: i64) -> String {
    let samples = series.samples.len().max(1) as u64;
    let average = series.samples.iter().map(|s| s.latency_ms).sum::<u64>() / samples;
    let deviation =
        series.samples.iter().map(|s| s.latency_ms.abs_diff(average)).sum::<u64>() / samples;
    let oldest = series.samples.front().map_or(now_s, |sample| sample.at_s);
    let period_s = (now_s - oldest).max(1) as f64 / samples as f64;
    format!(
        "{samples} latency spikes (average {average}ms, mean deviation {deviation}ms, period \
         {period_s:.2} sec). Worst all time event {}ms.",
        series.max_ms
    )
}

fn advise(event: Slow, config: &Config, advice: &mut BTreeSet<Advice>) {
    match event {
        Slow::Command | Slow::CommandUnblocking => {
            let logged_from_us = config.commandlog_execution_slower_than();
            if logged_from_us < 0 || config.commandlog_slow_execution_max_len() == 0 {
                advice.insert(Advice::EnableSlowlog);
            } else if logged_from_us / 1000 > config.latency_monitor_threshold() as i64 {
                advice.insert(Advice::LowerSlowlogThreshold);
            }
            advice.extend([Advice::ReadSlowlog, Advice::SplitBigKeys]);
        }
        Slow::FastCommand => advice.extend([Advice::GiveMoreCpu]),
        Slow::ExpireCycle | Slow::ExpireDel => {
            advice.extend([Advice::SpreadExpiry, Advice::SplitBigKeys]);
        }
        Slow::EvictionDel => advice.extend([Advice::SplitBigKeys]),
        Slow::EvictionCycle => advice.extend([Advice::AvoidMassEviction]),
    }
}

fn text(advice: Advice, threshold_ms: u64) -> String {
    let threshold_us = threshold_ms.saturating_mul(1000);
    match advice {
        Advice::EnableSlowlog => format!(
            "Slow commands are not logged. 'CONFIG SET slowlog-log-slower-than {threshold_us}' \
             logs those that the latency monitor counts."
        ),
        Advice::LowerSlowlogThreshold => format!(
            "The slow log misses commands that the latency monitor counts. 'CONFIG SET \
             slowlog-log-slower-than {threshold_us}' gives both the same threshold."
        ),
        Advice::ReadSlowlog => "SLOWLOG GET shows which commands were slow.".to_owned(),
        Advice::GiveMoreCpu => "Commands that never take long did: the server's threads had to \
             wait for a processor. Check the machine's load, its neighbours if it is virtual, the \
             CPU quota of a container, and that `io-threads` is not more than its processors."
            .to_owned(),
        Advice::SplitBigKeys => "Commands over large keys take long, whether they read, delete, \
             expire or evict them: split such keys into smaller ones (MEMORY USAGE tells sizes)."
            .to_owned(),
        Advice::SpreadExpiry => "Many keys expire at the same time: spread their times, or lower \
             `active-expire-effort`."
            .to_owned(),
        Advice::AvoidMassEviction => "One command had to evict many keys: raise `maxmemory`, or \
             lower it in small steps, and avoid sudden large writes."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::latency::Sample;

    #[test]
    fn each_event_has_its_figures_and_advice() {
        let samples = [(10, 20), (11, 40)]
            .into_iter()
            .map(|(at_s, latency_ms)| Sample { at_s, latency_ms })
            .collect();
        let series = Series { samples, max_ms: 70, sum_ms: 130, count: 3 };
        let report = report(&Config::new(), &[(Slow::FastCommand, series)], 14);
        let figures = "1. fast-command: 2 latency spikes (average 30ms, mean deviation 10ms, \
                       period 2.00 sec). Worst all time event 70ms.\n";
        assert!(report.contains(figures), "{report}");
        assert!(report.contains("had to wait for a processor"), "{report}");
    }

    #[test]
    fn the_monitor_may_be_off() {
        assert!(report(&Config::new(), &[], 0).contains("is off"));
    }
}
