//! LATENCY GRAPH's picture: a column a sample, with its age below, written downwards.
//!
//! The height of a column is its share of the range between the lowest and the highest sample, in
//! twelve steps: four rows of three characters.

use engine::latency::Series;

const COLUMNS: usize = 80;
const ROWS: usize = 4;
/// The top of a column, by how much of its row it fills.
const TOPS: [char; 3] = ['_', 'o', '#'];

/// The heading and the graph, which goes on below when it is too wide.
pub(super) fn draw(event: &str, series: &Series, now_s: i64) -> String {
    let latencies = || series.samples.iter().map(|sample| sample.latency_ms);
    let (low, high) = (latencies().min().unwrap_or(0), latencies().max().unwrap_or(0));
    let mut out = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        series.max_ms,
        "-".repeat(COLUMNS)
    );
    let columns: Vec<(usize, String)> = series
        .samples
        .iter()
        .map(|sample| (height(sample.latency_ms, low, high), age(now_s - sample.at_s)))
        .collect();
    for (index, part) in columns.chunks(COLUMNS).enumerate() {
        if index > 0 {
            out.push('\n');
        }
        draw_part(&mut out, part);
    }
    out
}

/// A sample's height, from 0 to one less than the number of steps.
fn height(latency_ms: u64, low: u64, high: u64) -> usize {
    let steps = ROWS * TOPS.len();
    let share = (latency_ms - low) as usize * steps / ((high - low) as usize).max(1);
    share.min(steps - 1)
}

/// How long ago something was, in its largest unit.
fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn draw_part(out: &mut String, columns: &[(usize, String)]) {
    for row in (0..ROWS).rev() {
        out.extend(columns.iter().map(|&(height, _)| match height.checked_sub(row * TOPS.len()) {
            None => ' ',
            Some(rest) => TOPS.get(rest).copied().unwrap_or('|'),
        }));
        out.push('\n');
    }
    out.extend(columns.iter().map(|_| ' '));
    out.push('\n');
    let longest = columns.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
    for at in 0..longest {
        let letter = |label: &String| label.as_bytes().get(at).map_or(' ', |&b| char::from(b));
        out.extend(columns.iter().map(|(_, label)| letter(label)));
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::latency::Sample;

    fn series(samples: impl IntoIterator<Item = (i64, u64)>) -> Series {
        let samples =
            samples.into_iter().map(|(at_s, latency_ms)| Sample { at_s, latency_ms }).collect();
        Series { samples, max_ms: 1449, sum_ms: 0, count: 0 }
    }

    /// The picture the reference drew of the same samples.
    #[test]
    fn columns_have_heights_and_ages() {
        let drawn = draw("command", &series([(2, 10), (3, 50), (4, 23), (7, 1347), (8, 19)]), 9);
        let expected = format!(
            "command - high 1347 ms, low 10 ms (all time high 1449 ms)\n{}\n{}",
            "-".repeat(80),
            "   # \n   | \n   | \n___|_\n     \n76521\nsssss\n"
        );
        assert_eq!(drawn, expected);
    }

    #[test]
    fn equal_samples_are_all_low() {
        let drawn = draw("command", &series([(0, 7), (100, 7)]), 3700);
        assert!(drawn.ends_with("  \n  \n  \n__\n  \n11\nhh\n"), "{drawn}");
    }

    #[test]
    fn a_wide_graph_goes_on_below() {
        let drawn = draw("command", &series((0..100).map(|at_s| (at_s, at_s as u64))), 100);
        assert_eq!(drawn.lines().filter(|line| line.is_empty()).count(), 1);
        assert!(drawn.lines().all(|line| line.len() <= 80));
    }
}
