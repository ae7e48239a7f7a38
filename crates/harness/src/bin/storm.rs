//! Measures what clients that come back all at once do to those that are there: `./test storm`.
//!
//!     storm [--clients N] [--seconds S] [--rounds N] [--apart] [-- SERVER-ARGUMENT…]
//!
//! Fifty connections send GET, each some milliseconds after its last reply. Beside them a process
//! (at a low priority, as it shares the cores of the server) has N connections by TLS that
//! have logged in. It is killed, and another one opens as many at once. The latency of the fifty is
//! measured before, and from the kill until the last one is back. Then connections that read and
//! write values of 10 MB, again of a process at a low priority, are measured by the latency of the
//! fifty. Then eight connections keep all reactors busy with pipelines, and an operator asks by
//! `admin-socket`.
//!
//! With `--apart` the server has one thread and the first processor to itself. All clients share
//! the second one, and there the fifty go before all others (`SCHED_FIFO`, which needs root). What
//! they measure is then the server alone.

use harness::client::{Client, encode, ok};
use harness::info::number;
use harness::server::{Options, Program, Server, free_port};
use harness::stalls::histogram::Histogram;
use harness::tls::Authority;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const OLD_CLIENTS: usize = 50;
/// Between a reply to one of them and its next request.
const PAUSE: Duration = Duration::from_millis(4);
const PASSWORD: &str = "secret";
/// Threads of the process whose connections are killed.
const THREADS: usize = 8;
/// A client that is not let in by then begins again, as most do.
const TIMEOUT: Duration = Duration::from_secs(5);
const BUSY_CLIENTS: usize = 8;
/// Connections that read or write long values, so many at a time.
const OF_VALUES: [usize; 2] = [1, 4];
const VALUE: usize = 10 << 20;
/// What the columns are: the storm's p99 over the quiet one, the seconds until all were back, and
/// how often one of them tried again.
const HEAD: &str = "round   quiet p50    p99  p99.9    storm p50    p99  p99.9    max    \
                    p99 ×  back s  again";

struct Arguments {
    clients: usize,
    seconds: f64,
    rounds: usize,
    is_apart: bool,
    server: Vec<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match &words[..] {
        [mode, port, authority, clients] if mode == "as-clients" => {
            match (port.parse(), clients.parse()) {
                (Ok(port), Ok(clients)) => come(port, authority, clients),
                _ => Err("as-clients PORT CERTIFICATE NUMBER".to_owned()),
            }
        }
        [mode, port, connections] if mode == "as-values" => {
            match (port.parse(), connections.parse()) {
                (Ok(port), Ok(connections)) => move_values(port, connections),
                _ => Err("as-values PORT NUMBER".to_owned()),
            }
        }
        _ => parse(words).and_then(|arguments| {
            measure(&arguments).map_err(|error| format!("the measurement failed: {error}"))
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: Vec<String>) -> Result<Arguments, String> {
    let mut arguments =
        Arguments { clients: 2000, seconds: 3.0, rounds: 3, is_apart: false, server: Vec::new() };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let value = |next: Option<String>| next.ok_or_else(|| format!("{word} needs a number"));
        let bad = |_| format!("{word} needs a number");
        match word.as_str() {
            "--clients" => arguments.clients = value(words.next())?.parse().map_err(bad)?,
            "--rounds" => arguments.rounds = value(words.next())?.parse().map_err(bad)?,
            "--seconds" => {
                let text = value(words.next())?;
                arguments.seconds = text.parse().map_err(|_| format!("{word} needs a number"))?;
            }
            "--apart" => arguments.is_apart = true,
            "--" => arguments.server.extend(words.by_ref()),
            _ => return Err(format!("unknown word {word}")),
        }
    }
    Ok(arguments)
}

// ---- the clients that come back ------------------------------------------------------------

/// Opens connections until all have been answered, says how long that took, and keeps them.
fn come(port: u16, authority: &str, clients: usize) -> Result<(), String> {
    let began = Instant::now();
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority).map_err(|why| why.to_string())?;
    roots.add(certificate).map_err(|why| why.to_string())?;
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|why| why.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
    let config = Arc::new(config);
    let retries = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (config, retries) = (Arc::clone(&config), Arc::clone(&retries));
            let share = clients / THREADS + usize::from(number < clients % THREADS);
            thread::spawn(move || come_together(port, &config, share, &retries))
        })
        .collect();
    let kept: Vec<_> = threads.into_iter().flat_map(|thread| thread.join()).collect();
    println!("{:.3} {}", began.elapsed().as_secs_f64(), retries.load(SeqCst));
    until_killed();
    drop(kept);
    Ok(())
}

