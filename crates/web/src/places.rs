//! Places: how many connections and requests there can be at a time.
//!
//! ```text
//!   connection ── waits for a request, or for the rest of one ── may be closed to make way
//!        └── has a whole request ── holds a permit: of probes, or of all others
//! ```
//!
//! There are more places for connections than permits, so some connections always wait. When all
//! places are taken, a new connection takes that of the one that has waited for longest. Half
//! requests therefore keep none out, and probes are answered whatever else is served.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use structs::sync::lock;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Connections that are open at a time.
const MAX_CONNECTIONS: usize = 256;
/// Whole requests that are answered at a time.
const MAX_REQUESTS: usize = 192;
/// Probes that are answered at a time.
const MAX_PROBES: usize = 32;
/// Bytes of bodies that are kept for all requests that are being answered.
const MAX_BODY_BYTES: usize = 64 << 20;

/// The places of a port.
pub struct Places {
    connections: Mutex<HashMap<u64, Arc<ServedPlace>>>,
    next: AtomicU64,
    permits: Permits,
}

#[derive(Clone)]
struct Permits {
    requests: Arc<Semaphore>,
    probes: Arc<Semaphore>,
    body_bytes: Arc<Semaphore>,
}

/// The place of a connection.
pub struct ServedPlace {
    /// Since when it waits for a request or the rest of one. `None`: it has one.
    waits_since: Mutex<Option<Instant>>,
    /// Another connection takes the place.
    pub closing: Notify,
    permits: Permits,
}

/// The place of a connection, until this is dropped.
pub struct Entered {
    places: Arc<Places>,
    id: u64,
    /// The place.
    pub place: Arc<ServedPlace>,
}

/// A whole request that is being answered, until this is dropped.
pub struct Answering {
    place: Arc<ServedPlace>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// All are free.
    pub fn new() -> Arc<Places> {
        Arc::new(Places {
            connections: Mutex::default(),
            next: AtomicU64::new(0),
            permits: Permits {
                requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
                probes: Arc::new(Semaphore::new(MAX_PROBES)),
                body_bytes: Arc::new(Semaphore::new(MAX_BODY_BYTES)),
            },
        })
    }

    /// Gives a connection a place, for which another one may have to go.
    pub fn enter(self: &Arc<Places>) -> Entered {
        let mut connections = lock(&self.connections);
        if connections.len() >= MAX_CONNECTIONS {
            let waiting =
                connections.iter().filter_map(|(&id, it)| Some(((*lock(&it.waits_since))?, id)));
            // There are fewer permits than places, so one waits.
            if let Some((_, id)) = waiting.min()
                && let Some(place) = connections.remove(&id)
            {
                place.closing.notify_one();
            }
        }
        let place = Arc::new(ServedPlace {
            waits_since: Mutex::new(Some(Instant::now())),
            closing: Notify::new(),
            permits: self.permits.clone(),
        });
        let id = self.next.fetch_add(1, Relaxed);
        connections.insert(id, Arc::clone(&place));
        Entered { places: Arc::clone(self), id, place }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        lock(&self.places.connections).remove(&self.id);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        *lock(&self.place.waits_since) = Some(Instant::now());
    }
}

impl ServedPlace {
    /// Lets a whole request be answered. `None`: too many are.
    pub fn answer(self: &Arc<ServedPlace>, is_probe: bool) -> Option<Answering> {
        let permits = if is_probe { &self.permits.probes } else { &self.permits.requests };
        let permit = Arc::clone(permits).try_acquire_owned().ok()?;
        *lock(&self.waits_since) = None;
        Some(Answering { place: Arc::clone(self), _permit: permit })
    }

    /// Returns whether the rest of a request is waited for.
    pub fn waits(&self) -> bool {
        lock(&self.waits_since).is_some()
    }

    /// Takes room for bytes of a body. `None`: there is none.
    pub fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        Arc::clone(&self.permits.body_bytes).try_acquire_many_owned(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closing(entered: &Entered) -> bool {
        !lock(&entered.places.connections).contains_key(&entered.id)
    }

    #[test]
    fn connections_that_wait_make_way() {
        let places = Places::new();
        let mut all: Vec<Entered> = (0..MAX_CONNECTIONS).map(|_| places.enter()).collect();
        let first = all[0].place.answer(false).expect("the first request");
        let new = places.enter();
        assert!(!is_closing(&all[0]), "it has a whole request");
        assert!(is_closing(&all[1]) && !is_closing(&all[2]) && !is_closing(&new));
        drop(first);
        // It has waited for less long than others.
        let newer = places.enter();
        assert!(!is_closing(&all[0]) && is_closing(&all[2]) && !is_closing(&newer));
        all.clear();
        assert_eq!(lock(&places.connections).len(), 2);
    }

    #[test]
    fn probes_have_places_of_their_own() {
        let places = Places::new();
        let entered = places.enter();
        let requests: Vec<_> =
            (0..MAX_REQUESTS).map_while(|_| entered.place.answer(false)).collect();
        assert_eq!(requests.len(), MAX_REQUESTS);
        assert!(entered.place.answer(false).is_none());
        assert!(entered.place.answer(true).is_some());
        drop(requests);
        assert!(entered.place.answer(false).is_some());
    }
}
