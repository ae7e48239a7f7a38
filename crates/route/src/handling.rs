//! How each command travels. A command without a line here goes where its keys are.

use crate::join::Merge;

/// How a command travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// To the server of its keys, which must be one; without a key, to any server.
    Keyed,
    /// To the server of its keys, on a connection of its own: it may wait.
    Blocking,
    /// Each group of so many words is about one key; the groups go to their keys' servers, and the
    /// replies are merged.
    Split {
        /// Words of a group, of which the first is the key.
        step: usize,
        /// How the replies are joined.
        merge: Merge,
    },
    /// To all servers.
    All(Merge),
    /// To the servers one after the other, by the cursor.
    Scan,
    /// To the server that the first argument, a channel, belongs to.
    Channel,
    /// Each channel goes to the server that it belongs to; replies are lists of channels and
    /// numbers.
    ByChannel,
    /// Answered without a server.
    Local(Local),
    /// Binds the client to a connection of its own.
    Session(Session),
    /// It has subcommands that travel differently: see [`handling`].
    Container,
    /// It concerns one server as a whole: it passes if there is only one.
    OneServer,
    /// It cannot work; why, and what to do.
    Refuse(&'static str),
}

/// What is answered without a server.
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
    Asking,
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

/// Why a command is refused that concerns one server.
pub const ONE_SERVER: &str =
    "it concerns one server, and there are several; ask that server directly";
const WHOLE_CONNECTION: &str =
    "it takes a whole connection to one server; connect to the server directly";
/// Why a command is refused that waits until replicas have the connection's writes.
pub const WAITS: &str = "the proxy shares connections, so a server cannot tell your writes from those of \
    others; set min-replicas-to-write on the server instead";

/// Of a request that reads keys which its words do not name and which may be on another server.
pub const UNNAMED_ELSEWHERE: Handling = Handling::Refuse(
    "its patterns name keys that may be on other servers; begin them with the key's hash tag, as in \
     {tag}*",
);

