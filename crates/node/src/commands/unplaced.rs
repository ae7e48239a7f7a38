//! Orders about copies that no database at etcd has.

use super::Place;
use crate::rest::wire::Named;
use crate::settings::Wrong;
use clap::Subcommand;

/// What becomes of them.
#[derive(Subcommand)]
pub(super) enum UnplacedVerb {
    /// Writes the database again, as the nodes of its copies knew it last
    TakeUp {
        /// The database, as status names it
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Ends the copies with their data
    End {
        /// The database that they were of, as status names it
        name: String,
        /// Its name again, since their data are gone afterwards
        #[arg(long)]
        confirm: Option<String>,
        #[command(flatten)]
        place: Place,
    },
}

/// Gives the order.
pub(super) fn run(verb: &UnplacedVerb) -> Result<(), Wrong> {
    match verb {
        UnplacedVerb::TakeUp { name, place } => {
            let said = "The nodes write the database again: see dunlin cluster status.";
            place.order("/unplaced/take-up", &Named { name: name.clone() }, said)
        }
        UnplacedVerb::End { name, confirm, place } => {
            if confirm.as_ref() != Some(name) {
                let why = format!("the data of these copies would be gone: add --confirm {name}");
                return Err(Wrong(why));
            }
            let said = "The nodes end the copies.";
            place.order("/unplaced/end", &Named { name: name.clone() }, said)
        }
    }
}
