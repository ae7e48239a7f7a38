//! What a server does for its replicas.

use crate::world::World;
use journal::JournalPos;
use keyspace::Millis;
use replication::failover::Stage as Handover;
use replication::primary::{self, Acknowledged, Configured, Group, Sync, Transfer};
use replication::replica::Stage;
use replication::wire::{self, EndOffset, Wanted};
use replication::{Item, StreamReader};

fn command(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| out += &format!("${}\r\n{word}\r\n", word.len()));
    out.into_bytes()
}

impl World {
    pub fn append(&mut self, server: usize, bytes: &[u8]) {
        let server = &mut self.servers[server];
        server.stream.extend_from_slice(bytes);
        self.truth.get_mut(&server.history.id).expect("it is known").extend_from_slice(bytes);
    }

    pub fn write(&mut self) {
        let server = &self.servers[self.leader];
        let is_idle = server.failover.stage() == Handover::Nothing;
        if !server.is_running || server.upstream.is_some() || !is_idle {
            return;
        }
        let value = self.rng.bits().to_string();
        let write = command(&["SET", "key", &value]);
        let bytes = if self.rng.chance(30) {
            [command(&["MULTI"]), write.clone(), write, command(&["EXEC"])].concat()
        } else {
            write
        };
        self.append(self.leader, &bytes);
    }

    /// What replicas ask and say.
    pub fn serve(&mut self, client: u64) {
        let Some(connection) = self.connections.get_mut(&client) else { return };
        let received = connection.up.receive(self.now);
        connection.requests.extend(received);
        loop {
            let Some(connection) = self.connections.get_mut(&client) else { return };
            let mut places = Vec::new();
            let item = StreamReader::new(0).next(&connection.requests, &mut places);
            let Ok(Item::Command { consumed }) = item else { return };
            let text = |place: std::ops::Range<usize>| {
                String::from_utf8_lossy(&connection.requests[place]).into_owned()
            };
            let words: Vec<String> = places.into_iter().map(text).collect();
            connection.requests.drain(..consumed);
            self.answer(client, &words);
        }
    }

