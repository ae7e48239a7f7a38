//! The connection that brings the target of a job its copy.

use cluster::coordinator::Revision;
use cluster::id::Id;
use cluster::topology::Holder;
use cluster::view::View;
use engine::Engine;
use engine::peer::Peer;
use std::io;
use std::time::Duration;

/// For how long the target may take for a piece of what it is sent, and for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// For how long it may wait for its replicas, in milliseconds.
const REPLICAS_MS: u32 = 2000;

/// See the head of this file.
pub(super) struct Link {
    peer: Box<dyn Peer>,
    /// How many of the target's replicas have to have the copy: those that were there, and at least
    /// as many as confirm a write.
    copies: usize,
}

impl Link {
    /// Connects to the primary of the target, and logs in as a replica does.
    ///
    /// # Errors
    /// What is in the way.
    pub fn open(engine: &Engine, view: &View, target: Holder) -> Result<Link, String> {
        let topology = &view.topology.value;
        let copy = topology.copies().find(|copy| copy.id == target.id);
        let address = &copy.ok_or("the target has gone")?.address;
        let shard = topology.shard_of(target.id);
        let replicas = shard.into_iter().flat_map(|shard| shard.members()).filter(|copy| {
            let there = copy.member.map(|incarnation| Holder { id: copy.id, incarnation });
            copy.id != target.id && there.is_some_and(|there| view.is_alive(there))
        });
        // What a quorum has confirmed at the source has to be safe in the same way at the target.
        let copies = replicas.count().max(topology.quorum.saturating_sub(1));
        let config = &&engine.config;
        let port = address.port_for(config.tls_cluster());
        let host = engine.host().ok_or("the server ends")?;
        let peer = host.connect_to_copy(target.id, (&address.host, port), TIMEOUT);
        let mut link = Link { peer: peer.map_err(failed)?, copies };
        let (user, password) = (config.primaryuser(), config.primaryauth());
        let (user, password): (&[u8], &[u8]) = (&user, &password);
        if !password.is_empty() {
            let words = [&b"AUTH"[..], user, password];
            let words: Vec<&[u8]> = words.into_iter().filter(|word| !word.is_empty()).collect();
            link.ask(&words)?;
        }
        link.ask(&[b"CLIENT", b"CAPA", b"cluster"])?;
        Ok(link)
    }

    /// From now on it brings the copy for this job. The target drops what it had before.
    ///
    /// # Errors
    /// What is in the way.
    pub fn import(&mut self, job: Id) -> Result<(), String> {
        self.ask(&[b"CLUSTER", b"SYNCSLOTS", b"IMPORT", job.to_string().as_bytes()]).map(drop)
    }

    /// Sends commands, and clears them.
    ///
    /// # Errors
    /// The target does not take them.
    pub fn send(&mut self, commands: &mut Vec<u8>) -> Result<(), String> {
        let sent = self.peer.send(commands);
        commands.clear();
        sent.map_err(|error| match self.peer.line() {
            // It says why it has closed the connection.
            Ok(line) => refused(&line),
            Err(_) => failed(error),
        })
    }

    /// Waits until the target and its replicas have what was sent.
    ///
    /// # Errors
    /// They do not get it.
    pub fn confirm(&mut self) -> Result<(), String> {
        let (copies, time) = (self.copies.to_string(), REPLICAS_MS.to_string());
        let line = self.ask(&[b"WAIT", copies.as_bytes(), time.as_bytes()])?;
        let count = number(&line).unwrap_or(0);
        match usize::try_from(count).is_ok_and(|count| count >= self.copies) {
            true => Ok(()),
            false => Err("the replicas of the target lack what it was sent".into()),
        }
    }

    /// The slots are about to be handed over: until that is decided nothing may spoil the copy.
    ///
    /// # Errors
    /// It was spoiled.
    pub fn prepare(&mut self) -> Result<(), String> {
        self.ask(&[b"CLUSTER", b"SYNCSLOTS", b"PREPARE"]).map(drop)
    }

    /// Whether the clients of the target see what the coordinator had at this revision.
    ///
    /// # Errors
    /// It does not answer.
    pub fn shows(&mut self, revision: Revision) -> Result<bool, String> {
        let revision = revision.to_string();
        let line = self.ask(&[b"CLUSTER", b"SYNCSLOTS", b"REVISION", revision.as_bytes()])?;
        Ok(number(&line) == Some(1))
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.send(&mut route::raw::request(words))?;
        let line = self.peer.line().map_err(failed)?;
        if line.first() == Some(&b'-') { Err(refused(&line)) } else { Ok(line) }
    }
}

fn number(line: &[u8]) -> Option<i64> {
    str::from_utf8(line.strip_prefix(b":")?).ok()?.parse().ok()
}

fn failed(error: io::Error) -> String {
    format!("the target does not answer: {error}")
}

fn refused(line: &[u8]) -> String {
    format!("the target refuses: {}", String::from_utf8_lossy(line))
}
