//! `CONFIG GET` and `CONFIG SET`.

use std::fmt;

use structs::glob;

use crate::choices::ProtectedAction;
use crate::spec::Spec;
use crate::store::{Config, SECRET_MARK};
use crate::table::{OPTIONS, find, position};
use crate::value::{Value, parse, render, words_of_argument};

/// An option that `CONFIG SET` changed.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The option.
    pub spec: &'static Spec,
    /// Its value before, as `CONFIG GET` reports it.
    pub old: Vec<u8>,
    /// Its value now.
    pub new: Vec<u8>,
}

/// What the client that sends `CONFIG SET` may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetContext {
    /// It is connected over loopback or the Unix socket.
    pub is_local: bool,
    /// The server is loading its data set.
    pub is_loading: bool,
}

/// Why the side effects of a change could not be had.
#[derive(Clone, Debug)]
pub struct ApplyError {
    /// The option to name in the reply.
    pub option: &'static str,
    /// The reason, for the reply.
    pub reason: String,
}

/// Why `CONFIG SET` changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// An option does not exist.
    Unknown {
        /// The name as the client wrote it.
        name: Vec<u8>,
    },
    /// An option cannot be set, or not to this value, or not now.
    Refused {
        /// The option to blame.
        name: Vec<u8>,
        /// What is wrong.
        reason: String,
    },
    /// The option cannot be set until the data set is loaded: reply with the LOADING error.
    Loading,
}

impl fmt::Display for SetError {
    /// The text of the error reply after `ERR `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::Unknown { name } => write!(
                f,
                "Unknown option or number of arguments for CONFIG SET - '{}'",
                String::from_utf8_lossy(name)
            ),
            SetError::Refused { name, reason } => write!(
                f,
                "CONFIG SET failed (possibly related to argument '{}') - {reason}",
                String::from_utf8_lossy(name)
            ),
            SetError::Loading => f.write_str("the server is loading the dataset in memory"),
        }
    }
}

impl std::error::Error for SetError {}

/// A change that was checked but not made yet.
struct Planned {
    at: usize,
    name: &'static str,
    value: Value,
}

