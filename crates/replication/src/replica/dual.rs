//! Getting a snapshot over a connection of its own.

use super::{Action, Channel, Replica, Said, Stage, Surroundings, array, log_in, shown};
use crate::wire::{Answer, DualChannel, EndOffset};
use keyspace::Millis;

impl Replica {
    /// Returns the connection whose lines the machine is to be given.
    pub fn listens_to(&self) -> Channel {
        match self.stage {
            Stage::Branching => Channel::Rdb,
            Stage::Heading if self.dual.is_some() => Channel::Rdb,
            _ => Channel::Main,
        }
    }

    /// Answers the primary's proposal of two channels.
    pub(super) fn branch(
        &mut self,
        protocol: DualChannel,
        main_client: u64,
        hands_over: bool,
    ) -> Vec<Action> {
        self.stage = Stage::Branching;
        (self.dual, self.main_client) = (Some(protocol), main_client);
        let line = "PSYNC is not possible, initialize RDB channel.".to_owned();
        let mut actions = vec![Action::Log(line)];
        actions.extend(hands_over.then_some(Action::HandedOver { is_accepted: true }));
        actions.push(Action::ConnectRdbChannel);
        actions
    }

    /// Goes on when the second connection is there.
    pub fn rdb_channel_connected(&mut self, around: &Surroundings, now: Millis) -> Vec<Action> {
        self.heard = now;
        let identity = &around.identity;
        let mut out = log_in(identity);
        self.expected = vec![Said::Replconf("rdb-channel")];
        if !out.is_empty() {
            self.expected.push(Said::Auth);
        }
        let (port, main) = (identity.port.to_string(), self.main_client.to_string());
        let mut words: Vec<&[u8]> =
            vec![b"REPLCONF", b"capa", b"eof", b"rdb-only", b"1", b"rdb-channel", b"1"];
        // Redis knows no option that names the version; there the first connection has named it.
        match self.dual {
            Some(DualChannel::Redis) => words.extend([&b"main-ch-client-id"[..], main.as_bytes()]),
            _ => words.extend([&b"version"[..], identity.version.as_bytes()]),
        }
        words.extend([&b"listening-port"[..], port.as_bytes()]);
        if !identity.announced_ip.is_empty() {
            words.extend([&b"ip-address"[..], &identity.announced_ip]);
        }
        out.extend(array(&words));
        vec![Action::Send(Channel::Rdb, out)]
    }

    /// Takes a line that came over the second connection before the snapshot.
    pub(super) fn branched(&mut self, line: &[u8], now: Millis) -> Vec<Action> {
        let text = shown(line);
        if let Some(said) = self.expected.pop() {
            return match said {
                _ if line.starts_with(b"-") => {
                    self.lost(&format!("MASTER refuses the RDB channel: {text}"), now)
                }
                Said::Auth => Vec::new(),
                Said::Replconf(_) => self.ask_for_snapshot(),
            };
        }
        match self.dual {
            Some(DualChannel::Redis) => match Answer::parse(line) {
                Some(Answer::FullResync(id, position)) => {
                    self.promised = Some((id, position));
                    self.stage = Stage::Heading;
                    let at = position.0;
                    vec![Action::Log(format!("Full resync from master: {id}:{at} (rdb-channel)"))]
                }
                _ => self.lost(&format!("MASTER sends no snapshot: {text}"), now),
            },
            _ => match EndOffset::parse(line) {
                Some(end) => self.ask_for_stream(&end),
                None => self.lost(&format!("MASTER sends no snapshot: {text}"), now),
            },
        }
    }

    fn ask_for_snapshot(&mut self) -> Vec<Action> {
        let request = match self.dual {
            Some(DualChannel::Redis) => array(&[b"PSYNC", b"?", b"-1"]),
            _ => array(&[b"SYNC"]),
        };
        vec![Action::Send(Channel::Rdb, request)]
    }

    /// Asks for the stream when the snapshot's position is known.
    fn ask_for_stream(&mut self, end: &EndOffset) -> Vec<Action> {
        self.stage = Stage::Joining;
        self.promised = Some((end.id, end.position));
        self.expected = vec![Said::Replconf("set-rdb-client-id")];
        let client = end.client.to_string();
        let named = array(&[b"REPLCONF", b"set-rdb-client-id", client.as_bytes()]);
        vec![Action::Send(Channel::Main, named)]
    }

    /// Goes on when the first connection is known to belong to the second. Valkey takes PSYNC only
    /// when everything before it is answered.
    fn join(&self) -> Vec<Action> {
        let (id, position) = self.promised.expect("it came before");
        let (id, offset) = (id.to_string(), (position.0 + 1).to_string());
        let request = array(&[b"PSYNC", id.as_bytes(), offset.as_bytes()]);
        let line =
            format!("Trying a partial resynchronization using main channel ({id}:{offset}).");
        vec![Action::Log(line), Action::Send(Channel::Main, request)]
    }

    /// Takes the line that answers this on the first connection.
    pub(super) fn joined(&mut self, line: &[u8], now: Millis) -> Vec<Action> {
        let said = self.expected.pop();
        match (said, Answer::parse(line)) {
            (Some(_), _) if !line.starts_with(b"-") => self.join(),
            (None, Some(Answer::Continue(_))) => {
                self.stage = Stage::Heading;
                vec![Action::Log("Master sends the stream while the snapshot comes.".to_owned())]
            }
            _ => self.lost(&format!("MASTER sends no stream: {}", shown(line)), now),
        }
    }
}
