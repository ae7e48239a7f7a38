//! Joins the server and the console: `admin-port` inside the server.

use console::Port;
use console::host::{Boxed, Host, Peer, Purpose, Stream, ThreadTime};
use process::log;
use process::threads;
use rustls::ServerConfig;
use server::inside::Inside;
use std::io;
use std::sync::Arc;

/// The server of this process, for the console.
struct OwnServer(Inside);

/// Opens the admin port, if the configuration has one.
pub fn start(inside: Inside) -> Result<(), String> {
    let config = inside.config();
    let number = config.admin_port();
    let webhook = config.alert_webhook().to_string_lossy().into_owned();
    if number == 0 && !webhook.is_empty() {
        return Err("alert-webhook needs the admin port: set admin-port, too".into());
    }
    if number == 0 {
        return Ok(());
    }
    let bind: Vec<String> =
        config.admin_bind().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let log = |line: &str| log!(Notice, "{line}");
    let port = Port { bind: &bind, number, webhook: &webhook, log };
    console::start(vec![Arc::new(OwnServer(inside))], &port)
}

impl Host for OwnServer {
    fn open(&self, purpose: Purpose) -> Boxed<io::Result<Box<dyn Stream>>> {
        let opened = match purpose {
            Purpose::User => self.0.connect(),
            Purpose::Watching => self.0.watch(),
        };
        Box::pin(async move {
            let stream = tokio::net::UnixStream::from_std(opened?)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn readiness(&self) -> Boxed<Result<(), String>> {
        let readiness = self.0.readiness().map_err(|why| format!("{why:?}"));
        Box::pin(async move { readiness })
    }

    fn refuses(&self, peer: Peer) -> bool {
        self.0.refuses(peer.address, peer.local)
    }

    fn trusted_names(&self) -> String {
        self.0.config().admin_hosts().to_string_lossy().into_owned()
    }

    fn demands_certificates(&self) -> bool {
        self.0.demands_certificates()
    }

    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.0.tls()
    }

    fn threads(&self) -> Vec<ThreadTime> {
        threads::times().into_iter().map(|(name, seconds)| ThreadTime { name, seconds }).collect()
    }

    fn name(&self) -> String {
        format!("port {}", self.0.config().port())
    }

    fn begin_thread(&self) {
        self.0.step_back();
    }

    fn log(&self, line: &str) {
        log!(Notice, "{line}");
    }
}
