//! Threads that wait for others on behalf of requests. Those that serve HTTP never do.
//!
//! Each kind of work has a number of its own, so work that hangs holds up none of another kind.

use crate::store::Problem;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use web::rest::ApiError;

/// How long a request waits for a storage or for servers elsewhere.
const PATIENCE: Duration = Duration::from_secs(25);

/// What work waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// etcd, and copies of the cluster.
    Cluster,
    /// Storages, and servers that are not of the cluster.
    Elsewhere,
    /// Likewise the cluster, for a probe.
    Probe,
}

/// How much of each kind there is at a time. [`web`] has as many threads as all of them together.
const MOST: [(Waits, usize); 3] =
    [(Waits::Cluster, 64), (Waits::Elsewhere, 32), (Waits::Probe, 32)];

/// See the head of this file.
#[derive(Clone)]
pub struct Threads(Arc<[(Waits, Arc<Semaphore>)]>);

impl Default for Threads {
    fn default() -> Threads {
        Threads(MOST.iter().map(|&(kind, most)| (kind, Arc::new(Semaphore::new(most)))).collect())
    }
}

impl Threads {
    /// Does work on a thread of its own.
    ///
    /// # Errors
    /// It fails, it takes too long, or too much of its kind is being done.
    pub async fn run<T: Send + 'static>(
        &self,
        kind: Waits,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, ApiError> {
        let free = self.0.iter().find(|(other, _)| *other == kind);
        let permit = free.and_then(|(_, free)| Arc::clone(free).try_acquire_owned().ok());
        let Some(permit) = permit else {
            let others = match kind {
                Waits::Elsewhere => "storages and servers elsewhere",
                Waits::Cluster | Waits::Probe => "etcd and copies",
            };
            return Err(ApiError::busy(&format!("Too many requests wait for {others}")));
        };
        // Work that nothing waits for any more keeps its permit until it ends.
        let running = spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        let done = match kind {
            Waits::Cluster | Waits::Probe => running.await,
            Waits::Elsewhere => timeout(PATIENCE, running).await.map_err(|_| {
                let text = "a storage or server elsewhere does not answer in time, try again";
                ApiError::from(Problem::Away(text.into()))
            })?,
        };
        Ok(done.map_err(|why| ApiError::bad(why.to_string()))??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use tokio::runtime::Builder;

    #[test]
    fn work_that_hangs_holds_up_none_of_another_kind() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let threads = Threads::default();
        let (begun, has_begun) = channel();
        let hanging: Vec<Sender<()>> = (0..32)
            .map(|_| {
                let (end, ended) = channel();
                let (threads, begun) = (threads.clone(), begun.clone());
                runtime.spawn(async move {
                    let work = move || {
                        begun.send(()).expect("the test waits for it");
                        // It ends when the other side is gone.
                        Ok(ended.recv().is_ok())
                    };
                    threads.run(Waits::Elsewhere, work).await.map(drop)
                });
                end
            })
            .collect();
        for _ in &hanging {
            has_begun.recv().expect("it begins");
        }
        let refused = runtime.block_on(threads.run(Waits::Elsewhere, || Ok(())));
        assert_eq!(refused.expect_err("too many").code(), "BUSY");
        for kind in [Waits::Cluster, Waits::Probe] {
            assert!(runtime.block_on(threads.run(kind, || Ok(true))).is_ok(), "{kind:?}");
        }
    }
}
