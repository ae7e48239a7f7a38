//! Sending the keys of a slot to another server, by a command that does so for clients, for this server itself.

use crate::args::Args;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::long;
use crate::thread::ThreadContext;
use keyspace::{DbIndex, Slot};
use resp::Output;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Keys that are held at a time: clients that want to change one of them wait.
const KEYS: usize = 64;

/// Makes the request that sends these keys of a database.
pub type MakeRequest = dyn Fn(DbIndex, &[Box<[u8]>]) -> Vec<Vec<u8>> + Send + Sync;

/// How keys of a slot are sent.
#[derive(Clone)]
pub struct Carrier {
    /// How many replicas of the other server have to have a key before it is deleted here.
    pub copies: usize,
    /// What sends them.
    pub request: Arc<MakeRequest>,
}

impl Engine {
    /// Sends all keys of a slot. Nothing may be added to it meanwhile. The caller is no thread of the engine's.
    ///
    /// # Errors
    /// Some keys are still here.
    pub fn carry_slot(&'static self, slot: Slot, to: &Carrier) -> Result<(), String> {
        for db in self.keyspace.used_databases() {
            loop {
                let (done, outcome) = channel();
                let to = to.clone();
                let job = move |thread: &ThreadContext| {
                    // The thread that asks waits for it.
                    let _ = done.send(carry(self, thread, db, slot, &to));
                };
                self.background.run_waiting(Box::new(job));
                let outcome = outcome.recv().map_err(|_| "the server ends".to_owned())?;
                if outcome? == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Sends some keys of a slot. Returns how many there were.
fn carry(
    engine: &'static Engine,
    thread: &ThreadContext,
    db: DbIndex,
    slot: Slot,
    to: &Carrier,
) -> Result<usize, String> {
    let mut session = engine.own_session(thread);
    session.db = db;
    session.awaited_copies = to.copies;
    let mut out = Output::default();
    let mut cx = Cx::new(engine, thread, &mut session, engine.clock.wall(), &mut out);
    thread.reader.enter();
    let keys = cx.db.visit(slot.stripe(), |stripe| stripe.slot_keys(db, slot, KEYS));
    thread.reader.leave();
    let keys = keys.ok_or("a script has the slot")?;
    if keys.is_empty() {
        return Ok(0);
    }
    let request = (to.request)(db, &keys);
    let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
    let row = engine.table.resolve(&words).map_err(|_| "there is no such command")?;
    long::run_for_server(&mut cx, row, Args::new(&words));
    drop(cx);
    let reply = out.into_bytes();
    match reply.first() {
        Some(b'+') => Ok(keys.len()),
        _ => Err(String::from_utf8_lossy(&reply).trim().to_owned()),
    }
}
