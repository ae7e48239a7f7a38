//! What a replica does.

use crate::network::Connection;
use crate::world::World;
use keyspace::Millis;
use replication::replica::{Action, Stage, acknowledgement};

impl World {
    pub fn act(&mut self, server: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Connect => self.connect(server),
                Action::Send(bytes) => self.send(server, &bytes),
                Action::Acknowledge => {
                    let position = self.servers[server].position();
                    self.send(server, &acknowledgement(position, None));
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
                        // Others have taken over long ago. It is a primary without replicas until it
                        // is told, so nothing that it is given is confirmed.
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

    fn connect(&mut self, server: usize) {
        let target = self.servers[server].upstream.expect("it follows one");
        let now = Millis(self.now);
        if self.cut[server][target] || !self.servers[target].is_running {
            let actions = self.servers[server].replica.lost("it cannot be reached", now);
            return self.act(server, actions);
        }
        let client = self.next_client;
        self.next_client += 1;
        self.connections.insert(client, Connection::new(server, target));
        self.servers[server].connection = Some(client);
        let actions = self.servers[server].replica.connected(now);
        self.act(server, actions);
    }

    fn send(&mut self, server: usize, bytes: &[u8]) {
        let client = self.servers[server].connection;
        if let Some(connection) = client.and_then(|client| self.connections.get_mut(&client)) {
            connection.up.send(bytes, self.now, &mut self.rng);
        }
    }

    pub fn listen(&mut self, server: usize) {
        let now = Millis(self.now);
        let client = self.servers[server].connection;
        let Some(connection) = client.and_then(|client| self.connections.get_mut(&client)) else {
            return;
        };
        let bytes = connection.down.receive(self.now);
        if !bytes.is_empty() {
            self.servers[server].replica.note_heard(now);
            self.servers[server].input.extend(bytes);
        }
        while self.servers[server].connection == client {
            let one = &mut self.servers[server];
            let actions = match one.replica.stage() {
                Stage::Waiting | Stage::Connecting => return,
                Stage::Receiving => {
                    if !one.take_snapshot() {
                        return;
                    }
                    let actions = one.replica.loaded(now);
                    self.cut_some(|connection| connection.primary == server);
                    actions
                }
                Stage::Following => {
                    if let Some(position) = one.apply() {
                        self.send(server, &acknowledgement(position, None));
                    }
                    return;
                }
                _ => {
                    let end = one.input.iter().position(|&byte| byte == b'\n');
                    let Some(end) = end else { return };
                    let line: Vec<u8> = one.input.drain(..=end).collect();
                    let around = one.around(server as u16);
                    one.replica.line(line.trim_ascii_end(), &around, now)
                }
            };
            self.act(server, actions);
        }
    }
}
