//! How this machine is let in by etcd: options of the user's etcd, or certificates of the cluster's
//! own authority.

use super::kept::Kept;
use super::tls::lasting;
use crate::authority::{Files, secret_in};
use crate::settings::Wrong;
use crate::supervise::{PASSWORD, TOKEN};
use crate::talk::Certificates;
use clap::Args;
use etcd::{Credentials, Endpoint, Way};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Options about etcd's certificates and users.
#[derive(Args, Clone, Debug, Default)]
pub struct AccessOptions {
    /// File with the authorities that etcd's certificate must come from
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_cacert: Option<PathBuf>,
    /// File with the certificate that is shown to etcd
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// File with the key of that certificate
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// User of etcd, whose password is in --etcd-password-file or in DUNLIN_ETCD_PASSWORD
    #[arg(long, value_name = "NAME", requires = "etcd")]
    etcd_user: Option<String>,
    /// File with the password of that user
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// File with the token of the cluster that is joined: tls/join-token of one of its machines [or
    /// DUNLIN_JOIN_TOKEN]. With --etcd-members, and with --etcd, it may be any secret of 32
    /// characters or more, the same on all machines; with --etcd it seals the passwords that etcd has
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Start etcd without TLS, for a network of its own
    #[arg(long)]
    etcd_plain: bool,
}

/// How the machine is let in, as it is remembered.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// etcd's certificates and this machine's come from the cluster's own authority.
    pub is_ours: bool,
    /// See [`Credentials`].
    pub ca_cert_file: String,
    /// See [`Credentials`].
    pub cert_file: String,
    /// See [`Credentials`].
    pub key_file: String,
    /// See [`Credentials`].
    pub user: String,
    /// See [`Credentials`].
    pub password: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.credentials().fmt(f)
    }
}

impl Access {
    /// As etcd's clients want it.
    pub fn credentials(&self) -> Credentials {
        let Access { is_ours: _, ca_cert_file, cert_file, key_file, user, password } = self.clone();
        Credentials { ca_cert_file, cert_file, key_file, user, password }
    }

    /// The way to these servers.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn way(&self, endpoints: Vec<Endpoint>) -> Result<Way, Wrong> {
        Way::new(endpoints, &self.credentials()).map_err(|why| Wrong(why.to_string()))
    }

    /// The options of a server that is let in in the same way.
    pub fn server_options(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("cluster-coordinator-ca-cert-file", &self.ca_cert_file),
            ("cluster-coordinator-cert-file", &self.cert_file),
            ("cluster-coordinator-key-file", &self.key_file),
            ("cluster-coordinator-user", &self.user),
            ("cluster-coordinator-password", &self.password),
        ];
        let given = all.into_iter().filter(|(_, value)| !value.is_empty());
        given.map(|(name, value)| (name, value.clone())).collect()
    }

    /// The certificates of this machine, if it has some.
    pub fn certificates(&self) -> Option<Certificates> {
        let Access { ca_cert_file, cert_file, key_file, .. } = self.clone();
        let has_all = ![&ca_cert_file, &cert_file, &key_file].iter().any(|file| file.is_empty());
        has_all.then_some(Certificates { ca_cert_file, cert_file, key_file })
    }

    /// Takes what the options say of the user's etcd.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn take(&mut self, options: &AccessOptions, directory: &Path) -> Result<(), Wrong> {
        if let Some(secret) = secret(options.token_file.as_deref(), TOKEN)? {
            Files::of(directory).share(&secret)?;
        }
        for (place, given) in [
            (&mut self.ca_cert_file, &options.etcd_cacert),
            (&mut self.cert_file, &options.etcd_cert),
            (&mut self.key_file, &options.etcd_key),
        ] {
            if let Some(path) = given {
                *place = lasting(path)?;
            }
        }
        if let Some(user) = &options.etcd_user {
            self.user.clone_from(user);
        }
        if self.user.is_empty() {
            return Ok(());
        }
        match secret(options.etcd_password_file.as_deref(), PASSWORD)? {
            Some(password) => self.password = password,
            None if self.password.is_empty() => {
                let text = format!(
                    "--etcd-user {}: put the password into {PASSWORD}, or into a file for --etcd-password-file",
                    self.user
                );
                return Err(Wrong(text));
            }
            None => {}
        }
        Ok(())
    }

    /// Begins a cluster with an authority of its own, unless the user wants none.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn found(&mut self, options: &AccessOptions, directory: &Path) -> Result<(), Wrong> {
        self.is_ours = !options.etcd_plain;
        if self.is_ours { Files::of(directory).found() } else { Ok(()) }
    }

    /// Takes the authority of the cluster that is joined, if the user has brought its token.
    ///
    /// # Errors
    /// The token cannot be read, or is none.
    pub fn join(&mut self, options: &AccessOptions, directory: &Path) -> Result<(), Wrong> {
        let Some(token) = secret(options.token_file.as_deref(), TOKEN)? else { return Ok(()) };
        self.is_ours = true;
        Files::of(directory).take(&token)
    }

    /// Takes the authority that belongs to the secret which all machines share.
    ///
    /// # Errors
    /// There is no secret, or it is too short.
    pub fn share(&mut self, options: &AccessOptions, directory: &Path) -> Result<(), Wrong> {
        self.is_ours = !options.etcd_plain;
        if !self.is_ours {
            return Ok(());
        }
        match secret(options.token_file.as_deref(), TOKEN)? {
            Some(secret) => Files::of(directory).share(&secret),
            None => Err(Wrong(format!(
                "--etcd-members: put a secret that all machines share into {TOKEN}, or into a file for --token-file"
            ))),
        }
    }

    /// Signs this machine's certificate, for these further names as well, if it has an authority:
    /// the cluster's own, or that of the secret which machines with an etcd of the user's share.
    ///
    /// # Errors
    /// The authority's key cannot be read, a name is none, or the disk refuses it.
    pub fn sign(&mut self, kept: &Kept, names: &[String], directory: &Path) -> Result<(), Wrong> {
        let files = Files::of(directory);
        if !self.is_ours && !files.key.exists() {
            return Ok(());
        }
        let etcd = kept.etcd.as_ref().map_or(&*kept.host, |server| &*server.host);
        let hosts = [&*kept.host, etcd].into_iter().chain(names.iter().map(|name| &**name));
        files.sign(&hosts.collect::<Vec<_>>())?;
        if self.is_ours {
            let text = |path: &Path| path.to_string_lossy().into_owned();
            self.ca_cert_file = text(&files.authority);
            self.cert_file = text(&files.machine);
            self.key_file = text(&files.machine);
        }
        Ok(())
    }
}

/// What is in a file, or in a variable of the environment.
fn secret(file: Option<&Path>, variable: &str) -> Result<Option<String>, Wrong> {
    match file {
        Some(path) => secret_in(path).map(Some),
        None => Ok(std::env::var(variable).ok().filter(|text| !text.is_empty())),
    }
}
