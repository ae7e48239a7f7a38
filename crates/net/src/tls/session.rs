//! One connection's TLS session: bytes of the wire on one side, plain text on the other.

use super::super::backlog::Backlog;
use super::context::TlsContext;
use super::name::{common_name, uris};
use super::outgoing::TlsClient;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::io::{BufRead, Write};

/// What came of a piece of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedResult {
    /// More may follow.
    Open,
    /// The peer said goodbye.
    Ended,
}

/// A session.
pub(crate) struct Session {
    tls: Connection,
    /// Long output that is not encrypted yet.
    pub unsealed: Backlog,
}

impl Session {
    pub fn new(context: &TlsContext) -> Result<Self, rustls::Error> {
        Ok(Self::of(ServerConnection::new(context.config.clone())?.into()))
    }

    /// A session with a server.
    pub fn to_server(client: &TlsClient) -> Result<Self, rustls::Error> {
        let tls = ClientConnection::new(client.rules.clone(), client.name.clone())?;
        Ok(Self::of(tls.into()))
    }

    fn of(mut tls: Connection) -> Self {
        // What a peer does not read is limited by the reactor, not here.
        tls.set_buffer_limit(None);
        Self { tls, unsealed: Backlog::default() }
    }

    /// True until keys are agreed; the session then has something to say that is not in reply to
    /// a request.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Returns whether it has something to say.
    pub fn has_output(&self) -> bool {
        self.tls.wants_write()
    }

    /// Takes bytes from the wire and gives the plain text in them to `take`; also if it fails, what
    /// came before the record that is no good.
    pub fn feed(
        &mut self,
        mut wire: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> Result<FeedResult, rustls::Error> {
        let mut fed = FeedResult::Open;
        while !wire.is_empty() && fed == FeedResult::Open {
            // Reading from a slice fails only when the session's buffer is full of something that
            // is no record.
            match self.tls.read_tls(&mut wire) {
                Ok(1..) => {}
                Ok(0) => return Err(rustls::Error::General("no progress".to_owned())),
                Err(e) => return Err(rustls::Error::General(e.to_string())),
            }
            let state = self.tls.process_new_packets();
            let mut reader = self.tls.reader();
            // It ends with an error when there is no more.
            while let Ok(text) = reader.fill_buf()
                && !text.is_empty()
            {
                take(text);
                let len = text.len();
                reader.consume(len);
            }
            if state?.peer_has_closed() {
                fed = FeedResult::Ended;
            }
        }
        Ok(fed)
    }

    /// Appends to `wire` what the session has to say, `plain` included.
    pub fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        // Neither can fail: the session's buffer has no limit, and neither has a vector.
        let _ = self.tls.writer().write_all(plain);
        while self.tls.wants_write() {
            if self.tls.write_tls(wire).unwrap_or(0) == 0 {
                break;
            }
        }
    }

    /// Has the next [`Session::seal`] say goodbye.
    pub fn say_goodbye(&mut self) {
        self.tls.send_close_notify();
    }

    /// The common name in the certificate the peer proved to own.
    pub fn peer_name(&self) -> Option<String> {
        common_name(self.tls.peer_certificates()?.first()?)
    }

    /// The URIs in that certificate.
    pub fn peer_uris(&self) -> Vec<String> {
        let certificates = self.tls.peer_certificates().unwrap_or_default();
        certificates.first().map_or_else(Vec::new, |certificate| uris(certificate))
    }
}
