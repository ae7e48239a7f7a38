//! How a client is let in: certificates, and a user with a password.

use crate::http::Response;
use crate::{Endpoint, Unusable};
use client::Renewed;
use rustls::ClientConfig;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// gRPC's code for a request that lacks something, here a token.
const INVALID_ARGUMENT: i64 = 3;

/// gRPC's code for a token that is not known, or not any more.
const UNAUTHENTICATED: i64 = 16;

/// What a client shows.
#[derive(Clone, Default)]
pub struct Access {
    /// The rules of TLS, for endpoints that want it: the authorities, and the certificate that is
    /// shown, of the files as they are when a connection is made. With `--client-cert-auth` etcd takes the certificate's common
    /// name for the user, but not over the gateway: a user needs a password.
    pub tls: Option<Arc<Renewed>>,
    /// The user's name and password, if etcd has users.
    pub user: Option<(String, String)>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("Access").field("tls", &self.tls.is_some()).field("user", &user).finish()
    }
}

impl Access {
    /// The rules of TLS for a connection to an endpoint that is made now, if it wants TLS.
    ///
    /// # Errors
    /// It does, and there are none.
    pub(crate) fn rules_for(
        &self,
        endpoint: &Endpoint,
    ) -> Result<Option<Arc<ClientConfig>>, Unusable> {
        match (endpoint.is_tls, &self.tls) {
            (false, _) => Ok(None),
            (true, Some(rules)) => Ok(Some(rules.current())),
            (true, None) => Err(Unusable(format!(
                "etcd at {endpoint} wants TLS, and there is no authority to check its certificate with"
            ))),
        }
    }

    /// The request for a token.
    pub(crate) fn login(&self) -> Option<Value> {
        let (name, password) = self.user.as_ref()?;
        Some(json!({ "name": name, "password": password }))
    }

    /// Whether another token may help. Errors of streams come with the status of success.
    pub(crate) fn is_token_refused(&self, response: &Response) -> bool {
        let error = if response.is_ok() { &response.body["error"] } else { &response.body };
        let code = error["code"].as_i64().or(error["grpc_code"].as_i64()).unwrap_or(0);
        let message = error["message"].as_str().unwrap_or_default();
        let says = |text: &str| message.contains(text);
        self.user.is_some()
            && (code == UNAUTHENTICATED
                || code == INVALID_ARGUMENT && (says("user name is empty") || says("old")))
    }
}
