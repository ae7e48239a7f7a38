//! The authority of a cluster whose etcd is ours: it signs a certificate for each machine, with which etcd's members know
//! each other, and copies and nodes are let in.
//!
//! Each machine has the authority's key, since each may be the one that another machine joins. The key of one machine is
//! worth no more than its access to etcd, which says where all data are. A token is the certificate and the key in one
//! word, which a user takes to the machine that joins.

use crate::copies::files;
use crate::settings::Wrong;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};

/// What a token begins with.
const TOKEN: &str = "dunlin1.";

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

    /// Takes the authority of a token.
    ///
    /// # Errors
    /// It is no token, or the disk refuses it.
    pub fn take(&self, token: &str) -> Result<(), Wrong> {
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
        self.keep(&String::from_utf8(bytes(certificate)?).map_err(|_| no_token())?, &key)
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

    /// Signs a certificate for this machine, by which it is known at `host`.
    ///
    /// # Errors
    /// The authority's key cannot be read, or the disk refuses it.
    pub fn sign(&self, host: &str) -> Result<(), Wrong> {
        let text = fs::read_to_string(&self.key);
        let text = text.map_err(|error| Wrong(format!("{}: {error}", self.key.display())))?;
        let issuer = Issuer::new(authority(), KeyPair::from_pem(&text).map_err(wrong)?);
        let mut names = vec![host.to_owned()];
        for name in ["127.0.0.1", "::1", "localhost"] {
            if name != host {
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

/// What is the same whenever the authority signs. Its certificates do not end: nothing would be safer if a cluster stood
/// still one day.
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
    files::write(path, text).map_err(|error| Wrong(format!("{}: {error}", path.display())))
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
        first.sign("10.0.0.1").unwrap();
        let token = fs::read_to_string(&first.token).unwrap();
        assert!(second.take("dunlin1.x").is_err_and(|why| why.0.contains("no token")));
        assert!(second.take(&token[..token.len() / 2]).is_err());
        second.take(&token).unwrap();
        second.sign("10.0.0.2").unwrap();
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
}
