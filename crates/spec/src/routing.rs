//! How a request travels where several servers share the keys, and how their replies become one.
//!
//! A row says this only if it is unusual. The usual way follows from what the row says anyway, by
//! [`usual`]: a command with keys goes to their server, one without keys to any, and one whose tips
//! (`request_policy`, `response_policy`) say more goes where they say. Rows of commands that only
//! other servers know, as COMMAND INFO describes them, obey the same rules.
//!
//! The proxy, the gates of a cluster that forwards, and what applies the stream of a foreign server
//! all derive from this what they do. `docs/internals/routing.md` describes the rules.

use crate::key_spec::{Begin, Find, KeyFlags, KeySpec};
use crate::row::{Flags, Group, Row, Runner, Streamed};
use std::ops::Range;
use structs::numbers;

/// Answers a question about the words of a request.
pub type AskWords = fn(&[&[u8]]) -> bool;

/// What a row says about travel. Every part may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Routing {
    /// Where requests go. `None`: that of the container, of a subcommand; else the [`usual`] way.
    pub way: Option<Way>,
    /// Of a command with the flag BLOCKING: which requests may wait. `None`: all.
    pub waits_if: Option<AskWords>,
    /// Of a command that is split by its keys: which requests are not, because they are about all
    /// of their keys at once.
    pub whole_if: Option<AskWords>,
    /// What a target of several shards does with a request of a stream. `None`: that of the
    /// container, of a subcommand; else what follows from [`Row::streamed`].
    pub applied: Option<Applied>,
}

impl Routing {
    /// The row says nothing.
    pub const USUAL: Routing = Routing { way: None, waits_if: None, whole_if: None, applied: None };

    /// Requests go this way.
    pub const fn by(way: Way) -> Routing {
        Routing { way: Some(way), ..Routing::USUAL }
    }

    /// Requests go to all servers, and are about what `about` says.
    pub const fn all(merge: Merge, about: About) -> Routing {
        Routing::by(Way::All { merge, about })
    }

    /// Only some requests wait.
    pub const fn waits_if(self, ask: AskWords) -> Routing {
        Routing { waits_if: Some(ask), ..self }
    }

    /// Some requests are not split.
    pub const fn whole_if(self, ask: AskWords) -> Routing {
        Routing { whole_if: Some(ask), ..self }
    }

    /// A target of several shards does this with a request of a stream.
    pub const fn applied(self, applied: Applied) -> Routing {
        Routing { applied: Some(applied), ..self }
    }
}

/// Where requests of a command go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To the server of its keys, which must be one; without a key, to any server.
    Keys,
    /// The words that belong to a key go to its server, and the replies are joined.
    Split {
        /// Which words belong to which key.
        groups: Groups,
        /// How the replies are joined.
        merge: Merge,
    },
    /// To all servers.
    All {
        /// How the replies are joined.
        merge: Merge,
        /// What it is about.
        about: About,
    },
    /// To the servers one after the other, by the cursor.
    Scan,
    /// It is a message to those that listen to a channel, which is word 1. It goes to the channel's
    /// server, or, where clients listen at any node, to all nodes that have clients.
    Message,
    /// To the servers that the connection has written to. Where clients share connections that
    /// cannot be known, and it is refused.
    Written(Merge),
    /// It is about the connection, or needs no server.
    Local(Local),
    /// It binds the client to a connection of its own.
    Session(Session),
    /// It concerns one server as a whole: it passes if there is only one.
    OneServer,
    /// It cannot work.
    Refused(Refusal),
}

/// How replies become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// They are alike: the first server's.
    First,
    /// The sum of integers.
    Sum,
    /// The smallest integer; of arrays of integers the smallest at each place.
    Min,
    /// The largest integer; of arrays of integers the largest at each place.
    Max,
    /// The elements of all arrays.
    Concat,
    /// The same without repetitions.
    Union,
    /// The elements of all arrays or maps, unless the request has to be asked in other words.
    Gather(&'static Gather),
    /// Each element goes to the place that its key had in the request.
    Places,
    /// Arrays of names and integers: the sum for each name, in the first reply's order.
    SumPairs,
    /// One of the replies that are not null, by chance.
    AnyValue,
    /// Any reply that is no error; if there is none, the error that says most.
    AnyGood,
    /// Texts, one behind the other.
    Text,
    /// INFO: the first server's, with counters and keyspaces summed.
    Info,
}

