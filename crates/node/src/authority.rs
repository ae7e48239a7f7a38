//! The authority of a cluster whose etcd is ours: it signs a certificate for each machine, with
//! which etcd's members know each other, and copies and nodes are let in.
//!
//! Each machine has the authority's key, since each may be the one that another machine joins. The
//! key of one machine is worth no more than its access to etcd, which says where all data are. A
//! token is the certificate and the key in one word, which a user takes to the machine that joins.
//!
//! Machines that start at the same time, as pods do, have no first one. They share a secret, from
//! which each derives the same key: an Ed25519 key is any 32 bytes. Their certificates of the
//! authority differ, but its name and key do not, and these are what counts.

use crate::file;
use crate::sealed;
use crate::settings::Wrong;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use net::{NameCheck, TlsClient, TlsSettings, Trust, client_rules_trusting};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::RootCertStore;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// What a token begins with.
const TOKEN: &str = "dunlin1.";

/// The least characters of a shared secret: it is as good as a key.
const MIN_SECRET: usize = 32;

/// What stands before the 32 bytes of an Ed25519 key in PKCS #8.
const ED25519: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The folder in the directory of a machine.
const FOLDER: &str = "tls";

/// The files of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// The authority's key.
    pub key: PathBuf,
    /// This machine's certificate and its key, in one file: so they change together.
    pub machine: PathBuf,
    /// What another machine joins with.
    pub token: PathBuf,
}

impl Files {
    /// Those in the directory of a machine.
    pub fn of(directory: &Path) -> Files {
        let folder = directory.join(FOLDER);
        Files {
            authority: folder.join("ca.pem"),
            key: folder.join("ca.key"),
            machine: folder.join("machine.pem"),
            token: folder.join("join-token"),
        }
    }

    /// Makes an authority, if there is none yet.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn found(&self) -> Result<(), Wrong> {
        if self.key.exists() && self.authority.exists() {
            return Ok(());
        }
        let key = KeyPair::generate().map_err(wrong)?;
        let certificate = authority().self_signed(&key).map_err(wrong)?;
        self.keep(&certificate.pem(), &key)
    }

    /// Makes the authority that belongs to a secret, or takes the one of a token.
    ///
    /// # Errors
    /// The secret is too short, or the disk refuses it.
    pub fn share(&self, secret: &str) -> Result<(), Wrong> {
        if secret.starts_with(TOKEN) {
            return self.take(secret);
        }
        let key = derived(secret)?;
        let is_same = |text: String| text == key.serialize_pem();
        if self.authority.exists() && fs::read_to_string(&self.key).is_ok_and(is_same) {
            return Ok(());
        }
        let certificate = authority().self_signed(&key).map_err(wrong)?;
        self.keep(&certificate.pem(), &key)
    }

    /// Takes the authority of a token.
    ///
    /// # Errors
    /// It is no token, or the disk refuses it.
    pub fn take(&self, token: &str) -> Result<(), Wrong> {
        let (certificate, key) = parse(token)?;
        self.keep(&certificate, &key)
    }

    /// Lets passwords at etcd be sealed and opened, if this machine has the key.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn share_secret(&self) -> Result<(), Wrong> {
        let text = match fs::read_to_string(&self.key) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            text => text.map_err(|error| Wrong(format!("{}: {error}", self.key.display())))?,
        };
        let key = KeyPair::from_pem(&text).map_err(wrong)?;
        sealed::set_secret(&key.serialize_der()).map_err(|why| Wrong(why.to_string()))
    }

    fn keep(&self, certificate: &str, key: &KeyPair) -> Result<(), Wrong> {
        let folder = self.key.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)
            .map_err(|error| Wrong(format!("{}: {error}", folder.display())))?;
        let der = URL_SAFE_NO_PAD.encode(key.serialize_der());
        let token = format!("{TOKEN}{}.{der}\n", URL_SAFE_NO_PAD.encode(certificate));
        write(&self.token, &token)?;
        write(&self.key, &key.serialize_pem())?;
        write(&self.authority, certificate)
    }

    /// Signs a certificate for this machine, by which it is known at `hosts`, and as this machine.
    ///
    /// # Errors
    /// The authority's key cannot be read, one of `hosts` is no name, or the disk refuses it.
    pub fn sign(&self, hosts: &[&str]) -> Result<(), Wrong> {
        let text = fs::read_to_string(&self.key);
        let text = text.map_err(|error| Wrong(format!("{}: {error}", self.key.display())))?;
        let issuer = Issuer::new(authority(), KeyPair::from_pem(&text).map_err(wrong)?);
        let mut names: Vec<String> = Vec::new();
        for name in hosts.iter().copied().chain(["127.0.0.1", "::1", "localhost"]) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        let mut params = CertificateParams::new(names).map_err(wrong)?;
        // With users, etcd's gateway refuses certificates that have a common name.
        params.distinguished_name = DistinguishedName::new();
        // etcd is a client of its peers and of itself.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(wrong)?;
        let certificate: Certificate = params.signed_by(&key, &issuer).map_err(wrong)?;
        write(&self.machine, &format!("{}{}", certificate.pem(), key.serialize_pem()))
    }
}

