//! What a hub does differently for `dunlin proxy` and for a node of a cluster.
//!
//! Both implement [`Policy`], each in its own crate. A policy is a type without values: a hub is
//! compiled for each, and what a policy says are constants, so a decision costs no instruction on
//! the path of a request. Rejected: a trait object (a call that is not inlined, several times a
//! request), and a set of marks that a hub reads (a load and a branch for what never changes in a
//! process).

use route::link::SetupRequest;
use std::time::Duration;

/// Returns the word of CLIENT CAPA by which a link says which user its next requests are for.
pub fn acts_for(user: &[u8]) -> Vec<u8> {
    [b"for:", user].concat()
}

/// How a hub calls the servers' slots in the cursors of SCAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkNumbers {
    /// A shard has the number of its first slot.
    FirstSlots,
    /// The topology says them ([`Topology::walk`](crate::pool::Topology)).
    Given,
}

/// Which keys of a cluster may be in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Those of one slot: any other server refuses the rest.
    OneSlot,
    /// Those of one server, now and under the hashing rule that comes.
    OneServer,
}

/// Which servers hear a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The server of the channel: clients subscribe there.
    OfChannel,
    /// All servers: clients are connected to any of them.
    All,
}

/// What a hub differs in.
pub trait Policy: Sized + 'static {
    /// The process has checked requests, whole transactions too, and answers itself what is about
    /// the client's connection. If not, the hub does.
    const IS_CHECKED: bool;
    /// The hub bounds what clients can take of it: replies to expect, replies that are left behind,
    /// connections for databases, the time of a turn. If not, the process does.
    const BOUNDS_CLIENTS: bool;
    /// Long requests and replies are passed on before they are whole.
    const PASSES_ON: bool;
    /// Servers are nodes of the same cluster. They say when they go down, know clients by the
    /// cluster's number, and a message that was lost with its server counts as not heard.
    const TRUSTS_SERVERS: bool;
    /// Scripts without a key run on replicas, too, and are ended there. Servers that do not answer
    /// are left out.
    const ENDS_SCRIPTS_OF_REPLICAS: bool;
    /// Shared connections ask servers of a cluster to give requests back whose slots are about to
    /// move. If not, [`introduction`](Policy::introduction) asks for it on all connections.
    const SHARED_LINKS_GIVE_BACK: bool;
    /// How long the machine of a server may be silent. `None`: as the pool's settings say.
    const SILENCE: Option<Duration>;
    /// The numbers in cursors.
    const WALK: WalkNumbers;
    /// Which keys may be in one request.
    const TOGETHER: Together;
    /// Who hears messages.
    const AUDIENCE: Audience;

    /// Returns what is said on a connection behind the log-in. `name` is the name of the process's
    /// connections, `hops` the number of proxies in front of this one, `user` whom the connection's
    /// requests are for, if that user may not do everything.
    fn introduction(name: &str, hops: u8, user: Option<&[u8]>) -> SetupRequest;
}

#[cfg(test)]
pub(crate) mod samples {
    //! The two policies, for tests.

    use super::*;
    use route::raw;

    /// The policy of a proxy.
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
            SetupRequest { request: crate::hub::hops::introduction(name, hops), may_fail: true }
        }
    }

    /// The policy of a cluster's node.
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

        fn introduction(_: &str, _: u8, _: Option<&[u8]>) -> SetupRequest {
            let words: [&[u8]; 5] = [b"CLIENT", b"CAPA", b"cluster", b"node", b"again"];
            SetupRequest { request: raw::request(&words), may_fail: false }
        }
    }
}
