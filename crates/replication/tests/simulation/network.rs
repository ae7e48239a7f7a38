//! Connections: bytes arrive in order, later, in pieces; or the connection is cut.

use std::collections::VecDeque;

/// Numbers from a seed (xorshift64*).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() >> 33) as usize % limit
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// One direction.
#[derive(Default)]
pub struct Pipe {
    pieces: VecDeque<(i64, Vec<u8>)>,
}

impl Pipe {
    pub fn send(&mut self, bytes: &[u8], now: i64, rng: &mut Rng) {
        let earliest = self.pieces.back().map_or(0, |(at, _)| *at);
        let mut rest = bytes;
        let mut at = earliest.max(now);
        while !rest.is_empty() {
            at += rng.below(20) as i64;
            let (piece, more) = rest.split_at(1 + rng.below(rest.len()));
            self.pieces.push_back((at, piece.to_vec()));
            rest = more;
        }
    }

    pub fn receive(&mut self, now: i64) -> Vec<u8> {
        let mut out = Vec::new();
        while self.pieces.front().is_some_and(|(at, _)| *at <= now) {
            out.extend(self.pieces.pop_front().expect("there is one").1);
        }
        out
    }
}

/// From a replica to its primary.
pub struct Connection {
    pub client: u64,
    pub replica: usize,
    pub primary: usize,
    pub up: Pipe,
    pub down: Pipe,
    /// What the primary has of an incomplete request.
    pub requests: Vec<u8>,
    /// Up to where of the primary's stream was sent.
    pub sent: Option<u64>,
}

impl Connection {
    pub fn new(client: u64, replica: usize, primary: usize) -> Connection {
        let (up, down) = (Pipe::default(), Pipe::default());
        Connection { client, replica, primary, up, down, requests: Vec::new(), sent: None }
    }
}
