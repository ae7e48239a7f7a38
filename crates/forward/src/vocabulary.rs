//! Commands that the servers know and the table does not, as COMMAND INFO describes them: those of
//! modules, and those of later versions.

use route::plan::Course;
use route::raw;
use spec::keys::keys_of_spec;
use spec::routing::{self, Facts};
use spec::{Begin, Find, Flags, KeyFlags, KeySpec};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a command counts as unknown: a module may be loaded at any time.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);

/// How many unknown names are kept at most: clients choose them.
const MAX_UNKNOWN: usize = 1000;

/// A command that the servers know.
#[derive(Debug)]
pub struct Learned {
    /// Where its keys are. Empty if the server is too old to say.
    specs: Vec<KeySpec>,
    /// The position of the first key in a request; 0 if there is none.
    first: usize,
    /// The position of the last key; a negative one counts from the end.
    last: i64,
    /// The distance from key to key.
    step: usize,
    /// How its requests travel.
    course: Course,
    /// Its subcommands, by their names in capitals.
    subcommands: Vec<(String, Learned)>,
}

/// What is known of a command.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// The servers know it.
    Known(Arc<Learned>),
    /// They do not.
    Unknown,
    /// They could not be asked; the reason.
    Unclear(String),
}

/// The commands that servers of one pool were asked for.
#[derive(Debug, Default)]
pub struct Vocabulary {
    known: HashMap<String, Arc<Learned>>,
    /// Names that no server knows or says anything of, and until when that is believed.
    others: HashMap<String, (Meaning, Instant)>,
}

impl Vocabulary {
    /// Returns what is known of a command. `name` is in capitals.
    pub fn find(&self, name: &str, now: Instant) -> Option<Meaning> {
        if let Some(learned) = self.known.get(name) {
            return Some(Meaning::Known(learned.clone()));
        }
        let (meaning, until) = self.others.get(name)?;
        (*until > now).then(|| meaning.clone())
    }

    /// Notes a server's reply to COMMAND INFO.
    pub fn note(&mut self, name: String, reply: &[u8], now: Instant) {
        let meaning = match Learned::of_reply(reply) {
            Some(learned) => {
                self.others.remove(&name);
                self.known.insert(name, Arc::new(learned));
                return;
            }
            None if raw::is_error(reply) => {
                let said = String::from_utf8_lossy(&reply[1..]);
                Meaning::Unclear(format!(
                    "ERR proxy: no server says where the keys of '{}' are: {}",
                    name.to_lowercase(),
                    said.trim_end()
                ))
            }
            None => Meaning::Unknown,
        };
        if self.others.len() >= MAX_UNKNOWN {
            self.others.clear();
        }
        self.others.insert(name, (meaning, now + UNKNOWN_FOR));
    }
}

impl Learned {
    /// Reads the reply to COMMAND INFO with one name. Returns `None` if the server does not know it.
    fn of_reply(reply: &[u8]) -> Option<Learned> {
        Learned::of_row(raw::elements(reply)?.first()?)
    }

    /// Reads a row: name, arity, flags, first key, last key, step, and from Redis 7 on categories,
    /// tips, key specifications and subcommands.
    fn of_row(row: &[u8]) -> Option<Learned> {
        let parts = raw::elements(row)?;
        let list = |at: usize| parts.get(at).and_then(|part| raw::elements(part));
        let number = |at: usize| raw::integer(parts.get(at)?);
        let subcommand = |row: &&[u8]| {
            let name = raw::elements(row)?.first().and_then(|name| raw::text(name))?;
            let name = String::from_utf8_lossy(name).to_uppercase();
            let name = name.rsplit('|').next().unwrap_or_default().to_owned();
            Some((name, Learned::of_row(row)?))
        };
        let flags = list(2)?;
        let flags = flags.iter().filter_map(|flag| raw::text(flag)).map(flag_named);
        let flags = flags.fold(Flags::NONE, Flags::with);
        let specs = list(8).unwrap_or_default();
        let specs: Vec<KeySpec> = specs.iter().filter_map(|it| key_spec(it)).collect();
        let first = usize::try_from(number(3)?).ok()?;
        let (last, step) = (number(4)?, usize::try_from(number(5)?).ok()?);
        let tips = list(7).unwrap_or_default();
        let tips: Vec<&str> =
            tips.iter().filter_map(|tip| std::str::from_utf8(raw::text(tip)?).ok()).collect();
        let course = course(flags, &specs, (first, last, step), &tips);
        Some(Learned {
            specs,
            first,
            last,
            step,
            course,
            subcommands: list(9).unwrap_or_default().iter().filter_map(subcommand).collect(),
        })
    }

