//! Finding the primary through sentinels (`--sentinel`), at the beginning and after each fail-over.

use crate::options::{Address, Target};
use resp::Value;
use std::io;

/// Where sentinels are, and the name of the primary that they watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinels {
    addresses: Vec<Address>,
    name: String,
}

impl Sentinels {
    /// From `HOST[:PORT][,HOST[:PORT]…]`.
    ///
    /// # Errors
    /// A port is none, or there is no host.
    pub fn parse(list: &str, name: &str) -> Result<Sentinels, String> {
        let addresses = list.split(',').map(address).collect::<Result<Vec<_>, _>>()?;
        Ok(Sentinels { addresses, name: name.to_owned() })
    }

    /// The address that the first sentinel names that answers. It may be one of before: sentinels
    /// learn of a fail-over one after the other.
    ///
    /// # Errors
    /// None answers, or none knows the name.
    pub fn primary(&self) -> io::Result<Address> {
        let mut last = io::Error::other("there is no sentinel");
        for address in &self.addresses {
            match self.ask(address) {
                Ok(found) => return Ok(found),
                Err(error) => last = io::Error::other(format!("sentinel {address}: {error}")),
            }
        }
        Err(last)
    }

    fn ask(&self, address: &Address) -> io::Result<Address> {
        let mut client = Target::plain(address.clone()).connect()?;
        let found = client.order(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.name])?;
        if found == Value::Null {
            return Err(io::Error::other(format!("no primary has the name {}", self.name)));
        }
        let port = |port: &Value| u16::try_from(port.integer()?).ok();
        match found.items() {
            [host, at] => port(at).map(|port| Address::tcp(host.text(), port)),
            _ => None,
        }
        .ok_or_else(|| io::Error::other("an address has an unexpected form"))
    }
}

fn address(text: &str) -> Result<Address, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "26379"));
    let port = port.parse().map_err(|_| format!("--sentinel {text}: after the : comes a port"))?;
    if host.is_empty() {
        return Err(format!("--sentinel {text}: before the : comes a host"));
    }
    Ok(Address::tcp(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_sentinels() {
        let parse = |list: &str| {
            let found = Sentinels::parse(list, "mine")?;
            let shown: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
            Ok::<String, String>(shown.join(" "))
        };
        assert_eq!(parse("a,b:7").unwrap(), "a:26379 b:7");
        for wrong in ["a:b", ":7", "", "a,,b"] {
            assert!(parse(wrong).unwrap_err().starts_with("--sentinel"), "{wrong}");
        }
    }
}
