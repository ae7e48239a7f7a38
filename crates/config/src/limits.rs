//! `client-output-buffer-limit`: how much may pile up for a client that does not read.

use std::fmt;

use crate::memory::{format_memory, parse_memory};
use crate::number::parse_lenient_i64;

/// The classes of clients that have a limit of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Ordinary clients.
    Normal,
    /// Replicas.
    Replica,
    /// Clients that have subscribed to something.
    PubSub,
}

impl ClientClass {
    /// Every class, in the order of `CONFIG GET`.
    pub const ALL: [ClientClass; 3] = [Self::Normal, Self::Replica, Self::PubSub];

    /// The name `CONFIG GET` uses, which for a replica is the old one.
    fn reported_name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Replica => "slave",
            Self::PubSub => "pubsub",
        }
    }

    /// The name `CONFIG REWRITE` uses.
    pub(crate) fn file_name(self) -> &'static str {
        if self == Self::Replica { "replica" } else { self.reported_name() }
    }

    /// The class of a name in a configuration.
    pub(crate) fn parse(word: &[u8]) -> Option<ClientClass> {
        Self::ALL.into_iter().find(|class| {
            word.eq_ignore_ascii_case(class.reported_name().as_bytes())
                || word.eq_ignore_ascii_case(class.file_name().as_bytes())
        })
    }
}

/// The limits of one class; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// Bytes at which the client is disconnected at once.
    pub hard_bytes: u64,
    /// Bytes at which it is disconnected if they stay for `soft_seconds`.
    pub soft_bytes: u64,
    /// Seconds the soft limit may be exceeded.
    pub soft_seconds: u64,
}

/// The limits of all classes, by [`ClientClass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct OutputLimits(pub(crate) [OutputLimit; 3]);

impl OutputLimits {
    /// These limits with the groups of `words` changed, or none of them if one is malformed.
    pub(crate) fn with(mut self, words: &[Vec<u8>]) -> Result<OutputLimits, String> {
        let (groups, rest) = words.as_chunks::<4>();
        if !rest.is_empty() {
            return Err("Wrong number of arguments in buffer limit configuration.".into());
        }
        for [class, hard, soft, seconds] in groups {
            let class = ClientClass::parse(class)
                .ok_or("Invalid client class specified in buffer limit configuration.")?;
            self.0[class as usize] = parse_limit(hard, soft, seconds).ok_or(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            )?;
        }
        Ok(self)
    }

    /// The limits of each class as `CONFIG REWRITE` writes them.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (OutputLimit, String)> {
        ClientClass::ALL.into_iter().map(|class| {
            let limit = self.0[class as usize];
            let hard = format_memory(limit.hard_bytes);
            let soft = format_memory(limit.soft_bytes);
            (limit, format!("{} {hard} {soft} {}", class.file_name(), limit.soft_seconds))
        })
    }
}

fn parse_limit(hard: &[u8], soft: &[u8], seconds: &[u8]) -> Option<OutputLimit> {
    let seconds = parse_lenient_i64(seconds)?;
    Some(OutputLimit {
        hard_bytes: parse_memory(hard)?,
        soft_bytes: parse_memory(soft)?,
        soft_seconds: u64::from(u32::try_from(seconds).ok().filter(|s| *s <= i32::MAX as u32)?),
    })
}

impl fmt::Display for OutputLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, class) in ClientClass::ALL.into_iter().enumerate() {
            let limit = self.0[class as usize];
            let gap = if at == 0 { "" } else { " " };
            write!(
                f,
                "{gap}{} {} {} {}",
                class.reported_name(),
                limit.hard_bytes,
                limit.soft_bytes,
                limit.soft_seconds
            )?;
        }
        Ok(())
    }
}
