//! Reads the cold values of a snapshot. They are not promoted.
//!
//! A chunk of a snapshot may name hundreds of cold values. They are read in groups that are limited
//! in number and bytes. While one group is written out, the next is being read. So the disk gets
//! many requests at a time, and memory is bounded.
//!
//! These are the values of entries that changed before their segment was read
//! (`snapshot/sweep.rs`), and all cold values if the store does not support marks.

use crate::cold_values::{decode, log_failure};
use crate::engine::Engine;
use keyspace::cold::store;
use keyspace::snapshot::record::{ColdHead, Token, Tokens};
use keyspace::snapshot::write_whole;
use keyspace::{ColdError, Entry};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};

/// Greatest number of values and of bytes in a group. One value may be longer.
const GROUP_VALUES: usize = 128;
const GROUP_BYTES: usize = 1 << 20;
/// Number of groups that are being read.
const GROUPS: usize = 2;

/// A cold value and the place of its token.
struct ColdPlace<'t> {
    head: ColdHead<'t>,
    token: Range<usize>,
}

type Payloads = Vec<Result<Vec<u8>, ColdError>>;

/// Values that are read together.
struct Group<'p, 't> {
    places: &'p [ColdPlace<'t>],
    payloads: Receiver<Payloads>,
}

/// Passes the tokens of a snapshot to `give` with the cold values read, in pieces that end between
/// two keys.
///
/// # Errors
/// A value cannot be read, or `give` fails. The snapshot fails.
pub(crate) fn thaw(
    engine: &Engine,
    tokens: &[u8],
    give: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let places = if store().is_some() { cold_places(tokens) } else { Vec::new() };
    let mut rest = &places[..];
    let mut groups = VecDeque::new();
    let (mut piece, mut copied) = (Vec::new(), 0);
    loop {
        while groups.len() < GROUPS && !rest.is_empty() {
            let (now, later) = rest.split_at(group_len(rest));
            groups.push_back(begin(now));
            rest = later;
        }
        let Some(group) = groups.pop_front() else { break };
        let payloads = group.payloads.recv().map_err(io::Error::other)?;
        for (place, payload) in group.places.iter().zip(payloads) {
            if let Some(store) = store() {
                store.unpin(place.head.location);
            }
            piece.extend_from_slice(&tokens[copied..place.token.start]);
            write_whole(
                &mut piece,
                &entry_of(engine, &place.head, payload.as_deref().map_err(Clone::clone))?,
            );
            copied = place.token.end;
        }
        give(&piece)?;
        piece.clear();
    }
    if copied < tokens.len() { give(&tokens[copied..]) } else { Ok(()) }
}

fn cold_places(tokens: &[u8]) -> Vec<ColdPlace<'_>> {
    let (mut places, mut rest) = (Vec::new(), Tokens::new(tokens));
    loop {
        let start = tokens.len() - rest.len();
        match rest.next() {
            None => return places,
            Some(Token::Cold(head)) => {
                places.push(ColdPlace { head, token: start..tokens.len() - rest.len() });
            }
            Some(_) => {}
        }
    }
}

/// Returns the number of values in the next group.
fn group_len(places: &[ColdPlace<'_>]) -> usize {
    let store = store().expect("entries are cold, so there is a store");
    let mut bytes = 0;
    let fits = |place: &&ColdPlace<'_>| {
        bytes += store.size(place.head.location);
        bytes <= GROUP_BYTES
    };
    places.iter().take(GROUP_VALUES).take_while(fits).count().max(1)
}

fn begin<'p, 't>(places: &'p [ColdPlace<'t>]) -> Group<'p, 't> {
    let (told, payloads) = sync_channel(1);
    let locations = places.iter().map(|place| place.head.location).collect();
    // A cancelled snapshot does not wait for the values that it has requested.
    let done = Box::new(move |results| drop(told.send(results)));
    store().expect("entries are cold, so there is a store").fetch(locations, done);
    Group { places, payloads }
}

/// Returns the entry of a cold value that was read.
pub(super) fn entry_of(
    engine: &Engine,
    head: &ColdHead<'_>,
    payload: Result<&[u8], ColdError>,
) -> io::Result<Entry> {
    let value = payload.and_then(|payload| decode(engine, payload));
    let value = value.inspect_err(|error| log_failure(engine, head.key, error));
    let value = value.map_err(|ColdError(reason)| io::Error::other(reason))?;
    Ok(Entry::new(head.key, value, head.expiry, head.access))
}
