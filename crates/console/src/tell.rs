//! Tells of problems of a server by a webhook.

use crate::alerts::{Alert, Alerts};
use crate::app::App;
use crate::events::Level;
use crate::problems::{Problem, find};
use crate::webhook::Webhook;
use std::sync::Arc;
use std::time::Instant;

/// Tells until the process ends.
pub async fn run(app: Arc<App>, hook: Webhook) {
    let mut looks = app.seen.subscribe();
    let (mut alerts, name) = (Alerts::default(), app.host.name());
    while looks.changed().await.is_ok() {
        let found = find(&looks.borrow_and_update()).into_iter();
        let matters = found.filter(|problem| problem.level != Level::Info);
        let alert = |Problem { level, title, detail, .. }| Alert { level, title, detail };
        for notice in alerts.look(Instant::now(), matters.map(alert).collect()) {
            hook.tell(&name, &notice);
        }
    }
}
