//! Databases whose copies have found out that etcd was started again with older files
//! (`cluster::promotion::tell_rollback`).

use crate::site::unchanged;
use crate::store::Problem;
use cluster::coordinator::{Change, Transaction};
use cluster::view::View;

/// Says what has happened to a database and what to do, for `status`. `None`: nothing.
pub fn warning(name: &str, view: &View) -> Option<String> {
    let at = &view.rolled_back.as_ref()?.value;
    Some(format!(
        "etcd was started again with older files (revision {} of its topology instead of {}). Its \
         slots, copies and settings may be those of then, and keys at other shards than their \
         slots; no slots move and no such key is dropped. Look at them ('How failures look' in the \
         guide of the cluster), then run 'dunlin cluster accept-rollback {name}'",
        at.found, at.known
    ))
}

/// Makes the transaction after which what etcd says of a database counts again.
///
/// # Errors
/// Nothing has happened to it, or one of its shards has no primary yet.
pub fn accept(name: &str, view: &View) -> Result<Transaction, Problem> {
    let Some(at) = &view.rolled_back else {
        return Err(Problem::Wrong(format!(
            "no copy of '{name}' has found out that etcd was started again with older files"
        )));
    };
    let topology = &view.topology.value;
    let is_led = |shard: &cluster::topology::Shard| view.is_alive(shard.holder);
    if !topology.shards.iter().all(is_led) {
        return Err(Problem::Wrong(format!(
            "a shard of '{name}' has no primary yet: see dunlin cluster status"
        )));
    }
    let key = view.keys.rolled_back(view.database);
    let compares = vec![unchanged(key.clone(), at.revision)];
    Ok(Transaction { compares, changes: vec![Change::Delete { key }] })
}
