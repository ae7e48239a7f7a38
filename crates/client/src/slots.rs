//! The slots of a Redis Cluster, as CLUSTER SLOTS says them.

use resp::Value;
use structs::crc16::SLOTS;

/// One range of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
    /// Hosts and ports: the primary, then the replicas. An empty host is that of the server which
    /// said it.
    pub nodes: Vec<(String, u16)>,
}

/// Reads a reply to CLUSTER SLOTS.
pub fn parse_slots(reply: &Value) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(range).collect()
}

fn range(range: &Value) -> Option<Range> {
    let [first, last, nodes @ ..] = range.items() else { return None };
    let (first, last) = (slot(first)?, slot(last)?);
    let nodes = nodes.iter().map(node).collect::<Option<_>>()?;
    (first <= last).then_some(Range { first, last, nodes })
}

fn slot(value: &Value) -> Option<u16> {
    u16::try_from(value.integer()?).ok().filter(|slot| *slot < SLOTS)
}

fn node(node: &Value) -> Option<(String, u16)> {
    let [host, port, ..] = node.items() else { return None };
    // A server that does not know the host says `?` or null.
    let host = if host.bytes() == Some(b"?") { String::new() } else { host.text() };
    Some((host, u16::try_from(port.integer()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::{ReplyLimits, decode};

    fn parsed(reply: &[u8]) -> Option<Vec<Range>> {
        parse_slots(&decode(reply, ReplyLimits::PEER).expect("a reply"))
    }

    #[test]
    fn ranges_are_read() {
        let reply =
            b"*1\r\n*4\r\n:0\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n*0\r\n\
            *3\r\n$-1\r\n:7001\r\n$2\r\nie\r\n";
        let nodes = vec![("127.0.0.1".to_owned(), 7000), (String::new(), 7001)];
        assert_eq!(parsed(reply), Some(vec![Range { first: 0, last: 16383, nodes }]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for reply in [
            &b"*1\r\n*2\r\n:5\r\n:4\r\n"[..],
            b"*1\r\n*2\r\n:0\r\n:16384\r\n",
            b"*1\r\n*2\r\n:-1\r\n:4\r\n",
            b"*1\r\n:5\r\n",
            b"*1\r\n*3\r\n:0\r\n:4\r\n*1\r\n+host\r\n",
            b"+OK\r\n",
        ] {
            assert_eq!(parsed(reply), None);
        }
    }
}
