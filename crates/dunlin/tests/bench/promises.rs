//! What the figures promise: a rate is kept, a stall is seen, equal servers are equal, wrong values
//! and losses are found.

use crate::support::{bench, dunlin, file, measure, only, until_served};
use harness::client::ask;
use harness::reply::Protocol;
use harness::server::{Options, Program, Server, signal};
use std::collections::HashMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// A machine that lets the generator wait keeps it from sending: one of ten attempts has to keep
/// the rate. None may be faster.
#[test]
fn the_rate_is_the_one_that_was_asked_for() {
    let server = dunlin(&[]);
    for line in ["--threads 2 --rate 3000", "--rate 500 -c 3", "--rps 2000 -P 4"] {
        let attempt = || {
            let (_, result) = measure(server.port(), &format!("-t get -n 1500 {line}"));
            let run = only(&result);
            let figure = |value: &serde_json::Value| value.as_f64().expect("a number");
            assert_eq!(run["total"]["requests"], 1500, "{line}: {run}");
            figure(&run["total"]["rate"]) / figure(&run["asked_rate"])
        };
        let mut ratios = Vec::new();
        while ratios.len() < 10 && !ratios.iter().any(|&ratio| ratio >= 0.99) {
            ratios.push(attempt());
        }
        assert!(ratios.iter().any(|&ratio| ratio >= 0.99), "{line}: {ratios:?}");
        assert!(ratios.iter().all(|&ratio| ratio <= 1.01), "{line}: {ratios:?}");
    }
}

/// Runs a load on a server that stands still for `stall` in the middle of it.
fn stalled(server: &Server, line: &str, stall: Duration) -> serde_json::Value {
    let (port, line) = (server.port(), line.to_owned());
    let run = thread::spawn(move || measure(port, &line).1);
    until_served(server, 100);
    // The length of the stall is what the percentiles are compared with.
    signal(server.process_id(), "STOP").unwrap();
    thread::sleep(stall);
    signal(server.process_id(), "CONT").unwrap();
    run.join().unwrap()
}

#[test]
fn a_stall_is_in_the_percentiles_of_an_open_loop() {
    let server = dunlin(&[]);
    let stall = Duration::from_millis(600);
    let result = stalled(&server, "-t get -c 10 --rate 1000 --duration 4", stall);
    let latency = &only(&result)["total"]["latency_ms"];
    let at = |name: &str| latency[name].as_f64().unwrap();
    // 600 of 4000 requests fell due in the stall; evenly, so a tenth of all waited 200 ms or more.
    assert!(at("max") > 550.0, "{latency}");
    assert!(at("p90") > 100.0 && at("p99") > 450.0, "{latency}");
    ask(&mut server.client(), "CONFIG RESETSTAT");
    // A closed loop sees one late request a connection.
    let result = stalled(&server, "-t get -c 10 --rps 1000 --duration 4", stall);
    let latency = &only(&result)["total"]["latency_ms"];
    assert!(latency["p99"].as_f64().unwrap() < 450.0, "{latency}");
    assert!(latency["max"].as_f64().unwrap() > 550.0, "{latency}");
}

