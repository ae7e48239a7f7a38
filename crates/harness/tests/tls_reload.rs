//! A server that gets new certificates while it runs: CONFIG SET serves them to new connections,
//! leaves old connections alone, and refuses files that do not work without forgetting the old ones.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, encode, patience};
use harness::reply::Reply;
use harness::server::{Options, Program, Server, free_port};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// An authority that signs certificates into one folder.
struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    /// Writes `ca.crt` into the folder.
    fn new(folder: &Path) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join("ca.crt"), certificate.pem()).unwrap();
        let certificate = certificate.der().clone();
        Authority { certificate, issuer: Issuer::new(params, key), folder: folder.to_owned() }
    }

    /// Writes `NAME.crt` and `NAME.key`, and returns the certificate.
    fn sign(&self, name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.folder.join(format!("{name}.crt")), certificate.pem()).unwrap();
        fs::write(self.folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        certificate.der().clone()
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(file).to_str().unwrap().to_owned()
    }

    /// A connection by TLS that has been answered, and so is known to be whole.
    fn connect(&self, port: u16) -> Encrypted {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut connection = Encrypted(StreamOwned::new(session, stream));
        connection.ping();
        connection
    }
}

struct Encrypted(StreamOwned<ClientConnection, TcpStream>);

impl Encrypted {
    fn ping(&mut self) {
        self.0.write_all(&encode(&["PING"])).unwrap();
        self.0.flush().unwrap();
        let mut reply = [0; 7];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }

    /// The certificate that the server has shown.
    fn certificate(&self) -> CertificateDer<'static> {
        self.0.conn.peer_certificates().unwrap()[0].clone().into_owned()
    }
}

#[track_caller]
fn set(client: &mut Client, options: &[&str]) -> Reply {
    client.command(&[&["CONFIG", "SET"], options].concat()).unwrap()
}

fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

fn value(client: &mut Client, option: &str) -> String {
    let reply = client.command(&["CONFIG", "GET", option]).unwrap();
    String::from_utf8(reply.elements().unwrap()[1].text().unwrap().to_vec()).unwrap()
}

/// A plain connection, and the TLS port, of a server that shows the certificate `first`.
fn start(folder: &Path, check: impl Fn(&Server, &Authority, u16, CertificateDer<'static>)) {
    let program = Program::under_test();
    for backend in program.backends() {
        let authority = Authority::new(folder);
        let first = authority.sign("first");
        let port = free_port().unwrap();
        let mut options = Options::arguments(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &authority.path("first.crt"),
            "--tls-key-file",
            &authority.path("first.key"),
            "--tls-ca-cert-file",
            &authority.path("ca.crt"),
            "--tls-auth-clients",
            "no",
        ]);
        options.backend = backend;
        let server = Server::start(&program, options).unwrap();
        check(&server, &authority, port, first);
        assert!(server.stop().unwrap().success());
    }
}

/// A folder that is gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        // A server that has given up being root has to read it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is for the system to clean up.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_new_certificate_is_for_new_connections() {
    let folder = Folder::new("tls-new");
    start(&folder.0, |server, authority, port, first| {
        let mut client = server.client();
        let mut old = authority.connect(port);
        assert_eq!(old.certificate(), first);
        let second = authority.sign("second");
        let files = [
            "tls-cert-file",
            &authority.path("second.crt"),
            "tls-key-file",
            &authority.path("second.key"),
        ];
        assert_eq!(set(&mut client, &files), ok());
        assert_eq!(authority.connect(port).certificate(), second);
        old.ping();
        // A file renewed under its own name is read again when it is set again, as Certbot's hooks do.
        let third = authority.sign("second");
        assert_eq!(authority.connect(port).certificate(), second, "nobody asked yet");
        assert_eq!(set(&mut client, &files), ok());
        assert_eq!(authority.connect(port).certificate(), third);
        old.ping();
    });
}

#[test]
fn a_bad_file_is_refused_and_the_old_one_stays() {
    let folder = Folder::new("tls-bad");
    start(&folder.0, |server, authority, port, first| {
        let mut client = server.client();
        let mut old = authority.connect(port);
        authority.sign("other");
        fs::write(folder.0.join("garbage.crt"), "no certificate at all\n").unwrap();
        fs::write(folder.0.join("empty.crt"), "").unwrap();
        let refused = |option: &str| {
            let text = format!(
                "ERR CONFIG SET failed (possibly related to argument '{option}') - Unable to \
                 update TLS configuration. Check server logs."
            );
            Reply::Error(text.into_bytes())
        };
        for (option, file) in [
            ("tls-cert-file", "missing.crt"),
            ("tls-cert-file", "garbage.crt"),
            ("tls-cert-file", "empty.crt"),
            // A certificate whose key is another one.
            ("tls-cert-file", "other.crt"),
            ("tls-key-file", "other.key"),
            ("tls-key-file", "missing.key"),
            ("tls-ca-cert-file", "missing.crt"),
            ("tls-ca-cert-file", "garbage.crt"),
        ] {
            let before = value(&mut client, option);
            let path = authority.path(file);
            assert_eq!(set(&mut client, &[option, &path]), refused(option), "{file}");
            assert_eq!(value(&mut client, option), before, "{file}");
            assert_eq!(authority.connect(port).certificate(), first, "{file}");
            // The log is where it says why, so it has to name the file.
            if file != "other.crt" && file != "other.key" {
                let deadline = Instant::now() + patience();
                while !server.log().contains(file) {
                    assert!(Instant::now() < deadline, "{file}: {}", server.log());
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
        // One bad option takes the good one of the same request with it.
        let pair =
            ["maxclients", "77", "tls-cert-file", &authority.path("missing.crt"), "timeout", "9"];
        assert_eq!(set(&mut client, &pair), refused("tls-cert-file"));
        assert_ne!(value(&mut client, "maxclients"), "77");
        assert_eq!(value(&mut client, "timeout"), "0");
        // The port itself can go, and come back with another certificate.
        assert_eq!(set(&mut client, &["tls-port", "0"]), ok());
        old.ping();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        let files = [
            "tls-cert-file",
            &authority.path("other.crt"),
            "tls-key-file",
            &authority.path("other.key"),
            "tls-port",
            &port.to_string(),
        ];
        assert_eq!(set(&mut client, &files), ok());
        assert_ne!(authority.connect(port).certificate(), first);
        old.ping();
    });
}
