//! `ts-compaction-policy`: the rules of time series that requests create.
//!
//! `aggregator:bucket:retention[:align]`, several with semicolons between them. A duration is a
//! number and a unit: `m` milliseconds, `s`, `M` minutes, `h`, `d`.

/// The names of aggregators, in lower case.
pub const AGGREGATORS: [&str; 15] = [
    "avg", "sum", "min", "max", "range", "count", "first", "last", "std.p", "std.s", "var.p",
    "var.s", "twa", "countnan", "countall",
];

/// A rule of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionRule {
    /// The name of the aggregator, in lower case.
    pub aggregator: &'static str,
    /// Milliseconds of a bucket, more than 0.
    pub bucket: u64,
    /// Milliseconds that the compacted series keeps samples; 0 is for good.
    pub retention: u64,
    /// A time at which a bucket begins.
    pub align: u64,
}

/// Reads a policy. Returns nothing if it is none.
pub fn parse_compaction(text: &[u8]) -> Option<Vec<CompactionRule>> {
    let text = std::str::from_utf8(text).ok()?;
    let rules = text.split(';').filter(|rule| !rule.is_empty());
    rules.map(rule).collect()
}

fn rule(text: &str) -> Option<CompactionRule> {
    let fields: Vec<&str> = text.split(':').collect();
    let (&[aggregator, bucket, retention], rest) = fields.split_first_chunk()?;
    let align = match rest {
        [] => 0,
        [align] => duration(align)?,
        _ => return None,
    };
    let is_it = |name: &&&str| name.eq_ignore_ascii_case(aggregator);
    Some(CompactionRule {
        aggregator: AGGREGATORS.iter().find(is_it)?,
        bucket: duration(bucket).filter(|&bucket| bucket > 0)?,
        retention: duration(retention)?,
        align,
    })
}

/// Returns a duration in milliseconds.
fn duration(text: &str) -> Option<u64> {
    let digits = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit_ms = match unit {
        "m" => 1,
        "s" => 1000,
        "M" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        // For good.
        "" if number == 0 => 1,
        _ => return None,
    };
    number.checked_mul(unit_ms).filter(|&ms| i64::try_from(ms).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        let rule = |aggregator, bucket, retention, align| CompactionRule {
            aggregator,
            bucket,
            retention,
            align,
        };
        assert_eq!(parse_compaction(b""), Some(vec![]));
        assert_eq!(
            parse_compaction(b"MAX:1M:1h;avg:2h:10d:10m;std.p:5s:0;"),
            Some(vec![
                rule("max", 60_000, 3_600_000, 0),
                rule("avg", 7_200_000, 864_000_000, 10),
                rule("std.p", 5000, 0, 0),
            ])
        );
        for text in ["max", "max:1M", "top:1M:1h", "max:0s:1h", "max:1M:1h:1s:1", "max:1:1h"] {
            assert_eq!(parse_compaction(text.as_bytes()), None, "{text}");
        }
        for text in ["max:-1s:1h", "max:99999999999999999d:1h", "max:M:1h", "max:1M:1y"] {
            assert_eq!(parse_compaction(text.as_bytes()), None, "{text}");
        }
    }
}
