//! The address of this machine, where the user names none (`--host`).

use etcd::Endpoint;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _, UdpSocket};

/// The address from which this machine sends to the cluster's other machines: to the servers of
/// etcd that are given as a list, by the default route, or into the first network that it is in.
/// Nothing is sent.
pub(super) fn own(etcd: Option<&str>) -> String {
    let servers = etcd.and_then(|list| Endpoint::list(list).ok()).unwrap_or_default();
    let servers = servers.iter().filter_map(|server| {
        let mut addresses = (server.host.as_str(), server.port).to_socket_addrs().ok()?;
        addresses.next().map(|address| address.ip())
    });
    // An address of the documentation's: the route to it is the default one.
    let elsewhere = IpAddr::from([192, 0, 2, 1]);
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let found = servers
        .chain([elsewhere])
        .chain(networks(&routes))
        .find_map(|to| source_to(to).filter(|own| !own.is_loopback()));
    found.unwrap_or(IpAddr::from([127, 0, 0, 1])).to_string()
}

/// The first address of each network in the kernel's table of routes.
fn networks(routes: &str) -> impl Iterator<Item = IpAddr> {
    routes.lines().skip(1).filter_map(|route| {
        let destination = route.split_whitespace().nth(1)?;
        let network = u32::from_str_radix(destination, 16).ok()?.swap_bytes();
        Some(IpAddr::V4((network | 1).into()))
    })
}

/// The own address in packets to another one.
fn source_to(other: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match other {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((other, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_from_the_table_of_routes() {
        let routes = "Iface\tDestination\tGateway\tFlags\n\
                      eth0\t00004D0A\t00000000\t0001\n\
                      eth1\t0010A8C0\t00000000\t0001\nnonsense\n";
        let found: Vec<String> = networks(routes).map(|address| address.to_string()).collect();
        assert_eq!(found, ["10.77.0.1", "192.168.16.1"]);
        assert_eq!(networks("").count(), 0);
    }

    #[test]
    fn an_address_of_this_host_alone_is_the_last_choice() {
        assert_eq!(source_to(IpAddr::from([127, 0, 0, 1])), Some(IpAddr::from([127, 0, 0, 1])));
        let with = own(Some("http://127.0.0.1:2379"));
        assert_eq!(with, own(None));
    }
}