    /// Returns the row that a request is for: that of a subcommand, if it has one.
    fn of_request(&self, words: &[&[u8]]) -> &Learned {
        let named = |name: &str| {
            words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        self.subcommands.iter().find(|(name, _)| named(name)).map_or(self, |(_, row)| row)
    }

    /// Returns how a request travels.
    pub fn course(&self, words: &[&[u8]]) -> Course {
        self.of_request(words).course
    }

    /// Returns which words of a request are keys.
    pub fn keys(&self, words: &[&[u8]]) -> Vec<usize> {
        let row = self.of_request(words);
        let mut keys = Vec::new();
        for spec in &row.specs {
            // What is wrong with the request the server says.
            let _ = keys_of_spec(spec, words, true, &mut |at, _| keys.push(at));
        }
        if !keys.is_empty() || row.first == 0 || row.first >= words.len() {
            return keys;
        }
        let last = if row.last < 0 { words.len() as i64 + row.last } else { row.last };
        let last = usize::try_from(last).unwrap_or(0).min(words.len() - 1);
        (row.first..=last).step_by(row.step.max(1)).collect()
    }
}

/// Returns the flag of this name, of those that the rules of routing look at.
fn flag_named(name: &[u8]) -> Flags {
    match name {
        b"admin" => Flags::ADMIN,
        b"blocking" => Flags::BLOCKING,
        b"pubsub" => Flags::PUBSUB,
        b"readonly" => Flags::READONLY,
        b"write" => Flags::WRITE,
        _ => Flags::NONE,
    }
}

/// Returns how requests of a command travel, by the rules for rows that do not say it. Without
/// specifications of its keys, the first and the last key and the step between them do.
fn course(
    flags: Flags,
    specs: &[KeySpec],
    (first, last, step): (usize, i64, usize),
    tips: &[&str],
) -> Course {
    let relative = |last: i64| if last < 0 { Some(last) } else { last.checked_sub(first as i64) };
    let last = relative(last).and_then(|last| i32::try_from(last).ok());
    let range = last.filter(|_| first > 0 && step > 0).map(|last| {
        let find = Find::Range { last, step, limit: 0 };
        KeySpec::new(KeyFlags::RW, Begin::Index(first), find)
    });
    let keys = if specs.is_empty() { range.as_slice() } else { specs };
    let facts = Facts { flags, group: None, keys, has_function: false, tips };
    let way = routing::usual(&facts).unwrap_or_else(routing::fallback);
    Course { way, may_wait: flags.has(Flags::BLOCKING) }
}

/// Reads one key specification. Returns `None` if it has no form that is understood here; then the
/// row's first and last key have to do.
fn key_spec(reply: &[u8]) -> Option<KeySpec> {
    let fields = raw::elements(reply)?;
    let begin = typed(field(&fields, "begin_search")?)?;
    let find = typed(field(&fields, "find_keys")?)?;
    let flags = raw::elements(field(&fields, "flags")?)?;
    if flags.iter().any(|flag| raw::text(flag).is_some_and(|flag| flag == b"not_key")) {
        return None;
    }
    let size = |fields: &[&[u8]], name: &str| {
        usize::try_from(raw::integer(field(fields, name)?)?).ok().filter(|&size| size < 1 << 16)
    };
    let (b"index", begin) = (begin.0, begin.1) else { return None };
    let begin = Begin::Index(size(&begin, "index").filter(|&index| index > 0)?);
    let find = match find {
        (b"range", fields) => Find::Range {
            last: i32::try_from(raw::integer(field(&fields, "lastkey")?)?).ok()?,
            step: size(&fields, "keystep")?.max(1),
            limit: size(&fields, "limit")?,
        },
        (b"keynum", fields) => Find::KeyNum {
            index: size(&fields, "keynumidx")?,
            first: size(&fields, "firstkey")?,
            step: size(&fields, "keystep")?.max(1),
        },
        _ => return None,
    };
    Some(KeySpec::new(KeyFlags::RW, begin, find))
}

/// Returns the value of a field. A map's keys and values take turns.
fn field<'a>(fields: &[&'a [u8]], name: &str) -> Option<&'a [u8]> {
    let mut pairs = fields.chunks_exact(2);
    pairs.find(|pair| raw::text(pair[0]) == Some(name.as_bytes())).map(|pair| pair[1])
}

