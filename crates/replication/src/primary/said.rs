//! What the log says of a replica that asks for the stream. Operators look here for the reason of a
//! full synchronisation, so the lines are those of Redis. Offsets are those of the protocol, which
//! begin with 1.

use super::{Kept, Sync};
use crate::wire::Wanted;
use journal::{HistoryId, JournalPos};

/// Returns the lines of the log about one request. `name` stands for the replica; `is_sending` says
/// that a snapshot for others is on its way.
pub fn lines(
    name: &str,
    wanted: Wanted,
    decided: Sync,
    kept: &Kept,
    is_sending: bool,
) -> Vec<String> {
    let mut lines = vec![format!("Replica {name} asks for synchronization")];
    match (decided, wanted) {
        (Sync::Continue(from), _) => lines.push(format!(
            "Partial resynchronization request from {name} accepted. Sending {} bytes of backlog starting from \
             offset {}.",
            kept.position.0.saturating_sub(from.0),
            from.0 + 1
        )),
        // The second connection gets the snapshot, and the first the stream behind it.
        (Sync::Join(_), _) => {
            lines.push(format!("Partial resynchronization request from {name} accepted."));
        }
        (_, Wanted::From(id, position)) => lines.push(refusal(name, id, position, kept)),
        (_, Wanted::Everything) => {
            lines.push(format!("Full resync requested by replica {name}"));
        }
    }
    if is_sending && matches!(decided, Sync::Full { .. }) {
        let line =
            "Can't attach the replica to the current BGSAVE. Waiting for next BGSAVE for SYNC";
        lines.push(line.to_owned());
    }
    lines
}

/// Returns why a replica cannot go on from its position.
fn refusal(name: &str, id: HistoryId, position: JournalPos, kept: &Kept) -> String {
    let offset = position.0 + 1;
    let (first, second) = (kept.history.id, kept.history.second);
    match second {
        _ if id == first => {}
        Some((second, end)) if id == second => {
            if position > end {
                return format!(
                    "Partial resynchronization not accepted: Requested offset for second ID was {offset}, but I \
                     can reply up to {}",
                    end.0 + 1
                );
            }
        }
        _ => {
            let second = second.map_or_else(|| "0".repeat(40), |(id, _)| id.as_str().to_owned());
            return format!(
                "Partial resynchronization not accepted: Replication ID mismatch (Replica asked for '{}', my \
                 replication IDs are '{}' and '{second}')",
                id.as_str(),
                first.as_str()
            );
        }
    }
    format!(
        "Unable to partial resync with replica {name} for lack of backlog (Replica request was: {offset})."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::History;

    #[test]
    fn the_reason_of_a_full_synchronisation_is_named() {
        let (id, old, other) = (HistoryId::random(), HistoryId::random(), HistoryId::random());
        let history = History { id, second: Some((old, JournalPos(50))) };
        let kept = Kept { history, first: Some(JournalPos(40)), position: JournalPos(100) };
        let full = Sync::Full { was_partial: true };
        let said = |wanted, decided| lines("r:1", wanted, decided, &kept, false).remove(1);
        let refused = |id, position| said(Wanted::From(id, JournalPos(position)), full);
        assert!(refused(other, 45).contains("Replication ID mismatch"));
        assert!(refused(other, 45).contains(other.as_str()));
        assert!(refused(old, 60).ends_with("second ID was 61, but I can reply up to 51"));
        assert!(refused(id, 30).ends_with("for lack of backlog (Replica request was: 31)."));
        assert!(refused(old, 30).ends_with("for lack of backlog (Replica request was: 31)."));
        let wanted = Wanted::From(id, JournalPos(90));
        let accepted = said(wanted, Sync::Continue(JournalPos(90)));
        assert!(accepted.ends_with("Sending 10 bytes of backlog starting from offset 91."));
        assert_eq!(said(Wanted::Everything, full), "Full resync requested by replica r:1");
        assert_eq!(lines("r:1", Wanted::Everything, full, &kept, true).len(), 3);
    }
}
