//! The experiments: they run to their end, say what is missing, and leave nothing behind.

use crate::support::{bench, file, start};
use harness::server::{Program, free_ports, signal};
use serde_json::Value;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Arguments that keep an experiment's servers in a directory of the test's own.
fn arguments(name: &str, directory: &Path) -> String {
    std::fs::create_dir_all(directory).unwrap();
    // The experiment counts on from the first one.
    let port = free_ports(100).unwrap();
    format!("experiment {name} --port {port} --dir {}", directory.display())
}

/// The reference server, as `--reference` wants it.
fn reference() -> Option<String> {
    let command = Program::reference_or_skip()?.command();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    Some(words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn assert_left_clean(directory: &Path) {
    let left: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    // Whatever still runs has the directory on its command line or as its own.
    let name = directory.to_str().unwrap();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let works_in = std::fs::read_link(process.path().join("cwd")).unwrap_or_default();
        let ours = command.contains(name) || works_in.starts_with(directory);
        assert!(!ours || command.contains(" bench "), "{command}");
    }
    std::fs::remove_dir(directory).unwrap();
}

/// Runs an experiment beside the reference server, if there is one, in a directory, and returns its result.
#[track_caller]
fn result_of(mut line: String, reference: Option<&String>) -> Value {
    let json = file("result.json");
    line += &format!(" --json-out-file {}", json.display());
    let mut words = crate::support::words(&line);
    // Words with spaces between them are one argument.
    words.extend(reference.into_iter().flat_map(|command| ["--reference".into(), command.clone()]));
    let output = crate::support::bench_words(&words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let text = std::fs::read_to_string(&json).unwrap();
    std::fs::remove_file(json).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn an_experiment_measures_what_can_be_measured_and_says_what_is_missing() {
    let (directory, page) = (file("lab"), file("page.html"));
    let line = arguments("unbenchmark", &directory);
    let reference = reference();
    let line = format!("{line} --scale 0.0004 --report {}", page.display());
    let result = result_of(line, reference.as_ref());
    let rows = result["experiment"]["rows"].as_array().unwrap();
    let of =
        |what: &str| rows.iter().find(|row| row["what"].as_str().unwrap().contains(what)).unwrap();
    assert!(of("Dunlin")["measured"][0].as_f64().unwrap() > 0.0, "{rows:?}");
    assert_eq!(of("Dunlin")["published"], "1 228 432");
    let proxy = of("Twemproxy");
    let measured = proxy["measured"][0].as_f64().is_some_and(|rate| rate > 0.0);
    assert!(measured || proxy["remark"].as_str().unwrap().contains("apt-get install"), "{proxy}");
    if reference.is_some() {
        assert!(of("1 reference server")["measured"][0].as_f64().unwrap() > 0.0, "{rows:?}");
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("1 228 432"));
    assert_left_clean(&directory);
    std::fs::remove_file(page).unwrap();
}

#[test]
fn three_machines_behind_one_address_are_measured_beside_one_server() {
    let directory = file("lab");
    let line = arguments("unbenchmark", &directory);
    let reference = reference();
    let result = result_of(format!("{line} --cluster --scale 0.0004"), reference.as_ref());
    let rows = result["experiment"]["rows"].as_array().unwrap();
    let mut asked = vec![
        "Dunlin, every core",
        "Dunlin, one address of three machines",
        "Dunlin, three machines, clients that know slots",
    ];
    if reference.is_some() {
        asked.extend(["1 valkey-server", "valkey-server's cluster of three"]);
    }
    for what in asked {
        let row = rows.iter().find(|row| row["what"].as_str().unwrap().starts_with(what));
        assert!(row.unwrap()["measured"][0].as_f64().unwrap() > 0.0, "{what}: {rows:?}");
    }
    // A run with errors would say so.
    assert_eq!(result["notes"].as_array().map_or(0, Vec::len), 0, "{}", result["notes"]);
    assert_left_clean(&directory);
}

#[test]
fn more_data_than_memory_are_measured_beside_all_in_memory() {
    let (directory, json, page) = (file("lab"), file("result.json"), file("page.html"));
    let line = arguments("flash", &directory);
    let files = format!("--json-out-file {} --report {}", json.display(), page.display());
    let output = bench(&format!("{line} --reference false --scale 0.0004 {files}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // There is no such reference server; what was measured before is reported all the same.
    assert_eq!(output.status.code(), Some(1), "{said}");
    let result: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let rows = result["experiment"]["rows"].as_array().unwrap();
    let figure = |what: &str| {
        let row = rows.iter().find(|row| row["what"] == what);
        row.unwrap_or_else(|| panic!("{what}: {rows:?}"))["measured"][0].as_f64().unwrap()
    };
    for server in ["Dunlin, all in RAM", "Dunlin, tier", "Dunlin, tier, replica"] {
        for step in ["fill", "prime", "mixed"] {
            assert!(figure(&format!("{step}: {server}")) > 0.0);
        }
        let at_client = figure(&format!("mixed: {server}, at the client"));
        assert!(at_client > figure(&format!("mixed: {server}, in the server")));
    }
    assert!(figure("mixed: Dunlin, tier beside all in RAM") > 0.0);
    assert!(result["experiment"]["sizes"].as_str().unwrap().contains("220 requests"));
    let memory = result["experiment"]["memory"].as_array().unwrap();
    let servers: Vec<_> = memory.iter().map(|line| line["server"].as_str().unwrap()).collect();
    assert_eq!(servers, ["Dunlin, tier", "Dunlin, tier, replica"]);
    assert!(
        memory.iter().all(|line| line["readings"].as_array().unwrap().len() >= 3),
        "{memory:?}"
    );
    assert!(std::fs::read_to_string(&page).unwrap().contains("limit_bytes"));
    assert_left_clean(&directory);
    std::fs::remove_file(json).unwrap();
    std::fs::remove_file(page).unwrap();
}

#[test]
fn an_interrupted_experiment_leaves_nothing_behind() {
    for interrupts in [1, 2] {
        let directory = file("lab");
        // What a lab that was killed has left there goes too; that of a running process stays.
        std::fs::create_dir_all(directory.join("dunlin-experiment-999999999/7")).unwrap();
        let child = start(&arguments("flash", &directory));
        let lab = directory.join(format!("dunlin-experiment-{}", child.id()));
        let deadline = Instant::now() + Duration::from_secs(180);
        let serves = |log: &Path| std::fs::read_to_string(log).is_ok_and(|log| !log.is_empty());
        let logs = || std::fs::read_dir(&lab).into_iter().flatten().flatten().map(|log| log.path());
        while !logs().any(|log| log.extension().is_some_and(|kind| kind == "log") && serves(&log)) {
            assert!(Instant::now() < deadline, "no server was started");
            thread::sleep(Duration::from_millis(10));
        }
        for _ in 0..interrupts {
            signal(child.id(), "INT").unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{interrupts}: {said}");
        assert_left_clean(&directory);
    }
}

#[test]
fn more_threads_are_measured_beside_other_servers() {
    let (directory, json, page) = (file("lab"), file("result.json"), file("page.html"));
    let small = "--scale 0.001 --seconds 2 --clients 20 --most-threads 2 --reference false";
    let files = format!("--report {} --json-out-file {}", page.display(), json.display());
    let line = arguments("scaling", &directory);
    let mut words = crate::support::words(&format!("{line} {small} {files}"));
    let program = env!("CARGO_BIN_EXE_dunlin");
    let options = "--port {port} --unixsocket {socket} --dir {dir} --io-threads {threads}";
    words.extend(["--peer".into(), format!("again={program} server {options}")]);
    words.extend(["--peer".into(), "broken=/bin/false {port}".into()]);
    let output = crate::support::bench_words(&words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let text = std::fs::read_to_string(&json).unwrap();
    std::fs::remove_file(json).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    let experiment = &result["experiment"];
    let rows = experiment["rows"].as_array().unwrap();
    let servers = ["Dunlin", "again"];
    for (pipeline, threads) in
        [1, 10, 50].into_iter().flat_map(|p| [(p, "1 thread"), (p, "2 threads")])
    {
        for server in servers {
            let what = format!("pipeline {pipeline}, {threads}: {server}");
            let row =
                rows.iter().find(|row| row["what"] == what && row["unit"] == "CPU ns/request");
            let row = row.unwrap_or_else(|| panic!("{what}: {rows:?}"));
            assert!(row["measured"][0].as_f64().is_some_and(|ns| ns >= 0.0), "{row}");
            assert!(row["remark"].as_str().unwrap().starts_with("SET "), "{row}");
        }
    }
    // What cannot be started or is not installed is said, and no reason to end.
    let remark_of = |what: &str| {
        let row = rows.iter().find(|row| row["what"] == what);
        row.unwrap_or_else(|| panic!("{what}: {rows:?}"))["remark"].as_str().unwrap()
    };
    assert!(remark_of("broken, 1 thread").starts_with("did not start: "), "{rows:?}");
    let requests = |run: &Value| run["total"]["requests"].as_u64().unwrap();
    assert!(result["runs"].as_array().unwrap().iter().all(|run| requests(run) > 0));
    let curves = experiment["curves"].as_array().unwrap();
    let cpu = curves.iter().find(|curve| curve["title"] == "Server CPU per request, pipeline 10");
    let lines = cpu.unwrap()["lines"].as_array().unwrap();
    assert_eq!(lines[0]["name"], "Dunlin", "{lines:?}");
    assert!(lines.iter().any(|line| line["name"] == "again"), "{lines:?}");
    assert_eq!(lines[0]["points"].as_array().unwrap().len(), 2, "{lines:?}");
    // Each run has its cycles, or there is one reason why none has.
    let runs = result["runs"].as_array().unwrap();
    let counted = runs.iter().filter(|run| run["server_cost"]["cycles_per_request"].is_number());
    let notes: Vec<_> = result["notes"].as_array().unwrap().iter().collect();
    match counted.count() {
        0 => assert!(
            notes.len() == 1 && notes[0].as_str().unwrap().starts_with("no cycles per request: ")
        ),
        counted => assert_eq!((counted, notes.len()), (runs.len(), 0), "{notes:?}"),
    }
    let of_dunlin = runs.iter().filter(|run| run["name"].as_str().unwrap().contains("Dunlin"));
    assert_eq!(of_dunlin.count(), 2 * 3 * 2, "SET and GET, pipelines, threads");
    assert!(
        std::fs::read_to_string(&page).unwrap().contains("Server CPU per request, pipeline 10")
    );
    assert_left_clean(&directory);
    std::fs::remove_file(page).unwrap();
}

#[test]
fn a_server_of_an_unknown_kind_has_to_say_where_its_port_belongs() {
    let output = bench("experiment scaling --peer mine=/bin/true");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("{port}"));
}
