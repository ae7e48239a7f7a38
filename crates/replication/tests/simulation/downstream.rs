//! What a replica does.

use crate::network::Connection;
use crate::world::World;
use keyspace::Millis;
use replication::replica::{Action, Channel, Stage, acknowledgement};

impl World {
    pub fn act(&mut self, server: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Connect => self.connect(server),
                Action::ConnectRdbChannel => self.connect_rdb_channel(server),
                Action::Send(channel, bytes) => self.send(server, channel, &bytes),
                Action::Acknowledge => {
                    let position = self.servers[server].position();
                    self.send(server, Channel::Main, &acknowledgement(position, None));
                }
                Action::Receive(promise) => self.servers[server].promise = Some(promise),
                Action::Follow(id) => {
                    let one = &mut self.servers[server];
                    if let Some(id) = id.filter(|&id| id != one.history.id) {
                        one.history.second = Some((one.history.id, one.position()));
                        one.history.id = id;
                        self.cut_some(|connection| connection.primary == server);
                    }
                }
                Action::HandedOver { is_accepted } => {
                    self.servers[server].failover.end();
                    if !is_accepted && server == self.leader {
                        return self.promote(server);
                    }
                    if !is_accepted {
                        // Others have taken over long ago. It is a primary without replicas until
                        // it is told, so nothing that it is given is confirmed.
                        return self.begin_history(server);
                    }
                }
                Action::Close => {
                    self.cut_quietly(|connection| connection.replica == server);
                    self.servers[server].close();
                }
                Action::Log(_) | Action::Warn(_) => {}
            }
        }
    }

    /// A new connection to the primary; `None` if it cannot be reached.
    fn open(&mut self, server: usize) -> Option<u64> {
        let target = self.servers[server].upstream.expect("it follows one");
        if self.cut[server][target] || !self.servers[target].is_running {
            let now = Millis(self.now);
            let actions = self.servers[server].replica.lost("it cannot be reached", now);
            self.act(server, actions);
            return None;
        }
        let client = self.next_client;
        self.next_client += 1;
        self.connections.insert(client, Connection::new(client, server, target));
        Some(client)
    }

    fn connect(&mut self, server: usize) {
        let Some(client) = self.open(server) else { return };
        self.servers[server].connection = Some(client);
        let actions = self.servers[server].replica.connected(Millis(self.now));
        self.act(server, actions);
    }

    fn connect_rdb_channel(&mut self, server: usize) {
        let Some(client) = self.open(server) else { return };
        let one = &mut self.servers[server];
        one.rdb_channel = Some(client);
        let around = one.around(server as u16);
        let actions = one.replica.rdb_channel_connected(&around, Millis(self.now));
        self.act(server, actions);
    }

    fn send(&mut self, server: usize, channel: Channel, bytes: &[u8]) {
        let one = &self.servers[server];
        let client = match channel {
            Channel::Main => one.connection,
            Channel::Rdb => one.rdb_channel,
        };
        if let Some(connection) = client.and_then(|client| self.connections.get_mut(&client)) {
            connection.up.send(bytes, self.now, &mut self.rng);
        }
    }

    /// What has come over a connection.
    fn receive(&mut self, server: usize, client: Option<u64>) -> Vec<u8> {
        let connection = client.and_then(|client| self.connections.get_mut(&client));
        let bytes = connection.map(|one| one.down.receive(self.now)).unwrap_or_default();
        if !bytes.is_empty() {
            self.servers[server].replica.note_heard(Millis(self.now));
        }
        bytes
    }

    pub fn listen(&mut self, server: usize) {
        let now = Millis(self.now);
        let client = self.servers[server].connection;
        if client.is_none() {
            return;
        }
        let bytes = self.receive(server, client);
        self.servers[server].input.extend(bytes);
        let bytes = self.receive(server, self.servers[server].rdb_channel);
        self.servers[server].rdb_input.extend(bytes);
        while self.servers[server].connection == client {
            let one = &mut self.servers[server];
            let actions = match one.replica.stage() {
                Stage::Waiting | Stage::Connecting => return,
                Stage::Receiving => {
                    if !one.take_snapshot() {
                        return;
                    }
                    let actions = one.replica.loaded(now);
                    let rdb_channel = one.rdb_channel.take();
                    self.cut_quietly(|connection| Some(connection.client) == rdb_channel);
                    self.cut_some(|connection| connection.primary == server);
                    actions
                }
                Stage::Following => {
                    if let Some(position) = one.apply() {
                        self.send(server, Channel::Main, &acknowledgement(position, None));
                    }
                    return;
                }
                _ => {
                    let input = match one.replica.listens_to() {
                        Channel::Main => &mut one.input,
                        Channel::Rdb => &mut one.rdb_input,
                    };
                    let end = input.iter().position(|&byte| byte == b'\n');
                    let Some(end) = end else { return };
                    let line: Vec<u8> = input.drain(..=end).collect();
                    let around = one.around(server as u16);
                    one.replica.line(line.trim_ascii_end(), &around, now)
                }
            };
            self.act(server, actions);
        }
    }
}
