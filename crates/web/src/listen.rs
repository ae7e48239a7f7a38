//! Listening: sockets and TLS. What arrives is served by the owner's routes.

use crate::places::{Entered, Places};
use crate::{Peer, Site};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::TlsAcceptor;

/// For a TLS handshake, and for the headers of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the headers of a request.
const MAX_HEADERS: usize = 32 << 10;
/// How long a start waits for an address that its predecessor has not let go of.
const BIND_PATIENCE: Duration = Duration::from_secs(3);

/// Opens the port on each of these addresses; one that begins with `-` may be missing.
///
/// # Errors
/// Which address cannot be listened on, and why.
pub fn bind(words: &[String], port: u16) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    for word in words {
        let host = word.strip_prefix('-').unwrap_or(word);
        match bind_patiently(host, port) {
            Ok(listener) => listeners.push(listener),
            Err(_) if word.starts_with('-') => {}
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::AddrInUse => "something listens there already".to_owned(),
                    _ => error.to_string(),
                };
                return Err(format!("Could not open the admin port {host}:{port}: {why}"));
            }
        }
    }
    if listeners.is_empty() {
        return Err(format!("The admin port {port} has no address to listen on"));
    }
    Ok(listeners)
}

fn bind_patiently(host: &str, port: u16) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = match host {
        "*" => vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)],
        "::*" => vec![SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)],
        _ => (host, port).to_socket_addrs()?.collect(),
    };
    let started = Instant::now();
    loop {
        match TcpListener::bind(&addresses[..]) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && started.elapsed() < BIND_PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

/// Accepts connections until the process ends.
pub async fn serve<S: Site>(
    listener: TcpListener,
    site: Arc<S>,
    places: Arc<Places>,
    router: Router,
) {
    let accepting =
        listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener));
    let listener = match accepting {
        Ok(listener) => listener,
        Err(error) => return site.log(&format!("The admin port cannot accept: {error}")),
    };
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                let (site, router, entered) = (Arc::clone(&site), router.clone(), places.enter());
                tokio::spawn(async move {
                    tokio::select! {
                        () = entered.place.closing.notified() => {}
                        () = serve_one(socket, peer, &*site, &entered, router) => {}
                    }
                });
            }
            // Descriptors have run out, most likely: others may be closed meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve_one<S: Site>(
    socket: tokio::net::TcpStream,
    address: SocketAddr,
    site: &S,
    entered: &Entered,
    router: Router,
) {
    // A wish: a socket that has died already will say so when it is read.
    let _ = socket.set_nodelay(true);
    let peer = Peer { address, local: socket.local_addr().ok(), has_certificate: false };
    let router = router.layer(axum::Extension(Arc::clone(&entered.place)));
    match site.tls() {
        None => speak(socket, router.layer(axum::Extension(peer))).await,
        Some(rules) => {
            let handshake = TlsAcceptor::from(rules).accept(socket);
            if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, handshake).await {
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                let peer = Peer { has_certificate, ..peer };
                speak(stream, router.layer(axum::Extension(peer))).await;
            }
        }
    }
}

async fn speak<S>(stream: S, router: Router)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    // What goes wrong on a connection is the client's to notice.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_may_be_missing_is_left_out() {
        // 192.0.2.0/24 is reserved for documentation: no machine has it.
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let listeners = bind(&words(&["127.0.0.1", "-192.0.2.1"]), 0).unwrap();
        assert_eq!(listeners.len(), 1);
        let refusal = bind(&words(&["192.0.2.1"]), 7).unwrap_err();
        assert!(refusal.starts_with("Could not open the admin port 192.0.2.1:7: "), "{refusal}");
        assert!(bind(&words(&["-192.0.2.1"]), 7).is_err());
    }
}
