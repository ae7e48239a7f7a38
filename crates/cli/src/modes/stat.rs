//! `--stat`: a line of figures for each interval.

use crate::session::{Session, emit};
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

/// After how many lines the head is printed again.
const LINES_BETWEEN_HEADS: u64 = 20;

/// Prints until the program is ended.
pub fn run(session: &mut Session) -> ExitCode {
    crate::interrupt::install();
    let interval = session.options.interval.unwrap_or(Duration::from_secs(1));
    let mut before = None;
    for line in 0_u64.. {
        let text = session.ask(&["INFO"]).text_or_error();
        let info: HashMap<&str, &str> =
            text.lines().filter_map(|line| line.split_once(':')).collect();
        let figure = |name: &str| -> u64 {
            info.get(name).and_then(|value| value.parse().ok()).unwrap_or_default()
        };
        if line % LINES_BETWEEN_HEADS == 0 {
            emit(
                b"------- data ------ --------------------- load -------------------- - child -\n\
                  keys       mem      clients blocked requests            connections          \n",
            );
        }
        let keys: u64 = info
            .iter()
            .filter(|(name, _)| is_database(name))
            .filter_map(|(_, value)| {
                value.strip_prefix("keys=")?.split(',').next()?.parse::<u64>().ok()
            })
            .sum();
        let requests = figure("total_commands_processed");
        let since = before.map_or(0, |before| requests.saturating_sub(before));
        before = Some(requests);
        let child = match (
            figure("loading"),
            figure("rdb_bgsave_in_progress"),
            figure("aof_rewrite_in_progress"),
        ) {
            (1, _, _) => "LOAD",
            (_, 1, 1) => "SAVE+AOF",
            (_, 1, _) => "SAVE",
            (_, _, 1) => "AOF",
            _ => "",
        };
        let out = format!(
            "{keys:<11}{:<9}{:<8}{:<8}{:<20}{:<12}{child}\n",
            human(figure("used_memory")),
            figure("connected_clients"),
            figure("blocked_clients"),
            format!("{requests} (+{since})"),
            figure("total_connections_received"),
        );
        emit(out.as_bytes());
        std::thread::sleep(interval);
    }
    ExitCode::SUCCESS
}

fn is_database(name: &str) -> bool {
    name.strip_prefix("db").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Bytes with a unit: `11.37M`.
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 'K');
    for next in ['M', 'G', 'T'] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    format!("{value:.2}{unit}")
}
