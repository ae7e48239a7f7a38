//! The operators' way in: requests that are to be answered whatever clients do, by the operators'
//! socket and by the admin port, and how long each takes.

use crate::client::{Client, encode};
use crate::http;
use crate::reply::Reply;
use crate::wait::eventually;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Touches a key that it does not declare, so the world is stopped for it, and does not end.
pub const STOPS_THE_WORLD: &str = "redis.call('GET', 'undeclared') while true do end";

/// Requests of one pipeline of [`Saturation`].
const PIPELINE: usize = 2000;

/// An operator of a server with a socket for operators and an admin port.
pub struct WayIn {
    socket: Client,
    admin_port: u16,
    authorization: String,
    /// Clients to be closed, with their numbers.
    victims: Vec<(i64, Client)>,
}

impl WayIn {
    /// Connects as the default user, with clients that [`WayIn::ask_all`] may close: two each time.
    ///
    /// # Errors
    /// A connection cannot be made, or the password is wrong.
    pub fn open(
        socket: &Path,
        admin_port: u16,
        password: &str,
        victims: impl Iterator<Item = io::Result<Client>>,
    ) -> io::Result<WayIn> {
        let mut socket = Client::unix(socket)?;
        expect(&socket.command(&["AUTH", password])?, |reply| !reply.is_error())?;
        let victims = victims.map(|client| {
            let mut client = client?;
            match client.command(&["CLIENT", "ID"])? {
                Reply::Integer(id) => Ok((id, client)),
                other => Err(io::Error::other(format!("no number of a client: {other:?}"))),
            }
        });
        let victims = victims.collect::<io::Result<_>>()?;
        let token = http::base64(format!("default:{password}").as_bytes());
        let authorization = format!("Authorization: Basic {token}");
        Ok(WayIn { socket, admin_port, authorization, victims })
    }

    /// Asks all that an operator needs, each once, and tells `note` how long it took. A request is
    /// answered if the answer says what it should.
    ///
    /// # Errors
    /// A request is not answered.
    pub fn ask_all(&mut self, note: &mut dyn FnMut(&'static str, Duration)) -> io::Result<()> {
        let (first, second) = (self.victims.pop(), self.victims.pop());
        let (Some((first, _kept)), Some((second, _too))) = (first, second) else {
            return Err(io::Error::other("there is no client left to close"));
        };
        let first = first.to_string();
        let asked: [(&'static str, &[&str]); 7] = [
            ("PING", &["PING"]),
            ("INFO", &["INFO"]),
            ("CLIENT LIST", &["CLIENT", "LIST"]),
            ("CLIENT KILL", &["CLIENT", "KILL", "ID", &first]),
            ("CONFIG GET", &["CONFIG", "GET", "*"]),
            ("CONFIG SET", &["CONFIG", "SET", "timeout", "7200"]),
            ("SLOWLOG GET", &["SLOWLOG", "GET"]),
        ];
        for (name, words) in asked {
            let began = Instant::now();
            let reply = self.socket.command(words)?;
            note(name, began.elapsed());
            let is_zero = matches!(reply, Reply::Integer(0));
            expect(&reply, |reply| !reply.is_error() && !is_zero)?;
        }
        let kill = format!(r#"{{"id":{second}}}"#);
        let set = r#"{"options":{"timeout":"7201"}}"#;
        let asked = [
            ("GET /healthz", "GET", "/healthz", ""),
            ("GET /api/v1/now", "GET", "/api/v1/now", ""),
            ("GET /api/v1/clients", "GET", "/api/v1/clients", ""),
            ("GET /api/v1/config", "GET", "/api/v1/config", ""),
            ("POST /api/v1/config", "POST", "/api/v1/config", set),
            ("POST /api/v1/command", "POST", "/api/v1/command", r#"{"line":"CLIENT LIST"}"#),
            ("POST /api/v1/clients/kill", "POST", "/api/v1/clients/kill", kill.as_str()),
        ];
        for (name, method, path, body) in asked {
            let began = Instant::now();
            let answer = http::ask(self.admin_port, method, path, &[&self.authorization], body)?;
            note(name, began.elapsed());
            // A page that tells how it was before is no answer, and an error is none of a command.
            let refusals = ["does not answer", "holds up everything", r#""type":"error""#];
            let is_refused = refusals.iter().any(|text| answer.text().contains(text));
            if answer.status != 200 || is_refused {
                let what = format!("{name}: {}, {}", answer.status, answer.text());
                return Err(io::Error::other(what));
            }
        }
        Ok(())
    }

    /// The operators' connection.
    pub fn socket(&mut self) -> &mut Client {
        &mut self.socket
    }
}

fn expect(reply: &Reply, is_right: impl FnOnce(&Reply) -> bool) -> io::Result<()> {
    if is_right(reply) { Ok(()) } else { Err(io::Error::other(format!("{reply:?}"))) }
}

/// Runs a script that has the world stopped, until a client is seen that is not answered. Returns
/// the script's client and that one.
///
/// # Panics
/// The world goes on.
pub fn stop_the_world(connect: impl Fn() -> Client, script: &str) -> (Client, Client) {
    let mut running = connect();
    running.send(&["EVAL", script, "0"]).expect("it can be sent");
    let mut waiting = None;
    eventually("the others wait", || {
        let mut client = connect();
        client.send(&["PING"]).expect("it can be sent");
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(200) {
            if client.has_data().expect("it is connected") {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        waiting = Some(client);
        true
    });
    (running, waiting.expect("there is one"))
}

/// Clients that keep reactors busy with pipelines until they are told to end, or their connections
/// do.
pub struct Saturation {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Saturation {
    /// Begins, with a thread for each client.
    pub fn begin(clients: Vec<Client>) -> Saturation {
        let ends = Arc::new(AtomicBool::new(false));
        let begin = |mut client: Client| {
            let ends = Arc::clone(&ends);
            thread::spawn(move || {
                let pipeline = encode(&["INCR", "number"]).repeat(PIPELINE);
                while !ends.load(SeqCst) {
                    client.send_raw(&pipeline)?;
                    for _ in 0..PIPELINE {
                        expect(&client.reply()?, |reply| !reply.is_error())?;
                    }
                }
                Ok(())
            })
        };
        let threads = clients.into_iter().map(begin).collect();
        Saturation { ends, threads }
    }

    /// Ends it.
    ///
    /// # Errors
    /// The connection of one of them has ended, or it was refused a request.
    ///
    /// # Panics
    /// One of them has.
    pub fn end(mut self) -> io::Result<()> {
        self.ends.store(true, SeqCst);
        let ended = self.threads.drain(..).map(|thread| thread.join().expect("it ends"));
        ended.collect()
    }
}

impl Drop for Saturation {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
    }
}
