//! Tells of problems of a server by a webhook.

use crate::alerts::{Alert, Alerts, Sight};
use crate::app::App;
use crate::events::Level;
use crate::problems::{Problem, find};
use crate::sampler::Seen;
use crate::webhook::Webhook;
use std::sync::Arc;
use std::time::Instant;

/// Tells until the process ends.
pub async fn run(app: Arc<App>, hook: Webhook) {
    let mut looks = app.seen.subscribe();
    let (mut alerts, name) = (Alerts::default(), app.host.name());
    while looks.changed().await.is_ok() {
        let sight = sight(&looks.borrow_and_update());
        for notice in alerts.look(Instant::now(), sight) {
            hook.tell(&name, &notice);
        }
    }
}

/// Returns what there is to tell. A server that does not answer hides its other problems.
fn sight(seen: &Seen) -> Sight {
    let alert = |Problem { level, title, detail, .. }| Alert { level, title, detail };
    let matters = find(seen).into_iter().filter(|problem| problem.level != Level::Info);
    let mut found: Vec<Alert> = matters.map(alert).collect();
    match found.pop() {
        Some(alert) if seen.failure.is_some() => Sight::Blind(alert),
        last => {
            found.extend(last);
            Sight::All(found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_hides_other_problems() {
        let away = Seen { failure: Some("the server does not answer".into()), ..Seen::default() };
        assert!(matches!(sight(&away), Sight::Blind(alert) if alert.level == Level::Alarm));
        let well = Seen { at: 1, save_points: "60 1".into(), ..Seen::default() };
        assert!(matches!(sight(&well), Sight::All(found) if found.is_empty()));
    }
}