/// Returns the words that each server is asked, by those of the client. `None`: these.
pub type AskOthers = fn(&[&[u8]]) -> Option<Vec<Vec<u8>>>;

/// Makes the reply to the client's words of the servers' replies, which are no errors. The last
/// argument is true for RESP3, in which the servers have replied, too. `None`: they have not
/// replied to what they were asked.
pub type MakeOne = fn(&[&[u8]], &[Vec<u8>], bool) -> Option<Vec<u8>>;

/// How a request to all servers is asked whose replies cannot be put together as they are: the
/// servers are asked for what the reply is made of.
pub struct Gather {
    /// What the servers are asked.
    pub ask: AskOthers,
    /// What is made of their replies.
    pub join: MakeOne,
}

impl PartialEq for Gather {
    fn eq(&self, other: &Gather) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Gather {}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gather")
    }
}

/// What a request to all servers is about. A proxy asks all servers in any case; a node of a
/// cluster that forwards asks the others only about what is not its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// All keys of a database, or of all databases. If one shard has them all, a transaction can
    /// have the request.
    AllKeys,
    /// Clients and what they listen to. Nodes without keys have clients, too.
    Clients,
    /// Scripts that run, and texts of scripts that servers keep.
    Scripts(Texts),
    /// Libraries of functions, which all nodes of a cluster have alike: they change by way of the
    /// coordinator.
    Libraries,
    /// The server. A node answers for itself.
    Server,
}

/// What a request does to the texts of scripts that servers keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Texts {
    /// Nothing.
    Stay,
    /// Word 2 becomes one of them.
    Load,
    /// All are forgotten.
    Flush,
}

/// What is about the connection, or needs no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the commands of the same names")]
pub enum Local {
    Ping,
    Echo,
    Quit,
    Reset,
    Hello,
    Auth,
    Select,
    Client,
    Command,
    /// ASKING, READONLY and READWRITE.
    Asking,
}

impl Local {
    /// Returns whether it tells or changes what only the node knows that the client is connected
    /// to.
    pub fn is_about_connection(self) -> bool {
        match self {
            Local::Select | Local::Hello | Local::Auth | Local::Client | Local::Asking => true,
            Local::Ping | Local::Echo | Local::Quit | Local::Reset | Local::Command => false,
        }
    }
}

/// What binds a client to a connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the commands of the same names")]
pub enum Session {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Subscribe,
    Unsubscribe,
}

/// Why a command is refused by what stands in front of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is about the nodes of a cluster, and clients see one server.
    Cluster,
    /// The same of a walk over the nodes, for which SCAN does.
    ClusterWalk,
    /// It takes a whole connection to one server.
    WholeConnection,
    /// It makes the client a replica.
    Replica,
    /// It reads keys that its words do not name and that may be on other servers.
    UnnamedKeys,
}

/// What a target of several shards does with a request of a source's stream of replication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It carries it out at the shards of its keys.
    AtKeys,
    /// It sends it to each shard.
    AtEach,
    /// It removes what the source has, in all databases.
    FlushAll,
    /// It removes what the source has in the database.
    FlushDatabase,
    /// It removes a slot of the source, which is word 2.
    FlushSlot,
    /// It exchanges two databases, which a cluster cannot.
    SwapDatabases,
    /// It loads a library of functions, whose text is the last word, over what is there.
    LoadLibrary,
    /// It deletes a library. Each source of a cluster says so, and all but one find nothing.
    DeleteLibrary,
    /// What follows is about the database that word 1 names.
    Select,
    /// A transaction begins.
    Begin,
    /// A transaction ends.
    End,
    /// Nothing: it is no data.
    Skip,
    /// It refuses the stream: the request is no write of data, or runs a script.
    Refuse,
}

/// Which requests of a command may wait, so that they need a connection of their own.
#[derive(Clone, Copy, Debug)]
pub enum Waits {
    /// None.
    Never,
    /// All.
    Always,
    /// Those of which this is true.
    If(AskWords),
}

