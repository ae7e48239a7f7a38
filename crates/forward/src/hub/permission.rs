//! What a client may not send.

use super::Hub;
use super::client::Client;
use super::hops::is_introduction;
use crate::policy::Policy;
use spec::{Flags, Local, NotRun, Resolved, Way};

impl<P: Policy> Hub<P> {
    /// Why a client may not send this.
    pub(super) fn refusal(&self, client: &Client, words: &[&[u8]], way: Way) -> Option<String> {
        let is_open =
            matches!(way, Way::Local(Local::Auth | Local::Hello | Local::Quit | Local::Reset));
        if !client.is_authenticated && !is_open {
            return Some("NOAUTH Authentication required.".into());
        }
        let name = String::from_utf8_lossy(words[0]).to_uppercase();
        let is_subscribed = client.session.protocol == resp::Protocol::Resp2
            && client.subscriptions.as_ref().is_some_and(|subscriptions| !subscriptions.is_empty());
        let may_come = |row: &Resolved<NotRun>| row.command.flags.has(Flags::WHILE_SUBSCRIBED);
        if is_subscribed && !self.commands.table.find(words[0]).is_some_and(may_come) {
            return Some(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
                 are allowed in this context",
                name.to_lowercase()
            ));
        }
        let config = &self.pools[client.pool].shared.config;
        if config.deny.is_empty() && config.allow.is_empty() {
            return None;
        }
        let full_name = self.full_name(words, &name);
        let has = |list: &[String]| {
            list.iter().map(|other| other.strip_prefix('=').unwrap_or(other)).any(|other| {
                other == name || full_name.as_deref().is_some_and(|full_name| full_name == other)
            })
        };
        let is_allowed = config.allow.is_empty() || has(&config.allow) || is_open;
        // Loops of proxies are found whatever clients may do.
        let is_denied = (!is_allowed || has(&config.deny)) && !is_introduction(words);
        is_denied.then(|| {
            let shown = full_name.as_ref().unwrap_or(&name).to_lowercase();
            format!("NOPERM '{shown}' is not allowed in pool '{}'", config.name)
        })
    }

    /// The name of a subcommand, `CONFIG|SET`, if a request is one.
    fn full_name(&self, words: &[&[u8]], name: &str) -> Option<String> {
        let row = self.commands.table.find(words[0])?;
        let sub = self.commands.table.subcommand(row, words.get(1)?)?;
        Some(format!("{name}|{}", sub.command.name.to_uppercase()))
    }
}
