//! From one thread to as many as there are cores: what a request costs a server as it gets more
//! threads, beside other servers. The work is that of the published runs: SET of every key, then
//! GET, values of 1 to 1024 bytes, over a Unix socket, the server on one half of the cores and the
//! generator on the other.
//!
//! The figures to compare are the server's CPU per request, and its cycles where they can be
//! counted. The rate may be the generator's limit.

use super::Bench;
use super::cpus::Division;
use super::peers::{self, Peer};
use super::servers::{Peered, target};
use crate::generator::os;
use crate::measure::Measured;
use crate::measure::cycles::Cycles;
use crate::measure::owners::owners;
use crate::report::document::{Curve, Line, ms};
use crate::report::table::grouped;

const PIPELINES: [usize; 3] = [1, 10, 50];

/// Keys of the published runs, and how many there are at any scale.
const KEYS: f64 = 10e6;
const LEAST_KEYS: u64 = 10_000;

/// A pipeline, and the cycles of a request at it with one thread and with 16. SETs and GETs are
/// counted together.
type PublishedRow = (usize, f64, f64);

/// The published cycles by server.
const PUBLISHED: [(&str, [PublishedRow; 3]); 3] = [
    ("valkey", [(1, 9431.0, 30_482.0), (10, 3354.0, 45_040.0), (50, 2831.0, 48_561.0)]),
    ("garnet", [(1, 12_660.0, 17_929.0), (10, 2643.0, 3461.0), (50, 1445.0, 2363.0)]),
    ("pogocache", [(1, 7244.0, 7256.0), (10, 2710.0, 2494.0), (50, 2567.0, 2148.0)]),
];
const PUBLISHED_THREADS: [usize; 2] = [1, 16];

/// The figures of one server with so many threads at one pipeline, each a list of trials.
#[derive(Default)]
struct Point {
    server: String,
    threads: usize,
    pipeline: usize,
    set_rates: Vec<f64>,
    get_rates: Vec<f64>,
    /// Of a SET and a GET, half of both.
    cpu_ns: Vec<f64>,
    cycles: Vec<f64>,
    get_p99_ms: Vec<f64>,
    remarks: Vec<String>,
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), String> {
    let options = bench.scaling.clone();
    if !(options.seconds.is_finite() && options.seconds > 0.0)
        || options.trials == 0
        || options.clients == 0
    {
        return Err("--seconds, --trials and --clients: numbers above 0 are needed".into());
    }
    let division = Division::of_this_machine()?;
    let peers = peers::peers(&bench.lab, &options.peer)?;
    let keys = ((KEYS * bench.scale) as u64).max(LEAST_KEYS);
    let most = options.most_threads.unwrap_or(division.all.len()).max(1);
    bench.sizes = format!(
        "{keys} keys, values of 1 to 1024 bytes, {} clients, {}, {} s of SET and of GET each, \
         trials: {}; up to {} threads of a server have as many cores of their own, more share all \
         {} with the generator",
        options.clients,
        if options.tcp { "TCP" } else { "a Unix socket" },
        options.seconds,
        options.trials,
        division.server.len(),
        division.all.len()
    );
    for name in peers.missing {
        let remark = format!(
            "not measured: {name} is not installed; --peer {name}=PROGRAM says where it is"
        );
        bench.row(name, "CPU ns/request", None, &[], &remark);
    }
    let mut points = Vec::new();
    let outcome = measure_all(bench, &division, &peers.all, &steps(most), keys, &mut points);
    // What was measured before a failure stays, and is drawn beside the error.
    bench.curves = curves(&points);
    outcome
}

/// Measures every server with each number of threads.
fn measure_all(
    bench: &mut Bench<'_>,
    division: &Division,
    peers: &[Peer],
    steps: &[usize],
    keys: u64,
    points: &mut Vec<Point>,
) -> Result<(), String> {
    for &threads in steps {
        for peer in peers {
            measure_server(bench, division, peer, threads, keys, points)?;
        }
    }
    Ok(())
}

/// Returns 1, 2, 4 and so on, and the most itself.
fn steps(most: usize) -> Vec<usize> {
    let mut steps: Vec<usize> = std::iter::successors(Some(1), |threads| Some(threads * 2))
        .take_while(|&threads| threads < most)
        .collect();
    steps.push(most);
    steps
}

/// Measures a server with so many threads at each pipeline.
fn measure_server(
    bench: &mut Bench<'_>,
    division: &Division,
    peer: &Peer,
    threads: usize,
    keys: u64,
    points: &mut Vec<Point>,
) -> Result<(), String> {
    let is_apart = threads <= division.server.len();
    let cpus = if is_apart { &division.server } else { &division.all };
    let started = match peer.start(&mut bench.lab, threads, cpus) {
        Ok(started) => started,
        Err(why) if os::interrupted() => return Err(why),
        // One that does not start is no reason not to measure the others.
        Err(why) => {
            let what = format!("{}, {}", peer.name, counted(threads));
            bench.row(&what, "CPU ns/request", None, &[], &format!("did not start: {why}"));
            return Ok(());
        }
    };
    let generator = if is_apart { &division.generator } else { &division.all };
    let place = Place { started: &started, is_apart };
    pinned(generator, &division.all, || {
        measure_pipelines(bench, &place, &peer.name, threads, keys, points)
    })
}

