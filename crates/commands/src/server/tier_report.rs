//! The flash tier's figures: what INFO, MEMORY STATS and MEMORY DOCTOR say of it.

use super::info::line;
use super::memory_report::Memory;
use engine::Cx;
use keyspace::cold;

/// Values looked up before the hit ratio says anything.
const ENOUGH_LOOKUPS: u64 = 10_000;
/// Below this more memory is worth its price, in percent.
const LOW_HIT_PERCENT: f64 = 90.0;
/// A read that takes so long is slow for flash, in microseconds.
const SLOW_READ_US: u64 = 16_000;

/// The figures that tell how the tier does.
pub(crate) struct Tier {
    /// Values that are on flash alone, and all bytes there.
    pub(crate) values: u64,
    bytes: u64,
    /// Memory of what is not on the disk yet.
    buffer_bytes: u64,
    /// Bytes written for each byte that went there.
    pub(crate) write_amplification: f64,
    /// Keys that reading commands have found.
    lookups: u64,
    /// Of these, keys whose value was not in RAM.
    misses: u64,
    is_full: bool,
    writes_failing: u64,
    read_errors: u64,
    read_p99_us: u64,
}

impl Tier {
    /// The figures now, if there is a tier.
    pub(crate) fn now(cx: &Cx<'_>) -> Option<Tier> {
        let state = &cx.engine.tier;
        let figures = state.get()?.figures();
        Some(Tier {
            values: cold::entries() as u64,
            bytes: figures.live_bytes,
            buffer_bytes: figures.buffer_bytes,
            write_amplification: figures.disk_write_bytes as f64
                / figures.appended_bytes.max(1) as f64,
            lookups: cx.engine.thread_stats.iter().map(|thread| thread.hits.get()).sum(),
            misses: state.misses.get(),
            is_full: figures.is_full,
            writes_failing: figures.writes_failing,
            read_errors: figures.read_errors,
            read_p99_us: figures.read_p99_us,
        })
    }

    /// Values that were in RAM, of those that were looked up, in percent.
    pub(crate) fn hit_percent(&self) -> f64 {
        let hits = self.lookups.saturating_sub(self.misses);
        if self.lookups == 0 { 100.0 } else { hits as f64 * 100.0 / self.lookups as f64 }
    }

    /// What stands out, for MEMORY DOCTOR.
    pub(crate) fn findings(&self) -> Vec<&'static str> {
        let mut findings = Vec::new();
        if self.is_full {
            findings.push(
                "Full flash tier: values can't leave memory any more, so 'maxmemory-policy' decides. \
                 Raise 'tier-max-size', or make room on the disk of 'tier-dir'.",
            );
        }
        if self.writes_failing > 0 {
            findings.push(
                "Failing writes of the flash tier: its disk refuses them, and values stay in memory \
                 meanwhile. The kernel's log says what is wrong with the disk.",
            );
        }
        if self.read_errors > 0 {
            findings.push(
                "Lost values of the flash tier: some could not be read. The log names the hashes of \
                 their keys; SET or DEL repairs a key. The disk may be about to fail.",
            );
        }
        if self.lookups >= ENOUGH_LOOKUPS && self.hit_percent() < LOW_HIT_PERCENT {
            findings.push(
                "Low hit ratio of the flash tier: more than a tenth of the values that were asked \
                 for were not in memory ('tier_hit_percent' in INFO). A higher 'maxmemory' helps.",
            );
        }
        if self.read_p99_us > SLOW_READ_US {
            findings.push(
                "Slow flash: a hundredth of the tier's reads takes more than 16 milliseconds. \
                 'tier-dir' belongs on a local NVMe disk, apart from that of the append-only file.",
            );
        }
        findings
    }
}