/// Waits until the process is killed, or the one that started it has ended.
fn until_killed() {
    let _ = io::stdin().read(&mut [0]);
}

type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// All say hello before the first is waited for.
fn come_together(
    port: u16,
    config: &Arc<ClientConfig>,
    clients: usize,
    retries: &AtomicUsize,
) -> Vec<Encrypted> {
    let mut waiting: Vec<_> = (0..clients).map(|_| hello(port, config)).collect();
    let mut done = Vec::new();
    while let Some(opened) = waiting.pop() {
        match opened.and_then(log_in) {
            Ok(connection) => done.push(connection),
            Err(_) => {
                retries.fetch_add(1, SeqCst);
                thread::sleep(Duration::from_millis(20));
                waiting.insert(0, hello(port, config));
            }
        }
    }
    done
}

fn hello(port: u16, config: &Arc<ClientConfig>) -> io::Result<Encrypted> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    Ok(StreamOwned::new(session, stream))
}

fn log_in(mut connection: Encrypted) -> io::Result<Encrypted> {
    connection.write_all(&encode(&["AUTH", PASSWORD]))?;
    let mut reply = [0; 5];
    connection.read_exact(&mut reply)?;
    Ok(connection)
}

// ---- the clients with long values ------------------------------------------------------------

/// Reads and writes long values until it is killed. Says so when each connection has moved one.
fn move_values(port: u16, connections: usize) -> Result<(), String> {
    let moved = Arc::new(Barrier::new(connections + 1));
    for number in 0..connections {
        let moved = Arc::clone(&moved);
        thread::spawn(move || -> io::Result<()> {
            let mut client = Client::connect((Ipv4Addr::LOCALHOST, port).into())?;
            ok(&mut client, &["AUTH", PASSWORD]);
            let (key, value) = (format!("value:{number}"), "x".repeat(VALUE));
            let set = ["SET", &key, &value];
            client.command(&set)?;
            moved.wait();
            loop {
                if number.is_multiple_of(2) {
                    client.command(&["GET", &key])?;
                } else {
                    client.command(&set)?;
                }
            }
        });
    }
    moved.wait();
    println!("moved");
    until_killed();
    Ok(())
}

// ---- the measurement -----------------------------------------------------------------------

/// A process with other clients, which is killed. It has a low priority.
struct Crowd(Child);

impl Crowd {
    /// The connections by TLS.
    fn start(port: u16, authority: &Authority, clients: usize) -> io::Result<Crowd> {
        let authority = authority.path("ca.crt");
        Crowd::run(&["as-clients", &port.to_string(), &authority, &clients.to_string()])
    }