/// Returns the secret or token that is in a file.
///
/// # Errors
/// It cannot be read, or is empty.
pub fn secret_in(path: &Path) -> Result<String, Wrong> {
    let text =
        fs::read_to_string(path).map_err(|error| Wrong(format!("{}: {error}", path.display())))?;
    match text.trim() {
        "" => Err(Wrong(format!("{} is empty", path.display()))),
        secret => Ok(secret.to_owned()),
    }
}

/// Reads the certificate and the key of a token.
fn parse(token: &str) -> Result<(String, KeyPair), Wrong> {
    let no_token = || {
        Wrong(format!(
            "this is no token of a cluster: it begins with {TOKEN}, and is in the file {FOLDER}/join-token of \
             a machine of the cluster"
        ))
    };
    let (certificate, key) = token
        .trim()
        .strip_prefix(TOKEN)
        .and_then(|rest| rest.split_once('.'))
        .ok_or_else(no_token)?;
    let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| no_token());
    let key = KeyPair::try_from(bytes(key)?).map_err(|_| no_token())?;
    Ok((String::from_utf8(bytes(certificate)?).map_err(|_| no_token())?, key))
}

/// Makes the key that belongs to a secret.
fn derived(secret: &str) -> Result<KeyPair, Wrong> {
    if secret.len() < MIN_SECRET {
        let text = format!("a secret that machines share has at least {MIN_SECRET} characters");
        return Err(Wrong(text));
    }
    let seed = Sha256::digest(format!("dunlin authority {secret}"));
    KeyPair::try_from([&ED25519[..], &seed[..]].concat()).map_err(wrong)
}

/// Returns what a connection to the admin port of a machine needs: its certificate has to come from
/// the authority of a token or of a secret that machines share. Each machine answers for the whole
/// cluster, so it may be any, by whatever name it was reached.
///
/// # Errors
/// The secret is too short, the token is none, or `host` is no name.
pub fn client_of(secret: &str, host: &str) -> Result<TlsClient, Wrong> {
    let key = match secret.starts_with(TOKEN) {
        true => parse(secret)?.1,
        false => derived(secret)?,
    };
    let certificate = authority().self_signed(&key).map_err(wrong)?;
    let said = |why: String| Wrong(format!("the authority cannot be used: {why}"));
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).map_err(|why| said(why.to_string()))?;
    let trust = Trust::Authorities(roots, NameCheck::Any);
    let rules = client_rules_trusting(&TlsSettings::default(), trust);
    let rules = rules.map_err(|why| said(why.to_string()))?;
    TlsClient::new(rules, host).map_err(|_| Wrong(format!("'{host}' is no name of a host")))
}

/// What is the same whenever the authority signs. Its certificates do not end: nothing would be
/// safer if a cluster stood still one day.
fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "Dunlin cluster");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn wrong(error: rcgen::Error) -> Wrong {
    Wrong(format!("a certificate cannot be made: {error}"))
}

fn write(path: &Path, text: &str) -> Result<(), Wrong> {
    file::write(path, text).map_err(|error| Wrong(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_token_brings_the_authority_to_another_machine() {
        let folder = std::env::temp_dir().join(format!("dunlin-authority-{}", std::process::id()));
        let [first, second] = ["a", "b"].map(|name| Files::of(&folder.join(name)));
        first.found().unwrap();
        first.sign(&["10.0.0.1"]).unwrap();
        let token = fs::read_to_string(&first.token).unwrap();
        assert!(second.take("dunlin1.x").is_err_and(|why| why.0.contains("no token")));
        assert!(second.take(&token[..token.len() / 2]).is_err());
        second.take(&token).unwrap();
        second.sign(&["10.0.0.2", "b.example"]).unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(read(&first.authority), read(&second.authority));
        assert_eq!(read(&second.token), token, "others can join this machine");
        let mode = fs::metadata(&second.machine).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // What is there is not made anew.
        first.found().unwrap();
        assert_eq!(read(&first.authority), read(&second.authority));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_secret_makes_the_same_authority_on_each_machine() {
        let folder = std::env::temp_dir().join(format!("dunlin-secret-{}", std::process::id()));
        let [first, second] = ["a", "b"].map(|name| Files::of(&folder.join(name)));
        let secret = "0123456789abcdef0123456789abcdef";
        assert!(first.share("short").is_err_and(|why| why.0.contains("at least 32")));
        first.share(secret).unwrap();
        second.share(secret).unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(read(&first.key), read(&second.key));
        let before = read(&first.authority);
        first.share(secret).unwrap();
        assert_eq!(read(&first.authority), before, "what is there is not made anew");
        second.share(&read(&first.token)).unwrap();
        assert_eq!(read(&second.authority), before, "a token is taken as well");
        first.share(&format!("{secret}x")).unwrap();
        assert_ne!(read(&first.key), read(&second.key));
        fs::remove_dir_all(&folder).unwrap();
    }
}
