//! The experiments.

use super::addressed::{self, Contest};
use super::servers::{Lab, Server};
use super::{Bench, Plan};

/// All of them.
pub static PLANS: [Plan; 7] = [
    Plan {
        name: "scale-out",
        title: "eight instances behind proxies against one process with every core",
        by: "VMware (Redis on vSphere, 2014/15): at best 3.408 M ops/s natively, 4 to 5.6 times one instance",
        usual_scale: 0.002,
        run: scale_out,
    },
    Plan {
        name: "unbenchmark",
        title: "one address over shards",
        by: "Redis Labs (2014): 1 228 432 ops/s on a c3.8xlarge",
        usual_scale: 0.02,
        run: unbenchmark,
    },
    Plan {
        name: "all-commands",
        title: "every test of redis-benchmark, two servers pinned to one core",
        by: "OSv (2014)",
        usual_scale: 0.2,
        run: all_commands,
    },
    Plan {
        name: "proxy-hop",
        title: "what a proxy in between leaves of the throughput",
        by: "RedisHappy (m4.xlarge, Redis 3.2.4, through HAProxy)",
        usual_scale: 0.2,
        run: proxy_hop,
    },
    Plan {
        name: "flash",
        title: "more data than RAM: fill, prime the middle, mixed load",
        by: "Redis Labs and Diamanti (Redis on Flash): 110 k, 25 k and 130 k ops/s below 1 ms",
        usual_scale: 0.002,
        run: super::flash::run,
    },
    Plan {
        name: "deployments",
        title: "natively, in containers, and alone in a virtual machine",
        by: "Unikraft (EuroSys 2021, figure 12): one core, GET/SET natively 2.44/2.02 M requests/s",
        usual_scale: 0.1,
        run: super::deployments::run,
    },
    Plan {
        name: "scaling",
        title: "from one thread to as many as there are cores, pipelines 1, 10 and 50",
        by: "Josh Baker (cache-benchmarks, 2025): 31 runs, 16 of an AWS c8g.8xlarge's 32 cores",
        usual_scale: 0.01,
        run: super::scaling::run,
    },
];

/// A count of the original, scaled, at least `least`.
pub(super) fn scaled(original: f64, scale: f64, least: u64) -> u64 {
    ((original * scale) as u64).max(least)
}

const SHARDS: usize = 8;

fn scale_out(bench: &mut Bench<'_>) -> Result<(), String> {
    const TRIALS: u32 = 5;
    let keys = scaled(250e6, bench.scale, 10_000);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    bench.sizes = format!(
        "{keys} keys, values of 1 byte, AOF everysec, 75 % GET, 800 clients, pipeline 30, {TRIALS} trials of 3 s; {}",
        super::deployments::surroundings()
    );
    let fill = format!(
        "--ratio 1:0 --key-pattern P:P --key-prefix key: --key-maximum {} -d 1 -c 50 -P 100 -n {keys}",
        keys - 1
    );
    let work = format!(
        "--ratio 1:3 --key-prefix key: --key-maximum {} -d 1 -c 800 -P 30 --warmup 1 --duration 3",
        keys - 1
    );
    let alone = work.replace("-c 800 -P 30", "-c 1 -P 1");
    let persistent = ["--appendonly", "yes", "--appendfsync", "everysec"];
    if bench.is_cluster {
        return addressed::run(
            bench,
            &Contest {
                arguments: &persistent,
                persistence: "aof",
                memory: addressed::memory_for(keys, 1),
                published: None,
                fill: &fill,
                work: &work,
                trials: TRIALS,
            },
        );
    }

    let mut base = None;
    if let Some(server) = bench.lab.reference(&persistent, None)? {
        let name = bench.lab.reference_name().unwrap_or("reference").to_owned();
        bench.measure(server.port, &fill)?;
        let rates = bench.rates(server.port, &alone, TRIALS)?;
        bench.row(&format!("1 {name}, 1 client, pipeline 1"), "requests/s", None, &rates, "");
        let rates = bench.rates(server.port, &work, TRIALS)?;
        bench.row(&format!("1 {name}, 800 clients"), "requests/s", None, &rates, "");
        base = Some(mean(&rates));
    } else {
        bench.row("1 reference server", "requests/s", None, &[], &Lab::no_reference());
    }
    scaled_out_reference(bench, &persistent, &fill, &work, TRIALS, base)?;

    let mut threads = 1;
    while threads <= cores {
        let count = threads.to_string();
        let mut arguments = persistent.to_vec();
        arguments.extend(["--io-threads", &count]);
        let server = bench.lab.dunlin(&arguments, None)?;
        bench.measure(server.port, &fill)?;
        let rates = bench.rates(server.port, &work, TRIALS)?;
        let remark = base.map_or(String::new(), |base| {
            format!("{:.2} × one reference server", mean(&rates) / base)
        });
        let plural = if threads == 1 { "" } else { "s" };
        let what = format!("1 Dunlin, {threads} thread{plural}");
        bench.row(&what, "requests/s", None, &rates, &remark);
        threads = if threads < cores { (threads * 2).min(cores) } else { cores + 1 };
    }
    Ok(())
}

