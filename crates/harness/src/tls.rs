//! TLS in tests: an authority that makes certificates, and a client that trusts it.

use crate::client::{encode, patience};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// An authority that signs certificates into a folder of its own, which is gone when it is dropped.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    /// Writes `ca.crt`. The folder's name has `name` in it.
    pub fn new(name: &str) -> Authority {
        // Tests of one process may choose the same name.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(format!("tls-{name}-{process}-{count}"));
        fs::create_dir_all(&folder).expect("a folder for certificates");
        // A server that has given up being root has to read it.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the authority");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(folder.join("ca.crt"), certificate.pem()).expect("it is written");
        let certificate = certificate.der().clone();
        Authority { certificate, issuer: Issuer::new(params, key), folder }
    }

    /// Writes `NAME.crt` and `NAME.key`, and returns the certificate.
    pub fn sign(&self, name: &str) -> CertificateDer<'static> {
        let mut common_name = DistinguishedName::new();
        common_name.push(DnType::CommonName, name);
        self.sign_as(name, common_name)
    }

    /// The same for a certificate without a common name.
    pub fn sign_nameless(&self, name: &str) -> CertificateDer<'static> {
        self.sign_as(name, DistinguishedName::new())
    }

    fn sign_as(&self, name: &str, subject: DistinguishedName) -> CertificateDer<'static> {
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned()]).expect("a host's name");
        params.distinguished_name = subject;
        let uri = format!("urn:{name}").try_into().expect("ASCII");
        params.subject_alt_names.push(SanType::URI(uri));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
        certificate.der().clone()
    }

    /// Writes a file beside the certificates.
    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).expect("it is written");
    }

    /// The path of a file beside the certificates.
    pub fn path(&self, file: &str) -> String {
        self.folder.join(file).to_str().expect("a plain name").to_owned()
    }

    /// The options of a server with this port for TLS, which shows the certificate `name`.
    pub fn options(&self, port: u16, name: &str) -> Vec<String> {
        let options = [
            ("port", port.to_string()),
            ("cert-file", self.path(&format!("{name}.crt"))),
            ("key-file", self.path(&format!("{name}.key"))),
            ("ca-cert-file", self.path("ca.crt")),
            ("auth-clients", "no".to_owned()),
        ];
        options.into_iter().flat_map(|(name, value)| [format!("--tls-{name}"), value]).collect()
    }

    /// A connection by TLS that has been answered, and so is known to be whole.
    pub fn connect(&self, port: u16) -> Encrypted {
        let mut connection = Encrypted(self.open(port));
        connection.ping();
        connection
    }

    /// A connection of a client that shows the certificate `name`.
    pub fn connect_as(&self, port: u16, name: &str) -> Encrypted {
        Encrypted(self.open_showing(port, Some(name)))
    }

    /// A connection by TLS on which nothing has been sent.
    pub fn open(&self, port: u16) -> StreamOwned<ClientConnection, TcpStream> {
        self.open_showing(port, None)
    }

    /// The same of a client that shows the certificate `name`.
    pub fn open_as(&self, port: u16, name: &str) -> StreamOwned<ClientConnection, TcpStream> {
        self.open_showing(port, Some(name))
    }

    fn open_showing(
        &self,
        port: u16,
        own: Option<&str>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("the authority is one");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some(name) => {
                let file = |ending: &str| self.path(&format!("{name}.{ending}"));
                let chain = CertificateDer::from_pem_file(file("crt")).expect("a certificate");
                let key = PrivateKeyDer::from_pem_file(file("key")).expect("a key");
                config.with_client_auth_cert(vec![chain], key).expect("they belong together")
            }
        };
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        let name = ServerName::try_from("localhost").expect("a host's name");
        let session = ClientConnection::new(Arc::new(config), name).expect("a session");
        StreamOwned::new(session, stream)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        // What is left is for the system to clean up.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A client's end of a connection by TLS.
pub struct Encrypted(StreamOwned<ClientConnection, TcpStream>);

impl Encrypted {
    /// Sends a request.
    #[track_caller]
    pub fn send(&mut self, words: &[&str]) {
        self.0.write_all(&encode(words)).expect("it is sent");
        self.0.flush().expect("it is sent");
    }

    /// Receives these bytes, and no others.
    #[track_caller]
    pub fn receives(&mut self, wanted: &[u8]) {
        self.wait(patience());
        let mut reply = vec![0; wanted.len()];
        self.0.read_exact(&mut reply).expect("an answer");
        assert!(reply == wanted, "{} instead of {}", reply.escape_ascii(), wanted.escape_ascii());
    }

    /// Whether nothing arrives for so long.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        self.wait(time);
        let is_timeout = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
        self.0.read(&mut [0]).is_err_and(|error| is_timeout(error.kind()))
    }

    fn wait(&self, time: Duration) {
        self.0.sock.set_read_timeout(Some(time)).expect("a time to wait");
    }

    /// It is alive.
    #[track_caller]
    pub fn ping(&mut self) {
        self.send(&["PING"]);
        self.receives(b"+PONG\r\n");
    }

    /// The certificate that the server has shown.
    pub fn certificate(&self) -> CertificateDer<'static> {
        let all = self.0.conn.peer_certificates().expect("the server has shown one");
        all[0].clone().into_owned()
    }
}
