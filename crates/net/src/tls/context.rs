//! What the `tls-*` directives amount to: certificates, keys and rules, read and checked.

use super::ciphers;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether clients must show a certificate (`tls-auth-clients`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// They are not asked for one.
    No,
    /// They must, and it must be signed by a known authority.
    #[default]
    Yes,
    /// They may; if they do it must be a good one.
    Optional,
}

/// The `tls-*` directives, as they are in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// `tls-cert-file`.
    pub cert_file: String,
    /// `tls-key-file`.
    pub key_file: String,
    /// `tls-key-file-pass`: refused if set, since encrypted keys cannot be read.
    pub key_file_pass: String,
    /// `tls-client-cert-file`; empty for `cert_file`.
    pub client_cert_file: String,
    /// `tls-client-key-file`.
    pub client_key_file: String,
    /// `tls-client-key-file-pass`: refused as the other one.
    pub client_key_file_pass: String,
    /// `tls-ca-cert-file`.
    pub ca_cert_file: String,
    /// `tls-ca-cert-dir`.
    pub ca_cert_dir: String,
    /// `tls-auth-clients`.
    pub auth_clients: ClientAuth,
    /// `tls-protocols`; empty for all supported.
    pub protocols: String,
    /// `tls-ciphers`, for TLS 1.2.
    pub ciphers: String,
    /// `tls-ciphersuites`, for TLS 1.3.
    pub ciphersuites: String,
    /// `tls-prefer-server-ciphers`.
    pub prefer_server_ciphers: bool,
    /// `tls-session-caching`: how many sessions to keep; none switches it off.
    pub session_cache_size: Option<usize>,
}

/// The settings cannot be used. Each says which directive to look at.
#[derive(Debug)]
pub enum TlsError {
    /// A file is missing, unreadable or not what it should be.
    File {
        /// The directive that names it.
        directive: &'static str,
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A directive is missing or has a value that does not work.
    Setting {
        /// The directive.
        directive: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { directive, path, why } => {
                write!(f, "{directive} {}: {why}", path.display())
            }
            Self::Setting { directive, why } => write!(f, "{directive}: {why}"),
        }
    }
}

impl std::error::Error for TlsError {}

pub(super) fn setting(directive: &'static str, why: impl Into<String>) -> TlsError {
    TlsError::Setting { directive, why: why.into() }
}

/// Checked settings, ready for use by any number of connections.
pub struct TlsContext {
    pub(super) config: Arc<ServerConfig>,
    lenient: Arc<ServerConfig>,
}

impl TlsContext {
    /// The rules and certificates.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// The same, but a client may come without a certificate. The caller has to look whether it has
    /// shown one.
    pub fn lenient_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.lenient)
    }

    /// Reads the files and checks everything that can be checked without a client.
    ///
    /// # Errors
    /// The first directive that does not work, and why; nothing has changed.
    pub fn load(settings: &TlsSettings) -> Result<Arc<Self>, TlsError> {
        let provider = Arc::new(provider(settings)?);
        let roots = Arc::new(authorities(settings)?);
        let versions = protocols(&settings.protocols)?;
        let (certificates, key) = identity(settings)?;
        let config = |wish: ClientAuth| {
            let rules = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&versions)
                .map_err(|e| setting("tls-protocols", e.to_string()))?;
            let rules = match client_verifier(wish, &roots, &provider)? {
                None => rules.with_no_client_auth(),
                Some(verifier) => rules.with_client_cert_verifier(verifier),
            };
            let mut config = rules
                .with_single_cert(certificates.clone(), key.clone_key())
                .map_err(|e| setting("tls-cert-file", format!("does not go with the key: {e}")))?;
            config.ignore_client_order = settings.prefer_server_ciphers;
            config.session_storage = match settings.session_cache_size {
                Some(size) if size > 0 => ServerSessionMemoryCache::new(size),
                _ => Arc::new(NoServerSessionStorage {}),
            };
            Ok(Arc::new(config))
        };
        let strict = config(settings.auth_clients)?;
        let lenient = match settings.auth_clients {
            ClientAuth::Yes => config(ClientAuth::Optional)?,
            ClientAuth::No | ClientAuth::Optional => Arc::clone(&strict),
        };
        Ok(Arc::new(Self { config: strict, lenient }))
    }
}