/// Which words of a request belong to which of its keys: words that all pieces begin with, then
/// groups of as many words each, of which the first is a key, then words that all pieces end with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    /// The word that is the number of keys; 0: there is none.
    count_at: u16,
    /// The word of the first key.
    first: u16,
    /// Words of a group.
    step: u16,
    /// Words behind the groups, if no word says how many keys there are.
    tail: u16,
}

impl Groups {
    /// Those of a command with these keys. `None`: they do not form groups.
    pub fn of(keys: &[KeySpec]) -> Option<Groups> {
        let [KeySpec { flags, begin: Begin::Index(begin), find, .. }] = *keys else { return None };
        if flags.any(KeyFlags::NOT_KEY.with(KeyFlags::INCOMPLETE)) {
            return None;
        }
        let (count_at, first, step, tail) = match find {
            Find::Range { last, step, limit: 0 | 1 } if last < 0 => {
                let behind = usize::try_from(last.unsigned_abs()).ok()?;
                (0, begin, step, behind.saturating_sub(step))
            }
            Find::KeyNum { index, first, step } if index < first => {
                (begin + index, begin.checked_add(first)?, step, 0)
            }
            _ => return None,
        };
        let small = |number: usize| u16::try_from(number).ok();
        let groups = Groups {
            count_at: small(count_at)?,
            first: small(first)?,
            step: small(step)?,
            tail: small(tail)?,
        };
        (groups.step > 0 && groups.first > 0).then_some(groups)
    }

    /// Words of a group.
    pub fn step(&self) -> usize {
        usize::from(self.step)
    }

    /// The word that is the number of keys.
    pub fn count_at(&self) -> Option<usize> {
        (self.count_at > 0).then_some(usize::from(self.count_at))
    }

    /// Calls `take` with the words of a request about some of its groups only. Returns what it
    /// returns; `None` if the request has no groups.
    pub fn piece<'w, T>(
        &self,
        words: &[&'w [u8]],
        chosen: &[&'w [u8]],
        take: impl FnOnce(&[&[u8]]) -> T,
    ) -> Option<T> {
        let groups = self.words(words)?;
        let count = (chosen.len() / self.step()).to_string();
        let mut piece: Vec<&[u8]> = Vec::with_capacity(words.len() - groups.len() + chosen.len());
        piece.extend_from_slice(&words[..groups.start]);
        if let Some(at) = self.count_at() {
            piece[at] = count.as_bytes();
        }
        piece.extend_from_slice(chosen);
        piece.extend_from_slice(&words[groups.end..]);
        Some(take(&piece))
    }

    /// The words of a request that are groups. `None`: there is none, or they are not whole.
    pub fn words(&self, words: &[&[u8]]) -> Option<Range<usize>> {
        let first = usize::from(self.first);
        let end = match self.count_at() {
            Some(at) => {
                let count = numbers::parse_i64(words.get(at)?)?;
                let count = usize::try_from(count).ok().filter(|&count| count <= words.len())?;
                first + count * self.step()
            }
            None => words.len().checked_sub(usize::from(self.tail))?,
        };
        let is_whole = end > first && end <= words.len() && (end - first) % self.step() == 0;
        is_whole.then_some(first..end)
    }
}

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The command's flags.
    pub flags: Flags,
    /// Its group, if that is known.
    pub group: Option<Group>,
    /// Where its keys are.
    pub keys: &'a [KeySpec],
    /// Keys are found by a function that knows more than `keys`.
    pub has_function: bool,
    /// Its tips.
    pub tips: &'a [&'a str],
}

/// Why the rules do not say how a command travels: its row has to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsaid {
    /// Its tips call it special.
    Special,
    /// Its tips say that it is split by its keys, which do not form groups.
    NoGroups,
    /// It may wait, and goes to more servers than that of its keys.
    Waits,
}

fn tip<'a>(tips: &[&'a str], name: &str) -> Option<&'a str> {
    tips.iter().find_map(|tip| tip.strip_prefix(name)?.strip_prefix(':'))
}