/// Every figure that is a number, as INFO names it.
pub(crate) fn numbers(cx: &Cx<'_>, memory: &Memory) -> Vec<(&'static str, u64)> {
    let state = &cx.engine.tier;
    let (Some(tier), Some(figures)) = (&memory.tier, state.get().map(|tier| tier.figures())) else {
        return Vec::new();
    };
    vec![
        ("tier_full", u64::from(figures.is_full)),
        ("tier_values", tier.values),
        ("tier_value_bytes", tier.bytes),
        ("tier_copies", cold::copies() as u64),
        ("tier_ram_values", (memory.keys as u64).saturating_sub(tier.values)),
        ("tier_ram_bytes", memory.dataset() as u64),
        ("tier_segments", figures.segments),
        ("tier_segments_free", figures.segments_free),
        ("tier_segments_pinned", figures.segments_pinned),
        ("tier_segment_bytes", figures.segment_bytes),
        ("tier_buffer_bytes", tier.buffer_bytes),
        ("tier_waste_bytes", state.waste_bytes()),
        ("tier_demotions", state.demotions.get()),
        ("tier_demotions_without_write", state.demotions_without_write.get()),
        ("tier_demoted_bytes", state.demoted_bytes.get()),
        ("tier_promotions", state.promotions.get()),
        ("tier_reads_without_promotion", state.passed_reads.get()),
        ("tier_misses", state.misses.get()),
        ("tier_waits", state.waits.get()),
        ("tier_throttled_commands", state.throttled.get()),
        ("tier_reads", figures.reads),
        ("tier_reads_from_buffers", figures.reads_from_memory),
        ("tier_reads_in_flight", figures.reads_in_flight),
        ("tier_read_bytes", figures.read_bytes),
        ("tier_scanned_bytes", figures.scanned_bytes),
        ("tier_read_usec", figures.read_us),
        ("tier_read_usec_p50", figures.read_p50_us),
        ("tier_read_usec_p99", figures.read_p99_us),
        ("tier_read_usec_p999", figures.read_p999_us),
        ("tier_appended_values", figures.appended),
        ("tier_appended_bytes", figures.appended_bytes),
        ("tier_written_bytes", figures.disk_write_bytes),
        ("tier_rewritten_values", figures.rewritten),
        ("tier_rewritten_bytes", figures.rewritten_bytes),
        ("tier_segments_cleaned", figures.segments_cleaned),
        ("tier_read_errors", figures.read_errors),
        ("tier_checksum_errors", figures.checksum_errors),
        ("tier_write_errors", figures.write_errors),
        ("tier_writes_failing", figures.writes_failing),
    ]
}

/// INFO's section; nothing but that there is none without a tier.
pub(crate) fn section(cx: &Cx<'_>, out: &mut String) {
    let memory = Memory::now(cx);
    line(out, "tier_enabled", u8::from(memory.tier.is_some()));
    let numbers = numbers(cx, &memory);
    numbers.iter().for_each(|(name, value)| line(out, name, value));
    let Some(tier) = &memory.tier else { return };
    line(out, "tier_hit_percent", format!("{:.2}", tier.hit_percent()));
    line(out, "tier_write_amplification", format!("{:.2}", tier.write_amplification));
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Tier = Tier {
        values: 10,
        bytes: 10_000,
        buffer_bytes: 0,
        write_amplification: 1.0,
        lookups: 0,
        misses: 0,
        is_full: false,
        writes_failing: 0,
        read_errors: 0,
        read_p99_us: 256,
    };

    fn only_finding(tier: &Tier) -> &'static str {
        let findings = tier.findings();
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings[0].split(':').next().unwrap_or_default()
    }

    #[test]
    fn each_value_that_was_looked_up_counts() {
        assert_eq!(QUIET.hit_percent(), 100.0);
        assert_eq!(Tier { lookups: 200, misses: 50, ..QUIET }.hit_percent(), 75.0);
        // CONFIG RESETSTAT may come between the two.
        assert_eq!(Tier { lookups: 1, misses: 2, ..QUIET }.hit_percent(), 0.0);
    }

    #[test]
    fn findings_name_what_stands_out() {
        assert!(QUIET.findings().is_empty());
        assert_eq!(only_finding(&Tier { is_full: true, ..QUIET }), "Full flash tier");
        let failing = Tier { writes_failing: 1, ..QUIET };
        assert_eq!(only_finding(&failing), "Failing writes of the flash tier");
        assert_eq!(
            only_finding(&Tier { read_errors: 1, ..QUIET }),
            "Lost values of the flash tier"
        );
        assert_eq!(only_finding(&Tier { read_p99_us: 32_768, ..QUIET }), "Slow flash");
        let few = Tier { lookups: 9999, misses: 9999, ..QUIET };
        assert!(few.findings().is_empty(), "too few to tell");
        let low = Tier { lookups: 10_000, misses: 1001, ..QUIET };
        assert_eq!(only_finding(&low), "Low hit ratio of the flash tier");
        assert!(Tier { misses: 999, ..low }.findings().is_empty());
    }
}