/// Eight instances behind `dunlin proxy`, and behind Twemproxies behind HAProxy.
fn scaled_out_reference(
    bench: &mut Bench<'_>,
    arguments: &[&str],
    fill: &str,
    work: &str,
    trials: u32,
    base: Option<f64>,
) -> Result<(), String> {
    let what = format!("{SHARDS} instances, Twemproxy, HAProxy");
    let published = Some("3 408 000 (4 to 5.6 ×)");
    let mut shards = Vec::new();
    for _ in 0..SHARDS {
        shards.extend(bench.lab.reference(arguments, None)?);
    }
    if shards.is_empty() {
        bench.row(&what, "requests/s", published, &[], &Lab::no_reference());
        return Ok(());
    }
    let ports: Vec<u16> = shards.iter().map(|shard| shard.port).collect();
    let compared = |rates: &[f64]| {
        base.map_or(String::new(), |base| {
            format!("{:.2} × one reference server", mean(rates) / base)
        })
    };
    {
        let proxy = bench.lab.proxy(&ports)?;
        bench.measure(proxy.port, fill)?;
        let rates = bench.rates(proxy.port, work, trials)?;
        let what = format!("{SHARDS} instances, dunlin proxy");
        bench.row(&what, "requests/s", None, &rates, &compared(&rates));
    }
    let mut proxies = Vec::new();
    for _ in 0..2 {
        proxies.extend(bench.lab.twemproxy(&ports)?);
    }
    if proxies.is_empty() {
        bench.row(&what, "requests/s", published, &[], "not measured: apt-get install nutcracker");
        return Ok(());
    }
    let ports: Vec<u16> = proxies.iter().map(|proxy| proxy.port).collect();
    let Some(front) = bench.lab.haproxy(&ports)? else {
        bench.row(&what, "requests/s", published, &[], "not measured: apt-get install haproxy");
        return Ok(());
    };
    bench.measure(front.port, fill)?;
    let rates = bench.rates(front.port, work, trials)?;
    bench.row(&what, "requests/s", published, &rates, &compared(&rates));
    Ok(())
}

pub(super) fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

fn unbenchmark(bench: &mut Bench<'_>) -> Result<(), String> {
    const CLIENTS: u64 = 50;
    let keys = scaled(3e6, bench.scale, 1000);
    let requests = scaled(1e6, bench.scale, 1000) * CLIENTS;
    bench.sizes = format!(
        "{keys} objects of 100 bytes, 1:1, pipeline 75, {CLIENTS} clients, S:S, at least {requests} requests and 2 s, 3 trials"
    );
    let work = format!(
        "--ratio 1:1 --key-pattern S:S --key-minimum 1 --key-maximum {keys} -d 100 -c {CLIENTS} -P 75 -n {requests}"
    );
    let fill = format!(
        "--ratio 1:0 --key-pattern P:P --key-minimum 1 --key-maximum {keys} -d 100 -c 10 -P 75 -n {keys}"
    );
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let published = Some("1 228 432");
    if bench.is_cluster {
        return addressed::run(
            bench,
            &Contest {
                arguments: &[],
                persistence: "disabled",
                memory: addressed::memory_for(keys, 100),
                published,
                fill: &fill,
                work: &work,
                trials: 3,
            },
        );
    }
    let mut shards = Vec::new();
    for _ in 0..cores {
        shards.extend(bench.lab.reference(&[], None)?);
    }
    let ports: Vec<u16> = shards.iter().map(|shard| shard.port).collect();
    let proxy = if ports.is_empty() { None } else { bench.lab.twemproxy(&ports)? };
    let what = format!("{cores} shards behind Twemproxy");
    match &proxy {
        Some(proxy) => {
            bench.measure(proxy.port, &fill)?;
            let rates = bench.rates(proxy.port, &work, 3)?;
            bench.row(&what, "requests/s", published, &rates, "");
        }
        None if ports.is_empty() => {
            bench.row(&what, "requests/s", published, &[], &Lab::no_reference());
        }
        None => bench.row(
            &what,
            "requests/s",
            published,
            &[],
            "not measured: apt-get install nutcracker",
        ),
    }
    if let Some(shard) = shards.first() {
        bench.measure(shard.port, &fill)?;
        let rates = bench.rates(shard.port, &work, 3)?;
        bench.row("1 reference server", "requests/s", None, &rates, "");
    }
    drop((proxy, shards));
    let server = bench.lab.dunlin(&[], None)?;
    bench.measure(server.port, &fill)?;
    let rates = bench.rates(server.port, &work, 3)?;
    bench.row("Dunlin, every core", "requests/s", published, &rates, "");
    Ok(())
}