/// What checks the certificates of clients, if they are asked for one.
fn client_verifier(
    wish: ClientAuth,
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    if wish == ClientAuth::No {
        return Ok(None);
    }
    if roots.is_empty() {
        let why =
            "client certificates cannot be checked without tls-ca-cert-file or tls-ca-cert-dir";
        return Err(setting("tls-auth-clients", why));
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
    let verifier = match wish {
        ClientAuth::Optional => verifier.allow_unauthenticated(),
        _ => verifier,
    };
    verifier.build().map(Some).map_err(|e| setting("tls-ca-cert-file", e.to_string()))
}

pub(super) fn provider(settings: &TlsSettings) -> Result<CryptoProvider, TlsError> {
    let mut suites = ciphers::tls13(&settings.ciphersuites);
    if suites.is_empty() {
        return Err(setting("tls-ciphersuites", "none of these is supported"));
    }
    let tls12 = ciphers::tls12(&settings.ciphers);
    if tls12.is_empty() {
        return Err(setting("tls-ciphers", "none of these is supported"));
    }
    suites.extend(tls12);
    Ok(CryptoProvider { cipher_suites: suites, ..ring::default_provider() })
}

pub(super) fn protocols(words: &str) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let mut versions = Vec::new();
    for word in words.split_ascii_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.3" => versions.push(&version::TLS13),
            "tlsv1.2" => versions.push(&version::TLS12),
            _ => {
                let why = format!("'{word}' is not supported; use TLSv1.2 and TLSv1.3");
                return Err(setting("tls-protocols", why));
            }
        }
    }
    if versions.is_empty() {
        versions.extend([&version::TLS13, &version::TLS12]);
    }
    Ok(versions)
}

fn certificates(
    directive: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |why: String| TlsError::File { directive, path: path.to_owned(), why };
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| failed(e.to_string()))?;
    if found.is_empty() {
        return Err(failed("no certificate in this file".to_owned()));
    }
    Ok(found)
}

pub(super) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

pub(super) fn identity(settings: &TlsSettings) -> Result<Identity, TlsError> {
    if settings.cert_file.is_empty() {
        return Err(setting("tls-cert-file", "a certificate is needed, in a PEM file"));
    }
    if settings.key_file.is_empty() {
        return Err(setting(
            "tls-key-file",
            "the certificate's private key is needed, in a PEM file",
        ));
    }
    if !settings.key_file_pass.is_empty() {
        let why = "encrypted private keys are not supported; decrypt the key and protect the file";
        return Err(setting("tls-key-file-pass", why));
    }
    let chain = certificates("tls-cert-file", Path::new(&settings.cert_file))?;
    let path = Path::new(&settings.key_file);
    let failed =
        |why: String| TlsError::File { directive: "tls-key-file", path: path.to_owned(), why };
    let pem = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| {
        let encrypted = pem.windows(9).any(|word| word == b"ENCRYPTED");
        failed(match e {
            _ if encrypted => "the key is encrypted; decrypt it and protect the file".to_owned(),
            rustls_pki_types::pem::Error::NoItemsFound => "no private key in this file".to_owned(),
            other => other.to_string(),
        })
    })?;
    Ok((chain, key))
}

pub(super) fn authorities(settings: &TlsSettings) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if !settings.ca_cert_file.is_empty() {
        let found = certificates("tls-ca-cert-file", Path::new(&settings.ca_cert_file))?;
        if roots.add_parsable_certificates(found).0 == 0 {
            return Err(setting("tls-ca-cert-file", "no usable certificate in this file"));
        }
    }
    if !settings.ca_cert_dir.is_empty() {
        let path = Path::new(&settings.ca_cert_dir);
        let directory = std::fs::read_dir(path).map_err(|e| TlsError::File {
            directive: "tls-ca-cert-dir",
            path: path.to_owned(),
            why: e.to_string(),
        })?;
        for entry in directory.flatten() {
            // Such directories hold other things too, and several links to one certificate.
            if let Ok(found) = certificates("tls-ca-cert-dir", &entry.path()) {
                roots.add_parsable_certificates(found);
            }
        }
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(settings: &TlsSettings) -> String {
        match TlsContext::load(settings) {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_refusal_names_the_directive() {
        let mut settings = TlsSettings { auth_clients: ClientAuth::No, ..Default::default() };
        assert_eq!(refused(&settings), "tls-cert-file: a certificate is needed, in a PEM file");
        settings.cert_file = "/nonexistent/cert".to_owned();
        assert_eq!(
            refused(&settings),
            "tls-key-file: the certificate's private key is needed, in a PEM file"
        );
        settings.key_file = "/nonexistent/key".to_owned();
        assert!(refused(&settings).starts_with("tls-cert-file /nonexistent/cert: "));
        settings.key_file_pass = "secret".to_owned();
        assert!(refused(&settings).starts_with("tls-key-file-pass: encrypted"));
        settings.protocols = "TLSv1.1".to_owned();
        assert!(refused(&settings).starts_with("tls-protocols: 'TLSv1.1' is not supported"));
        settings.ciphers = "RC4".to_owned();
        assert_eq!(refused(&settings), "tls-ciphers: none of these is supported");
    }
}
