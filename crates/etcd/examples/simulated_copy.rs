//! A copy without data, for figures of clusters that are too large for one machine: its lease, role and
//! promotions are a server's, at the real etcd; to clients it only says that it is there.
//!
//! `dunlin node` starts it in the place of servers if `DUNLIN_COPY_PROGRAM` names it, as
//! `simulated_copy server dunlin.conf` in the copy's directory. See `tests/cluster many`.

use client::Renewed;
use cluster::Moment;
use cluster::copy::{Action, Copy, Facts, Role, Settings};
use cluster::driver::Driver;
use cluster::id::{Epoch, Id, Incarnation, Position};
use cluster::topology::{Address, Replica};
use cluster::view::Keys;
use etcd::{Access, Client, Endpoint};
use net::{NameCheck, TlsSettings};
use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it waits for changes before it looks whether its lease is due.
const LOOK: Moment = Moment::from_millis(250);

/// The options of a configuration file, with the first value of each line.
struct Options(HashMap<String, String>);

impl Options {
    fn read(path: &str) -> std::io::Result<Options> {
        let text = std::fs::read_to_string(path)?;
        let pair = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim_matches('"').to_owned()))
        };
        Ok(Options(text.lines().filter_map(pair).collect()))
    }

    fn get(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_default()
    }

    fn client(&self, timeout: Moment) -> Result<Client, Box<dyn Error>> {
        let endpoints = Endpoint::list(&self.get("cluster-coordinator"))?;
        let settings = TlsSettings {
            ca_cert_file: self.get("cluster-coordinator-ca-cert-file"),
            cert_file: self.get("cluster-coordinator-cert-file"),
            key_file: self.get("cluster-coordinator-key-file"),
            ..TlsSettings::default()
        };
        let is_tls = endpoints.iter().any(|endpoint| endpoint.is_tls);
        let tls = is_tls.then(|| Renewed::read(settings, NameCheck::Same)).transpose()?;
        let tls = tls.map(Arc::new);
        let password = self.get("cluster-coordinator-password");
        let user = Some(self.get("cluster-coordinator-user")).filter(|user| !user.is_empty());
        let user = user.map(|user| (user, password));
        Ok(Client::new(endpoints, timeout).with_access(Access { tls, user })?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(2).ok_or("usage: simulated_copy server FILE")?;
    let options = Options::read(&path)?;
    let port: u16 = options.get("port").parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // It has left.
            std::thread::spawn(move || drop(serve(client)));
        }
    });
    // The node writes the copy's name there.
    let named = std::fs::read_to_string(options.get("cluster-config-file"))?;
    let id: Id = named.split(' ').next().unwrap_or_default().parse()?;
    let address = Address { host: options.get("cluster-announce-ip"), port, ..Address::default() };
    run(&options, Replica { id, address, member: None, is_never_promoted: false })
}

fn run(options: &Options, myself: Replica) -> Result<(), Box<dyn Error>> {
    let ttl = Moment::from_secs(options.get("cluster-lease").parse().unwrap_or(4));
    let keys = Keys::new(&options.get("cluster-name"));
    // Data that are gone with the process have another name each time.
    let incarnation = Incarnation(u64::from(std::process::id()));
    let copy = Copy::new(myself.id, incarnation, Settings::of_lease(ttl));
    let mut driver = Driver::new(copy, options.client(ttl / 4)?, keys, myself, incarnation);
    let begun = Instant::now();
    let clock = move || begun.elapsed();
    let (mut frozen, mut epoch) = (None, Epoch(0));
    loop {
        // It is always level with a primary that it follows.
        if let Role::Follows(_, known) = driver.copy().role() {
            epoch = epoch.max(known);
        }
        let position = Position { epoch, offset: 1 };
        let facts = Facts { position, is_whole: true, is_listed: true, frozen, ..Facts::default() };
        for action in driver.turn(&clock, &facts, |_| {}) {
            match action {
                Action::Freeze(epoch) => frozen = frozen.max(Some(epoch)),
                Action::Lead(begun) => epoch = begun,
                _ => {}
            }
        }
        if !driver.wait(&clock, LOOK) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Answers one client's requests until it leaves.
fn serve(client: TcpStream) -> std::io::Result<()> {
    let mut out = client.try_clone()?;
    let mut input = BufReader::new(client);
    while let Some(words) = request(&mut input)? {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = match words[..] {
            ["PING"] => "+PONG\r\n".to_owned(),
            ["CLUSTER", "INFO"] => bulk("cluster_state:ok\r\n"),
            ["INFO", ..] => bulk("role:master\r\nmaster_link_status:up\r\nused_memory:0\r\n"),
            ["SHUTDOWN", ..] => std::process::exit(0),
            _ => "+OK\r\n".to_owned(),
        };
        out.write_all(reply.as_bytes())?;
    }
    Ok(())
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Reads a request of the node. `None`: there is no other.
fn request(input: &mut BufReader<TcpStream>) -> std::io::Result<Option<Vec<String>>> {
    let words = (0..length(input)?).map(|_| {
        let length = length(input)?;
        let mut word = vec![0; length + b"\r\n".len()];
        input.read_exact(&mut word)?;
        word.truncate(length);
        Ok(String::from_utf8_lossy(&word).to_uppercase())
    });
    let words: Vec<String> = words.collect::<std::io::Result<_>>()?;
    Ok((!words.is_empty()).then_some(words))
}

/// Reads the number of a line behind its first byte. 0: there is no line.
fn length(input: &mut BufReader<TcpStream>) -> std::io::Result<usize> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(line.trim_end().get(1..).and_then(|digits| digits.parse().ok()).unwrap_or(0))
}
