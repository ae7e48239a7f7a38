//! What a hub of the proxy does: it stands between clients that nothing has checked and servers
//! that are not ours.

use forward::hub::hops;
use forward::policy::{Audience, Policy, Together, WalkNumbers};
use route::link::SetupRequest;
use std::time::Duration;

/// See the module.
pub struct Front;

impl Policy for Front {
    const IS_CHECKED: bool = false;
    const BOUNDS_CLIENTS: bool = true;
    const PASSES_ON: bool = true;
    const TRUSTS_SERVERS: bool = false;
    const ENDS_SCRIPTS_OF_REPLICAS: bool = false;
    const SHARED_LINKS_GIVE_BACK: bool = true;
    const SILENCE: Option<Duration> = None;
    const WALK: WalkNumbers = WalkNumbers::FirstSlots;
    const TOGETHER: Together = Together::OneSlot;
    const AUDIENCE: Audience = Audience::OfChannel;

    fn introduction(name: &str, hops: u8, _: Option<&[u8]>) -> SetupRequest {
        // A listener of the same process knows the name. The pool's user may lack the permission.
        SetupRequest { request: hops::introduction(name, hops), may_fail: true }
    }
}
