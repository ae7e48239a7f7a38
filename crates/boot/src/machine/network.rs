//! The network: the loopback, the first other device, its address and the way out.
#![allow(unsafe_code)]

use super::dhcp;
use super::settings::Address;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How often it is looked for a device, which the kernel finds in its own time.
const LOOKS: u32 = 500;

/// Sets everything up.
pub fn bring_up(address: &Address) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    switch_on(&socket, "lo")?;
    if *address == Address::Missing {
        return Ok(());
    }
    let device = device()?;
    switch_on(&socket, &device)?;
    let (address, gateway, mask) = match address {
        Address::Missing => return Ok(()),
        Address::Fixed { address, gateway, mask } => (*address, *gateway, *mask),
        Address::Dhcp => {
            let lease = dhcp::ask(&device)?;
            (lease.address, lease.gateway, lease.mask)
        }
    };
    set_address(&socket, libc::SIOCSIFADDR, &device, address)?;
    set_address(&socket, libc::SIOCSIFNETMASK, &device, mask)?;
    if let Some(gateway) = gateway {
        set_gateway(&socket, gateway)?;
    }
    Ok(())
}

/// The first device that is not the loopback.
fn device() -> io::Result<String> {
    for _ in 0..LOOKS {
        for entry in std::fs::read_dir("/sys/class/net")?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "lo" {
                return Ok(name);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(io::Error::other("there is no network device"))
}

fn request(device: &str) -> libc::ifreq {
    // SAFETY: all zeros are a request without a name, whose members are plain numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn control<T>(socket: &UdpSocket, call: libc::c_ulong, argument: &mut T) -> io::Result<()> {
    // SAFETY: each caller passes the structure that its call reads and writes.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), call as _, argument as *mut T) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn switch_on(socket: &UdpSocket, device: &str) -> io::Result<()> {
    let mut request = request(device);
    control(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has just written this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    control(socket, libc::SIOCSIFFLAGS, &mut request)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let octets = address.octets().map(|octet| octet as libc::c_char);
    // A sockaddr_in: two bytes of port, then the address.
    let mut data = [0; 14];
    data[2..6].copy_from_slice(&octets);
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

fn set_address(
    socket: &UdpSocket,
    call: libc::c_ulong,
    device: &str,
    address: Ipv4Addr,
) -> io::Result<()> {
    let mut request = request(device);
    request.ifr_ifru.ifru_addr = socket_address(address);
    control(socket, call, &mut request)
}

fn set_gateway(socket: &UdpSocket, gateway: Ipv4Addr) -> io::Result<()> {
    // SAFETY: all zeros are a route without a device, whose members are plain numbers.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = socket_address(gateway);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    control(socket, libc::SIOCADDRT, &mut route)
}
