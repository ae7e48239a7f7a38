//! The PROXY header, by which a load balancer says where a client comes from.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The header of the PROXY protocol, version 1 or 2, at the start of a connection. Returns its
/// length and the client's address, if it says one; `None` if it is not complete.
pub(super) fn proxy_header(input: &[u8]) -> Result<Option<(usize, Option<String>)>, &'static str> {
    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    const MAX_LINE: usize = 107;
    let invalid = "its connection does not begin with a PROXY header";
    if input.starts_with(SIGNATURE) {
        let Some(&[command, family, high, low]) = input[12..].first_chunk() else {
            return Ok(None);
        };
        let len = 16 + usize::from(u16::from_be_bytes([high, low]));
        let Some(body) = input.get(16..len) else { return Ok(None) };
        let peer = match command {
            // The proxy speaks for itself, as in a health check.
            0x20 => None,
            0x21 => binary_address(family, body).ok_or(invalid)?,
            _ => return Err(invalid),
        };
        return Ok(Some((len, peer)));
    }
    if SIGNATURE.starts_with(input) || b"PROXY ".starts_with(input) {
        return Ok(None);
    }
    if !input.starts_with(b"PROXY ") {
        return Err(invalid);
    }
    let Some(end) = input.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
        return if input.len() < MAX_LINE { Ok(None) } else { Err(invalid) };
    };
    let text = std::str::from_utf8(&input[..end]).map_err(|_| invalid)?.trim_end();
    let words: Vec<&str> = text.split(' ').collect();
    let peer = match words[..] {
        [_, "TCP4" | "TCP6", ip, _, port, _] => {
            let ip = ip.parse().map_err(|_| invalid)?;
            let port = port.parse().map_err(|_| invalid)?;
            Some(SocketAddr::new(ip, port).to_string())
        }
        [_, "UNKNOWN", ..] => None,
        _ => return Err(invalid),
    };
    Ok(Some((end + 1, peer)))
}

/// Returns the client's address, if the family is one that has such. `None`: the header is shorter
/// than its family's addresses, or there is no such family.
fn binary_address(family: u8, body: &[u8]) -> Option<Option<String>> {
    let len = match family >> 4 {
        0 => 0,
        1 => 12,
        2 => 36,
        3 => 216,
        _ => return None,
    };
    let body = body.get(..len)?;
    let (ip, port) = match family {
        0x11 => (Ipv4Addr::from(*body.first_chunk::<4>()?).into(), body.get(8..10)?),
        0x21 => (Ipv6Addr::from(*body.first_chunk::<16>()?).into(), body.get(32..34)?),
        _ => return Some(None),
    };
    Some(Some(SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]])).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_headers_are_read() {
        let one = b"PROXY TCP4 10.0.0.1 10.0.0.2 5555 6379\r\nPING\r\n";
        assert_eq!(proxy_header(one), Ok(Some((40, Some("10.0.0.1:5555".into())))));
        let mut two = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        two.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x15, 0xb3, 0x18, 0xeb]);
        assert_eq!(proxy_header(&two), Ok(Some((28, Some("10.0.0.1:5555".into())))));
        for cut in 1..28 {
            assert_eq!(proxy_header(&two[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(proxy_header(b"PROXY UNKNOWN\r\n"), Ok(Some((15, None))));
        // Fewer bytes than the family's addresses take, and families that there are not.
        let header = |command: u8, family: u8, len: u8| {
            let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
            header.extend([command, family, 0, len]);
            header.resize(16 + usize::from(len), 1);
            proxy_header(&header).map(|found| found.map(|found| found.0))
        };
        for (family, len) in
            [(0x11, 4), (0x11, 11), (0x21, 35), (0x12, 11), (0x31, 215), (0x41, 12)]
        {
            assert!(header(0x21, family, len).is_err(), "{family:x} {len}");
        }
        for (family, len) in [(0x11, 12), (0x11, 40), (0x21, 36), (0x31, 216), (0, 0)] {
            assert_eq!(header(0x21, family, len), Ok(Some(16 + usize::from(len))), "{family:x}");
        }
        assert_eq!(header(0x20, 0x11, 0), Ok(Some(16)));
        assert!(header(0x22, 0x11, 12).is_err() && header(0x11, 0x11, 12).is_err());
        assert_eq!(proxy_header(b"PRO"), Ok(None));
        assert!(proxy_header(b"*1\r\n$4\r\nPING\r\n").is_err());
    }
}