/// Where a server is.
struct Place<'a> {
    started: &'a Peered,
    /// The generator has other cores.
    is_apart: bool,
}

impl Place<'_> {
    /// Returns the words that lead a generator there.
    fn words(&self, tcp: bool) -> [String; 2] {
        match &self.started.socket {
            Some(socket) if !tcp => ["-s".into(), socket.to_string_lossy().into_owned()],
            _ => super::at(self.started.server.port),
        }
    }

    fn remarks(&self, tcp: bool) -> Vec<String> {
        let no_socket = self.started.socket.is_none() && !tcp;
        [(!self.is_apart, "cores shared with the generator"), (no_socket, "by TCP")]
            .into_iter()
            .filter(|(holds, _)| *holds)
            .map(|(_, remark)| remark.into())
            .collect()
    }
}

/// Calls `work` while this thread, and what it starts, runs on some processors alone.
fn pinned(
    cpus: &[usize],
    all: &[usize],
    work: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let refused = |error: std::io::Error| format!("the processors: {error}");
    os::run_on(cpus).map_err(refused)?;
    let result = work();
    os::run_on(all).map_err(refused)?;
    result
}

fn measure_pipelines(
    bench: &mut Bench<'_>,
    place: &Place<'_>,
    server: &str,
    threads: usize,
    keys: u64,
    points: &mut Vec<Point>,
) -> Result<(), String> {
    let options = bench.scaling.clone();
    let (port, words) = (place.started.server.port, place.words(options.tcp));
    // The process behind a Unix socket of another root is found by its port.
    let pids: String =
        owners(&target(port).address).iter().map(|pid| format!(" --pid {pid}")).collect();
    let range = format!(
        "--key-prefix= --key-pattern P:P --key-minimum 1 --key-maximum {keys} \
         --data-size-range 1-1024"
    );
    let fill = format!("--ratio 1:0 {range} -c {} -P 50 -n {keys}", options.clients.min(50));
    bench.attempt(&words, &fill)?;
    for pipeline in PIPELINES {
        let load = format!(
            "{range} -c {} -P {pipeline} --duration {} --warmup {} --cycles{pids}",
            options.clients,
            options.seconds,
            options.seconds / 4.0
        );
        let remarks = place.remarks(options.tcp);
        let mut point =
            Point { server: server.into(), threads, pipeline, remarks, ..Point::default() };
        let outcome = measure_point(bench, &words, &load, options.trials, &mut point);
        if !point.set_rates.is_empty() {
            point.show(bench);
            points.push(point);
        }
        outcome?;
    }
    Ok(())
}

/// Adds so many trials to a point.
fn measure_point(
    bench: &mut Bench<'_>,
    words: &[String],
    load: &str,
    trials: u32,
    point: &mut Point,
) -> Result<(), String> {
    let what = format!("{}, {}, pipeline {}", point.server, counted(point.threads), point.pipeline);
    for trial in 1..=trials {
        let set = one(bench, words, &format!("SET: {what}"), &format!("--ratio 1:0 {load}"));
        let get = set.and_then(|set| {
            let line = format!("--ratio 0:1 {load}");
            Ok((set, one(bench, words, &format!("GET: {what}"), &line)?))
        });
        let (set, get) = get.inspect_err(|_| {
            point.remark(&format!("trial {trial} of {trials} failed, and none followed"));
        })?;
        point.add(&set, &get);
    }
    Ok(())
}

/// Makes one run and puts it into the report by this name.
fn one(
    bench: &mut Bench<'_>,
    place: &[String],
    name: &str,
    line: &str,
) -> Result<Measured, String> {
    let (job, mut measured) = bench.attempt(place, line)?;
    let mut one = measured.pop().ok_or("nothing was measured")?;
    one.name = name.into();
    bench.keep(&job, vec![one.clone()]);
    if let Some(Cycles::Uncounted(why)) = one.server.as_ref().and_then(|cost| cost.cycles.as_ref())
    {
        let note = format!("no cycles per request: {why}");
        if !bench.session.document.notes.contains(&note) {
            bench.session.note(note);
        }
    }
    Ok(one)
}

impl Point {
    fn add(&mut self, set: &Measured, get: &Measured) {
        self.set_rates.push(set.rate());
        self.get_rates.push(get.rate());
        self.get_p99_ms.push(ms(get.total().latencies.value_at_quantile(0.99)));
        let half = |of: fn(&Measured) -> Option<f64>| Some((of(set)? + of(get)?) / 2.0);
        self.cpu_ns.extend(half(Measured::server_us).map(|us| us * 1000.0));
        self.cycles.extend(half(Measured::server_cycles));
        if set.generator_was_the_limit() || get.generator_was_the_limit() {
            self.remark("the generator was the limit of the rate");
        }
        let cycles = |one: &Measured| one.server.as_ref().and_then(|cost| cost.cycles.clone());
        let is_partial =
            |one| matches!(cycles(one), Some(Cycles::Counted { with_kernel: false, .. }));
        if is_partial(set) || is_partial(get) {
            self.remark("cycles in user space alone");
        }
    }