/// How the replies are joined, by the response policy. `None`: it is special.
fn usual_merge(tips: &[&str], without_policy: Merge) -> Option<Merge> {
    Some(match tip(tips, "response_policy") {
        None => without_policy,
        Some("all_succeeded") => Merge::First,
        Some("one_succeeded") => Merge::AnyGood,
        Some("agg_sum") => Merge::Sum,
        Some("agg_min" | "agg_logical_and") => Merge::Min,
        Some("agg_max" | "agg_logical_or") => Merge::Max,
        Some(_) => return None,
    })
}

fn usual_about(facts: &Facts<'_>) -> About {
    let is_scripting = facts.group == Some(Group::Scripting);
    let flags = facts.flags;
    match () {
        () if flags.has(Flags::PUBSUB) => About::Clients,
        () if is_scripting && flags.has(Flags::WRITE) => About::Libraries,
        () if is_scripting => About::Scripts(Texts::Stay),
        () if flags.any(Flags::WRITE.with(Flags::READONLY)) => About::AllKeys,
        () => About::Server,
    }
}

/// Returns how a command travels that does not say so.
///
/// # Errors
/// The rules do not say it either.
pub fn usual(facts: &Facts<'_>) -> Result<Way, Unsaid> {
    let has_keys =
        facts.has_function || facts.keys.iter().any(|spec| !spec.flags.has(KeyFlags::NOT_KEY));
    let tips = facts.tips;
    let policy = tip(tips, "request_policy");
    if facts.flags.has(Flags::BLOCKING) && (policy.is_some() || !has_keys) {
        return Err(Unsaid::Waits);
    }
    match policy {
        Some("multi_shard") => {
            let groups = if facts.has_function { None } else { Groups::of(facts.keys) };
            let groups = groups.ok_or(Unsaid::NoGroups)?;
            let merge = usual_merge(tips, Merge::Places).ok_or(Unsaid::Special)?;
            Ok(Way::Split { groups, merge })
        }
        Some("all_shards" | "all_nodes") => Ok(match usual_merge(tips, Merge::Concat) {
            Some(merge) => Way::All { merge, about: usual_about(facts) },
            // Replies that cannot be joined are those of one server.
            None => Way::OneServer,
        }),
        Some(_) => Err(Unsaid::Special),
        None if has_keys => Ok(Way::Keys),
        None if facts.flags.has(Flags::ADMIN) => Ok(Way::OneServer),
        None => Ok(Way::Keys),
    }
}

/// Returns how a command travels if neither its row nor the rules say so: where it does no harm. What
/// waits has a connection of its own.
pub fn fallback(unsaid: Unsaid) -> Way {
    match unsaid {
        Unsaid::NoGroups | Unsaid::Waits => Way::Keys,
        Unsaid::Special => Way::OneServer,
    }
}