/// Returns the type and the fields of one half of a specification.
fn typed(half: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let fields = raw::elements(half)?;
    Some((raw::text(field(&fields, "type")?)?, raw::elements(field(&fields, "spec")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::{About, Merge, Way};

    /// What Valkey says of a command, shortened to what is read.
    fn row(flags: &str, keys: [i64; 3], specs: &str, subcommands: &str) -> Vec<u8> {
        let [first, last, step] = keys;
        format!(
            "*10\r\n$1\r\nx\r\n:-2\r\n*1\r\n+{flags}\r\n:{first}\r\n:{last}\r\n:{step}\r\n\
             *0\r\n*0\r\n{specs}{subcommands}"
        )
        .into_bytes()
    }

    fn reply(row: &[u8]) -> Vec<u8> {
        [b"*1\r\n", row].concat()
    }

    const NONE: &str = "*0\r\n";

    #[track_caller]
    fn keys(reply: &[u8], request: &str) -> Vec<usize> {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        Learned::of_reply(reply).expect("the server knows it").keys(&words)
    }

    #[test]
    fn keys_are_where_the_server_says() {
        let all_but_last = reply(&row("write", [1, -2, 1], NONE, NONE));
        assert_eq!(keys(&all_but_last, "x a b path"), [1, 2]);
        assert_eq!(keys(&all_but_last, "x a"), [0usize; 0]);
        let pairs = reply(&row("write", [1, -1, 2], NONE, NONE));
        assert_eq!(keys(&pairs, "x a 1 b 2"), [1, 3]);
        let none = reply(&row("fast", [0, 0, 0], NONE, NONE));
        assert_eq!(keys(&none, "x a b"), [0usize; 0]);
    }

    #[test]
    fn a_number_of_keys_is_understood() {
        let spec = "*1\r\n*6\r\n$5\r\nflags\r\n*1\r\n+RO\r\n\
                    $12\r\nbegin_search\r\n*4\r\n$4\r\ntype\r\n$5\r\nindex\r\n\
                    $4\r\nspec\r\n*2\r\n$5\r\nindex\r\n:2\r\n\
                    $9\r\nfind_keys\r\n*4\r\n$4\r\ntype\r\n$6\r\nkeynum\r\n$4\r\nspec\r\n\
                    *6\r\n$9\r\nkeynumidx\r\n:0\r\n$8\r\nfirstkey\r\n:1\r\n$7\r\nkeystep\r\n:1\r\n";
        let counted = reply(&row("movablekeys", [0, 0, 0], spec, NONE));
        assert_eq!(keys(&counted, "x how 2 a b more"), [3, 4]);
        assert_eq!(keys(&counted, "x how 9 a"), [0usize; 0]);
    }

    #[test]
    fn a_subcommand_has_keys_of_its_own_and_may_wait() {
        let subs = [b"*1\r\n", &row("blocking", [2, 2, 1], NONE, NONE)[..]].concat();
        let subs = String::from_utf8(subs).expect("text").replacen("$1\r\nx", "$3\r\nx|a", 1);
        let container = reply(&row("admin", [0, 0, 0], NONE, &subs));
        let learned = Learned::of_reply(&container).expect("the server knows it");
        assert_eq!(learned.keys(&[b"x", b"A", b"k"]), [2]);
        let waiting = Course { way: Way::Keys, may_wait: true };
        assert_eq!(learned.course(&[b"x", b"A", b"k"]), waiting);
        assert_eq!(learned.course(&[b"x", b"b", b"k"]), Course::by(Way::OneServer));
    }

    #[test]
    fn tips_say_which_servers_a_command_concerns() {
        let with_tips = |flags: &str, keys, tips: &str| {
            let row = String::from_utf8(row(flags, keys, NONE, NONE)).expect("text");
            // Categories are in front of the tips.
            let row = row.replacen("*0\r\n*0\r\n", &format!("*0\r\n{tips}"), 1);
            Learned::of_reply(&reply(row.as_bytes())).expect("the server knows it")
        };
        let tips = "*1\r\n$26\r\nrequest_policy:multi_shard\r\n";
        let all_but_last = with_tips("readonly", [1, -2, 1], tips);
        let way = all_but_last.course(&[b"x", b"a", b"b", b"path"]).way;
        assert!(matches!(way, Way::Split { merge: Merge::Places, .. }), "{way:?}");
        let one = with_tips("readonly", [1, 1, 1], tips);
        assert_eq!(one.course(&[b"x", b"a"]), Course::by(Way::Keys));
        let tips = "*2\r\n$25\r\nrequest_policy:all_shards\r\n\
                    $23\r\nresponse_policy:agg_sum\r\n";
        let way = with_tips("readonly", [0, 0, 0], tips).course(&[b"x"]).way;
        assert_eq!(way, Way::All { merge: Merge::Sum, about: About::AllKeys });
        let waits = with_tips("blocking", [0, 0, 0], tips).course(&[b"x"]);
        assert_eq!(waits, Course { way: Way::Keys, may_wait: true });
    }

    #[test]
    fn unknown_names_are_asked_for_again_and_are_bounded() {
        let now = Instant::now();
        let mut vocabulary = Vocabulary::default();
        vocabulary.note("X".into(), b"*1\r\n*-1\r\n", now);
        assert!(matches!(vocabulary.find("X", now), Some(Meaning::Unknown)));
        assert!(vocabulary.find("X", now + UNKNOWN_FOR).is_none());
        vocabulary.note("X".into(), b"-LOADING wait\r\n", now);
        assert!(matches!(vocabulary.find("X", now), Some(Meaning::Unclear(_))));
        let row = reply(&row("write", [1, 1, 1], NONE, NONE));
        vocabulary.note("X".into(), &row, now);
        assert!(matches!(vocabulary.find("X", now + UNKNOWN_FOR), Some(Meaning::Known(_))));
        for name in 0..3 * MAX_UNKNOWN {
            vocabulary.note(name.to_string(), b"*1\r\n*-1\r\n", now);
        }
        assert!(vocabulary.others.len() <= MAX_UNKNOWN);
    }

    #[test]
    fn hostile_descriptions_are_survived() {
        for keys in [[1, i64::MAX, i64::MAX], [1, i64::MIN, 0], [i64::MAX, -1, 1], [5, 2, 1]] {
            let row = reply(&row("write", keys, NONE, NONE));
            let learned = Learned::of_reply(&row);
            let words: [&[u8]; 4] = [b"x", b"a", b"b", b"c"];
            assert!(learned.is_none_or(|it| it.keys(&words).iter().all(|&at| at < words.len())));
        }
    }
}
