//! TLS of the databases' clients: each copy has a port with TLS beside its plain one. Of copies for
//! each other: they have another one. And of the admin port, which has one of both.

use crate::authority::Files;
use crate::copies::files::Bus;
use crate::settings::Wrong;
use crate::talk::Certificates;
use clap::Args;
use client::Renewed;
use net::{ClientAuth, TlsContext, TlsSettings};
use process::log;
use rustls::ServerConfig;
use std::path::{Path, PathBuf};

/// Returns the whole path of a file that is there, for others who read it later. It is not the path
/// behind links: a renewed secret of Kubernetes is another one there.
///
/// # Errors
/// It is not there.
pub fn lasting(path: &Path) -> Result<String, Wrong> {
    let there = std::path::absolute(path).and_then(|path| {
        path.metadata()?;
        Ok(path)
    });
    let there = there.map_err(|error| Wrong(format!("{}: {error}", path.display())))?;
    Ok(there.to_string_lossy().into_owned())
}

/// Options about the certificate that copies show to clients.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsOptions {
    /// File with the certificate that copies show to clients; they then have a port with TLS, too
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// File with the key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
    /// File with the authorities of clients' certificates; without it clients show none
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_ca_cert_file: Option<PathBuf>,
    /// The port with TLS is the plain port and this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, requires = "tls_cert_file")]
    tls_port_offset: u16,
    /// Copies have a port for each other, by TLS with certificates of the token's authority: the
    /// plain port and this number, by default 10000, which other machines have to reach. 0: they
    /// have none, and do without TLS between each other
    #[arg(long, value_name = "NUMBER")]
    bus_port_offset: Option<u16>,
}

/// The bus port is the plain port and the first of these numbers that is not that of the port with
/// TLS, as Redis has its bus.
const BUS_PORT_OFFSETS: [u16; 2] = [10_000, 20_000];

impl TlsOptions {
    /// Returns the options of a copy.
    ///
    /// # Errors
    /// A file is not there.
    pub fn server_options(&self) -> Result<Vec<(&'static str, String)>, Wrong> {
        let mut options = Vec::new();
        for (name, file) in [
            ("tls-cert-file", &self.tls_cert_file),
            ("tls-key-file", &self.tls_key_file),
            ("tls-ca-cert-file", &self.tls_ca_cert_file),
        ] {
            if let Some(path) = file {
                options.push((name, lasting(path)?));
            }
        }
        if !options.is_empty() {
            let asks = if self.tls_ca_cert_file.is_some() { "yes" } else { "no" };
            options.push(("tls-auth-clients", asks.to_owned()));
        }
        Ok(options)
    }

    /// Refuses ports that would be one.
    ///
    /// # Errors
    /// What to do.
    pub fn check(&self) -> Result<(), Wrong> {
        let is_one = self.bus_port_offset.is_some_and(|it| it > 0 && self.has_tls_offset(it));
        match is_one {
            true => Err(Wrong(format!(
                "--bus-port-offset and --tls-port-offset are both {}: clients with TLS and other \
                 copies need a port each, so give another number",
                self.tls_port_offset
            ))),
            false => Ok(()),
        }
    }

    fn has_tls_offset(&self, offset: u16) -> bool {
        self.tls_cert_file.is_some() && self.tls_port_offset == offset
    }

    /// Returns the offset of bus ports; 0: there are none.
    fn bus_offset(&self) -> u16 {
        let is_free = |offset: &u16| !self.has_tls_offset(*offset);
        let default = || BUS_PORT_OFFSETS.into_iter().find(is_free).unwrap_or(0);
        self.bus_port_offset.unwrap_or_else(default)
    }

