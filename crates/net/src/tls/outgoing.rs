//! The rules of TLS on connections that this process makes.
//!
//! The other side's certificate has to come from a known authority. It need not be for the name by
//! which it was reached where servers are known by addresses, which change ([`NameCheck::Any`]).
//! Tools take any certificate if they are told so ([`Trust::Anything`]).

use super::TlsSettings;
use super::context::{TlsError, authorities, identity, protocols, provider, setting};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::io;
use std::sync::Arc;

/// Which name the other side's certificate has to be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameCheck {
    /// The one by which it was reached.
    Same,
    /// Any.
    Any,
}

/// Which certificates of the other side will do.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Those of these authorities.
    Authorities(RootCertStore, NameCheck),
    /// Any, if the other side has its key.
    Anything,
}

/// What a connection needs to speak TLS with a server.
#[derive(Debug, Clone)]
pub struct TlsClient {
    pub(super) rules: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl TlsClient {
    /// For a server of this name, or address as text.
    ///
    /// # Errors
    /// It is neither.
    pub fn new(rules: Arc<ClientConfig>, name: &str) -> io::Result<Self> {
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        Ok(Self { rules, name })
    }

    /// Returns the rules.
    pub fn rules(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.rules)
    }

    /// Returns the name of the server.
    pub fn name(&self) -> ServerName<'static> {
        self.name.clone()
    }

    /// Makes the session of one connection.
    ///
    /// # Errors
    /// The rules make no session.
    pub fn session(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(Arc::clone(&self.rules), self.name.clone()).map_err(io::Error::other)
    }
}

/// The rules of connections that this process makes.
///
/// # Errors
/// The first directive that does not work, and why.
pub fn client_rules(
    settings: &TlsSettings,
    names: NameCheck,
) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = authorities(settings)?;
    if roots.is_empty() {
        let why = "the server's certificate cannot be checked without it or tls-ca-cert-dir";
        return Err(setting("tls-ca-cert-file", why));
    }
    client_rules_trusting(settings, Trust::Authorities(roots, names))
}

/// The same with authorities that the settings do not name.
///
/// # Errors
/// Likewise.
pub fn client_rules_trusting(
    settings: &TlsSettings,
    trust: Trust,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(provider(settings)?);
    let rules = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&protocols(&settings.protocols)?)
        .map_err(|why| setting("tls-protocols", why.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier(trust, provider)?);
    let own = of_client(settings);
    if own.cert_file.is_empty() && own.key_file.is_empty() {
        return Ok(Arc::new(rules.with_no_client_auth()));
    }
    let (certificates, key) = identity(&own)?;
    let config = rules
        .with_client_auth_cert(certificates, key)
        .map_err(|why| setting("tls-cert-file", format!("does not go with the key: {why}")))?;
    Ok(Arc::new(config))
}

/// Returns what checks the other side's certificate.
fn verifier(
    trust: Trust,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let (roots, names) = match trust {
        Trust::Authorities(roots, names) => (roots, names),
        Trust::Anything => return Ok(Arc::new(AnyCertificate(provider))),
    };
    let checked = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|why| setting("tls-ca-cert-file", why.to_string()))?;
    Ok(match names {
        NameCheck::Same => checked,
        NameCheck::Any => Arc::new(AnyName(checked)),
    })
}

/// The settings with the certificate that this server shows to others: one of its own for that, or
/// the one that it shows to clients.
fn of_client(settings: &TlsSettings) -> TlsSettings {
    if settings.client_cert_file.is_empty() {
        return settings.clone();
    }
    TlsSettings {
        cert_file: settings.client_cert_file.clone(),
        key_file: settings.client_key_file.clone(),
        key_file_pass: settings.client_key_file_pass.clone(),
        ..settings.clone()
    }
}

/// Checks everything but the name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is what is looked at last, when the chain has been found good.
        match self.0.verify_server_cert(certificate, chain, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Checks only that the other side has the key of its certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
