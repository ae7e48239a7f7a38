//! Runs one script in one place under one protocol.

use super::{Action, Expectation, Script, Step};
use crate::client::{Client, patience};
use crate::expect::{Bindings, Expect};
use crate::notation::{parse_expect, parse_words, print};
use crate::reply::{Protocol, Reply};
use crate::server::Server;
use regex_lite::Regex;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How long nothing must arrive for `(nothing)`.
const SILENCE: Duration = Duration::from_millis(30);
/// Mismatches shown of one script; what comes after is mostly their consequence.
const SHOWN: usize = 4;

/// Where a script runs: a server of its own process, or an engine in this one.
pub trait Place {
    /// A new client.
    fn connect(&mut self) -> io::Result<Client>;
    /// Lets time pass.
    fn pass(&mut self, time: Duration);
    /// Stops the server and starts it again.
    fn restart(&mut self) -> io::Result<()>;
    /// The server's log so far.
    fn log(&self) -> String;
    /// Does what a request of a script needs beside itself where there are several servers.
    fn beside(&mut self, _request: &[Vec<u8>]) -> io::Result<()> {
        Ok(())
    }
    /// How many clients are blocked at all servers. `None`: the list of clients says who is.
    fn blocked(&mut self) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

impl Place for Server {
    fn connect(&mut self) -> io::Result<Client> {
        Client::connect(self.address())
    }

    fn pass(&mut self, time: Duration) {
        thread::sleep(time);
    }

    fn restart(&mut self) -> io::Result<()> {
        Server::restart(self)
    }

    fn log(&self) -> String {
        Server::log(self)
    }
}

/// What a step got.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The replies read, in order.
    pub replies: Vec<Reply>,
    /// Whether every expectation there is held, and there was one if there must be.
    pub held: bool,
    /// Whether it ran at all under this protocol.
    pub ran: bool,
    /// How many replies were expected.
    pub expected: usize,
}

/// What went otherwise than expected.
#[derive(Debug)]
pub struct Failure {
    /// Index of the step; `None` for what was left unread in the end.
    pub step: Option<usize>,
    /// The place in the script, what was expected and what was received.
    pub text: String,
}

/// The texts of the first failures.
pub fn shown(failures: &[Failure]) -> String {
    let texts: Vec<&str> = failures.iter().take(SHOWN).map(|one| one.text.as_str()).collect();
    texts.join("\n")
}

/// Runs a script and describes everything that went otherwise than expected.
pub fn check(script: &Script, place: &mut dyn Place, protocol: Protocol) -> Result<(), String> {
    let (_, failures) = run(script, place, protocol, SHOWN);
    if failures.is_empty() { Ok(()) } else { Err(shown(&failures)) }
}

/// Runs a script until the end, the `limit`-th failure, or one there is no going on after; returns
/// an outcome per step that was reached, and descriptions of the failures.
pub fn run(
    script: &Script,
    place: &mut dyn Place,
    protocol: Protocol,
    limit: usize,
) -> (Vec<Outcome>, Vec<Failure>) {
    let mut run =
        Run { place, protocol, clients: HashMap::new(), observer: None, names: Bindings::new() };
    let mut outcomes = Vec::new();
    let mut failures = Vec::new();
    for (at, step) in script.steps.iter().enumerate() {
        let failure = |complaint: &str| Failure {
            step: Some(at),
            text: describe(script, step, protocol, complaint),
        };
        if step.only.is_some_and(|only| only != protocol) {
            outcomes.push(Outcome { held: true, ..Outcome::default() });
            continue;
        }
        match run.step(step) {
            Ok((outcome, complaint)) => {
                outcomes.push(outcome);
                if let Some(complaint) = complaint {
                    failures.push(failure(&complaint));
                    if failures.len() == limit {
                        return (outcomes, failures);
                    }
                }
            }
            Err(complaint) => {
                failures.push(failure(&complaint));
                return (outcomes, failures);
            }
        }
    }
    if failures.is_empty()
        && let Some(complaint) = run.unread()
    {
        let text = format!("{} ({protocol}): {complaint}", script.path.display());
        failures.push(Failure { step: None, text });
    }
    (outcomes, failures)
}