fn all_commands(bench: &mut Bench<'_>) -> Result<(), String> {
    let requests = scaled(100_000.0, bench.scale, 1000);
    bench.sizes = format!(
        "50 clients, at least {requests} requests and 2 s a test, pipeline 1 and 16, one core for the server"
    );
    let mine = bench.lab.dunlin(&["--io-threads", "1"], Some(0))?;
    let other = bench.lab.reference(&[], Some(0))?;
    let name = bench.lab.reference_name().unwrap_or("reference").to_owned();
    for pipeline in [1, 16] {
        for test in crate::workload::tests::usual() {
            let line = format!("-c 50 -n {requests} -P {pipeline} -t {}", test.name);
            let what = format!("{}, pipeline {pipeline}", test.name);
            let mut theirs = None;
            if let Some(other) = &other {
                theirs = last_rate(bench, other.port, &line)?;
                let figures = theirs.as_slice();
                bench.row(&format!("{what}: {name}"), "requests/s", None, figures, "");
            }
            let ours = last_rate(bench, mine.port, &line)?;
            let remark = match (ours, theirs) {
                (Some(ours), Some(theirs)) => format!("{:.2} × {name}", ours / theirs),
                (Some(_), None) if other.is_none() => Lab::no_reference(),
                _ => String::new(),
            };
            let figures = ours.as_slice();
            bench.row(&format!("{what}: Dunlin"), "requests/s", None, figures, &remark);
        }
    }
    Ok(())
}

/// The rate of a test, which is the last of what its line runs; none if the server refused it.
fn last_rate(bench: &mut Bench<'_>, port: u16, line: &str) -> Result<Option<f64>, String> {
    let measured = bench.measure_long(port, line)?;
    Ok(measured.last().filter(|last| last.refusal().is_none()).map(|last| last.rate()))
}

fn proxy_hop(bench: &mut Bench<'_>) -> Result<(), String> {
    const TESTS: [&str; 7] = ["set", "get", "incr", "lpush", "lpop", "sadd", "spop"];
    let requests = scaled(100_000.0, bench.scale, 1000);
    let server = match bench.lab.reference(&[], None)? {
        Some(server) => server,
        None => bench.lab.dunlin(&[], None)?,
    };
    let name = bench.lab.reference_name().unwrap_or("dunlin").to_owned();
    bench.sizes = format!(
        "{name}, 100 clients, at least {requests} requests at pipeline 1, {} at 10 and 100, and 2 s",
        3 * requests
    );
    let hops: [(&str, Option<Server>, &str); 3] = [
        ("dunlin proxy", Some(bench.lab.proxy(&[server.port])?), "dunlin"),
        ("HAProxy", bench.lab.haproxy(&[server.port])?, "haproxy"),
        ("Twemproxy", bench.lab.twemproxy(&[server.port])?, "nutcracker"),
    ];
    for (pipeline, published) in [(1, "50–69 %"), (10, "47–73 %"), (100, "~100 %")] {
        for test in TESTS {
            let count = if pipeline == 1 { requests } else { 3 * requests };
            let line = format!("-c 100 -n {count} -P {pipeline} -t {test}");
            let direct = bench.rates(server.port, &line, 2)?;
            let what = format!("{test}, pipeline {pipeline}");
            bench.row(&format!("{what}: direct"), "requests/s", None, &direct, "");
            for (hop, proxy, package) in &hops {
                let published = (*hop == "HAProxy").then_some(published);
                let what = format!("{what}: through {hop}");
                match proxy {
                    Some(proxy) => {
                        let rates = bench.rates(proxy.port, &line, 2)?;
                        let kept: Vec<f64> = rates
                            .iter()
                            .zip(&direct)
                            .map(|(hop, direct)| hop / direct * 100.0)
                            .collect();
                        bench.row(&what, "% kept", published, &kept, "");
                    }
                    None => {
                        let remark = format!("not measured: apt-get install {package}");
                        bench.row(&what, "% kept", published, &[], &remark);
                    }
                }
            }
        }
    }
    Ok(())
}