impl<R: Runner> Row<R> {
    /// What the rules look at.
    pub fn facts(&self) -> Facts<'static> {
        Facts {
            flags: self.flags,
            group: Some(self.group),
            keys: self.keys,
            has_function: self.find_keys.is_some(),
            tips: self.tips,
        }
    }

    /// How requests travel. `parent` is the container, of a subcommand.
    pub(crate) fn way(&self, parent: Option<&Row<R>>) -> Way {
        let said = self.routing.way.or_else(|| parent.and_then(|parent| parent.routing.way));
        said.unwrap_or_else(|| usual(&self.facts()).unwrap_or_else(fallback))
    }

    /// Which requests may wait.
    pub(crate) fn waits(&self) -> Waits {
        match self.routing.waits_if {
            _ if !self.flags.has(Flags::BLOCKING) => Waits::Never,
            Some(ask) => Waits::If(ask),
            None => Waits::Always,
        }
    }

    /// What a target of several shards does with a request of a stream.
    pub(crate) fn applied(&self, parent: Option<&Row<R>>) -> Applied {
        let of_parent = || parent.and_then(|parent| parent.routing.applied);
        self.routing.applied.or_else(of_parent).unwrap_or_else(|| match self.streamed() {
            Streamed::Write => Applied::AtKeys,
            Streamed::Message => Applied::Skip,
            Streamed::Script | Streamed::Other => Applied::Refuse,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RO: KeyFlags = KeyFlags::RO;

    fn facts<'a>(flags: Flags, keys: &'a [KeySpec], tips: &'a [&'a str]) -> Facts<'a> {
        Facts { flags, group: None, keys, has_function: false, tips }
    }

    #[test]
    fn a_command_goes_where_its_keys_and_tips_say() {
        let (none, one, rest) = (Flags::NONE, [KeySpec::one(RO)], [KeySpec::rest(1, 1, RO)]);
        assert_eq!(usual(&facts(none, &one, &[])), Ok(Way::Keys));
        assert_eq!(usual(&facts(none, &rest, &[])), Ok(Way::Keys));
        assert_eq!(usual(&facts(none, &[], &[])), Ok(Way::Keys));
        assert_eq!(usual(&facts(Flags::ADMIN, &[], &[])), Ok(Way::OneServer));
        let groups = Groups::of(&rest).expect("they form groups");
        let split = |merge| Ok(Way::Split { groups, merge });
        let tips = ["request_policy:multi_shard"];
        assert_eq!(usual(&facts(none, &rest, &tips)), split(Merge::Places));
        let tips = ["request_policy:multi_shard", "response_policy:agg_sum"];
        assert_eq!(usual(&facts(none, &rest, &tips)), split(Merge::Sum));
        let all = |merge, about| Ok(Way::All { merge, about });
        let tips = ["request_policy:all_shards"];
        let about = About::AllKeys;
        assert_eq!(usual(&facts(Flags::READONLY, &[], &tips)), all(Merge::Concat, about));
        let tips = ["request_policy:all_nodes", "response_policy:agg_logical_and"];
        assert_eq!(usual(&facts(none, &[], &tips)), all(Merge::Min, About::Server));
        let tips = ["request_policy:all_shards", "response_policy:special"];
        assert_eq!(usual(&facts(none, &[], &tips)), Ok(Way::OneServer));
    }

    #[test]
    fn what_the_rules_do_not_say_a_row_has_to() {
        let one = [KeySpec::one(RO)];
        let special = ["request_policy:special"];
        assert_eq!(usual(&facts(Flags::NONE, &one, &special)), Err(Unsaid::Special));
        let split = ["request_policy:multi_shard"];
        assert_eq!(usual(&facts(Flags::NONE, &one, &split)), Err(Unsaid::NoGroups));
        assert_eq!(usual(&facts(Flags::BLOCKING, &[], &[])), Err(Unsaid::Waits));
        let all = ["request_policy:all_shards"];
        assert_eq!(usual(&facts(Flags::BLOCKING, &one, &all)), Err(Unsaid::Waits));
        assert_eq!(usual(&facts(Flags::BLOCKING, &one, &[])), Ok(Way::Keys));
    }

    #[track_caller]
    fn check(spec: KeySpec, request: &str, expected: Option<Range<usize>>) {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let groups = Groups::of(&[spec]).expect("they form groups");
        assert_eq!(groups.words(&words), expected, "{request}");
    }

    #[test]
    fn groups_are_what_belongs_to_a_key() {
        let (del, mset, mget) =
            (KeySpec::rest(1, 1, RO), KeySpec::rest(1, 2, RO), KeySpec::all_but_last(1, RO));
        check(del, "del a b", Some(1..3));
        check(del, "del", None);
        check(mset, "mset a 1 b 2", Some(1..5));
        check(mset, "mset a 1 b", None);
        check(mget, "json.mget a b $.path", Some(1..3));
        check(mget, "json.mget a", None);
        let counted = Find::KeyNum { index: 0, first: 1, step: 2 };
        let msetex = KeySpec::new(RO, Begin::Index(1), counted);
        check(msetex, "msetex 2 a 1 b 2 ex 9", Some(2..6));
        for count in ["0", "-1", "3", "x", "9223372036854775807"] {
            check(msetex, &format!("msetex {count} a 1 b 2"), None);
        }
        let request: [&[u8]; 8] = [b"msetex", b"2", b"a", b"1", b"b", b"2", b"ex", b"9"];
        let piece = Groups::of(&[msetex])
            .and_then(|it| it.piece(&request, &request[4..6], |piece| piece.concat()));
        assert_eq!(piece, Some(b"msetex1b2ex9".to_vec()));
        assert_eq!(Groups::of(&[KeySpec::one(RO)]), None);
        assert_eq!(Groups::of(&[del, mset]), None);
    }
}
