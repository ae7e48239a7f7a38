//! Measures what clients that come back all at once do to those that are there: `./test storm`.
//!
//!     storm [--clients N] [--seconds S] [--rounds N] [--through server|proxy|cluster] [--plain]
//!           [--storm-only | --values-only] [--apart] [-- SERVER-ARGUMENT…]
//!
//! Fifty connections send GET, each some milliseconds after its last reply. Beside them a process
//! (at a low priority, as it shares the cores of the server) has N connections by TLS, or plain
//! ones, that have logged in. It is killed, and another one opens as many at once. The latency of
//! the fifty is measured before, and from the kill until the last one is back; it is calm again
//! when the fifty's p99 is back within three times the quiet one for good. Beside it is the
//! processor time that the servers and the clients that came back took. Then connections that read
//! and write values of 10 MB, again of a process at a low priority, are measured by the latency of
//! the fifty. Then an operator asks another server, by `admin-socket` and by its admin port, while
//! eight connections keep all reactors busy with pipelines, and while a script has stopped the
//! world.
//!
//! All clients are connected to the server, or to `dunlin proxy` before it, or to a node of a
//! cluster that has no keys and forwards what it gets (one address).
//!
//! With `--apart` the server has one thread and the first processor to itself. All clients share
//! the second one. There the fifty, and on the first one the server, go before all others
//! (`SCHED_FIFO`, which needs root). What they measure is then the server alone.

use harness::client::{Client, encode, ok};
use harness::cluster::{Etcd, owner_and_entry};
use harness::info::number;
use harness::proxy::Proxy;
use harness::server::{Options, Program, Server, free_port};
use harness::stalls::histogram::Histogram;
use harness::tls::Authority;
use harness::way_in::{self, STOPS_THE_WORLD, Saturation, WayIn};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
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
/// Rounds of an operator's requests beside something.
const MAX_ROUNDS: usize = 500;
/// Connections that read or write long values, so many at a time.
const OF_VALUES: [usize; 2] = [1, 4];
const VALUE: usize = 10 << 20;
/// What they send or read at a time.
const PIECE: usize = 64 << 10;
/// What the columns are: the storm's p99 over the quiet one, the seconds until all were back and
/// until it was calm again, how often a client tried again, and processor time until all were back.
const HEAD: &str = "round   quiet p50    p99  p99.9    storm p50    p99  p99.9    max    \
                    p99 ×  back s  calm s  again  servers s  clients s";
/// How long it is measured when all are back.
const AFTER: Duration = Duration::from_secs(6);
/// A span whose p99 is looked at.
const SPAN: Duration = Duration::from_millis(250);
/// So many times the quiet p99 is calm.
const CALM: u64 = 3;

struct Arguments {
    clients: usize,
    seconds: f64,
    rounds: usize,
    is_apart: bool,
    is_plain: bool,
    through: Through,
    has_storm: bool,
    has_values: bool,
    server: Vec<String>,
}

/// What clients are connected to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    Server,
    Proxy,
    Cluster,
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
    let mut arguments = Arguments {
        clients: 2000,
        seconds: 3.0,
        rounds: 3,
        is_apart: false,
        is_plain: false,
        through: Through::Server,
        has_storm: true,
        has_values: true,
        server: Vec::new(),
    };
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
            "--plain" => arguments.is_plain = true,
            "--storm-only" => arguments.has_values = false,
            "--values-only" => arguments.has_storm = false,
            "--through" => {
                arguments.through = match words.next().as_deref() {
                    Some("server") => Through::Server,
                    Some("proxy") => Through::Proxy,
                    Some("cluster") => Through::Cluster,
                    _ => return Err(format!("{word} needs server, proxy or cluster")),
                }
            }
            "--" => arguments.server.extend(words.by_ref()),
            _ => return Err(format!("unknown word {word}")),
        }
    }
    Ok(arguments)
}

// ---- the clients that come back ------------------------------------------------------------

