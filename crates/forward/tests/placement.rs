//! Every key lands where the real Twemproxy puts it. Servers of ours behind `nutcracker` answer
//! each GET with their own number.
//!
//! Without `nutcracker` the test does nothing, unless `PLACEMENT_KEYS` is set, which says how many
//! keys to try; `./test proxy` installs it and tries 100 000.

use forward::placement::hash::{Hash, NAMES};
use forward::placement::{Continuum, Distribution, Keys, Member};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVERS: usize = 5;
const WEIGHTS: [u32; SERVERS] = [1, 2, 1, 5, 1];

/// A server that answers every request of two words with its number.
fn numbered(number: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            std::thread::spawn(move || answer(stream, number));
        }
    });
    port
}

fn answer(mut stream: TcpStream, number: usize) {
    let mut input = BufReader::with_capacity(1 << 20, stream.try_clone().expect("a descriptor"));
    let mut replies = String::new();
    loop {
        // *2, $3, GET, $n, and the key, which holds no line end.
        for _ in 0..5 {
            let mut line = Vec::new();
            if input.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                return;
            }
        }
        let _ = write!(replies, "$1\r\n{number}\r\n");
        if input.buffer().is_empty() {
            if stream.write_all(replies.as_bytes()).is_err() {
                return;
            }
            replies.clear();
        }
    }
}

struct Twemproxy(Child);

impl Drop for Twemproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One pool of the file.
struct Pool {
    hash: (&'static str, Hash),
    distribution: (&'static str, Distribution),
    tag: Option<&'static str>,
    is_named: bool,
    port: u16,
}

/// Ports that differ, as nutcracker takes no file with the same one twice.
fn free_ports(count: usize) -> Vec<u16> {
    // All are held before the first is given up.
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let listeners: Vec<TcpListener> = listeners.collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    listeners.iter().map(port).collect()
}

fn pools(mut ports: impl Iterator<Item = u16>) -> Vec<Pool> {
    let distributions = [("ketama", Distribution::Ketama), ("modula", Distribution::Modula)];
    let mut pools = Vec::new();
    for &hash in NAMES {
        for distribution in distributions {
            let tag = (hash.0 == "fnv1a_64" || hash.0 == "md5").then_some("{}");
            let is_named = hash.0 != "crc16";
            let port = ports.next().expect("a port for each");
            pools.push(Pool { hash, distribution, tag, is_named, port });
        }
    }
    pools
}

fn file(pools: &[Pool], servers: &[u16]) -> String {
    let mut text = String::new();
    for (at, pool) in pools.iter().enumerate() {
        let Pool { hash, distribution, port, .. } = pool;
        let _ = write!(
            text,
            "p{at}:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: {}\n  distribution: {}\n",
            hash.0, distribution.0
        );
        if let Some(tag) = pool.tag {
            let _ = writeln!(text, "  hash_tag: \"{tag}\"");
        }
        text.push_str("  servers:\n");
        for (at, (port, weight)) in servers.iter().zip(WEIGHTS).enumerate() {
            let name = if pool.is_named { format!(" server-{at}") } else { String::new() };
            let _ = writeln!(text, "   - 127.0.0.1:{port}:{weight}{name}");
        }
    }
    text
}

fn members(pool: &Pool, servers: &[u16]) -> Vec<Member> {
    let name = |at: usize, port: u16| {
        if pool.is_named { format!("server-{at}") } else { format!("127.0.0.1:{port}") }
    };
    let servers = servers.iter().zip(WEIGHTS).enumerate();
    servers.map(|(at, (&port, weight))| Member { name: name(at, port), weight }).collect()
}

/// Keys of all sizes and bytes, but for line ends.
fn keys(count: usize) -> Vec<Vec<u8>> {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let any = |n: usize, next: &mut dyn FnMut() -> u64| -> Vec<u8> {
        (0..n).map(|_| next() as u8).filter(|byte| !matches!(byte, b'\n' | b'\r')).collect()
    };
    (0..count)
        .map(|n| match n % 4 {
            0 => format!("key:{n}").into_bytes(),
            1 => format!("user{{{}}}:{n}", n / 50).into_bytes(),
            2 => [&b"k"[..], &any(n % 61, &mut next)].concat(),
            _ => [&any(n % 17, &mut next)[..], b"{", &any(n % 5, &mut next), b"}x"].concat(),
        })
        .collect()
}

fn connect(port: u16) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(why) => assert!(Instant::now() < deadline, "nutcracker does not listen: {why}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks for all keys, a thousand at a time; returns which server answered each.
fn asked(port: u16, keys: &[Vec<u8>]) -> Vec<usize> {
    let mut stream = connect(port);
    let mut found = Vec::new();
    for some in keys.chunks(1000) {
        let mut requests = Vec::new();
        for key in some {
            requests.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n${}\r\n", key.len()).as_bytes());
            requests.extend_from_slice(key);
            requests.extend_from_slice(b"\r\n");
        }
        stream.write_all(&requests).expect("requests go out");
        let mut replies = vec![0; some.len() * 7];
        stream.read_exact(&mut replies).expect("replies come in");
        found.extend(replies.chunks_exact(7).map(|reply| usize::from(reply[4] - b'0')));
    }
    found
}

#[test]
fn keys_land_where_twemproxy_puts_them() {
    let count = std::env::var("PLACEMENT_KEYS").ok().map(|n| n.parse().expect("a number"));
    let is_there = Command::new("nutcracker").arg("-V").stderr(Stdio::null()).status().is_ok();
    if count.is_none() && !is_there {
        println!("SKIPPED: nutcracker is not installed; ./test proxy does that");
        return;
    }
    let servers: Vec<u16> = (0..SERVERS).map(numbered).collect();
    let mut ports = free_ports(1 + 2 * NAMES.len()).into_iter();
    let statistics = ports.next().expect("a port").to_string();
    let pools = pools(ports);
    let path = std::env::temp_dir().join(format!("placement-{}.yml", std::process::id()));
    std::fs::write(&path, file(&pools, &servers)).expect("a file");
    let output = path.with_extension("log");
    let pid = path.with_extension("pid");
    let child = Command::new("nutcracker")
        .args(["-s", &statistics, "-a", "127.0.0.1"])
        .args(["-c".as_ref(), path.as_os_str(), "-o".as_ref(), output.as_os_str()])
        .args(["-p".as_ref(), pid.as_os_str()])
        .spawn()
        .expect("nutcracker starts");
    let _twemproxy = Twemproxy(child);
    let keys = keys(count.unwrap_or(4000));
    for pool in &pools {
        let distribution = pool.distribution;
        let continuum = Continuum::new(distribution.1, &members(pool, &servers), |_| true);
        let tag = pool.tag.map(|tag| [tag.as_bytes()[0], tag.as_bytes()[1]]);
        let hashed = Keys { hash: pool.hash.1, tag };
        for (key, theirs) in keys.iter().zip(asked(pool.port, &keys)) {
            let ours = hashed.hash_of(key);
            let ours = continuum.server(ours, 0);
            assert_eq!(ours, Some(theirs), "{} {} {key:?}", pool.hash.0, distribution.0);
        }
    }
    for path in [path, output, pid] {
        let _ = std::fs::remove_file(path);
    }
}
