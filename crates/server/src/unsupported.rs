//! Options that make a server what this version cannot be.
//!
//! Ignoring them would start a writable standalone server in the place of a node of a cluster: clients would write to it, and the data sets would diverge without an error.

use config::{Config, LoadError};

/// An option, whether it is set, and what the server would have to be.
type Row = (&'static str, fn(&Config) -> bool, &'static str);

/// A row goes when the option works.
const UNSUPPORTED: &[Row] =
    &[("cluster-enabled", Config::cluster_enabled, "be a node of a cluster")];

/// Refuses a configuration that asks for one of them.
///
/// # Errors
/// Names the option.
pub fn refuse(config: &Config) -> Result<(), LoadError> {
    let Some((option, _, what)) = UNSUPPORTED.iter().find(|(_, is_set, _)| is_set(config)) else {
        return Ok(());
    };
    let reason = format!(
        "{option} is set, but this version can't {what} yet. It does not start as a standalone \
         server instead: remove {option} from the configuration if that is meant"
    );
    Err(LoadError::Whole { reason })
}
