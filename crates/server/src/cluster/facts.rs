//! What the decisions know of this server's data.
//!
//! The values are simple, and err on the side of having less: names of data are not kept on disk, so a server that was
//! restarted counts as one without its data until it has synchronised; acknowledgements are not counted by epoch, so no
//! promise of a quorum rests on them.

use cluster::copy::{Copy, Facts, Role};
use cluster::id::{Epoch, Position};
use engine::Engine;
use replication::replica::Stage;

/// What has to be remembered for that.
#[derive(Default)]
pub(super) struct Data {
    /// The epoch that this server last led, or followed in step.
    epoch: Epoch,
    frozen: Option<Epoch>,
    was_receiving: bool,
}

impl Data {
    /// Whether a full synchronisation has begun since this was last asked.
    pub(super) fn is_about_to_be_replaced(&mut self, engine: &Engine) -> bool {
        let is_receiving = engine.upstream.is_loading();
        let was_receiving = std::mem::replace(&mut self.was_receiving, is_receiving);
        is_receiving && !was_receiving
    }

    /// Nothing of this epoch is acknowledged any more.
    pub(super) fn freeze(&mut self, epoch: Epoch) {
        self.frozen = self.frozen.max(Some(epoch));
    }

    /// What holds now.
    pub(super) fn facts(&mut self, engine: &Engine, copy: &Copy) -> Facts {
        let upstream = &engine.upstream;
        let link = upstream.link().clone();
        match copy.role() {
            Role::Leads(epoch) if !upstream.is_replica() => self.epoch = epoch,
            Role::Follows(holder, epoch) if upstream.is_link_up() => {
                // The link may still be the one to the primary before.
                let is_to_holder = copy.view().is_some_and(|view| {
                    let mut copies = view.topology.value.copies();
                    let holder = copies.find(|other| other.id == holder.id);
                    let address = holder.map(|copy| &copy.address);
                    address.zip(link.primary.as_ref()).is_some_and(|(address, (host, port))| {
                        address.host == *host && [address.port, address.tls_port].contains(port)
                    })
                });
                if is_to_holder {
                    self.epoch = epoch;
                }
            }
            _ => {}
        }
        let is_loading = engine.loading.is_on() || engine.loading.is_beside();
        Facts {
            position: Position { epoch: self.epoch, offset: engine.journal.position().0 },
            is_whole: !is_loading && !link.is_incomplete && link.stage != Stage::Receiving,
            frozen: self.frozen,
            is_listed: true,
            holding: 0,
            linked: Vec::new(),
            level: Vec::new(),
        }
    }
}
