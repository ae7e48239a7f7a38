//! A watch: one request whose answer never ends, a line of JSON for each batch of changes.

use crate::http::{Connection, Lines};
use crate::{end_of, list, number, number_or_zero, text, unreadable};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::Moment;
use cluster::coordinator::{Changes, Failure, Revision};
use serde_json::{Value, json};
use std::io;
use std::time::Instant;

/// A watch that goes on from call to call.
pub(crate) struct Watch {
    lines: Lines,
    prefix: String,
    /// The first revision that was not reported.
    next: Revision,
}

impl Watch {
    pub(crate) fn open(
        connection: Connection,
        prefix: &str,
        from: Revision,
        token: Option<&str>,
        deadline: Instant,
    ) -> Result<Watch, Failure> {
        let body = json!({ "create_request": {
            "key": text(prefix), "range_end": text(&end_of(prefix)),
            "start_revision": from.to_string(),
            // Many changes, or large values, come in several lines.
            "fragment": true,
        } });
        let lines = connection.subscribe("/v3/watch", &body, token, deadline).map_err(away)?;
        Ok(Watch { lines, prefix: prefix.to_owned(), next: from })
    }

    /// Returns whether it has what such a call wants.
    pub(crate) fn continues(&self, prefix: &str, from: Revision) -> bool {
        self.prefix == prefix && self.next == from
    }

    /// Waits for changes, at most so long.
    pub(crate) fn changes(&mut self, wait: Moment) -> Result<Changes, Failure> {
        let deadline = Instant::now() + wait;
        loop {
            let Some(line) = self.line(deadline)? else {
                return Ok(Changes { keys: Vec::new(), revision: self.next - 1 });
            };
            let reply: Value = serde_json::from_slice(&line).map_err(|_| unreadable())?;
            let result = &reply["result"];
            let compacted = number_or_zero(&result["compact_revision"]);
            if compacted > 0 {
                return Err(Failure::Compacted(compacted));
            }
            if result.is_null() || result["canceled"].as_bool() == Some(true) {
                return Err(Failure::Away(format!("the watch was ended: {reply}")));
            }
            let events = list(&result["events"]);
            if !events.is_empty() {
                return self.report(events);
            }
        }
    }

    fn report(&mut self, events: &[Value]) -> Result<Changes, Failure> {
        let mut keys = Vec::new();
        let mut revision = self.next - 1;
        for event in events {
            let key = STANDARD.decode(event["kv"]["key"].as_str().unwrap_or_default());
            // A key that is no text is none of ours. That something has changed is all that counts.
            keys.push(String::from_utf8_lossy(&key.map_err(|_| unreadable())?).into_owned());
            // The changes of a revision come together, or in fragments one after the other.
            revision = revision.max(number(&event["kv"]["mod_revision"])?);
        }
        self.next = revision + 1;
        Ok(Changes { keys, revision })
    }

    /// Returns the next line. `None`: the time is over.
    fn line(&mut self, deadline: Instant) -> Result<Option<Vec<u8>>, Failure> {
        match self.lines.next(deadline) {
            Ok(Some(line)) => Ok(Some(line)),
            Ok(None) => Err(Failure::Away("the watch has ended".into())),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(away(error)),
        }
    }
}

fn away(error: io::Error) -> Failure {
    Failure::Away(error.to_string())
}