/// Every command that does not simply go to its keys. Sorted by name.
static LINES: &[(&str, Handling)] = {
    use Handling::*;
    &[
        ("ACL", OneServer),
        ("ASKING", Local(self::Local::Asking)),
        ("AUTH", Local(self::Local::Auth)),
        ("BGREWRITEAOF", All(Merge::First)),
        ("BGSAVE", All(Merge::First)),
        ("BLMOVE", Blocking),
        ("BLMOVEM", Blocking),
        ("BLMPOP", Blocking),
        ("BLPOP", Blocking),
        ("BRPOP", Blocking),
        ("BRPOPLPUSH", Blocking),
        ("BZMPOP", Blocking),
        ("BZPOPMAX", Blocking),
        ("BZPOPMIN", Blocking),
        ("CLIENT", Local(self::Local::Client)),
        (
            "CLUSTER",
            Refuse("the proxy is one server to its clients; use a client without cluster mode"),
        ),
        ("CLUSTERSCAN", Refuse("the proxy is one server to its clients; use SCAN")),
        ("COMMAND", Local(self::Local::Command)),
        ("COMMANDLOG", OneServer),
        ("CONFIG", Container),
        ("CONFIG|GET", All(Merge::First)),
        ("CONFIG|HELP", All(Merge::First)),
        ("CONFIG|RESETSTAT", All(Merge::First)),
        ("CONFIG|REWRITE", All(Merge::First)),
        ("CONFIG|SET", All(Merge::First)),
        ("DBSIZE", All(Merge::Sum)),
        ("DEBUG", OneServer),
        ("DEL", Split { step: 1, merge: Merge::Sum }),
        ("DISCARD", Session(self::Session::Discard)),
        ("ECHO", Local(self::Local::Echo)),
        ("EXEC", Session(self::Session::Exec)),
        ("EXISTS", Split { step: 1, merge: Merge::Sum }),
        ("FAILOVER", OneServer),
        ("FLUSHALL", All(Merge::First)),
        ("FLUSHDB", All(Merge::First)),
        ("FUNCTION", Container),
        ("FUNCTION|DELETE", All(Merge::First)),
        ("FUNCTION|DUMP", All(Merge::First)),
        ("FUNCTION|FLUSH", All(Merge::First)),
        ("FUNCTION|HELP", All(Merge::First)),
        ("FUNCTION|KILL", All(Merge::AnyGood)),
        ("FUNCTION|LIST", All(Merge::First)),
        ("FUNCTION|LOAD", All(Merge::First)),
        ("FUNCTION|RESTORE", All(Merge::First)),
        ("FUNCTION|STATS", All(Merge::First)),
        ("HELLO", Local(self::Local::Hello)),
        ("HOTKEYS", OneServer),
        ("INFO", All(Merge::Info)),
        ("KEYS", All(Merge::Concat)),
        ("LASTSAVE", All(Merge::Min)),
        ("LATENCY", OneServer),
        ("MEMORY|DOCTOR", OneServer),
        ("MEMORY|MALLOC-STATS", OneServer),
        ("MEMORY|PURGE", OneServer),
        ("MEMORY|STATS", OneServer),
        ("MGET", Split { step: 1, merge: Merge::Places }),
        ("MIGRATE", OneServer),
        ("MODULE", OneServer),
        ("MONITOR", Refuse(WHOLE_CONNECTION)),
        ("MSET", Split { step: 2, merge: Merge::First }),
        ("MULTI", Session(self::Session::Multi)),
        ("PING", Local(self::Local::Ping)),
        ("PSUBSCRIBE", Session(self::Session::Subscribe)),
        ("PSYNC", Refuse("it makes the client a replica; connect to the server directly")),
        ("PUBLISH", Channel),
        ("PUBSUB", Container),
        ("PUBSUB|CHANNELS", All(Merge::Union)),
        ("PUBSUB|HELP", All(Merge::First)),
        ("PUBSUB|NUMPAT", All(Merge::Max)),
        ("PUBSUB|NUMSUB", All(Merge::SumPairs)),
        ("PUBSUB|SHARDCHANNELS", All(Merge::Union)),
        ("PUBSUB|SHARDNUMSUB", All(Merge::SumPairs)),
        ("PUNSUBSCRIBE", Session(self::Session::Unsubscribe)),
        ("QUIT", Local(self::Local::Quit)),
        ("RANDOMKEY", All(Merge::AnyValue)),
        ("READONLY", Local(self::Local::Asking)),
        ("READWRITE", Local(self::Local::Asking)),
        ("REPLCONF", Refuse(WHOLE_CONNECTION)),
        ("REPLICAOF", OneServer),
        ("RESET", Local(self::Local::Reset)),
        ("ROLE", OneServer),
        ("SAVE", OneServer),
        ("SCAN", Scan),
        ("SCRIPT", Container),
        ("SCRIPT|DEBUG", Refuse(WHOLE_CONNECTION)),
        ("SCRIPT|EXISTS", All(Merge::MinEach)),
        ("SCRIPT|FLUSH", All(Merge::First)),
        ("SCRIPT|HELP", All(Merge::First)),
        ("SCRIPT|KILL", All(Merge::AnyGood)),
        ("SCRIPT|LOAD", All(Merge::First)),
        ("SCRIPT|SHOW", All(Merge::First)),
        ("SELECT", Local(self::Local::Select)),
        ("SHUTDOWN", OneServer),
        ("SLAVEOF", OneServer),
        ("SLOWLOG", OneServer),
        ("SPUBLISH", Channel),
        ("SSUBSCRIBE", Session(self::Session::Subscribe)),
        ("SUBSCRIBE", Session(self::Session::Subscribe)),
        ("SUNSUBSCRIBE", Session(self::Session::Unsubscribe)),
        ("SWAPDB", All(Merge::First)),
        ("SYNC", Refuse("it makes the client a replica; connect to the server directly")),
        ("TIME", All(Merge::First)),
        ("TOUCH", Split { step: 1, merge: Merge::Sum }),
        ("UNLINK", Split { step: 1, merge: Merge::Sum }),
        ("UNSUBSCRIBE", Session(self::Session::Unsubscribe)),
        ("UNWATCH", Session(self::Session::Unwatch)),
        ("WAIT", Refuse(WAITS)),
        ("WAITAOF", Refuse(WAITS)),
        ("WATCH", Session(self::Session::Watch)),
        ("XREAD", Keyed),
        ("XREADGROUP", Keyed),
    ]
};

/// How a command travels, by its name in capitals, a subcommand's as `CONFIG|GET`.
pub fn handling(name: &str) -> Handling {
    match LINES.binary_search_by_key(&name, |line| line.0) {
        Ok(at) => LINES[at].1,
        Err(_) => Handling::Keyed,
    }
}

/// Commands without a key that concern more than one node of a cluster. Sorted by name.
static ACROSS: &[&str] = &[
    "DBSIZE",
    "FLUSHALL",
    "FLUSHDB",
    "FUNCTION|KILL",
    "KEYS",
    "PUBLISH",
    "PUBSUB|CHANNELS",
    "PUBSUB|NUMPAT",
    "PUBSUB|NUMSUB",
    "PUBSUB|SHARDCHANNELS",
    "PUBSUB|SHARDNUMSUB",
    "RANDOMKEY",
    "SCAN",
    "SCRIPT|EXISTS",
    "SCRIPT|FLUSH",
    "SCRIPT|KILL",
    "SCRIPT|LOAD",
    "SPUBLISH",
    "SWAPDB",
];

