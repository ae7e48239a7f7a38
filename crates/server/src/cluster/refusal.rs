//! What a client is told if the coordinator does not carry out its request.

use cluster::change::Refused;
use cluster::coordinator::Failure;

const AWAY: &str = "The coordinator of the cluster is away";

/// Returns why the coordinator has not done something.
pub(super) fn away(failure: Failure) -> Refused {
    match failure {
        Failure::Away(why) => Refused::Away(format!("{AWAY}: {why}")),
        Failure::Compacted(_) => Refused::Away(AWAY.into()),
        Failure::Unreadable(why) => Refused::Wrong(why),
    }
}

/// Returns the text of an error for a client, with its code.
pub(super) fn text(why: &Refused) -> String {
    format!("{} {why}", why.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_coordinator_that_is_away_has_a_code_of_its_own() {
        let told = |failure| text(&away(failure));
        let silent = Failure::Away("timed out".into());
        assert_eq!(told(silent), "AWAY The coordinator of the cluster is away: timed out");
        assert_eq!(told(Failure::Unreadable("it is no JSON".into())), "ERR it is no JSON");
    }
}
