//! The interface to one server, for a port that shows several: a node's, which shows the copies of
//! its databases.

use crate::api;
use crate::app::App;
use crate::host::Host;
use crate::sampler;
use axum::extract::Request;
use axum::response::Response;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A server that is looked at for as long as this exists.
pub struct Target {
    app: Arc<App>,
    sampling: JoinHandle<()>,
}

impl Target {
    /// Begins to look at a server. Called on a thread of a runtime, which takes the samples.
    pub fn new(host: Arc<dyn Host>) -> Target {
        let app = App::new(host);
        let sampling = tokio::spawn(sampler::run(Arc::clone(&app)));
        Target { app, sampling }
    }

    /// Answers a request for a path of the interface, such as `/now`.
    pub async fn answer(&self, path: &str, request: Request) -> Response {
        api::answer_path(Arc::clone(&self.app), path, request).await
    }

    /// Returns whether a page has a stream of it open.
    pub fn is_watched(&self) -> bool {
        self.app.has_streams()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.sampling.abort();
    }
}
