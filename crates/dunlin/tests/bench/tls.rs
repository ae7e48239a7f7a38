//! TLS with certificates of every kind.

use crate::support::{bench, dunlin, file};
use harness::server::free_port;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::net::TcpListener;
use std::path::Path;

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

#[test]
fn tls() {
    let directory = file("tls");
    std::fs::create_dir_all(&directory).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    let ca = write(&directory.join("ca.pem"), &authority.pem());
    let cert = write(&directory.join("cert.pem"), &certificate.pem());
    let key = write(&directory.join("key.pem"), &key.serialize_pem());
    let port = free_port().unwrap().to_string();
    let server = dunlin(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "optional",
    ]);
    let run =
        |line: &str| bench(&format!("-p {port} -q -n 2000 -c 5 -P 8 -d 3000 -t set,get {line}"));
    for line in [
        format!("--tls --cacert {ca}"),
        format!("--tls --cacertdir {}/ca", directory.display()),
        "--tls --insecure".to_owned(),
        format!("--tls --cacert {ca} --sni localhost --cert {cert} --key {key}"),
        format!("--tls --cacert {ca} --tls-ciphersuites TLS_AES_256_GCM_SHA384"),
        format!("-u rediss://127.0.0.1:{port} --cacert {ca} --tls"),
    ] {
        if line.contains("cacertdir") {
            std::fs::create_dir_all(directory.join("ca")).unwrap();
            std::fs::copy(&ca, directory.join("ca/one.pem")).unwrap();
        }
        let output = if line.starts_with("-u") {
            bench(&format!("-q -n 200 -c 5 -t set {line}"))
        } else {
            run(&line)
        };
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let output = run(&format!("--tls --cacert {cert} --sni other.example"));
    assert_eq!(output.status.code(), Some(1), "a wrong certificate is refused");
    // What does not speak TLS may wait for more and say nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let output = bench(&format!("-p {silent_port} -q -n 10 -c 2 -t set --tls --insecure"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.contains("takes too long")), (Some(1), true), "{said}");
    drop(server);
    std::fs::remove_dir_all(directory).unwrap();
}