/// What clients by TLS trust: the certificate in a file. `-` is for plain connections.
fn trusting(authority: &str) -> Result<Option<Arc<ClientConfig>>, String> {
    if authority == "-" {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority).map_err(|why| why.to_string())?;
    roots.add(certificate).map_err(|why| why.to_string())?;
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|why| why.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
    Ok(Some(Arc::new(config)))
}

/// Opens connections until all have been answered, says how long that took, and keeps them.
fn come(port: u16, authority: &str, clients: usize) -> Result<(), String> {
    let began = Instant::now();
    let config = trusting(authority)?;
    let retries = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (config, retries) = (config.clone(), Arc::clone(&retries));
            let share = clients / THREADS + usize::from(number < clients % THREADS);
            thread::spawn(move || come_together(port, config.as_ref(), share, &retries))
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

/// A client's end of a connection.
enum Connection {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// All say hello before the first is waited for.
fn come_together(
    port: u16,
    config: Option<&Arc<ClientConfig>>,
    clients: usize,
    retries: &AtomicUsize,
) -> Vec<Connection> {
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

/// Sends the first bytes: a handshake's, or AUTH.
fn hello(port: u16, config: Option<&Arc<ClientConfig>>) -> io::Result<Connection> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let Some(config) = config else {
        stream.write_all(&encode(&["AUTH", PASSWORD]))?;
        return Ok(Connection::Plain(stream));
    };
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    Ok(Connection::Encrypted(Box::new(StreamOwned::new(session, stream))))
}

fn log_in(mut connection: Connection) -> io::Result<Connection> {
    let mut reply = [0; 5];
    match &mut connection {
        Connection::Plain(stream) => stream.read_exact(&mut reply)?,
        Connection::Encrypted(stream) => {
            stream.write_all(&encode(&["AUTH", PASSWORD]))?;
            stream.read_exact(&mut reply)?;
        }
    }
    if &reply == b"+OK\r\n" { Ok(connection) } else { Err(io::Error::other("refused")) }
}

// ---- the clients with long values ------------------------------------------------------------

/// Bytes of the reply `+OK`.
const DONE: usize = 5;

/// Sends a request and reads a reply of so many bytes, a piece at a time: where the kernel is not
/// preempted, no other client has the processor before a call has copied all of its bytes.
fn exchange(stream: &mut TcpStream, request: &[u8], reply: usize) -> io::Result<()> {
    request.chunks(PIECE).try_for_each(|piece| stream.write_all(piece))?;
    let (mut left, mut room) = (reply, vec![0; PIECE]);
    while left > 0 {
        let most = left.min(PIECE);
        match stream.read(&mut room[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left -= read,
        }
    }
    Ok(())
}

/// Reads and writes long values until it is killed. Says so when each connection has moved one.
fn move_values(port: u16, connections: usize) -> Result<(), String> {
    let moved = Arc::new(Barrier::new(connections + 1));
    for number in 0..connections {
        let moved = Arc::clone(&moved);
        thread::spawn(move || -> io::Result<()> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            exchange(&mut stream, &encode(&["AUTH", PASSWORD]), DONE)?;
            let (key, value) = (format!("value:{number}"), "x".repeat(VALUE));
            let (set, get) = (encode(&["SET", &key, &value]), encode(&["GET", &key]));
            exchange(&mut stream, &set, DONE)?;
            moved.wait();
            loop {
                match number.is_multiple_of(2) {
                    true => exchange(&mut stream, &get, format!("${VALUE}").len() + 4 + VALUE)?,
                    false => exchange(&mut stream, &set, DONE)?,
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
    /// The connections that have logged in.
    fn start(front: &Front, arguments: &Arguments) -> io::Result<Crowd> {
        let (port, authority) = match arguments.is_plain {
            true => (front.port, "-".to_owned()),
            false => (front.tls_port, front.authority.path("ca.crt")),
        };
        let clients = arguments.clients.to_string();
        Crowd::run(&["as-clients", &port.to_string(), &authority, &clients])
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

/// What the fifty measure now: nothing, the quiet time, the storm (or the long values), and what
/// comes when it is over.
const NOTHING: u8 = 0;
const QUIET: u8 = 1;
const STORM: u8 = 2;
const BEHIND: u8 = 3;
const END: u8 = 4;

/// The fifty.
struct Old {
    phase: Arc<AtomicU8>,
    threads: Vec<thread::JoinHandle<io::Result<Seen>>>,
}

/// What one of them has seen, or all together.
#[derive(Default)]
struct Seen {
    quiet: Histogram,
    storm: Histogram,
    /// When requests since the storm began were sent, and the microseconds that each took.
    since: Vec<(Instant, u64)>,
}

impl Seen {
    fn note(&mut self, phase: u8, began: Instant) {
        let us = began.elapsed().as_micros() as u64;
        match phase {
            QUIET => self.quiet.record(us),
            STORM => {
                self.storm.record(us);
                self.since.push((began, us));
            }
            BEHIND => self.since.push((began, us)),
            _ => {}
        }
    }

    /// The seconds from the beginning of the storm until spans are calm for good. `None`: the last
    /// one that was measured is not.
    fn calm(&self, began: Instant) -> Option<f64> {
        let limit = CALM * self.quiet.quantile_us(0.99);
        let mut spans: Vec<Histogram> = Vec::new();
        for (sent, us) in &self.since {
            let span = (sent.duration_since(began).as_micros() / SPAN.as_micros()) as usize;
            if spans.len() <= span {
                spans.resize_with(span + 1, Histogram::default);
            }
            spans[span].record(*us);
        }
        let is_wild = |span: &Histogram| span.total() > 0 && span.quantile_us(0.99) > limit;
        let wild = spans.iter().rposition(is_wild).map_or(0, |last| last + 1);
        (wild < spans.len()).then(|| wild as f64 * SPAN.as_secs_f64())
    }
}

impl Old {
    fn start(front: &Front, is_apart: bool) -> io::Result<Old> {
        let phase = Arc::new(AtomicU8::new(NOTHING));
        let mut threads = Vec::new();
        for number in 0..OLD_CLIENTS {
            let mut client = front.client()?;
            let phase = Arc::clone(&phase);
            threads.push(thread::spawn(move || {
                let mut seen = Seen::default();
                // Not all at the same time.
                thread::sleep(PAUSE * number as u32 / OLD_CLIENTS as u32);
                loop {
                    let now = phase.load(SeqCst);
                    if now == END {
                        return Ok(seen);
                    }
                    let began = Instant::now();
                    client.command(&["GET", "key"])?;
                    seen.note(now, began);
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
    fn quiet(front: &Front, arguments: &Arguments) -> io::Result<Old> {
        let old = Old::start(front, arguments.is_apart)?;
        thread::sleep(Duration::from_millis(300));
        old.phase.store(QUIET, SeqCst);
        thread::sleep(Duration::from_secs_f64(arguments.seconds));
        Ok(old)
    }

    fn end(self) -> io::Result<Seen> {
        self.phase.store(END, SeqCst);
        let mut sum = Seen::default();
        for thread in self.threads {
            let seen = thread.join().map_err(|_| io::Error::other("a client panicked"))??;
            sum.quiet.merge(&seen.quiet);
            sum.storm.merge(&seen.storm);
            sum.since.extend(seen.since);
        }
        Ok(sum)
    }
}

// ---- what they are connected to ------------------------------------------------------------

/// What clients are connected to, and the processes that serve them. What is first ends first.
struct Front {
    port: u16,
    tls_port: u16,
    processes: Vec<u32>,
    proxy: Option<Proxy>,
    /// The last one has the data.
    servers: Vec<Server>,
    authority: Authority,
    _etcd: Option<Etcd>,
}

impl Front {
    fn start(arguments: &Arguments) -> io::Result<Front> {
        let authority = Authority::new("storm");
        authority.sign("server");
        let tls_port = free_port()?;
        let of_tls = authority.options(tls_port, "server");
        let mut options: Vec<String> =
            ["--save", "", "--admin-socket", "operators.socket", "--maxclients", "30000"]
                .map(str::to_owned)
                .to_vec();
        if arguments.is_apart {
            options.extend(["--io-threads", "1"].map(str::to_owned));
        }
        options.extend(arguments.server.iter().cloned());
        let mut front = match arguments.through {
            Through::Server => Front::server(authority, &[options, of_tls].concat())?,
            Through::Proxy => Front::proxy(authority, tls_port, &options)?,
            Through::Cluster => Front::cluster(authority, &options, &of_tls)?,
        };
        front.tls_port = tls_port;
        front.processes = front.servers.iter().map(Server::process_id).collect();
        front.processes.extend(front.proxy.as_ref().map(Proxy::process_id));
        Ok(front)
    }

    fn of(authority: Authority, servers: Vec<Server>) -> Front {
        let port = servers[0].port();
        let (processes, proxy, _etcd) = (Vec::new(), None, None);
        Front { port, tls_port: 0, processes, proxy, servers, authority, _etcd }
    }

    fn server(authority: Authority, options: &[String]) -> io::Result<Front> {
        let with_password = [options, &["--requirepass".to_owned(), PASSWORD.to_owned()]].concat();
        let server = Server::start(&Program::under_test(), Options::arguments(&with_password))?;
        Ok(Front::of(authority, vec![server]))
    }

    /// The proxy has the listeners, and asks for the password.
    fn proxy(authority: Authority, tls_port: u16, options: &[String]) -> io::Result<Front> {
        let mut front = Front::server(authority, options)?;
        let (server, port) = (&front.servers[0], free_port()?);
        let text = format!(
            "[pool.main]\nkind = \"single\"\nlisten = [\"127.0.0.1:{port}\"]\n\
             listen_tls = [\"127.0.0.1:{tls_port}\"]\nserver = \"{}\"\n\
             password = \"{PASSWORD}\"\nclient_password = \"{PASSWORD}\"\n\
             [pool.main.tls]\ncert_file = {:?}\nkey_file = {:?}\n",
            server.address(),
            front.authority.path("server.crt"),
            front.authority.path("server.key"),
        );
        let file = server.directory().join("proxy.toml");
        front.proxy = Some(Proxy::run(&Program::under_test(), &file, port, &text));
        front.port = port;
        Ok(front)
    }

    /// A node that has no keys comes first.
    fn cluster(authority: Authority, options: &[String], of_tls: &[String]) -> io::Result<Front> {
        let etcd = Etcd::start("storm");
        let mut words: Vec<&str> = options.iter().map(String::as_str).collect();
        words.extend(["--masterauth", PASSWORD]);
        let [owner, entry] = owner_and_entry(&etcd, &words);
        let mut client = entry.client();
        let set: Vec<&str> = of_tls.iter().map(|word| word.trim_start_matches("--")).collect();
        ok(&mut client, &[&["CONFIG", "SET"][..], &set].concat()[..]);
        for server in [&owner, &entry] {
            ok(&mut server.client(), &["CONFIG", "SET", "requirepass", PASSWORD]);
        }
        let mut front = Front::of(authority, vec![entry, owner]);
        front._etcd = Some(etcd);
        Ok(front)
    }

    /// A client of the port without TLS that has logged in.
    fn client(&self) -> io::Result<Client> {
        let mut client = Client::connect((Ipv4Addr::LOCALHOST, self.port).into())?;
        ok(&mut client, &["AUTH", PASSWORD]);
        Ok(client)
    }

    /// An operator of the server that clients are connected to, or that is behind the proxy.
    fn operator(&self) -> io::Result<Client> {
        let mut operator = Client::unix(&self.servers[0].directory().join("operators.socket"))?;
        ok(&mut operator, &["AUTH", PASSWORD]);
        Ok(operator)
    }

    /// The processor time that its processes have taken, in seconds.
    fn processor_seconds(&self) -> io::Result<f64> {
        self.processes.iter().map(|&id| processor_seconds(id)).sum()
    }
}

/// The processor time that a process has taken, in seconds.
fn processor_seconds(process: u32) -> io::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name before may have blanks in it. What is behind it are the state and eleven numbers.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind.split_whitespace().skip(11).take(2).map(|field| field.parse::<f64>());
    let ticks: f64 = ticks.sum::<Result<f64, _>>().map_err(io::Error::other)?;
    // A tick is a hundredth on every architecture that Linux has.
    Ok(ticks / 100.0)
}

fn own_id() -> String {
    std::process::id().to_string()
}

fn run_tool(name: &str, words: &[&str]) -> io::Result<()> {
    let output = Command::new(name).args(words).output()?;
    let failed = || format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    output.status.success().then_some(()).ok_or_else(|| io::Error::other(failed()))
}

/// Gives a process the first core, and lets it go before all others there.
fn set_apart(process: u32) -> io::Result<()> {
    let id = process.to_string();
    run_tool("taskset", &["--all-tasks", "--cpu-list", "--pid", "0", &id])?;
    run_tool("chrt", &["--all-tasks", "--fifo", "--pid", "5", &id])
}

/// The milliseconds that a share of the requests took at most.
fn ms(seen: &Histogram, share: f64) -> f64 {
    seen.quantile_us(share) as f64 / 1000.0
}

fn measure(arguments: &Arguments) -> io::Result<()> {
    if arguments.is_apart {
        run_tool("taskset", &["--all-tasks", "--cpu-list", "--pid", "1", &own_id()])?;
    }
    let front = Front::start(arguments)?;
    if arguments.is_apart {
        front.processes.iter().try_for_each(|&id| set_apart(id))?;
    }
    if arguments.has_storm {
        storms(&front, arguments)?;
    }
    if !arguments.has_values {
        return Ok(());
    }
    for connections in OF_VALUES {
        beside_values(&front, connections, arguments)?;
    }
    ask_beside_others(arguments)
}

/// Has the clients come back, round after round.
fn storms(front: &Front, arguments: &Arguments) -> io::Result<()> {
    let how = if arguments.is_plain { "without TLS" } else { "by TLS" };
    println!("{} clients {how}; milliseconds, of {OLD_CLIENTS} old clients", arguments.clients);
    println!("{HEAD}");
    let mut crowd = Crowd::start(front, arguments)?;
    crowd.settled()?;
    for round in 1..=arguments.rounds {
        let old = Old::quiet(front, arguments)?;
        let (began, before) = (Instant::now(), front.processor_seconds()?);
        old.phase.store(STORM, SeqCst);
        drop(crowd);
        crowd = Crowd::start(front, arguments)?;
        let back = crowd.settled()?;
        old.phase.store(BEHIND, SeqCst);
        let of_servers = front.processor_seconds()? - before;
        let of_clients = processor_seconds(crowd.0.id())?;
        thread::sleep(AFTER);
        let seen = old.end()?;
        let Seen { quiet, storm, .. } = &seen;
        let calm = seen.calm(began).map_or("never".to_owned(), |calm| format!("{calm:.2}"));
        let (seconds, again) = back.split_once(' ').unwrap_or((&back, "?"));
        println!(
            "{round:>5}   {:>9.2} {:>6.2} {:>6.2}    {:>9.2} {:>6.2} {:>6.2} {:>6.1}    {:>5.1}  \
             {seconds:>6}  {calm:>6}  {again:>5}  {of_servers:>9.2}  {of_clients:>9.2}",
            ms(quiet, 0.5),
            ms(quiet, 0.99),
            ms(quiet, 0.999),
            ms(storm, 0.5),
            ms(storm, 0.99),
            ms(storm, 0.999),
            storm.longest_us() as f64 / 1000.0,
            ms(storm, 0.99) / ms(quiet, 0.99),
        );
    }
    drop(crowd);
    let refused = number(&mut front.operator()?, "tls_handshakes_refused");
    println!("handshakes refused: {refused}");
    Ok(())
}

/// Measures the fifty while other connections read and write long values.
fn beside_values(front: &Front, connections: usize, arguments: &Arguments) -> io::Result<()> {
    let mut own = front.operator()?;
    let bytes = |own: &mut Client| {
        number(own, "total_net_input_bytes") + number(own, "total_net_output_bytes")
    };
    let old = Old::quiet(front, arguments)?;
    old.phase.store(NOTHING, SeqCst);
    let port = front.port.to_string();
    let mut crowd = Crowd::run(&["as-values", &port, &connections.to_string()])?;
    crowd.settled()?;
    let (before, began) = (bytes(&mut own), Instant::now());
    let (of_servers, of_clients) = (front.processor_seconds()?, processor_seconds(crowd.0.id())?);
    old.phase.store(STORM, SeqCst);
    thread::sleep(Duration::from_secs_f64(arguments.seconds));
    let moved = (bytes(&mut own) - before) as f64 / began.elapsed().as_secs_f64();
    let of_servers = front.processor_seconds()? - of_servers;
    let of_clients = processor_seconds(crowd.0.id())? - of_clients;
    let Seen { quiet, storm: beside, .. } = &old.end()?;
    println!(
        "beside {connections} with values of 10 MB ({:.0} MB/s): p50 {:.2} ms (quiet {:.2}), \
         p99 {:.2} ({:.2}), p99.9 {:.2} ({:.2}), which is {:.1} ×; longest {:.1}; \
         processors: servers {of_servers:.1} s, these clients {of_clients:.1} s",
        moved / 1e6,
        ms(beside, 0.5),
        ms(quiet, 0.5),
        ms(beside, 0.99),
        ms(quiet, 0.99),
        ms(beside, 0.999),
        ms(quiet, 0.999),
        ms(beside, 0.999) / ms(quiet, 0.999),
        beside.longest_us() as f64 / 1000.0,
    );
    Ok(())
}

/// Has an operator ask a server without TLS while pipelines keep its reactors busy, and while a
/// script has stopped the world.
fn ask_beside_others(arguments: &Arguments) -> io::Result<()> {
    let mut words = vec!["--admin-socket", "operators.socket", "--requirepass", PASSWORD];
    words.extend(arguments.server.iter().map(String::as_str));
    words.extend(arguments.is_apart.then_some(["--io-threads", "1"]).into_iter().flatten());
    let (server, admin_port) = Server::with_admin_port(&words);
    if arguments.is_apart {
        set_apart(server.process_id())?;
    }
    let connect = || -> io::Result<Client> {
        let mut client = Client::connect(server.address())?;
        ok(&mut client, &["AUTH", PASSWORD]);
        Ok(client)
    };
    let path = server.directory().join("operators.socket");
    // Two are closed in each round, beside pipelines and beside a script.
    let victims = (0..4 * MAX_ROUNDS).map(|_| connect());
    let mut way_in = WayIn::open(&path, admin_port, PASSWORD, victims)?;
    let clients = (0..BUSY_CLIENTS).map(|_| connect()).collect::<io::Result<_>>()?;
    let saturation = Saturation::begin(clients);
    ask_operators(&format!("{BUSY_CLIENTS} pipelines"), &mut way_in, arguments.seconds)?;
    saturation.end()?;
    let connect = || connect().expect("the server takes connections");
    let (mut running, _waiting) = way_in::stop_the_world(connect, STOPS_THE_WORLD);
    ask_operators("a script", &mut way_in, arguments.seconds)?;
    ok(way_in.socket(), "SCRIPT KILL");
    running.reply()?;
    Ok(())
}

/// Prints how long each of the operators' requests takes, for so many seconds.
fn ask_operators(beside: &str, way_in: &mut WayIn, seconds: f64) -> io::Result<()> {
    let mut seen: BTreeMap<&str, Histogram> = BTreeMap::new();
    let began = Instant::now();
    let mut rounds = 0;
    while began.elapsed().as_secs_f64() < seconds && rounds < MAX_ROUNDS {
        way_in.ask_all(&mut |name, took| {
            seen.entry(name).or_default().record(took.as_micros() as u64);
        })?;
        rounds += 1;
        thread::sleep(Duration::from_millis(20));
    }
    println!("operator beside {beside}: {rounds} rounds; ms   p50    p99    longest");
    for (name, seen) in &seen {
        println!(
            "  {name:<30} {:>6.2} {:>6.2} {:>6.2}",
            ms(seen, 0.5),
            ms(seen, 0.99),
            seen.longest_us() as f64 / 1000.0,
        );
    }
    Ok(())
}
