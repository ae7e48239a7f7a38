//! Output that waits: because the socket is full, or because it is to be encrypted piece by piece.

use std::collections::VecDeque;
use structs::output::Output;

/// Output that waits, in sending order.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The chunks. The first `sent` bytes of the first one have been sent.
    pub chunks: VecDeque<Output>,
    pub sent: usize,
    /// Bytes still to send in all chunks.
    pub bytes: usize,
    /// Bytes of memory of the chunks. A string at the end of one chunk and the beginning of the
    /// next counts once.
    pub memory: usize,
}

impl Backlog {
    /// Adds output to the end. Its first `sent` bytes have been sent.
    pub fn push(&mut self, chunk: Output, sent: usize) {
        self.bytes += chunk.len() - sent;
        self.memory += chunk.memory() - self.joint_bytes(&chunk);
        self.chunks.push_back(chunk);
    }

    /// Returns the bytes of the string that the last chunk and `next` share.
    pub fn joint_bytes(&self, next: &Output) -> usize {
        self.chunks.back().map_or(0, |last| last.joint_bytes(next))
    }

    /// Drops the first chunk, which has been sent.
    pub fn pop(&mut self) {
        self.sent = 0;
        if let Some(chunk) = self.chunks.pop_front() {
            let joint = self.chunks.front().map_or(0, |next| chunk.joint_bytes(next));
            self.memory -= chunk.memory() - joint;
        }
    }
}
