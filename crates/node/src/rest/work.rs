//! Work of requests that waits for others, on the threads for its kind.

use super::Call;
use super::threads::Waits;
use crate::shared::Shared;
use crate::store::{Problem, Store};
use std::time::Duration;
use web::rest::ApiError;

/// How long a call to etcd may take: on a busy disk it is slow, and a user rather waits than asks
/// again.
const CALL: Duration = Duration::from_secs(15);

/// Does work that waits for etcd or copies.
pub(crate) async fn work<T: Send + 'static>(
    call: Call,
    body: impl FnOnce(&Shared, &mut Store) -> Result<T, Problem> + Send + 'static,
) -> Result<T, ApiError> {
    work_of(Waits::Cluster, call, body).await
}

/// Does work that waits for storages, or for servers that are not of the cluster.
pub(crate) async fn work_elsewhere<T: Send + 'static>(
    call: Call,
    body: impl FnOnce(&Shared, &mut Store) -> Result<T, Problem> + Send + 'static,
) -> Result<T, ApiError> {
    work_of(Waits::Elsewhere, call, body).await
}

/// Does work of a kind.
pub(super) async fn work_of<T: Send + 'static>(
    kind: Waits,
    call: Call,
    body: impl FnOnce(&Shared, &mut Store) -> Result<T, Problem> + Send + 'static,
) -> Result<T, ApiError> {
    let Call { shared, threads, .. } = call;
    let run =
        move || body(&shared, &mut shared.store(CALL)).map_err(|problem| blame(problem, &shared));
    threads.run(kind, run).await
}

/// Adds that the disk of this machine is full, which may be why something does not answer: an etcd
/// of the node's own ends then.
fn blame(problem: Problem, shared: &Shared) -> Problem {
    let disk = shared.disk().error;
    match problem {
        Problem::Away(why) if !disk.is_empty() => Problem::Away(format!("{why}; {disk}")),
        problem => problem,
    }
}
