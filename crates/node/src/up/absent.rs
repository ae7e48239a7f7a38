//! A machine that will have a server of etcd, and has no data for it yet, says so to the others: at
//! the port of that server's peers it answers that it knows no members. That is more than silence,
//! which a machine that has data and is down keeps as well.

use super::kept::Kept;
use crate::own_etcd::Server;
use crate::settings::Wrong;
use axum::Router;
use axum::routing::get;
use net::{ClientAuth, TlsContext, TlsSettings};
use process::log;
use rustls::ServerConfig;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Where a server of etcd says which members it knows.
const MEMBERS: &str = "/members";

/// Answers until it is dropped.
pub struct Absent {
    _runtime: Runtime,
}

impl Absent {
    /// Begins to answer in place of `server`, which is not started yet.
    ///
    /// # Errors
    /// The port is taken, or a certificate cannot be read.
    pub fn answer(server: &Server, kept: &Kept) -> Result<Absent, Wrong> {
        let tls = server.is_tls.then(|| rules(kept)).transpose()?;
        let listeners =
            web::bind(&[server.peer_bind().to_owned()], server.peer_port).map_err(Wrong)?;
        let router = Router::new().route(MEMBERS, get(|| async { "[]" }));
        let runtime = web::start(&Arc::new(Site { tls }), 1, listeners, &router).map_err(Wrong)?;
        Ok(Absent { _runtime: runtime })
    }
}

/// The same as etcd asks of its peers.
fn rules(kept: &Kept) -> Result<Arc<ServerConfig>, Wrong> {
    let credentials = kept.access.credentials();
    let settings = TlsSettings {
        ca_cert_file: credentials.ca_cert_file,
        cert_file: credentials.cert_file,
        key_file: credentials.key_file,
        auth_clients: ClientAuth::Yes,
        ..TlsSettings::default()
    };
    let context = TlsContext::load(&settings).map_err(|why| Wrong(why.to_string()))?;
    Ok(context.server_config())
}

struct Site {
    tls: Option<Arc<ServerConfig>>,
}

impl web::Site for Site {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.clone()
    }

    fn probes(&self) -> web::Probes {
        &[MEMBERS]
    }

    fn log(&self, line: &str) {
        log!(Verbose, "In place of etcd: {line}");
    }
}
