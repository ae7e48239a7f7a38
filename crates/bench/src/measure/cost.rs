//! What a run costs the server: CPU time and resident memory.
//!
//! From /proc when the server runs here (its process is known by `--pid`, or found as the owner of
//! the socket that listens on the port), else from INFO over a connection of its own.

use super::cycles::{Counter, Cycles};
use super::owners::owners;
use crate::generator::os;
use crate::options::Target;
use client::Client;
use std::fs;
use std::io;

/// Where figures come from.
pub struct Source {
    figures: Figures,
    /// Counts cycles, or the reason why it cannot, if they are asked for.
    counter: Option<Result<Counter, String>>,
}

enum Figures {
    /// Processes on this machine.
    Processes(Vec<u32>),
    /// The server's own word.
    Info(Client),
}

/// A reading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// CPU seconds since the server started, user and system.
    pub cpu_seconds: f64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Processor cycles since they began to be counted; 0 if they are not.
    pub cycles: u64,
}

/// What a run cost the server.
#[derive(Clone, Debug)]
pub struct ServerCost {
    /// CPU seconds during the run.
    pub cpu_seconds: f64,
    /// Resident bytes at the end.
    pub rss_bytes: u64,
    /// The most there was at any reading.
    pub rss_peak_bytes: u64,
    /// `/proc` or `INFO`.
    pub from: &'static str,
    /// Processor cycles during the run, if they were asked for.
    pub cycles: Option<Cycles>,
    /// One reading a second: seconds since the start, CPU seconds used up to then, resident bytes.
    pub readings: Vec<(f64, f64, u64)>,
}

impl ServerCost {
    /// Adds the cost of another run.
    pub fn merge(&mut self, other: &ServerCost) {
        let offset = self.readings.last().map_or(0.0, |&(at, ..)| at);
        let used = self.cpu_seconds;
        let shifted = other.readings.iter().map(|&(at, cpu, rss)| (at + offset, cpu + used, rss));
        self.readings.extend(shifted);
        self.cpu_seconds += other.cpu_seconds;
        self.rss_bytes = other.rss_bytes;
        self.rss_peak_bytes = self.rss_peak_bytes.max(other.rss_peak_bytes);
        if let (Some(cycles), Some(other)) = (&mut self.cycles, &other.cycles) {
            cycles.merge(other);
        }
    }
}

impl Source {
    /// The best source there is for a server: the processes given, or found by the port, or INFO.
    pub fn find(target: &Target, pids: &[u32]) -> Option<Source> {
        let figures = if !pids.is_empty() {
            Figures::Processes(pids.to_vec())
        } else {
            let owners = owners(&target.address);
            if owners.is_empty() {
                let mut client = target.connect().ok()?;
                info(&mut client).ok()?;
                Figures::Info(client)
            } else {
                Figures::Processes(owners)
            }
        };
        Some(Source { figures, counter: None })
    }

    /// Counts processor cycles from now on, if that is possible.
    pub fn count_cycles(&mut self) {
        self.counter = Some(match &self.figures {
            Figures::Processes(pids) => Counter::new(pids),
            Figures::Info(_) => Err("the server's process is not one of this machine".into()),
        });
    }

    /// What reports call it.
    pub fn name(&self) -> &'static str {
        match self.figures {
            Figures::Processes(_) => "/proc",
            Figures::Info(_) => "INFO",
        }
    }

    /// A reading now.
    pub fn sample(&mut self) -> io::Result<Sample> {
        let mut sum = match &mut self.figures {
            Figures::Processes(pids) => {
                let mut sum = Sample::default();
                for pid in pids.iter() {
                    let one = process(*pid)?;
                    sum.cpu_seconds += one.cpu_seconds;
                    sum.rss_bytes += one.rss_bytes;
                }
                sum
            }
            Figures::Info(client) => info(client)?,
        };
        if let Some(Ok(counter)) = &mut self.counter {
            sum.cycles = counter.read()?;
        }
        Ok(sum)
    }

    /// What became of counting cycles, if they were asked for: `used` is the difference of two
    /// readings.
    pub fn cycles(&self, used: u64) -> Option<Cycles> {
        Some(match self.counter.as_ref()? {
            Ok(counter) => counter.outcome(used),
            Err(why) => Cycles::Uncounted(why.clone()),
        })
    }
}

/// A reading of one process of this machine.
///
/// # Errors
/// It has ended.
pub fn process(pid: u32) -> io::Result<Sample> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<u64> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // Counted from the field after the state: 10 is utime, 11 stime, 20 resident pages.
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    Ok(Sample {
        cpu_seconds: (field(10) + field(11)) as f64 / os::ticks_per_second() as f64,
        rss_bytes: field(20) * os::page_bytes(),
        ..Sample::default()
    })
}

fn info(client: &mut Client) -> io::Result<Sample> {
    let text = client.order(&["INFO"])?.text();
    let field = |name: &str| -> Option<f64> {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
    };
    match (field("used_cpu_user"), field("used_cpu_sys")) {
        (Some(user), Some(system)) => Ok(Sample {
            cpu_seconds: user + system,
            rss_bytes: field("used_memory_rss").unwrap_or(0.0) as u64,
            ..Sample::default()
        }),
        _ => Err(io::Error::other("INFO has no used_cpu_user")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_uses_time() {
        let before = process(std::process::id()).unwrap();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed().as_millis() < 300 {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        assert!(std::hint::black_box(sum) != 1);
        let after = process(std::process::id()).unwrap();
        assert!(after.cpu_seconds > before.cpu_seconds && after.rss_bytes > 1 << 20);
    }
}