fn describe(script: &Script, step: &Step, protocol: Protocol, complaint: &str) -> String {
    let line = &script.lines[step.line];
    format!("{}:{} ({protocol})\n    {line}\n{complaint}", script.path.display(), step.line + 1)
}

struct Connection {
    client: Client,
    /// The server's number of it, where it would tell.
    id: Option<i64>,
}

struct Run<'a> {
    place: &'a mut dyn Place,
    protocol: Protocol,
    clients: HashMap<String, Connection>,
    /// A connection of the runner's own, to see whether a request blocks.
    observer: Option<Client>,
    names: Bindings,
}

/// An error that ends the script.
type Fatal = String;

fn fatal(error: io::Error) -> Fatal {
    format!("  {error}")
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<(Outcome, Option<String>), Fatal> {
        let done = Ok((Outcome { held: true, ran: true, ..Outcome::default() }, None));
        match &step.action {
            Action::Ask { client, request } => {
                let words = self.words(request)?;
                let subscribes = first_is(&words, &["subscribe", "psubscribe", "ssubscribe"]);
                let unsubscribes =
                    first_is(&words, &["unsubscribe", "punsubscribe", "sunsubscribe"]);
                let replies = if subscribes || (unsubscribes && words.len() > 1) {
                    words.len() - 1
                } else {
                    1
                };
                self.place.beside(&words).map_err(fatal)?;
                let before = self.send(client, &words)?;
                let messages = subscribes || unsubscribes;
                let outcome = self.read(step, client, replies, messages)?;
                self.follow_protocol(client, &words, &outcome.0, before)?;
                Ok(outcome)
            }
            Action::Retry { client, request } => self.retry(step, client, request),
            Action::Send { client, request } => {
                let words = self.words(request)?;
                self.connection(client)?;
                let blocked = self.place.blocked().map_err(fatal)?;
                self.send(client, &words)?;
                match blocked {
                    Some(before) => self.await_one_more_blocked(client, before)?,
                    None => self.await_blocked(client)?,
                }
                done
            }
            Action::Raw { client, bytes } => {
                let bytes = self.words(bytes)?.concat();
                self.connection(client)?.client.send_raw(&bytes).map_err(fatal)?;
                self.read(step, client, 1, false)
            }
            Action::Read { client } => self.read(step, client, 1, true),
            Action::Close { client } => {
                self.clients.remove(client);
                done
            }
            Action::Wait(time) => {
                self.place.pass(*time);
                done
            }
            Action::Restart => {
                self.clients.clear();
                self.observer = None;
                self.place.restart().map_err(fatal)?;
                done
            }
            Action::Log { pattern } => {
                self.await_log(pattern)?;
                done
            }
        }
    }

    fn words(&self, request: &str) -> Result<Vec<Vec<u8>>, Fatal> {
        parse_words(request, &self.names).map_err(|why| format!("  {why}"))
    }

    fn connection(&mut self, name: &str) -> Result<&mut Connection, Fatal> {
        if !self.clients.contains_key(name) {
            let mut client = self.place.connect().map_err(fatal)?;
            let id = match self.protocol {
                Protocol::Resp2 => client.command(&["CLIENT", "ID"]).map_err(fatal)?.integer(),
                Protocol::Resp3 => {
                    client.set_protocol(Protocol::Resp3);
                    match client.command(&["HELLO", "3"]).map_err(fatal)? {
                        Reply::Map(pairs) => pairs
                            .iter()
                            .find(|(key, _)| key.text() == Some(b"id"))
                            .and_then(|(_, value)| value.integer()),
                        // Not allowed before AUTH: the script has to say HELLO itself.
                        _ => {
                            client.set_protocol(Protocol::Resp2);
                            None
                        }
                    }
                }
            };
            self.clients.insert(name.to_owned(), Connection { client, id });
        }
        Ok(self.clients.get_mut(name).expect("inserted above"))
    }

    /// Sends a request; returns the protocol before it, in case it is a HELLO that fails.
    fn send(&mut self, client: &str, words: &[Vec<u8>]) -> Result<Protocol, Fatal> {
        let client = &mut self.connection(client)?.client;
        let before = client.protocol();
        client.send(words).map_err(fatal)?;
        if let Some(protocol) = hello(words) {
            client.set_protocol(protocol);
        }
        Ok(before)
    }

    /// Decodes by what the connection speaks after a HELLO or RESET.
    fn follow_protocol(
        &mut self,
        client: &str,
        words: &[Vec<u8>],
        outcome: &Outcome,
        before: Protocol,
    ) -> Result<(), Fatal> {
        let failed = outcome.replies.first().is_none_or(Reply::is_error);
        let client = &mut self.connection(client)?.client;
        if hello(words).is_some() && failed {
            client.set_protocol(before);
        }
        if first_is(words, &["reset"]) && !failed {
            client.set_protocol(Protocol::Resp2);
        }
        Ok(())
    }

    /// Reads as many replies as the step expects, or `usual` if it does not say.
    fn read(
        &mut self,
        step: &Step,
        name: &str,
        usual: usize,
        messages: bool,
    ) -> Result<(Outcome, Option<String>), Fatal> {
        let client = &mut self.connection(name)?.client;
        let expected = applicable(&step.expected, client.protocol());
        let mut outcome =
            Outcome { held: true, ran: true, expected: expected.len(), ..Outcome::default() };
        let mut complaint = String::new();
        if expected.is_empty() {
            for _ in 0..usual {
                let reply = if messages { client.message() } else { client.reply() };
                outcome.replies.push(reply.map_err(fatal)?);
            }
            // One request may have several replies: UNSUBSCRIBE, or raw bytes with two requests.
            self.place.pass(SILENCE);
            let client = &mut self.connection(name)?.client;
            while (messages || matches!(step.action, Action::Raw { .. }))
                && client.has_data().map_err(fatal)?
                && let Ok(reply) = client.message()
            {
                outcome.replies.push(reply);
            }
            outcome.held = false;
            let given: Vec<String> = outcome.replies.iter().map(print).collect();
            let text = indent(&given.join("\n"));
            return Ok((
                outcome,
                Some(format!("  no expected reply in the script; received\n{text}")),
            ));
        }
        for expectation in expected {
            let expect = parse_expect(&expectation.text, &self.names)
                .map_err(|why| format!("  {:?}: {why}", expectation.text))?;
            let client = &mut self.connection(name)?.client;
            match expect {
                Expect::NoReply => {}
                Expect::Nothing => {
                    self.place.pass(SILENCE);
                    let client = &mut self.connection(name)?.client;
                    if client.has_data().map_err(fatal)? {
                        let reply = client.message().map_err(fatal)?;
                        mismatch(&mut complaint, expectation, &print(&reply));
                    }
                }
                Expect::Closed => {
                    if let Err(error) = client.expect_closed() {
                        mismatch(&mut complaint, expectation, &error.to_string());
                    }
                }
                expect => {
                    let protocol = client.protocol();
                    let push = messages || matches!(expect, Expect::Push(_));
                    let reply = if push { client.message() } else { client.reply() };
                    let reply = reply.map_err(|error| {
                        format!("{complaint}  expected\n{}\n  {error}", indent(&expectation.text))
                    })?;
                    if !expect.holds(&reply, protocol, &mut self.names) {
                        mismatch(&mut complaint, expectation, &print(&reply));
                    }
                    outcome.replies.push(reply);
                }
            }
        }
        outcome.held = complaint.is_empty();
        Ok((outcome, if complaint.is_empty() { None } else { Some(complaint) }))
    }

    fn retry(
        &mut self,
        step: &Step,
        client: &str,
        request: &str,
    ) -> Result<(Outcome, Option<String>), Fatal> {
        let deadline = Instant::now() + patience();
        loop {
            let words = self.words(request)?;
            self.send(client, &words)?;
            let result = self.read(step, client, 1, false)?;
            if result.1.is_none() || Instant::now() > deadline || step.expected.is_empty() {
                return Ok(result);
            }
            self.place.pass(Duration::from_millis(2));
        }
    }

    /// Waits until the client's request blocks or its reply is there, so that what other clients
    /// do next comes after it.
    fn await_blocked(&mut self, name: &str) -> Result<(), Fatal> {
        let deadline = Instant::now() + patience();
        let Some(id) = self.connection(name)?.id else {
            self.place.pass(SILENCE);
            return Ok(());
        };
        loop {
            if self.connection(name)?.client.has_data().map_err(fatal)? {
                return Ok(());
            }
            match self.flags(id) {
                Some(flags) if flags.contains('b') => return Ok(()),
                Some(_) if Instant::now() > deadline => {
                    return Err("  the request neither blocks nor is it answered".to_owned());
                }
                Some(_) => self.place.pass(Duration::from_millis(1)),
                // The server does not tell (not allowed, or paused): all that is left is to wait.
                None => {
                    self.place.pass(SILENCE);
                    return Ok(());
                }
            }
        }
    }

    /// The same where several servers may have the request.
    fn await_one_more_blocked(&mut self, name: &str, before: u64) -> Result<(), Fatal> {
        let deadline = Instant::now() + patience();
        while !self.connection(name)?.client.has_data().map_err(fatal)?
            && self.place.blocked().map_err(fatal)?.is_some_and(|count| count <= before)
        {
            if Instant::now() > deadline {
                return Err("  the request neither blocks nor is it answered".to_owned());
            }
            self.place.pass(Duration::from_millis(1));
        }
        Ok(())
    }

    /// A connection's flags as in CLIENT LIST.
    fn flags(&mut self, id: i64) -> Option<String> {
        if self.observer.is_none() {
            self.observer = self.place.connect().ok();
        }
        let observer = self.observer.as_mut()?;
        let id = id.to_string();
        observer.send(&["CLIENT", "LIST", "ID", &id]).ok()?;
        let Ok(Reply::Bulk(text)) = observer.message_within(Duration::from_millis(200)) else {
            self.observer = None;
            return None;
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let flags = text.split_whitespace().find_map(|word| word.strip_prefix("flags="));
        // No line: the connection is gone, and its end of stream will be seen.
        Some(flags.unwrap_or("").to_owned())
    }

    fn await_log(&self, pattern: &str) -> Result<(), Fatal> {
        let regex = Regex::new(pattern).map_err(|error| format!("  {error}"))?;
        let deadline = Instant::now() + patience();
        loop {
            let log = self.place.log();
            if log.lines().any(|line| regex.is_match(line)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("  no such line in the log:\n{}", indent(&log)));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What has arrived that the script did not read, if anything.
    fn unread(&mut self) -> Option<String> {
        let mut text = String::new();
        for (name, connection) in &mut self.clients {
            let client = &mut connection.client;
            if matches!(client.has_data(), Ok(true))
                && let Ok(reply) = client.message()
            {
                let _ =
                    writeln!(text, "  {name} was not read to the end:\n{}", indent(&print(&reply)));
            }
        }
        if text.is_empty() { None } else { Some(text) }
    }
}

/// The expectations that apply under a protocol.
pub(super) fn applicable(expected: &[Expectation], protocol: Protocol) -> Vec<&Expectation> {
    expected.iter().filter(|e| e.only.is_none_or(|only| only == protocol)).collect()
}

fn mismatch(complaint: &mut String, expectation: &Expectation, received: &str) {
    let _ = write!(
        complaint,
        "  expected\n{}\n  received\n{}\n",
        indent(&expectation.text),
        indent(received)
    );
}

fn indent(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

fn first_is(words: &[Vec<u8>], names: &[&str]) -> bool {
    words.first().is_some_and(|word| names.iter().any(|n| word.eq_ignore_ascii_case(n.as_bytes())))
}

/// The protocol a HELLO asks for.
fn hello(words: &[Vec<u8>]) -> Option<Protocol> {
    if !first_is(words, &["hello"]) {
        return None;
    }
    match words.get(1).map(Vec::as_slice) {
        Some(b"2") => Some(Protocol::Resp2),
        Some(b"3") => Some(Protocol::Resp3),
        _ => None,
    }
}
