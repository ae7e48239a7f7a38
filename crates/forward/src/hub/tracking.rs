//! CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR.
//!
//! A client's keys are tracked on connections of its own, one to each server.

use super::Hub;
use super::client::{Client, Flow};
use super::tracked::{NEEDS_RESP3, Tracking};
use crate::policy::Policy;
use crate::wire::Wire;
use resp::Protocol;
use route::raw;
use std::sync::Arc;

impl<P: Policy> Hub<P> {
    /// `CLIENT TRACKING ON|OFF …`
    pub(super) fn track<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        words: &[&[u8]],
    ) -> Flow {
        if !client.is_idle() {
            return self.come_again(client);
        }
        let wanted = match Tracking::parse(words) {
            Ok(None) => Ok(None),
            Ok(Some(_)) if client.session.protocol == Protocol::Resp2 => {
                Err(NEEDS_RESP3.to_owned())
            }
            Ok(Some(wanted)) => wanted.behind(client.tracking.as_deref()).map(Some),
            Err(why) => Err(why.to_owned()),
        };
        match wanted.and_then(|wanted| self.set_tracking(wire, client, wanted)) {
            Ok(()) => client.answer(wire, b"+OK\r\n"),
            Err(why) => client.answer(wire, &raw::error(&why)),
        }
        Flow::Done
    }

    /// Has all servers track this for the client.
    fn set_tracking<W: Wire>(
        &mut self,
        wire: &mut W,
        client: &mut Client,
        wanted: Option<Tracking>,
    ) -> Result<(), String> {
        client.caching = None;
        if wanted.as_ref() == client.tracking.as_deref() {
            return Ok(());
        }
        client.tracking = wanted.map(Arc::new);
        // Connections that are for nothing else by now are let go.
        self.settle_soon(client);
        let mut servers: Vec<usize> = client.own.iter().map(|own| own.0).collect();
        if client.tracking.is_some() {
            servers.extend(self.pools[client.pool].every());
        }
        servers.into_iter().try_for_each(|server| {
            let own = self.acquire_own(wire, client, server).map_err(|why| why.text())?;
            self.bring_in_step(wire, client, own);
            Ok(())
        })
    }
}

/// `CLIENT CACHING YES|NO`
pub(super) fn choose_caching(
    client: &mut Client,
    answer: &[u8],
    request: &[u8],
    out: &mut Vec<u8>,
) {
    match caching_error(client, answer) {
        Some(why) => raw::push_error(out, why),
        None => {
            client.caching = Some(request.to_vec());
            out.extend_from_slice(b"+OK\r\n");
        }
    }
}

/// Why CLIENT CACHING with this answer is not for this client.
fn caching_error(client: &Client, answer: &[u8]) -> Option<&'static str> {
    match (client.tracking.as_deref(), &answer.to_ascii_uppercase()[..]) {
        (None, _) => Some(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
             OPTOUT mode enabled",
        ),
        (Some(tracking), b"YES") if !tracking.opts_in => {
            Some("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
        }
        (Some(tracking), b"NO") if !tracking.opts_out => {
            Some("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
        }
        (Some(_), b"YES" | b"NO") => None,
        _ => Some("ERR syntax error"),
    }
}
