//! Ports for servers of tests, which no other test takes.
//!
//! Test programs run beside each other, so a port that is free now may be another's in a moment. A
//! process takes blocks of ports: each has a file that is locked as long as the process runs. The
//! files are in one place of the machine, whatever folder a run of tests keeps its others in.
//! All ports are below those that the system gives to connections, and below those of the cluster
//! buses that reference servers open, ten thousand above their own.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Where the files are.
const FOLDER: &str = "/tmp/dunlin-test-ports";

/// The ports of all blocks.
const FIRST: u16 = 10_000;
const BLOCKS: u16 = 100;
const BLOCK_LEN: u16 = 100;

/// Blocks that one process takes at most. Then it begins with the first of them again.
const MAX_TAKEN: usize = 8;

/// The blocks of this process.
struct Ports {
    /// The first port of each, and the locked file.
    blocks: Vec<(u16, File)>,
    /// The place of the next port, counted over all blocks.
    next: usize,
}

static PORTS: Mutex<Ports> = Mutex::new(Ports { blocks: Vec::new(), next: 0 });

/// Returns a port without a listener.
pub fn free_port() -> io::Result<u16> {
    free_ports(1)
}

/// Returns the first of so many ports in a row, at most a hundred, that have no listeners.
pub fn free_ports(count: u16) -> io::Result<u16> {
    assert!((1..=BLOCK_LEN).contains(&count), "{count} ports in a row");
    PORTS.lock().unwrap_or_else(PoisonError::into_inner).take(count)
}

impl Ports {
    fn take(&mut self, count: u16) -> io::Result<u16> {
        let block_len = usize::from(BLOCK_LEN);
        // Each place is looked at once, and then those of the first blocks again.
        for _ in 0..2 * MAX_TAKEN * block_len {
            let offset = self.next % block_len;
            if offset + usize::from(count) > block_len {
                self.next += block_len - offset;
                continue;
            }
            if self.next / block_len >= self.blocks.len() && !self.take_block()? {
                self.next = 0;
            }
            let first = self.blocks[self.next / block_len].0 + (self.next % block_len) as u16;
            if (first..first + count).all(is_free) {
                self.next += usize::from(count);
                return Ok(first);
            }
            self.next += 1;
        }
        Err(ErrorKind::AddrInUse.into())
    }

    /// Takes another block. Returns whether there is one for this process.
    fn take_block(&mut self) -> io::Result<bool> {
        if self.blocks.len() == MAX_TAKEN {
            return Ok(false);
        }
        let folder = Path::new(FOLDER);
        fs::create_dir_all(folder)?;
        // Processes begin at different places, so that few look at blocks of others.
        let begin = std::process::id();
        for number in 0..u32::from(BLOCKS) {
            let block = ((begin.wrapping_add(number)) % u32::from(BLOCKS)) as u16;
            let first = FIRST + block * BLOCK_LEN;
            // Another user's files are other tests', too.
            let Ok(file) = File::create(folder.join(first.to_string())) else { continue };
            if file.try_lock().is_ok() {
                self.blocks.push((first, file));
                return Ok(true);
            }
        }
        match self.blocks.is_empty() {
            true => Err(io::Error::other("all ports for tests are taken")),
            false => Ok(false),
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_of_one_holder_alone_and_ports_in_a_row_are_of_one_block() {
        let none = || Ports { blocks: Vec::new(), next: 0 };
        let (mut one, mut other) = (none(), none());
        let mut taken = Vec::new();
        for ports in [&mut one, &mut other] {
            for count in [1, 99, 100, 2] {
                let first = ports.take(count).expect("there are some");
                assert_eq!((first - FIRST) / BLOCK_LEN, (first - FIRST + count - 1) / BLOCK_LEN);
                taken.extend(first..first + count);
            }
        }
        let count = taken.len();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), count, "a port was given twice");
        // Its blocks are used again and again.
        let before = one.blocks.len();
        (0..2 * MAX_TAKEN).for_each(|_| assert!(one.take(100).is_ok()));
        assert!(before < one.blocks.len() && one.blocks.len() <= MAX_TAKEN);
    }
}
