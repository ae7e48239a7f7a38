//! Machines of a test: network namespaces that are joined by a bridge in one more, so nothing of
//! the system's own network is touched.
//!
//! A thread enters a machine's namespace and stays there ([`Place::at`]), and so do the processes
//! and threads that it starts. Packets in one direction are dropped by a neighbour entry with a
//! hardware address that no machine has: that needs no module of the kernel, and both ends believe
//! that all is well. What a machine sends can be made slow and lossy ([`Network::slow`]), by netem
//! where the kernel has it. Elsewhere a token bucket makes it slow, its queue late, and a rule of
//! nftables at the receiver loses packets.
#![allow(unsafe_code)] // setns(2)

use crate::rng::Rng;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A hardware address that no machine has.
const NOWHERE: &str = "02:00:00:00:00:01";

/// What a machine sends on a bad link.
#[derive(Clone, Copy, Debug)]
pub struct BadLink {
    /// Bytes that leave in a second.
    pub bytes_per_second: u64,
    /// Packets of a hundred that are lost.
    pub lost_percent: u32,
    /// How late a packet is; where there is no netem, how late it is at most while others wait.
    pub late_ms: u32,
}

/// See the head of this file. Machines are numbered from 0.
pub struct Network {
    name: String,
    machines: usize,
}

impl Network {
    /// Makes a network with so many machines.
    ///
    /// # Errors
    /// Why there can be none here: no root, no `ip`, a kernel without namespaces.
    pub fn new(machines: usize) -> Result<Network, String> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("dunlin-{}-{number}", std::process::id());
        let network = Network { name, machines };
        let bridge = network.namespace("bridge");
        ip(&["netns", "add", &bridge])?;
        ip(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "br0", "up"])?;
        for at in 0..machines {
            let machine = network.namespace(&at.to_string());
            let (port, address) = (format!("port{at}"), format!("{}/24", network.address(at)));
            ip(&["netns", "add", &machine])?;
            let link = ["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns"];
            ip(&[&["-n", &bridge], &link[..], &[&machine]].concat())?;
            ip(&["-n", &bridge, "link", "set", &port, "master", "br0", "up"])?;
            ip(&["-n", &machine, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &machine, "link", "set", "eth0", "up"])?;
            ip(&["-n", &machine, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }

    fn namespace(&self, of: &str) -> String {
        format!("{}-{of}", self.name)
    }

    /// A name that no other network has: all networks have the same addresses.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A machine's address.
    pub fn address(&self, machine: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, 78, u8::try_from(machine + 1).expect("a network has few machines"))
    }

    /// A machine, as what is started there needs it.
    pub fn place(&self, machine: usize) -> Place {
        Place { namespace: self.namespace(&machine.to_string()), address: self.address(machine) }
    }

    /// Runs something on a machine. See [`Place::at`].
    pub fn at<T: Send>(&self, machine: usize, run: impl FnOnce() -> T + Send) -> T {
        self.place(machine).at(run)
    }

    /// What one machine sends to another is lost from now on. The other direction works.
    pub fn cut(&self, from: usize, to: usize) {
        let (machine, address) = (self.namespace(&from.to_string()), self.address(to).to_string());
        let entry = ["neigh", "replace", &address, "lladdr", NOWHERE, "dev", "eth0", "nud"];
        let done = ip(&[&["-n", &machine], &entry[..], &["permanent"]].concat());
        done.expect("the machine is there");
    }

    /// None of the others gets what a machine sends. It hears them.
    pub fn mute(&self, machine: usize, others: &[usize]) {
        others.iter().for_each(|&to| self.cut(machine, to));
    }

    /// A machine gets nothing of what the others send. They hear it.
    pub fn deafen(&self, machine: usize, others: &[usize]) {
        others.iter().for_each(|&from| self.cut(from, machine));
    }

    /// Cuts these machines off from those, in both directions.
    pub fn divide(&self, some: &[usize], others: &[usize]) {
        for (&one, &other) in some.iter().flat_map(|one| others.iter().map(move |it| (one, it))) {
            self.cut(one, other);
            self.cut(other, one);
        }
    }

    /// Cuts these machines off from those and mends the network, again and again, each time for
    /// some hundred milliseconds.
    pub fn flap(&self, some: &[usize], others: &[usize], rng: &mut Rng) {
        let mut wait = || thread::sleep(Duration::from_millis(300 + rng.below(400) as u64));
        for _ in 0..4 {
            self.divide(some, others);
            wait();
            self.mend();
            wait();
        }
    }

    /// What a machine sends is slow and lossy from now on. Its loopback stays as it is. Returns
    /// what does that.
    ///
    /// # Errors
    /// Why it cannot be: `tc` or `nft` is not installed, or the kernel lacks both ways.
    pub fn slow(&self, machine: usize, link: BadLink) -> Result<&'static str, String> {
        let BadLink { bytes_per_second, lost_percent, late_ms } = link;
        let (rate, late) = (format!("{}bit", bytes_per_second * 8), format!("{late_ms}ms"));
        let lost = format!("{lost_percent}%");
        let root = |words: &[&str]| {
            let replace = ["qdisc", "replace", "dev", "eth0", "root"];
            self.at(machine, || run("tc", &[&replace[..], words].concat()))
        };
        // A lost packet is one, and not sixty-four in one piece.
        let single = ["link", "set", "dev", "eth0", "gso_max_segs", "1"];
        self.at(machine, || run("ip", &single))?;
        let netem = ["netem", "rate", &rate, "delay", &late, "loss", &lost, "limit", "200"];
        if root(&netem).is_ok() {
            return Ok("netem");
        }
        root(&["tbf", "rate", &rate, "burst", "16kb", "latency", &late])?;
        let lose = format!(
            "add table ip bad; add chain ip bad in {{ type filter hook input priority 0; }}; \
             add rule ip bad in ip saddr {} numgen random mod 100 < {lost_percent} drop",
            self.address(machine)
        );
        for other in (0..self.machines).filter(|&other| other != machine) {
            self.at(other, || run("nft", &[lose.as_str()]))?;
        }
        Ok("tbf and nft")
    }

    /// Links are neither slow nor lossy any more.
    pub fn quicken(&self) {
        for at in 0..self.machines {
            self.at(at, || {
                // It need not have been slow.
                let _ = run("tc", &["qdisc", "delete", "dev", "eth0", "root"]);
                let _ = run("nft", &["delete table ip bad"]);
            });
        }
    }

    /// Everything arrives again.
    pub fn mend(&self) {
        for at in 0..self.machines {
            let machine = self.namespace(&at.to_string());
            // `flush` alone leaves permanent entries.
            let flush = ["neigh", "flush", "dev", "eth0", "nud", "permanent"];
            ip(&[&["-n", &machine], &flush[..]].concat()).expect("the machine is there");
        }
    }
}

