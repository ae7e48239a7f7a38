//! The differential test: random requests to two servers, whose replies must be the same.
//!
//! [`grammar`] makes sequences of requests from a table of syntax lines, [`duel`] sends them to
//! both servers, [`compare`] knows where replies may differ (order, randomness, clocks), and
//! [`shrink`] cuts a failing sequence down to what a person wants to read.

pub mod compare;
pub mod duel;
pub mod grammar;
pub mod scripted;
pub mod shrink;

use crate::notation::print_word;
use compare::Compare;

/// One request of a sequence.
#[derive(Clone, Debug)]
pub struct Op {
    /// Which of the two connections to each server sends it.
    pub client: usize,
    /// The request.
    pub words: Vec<Vec<u8>>,
    /// How the replies are compared.
    pub compare: Compare,
}

impl Op {
    /// The command's name in lower case.
    pub fn name(&self) -> String {
        let first = self.words.first().map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(first).to_ascii_lowercase()
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let client = if self.client == 0 { String::new() } else { format!("c{}", self.client + 1) };
        let words: Vec<String> = self.words.iter().map(|word| print_word(word)).collect();
        write!(out, "{client}> {}", words.join(" "))
    }
}
