//! The kernel's command line, as far as it is for PID 1.

use process::memory::for_data;
use std::net::Ipv4Addr;

/// How the machine gets its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Address {
    /// None: it is reached by itself alone.
    #[default]
    Missing,
    /// It asks for one.
    Dhcp,
    /// It was told.
    Fixed {
        /// Its own.
        address: Ipv4Addr,
        /// The way out, if there is one.
        gateway: Option<Ipv4Addr>,
        /// The network's mask.
        mask: Ipv4Addr,
    },
}

/// The settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `ip=`
    pub address: Address,
    /// `dunlin.data=`
    pub data: String,
    /// `dunlin.args=`
    pub server_arguments: Vec<String>,
    /// `dunlin.container=yes`: the server is started in a container inside of the machine.
    pub in_container: bool,
    /// `dunlin.end=reboot`
    pub ends_by_restart: bool,
}

/// Options that hold unless the arguments say otherwise: the machine is the server's alone.
const SERVER: [&str; 4] = ["--protected-mode-private-networks", "yes", "--syslog-enabled", "no"];

impl Settings {
    /// Lets the data take their share of the machine's memory, unless the arguments say otherwise.
    /// `meminfo` is what the kernel says: `MemTotal: 1000 kB`.
    pub fn limit_memory(&mut self, meminfo: &str) {
        let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        if let Some(kib) = number {
            let words = ["--maxmemory".to_owned(), format!("{}kb", for_data(kib))];
            self.server_arguments.splice(0..0, words);
        }
    }

    /// Reads the line.
    pub fn parse(line: &str) -> Result<Settings, String> {
        let mut settings = Settings {
            data: "tmpfs".into(),
            server_arguments: SERVER.map(str::to_owned).to_vec(),
            ..Settings::default()
        };
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some(("ip", value)) => settings.address = address(value)?,
                Some(("dunlin.data", value)) => settings.data = value.to_owned(),
                Some(("dunlin.args", value)) => {
                    settings.server_arguments.extend(value.split(',').map(str::to_owned));
                }
                Some(("dunlin.container", "yes")) => settings.in_container = true,
                Some(("dunlin.end", "reboot")) => settings.ends_by_restart = true,
                Some((name, _)) if name.starts_with("dunlin.") => {
                    return Err(format!(
                        "the kernel's command line has '{word}', which is unknown"
                    ));
                }
                _ => {}
            }
        }
        Ok(settings)
    }
}

/// `ip=` as the kernel's documentation has it: address, server, gateway, mask, name, device.
fn address(value: &str) -> Result<Address, String> {
    if value == "dhcp" || value.ends_with(":dhcp") {
        return Ok(Address::Dhcp);
    }
    if matches!(value, "off" | "none" | "") {
        return Ok(Address::Missing);
    }
    let parts: Vec<&str> = value.split(':').collect();
    let part = |at: usize| parts.get(at).copied().filter(|part| !part.is_empty());
    let parsed = |text: &str| {
        text.parse::<Ipv4Addr>().map_err(|_| format!("ip={value}: '{text}' is no IPv4 address"))
    };
    Ok(Address::Fixed {
        address: parsed(part(0).unwrap_or_default())?,
        gateway: part(2).map(parsed).transpose()?,
        mask: part(3).map_or(Ok(Ipv4Addr::new(255, 255, 255, 0)), parsed)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_read() {
        let line = "console=ttyS0 ip=10.0.2.15::10.0.2.2:255.255.0.0::eth0:off quiet \
                    dunlin.data=/dev/vda dunlin.args=--save,60,1 dunlin.container=yes dunlin.end=reboot";
        let settings = Settings::parse(line).unwrap();
        let wanted = Address::Fixed {
            address: Ipv4Addr::new(10, 0, 2, 15),
            gateway: Some(Ipv4Addr::new(10, 0, 2, 2)),
            mask: Ipv4Addr::new(255, 255, 0, 0),
        };
        assert_eq!(settings.address, wanted);
        assert_eq!(settings.data, "/dev/vda");
        assert!(settings.ends_by_restart && settings.in_container);
        assert!(settings.server_arguments.ends_with(&["--save", "60", "1"].map(str::to_owned)));
    }

    #[test]
    fn the_server_gets_three_quarters_of_the_memory_unless_told_otherwise() {
        let mut settings = Settings::parse("dunlin.args=--maxmemory,0").unwrap();
        settings.limit_memory("MemTotal:        1000 kB\nMemFree: 1 kB\n");
        assert!(
            settings.server_arguments.starts_with(&["--maxmemory", "750kb"].map(str::to_owned))
        );
        assert!(settings.server_arguments.ends_with(&["--maxmemory", "0"].map(str::to_owned)));
        let before = settings.clone();
        settings.limit_memory("");
        assert_eq!(settings.server_arguments, before.server_arguments);
    }

    #[test]
    fn what_is_left_out_has_defaults() {
        let settings = Settings::parse("quiet").unwrap();
        assert_eq!((settings.data.as_str(), &settings.address), ("tmpfs", &Address::Missing));
        assert_eq!(Settings::parse("ip=dhcp").unwrap().address, Address::Dhcp);
        assert_eq!(Settings::parse("ip=:::::eth0:dhcp").unwrap().address, Address::Dhcp);
        assert!(!Settings::parse("quiet").unwrap().in_container);
        assert!(Settings::parse("dunlin.container=maybe").is_err());
        assert!(Settings::parse("ip=x").is_err() && Settings::parse("dunlin.x=1").is_err());
    }
}