/// Requests a second, mean latency and median latency in ms, of a CSV's last line.
fn csv_figures(csv: &[u8]) -> [f64; 3] {
    let text = String::from_utf8_lossy(csv).replace('"', "");
    let fields: Vec<&str> = text.lines().last().unwrap_or_default().split(',').collect();
    [1, 2, 4].map(|index: usize| {
        fields.get(index).and_then(|field| field.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    })
}

#[test]
fn figures_agree_with_valkey_benchmark() {
    let Some(reference) = Program::reference_or_skip() else { return };
    let options = Options::arguments(&["--enable-debug-command", "yes"]);
    let server = Server::start(&reference, options).unwrap();
    // A server that takes its time leaves less to chance on a busy machine, where processes wait
    // for each other; even so the bounds are wide. `./test generator` compares at full speed,
    // within 5 %.
    let work = "-c 4 -n 60 --csv DEBUG SLEEP 0.02";
    let mut ratios = [(); 3].map(|()| Vec::new());
    for _ in 0..3 {
        let mut command = reference.beside("valkey-benchmark").command();
        command.args(["-p", &server.port().to_string()]).args(work.split(' '));
        let theirs = csv_figures(&command.output().unwrap().stdout);
        let ours = csv_figures(&bench(&format!("-p {} {work}", server.port())).stdout);
        for (list, (ours, theirs)) in ratios.iter_mut().zip(ours.into_iter().zip(theirs)) {
            list.push(ours / theirs);
        }
    }
    for (name, list) in ["requests/s", "mean", "p50"].iter().zip(&mut ratios) {
        list.sort_by(f64::total_cmp);
        assert!((0.6..=1.67).contains(&list[1]), "{name}: {list:?} of valkey-benchmark's");
    }
}

#[test]
fn connections_rate_and_latency_agree() {
    // Little's law: of a closed loop, requests under way = rate × mean latency. What is missing is
    // the time in which a connection waits for the generator to send; a request that takes its time
    // leaves little to that. On a busy machine it is more, so the lower bound is wide.
    let server = dunlin(&["--maxclients", "10100"]);
    for clients in [100_u32, 10_000] {
        let line = format!("-c {clients} -n {} BLPOP empty 2", clients * 2);
        let (status, result) = measure(server.port(), &line);
        let run = only(&result);
        let rate = run["total"]["rate"].as_f64().unwrap();
        let under_way = rate * run["total"]["latency_ms"]["mean"].as_f64().unwrap() / 1000.0;
        assert_eq!((status, &run["lost_connections"]), (0, &0.into()), "{run}");
        let share = under_way / f64::from(clients);
        assert!((0.4..=1.02).contains(&share), "{clients} clients, {under_way:.1} under way");
    }
}

#[test]
fn equal_servers_are_equal() {
    let (one, other) = (dunlin(&[]), dunlin(&[]));
    // Servers that take their time, as above: on a busy machine a quick one may be kept from
    // running for most of a round.
    let against = format!("--rounds 5 --against redis://127.0.0.1:{}", other.port());
    let line = format!("-c 4 -n 40 {against} DEBUG SLEEP 0.01");
    let (status, result) = measure(one.port(), &line);
    assert_eq!(status, 0);
    let rows = result["comparisons"].as_array().unwrap();
    let rate = rows.iter().find(|row| row["figure"] == "requests/s").unwrap();
    let ratio = rate["ratio"].as_f64().unwrap();
    let near = (ratio - 1.0).abs() <= rate["noise"].as_f64().unwrap().max(0.2);
    assert!(rate["within_noise"] == true || near, "{rate}");
    assert!(
        rate["ratio_low"].as_f64().unwrap() <= ratio
            && ratio <= rate["ratio_high"].as_f64().unwrap()
    );
    assert_eq!(result["runs"].as_array().unwrap().len(), 10);
}

#[test]
fn a_sweep_finds_where_a_server_falls_behind() {
    let server = dunlin(&[]);
    // No server answers 50 million a second to one client. A machine that lets the generator wait
    // does not keep up with the lowest rate either: one of ten attempts has to.
    let line = "-t get -c 1 --sweep --sweep-rates 200:50000000:2 --duration 1";
    let mut sweeps = Vec::new();
    while sweeps.len() < 10 && !sweeps.iter().any(|sweep: &serde_json::Value| sweep["knee"] == 0) {
        let (_, result) = measure(server.port(), line);
        let sweep = &result["sweeps"][0];
        assert_eq!(sweep["steps"][1]["kept_up"], false, "{sweep}");
        sweeps.push(sweep.clone());
    }
    assert!(sweeps.last().is_some_and(|sweep| sweep["knee"] == 0), "{sweeps:?}");
}

#[test]
fn values_are_verified() {
    let server = dunlin(&[]);
    let (port, keys) = (server.port(), "--key-maximum 999 --data-size-range 5-500");
    let (status, result) = measure(port, &format!("--verify {keys} --ratio 1:1 -n 5000 -P 8"));
    assert_eq!(status, 0, "{result}");
    assert!(only(&result)["values_checked"].as_u64().unwrap() > 2000);
    let mut client = server.connect(Protocol::Resp2).unwrap();
    client.command(&["SET", "memtier-77", "something else"]).unwrap();
    let all = format!("--verify {keys} --ratio 0:1 --key-pattern S:S -c 1 -n 1000");
    let (status, result) = measure(port, &all);
    assert_eq!((status, &only(&result)["values_wrong"]), (1, &1.into()));
    let (status, _) = measure(
        port,
        &format!("--verify {keys} --ratio 0:1 --multi-key-get 10 --key-pattern S:S -c 1 -n 100"),
    );
    assert_eq!(status, 1, "in an MGET too");
    let output = bench(&format!("-p {port} --verify -t set,get -r 100 -n 500"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn an_audit_finds_what_was_lost() {
    let server = dunlin(&[]);
    let (port, ledger, report) = (server.port(), file("ledger"), file("audit.json"));
    let path = ledger.display();
    let (status, _) =
        measure(port, &format!("--ledger {path} --key-maximum 99 -c 2 -n 1000 -d 40"));
    assert_eq!(status, 0);
    let audit = || {
        let line = format!("audit -p {port} --json-out-file {} {path}", report.display());
        let status = bench(&line).status.code().unwrap();
        let result: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap();
        (status, result)
    };
    let (status, result) = audit();
    assert_eq!((status, &result["acknowledged_writes"]), (0, &1000.into()), "{result}");
    assert_eq!(result["keys_lost"], 0);
    let mut client = server.connect(Protocol::Resp2).unwrap();
    let lost = format!("memtier-{}", key_written_before_others(&ledger));
    client.command(&["DEL", &lost]).unwrap();
    let (status, result) = audit();
    assert_eq!((status, &result["keys_lost"]), (1, &1.into()), "{result}");
    assert_eq!(result["losses"][0]["key"], lost);
    // Later writes of that client are still there.
    assert_eq!(result["holes"], 1, "{result}");
    client.command(&["FLUSHALL"]).unwrap();
    let (_, result) = audit();
    assert_eq!((&result["keys_lost"], &result["holes"]), (&result["keys"], &0.into()));
    std::fs::remove_file(ledger).unwrap();
    std::fs::remove_file(report).unwrap();
}

/// A key that is not the last one that its writer wrote; so its loss leaves a hole.
fn key_written_before_others(ledger: &Path) -> u64 {
    let text = std::fs::read_to_string(ledger).unwrap();
    let mut last = HashMap::new();
    let mut keys = Vec::new();
    for line in text.lines().skip(1) {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let (key, client, sequence) = (numbers[0], numbers[2], numbers[3]);
        keys.push(key);
        let latest = last.entry(client).or_insert((sequence, key));
        *latest = (*latest).max((sequence, key));
    }
    keys.into_iter().find(|key| last.values().all(|(_, last)| last != key)).unwrap()
}
