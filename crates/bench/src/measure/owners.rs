//! Which processes of this machine listen on an address.
//!
//! The kernel is asked for the listening sockets of the port (netlink's sock_diag); /proc/net/tcp,
//! which has the same, walks the whole table of established connections on the way: ten
//! milliseconds here. Whose a socket is then stands among the descriptors of every process.

use crate::generator::os;
use crate::options::{Address, resolve};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The processes that listen on an address; none if it is not one of this machine.
pub fn owners(address: &Address) -> Vec<u32> {
    let inodes = match address {
        Address::Unix(path) => unix_inodes(path),
        Address::Tcp { host, port } => {
            let local = resolve(host, *port).is_ok_and(|ip| is_local(&ip));
            if local || host == "localhost" { listening_inodes(*port) } else { Vec::new() }
        }
    };
    if inodes.is_empty() {
        return Vec::new();
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut owners = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let descriptors = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let owns = descriptors
            .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
            .any(|link| link.to_str().is_some_and(|link| wanted.iter().any(|w| w == link)));
        if owns {
            owners.push(pid);
        }
    }
    owners
}

/// An address of this machine is one that can be bound.
fn is_local(address: &std::net::SocketAddr) -> bool {
    address.ip().is_loopback() || std::net::TcpListener::bind((address.ip(), 0)).is_ok()
}

fn listening_inodes(port: u16) -> Vec<u64> {
    asked(port).unwrap_or_else(|_| read_from_proc(port))
}

/// Offsets and values of `linux/netlink.h`, `linux/sock_diag.h` and `linux/inet_diag.h`.
mod wire {
    pub const HEADER_BYTES: usize = 16;
    pub const REQUEST_BYTES: usize = HEADER_BYTES + 56;
    pub const BY_FAMILY: u16 = 20;
    /// A request whose answer is a list.
    pub const DUMP: u16 = 0x301;
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    /// In the request: family, protocol, states, then the socket's own port.
    pub const FAMILY: usize = HEADER_BYTES;
    pub const PROTOCOL: usize = HEADER_BYTES + 1;
    pub const STATES: usize = HEADER_BYTES + 4;
    pub const PORT: usize = HEADER_BYTES + 8;
    pub const LISTENING: u32 = 1 << 10;
    /// In the answer.
    pub const INODE: usize = HEADER_BYTES + 68;
}

/// The listening sockets of a port, as the kernel tells. An error: it knows no such question.
fn asked(port: u16) -> io::Result<Vec<u64>> {
    let mut kernel = os::netlink(libc::NETLINK_SOCK_DIAG)?;
    let mut inodes = Vec::new();
    let mut buffer = vec![0; 32 * 1024];
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut request = [0; wire::REQUEST_BYTES];
        request[..4].copy_from_slice(&(wire::REQUEST_BYTES as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&wire::BY_FAMILY.to_ne_bytes());
        request[6..8].copy_from_slice(&wire::DUMP.to_ne_bytes());
        request[wire::FAMILY] = family as u8;
        request[wire::PROTOCOL] = libc::IPPROTO_TCP as u8;
        request[wire::STATES..][..4].copy_from_slice(&wire::LISTENING.to_ne_bytes());
        request[wire::PORT..][..2].copy_from_slice(&port.to_be_bytes());
        kernel.write_all(&request)?;
        loop {
            let received = kernel.read(&mut buffer)?;
            if take_in(&buffer[..received], &mut inodes)? {
                break;
            }
        }
    }
    Ok(inodes)
}

/// Takes the sockets out of a part of the answer; whether it was the last.
fn take_in(mut part: &[u8], inodes: &mut Vec<u64>) -> io::Result<bool> {
    let cut_short = || io::Error::other("the kernel's answer is cut short");
    let word = |bytes: &[u8], at: usize| -> io::Result<u32> {
        let bytes = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or_else(cut_short)
    };
    while !part.is_empty() {
        let length = word(part, 0)? as usize;
        let message = part.get(..length.max(wire::HEADER_BYTES)).ok_or_else(cut_short)?;
        match u16::from_ne_bytes([message[4], message[5]]) {
            wire::DONE => return Ok(true),
            wire::ERROR => return Err(io::Error::other("the kernel refuses to answer")),
            _ => inodes.push(word(message, wire::INODE)?.into()),
        }
        // Messages begin at multiples of four bytes.
        part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn read_from_proc(port: u16) -> Vec<u64> {
    const LISTENING: &str = "0A";
    let mut inodes = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if let [_, local, _, state, ..] = fields[..]
                && state == LISTENING
                && local.rsplit(':').next().and_then(|hex| u16::from_str_radix(hex, 16).ok())
                    == Some(port)
                && let Some(inode) = fields.get(9).and_then(|inode| inode.parse().ok())
            {
                inodes.push(inode);
            }
        }
    }
    inodes
}

fn unix_inodes(path: &Path) -> Vec<u64> {
    // The table names sockets as they were bound; the file tells whether it is the same one.
    let wanted = fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let listening = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, flags, _, _, inode, bound] = fields[..] else { return None };
        let listens = flags == "00010000";
        let same = fs::metadata(bound).map(|file| (file.dev(), file.ino())).ok() == wanted;
        if listens && wanted.is_some() && same { inode.parse().ok() } else { None }
    });
    listening.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address::tcp("127.0.0.1", port);
        assert_eq!(owners(&address), [std::process::id()]);
        let directory = std::env::temp_dir().join(format!("bench-cost-{}", std::process::id()));
        let unix = std::os::unix::net::UnixListener::bind(&directory).unwrap();
        assert_eq!(owners(&Address::Unix(directory.clone())), [std::process::id()]);
        drop(unix);
        std::fs::remove_file(directory).unwrap();
        drop(listener);
        assert_eq!(owners(&address), [] as [u32; 0]);
    }

    #[test]
    fn the_kernel_and_proc_tell_the_same() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let told = asked(port).unwrap();
            assert_eq!((told.len(), &told), (1, &read_from_proc(port)));
        }
    }

    #[test]
    fn an_answer_of_another_form_is_an_error() {
        let mut inodes = Vec::new();
        assert!(take_in(&[9, 0, 0], &mut inodes).is_err());
        assert!(take_in(&[200, 0, 0, 0, 20, 0, 0, 0], &mut inodes).is_err());
        assert!(take_in(&[0; 16], &mut inodes).is_err());
        assert!(inodes.is_empty());
    }
}
