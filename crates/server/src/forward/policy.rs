//! What a hub of a cluster's node does: the engine's gates have checked the requests, and the
//! servers are nodes of the same cluster.

use forward::policy::{Audience, Policy, Together, WalkNumbers, acts_for};
use route::link::SetupRequest;
use route::raw;
use std::time::Duration;

/// See the module.
pub struct Node;

impl Policy for Node {
    const IS_CHECKED: bool = true;
    const BOUNDS_CLIENTS: bool = false;
    const PASSES_ON: bool = false;
    const TRUSTS_SERVERS: bool = true;
    const ENDS_SCRIPTS_OF_REPLICAS: bool = true;
    const SHARED_LINKS_GIVE_BACK: bool = false;
    const SILENCE: Option<Duration> = Some(Duration::from_secs(6));
    const WALK: WalkNumbers = WalkNumbers::Given;
    const TOGETHER: Together = Together::OneServer;
    const AUDIENCE: Audience = Audience::All;

    fn introduction(_: &str, _: u8, user: Option<&[u8]>) -> SetupRequest {
        let acts_for = user.map(acts_for);
        let words: [&[u8]; 5] = [b"CLIENT", b"CAPA", b"cluster", b"node", b"again"];
        let words: Vec<&[u8]> = words.into_iter().chain(acts_for.as_deref()).collect();
        SetupRequest { request: raw::request(&words), may_fail: false }
    }
}