    fn answer(&mut self, client: u64, words: &[String]) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (now, primary) = (Millis(self.now), self.connections[&client].primary);
        let ip = format!("10.0.0.{}", self.connections[&client].replica);
        match words.as_slice() {
            ["PING"] => self.reply(client, b"+PONG\r\n"),
            ["REPLCONF", "ACK", position, ..] => {
                let end = self.servers[primary].position();
                let position = JournalPos(position.parse().expect("a number")).min(end);
                let machine = &mut self.servers[primary].primary;
                let said = machine.acknowledge(client, position, None, now);
                if let Some(link) =
                    machine.link_mut(client).filter(|_| said == Acknowledged::Counts)
                {
                    link.copy = Some(self.safe.add_copy(position));
                }
                self.note_confirmed(primary);
            }
            ["REPLCONF", options @ ..] => {
                for pair in options.chunks(2) {
                    let (option, value) = (pair[0].as_bytes(), pair[1].as_bytes());
                    let machine = &mut self.servers[primary].primary;
                    let configured = machine.configure(client, &ip, option, value, now);
                    if configured == Configured::NoClient {
                        return self.reply(client, b"-ERR no such client\r\n");
                    }
                    assert_eq!(configured, Configured::Noted);
                }
                self.reply(client, b"+OK\r\n");
            }
            ["SYNC"] => self.sync(client, primary, &ip, Wanted::Everything),
            ["PSYNC", id, offset, more @ ..] => {
                if more == ["FAILOVER"] && !self.take_over(client, primary, id) {
                    return;
                }
                let wanted = Wanted::parse(id.as_bytes(), offset.as_bytes()).expect("it is one");
                self.sync(client, primary, &ip, wanted);
            }
            other => panic!("seed {}: {other:?}", self.seed),
        }
    }

    /// As PSYNC FAILOVER does; `false` if it is refused.
    fn take_over(&mut self, client: u64, server: usize, id: &str) -> bool {
        let history = self.servers[server].history;
        if self.servers[server].upstream.is_none() {
            self.reply(client, b"-ERR PSYNC FAILOVER can't be sent to a master.\r\n");
            return false;
        }
        if history.id.as_str() != id {
            self.reply(client, b"-ERR PSYNC FAILOVER replid must match my replid.\r\n");
            return false;
        }
        // The connection of the one that asks stays.
        let connection = self.connections.remove(&client).expect("it is there");
        self.promote(server);
        self.connections.insert(client, connection);
        self.handovers += 1;
        true
    }

    fn sync(&mut self, client: u64, server: usize, ip: &str, wanted: Wanted) {
        let now = Millis(self.now);
        let one = &mut self.servers[server];
        if one.failover.stage() != Handover::Nothing
            || (one.upstream.is_some() && one.replica.stage() != Stage::Following)
        {
            return self.reply(client, b"-NOMASTERLINK Can't SYNC now\r\n");
        }
        let kept = one.kept();
        match one.primary.sync(client, ip, wanted, &kept, one.dual, now) {
            Sync::Continue(from) => {
                let line = wire::resume(&one.history.id, true);
                one.partial += 1;
                self.connections.get_mut(&client).expect("it is there").sent = Some(from.0);
                self.reply(client, &line);
            }
            Sync::Full { .. } => {
                one.full += 1;
                one.primary.link_mut(client).expect("it asked").has_socket = true;
            }
            Sync::OwnChannel { protocol, .. } => {
                self.reply(client, &wire::propose(protocol, client));
            }
            Sync::Join(second) => {
                let line = wire::resume(&one.history.id, true);
                let sent = self.connections.get(&second).and_then(|second| second.sent);
                self.connections.get_mut(&client).expect("it is there").sent = sent;
                self.reply(client, &line);
            }
        }
    }

    pub fn send_snapshot(&mut self, server: usize, group: &Group) {
        let one = &self.servers[server];
        let (data, position) = (one.stream.clone(), one.position());
        let mark = [b'm'; wire::MARK_LEN];
        let (header, end) = match group.transfer {
            Transfer::Direct => (wire::marked_header(&mark), mark.to_vec()),
            Transfer::File => (wire::sized_header(data.len() as u64), Vec::new()),
        };
        let id = one.history.id;
        for &client in &group.clients {
            let machine = &mut self.servers[server].primary;
            let main = machine.begin_parallel(client, (id, position));
            let is_known =
                |link: &primary::Link| !link.facts.rdb_channel || link.facts.main_client.is_some();
            let line = match machine.link(client) {
                Some(link) if !is_known(link) => EndOffset { position, id, client }.line(),
                _ => wire::full_resync(&id, position),
            };
            if let Some(connection) = main.and_then(|main| self.connections.get_mut(&main)) {
                connection.sent = Some(position.0);
            }
            self.reply(client, &[&line[..], &header, &data, &end].concat());
            if let Some(connection) = self.connections.get_mut(&client) {
                connection.sent = Some(position.0);
            }
        }
        self.servers[server].primary.sent(group, Millis(self.now));
    }

    pub fn feed(&mut self, client: u64) {
        let Some(connection) = self.connections.get_mut(&client) else { return };
        let server = &mut self.servers[connection.primary];
        let Some(link) = server.primary.link_mut(client) else { return };
        let Some(sent) = connection.sent else { return };
        match link.stage {
            primary::Stage::Online => {
                link.copy.get_or_insert_with(|| self.safe.add_copy(JournalPos(sent)));
            }
            primary::Stage::Parallel => {}
            _ => return,
        }
        let bytes = &server.stream[sent as usize..];
        connection.down.send(bytes, self.now, &mut self.rng);
        connection.sent = Some(server.position().0);
    }

    pub fn reply(&mut self, client: u64, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&client) {
            connection.down.send(bytes, self.now, &mut self.rng);
        }
    }

    /// What the primary and one replica have is confirmed.
    fn note_confirmed(&mut self, server: usize) {
        let one = &self.servers[server];
        if server != self.leader || one.upstream.is_some() {
            return;
        }
        let position = one.primary.replicas().map(|link| link.acknowledged().0).max().unwrap_or(0);
        let (id, before) = self.confirmed;
        if position > before {
            self.confirmed_writes += 1;
            self.confirmed = (one.history.id, position);
        } else {
            // What was confirmed in an earlier history is in this one, too.
            self.confirmed = (if before == 0 { one.history.id } else { id }, before);
        }
    }
}
