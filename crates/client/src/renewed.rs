//! Rules of TLS that follow the files they were read from: certificates are renewed while a process
//! runs, by cert-manager or an operator.
//!
//! Each connection asks for the rules of now ([`Renewed::current`]), which looks at the files'
//! inodes, times and lengths: three calls of the system, beside a handshake. No thread has to
//! watch, and nothing is late. A secret of Kubernetes is a link that is put in place of another, so
//! it is the file behind the links that is looked at. Rules that cannot be read leave those of
//! before in force: perhaps one file is written and the next is not. That is logged once.

use net::{NameCheck, TlsError, TlsSettings, client_rules};
use process::log;
use rustls::ClientConfig;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex};
use structs::sync::lock;

/// What tells a file from the one that was there before. `None`: there is none.
type Stamp = Option<[i64; 5]>;

/// The stamps of authorities, certificate and key.
type Stamps = [Stamp; 3];

/// How rules are made of files.
type Read<R> = Box<dyn Fn(&TlsSettings) -> Result<Arc<R>, TlsError> + Send + Sync>;

/// See the head of this file. The rules are those of a client, or of a server (`R`).
pub struct Renewed<R = ClientConfig> {
    settings: TlsSettings,
    read: Read<R>,
    held: Mutex<Held<R>>,
}

struct Held<R> {
    rules: Arc<R>,
    /// Those of the files that were read.
    stamps: Stamps,
    /// Those of the files that could not be used.
    refused: Option<Stamps>,
}

impl<R> fmt::Debug for Renewed<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewed").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Renewed {
    /// Reads the files for a client.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn read(settings: TlsSettings, names: NameCheck) -> Result<Renewed, TlsError> {
        Renewed::new(settings, move |settings| client_rules(settings, names))
    }
}

impl<R> Renewed<R> {
    /// Reads the files by a function.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn new(
        settings: TlsSettings,
        read: impl Fn(&TlsSettings) -> Result<Arc<R>, TlsError> + Send + Sync + 'static,
    ) -> Result<Renewed<R>, TlsError> {
        // Files that are replaced meanwhile differ from these, and are read again.
        let stamps = stamps(&settings);
        let held = Held { rules: read(&settings)?, stamps, refused: None };
        Ok(Renewed { settings, read: Box::new(read), held: Mutex::new(held) })
    }

    /// Returns the rules for a connection that is made now.
    pub fn current(&self) -> Arc<R> {
        let mut held = lock(&self.held);
        let found = stamps(&self.settings);
        if found == held.stamps || held.refused == Some(found) {
            return Arc::clone(&held.rules);
        }
        let TlsSettings { ca_cert_file, cert_file, .. } = &self.settings;
        let files = [ca_cert_file, cert_file].map(String::as_str);
        match (self.read)(&self.settings) {
            Ok(rules) => {
                *held = Held { rules, stamps: found, refused: None };
                log!(
                    Notice,
                    "Certificates have changed: new connections use {}",
                    files.join(" ").trim()
                );
            }
            Err(why) => {
                held.refused = Some(found);
                log!(Warning, "Certificates have changed, and the old ones stay in use: {why}");
            }
        }
        Arc::clone(&held.rules)
    }
}

fn stamps(settings: &TlsSettings) -> Stamps {
    [&settings.ca_cert_file, &settings.cert_file, &settings.key_file].map(|path| {
        let found = fs::metadata(path).ok()?;
        let inode = found.ino().cast_signed();
        let len = found.size().cast_signed();
        Some([found.dev().cast_signed(), inode, found.mtime(), found.mtime_nsec(), len])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::tls::Authority;

    fn settings(authority: &Authority) -> TlsSettings {
        TlsSettings {
            ca_cert_file: authority.path("ca.crt"),
            cert_file: authority.path("client.crt"),
            key_file: authority.path("client.key"),
            ..TlsSettings::default()
        }
    }

    #[test]
    fn renewed_files_are_read_and_half_of_them_are_not() {
        let authority = Authority::new("renewed");
        authority.sign("client");
        let renewed = Renewed::read(settings(&authority), NameCheck::Any).expect("they are good");
        let first = renewed.current();
        assert!(Arc::ptr_eq(&first, &renewed.current()), "nothing has changed");

        let old_key = fs::read_to_string(authority.path("client.key")).expect("it is there");
        authority.sign("client");
        let new_key = fs::read_to_string(authority.path("client.key")).expect("it is there");
        authority.write("client.key", &old_key);
        assert!(Arc::ptr_eq(&first, &renewed.current()), "the key is that of before");
        fs::remove_file(authority.path("client.key")).expect("it is there");
        assert!(Arc::ptr_eq(&first, &renewed.current()), "there is no key");
        authority.write("client.key", &new_key);
        let second = renewed.current();
        assert!(!Arc::ptr_eq(&first, &second), "they go together");
        assert!(Arc::ptr_eq(&second, &renewed.current()));
    }

    #[test]
    fn a_link_that_is_put_in_place_of_another_is_followed() {
        let authority = Authority::new("links");
        let link = |to: &str| {
            let (new, place) = (authority.path("new"), authority.path("data"));
            std::os::unix::fs::symlink(authority.path(to), &new).expect("it is made");
            fs::rename(new, place).expect("it is replaced");
        };
        for folder in ["one", "two"] {
            authority.sign("client");
            fs::create_dir(authority.path(folder)).expect("it is made");
            for file in ["client.crt", "client.key"] {
                fs::rename(authority.path(file), authority.path(&format!("{folder}/{file}")))
                    .expect("it is moved");
            }
        }
        link("one");
        let settings = TlsSettings {
            cert_file: authority.path("data/client.crt"),
            key_file: authority.path("data/client.key"),
            ..settings(&authority)
        };
        let renewed = Renewed::read(settings, NameCheck::Any).expect("they are good");
        let first = renewed.current();
        link("two");
        fs::remove_dir_all(authority.path("one")).expect("it is there");
        assert!(!Arc::ptr_eq(&first, &renewed.current()));
    }
}
