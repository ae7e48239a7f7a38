//! Histograms in the formats of HdrHistogram's own tools: the percentile text that its plotter
//! reads, and the log format (V2, compressed).

use crate::measure::Measured;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

/// The plotter's unit is the millisecond.
const NS_PER_MS: f64 = 1e6;

/// Writes `PREFIX_NAME.txt` and `PREFIX_NAME.hlog` for each operation.
pub fn write(prefix: &str, measured: &Measured) -> io::Result<()> {
    for tally in &measured.tallies {
        let named = if measured.tallies.len() > 1 {
            format!("{} {}", measured.name, tally.name)
        } else {
            measured.name.clone()
        };
        let name: String =
            named.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let latencies = &tally.latencies;
        let mut text = File::create(format!("{prefix}_{name}.txt"))?;
        writeln!(
            text,
            "{:>12} {:>14} {:>10} {:>14}\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        )?;
        let mut count = 0;
        for step in latencies.iter_quantiles(5) {
            count += step.count_since_last_iteration();
            let quantile = step.quantile_iterated_to();
            let value = step.value_iterated_to() as f64 / NS_PER_MS;
            write!(text, "{value:12.3} {quantile:2.12} {count:10}")?;
            if quantile < 1.0 {
                writeln!(text, " {:14.2}", 1.0 / (1.0 - quantile))?;
            } else {
                writeln!(text)?;
            }
        }
        let (mean, deviation) = (latencies.mean() / NS_PER_MS, latencies.stdev() / NS_PER_MS);
        writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]")?;
        writeln!(
            text,
            "#[Max     = {:12.3}, Total count    = {:12}]",
            latencies.max() as f64 / NS_PER_MS,
            latencies.len()
        )?;
        let mut log = File::create(format!("{prefix}_{name}.hlog"))?;
        let mut serializer = V2DeflateSerializer::new();
        let mut writer = IntervalLogWriterBuilder::new()
            .add_comment("latencies in nanoseconds")
            .with_max_value_divisor(NS_PER_MS)
            .begin_log_with(&mut log, &mut serializer)?;
        writer
            .write_histogram(
                latencies,
                Duration::ZERO,
                Duration::from_secs_f64(measured.seconds),
                None,
            )
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
    }
    Ok(())
}
