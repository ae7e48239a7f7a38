//! The rules of TLS that the options of redis-cli and redis-benchmark name: files of certificates,
//! suites, the system's authorities. Those of the `tls-*` directives are [`net::client_rules`].

use net::TlsClient;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{
    ClientConfig, DigitallySignedStruct, ProtocolVersion, RootCertStore, SignatureScheme,
    SupportedCipherSuite,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::path::{Path, PathBuf};
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

/// Makes the rules.
///
/// # Errors
/// The first file or option that does not work, for the user.
pub fn rules(options: &TlsOptions) -> Result<Arc<ClientConfig>, String> {
    let mut provider = ring::default_provider();
    restrict(&mut provider, options)?;
    let provider = Arc::new(provider);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("these cipher suites do not make a working TLS: {error}"))?;
    let builder = if options.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAll(provider)))
    } else {
        builder.with_root_certificates(roots(options)?)
    };
    let config = match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("{}: {error}", key.display()))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| format!("{}: {error}", cert.display()))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// Leaves only the cipher suites that were asked for.
fn restrict(provider: &mut CryptoProvider, options: &TlsOptions) -> Result<(), String> {
    let modern = |suite: &SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_3;
    for (list, option, is_modern) in [
        (&options.ciphers, "--tls-ciphers", false),
        (&options.ciphersuites, "--tls-ciphersuites", true),
    ] {
        let Some(list) = list else { continue };
        let wanted: Vec<String> = list.split(':').map(canonical).collect();
        let mut kept: Vec<(usize, SupportedCipherSuite)> = Vec::new();
        provider.cipher_suites.retain(|suite| {
            if modern(suite) != is_modern {
                return true;
            }
            let name = canonical(suite.suite().as_str().unwrap_or_default());
            if let Some(place) = wanted.iter().position(|wanted| *wanted == name) {
                kept.push((place, *suite));
            }
            false
        });
        if kept.is_empty() {
            return Err(format!("{option} {list}: none of them is known"));
        }
        // The order of the list is the order of preference.
        kept.sort_by_key(|&(place, _)| place);
        provider.cipher_suites.extend(kept.into_iter().map(|(_, suite)| suite));
    }
    Ok(())
}

/// `ECDHE-RSA-AES128-GCM-SHA256` and `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` are the same suite.
fn canonical(name: &str) -> String {
    let name: String = name
        .trim()
        .to_ascii_uppercase()
        .replace("TLS13_", "")
        .replace("TLS_", "")
        .replace("WITH_", "")
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    // OpenSSL leaves away the hash of its ChaCha suites.
    match name.strip_suffix("POLY1305") {
        Some(_) => name + "SHA256",
        None => name,
    }
}

fn roots(options: &TlsOptions) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let mut add = |path: &Path| -> Result<(), String> {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    };
    if let Some(path) = &options.cacert {
        add(path)?;
    }
    if let Some(directory) = &options.cacertdir {
        let entries = std::fs::read_dir(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        for entry in entries.flatten() {
            if entry.path().is_file() {
                add(&entry.path())?;
            }
        }
    }
    if options.cacert.is_none() && options.cacertdir.is_none() {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
    }
    if roots.is_empty() {
        return Err(
            "there is no certificate authority to trust; see --cacert and --insecure".into()
        );
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let refuse = |error: rustls_pki_types::pem::Error| format!("{}: {error}", path.display());
    CertificateDer::pem_file_iter(path).map_err(refuse)?.collect::<Result<_, _>>().map_err(refuse)
}

/// `--insecure`: any certificate will do, but its owner must have the key.
#[derive(Debug)]
struct TrustAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_either_name() {
        let chosen = |old: &str, new: &str| {
            let options = TlsOptions {
                ciphers: Some(old.into()),
                ciphersuites: Some(new.into()),
                ..TlsOptions::default()
            };
            let mut provider = ring::default_provider();
            restrict(&mut provider, &options).map(|()| {
                let names =
                    provider.cipher_suites.iter().filter_map(|suite| suite.suite().as_str());
                names.collect::<Vec<_>>()
            })
        };
        assert_eq!(
            chosen(
                "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256",
                "TLS_AES_256_GCM_SHA384"
            ),
            Ok(vec![
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS13_AES_256_GCM_SHA384",
            ])
        );
        assert!(chosen("RC4-MD5", "TLS_AES_256_GCM_SHA384").is_err());
    }
}
