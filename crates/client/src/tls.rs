//! The rules of TLS that the options of redis-cli and redis-benchmark name: files of certificates,
//! suites, the system's authorities. They are the `tls-*` directives under other names, so
//! [`net::client_rules`] makes them; the system's authorities and `--insecure` are the tools' own.

use net::{
    NameCheck, TlsClient, TlsError, TlsSettings, Trust, client_rules, client_rules_trusting,
};
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What the options say.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// `--sni`: the server's name, if it is not the host.
    pub sni: Option<String>,
    /// `--cacert`: a file with authorities, in place of the system's.
    pub cacert: Option<PathBuf>,
    /// `--cacertdir`: a folder of such files.
    pub cacertdir: Option<PathBuf>,
    /// `--insecure`: any certificate will do.
    pub insecure: bool,
    /// `--cert`: the client's own certificate.
    pub cert: Option<PathBuf>,
    /// `--key`: its key.
    pub key: Option<PathBuf>,
    /// `--tls-ciphers`: suites of TLS 1.2, with colons between.
    pub ciphers: Option<String>,
    /// `--tls-ciphersuites`: suites of TLS 1.3.
    pub ciphersuites: Option<String>,
}

impl TlsOptions {
    /// Makes what connections to a host need.
    ///
    /// # Errors
    /// The first file or option that does not work, for the user.
    pub fn client(&self, host: &str) -> Result<TlsClient, String> {
        let host = self.sni.as_deref().unwrap_or(host);
        TlsClient::new(rules(self)?, host)
            .map_err(|_| format!("'{host}' is no name that a certificate could have; see --sni"))
    }
}

/// Returns whether a connection has failed because the server wants a certificate of its clients.
pub fn lacks_certificate(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
    matches!(why, Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)))
}

/// Directives, and the options that stand for them.
const NAMES: [(&str, &str); 6] = [
    ("tls-ca-cert-file", "--cacert"),
    ("tls-ca-cert-dir", "--cacertdir"),
    ("tls-cert-file", "--cert"),
    ("tls-key-file", "--key"),
    ("tls-ciphers", "--tls-ciphers"),
    ("tls-ciphersuites", "--tls-ciphersuites"),
];

/// Makes the rules.
///
/// # Errors
/// The first file or option that does not work, for the user.
pub fn rules(options: &TlsOptions) -> Result<Arc<ClientConfig>, String> {
    let settings = settings(options);
    let made = if options.insecure {
        client_rules_trusting(&settings, Trust::Anything)
    } else if options.cacert.is_some() || options.cacertdir.is_some() {
        client_rules(&settings, NameCheck::Same)
    } else {
        client_rules_trusting(&settings, Trust::Authorities(system_roots()?, NameCheck::Same))
    };
    made.map_err(|why| explained(&why))
}

/// Returns the directives that the options stand for.
fn settings(options: &TlsOptions) -> TlsSettings {
    let path = |path: &Option<PathBuf>| {
        path.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
    };
    TlsSettings {
        ca_cert_file: path(&options.cacert),
        ca_cert_dir: path(&options.cacertdir),
        cert_file: path(&options.cert),
        key_file: path(&options.key),
        ciphers: options.ciphers.clone().unwrap_or_default(),
        ciphersuites: options.ciphersuites.clone().unwrap_or_default(),
        ..TlsSettings::default()
    }
}

/// Says what does not work in the words of the options.
fn explained(why: &TlsError) -> String {
    match why {
        TlsError::File { path, why, .. } => format!("{}: {why}", path.display()),
        TlsError::Setting { directive, why } => {
            let option = NAMES.iter().find(|(name, _)| name == directive);
            format!("{}: {why}", option.map_or(*directive, |(_, option)| option))
        }
    }
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => {
            Err("there is no certificate authority to trust; see --cacert and --insecure".into())
        }
        false => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_work_is_said_in_the_words_of_the_options() {
        let refused = |change: fn(&mut TlsOptions)| {
            let mut options = TlsOptions { insecure: true, ..TlsOptions::default() };
            change(&mut options);
            rules(&options).map(|_| ()).expect_err("it does not work")
        };
        let ciphers = refused(|it| it.ciphers = Some("RC4-MD5".into()));
        assert_eq!(ciphers, "--tls-ciphers: none of these is supported");
        assert!(refused(|it| it.cert = Some("/none".into())).starts_with("--key: "));
        assert!(refused(|it| it.key = Some("/none".into())).starts_with("--cert: "));
        let missing = refused(|it| (it.insecure, it.cacert) = (false, Some("/none".into())));
        assert!(missing.starts_with("/none: "), "{missing}");
        assert!(rules(&TlsOptions { insecure: true, ..TlsOptions::default() }).is_ok());
    }
}