    fn remark(&mut self, remark: &str) {
        if !self.remarks.iter().any(|other| other == remark) {
            self.remarks.push(remark.into());
        }
    }

    /// Makes its rows.
    fn show(&self, bench: &mut Bench<'_>) {
        let what =
            format!("pipeline {}, {}: {}", self.pipeline, counted(self.threads), self.server);
        let mut remark = format!(
            "SET {}/s, GET {}/s",
            grouped(median(&self.set_rates)),
            grouped(median(&self.get_rates))
        );
        for more in &self.remarks {
            remark += &format!("; {more}");
        }
        bench.row(&what, "CPU ns/request", None, &self.cpu_ns, &remark);
        if !self.cycles.is_empty() {
            let published = published(&self.server, self.pipeline, self.threads);
            let published = published.map(|cycles| format!("{cycles:.0}"));
            bench.row(&what, "cycles/request", published.as_deref(), &self.cycles, "");
        }
    }
}

fn counted(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

fn published(server: &str, pipeline: usize, threads: usize) -> Option<f64> {
    let (_, rows) = PUBLISHED.iter().find(|(name, _)| *name == server)?;
    let (_, alone, many) = rows.iter().find(|row| row.0 == pipeline)?;
    match PUBLISHED_THREADS.iter().position(|&count| count == threads)? {
        0 => Some(*alone),
        _ => Some(*many),
    }
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// A figure of a point; those that were not measured are none.
type FigureOf = fn(&Point) -> &[f64];

/// Returns a picture for each figure and pipeline, over threads.
fn curves(points: &[Point]) -> Vec<Curve> {
    let figures: [(&str, &str, FigureOf); 5] = [
        ("Server CPU per request", "ns", |point| &point.cpu_ns),
        ("Server cycles per request", "cycles", |point| &point.cycles),
        ("SET", "requests/s", |point| &point.set_rates),
        ("GET", "requests/s", |point| &point.get_rates),
        ("p99 of GET", "ms", |point| &point.get_p99_ms),
    ];
    let mut servers: Vec<&str> = Vec::new();
    for point in points {
        if !servers.contains(&point.server.as_str()) {
            servers.push(&point.server);
        }
    }
    let mut curves = Vec::new();
    for (title, y, figure) in figures {
        for pipeline in PIPELINES {
            let of = |server: &str| -> Vec<(f64, f64)> {
                points
                    .iter()
                    .filter(|point| point.server == server && point.pipeline == pipeline)
                    .filter(|point| !figure(point).is_empty())
                    .map(|point| (point.threads as f64, median(figure(point))))
                    .collect()
            };
            let mut lines: Vec<Line> = servers
                .iter()
                .map(|server| Line { name: (*server).into(), points: of(server) })
                .collect();
            lines.retain(|line| !line.points.is_empty());
            if lines.is_empty() {
                continue;
            }
            if y == "cycles" {
                lines.extend(PUBLISHED.iter().map(|(name, _)| published_line(name, pipeline)));
            }
            curves.push(Curve {
                title: format!("{title}, pipeline {pipeline}"),
                x: "threads".into(),
                y: y.into(),
                lines,
            });
        }
    }
    curves
}

fn published_line(server: &str, pipeline: usize) -> Line {
    let point = |threads: usize| Some((threads as f64, published(server, pipeline, threads)?));
    Line {
        name: format!("{server}, published"),
        points: PUBLISHED_THREADS.iter().copied().filter_map(point).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_the_most() {
        assert_eq!(steps(1), [1]);
        assert_eq!(steps(2), [1, 2]);
        assert_eq!(steps(12), [1, 2, 4, 8, 12]);
        assert_eq!(steps(16), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn published_cycles_stand_beside_those_that_were_counted() {
        assert_eq!(published("pogocache", 50, 16), Some(2148.0));
        assert_eq!(published("valkey", 1, 1), Some(9431.0));
        assert_eq!((published("valkey", 1, 2), published("Dunlin", 1, 1)), (None, None));
        let point = |cycles: &[f64]| Point {
            server: "Dunlin".into(),
            threads: 1,
            pipeline: 10,
            cpu_ns: vec![3.0, 1.0, 2.0],
            cycles: cycles.to_vec(),
            ..Point::default()
        };
        let drawn = curves(&[point(&[7.0])]);
        let titles: Vec<&str> = drawn.iter().map(|curve| curve.title.as_str()).collect();
        assert_eq!(
            titles,
            ["Server CPU per request, pipeline 10", "Server cycles per request, pipeline 10"]
        );
        assert_eq!(drawn[0].lines[0].points, [(1.0, 2.0)]);
        let names: Vec<&str> = drawn[1].lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(
            names,
            ["Dunlin", "valkey, published", "garnet, published", "pogocache, published"]
        );
        assert_eq!(curves(&[point(&[])]).len(), 1);
    }
}
