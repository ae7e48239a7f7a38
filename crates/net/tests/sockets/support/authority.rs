//! Certificates made for a test, and clients and servers that use them.

use super::{Peer, Server};
use net::{Backend, ClientAuth, Kind, NetOptions, Tag, TlsContext, TlsSettings};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An authority, and a folder with what it signed.
pub struct Authority {
    pub certificate: CertificateDer<'static>,
    pub issuer: Issuer<'static, KeyPair>,
    pub folder: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dunlin-tls-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.join("ca.crt"), certificate.pem()).unwrap();
        let certificate = certificate.der().clone();
        Self { certificate, issuer: Issuer::new(params, key), folder }
    }

    /// Signs a certificate: `NAME.crt` and `NAME.key` in the folder.
    pub fn sign(&self, name: &str) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(name, "crt"), certificate.pem()).unwrap();
        std::fs::write(self.path(name, "key"), key.serialize_pem()).unwrap();
    }

    pub fn path(&self, name: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{name}.{kind}"))
    }

    pub fn text(&self, name: &str, kind: &str) -> String {
        self.path(name, kind).to_str().unwrap().to_owned()
    }

    pub fn settings(&self, auth_clients: ClientAuth) -> TlsSettings {
        TlsSettings {
            cert_file: self.text("server", "crt"),
            key_file: self.text("server", "key"),
            ca_cert_file: self.text("ca", "crt"),
            auth_clients,
            session_cache_size: Some(100),
            ..TlsSettings::default()
        }
    }

    pub fn server(&self, backend: Backend, auth: ClientAuth) -> Server {
        self.sign("server");
        let options = NetOptions { backend, ..NetOptions::default() };
        Server::with(options, |net| {
            net.set_tls(Tag::default(), Some(TlsContext::load(&self.settings(auth)).unwrap()));
            vec![Server::anywhere(Kind::Tls)]
        })
    }

    pub fn client(
        &self,
        certificate: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let rules = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        match certificate {
            None => rules.with_no_client_auth(),
            Some(name) => {
                let chain = vec![CertificateDer::from_pem_file(self.path(name, "crt")).unwrap()];
                let key = PrivateKeyDer::from_pem_file(self.path(name, "key")).unwrap();
                rules.with_client_auth_cert(chain, key).unwrap()
            }
        }
    }

    pub fn connect(&self, server: &Server, certificate: Option<&str>) -> Peer<Tls> {
        connect(server, self.client(certificate, rustls::ALL_VERSIONS))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A client's session.
pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects with these rules.
pub fn connect(server: &Server, config: ClientConfig) -> Peer<Tls> {
    connect_to(server.addr(), config)
}

/// Connects to an address with these rules.
pub fn connect_to(address: SocketAddr, config: ClientConfig) -> Peer<Tls> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    Peer::over(StreamOwned::new(session, stream))
}
