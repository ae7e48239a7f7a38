//! TLS of the client's side, through rustls.

use crate::options::args::TlsArgs;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls::{ProtocolVersion, SupportedCipherSuite};
use std::path::Path;
use std::sync::Arc;

/// What is needed to open TLS connections to one server.
#[derive(Debug)]
pub struct TlsSettings {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsSettings {
    /// From the arguments; `host` is the server's name unless they say otherwise. The error is for
    /// the user.
    pub fn new(args: &TlsArgs, host: &str) -> Result<TlsSettings, String> {
        let mut provider = ring::default_provider();
        restrict(&mut provider, args)?;
        let provider = Arc::new(provider);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("these cipher suites do not make a working TLS: {error}"))?;
        let builder = if args.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAll(provider)))
        } else {
            builder.with_root_certificates(roots(args)?)
        };
        let config = match (&args.cert, &args.key) {
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
        let host = args.sni.as_deref().unwrap_or(host);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("'{host}' is no name that a certificate could have; see --sni"))?;
        Ok(TlsSettings { config: Arc::new(config), name })
    }

    /// A new session.
    pub fn session(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
    }
}

/// Leaves only the cipher suites that were asked for.
fn restrict(provider: &mut CryptoProvider, args: &TlsArgs) -> Result<(), String> {
    let modern = |suite: &SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_3;
    for (list, option, is_modern) in [
        (&args.tls_ciphers, "--tls-ciphers", false),
        (&args.tls_ciphersuites, "--tls-ciphersuites", true),
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

fn roots(args: &TlsArgs) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let mut add = |path: &Path| -> Result<(), String> {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    };
    if let Some(path) = &args.cacert {
        add(path)?;
    }
    if let Some(directory) = &args.cacertdir {
        let entries = std::fs::read_dir(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        for entry in entries.flatten() {
            if entry.path().is_file() {
                add(&entry.path())?;
            }
        }
    }
    if args.cacert.is_none() && args.cacertdir.is_none() {
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
    let refuse = |error: rustls::pki_types::pem::Error| format!("{}: {error}", path.display());
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
            let args = TlsArgs {
                tls_ciphers: Some(old.into()),
                tls_ciphersuites: Some(new.into()),
                ..TlsArgs::default()
            };
            let mut provider = ring::default_provider();
            restrict(&mut provider, &args).map(|()| {
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
