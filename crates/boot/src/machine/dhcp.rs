//! As much of DHCP (RFC 2131) as one machine needs: it asks once and keeps what it gets.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// What a server has given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The machine's address.
    pub address: Ipv4Addr,
    /// The way out.
    pub gateway: Option<Ipv4Addr>,
    /// The network's mask.
    pub mask: Ipv4Addr,
    /// The server that gave it.
    server: Option<Ipv4Addr>,
}

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACKNOWLEDGE: u8 = 5;

/// Begins the options.
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Where they begin.
const OPTIONS: usize = 236;
/// Attempts, each a second longer than the one before.
const ATTEMPTS: u64 = 5;

/// Asks for an address on a device that has none yet.
pub fn ask(device: &str) -> io::Result<Lease> {
    let hardware = hardware_address(device)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68))?;
    socket.set_broadcast(true)?;
    let number = u32::from_be_bytes([hardware[2], hardware[3], hardware[4], hardware[5]]);
    let mut failure = io::Error::other("no DHCP server answers");
    for attempt in 1..=ATTEMPTS {
        socket.set_read_timeout(Some(Duration::from_secs(attempt)))?;
        let offer = exchange(&socket, &message(DISCOVER, number, &hardware, None), number, OFFER);
        let lease = offer.and_then(|offer| {
            let request = message(REQUEST, number, &hardware, Some(&offer));
            exchange(&socket, &request, number, ACKNOWLEDGE)
        });
        match lease {
            Ok(lease) => return Ok(lease),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn hardware_address(device: &str) -> io::Result<[u8; 6]> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{device}/address"))?;
    let mut address = [0; 6];
    for (byte, part) in address.iter_mut().zip(text.trim().split(':')) {
        *byte = u8::from_str_radix(part, 16).map_err(io::Error::other)?;
    }
    Ok(address)
}

fn exchange(socket: &UdpSocket, request: &[u8], number: u32, wanted: u8) -> io::Result<Lease> {
    socket.send_to(request, (Ipv4Addr::BROADCAST, 67))?;
    let mut buffer = [0; 1500];
    loop {
        let count = socket.recv(&mut buffer)?;
        if let Some((kind, lease)) = parse(&buffer[..count], number)
            && kind == wanted
        {
            return Ok(lease);
        }
    }
}

/// A message of the client's, which asks for answers by broadcast: it has no address yet.
fn message(kind: u8, number: u32, hardware: &[u8; 6], offer: Option<&Lease>) -> Vec<u8> {
    let mut message = vec![0; OPTIONS];
    message[..4].copy_from_slice(&[1, 1, 6, 0]);
    message[4..8].copy_from_slice(&number.to_be_bytes());
    message[10] = 0x80;
    message[28..34].copy_from_slice(hardware);
    message.extend(COOKIE);
    message.extend([53, 1, kind]);
    if let Some(offer) = offer {
        message.extend([50, 4]);
        message.extend(offer.address.octets());
        if let Some(server) = offer.server {
            message.extend([54, 4]);
            message.extend(server.octets());
        }
    }
    // The mask and the gateway are wanted.
    message.extend([55, 2, 1, 3, 255]);
    message
}

/// The kind of an answer to a request with this number, and what it gives.
fn parse(bytes: &[u8], number: u32) -> Option<(u8, Lease)> {
    if bytes.len() < OPTIONS + COOKIE.len()
        || bytes[0] != 2
        || bytes[4..8] != number.to_be_bytes()
        || bytes[OPTIONS..OPTIONS + COOKIE.len()] != COOKIE
    {
        return None;
    }
    let address =
        |at: &[u8]| Some(Ipv4Addr::new(*at.first()?, *at.get(1)?, *at.get(2)?, *at.get(3)?));
    let mut lease = Lease {
        address: address(&bytes[16..20])?,
        gateway: None,
        mask: Ipv4Addr::new(255, 255, 255, 0),
        server: None,
    };
    let mut kind = None;
    let mut rest = &bytes[OPTIONS + COOKIE.len()..];
    while let [code, tail @ ..] = rest {
        match code {
            0 => rest = tail,
            255 => break,
            _ => {
                let length = usize::from(*tail.first()?);
                let value = tail.get(1..1 + length)?;
                match code {
                    53 => kind = value.first().copied(),
                    1 => lease.mask = address(value)?,
                    3 => lease.gateway = address(value),
                    54 => lease.server = address(value),
                    _ => {}
                }
                rest = &tail[1 + length..];
            }
        }
    }
    Some((kind?, lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_another_machines_is_not() {
        let mut answer = message(OFFER, 7, &[1, 2, 3, 4, 5, 6], None);
        answer[0] = 2;
        answer[16..20].copy_from_slice(&[10, 0, 2, 15]);
        answer.pop();
        answer.extend([1, 4, 255, 255, 0, 0, 3, 4, 10, 0, 2, 2, 54, 4, 10, 0, 2, 3, 255]);
        let (kind, lease) = parse(&answer, 7).unwrap();
        let wanted = Lease {
            address: Ipv4Addr::new(10, 0, 2, 15),
            gateway: Some(Ipv4Addr::new(10, 0, 2, 2)),
            mask: Ipv4Addr::new(255, 255, 0, 0),
            server: Some(Ipv4Addr::new(10, 0, 2, 3)),
        };
        assert_eq!((kind, lease), (OFFER, wanted));
        assert_eq!(parse(&answer, 8), None);
        // Cut anywhere, it is no answer or the same one; never a panic.
        for end in 0..answer.len() {
            parse(&answer[..end], 7);
        }
    }
}
