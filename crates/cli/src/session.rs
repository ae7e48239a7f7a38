//! A session: the connection, what it is in the middle of, and the sending of commands.

use crate::format::Format;
use crate::interrupt;
use crate::options::{Options, Protocol};
use client::{Address, Client, Connector, Patience};
use resp::Value;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::process::exit;
use std::time::Instant;

/// How often a command follows MOVED and ASK.
const MAX_REDIRECTIONS: usize = 16;

/// Describes an error as the C library does, without the number that Rust appends.
pub fn describe(error: &io::Error) -> String {
    if error.kind() == ErrorKind::UnexpectedEof {
        return "Server closed the connection".into();
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.strip_prefix("failed to lookup address information: ").unwrap_or(text).to_owned()
}

/// Why a command did not get its reply.
#[derive(Debug)]
pub enum Failure {
    /// There is no connection; why was printed.
    NotConnected,
    /// The connection broke.
    Broken(io::Error),
}

/// The session.
pub struct Session {
    /// What the arguments say.
    pub options: Options,
    /// Where the server is; redirections and CONNECT change it.
    pub place: Address,
    /// The connection.
    pub link: Option<Client>,
    /// Whether a person or a pipe gives commands line by line.
    pub interactive: bool,
    /// The database that was selected.
    pub database: i64,
    /// Whether MULTI was sent.
    pub in_multi: bool,
    /// Whether channels are subscribed to.
    pub subscribed: bool,
    database_before_multi: i64,
    wanted_database: i64,
    channels: i64,
    shard_channels: i64,
    shutting_down: bool,
    redirected: bool,
    asking: bool,
}

impl Session {
    /// A session without a connection.
    pub fn new(options: Options) -> Session {
        Session {
            place: options.place.clone(),
            wanted_database: options.database,
            options,
            link: None,
            interactive: false,
            database: 0,
            in_multi: false,
            subscribed: false,
            database_before_multi: 0,
            channels: 0,
            shard_channels: 0,
            shutting_down: false,
            redirected: false,
            asking: false,
        }
    }

    /// Connects anew, logs in, selects the database and the protocol. Prints what fails; returns
    /// whether there is a connection.
    pub fn connect(&mut self) -> bool {
        self.link = None;
        self.database = 0;
        self.in_multi = false;
        self.subscribed = false;
        match self.open() {
            Ok(link) => self.link = Some(link),
            Err(error) => {
                let server = self.options.flavor.server();
                let why = describe(&error);
                eprintln!("Could not connect to {server} at {}: {why}", self.place);
                return false;
            }
        }
        match self.greet() {
            Ok(()) => true,
            Err(error) => {
                eprintln!("Error: {}", describe(&error));
                self.link = None;
                false
            }
        }
    }

    fn open(&self) -> io::Result<Client> {
        let tls = if self.options.is_tls {
            let host = match &self.place {
                Address::Tcp { host, .. } => host.as_str(),
                Address::Unix(_) => "localhost",
            };
            Some(self.options.tls.client(host).map_err(io::Error::other)?)
        } else {
            None
        };
        let connector = Connector {
            connect_until: self.options.timeout.map(|limit| Instant::now() + limit),
            family: self.options.family,
            tls: tls.as_ref(),
            // A person ends what never ends.
            max_reply: usize::MAX,
            ..Connector::plain(Patience::Forever)
        };
        connector.open(&self.place)
    }

    fn greet(&mut self) -> io::Result<()> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if let Some(password) = &self.options.password {
            let reply = match &self.options.user {
                Some(user) => link.ask(&["AUTH", user, password])?,
                None => link.ask(&["AUTH", password])?,
            };
            if reply.is_error() {
                eprintln!("AUTH failed: {}", reply.text_or_error());
            }
        }
        self.select()?;
        let Some(link) = &mut self.link else { return Ok(()) };
        if self.options.protocol != Protocol::Two {
            let reply = link.ask(&["HELLO", "3"])?;
            if reply.is_error() && self.options.protocol == Protocol::Three {
                eprintln!("HELLO 3 failed: {}", reply.text_or_error());
            }
        }
        Ok(())
    }

    fn select(&mut self) -> io::Result<()> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if self.wanted_database == self.database {
            return Ok(());
        }
        let number = self.wanted_database.to_string();
        let reply = link.ask(&["SELECT", &number])?;
        if reply.is_error() {
            eprintln!("SELECT {number} failed: {}", reply.text_or_error());
        } else {
            self.database = self.wanted_database;
        }
        Ok(())
    }

    /// The connection, for modes that use it by themselves. Ends the program if there is none.
    pub fn connected(&mut self) -> &mut Client {
        if self.link.is_none() && !self.connect() {
            exit(1);
        }
        match &mut self.link {
            Some(link) => link,
            None => exit(1),
        }
    }

    /// Asks the server and ends the program if the connection breaks. For modes.
    pub fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Value {
        self.connected().ask(words).unwrap_or_else(|error| {
            eprintln!("\nError: {}", describe(&error));
            exit(1);
        })
    }

    /// Sends a command so often and prints the replies. Returns whether all went well.
    pub fn command(&mut self, words: &[Vec<u8>], repeat: i64) -> bool {
        let mut redirections = 0;
        loop {
            if self.redirected || self.link.is_none() {
                self.redirected = false;
                if !self.connect() {
                    return false;
                }
            }
            if std::mem::take(&mut self.asking)
                && let Some(link) = &mut self.link
            {
                // Its reply is OK; an error will be said again by the command itself.
                let _ = link.ask(&["ASKING"]);
            }
            match self.send(words, repeat) {
                Ok(()) if self.redirected && redirections < MAX_REDIRECTIONS => redirections += 1,
                Ok(()) if self.redirected => {
                    self.redirected = false;
                    let place = &self.place;
                    eprintln!(
                        "Error: redirected more than {MAX_REDIRECTIONS} times, at last to {place}: the nodes do \
                         not agree on the owner of the slot"
                    );
                    return false;
                }
                Ok(()) => return true,
                Err(failure) => {
                    if let Failure::Broken(error) = failure {
                        eprintln!("Error: {}", describe(&error));
                    }
                    self.link = None;
                    return false;
                }
            }
        }
    }

    fn send(&mut self, words: &[Vec<u8>], mut repeat: i64) -> Result<(), Failure> {
        let name = lower(words, 0);
        let as_text = is_text_reply(words) && !self.in_multi;
        if name == "shutdown" {
            self.shutting_down = true;
        }
        let monitor = name == "monitor";
        let subscribes = [
            "subscribe",
            "psubscribe",
            "ssubscribe",
            "unsubscribe",
            "punsubscribe",
            "sunsubscribe",
        ]
        .contains(&name.as_str());
        while repeat != 0 {
            repeat = if repeat > 0 { repeat - 1 } else { repeat };
            let link = self.link.as_mut().ok_or(Failure::NotConnected)?;
            link.send(words).map_err(Failure::Broken)?;
            if monitor {
                return self.monitor();
            }
            if name == "sync" || name == "psync" {
                println!("Entering replica output mode...  (press Ctrl-C to quit)");
                return crate::modes::replica::follow(self).map_err(Failure::Broken);
            }
            // One confirmation comes for each channel.
            let mut confirmations = if subscribes { (words.len() - 1).max(1) } else { 0 };
            loop {
                let Some(reply) = self.read(as_text, subscribes)? else { return Ok(()) };
                if self.redirected {
                    return Ok(());
                }
                let confirmed = self.note_channels(&reply);
                if let Some(kind) = confirmed
                    && (confirmations > 0 || self.subscribed)
                {
                    if confirmations > 0 && kind == name {
                        confirmations -= 1;
                        if confirmations > 0 {
                            continue;
                        }
                    } else {
                        continue;
                    }
                } else if matches!(reply, Value::Push(_)) {
                    continue;
                }
                self.note(words, &name, &reply);
                break;
            }
            if let Some(interval) = self.options.interval {
                std::thread::sleep(interval);
            }
        }
        Ok(())
    }

    /// Reads one reply and prints it. Returns nothing when the server ended because it was told to.
    fn read(&mut self, as_text: bool, subscribes: bool) -> Result<Option<Value>, Failure> {
        let link = self.link.as_mut().ok_or(Failure::NotConnected)?;
        let reply = loop {
            match link.value() {
                // Of pushes beside the subscriptions, those that are to be shown.
                Ok(push @ Value::Push(_)) if !subscribes && !self.subscribed => {
                    if self.options.show_pushes {
                        emit(&push_text(&self.options, &push));
                    }
                }
                Ok(reply) => break reply,
                Err(_) if self.shutting_down => {
                    self.link = None;
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted && !interrupt::pressed() => {}
                Err(error) if self.interactive => return Err(Failure::Broken(error)),
                Err(error) => {
                    eprintln!("Error: {}", describe(&error));
                    exit(1);
                }
            }
        };
        if let Value::Error(text) = &reply {
            if self.options.cluster && self.redirect(&String::from_utf8_lossy(text)) {
                return Ok(Some(reply));
            }
            if self.options.exit_status && !self.interactive {
                eprintln!("{}", reply.text_or_error());
                exit(1);
            }
        }
        let style = &self.options.style;
        emit(&if as_text { style.write_text(&reply) } else { style.write(&reply) });
        Ok(Some(reply))
    }

    /// Follows `MOVED 3999 host:port` and `ASK …`; returns whether it was one.
    fn redirect(&mut self, error: &str) -> bool {
        let mut parts = error.split(' ');
        let kind = parts.next().unwrap_or_default();
        if kind != "MOVED" && kind != "ASK" {
            return false;
        }
        let (Some(slot), Some((host, port))) =
            (parts.next(), parts.next().and_then(|address| address.rsplit_once(':')))
        else {
            return false;
        };
        let host = match (&self.place, host) {
            // The server does not know its own address: it is the one that was asked.
            (Address::Tcp { host: here, .. }, "") => here.clone(),
            _ => host.to_owned(),
        };
        let Ok(port) = port.parse() else { return false };
        self.place = Address::tcp(&host, port);
        if self.interactive {
            println!("-> Redirected to slot [{slot}] located at {host}:{port}");
        }
        self.asking = kind == "ASK";
        self.redirected = true;
        true
    }

    /// Keeps the session's state in step with what the server did.
    fn note(&mut self, words: &[Vec<u8>], name: &str, reply: &Value) {
        let failed = reply.is_error();
        match (name, words.len()) {
            ("select", 2) if !failed => {
                let number = String::from_utf8_lossy(&words[1]).parse().unwrap_or_default();
                (self.wanted_database, self.database) = (number, number);
            }
            ("auth", 2 | 3) => {
                if let Err(error) = self.select() {
                    eprintln!("Error: {}", describe(&error));
                }
            }
            ("multi", 1) if !failed => {
                self.in_multi = true;
                self.database_before_multi = self.database;
            }
            ("exec", 1) if self.in_multi => {
                self.in_multi = false;
                if failed || *reply == Value::Null {
                    self.return_to_database();
                }
            }
            ("discard", 1) if !failed => {
                self.in_multi = false;
                self.return_to_database();
            }
            ("reset", 1) if !failed => {
                (self.in_multi, self.subscribed) = (false, false);
                (self.wanted_database, self.database) = (0, 0);
                (self.channels, self.shard_channels) = (0, 0);
            }
            _ => {}
        }
    }

    fn return_to_database(&mut self) {
        self.database = self.database_before_multi;
        self.wanted_database = self.database_before_multi;
    }

    /// Counts subscriptions by a confirmation; returns what kind of message it is, if it is one of
    /// Pub/Sub.
    fn note_channels(&mut self, reply: &Value) -> Option<String> {
        let (Value::Push(list) | Value::Array(list)) = reply else { return None };
        let kind = list.first()?.text_or_error();
        match kind.as_str() {
            "subscribe" | "psubscribe" | "unsubscribe" | "punsubscribe" if list.len() == 3 => {
                self.channels = list[2].integer()?;
            }
            "ssubscribe" | "sunsubscribe" if list.len() == 3 => {
                self.shard_channels = list[2].integer()?;
            }
            "message" | "pmessage" | "smessage" if list.len() >= 3 => {}
            _ => return None,
        }
        self.subscribed = self.channels + self.shard_channels > 0;
        Some(kind)
    }

    /// Prints what MONITOR reports until Ctrl-C, which closes the connection.
    fn monitor(&mut self) -> Result<(), Failure> {
        interrupt::catch(self.interactive);
        let result = loop {
            match self.read(false, false) {
                Ok(Some(reply)) if !reply.is_error() => {}
                Ok(_) => break Ok(()),
                Err(_) if interrupt::pressed() => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        if interrupt::pressed() {
            self.connect();
        }
        interrupt::catch(false);
        result
    }

    /// Prints messages until a key is pressed, or Ctrl-C, which ends the subscriptions.
    pub fn messages(&mut self) {
        let style = &self.options.style;
        let terminal = std::io::stdout().is_terminal() || std::env::var_os("FAKETTY").is_some();
        let show_hint = style.format != Format::Raw && terminal;
        interrupt::catch(true);
        while self.subscribed {
            let Some(link) = &mut self.link else { break };
            if !link.has_input() {
                if show_hint {
                    print!(
                        "\x1b[1;90mReading messages... (press Ctrl-C to quit or any key to type \
                         command)\r\x1b[0m"
                    );
                    let _ = io::stdout().flush();
                }
                let [server, input] = interrupt::wait_readable([link.as_raw_fd(), 0], 5000);
                if show_hint {
                    print!("\x1b[K");
                    let _ = io::stdout().flush();
                }
                if interrupt::pressed() {
                    println!("Closing current connection. Ready to reconnect to the server... ");
                    self.connect();
                    break;
                }
                if !server {
                    if input {
                        break;
                    }
                    continue;
                }
            }
            match self.read(false, true) {
                Ok(Some(reply)) => {
                    self.note_channels(&reply);
                }
                Ok(None) => break,
                Err(_) => {
                    eprintln!("Error: Server closed the connection");
                    exit(1);
                }
            }
        }
        interrupt::catch(false);
    }

    /// Prints messages without end: of a command whose program has nothing else to do.
    pub fn messages_forever(&mut self) {
        while self.subscribed {
            if let Ok(Some(reply)) = self.read(false, true) {
                self.note_channels(&reply);
            }
        }
    }

    /// The prompt.
    pub fn prompt(&self) -> String {
        if self.link.is_none() {
            return "not connected> ".into();
        }
        let mut prompt = match &self.place {
            Address::Unix(path) => format!("{} {}", self.options.flavor.prompt(), path.display()),
            place => place.to_string(),
        };
        if self.database != 0 {
            prompt += &format!("[{}]", self.database);
        }
        if self.in_multi {
            prompt += "(TX)";
        }
        if self.subscribed {
            prompt += "(subscribed mode)";
        }
        prompt + "> "
    }
}

/// A push as it is printed; that keys became invalid is said in words.
fn push_text(options: &Options, push: &Value) -> Vec<u8> {
    let list = push.items();
    if options.style.format != Format::People
        || list.len() != 2
        || list[0].bytes() != Some(b"invalidate")
    {
        return options.style.write(push);
    }
    let mut out = b"-> invalidate: ".to_vec();
    match &list[1] {
        Value::Array(keys) => {
            for (index, key) in keys.iter().enumerate() {
                if index > 0 {
                    out.extend(b", ");
                }
                crate::words::quote(&mut out, key.bytes().unwrap_or_default());
            }
            out.push(b'\n');
        }
        _ => out.extend(b"*\n"),
    }
    out
}

/// The word at a place, in lower case.
pub fn lower(words: &[Vec<u8>], at: usize) -> String {
    words.get(at).map(|word| String::from_utf8_lossy(word).to_lowercase()).unwrap_or_default()
}

/// Whether the reply of a command is a text with lines of its own.
fn is_text_reply(words: &[Vec<u8>]) -> bool {
    let (name, sub) = (lower(words, 0), lower(words, 1));
    match (name.as_str(), sub.as_str()) {
        ("info" | "lolwut", _) => true,
        ("debug", "htstats" | "htstats-key" | "client-eviction") => true,
        ("memory", "malloc-stats" | "doctor") => true,
        ("cluster", "nodes" | "info") => words.len() == 2,
        ("client", "list" | "info") => true,
        ("latency", "graph") => words.len() == 3,
        ("latency", "doctor") => words.len() == 2,
        ("proxy", "info") => true,
        _ => false,
    }
}

/// Writes to standard output at once; ends the program if that fails.
pub fn emit(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        exit(1);
    }
}