    fn run(words: &[&str]) -> io::Result<Crowd> {
        // As other processes are, whatever this one is.
        let mut command = Command::new("chrt");
        command.args(["--other", "0", "nice", "-n", "10"]);
        command.arg(std::env::current_exe()?).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Crowd)
    }

    /// Waits until all are connected. Returns what the process says then: the seconds that took,
    /// and how many tried again.
    fn settled(&mut self) -> io::Result<String> {
        let mut line = String::new();
        let output = self.0.stdout.as_mut().ok_or_else(|| io::Error::other("no output"))?;
        BufReader::new(output).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the fifty measure now: nothing, the quiet time, the storm (or the long values).
const NOTHING: u8 = 0;
const QUIET: u8 = 1;
const STORM: u8 = 2;

struct Old {
    phase: Arc<AtomicU8>,
    threads: Vec<thread::JoinHandle<io::Result<[Histogram; 2]>>>,
}

const END: u8 = 3;

impl Old {
    fn start(server: &Server, is_apart: bool) -> io::Result<Old> {
        let phase = Arc::new(AtomicU8::new(NOTHING));
        let mut threads = Vec::new();
        for number in 0..OLD_CLIENTS {
            let mut client = server.connect(harness::reply::Protocol::Resp2)?;
            ok(&mut client, &["AUTH", PASSWORD]);
            let phase = Arc::clone(&phase);
            threads.push(thread::spawn(move || {
                let mut seen = [Histogram::default(), Histogram::default()];
                // Not all at the same time.
                thread::sleep(PAUSE * number as u32 / OLD_CLIENTS as u32);
                loop {
                    let now = phase.load(SeqCst);
                    if now == END {
                        return Ok(seen);
                    }
                    let began = Instant::now();
                    client.command(&["GET", "key"])?;
                    if now != NOTHING {
                        let us = began.elapsed().as_micros() as u64;
                        seen[usize::from(now - QUIET)].record(us);
                    }
                    thread::sleep(PAUSE);
                }
            }));
        }
        if is_apart {
            run_tool("chrt", &["--all-tasks", "--fifo", "--pid", "10", &own_id()])?;
        }
        Ok(Old { phase, threads })
    }

    /// Starts them, and measures the quiet time.
    fn quiet(server: &Server, arguments: &Arguments) -> io::Result<Old> {
        let old = Old::start(server, arguments.is_apart)?;
        thread::sleep(Duration::from_millis(300));
        old.phase.store(QUIET, SeqCst);
        thread::sleep(Duration::from_secs_f64(arguments.seconds));
        Ok(old)
    }

    fn end(self) -> io::Result<[Histogram; 2]> {
        self.phase.store(END, SeqCst);
        let mut sum = [Histogram::default(), Histogram::default()];
        for thread in self.threads {
            let seen = thread.join().map_err(|_| io::Error::other("a client panicked"))??;
            sum[0].merge(&seen[0]);
            sum[1].merge(&seen[1]);
        }
        Ok(sum)
    }
}

fn own_id() -> String {
    std::process::id().to_string()
}

fn run_tool(name: &str, words: &[&str]) -> io::Result<()> {
    let output = Command::new(name).args(words).output()?;
    let failed = || format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    output.status.success().then_some(()).ok_or_else(|| io::Error::other(failed()))
}

/// The milliseconds that a share of the requests took at most.
fn ms(seen: &Histogram, share: f64) -> f64 {
    seen.quantile_us(share) as f64 / 1000.0
}

fn measure(arguments: &Arguments) -> io::Result<()> {
    let authority = Authority::new("storm");
    authority.sign("server");
    let tls_port = free_port()?;
    let mut options = authority.options(tls_port, "server");
    let more = ["--requirepass", PASSWORD, "--save", "", "--admin-socket", "operators.socket"];
    options.extend(more.iter().map(|&word| word.to_owned()));
    if arguments.is_apart {
        options.extend(["--io-threads", "1"].map(str::to_owned));
        run_tool("taskset", &["--all-tasks", "--cpu-list", "--pid", "1", &own_id()])?;
    }
    options.extend(arguments.server.iter().cloned());
    let server = Server::start(&Program::under_test(), Options::arguments(&options))?;
    if arguments.is_apart {
        let id = server.process_id().to_string();
        run_tool("taskset", &["--all-tasks", "--cpu-list", "--pid", "0", &id])?;
    }
    println!("{} clients by TLS; milliseconds, of {OLD_CLIENTS} old clients", arguments.clients);
    println!("{HEAD}");
    let mut crowd = Crowd::start(tls_port, &authority, arguments.clients)?;
    crowd.settled()?;
    for round in 1..=arguments.rounds {
        let old = Old::quiet(&server, arguments)?;
        old.phase.store(STORM, SeqCst);
        drop(crowd);
        crowd = Crowd::start(tls_port, &authority, arguments.clients)?;
        let back = crowd.settled()?;
        let [quiet, storm] = old.end()?;
        let (seconds, again) = back.split_once(' ').unwrap_or((&back, "?"));
        println!(
            "{round:>5}   {:>9.2} {:>6.2} {:>6.2}    {:>9.2} {:>6.2} {:>6.2} {:>6.1}    {:>5.1}  \
             {seconds:>6}  {again:>5}",
            ms(&quiet, 0.5),
            ms(&quiet, 0.99),
            ms(&quiet, 0.999),
            ms(&storm, 0.5),
            ms(&storm, 0.99),
            ms(&storm, 0.999),
            storm.longest_us() as f64 / 1000.0,
            ms(&storm, 0.99) / ms(&quiet, 0.99),
        );
    }
    drop(crowd);
    let mut operator = Client::unix(&server.directory().join("operators.socket"))?;
    ok(&mut operator, &["AUTH", PASSWORD]);
    println!("handshakes refused: {}", number(&mut operator, "tls_handshakes_refused"));
    for connections in OF_VALUES {
        beside_values(&server, connections, arguments)?;
    }
    ask_beside_pipelines(&server, &mut operator, arguments.seconds)
}

/// Measures the fifty while other connections read and write long values.
fn beside_values(server: &Server, connections: usize, arguments: &Arguments) -> io::Result<()> {
    let mut own = server.client();
    ok(&mut own, &["AUTH", PASSWORD]);
    let bytes = |own: &mut Client| {
        number(own, "total_net_input_bytes") + number(own, "total_net_output_bytes")
    };
    let old = Old::quiet(server, arguments)?;
    old.phase.store(NOTHING, SeqCst);
    let port = server.port().to_string();
    let mut crowd = Crowd::run(&["as-values", &port, &connections.to_string()])?;
    crowd.settled()?;
    let (before, began) = (bytes(&mut own), Instant::now());
    old.phase.store(STORM, SeqCst);
    thread::sleep(Duration::from_secs_f64(arguments.seconds));
    let moved = (bytes(&mut own) - before) as f64 / began.elapsed().as_secs_f64();
    let [quiet, beside] = old.end()?;
    println!(
        "beside {connections} with values of 10 MB ({:.0} MB/s): p50 {:.2} ms (quiet {:.2}), \
         p99 {:.2} ({:.2}), p99.9 {:.2} ({:.2}), which is {:.1} ×; longest {:.1}",
        moved / 1e6,
        ms(&beside, 0.5),
        ms(&quiet, 0.5),
        ms(&beside, 0.99),
        ms(&quiet, 0.99),
        ms(&beside, 0.999),
        ms(&quiet, 0.999),
        ms(&beside, 0.999) / ms(&quiet, 0.999),
        beside.longest_us() as f64 / 1000.0,
    );
    Ok(())
}

/// Has an operator ask while pipelines keep the reactors busy.
fn ask_beside_pipelines(server: &Server, operator: &mut Client, seconds: f64) -> io::Result<()> {
    let ends = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..BUSY_CLIENTS)
        .map(|_| {
            let mut client = server.client();
            ok(&mut client, &["AUTH", PASSWORD]);
            let ends = Arc::clone(&ends);
            thread::spawn(move || -> io::Result<()> {
                let pipeline = encode(&["INCR", "number"]).repeat(1000);
                while !ends.load(SeqCst) {
                    client.send_raw(&pipeline)?;
                    for _ in 0..1000 {
                        client.reply()?;
                    }
                }
                Ok(())
            })
        })
        .collect();
    let mut seen = Histogram::default();
    let began = Instant::now();
    while began.elapsed().as_secs_f64() < seconds {
        for request in [&["PING"][..], &["INFO"], &["CLIENT", "LIST"], &["CONFIG", "GET", "*"]] {
            let asked = Instant::now();
            operator.command(request)?;
            seen.record(asked.elapsed().as_micros() as u64);
            thread::sleep(Duration::from_millis(2));
        }
    }
    ends.store(true, SeqCst);
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a client panicked"))??;
    }
    println!(
        "operator beside {BUSY_CLIENTS} pipelines: {} requests, p50 {:.2} ms, p99 {:.2} ms, \
         longest {:.2} ms",
        seen.total(),
        ms(&seen, 0.5),
        ms(&seen, 0.99),
        seen.longest_us() as f64 / 1000.0,
    );
    Ok(())
}
