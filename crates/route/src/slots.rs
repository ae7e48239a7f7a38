//! The slots of a Redis Cluster, and redirections.

use structs::crc16;

/// How many slots there are.
pub const SLOTS: usize = crc16::SLOTS as usize;

/// The slot of a key.
pub fn of(key: &[u8]) -> u16 {
    crc16::key_slot(key)
}

/// A server's address as the cluster says it. An empty host is that of the server which says it.
pub type Address = (String, u16);

/// What an error of a cluster asks the client to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirection {
    /// The slot belongs to another server.
    Moved(u16, Address),
    /// This request is to be tried at another server, after ASKING.
    Ask(u16, Address),
    /// The keys are on two servers at the moment: try again soon.
    TryAgain,
    /// The cluster cannot serve the slot at the moment.
    Down,
}

/// Reads an error.
pub fn redirection(reply: &[u8]) -> Option<Redirection> {
    let text = std::str::from_utf8(reply.strip_prefix(b"-")?).ok()?.trim_end();
    let mut words = text.split(' ');
    let kind = words.next()?;
    match kind {
        "TRYAGAIN" => return Some(Redirection::TryAgain),
        // A command that waited, at a server that has become a replica. CLIENT UNBLOCK says
        // something else.
        "UNBLOCKED" if text.contains("instance state changed") => {
            return Some(Redirection::TryAgain);
        }
        "CLUSTERDOWN" => return Some(Redirection::Down),
        "MOVED" | "ASK" => {}
        _ => return None,
    }
    let slot = words.next()?.parse().ok()?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host = if host == "?" { "" } else { host };
    let address = (host.to_owned(), port.parse().ok()?);
    Some(if kind == "MOVED" {
        Redirection::Moved(slot, address)
    } else {
        Redirection::Ask(slot, address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_read() {
        let at = |host: &str| (host.to_owned(), 7001);
        assert_eq!(
            redirection(b"-MOVED 3999 127.0.0.1:7001\r\n"),
            Some(Redirection::Moved(3999, at("127.0.0.1")))
        );
        assert_eq!(redirection(b"-ASK 5 ::1:7001\r\n"), Some(Redirection::Ask(5, at("::1"))));
        assert_eq!(redirection(b"-MOVED 5 :7001\r\n"), Some(Redirection::Moved(5, at(""))));
        assert_eq!(redirection(b"-ASK 5 ?:7001\r\n"), Some(Redirection::Ask(5, at(""))));
        assert_eq!(redirection(b"-TRYAGAIN Multiple keys\r\n"), Some(Redirection::TryAgain));
        assert_eq!(redirection(b"-ERR no\r\n"), None);
        let demoted = b"-UNBLOCKED force unblock from blocking operation, instance state changed \
            (master -> replica?)\r\n";
        assert_eq!(redirection(demoted), Some(Redirection::TryAgain));
        assert_eq!(redirection(b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"), None);
    }
}