impl Config {
    /// The options that match any of the patterns, each once, with their values.
    ///
    /// A pattern without special characters is a name: it is answered in the case it was asked
    /// in, and reaches hidden options too. An alias that matches is an answer of its own. In the
    /// place of a secret stands [`SECRET_MARK`].
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut add = |name: &[u8], at: usize| {
            if !found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                found.push((name.to_vec(), self.shown(at)));
            }
        };
        for pattern in patterns {
            if !pattern.iter().any(|byte| b"[*?".contains(byte)) {
                if let Some(at) = position(pattern) {
                    add(pattern, at);
                }
                continue;
            }
            for (at, spec) in OPTIONS.iter().enumerate().filter(|(_, spec)| !spec.is_hidden()) {
                for name in spec.names() {
                    if glob::matches(pattern, name.as_bytes(), glob::Case::Insensitive) {
                        add(name.as_bytes(), at);
                    }
                }
            }
        }
        found
    }

    /// Sets options, all or none.
    ///
    /// Everything is checked first; then all values are stored and `apply` is called with the
    /// options whose value differs, to do what the change asks of the server (listen on another
    /// port, resize a table). If it fails the old values are put back and `apply` is called once
    /// more, with old and new exchanged, to undo what it did; that call should not fail.
    ///
    /// `apply` runs while other `CONFIG SET` wait, and reads the new values through this
    /// configuration. It must not set options itself.
    pub fn set(
        &self,
        pairs: &[(&[u8], &[u8])],
        context: SetContext,
        apply: &mut dyn FnMut(&[Changed]) -> Result<(), ApplyError>,
    ) -> Result<Vec<Changed>, SetError> {
        let _writer = self.writer.lock();
        let found = self.find_all(pairs, context)?;
        let planned = self.plan(pairs, &found)?;

        let mut before: Vec<(usize, Value)> = Vec::new();
        for change in &planned {
            if !before.iter().any(|(at, _)| *at == change.at) {
                before.push((change.at, self.load(change.at)));
            }
        }
        for change in &planned {
            self.store(change.at, change.value.clone());
        }
        let changed: Vec<Changed> = before
            .iter()
            .filter(|(at, old)| OPTIONS[*at].is_volatile() || self.load(*at) != *old)
            .map(|(at, old)| Changed {
                spec: &OPTIONS[*at],
                old: render(&OPTIONS[*at], old),
                new: render(&OPTIONS[*at], &self.load(*at)),
            })
            .collect();
        if changed.is_empty() {
            return Ok(changed);
        }
        match apply(&changed) {
            Ok(()) => Ok(changed),
            Err(failure) => {
                for (at, old) in before {
                    self.store(at, old);
                }
                let undo = |change: Changed| Changed {
                    spec: change.spec,
                    old: change.new,
                    new: change.old,
                };
                let undone: Vec<Changed> = changed.into_iter().map(undo).collect();
                // The reply is about the first failure; `apply` has logged the second, if any.
                let _ = apply(&undone);
                let name = planned
                    .iter()
                    .find(|change| OPTIONS[change.at].name() == failure.option)
                    .map_or(failure.option, |change| change.name);
                Err(SetError::Refused { name: name.into(), reason: failure.reason })
            }
        }
    }

    /// Finds the options and checks that each may be set now; the first that may not decides.
    fn find_all(
        &self,
        pairs: &[(&[u8], &[u8])],
        context: SetContext,
    ) -> Result<Vec<(usize, &'static str)>, SetError> {
        let mut found = Vec::with_capacity(pairs.len());
        for (name, _) in pairs {
            let refuse = |reason: &str| SetError::Refused {
                name: name.to_vec(),
                reason: reason.to_string(),
            };
            let at = position(name).ok_or_else(|| SetError::Unknown { name: name.to_vec() })?;
            let spec = &OPTIONS[at];
            if spec.is_immutable() {
                return Err(refuse("can't set immutable config"));
            }
            if spec.is_protected() && !self.allows_protected(context) {
                return Err(refuse("can't set protected config"));
            }
            if spec.is_denied_while_loading() && context.is_loading {
                return Err(SetError::Loading);
            }
            // An alias counts as another option here, as it does in Redis.
            let known = spec.names().find(|known| known.as_bytes().eq_ignore_ascii_case(name));
            let entry = (at, known.unwrap_or(spec.name()));
            if found.contains(&entry) {
                return Err(refuse("duplicate parameter"));
            }
            found.push(entry);
        }
        Ok(found)
    }

    fn allows_protected(&self, context: SetContext) -> bool {
        match self.enable_protected_configs() {
            ProtectedAction::No => false,
            ProtectedAction::Yes => true,
            ProtectedAction::Local => context.is_local,
        }
    }

    /// Reads the new values.
    fn plan(
        &self,
        pairs: &[(&[u8], &[u8])],
        found: &[(usize, &'static str)],
    ) -> Result<Vec<Planned>, SetError> {
        let mut planned: Vec<Planned> = Vec::with_capacity(pairs.len());
        for ((_, argument), (at, name)) in pairs.iter().zip(found) {
            let spec = &OPTIONS[*at];
            let refuse = |reason| SetError::Refused { name: (*name).into(), reason };
            if spec.is_sensitive() && *argument == SECRET_MARK {
                let why = "this is what CONFIG GET shows in the place of a secret, no value";
                return Err(refuse(why.to_string()));
            }
            let current = self.load(*at);
            let value = parse(spec, &words_of_argument(spec, argument), &current)
                .and_then(|value| self.resolve(spec, value))
                .map_err(refuse)?;
            if let Some(reason) = spec.frozen
                && value != current
            {
                return Err(refuse(reason.to_string()));
            }
            planned.push(Planned { at: *at, name, value });
        }
        Ok(planned)
    }
}

/// Whether the value of this option must not be shown: in a log, in MONITOR, SLOWLOG or CONFIG GET.
pub fn is_sensitive(name: &[u8]) -> bool {
    find(name).is_some_and(Spec::is_sensitive)
}