    /// Returns what copies have for each other. `None`: this machine has no key of an authority, or
    /// there is to be no such port.
    pub fn bus(&self, directory: &Path) -> Option<Bus> {
        let files = Files::of(directory);
        let port_offset = self.bus_offset();
        if port_offset == 0 || !files.key.exists() {
            return None;
        }
        if self.bus_port_offset.is_none() && port_offset != BUS_PORT_OFFSETS[0] {
            log!(
                Notice,
                "--tls-port-offset is {}, so the ports that copies have for each other are {} \
                 higher than those of clients: let the machines of the cluster reach these, or \
                 choose with --bus-port-offset",
                self.tls_port_offset,
                port_offset
            );
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let certificates = Certificates {
            ca_cert_file: text(&files.authority),
            cert_file: text(&files.machine),
            key_file: text(&files.machine),
        };
        Some(Bus { port_offset, certificates })
    }

    /// Returns what is added to a plain port.
    pub fn port_offset(&self) -> u16 {
        self.tls_port_offset
    }
}

/// Options about the certificate of the admin port.
#[derive(Args, Clone, Debug, Default)]
pub struct AdminTlsOptions {
    /// The console and REST speak TLS alone, with a certificate of the token's authority:
    /// tls/ca.pem in the directory of a machine, for --cacert of commands, or --token-file
    #[arg(long, conflicts_with_all = ["admin_tls_cert_file", "etcd_plain"])]
    admin_tls: bool,
    /// A further name in the certificates of the token's authority, as that of a service. It may be
    /// given several times
    #[arg(long, value_name = "NAME", requires = "admin_tls")]
    admin_tls_name: Vec<String>,
    /// File with the certificate of the console and REST, which then speak TLS alone
    #[arg(long, value_name = "FILE", requires = "admin_tls_key_file")]
    admin_tls_cert_file: Option<PathBuf>,
    /// File with the key of that certificate
    #[arg(long, value_name = "FILE", requires = "admin_tls_cert_file")]
    admin_tls_key_file: Option<PathBuf>,
}

impl AdminTlsOptions {
    /// Returns whether the admin port speaks TLS.
    pub fn is_given(&self) -> bool {
        self.admin_tls || self.admin_tls_cert_file.is_some()
    }

    /// Returns the file with the authority of this machine's certificate, if the admin port shows
    /// that one.
    pub fn own_authority(&self, directory: &Path) -> Option<PathBuf> {
        self.admin_tls.then(|| Files::of(directory).authority)
    }

    /// Returns the further names of this machine's certificate.
    pub fn names(&self) -> &[String] {
        &self.admin_tls_name
    }

    /// Returns the rules of connections to the admin port by the certificate that was given, which
    /// follow the files. `None`: none was.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn given(&self) -> Result<Option<Renewed<ServerConfig>>, Wrong> {
        match (&self.admin_tls_cert_file, &self.admin_tls_key_file) {
            (Some(cert), Some(key)) => rules(lasting(cert)?, lasting(key)?).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns those by this machine's certificate, which has been signed. `None`: it is not for
    /// the admin port.
    ///
    /// # Errors
    /// This machine has no authority.
    pub fn own(&self, directory: &Path) -> Result<Option<Renewed<ServerConfig>>, Wrong> {
        let own = Files::of(directory);
        if !self.admin_tls {
            return Ok(None);
        }
        if !own.key.exists() {
            return Err(Wrong(
                "--admin-tls: this machine has no authority that could sign its certificate. With \
                 an etcd of yours give all machines the same secret with --token-file, or give \
                 --admin-tls-cert-file and --admin-tls-key-file"
                    .into(),
            ));
        }
        let file = lasting(&own.machine)?;
        rules(file.clone(), file).map(Some)
    }
}

fn rules(cert_file: String, key_file: String) -> Result<Renewed<ServerConfig>, Wrong> {
    let settings =
        TlsSettings { cert_file, key_file, auth_clients: ClientAuth::No, ..TlsSettings::default() };
    let rules = Renewed::new(settings, |settings| Ok(TlsContext::load(settings)?.server_config()));
    rules.map_err(|why| Wrong(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_has_another_offset_than_the_port_with_tls() {
        let options = |tls: Option<u16>, bus| TlsOptions {
            tls_cert_file: tls.map(|_| "tls.crt".into()),
            tls_port_offset: tls.unwrap_or(1000),
            bus_port_offset: bus,
            ..TlsOptions::default()
        };
        let offset = |tls, bus| {
            let options = options(tls, bus);
            options.check().map(|()| options.bus_offset()).ok()
        };
        assert_eq!(offset(None, None), Some(10_000));
        assert_eq!(offset(Some(1000), None), Some(10_000));
        // What has been started so goes on.
        assert_eq!(offset(Some(10_000), None), Some(20_000));
        assert_eq!(offset(Some(10_000), Some(0)), Some(0));
        assert_eq!(offset(Some(10_000), Some(3000)), Some(3000));
        assert_eq!(offset(Some(10_000), Some(10_000)), None);
        assert_eq!(offset(None, Some(0)), Some(0));
    }
}
