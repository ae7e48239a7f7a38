//! What all threads of the proxy share: the table of commands, and the pools.

use super::commands::Commands;
use super::hops::link_name;
use super::mailbox::Mailbox;
use crate::pool::Shared;
use resp::http::HttpLog;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use structs::sync::lock;

/// What all threads share.
pub struct Common {
    /// The commands.
    pub commands: Arc<Commands>,
    /// The pools, and how often they have changed.
    layout: Mutex<(u64, Layout)>,
    layout_version: AtomicU64,
    /// The last client's number.
    pub last_client: AtomicU64,
    /// Where events worth a line in the log go.
    pub log: fn(&str),
    /// When clients that speak HTTP were last logged.
    pub(super) http_log: HttpLog,
    /// What the connections to servers of this process are called.
    pub(super) link_name: String,
    /// The mailboxes of the threads.
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
    /// Has every thread end its turn soon.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// When the process began.
    pub(super) started: Instant,
}

impl Common {
    /// With these pools.
    pub fn new(commands: &Arc<Commands>, layout: Layout, log: fn(&str)) -> Arc<Common> {
        Arc::new(Common {
            commands: commands.clone(),
            layout: Mutex::new((1, layout)),
            layout_version: AtomicU64::new(1),
            last_client: AtomicU64::new(0),
            log,
            http_log: HttpLog::default(),
            mailboxes: Mutex::default(),
            wake: OnceLock::new(),
            link_name: link_name(RandomState::new().build_hasher().finish()),
            started: Instant::now(),
        })
    }

    /// Tells how every thread is made to end its turn soon.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        // It is told once, at the start.
        let _ = self.wake.set(Box::new(wake));
    }

    /// Has every thread look into its mailbox.
    pub(super) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// The mailbox of a thread that begins.
    pub(super) fn new_mailbox(&self) -> Arc<Mailbox> {
        let mailbox = Arc::<Mailbox>::default();
        lock(&self.mailboxes).push(mailbox.clone());
        mailbox
    }

    /// The mailboxes of all threads.
    pub(super) fn mailboxes(&self) -> Vec<Arc<Mailbox>> {
        lock(&self.mailboxes).clone()
    }

    /// The pools, and how often they have changed.
    pub fn layout(&self) -> (u64, Layout) {
        lock(&self.layout).clone()
    }

    /// How often the pools have changed.
    pub fn layout_version(&self) -> u64 {
        self.layout_version.load(SeqCst)
    }

    /// Changes the pools if `prepare`, during which no thread can ask for them, succeeds.
    ///
    /// # Errors
    /// Those of `prepare`.
    pub fn set_layout<E>(
        &self,
        layout: Layout,
        prepare: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut current = lock(&self.layout);
        prepare()?;
        *current = (current.0 + 1, layout);
        self.layout_version.store(current.0, SeqCst);
        Ok(())
    }

    /// The pools that there are.
    pub fn pools(&self) -> Vec<Arc<Shared>> {
        self.layout().1.into_iter().flatten().collect()
    }
}

/// Pools by the tags of their listeners.
pub type Layout = Vec<Option<Arc<Shared>>>;