/// Returns whether a node of a cluster that forwards has to ask others for this command, whatever
/// its keys are.
pub fn concerns_all_nodes(name: &str) -> bool {
    ACROSS.binary_search(&name).is_ok()
}

/// Returns whether a command changes what all nodes of a cluster have alike: libraries of
/// functions.
pub fn defines(name: &str) -> bool {
    ["FUNCTION|DELETE", "FUNCTION|FLUSH", "FUNCTION|LOAD", "FUNCTION|RESTORE"].contains(&name)
}

/// Returns whether a command is about the client's connection: it tells or changes what only the
/// node knows that the client is connected to.
pub fn is_about_connection(name: &str) -> bool {
    let container = name.split('|').next().unwrap_or(name);
    let Handling::Local(local) = handling(container) else { return false };
    match local {
        Local::Select | Local::Hello | Local::Auth | Local::Client | Local::Asking => true,
        Local::Ping | Local::Echo | Local::Quit | Local::Reset | Local::Command => false,
    }
}

/// Returns whether a command that concerns all nodes is about all keys of the database: if one
/// shard has them all, a transaction can have it.
pub fn is_about_all_keys(name: &str) -> bool {
    ["DBSIZE", "FLUSHALL", "FLUSHDB", "KEYS", "RANDOMKEY", "SWAPDB"].contains(&name)
}

/// Returns whether a request concerns all nodes that have clients, also those without a key:
/// messages.
pub fn is_for_clients(words: &[&[u8]]) -> bool {
    words.first().is_some_and(|name| {
        name.eq_ignore_ascii_case(b"PUBLISH") || name.eq_ignore_ascii_case(b"SPUBLISH")
    })
}

/// Returns whether a node of a cluster asks all nodes that have clients, also those without a key:
/// messages, and questions about subscriptions.
pub fn asks_about_clients(words: &[&[u8]]) -> bool {
    is_for_clients(words) || words.first().is_some_and(|name| name.eq_ignore_ascii_case(b"PUBSUB"))
}

/// What a request does to the texts of scripts that servers keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AboutScripts<'a> {
    /// This text is kept.
    Load(&'a [u8]),
    /// All are forgotten.
    Forget,
}

/// What a request does to the texts of scripts, if it is about them.
pub fn about_scripts<'a>(words: &[&'a [u8]]) -> Option<AboutScripts<'a>> {
    let [name, what, rest @ ..] = words else { return None };
    if !name.eq_ignore_ascii_case(b"SCRIPT") {
        return None;
    }
    match rest.first() {
        Some(text) if what.eq_ignore_ascii_case(b"LOAD") => Some(AboutScripts::Load(text)),
        _ => what.eq_ignore_ascii_case(b"FLUSH").then_some(AboutScripts::Forget),
    }
}

/// How a command travels that a node of a cluster forwards.
pub fn handling_of_node(name: &str) -> Handling {
    match name {
        // Clients subscribe at whichever node they are connected to.
        "PUBLISH" | "SPUBLISH" => Handling::All(Merge::Sum),
        _ => handling(name),
    }
}

/// Returns whether requests may wait although the command's line does not say so: XREAD and
/// XREADGROUP with the word BLOCK among their options.
pub fn may_block(words: &[&[u8]]) -> bool {
    let Some(name) = words.first() else { return false };
    if !name.eq_ignore_ascii_case(b"XREAD") && !name.eq_ignore_ascii_case(b"XREADGROUP") {
        return false;
    }
    words[1..]
        .iter()
        .take_while(|word| !word.eq_ignore_ascii_case(b"STREAMS"))
        .any(|word| word.eq_ignore_ascii_case(b"BLOCK"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sorted() {
        assert!(LINES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(ACROSS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn names_lead_to_their_lines() {
        assert_eq!(handling("GET"), Handling::Keyed);
        assert_eq!(handling("DBSIZE"), Handling::All(Merge::Sum));
        assert_eq!(handling("CONFIG|GET"), Handling::All(Merge::First));
        assert_eq!(handling("SCAN"), Handling::Scan);
    }

    #[test]
    fn what_concerns_all_nodes_goes_to_all() {
        for name in ACROSS {
            let handling = handling_of_node(name);
            assert!(matches!(handling, Handling::All(_) | Handling::Scan), "{name}");
        }
    }

    #[test]
    fn xread_may_block_only_with_the_option() {
        let words = |text: &'static str| text.split(' ').map(str::as_bytes).collect::<Vec<_>>();
        assert!(may_block(&words("xread count 1 block 0 streams a $")));
        assert!(!may_block(&words("XREAD STREAMS BLOCK 0")));
        assert!(may_block(&words("XREADGROUP GROUP g c BLOCK 1 STREAMS a >")));
        assert!(!may_block(&words("GET BLOCK")));
    }
}