/// A machine of a network: where its processes run, and where others reach them.
#[derive(Clone, Debug)]
pub struct Place {
    namespace: String,
    /// Its address.
    pub address: Ipv4Addr,
}

impl Place {
    /// Runs something there, on a thread of its own. What it starts stays there.
    pub fn at<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        thread::scope(|threads| {
            let there = threads.spawn(|| {
                self.enter().expect("the namespace is there");
                run()
            });
            there.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn enter(&self) -> io::Result<()> {
        let file = File::open(format!("/run/netns/{}", self.namespace))?;
        // SAFETY: the descriptor is open, and the call changes nothing but this thread's network.
        match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let machines = (0..self.machines).map(|at| at.to_string());
        for of in machines.chain(["bridge".to_owned()]) {
            // It is missing if it could not be made.
            let _ = ip(&["netns", "delete", &self.namespace(&of)]);
        }
    }
}

/// Runs ip(8).
fn ip(words: &[&str]) -> Result<(), String> {
    run("ip", words)
}

/// Runs a program. Its namespace is that of the thread.
fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| format!("{program} does not run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {}: {}", words.join(" "), text.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// Sends a word between machines. Returns whether it arrives.
    fn arrives(network: &Network, from: usize, to: usize) -> bool {
        let receiver = network.at(to, || UdpSocket::bind((network.address(to), 0)));
        let receiver = receiver.expect("a port is free");
        receiver.set_read_timeout(Some(Duration::from_millis(300))).expect("it is a time");
        let address = receiver.local_addr().expect("it is bound");
        network.at(from, || {
            let sender = UdpSocket::bind((network.address(from), 0)).expect("a port is free");
            sender.send_to(b"word", address).expect("it is sent");
        });
        receiver.recv(&mut [0; 8]).is_ok()
    }

    #[test]
    fn a_cut_has_one_direction() {
        let network = match Network::new(3) {
            Ok(network) => network,
            Err(why) => return crate::environment::skipped(why),
        };
        assert!(arrives(&network, 0, 1) && arrives(&network, 1, 0));
        network.cut(0, 1);
        assert!(!arrives(&network, 0, 1) && arrives(&network, 1, 0) && arrives(&network, 0, 2));
        network.mend();
        assert!(arrives(&network, 0, 1));
        network.divide(&[0], &[1, 2]);
        assert!(!arrives(&network, 1, 0) && !arrives(&network, 0, 2) && arrives(&network, 1, 2));
        network.mend();
        assert!(arrives(&network, 1, 0) && arrives(&network, 0, 2));
    }
}
