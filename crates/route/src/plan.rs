//! A request becomes a plan.

use crate::cursor;
use crate::join::Joining;
use crate::raw;
use spec::{Gather, Groups, Local, Merge, Refusal, Session, Way};
use structs::numbers;

/// Where a key lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// The server's number.
    pub server: usize,
    /// Keys of one group may be in one request: the server's number, or a cluster's slot.
    pub group: usize,
}

/// Which server has a key.
pub trait Placement {
    /// Returns how many servers there are.
    fn servers(&self) -> usize;
    /// Where a key lives; `None` if no server is there for it at the moment.
    fn place(&self, key: &[u8]) -> Option<KeyPlace>;
    /// A server that can answer what concerns no key.
    fn any(&self) -> Option<usize>;
    /// What numbers of a walk stay below, also when servers come or go.
    fn radix(&self) -> usize {
        self.servers()
    }
    /// The first number of a walk over all servers, from this one on.
    fn walk_from(&self, number: usize) -> Option<usize> {
        (number < self.servers()).then_some(number)
    }
    /// Whether clients listen to a channel at any server, not at the one that the channel belongs to.
    fn listens_anywhere(&self) -> bool {
        false
    }
    /// The first server of a walk, or any.
    fn first(&self) -> Option<usize> {
        self.walk_from(0).and_then(|number| self.walked(number)).or_else(|| self.any())
    }
    /// The server that has this number in a walk; `None` if none has it any more.
    fn walked(&self, number: usize) -> Option<usize> {
        Some(number)
    }
}

/// How a request travels, by the row of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Where it goes.
    pub way: Way,
    /// Whether it may wait, so that it needs a connection of its own.
    pub may_wait: bool,
}

impl Course {
    /// It goes this way, and does not wait.
    pub fn by(way: Way) -> Course {
        Course { way, may_wait: false }
    }
}

/// A request whose command is known.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its words.
    pub words: &'a [&'a [u8]],
    /// Which of them are keys.
    pub keys: &'a [usize],
    /// How it travels.
    pub course: Course,
    /// Whether a request may be split although it is then not atomic.
    pub allows_split_writes: bool,
}

/// One server's part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The server.
    pub server: usize,
    /// What to send there.
    pub request: Vec<u8>,
}

/// Where a page of a walk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The server's number in the walk.
    pub number: usize,
    /// What such numbers stay below.
    pub radix: usize,
    /// The number behind it.
    pub following: Option<usize>,
}

/// A page of SCAN. Programs and people look at the first page only, so a page that is not full when
/// a server has no more keys goes on at the next one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    walk: Walk,
    /// The request, with the cursor of the last server that was asked.
    request: Vec<u8>,
    /// Keys that make it full.
    wanted: usize,
    /// Keys that were found, as elements of a reply, and their number.
    keys: Vec<u8>,
    found: usize,
    /// Servers that were asked.
    asked: usize,
}

/// So many servers are asked for one page at most.
const MAX_ASKED: usize = 16;
/// What SCAN's COUNT is without the word.
const COUNT: usize = 10;

/// Where a request goes.
#[derive(Debug)]
pub enum Plan {
    /// Nowhere.
    Local(Local),
    /// As it is to one server.
    One(usize),
    /// As it is to one server, on a connection of its own.
    Exclusive(usize),
    /// To several, and the replies are joined.
    Pieces(Vec<Piece>, Joining),
    /// As it is to every server.
    All(Merge),
    /// In these words to every server, and the reply is made of theirs.
    Gather(Vec<u8>, &'static Gather),
    /// The first request for a page of a walk over all servers, and the page.
    Scan(Piece, Page),
    /// It opens or uses a connection of its own; the server of its keys, if it has any.
    Session(Session, Option<usize>),
    /// It is answered with this error.
    Refuse(String),
}

/// What a client is told whose key has no server at the moment.
pub const NO_SERVER: &str = "NOREPLY no server is available for this key";

const ONE_SERVER: &str = "it concerns one server, and there are several; ask that server directly";
const WAITS: &str = "the proxy shares connections, so a server cannot tell your writes from those of \
    others; set min-replicas-to-write on the server instead";

/// Returns why requests that go this way are refused, if they are, however many servers there are.
pub fn refusal(way: Way) -> Option<&'static str> {
    let refusal = match way {
        Way::Written(_) => return Some(WAITS),
        Way::Refused(refusal) => refusal,
        _ => return None,
    };
    Some(match refusal {
        Refusal::Cluster => {
            "the proxy is one server to its clients; use a client without cluster mode"
        }
        Refusal::ClusterWalk => "the proxy is one server to its clients; use SCAN",
        Refusal::WholeConnection => {
            "it takes a whole connection to one server; connect to the server directly"
        }
        Refusal::Replica => "it makes the client a replica; connect to the server directly",
        Refusal::UnnamedKeys => {
            "its patterns name keys that may be on other servers; begin them with the key's hash tag, \
             as in {tag}*"
        }
    })
}

fn shown(words: &[&[u8]]) -> String {
    words.first().map_or_else(String::new, |name| {
        String::from_utf8_lossy(name).chars().take(64).collect::<String>().to_lowercase()
    })
}

/// The one server of all keys.
fn server_of(request: &Request<'_>, placement: &dyn Placement) -> Result<Option<usize>, String> {
    let mut found: Option<KeyPlace> = None;
    for &at in request.keys {
        let Some(place) = placement.place(request.words[at]) else {
            return Err(NO_SERVER.to_owned());
        };
        match found {
            Some(before) if before.server != place.server => {
                return Err(format!(
                    "CROSSSLOT '{}' needs all its keys on one server, and these are on several; \
                     give them a common hash tag",
                    shown(request.words)
                ));
            }
            _ => found = Some(place),
        }
    }
    Ok(found.map(|place| place.server))
}

fn one(request: &Request<'_>, placement: &dyn Placement, make: impl FnOnce(usize) -> Plan) -> Plan {
    match server_of(request, placement) {
        Err(why) => Plan::Refuse(why),
        Ok(server) => match server.or_else(|| placement.any()) {
            Some(server) => make(server),
            None => Plan::Refuse(NO_SERVER.to_owned()),
        },
    }
}

/// Decides where a request goes.
pub fn plan(request: &Request<'_>, placement: &dyn Placement) -> Plan {
    let has_one_server = placement.servers() == 1;
    let first = || match (placement.first().unwrap_or(0), request.course.may_wait) {
        (server, true) => Plan::Exclusive(server),
        (server, false) => Plan::One(server),
    };
    match request.course.way {
        Way::Keys if request.course.may_wait => one(request, placement, Plan::Exclusive),
        Way::Keys => one(request, placement, Plan::One),
        Way::Split { groups, merge } => split(request, groups, merge, placement),
        Way::All { .. } if has_one_server => first(),
        Way::All { merge: Merge::Gather(gather), .. } => match (gather.ask)(request.words) {
            None => Plan::All(Merge::Concat),
            Some(words) => {
                let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
                Plan::Gather(raw::request(&words), gather)
            }
        },
        Way::All { merge, .. } => Plan::All(merge),
        Way::Scan => scan(request, placement),
        Way::Message if placement.listens_anywhere() && has_one_server => first(),
        Way::Message if placement.listens_anywhere() => Plan::All(Merge::Sum),
        Way::Message => {
            let place = request.words.get(1).and_then(|channel| placement.place(channel));
            match place.map(|place| place.server).or_else(|| placement.any()) {
                Some(server) => Plan::One(server),
                None => Plan::Refuse(NO_SERVER.to_owned()),
            }
        }
        Way::Local(local) => Plan::Local(local),
        Way::Session(session) => match server_of(request, placement) {
            Ok(server) => Plan::Session(session, server),
            Err(why) => Plan::Refuse(why),
        },
        Way::OneServer if has_one_server => first(),
        way @ (Way::OneServer | Way::Written(_) | Way::Refused(_)) => Plan::Refuse(format!(
            "ERR '{}' does not work through the proxy: {}",
            shown(request.words),
            refusal(way).unwrap_or(ONE_SERVER)
        )),
    }
}

/// The words of some groups, and the places of these groups among all.
struct Part<'a> {
    place: KeyPlace,
    words: Vec<&'a [u8]>,
    places: Vec<u32>,
}

/// Collects the groups of words by the servers of their keys.
fn split(request: &Request<'_>, groups: Groups, merge: Merge, placement: &dyn Placement) -> Plan {
    let Some(range) = groups.words(request.words) else {
        // Some server says what is wrong with it.
        return one(&Request { keys: &[], ..*request }, placement, Plan::One);
    };
    let mut parts: Vec<Part<'_>> = Vec::new();
    for (at, group) in request.words[range].chunks_exact(groups.step()).enumerate() {
        let Some(place) = placement.place(group[0]) else {
            return Plan::Refuse(NO_SERVER.to_owned());
        };
        match parts.iter_mut().find(|part| part.place.group == place.group) {
            Some(part) => {
                part.words.extend_from_slice(group);
                part.places.push(at as u32);
            }
            None => parts.push(Part { place, words: group.to_vec(), places: vec![at as u32] }),
        }
    }
    if let [only] = &parts[..] {
        return Plan::One(only.place.server);
    }
    if groups.step() > 1 && !request.allows_split_writes {
        return Plan::Refuse(format!(
            "CROSSSLOT '{}' over several servers is not atomic, and the pool is strict; give the \
             keys a common hash tag",
            shown(request.words)
        ));
    }
    let piece = |part: &Part<'_>| {
        let request = groups.piece(request.words, &part.words, raw::request)?;
        Some(Piece { server: part.place.server, request })
    };
    let pieces = parts.iter().filter_map(piece).collect();
    let joining = if merge == Merge::Places {
        Joining::with_places(parts.into_iter().map(|part| part.places).collect())
    } else {
        Joining::new(merge, parts.len())
    };
    Plan::Pieces(pieces, joining)
}

fn scan(request: &Request<'_>, placement: &dyn Placement) -> Plan {
    let servers = placement.servers();
    if servers == 1 {
        return placement.any().map_or_else(|| Plan::Refuse(NO_SERVER.to_owned()), Plan::One);
    }
    let Some(cursor) = request.words.get(1).and_then(|word| numbers::parse_u64(word)) else {
        return Plan::Refuse("ERR invalid cursor".to_owned());
    };
    let radix = placement.radix();
    let mut place = cursor::decode(cursor, radix);
    if place.at == 0 || placement.walked(place.number).is_none() {
        let Some(first) = placement.walk_from(place.number) else {
            return Plan::Refuse(NO_SERVER.to_owned());
        };
        place = cursor::Cursor { number: first, at: 0 };
    }
    let Some(server) = placement.walked(place.number) else {
        return Plan::Refuse(NO_SERVER.to_owned());
    };
    let walk =
        Walk { number: place.number, radix, following: placement.walk_from(place.number + 1) };
    let digits = place.at.to_string();
    let mut words = request.words.to_vec();
    words[1] = digits.as_bytes();
    let request = raw::request(&words);
    let wanted = count_of(&words).and_then(|at| numbers::parse_u64(words[at]));
    let wanted = wanted.map_or(COUNT, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let page = Page { walk, request: request.clone(), wanted, asked: 1, ..Page::default() };
    Plan::Scan(Piece { server, request }, page)
}

/// Which word of SCAN is the number behind COUNT.
fn count_of(words: &[&[u8]]) -> Option<usize> {
    let mut options = (2..words.len().saturating_sub(1)).step_by(2);
    options.find(|&at| words[at].eq_ignore_ascii_case(b"COUNT")).map(|at| at + 1)
}

/// The cursor and the keys of a server's reply to SCAN, and the number of keys. `None`: it is
/// another reply.
fn page_of(reply: &[u8]) -> Option<(u64, &[u8], usize)> {
    let parts = raw::elements(reply)?;
    let [next, keys] = parts[..] else { return None };
    let next = raw::text(next).and_then(numbers::parse_u64)?;
    let count = raw::elements(keys)?.len();
    let begin = keys.iter().position(|&byte| byte == b'\n')? + 1;
    Some((next, &keys[begin..], count))
}

impl Page {
    /// Takes a server's reply, if another server is to be asked for the rest of the page. Returns
    /// what to ask it. `None`: the page is whole with this reply.
    pub fn next(&mut self, reply: &[u8], placement: &dyn Placement) -> Option<Piece> {
        let (0, keys, count) = page_of(reply)? else { return None };
        let found = self.found + count;
        if found >= self.wanted || self.asked >= MAX_ASKED {
            return None;
        }
        let number = placement.walk_from(self.walk.following?)?;
        let server = placement.walked(number)?;
        let rest = (self.wanted - found).to_string();
        let request = std::mem::take(&mut self.request);
        let mut words = raw::words(&request)?;
        words[1] = b"0";
        match count_of(&words) {
            Some(at) => words[at] = rest.as_bytes(),
            None => words.extend([&b"COUNT"[..], rest.as_bytes()]),
        }
        self.request = raw::request(&words);
        self.keys.extend_from_slice(keys);
        self.found = found;
        self.asked += 1;
        let following = placement.walk_from(number + 1);
        self.walk = Walk { number, following, ..self.walk };
        Some(Piece { server, request: self.request.clone() })
    }

    /// The whole page, by the last server's reply, with the client's cursor in place of the
    /// server's.
    pub fn finish(&self, reply: &[u8]) -> Vec<u8> {
        let Some((next, keys, count)) = page_of(reply) else { return reply.to_vec() };
        let Walk { number, radix, following } = self.walk;
        let Some(cursor) = cursor::encode(number, next, radix, following) else {
            return raw::error("ERR the server's cursor is too large to be carried on");
        };
        let mut out = Vec::with_capacity(self.keys.len() + reply.len() + 32);
        resp::bulk::push_header(&mut out, b'*', 2);
        resp::bulk::push_bulk(&mut out, cursor.to_string().as_bytes());
        resp::bulk::push_header(&mut out, b'*', self.found + count);
        out.extend_from_slice(&self.keys);
        out.extend_from_slice(keys);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use resp::Protocol;
    use spec::{About, Begin, Find, KeyFlags, KeySpec};
    use std::collections::BTreeMap;

    /// A key lives where its last byte says.
    struct ByLastByte(usize);

    impl Placement for ByLastByte {
        fn servers(&self) -> usize {
            self.0
        }
        fn place(&self, key: &[u8]) -> Option<KeyPlace> {
            let server = usize::from(*key.last().unwrap_or(&0)) % self.0;
            Some(KeyPlace { server, group: server })
        }
        fn any(&self) -> Option<usize> {
            Some(0)
        }
    }

    fn split_by(spec: KeySpec, merge: Merge) -> Way {
        Way::Split { groups: Groups::of(&[spec]).expect("they form groups"), merge }
    }

    /// How some commands travel, by their names.
    fn course(name: &[u8]) -> Course {
        const RO: KeyFlags = KeyFlags::RO;
        let counted = Find::KeyNum { index: 0, first: 1, step: 2 };
        let way = match name {
            b"BLPOP" => return Course { way: Way::Keys, may_wait: true },
            b"DBSIZE" => Way::All { merge: Merge::Sum, about: About::AllKeys },
            b"MONITOR" => Way::Refused(Refusal::WholeConnection),
            b"SCAN" => Way::Scan,
            b"MGET" => split_by(KeySpec::rest(1, 1, RO), Merge::Places),
            b"MSET" => split_by(KeySpec::rest(1, 2, RO), Merge::First),
            b"MSETEX" => split_by(KeySpec::new(RO, Begin::Index(1), counted), Merge::First),
            b"DEL" => split_by(KeySpec::rest(1, 1, RO), Merge::Sum),
            _ => Way::Keys,
        };
        Course::by(way)
    }

    fn plan_of(text: &str, keys: &[usize], servers: usize) -> Plan {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let course = course(words[0]);
        let request = Request { words: &words, keys, course, allows_split_writes: true };
        plan(&request, &ByLastByte(servers))
    }

    #[test]
    fn requests_go_where_their_keys_are() {
        assert!(matches!(plan_of("GET k3", &[1], 4), Plan::One(3)));
        assert!(matches!(plan_of("BLPOP k1 0", &[1], 4), Plan::Exclusive(1)));
        assert!(matches!(plan_of("SINTER a1 b1", &[1, 2], 4), Plan::One(1)));
        assert!(matches!(plan_of("SINTER a1 b2", &[1, 2], 4), Plan::Refuse(_)));
        assert!(matches!(plan_of("DBSIZE", &[], 4), Plan::All(Merge::Sum)));
        assert!(matches!(plan_of("DBSIZE", &[], 1), Plan::One(0)));
        assert!(matches!(plan_of("MONITOR", &[], 4), Plan::Refuse(_)));
        assert!(matches!(plan_of("MGET", &[], 4), Plan::One(0)));
        assert!(matches!(plan_of("MSET a 1 b", &[], 4), Plan::One(0)));
    }

    #[test]
    fn pieces_begin_and_end_as_the_whole() {
        let Plan::Pieces(pieces, _) = plan_of("MSETEX 3 a1 x b2 y c1 z EX 9", &[], 4) else {
            panic!("it is not split")
        };
        let expected: [&[&[u8]]; 2] = [
            &[b"MSETEX", b"2", b"a1", b"x", b"c1", b"z", b"EX", b"9"],
            &[b"MSETEX", b"1", b"b2", b"y", b"EX", b"9"],
        ];
        let pieces: Vec<_> = pieces.into_iter().map(|it| (it.server, it.request)).collect();
        let expected = [(1, raw::request(expected[0])), (2, raw::request(expected[1]))];
        assert_eq!(pieces, expected);
        assert!(matches!(plan_of("MSETEX 4 a1 x b2 y", &[], 4), Plan::One(0)));
    }

    #[test]
    fn a_page_of_scan_carries_the_server() {
        let Plan::Scan(piece, page) = plan_of("SCAN 14 COUNT 5", &[], 4) else { panic!("no scan") };
        assert_eq!(piece.server, 2);
        assert_eq!(page.walk, Walk { number: 2, radix: 4, following: Some(3) });
        assert_eq!(piece.request, raw::request(&[b"SCAN", b"3", b"COUNT", b"5"]));
        assert_eq!(page.finish(b"*2\r\n$1\r\n7\r\n*0\r\n"), b"*2\r\n$2\r\n30\r\n*0\r\n");
        let walk = Walk { number: 3, radix: 4, following: None };
        let last = Page { walk, wanted: 5, ..page };
        assert_eq!(last.finish(b"*2\r\n$1\r\n0\r\n*0\r\n"), b"*2\r\n$1\r\n0\r\n*0\r\n");
    }

    #[test]
    fn a_page_that_is_not_full_goes_on_at_the_next_server() {
        let Plan::Scan(_, mut page) = plan_of("SCAN 0 MATCH count TYPE string", &[], 3) else {
            panic!("no scan")
        };
        let servers = ByLastByte(3);
        let piece = page.next(b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n", &servers).expect("it goes on");
        let words: [&[u8]; 8] =
            [b"SCAN", b"0", b"MATCH", b"count", b"TYPE", b"string", b"COUNT", b"9"];
        assert_eq!((piece.server, piece.request), (1, raw::request(&words)));
        let piece = page.next(b"*2\r\n$1\r\n0\r\n*0\r\n", &servers).expect("it goes on");
        assert_eq!((piece.server, piece.request), (2, raw::request(&words)));
        let reply = b"*2\r\n$1\r\n5\r\n*1\r\n$1\r\nb\r\n";
        assert_eq!(page.next(reply, &servers), None, "the server has more");
        let whole = b"*2\r\n$2\r\n17\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";
        assert_eq!(page.finish(reply), whole);
        assert_eq!(page.next(b"*2\r\n$1\r\n0\r\n*0\r\n", &servers), None, "it is the last");
        assert_eq!(page.finish(b"-ERR no\r\n"), b"-ERR no\r\n");
    }

    /// Runs MSET and MGET on servers that are maps.
    fn run(servers: &mut [BTreeMap<Vec<u8>, Vec<u8>>], piece: &Piece) -> Vec<u8> {
        let words = raw::elements(&piece.request).expect("a request");
        let words: Vec<&[u8]> = words.iter().map(|w| raw::text(w).expect("a word")).collect();
        let server = &mut servers[piece.server];
        let mut out = Vec::new();
        match words[0] {
            b"MSET" => {
                for pair in words[1..].chunks_exact(2) {
                    server.insert(pair[0].to_vec(), pair[1].to_vec());
                }
                out.extend_from_slice(b"+OK\r\n");
            }
            b"MGET" => {
                resp::bulk::push_header(&mut out, b'*', words.len() - 1);
                for key in &words[1..] {
                    match server.get(*key) {
                        Some(value) => resp::bulk::push_bulk(&mut out, value),
                        None => raw::push_null(&mut out, Protocol::Resp2),
                    }
                }
            }
            _ => {
                let gone = words[1..].iter().filter(|key| server.remove(**key).is_some()).count();
                raw::push_integer(&mut out, gone as i64);
            }
        }
        out
    }

    fn whole(servers: &mut [BTreeMap<Vec<u8>, Vec<u8>>], words: &[&[u8]]) -> Vec<u8> {
        let course = course(words[0]);
        let request = Request { words, keys: &[], course, allows_split_writes: true };
        match plan(&request, &ByLastByte(servers.len())) {
            Plan::One(server) => run(servers, &Piece { server, request: raw::request(words) }),
            Plan::Pieces(pieces, mut joining) => {
                for (at, piece) in pieces.iter().enumerate().rev() {
                    let reply = run(servers, piece);
                    joining.put(at, reply);
                }
                joining.finish(Protocol::Resp2)
            }
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn several_servers_answer_as_one(
            pairs in prop::collection::vec(("[a-d]{1,2}", "[a-z]{0,9}"), 1..20),
            asked in prop::collection::vec("[a-e]{1,2}", 1..20),
            count in 1usize..6,
        ) {
            let (mut many, mut single) = (vec![BTreeMap::new(); count], vec![BTreeMap::new()]);
            let mut set: Vec<&[u8]> = vec![b"MSET"];
            pairs.iter().for_each(|(k, v)| set.extend([k.as_bytes(), v.as_bytes()]));
            let mut get: Vec<&[u8]> = vec![b"MGET"];
            get.extend(asked.iter().map(|key| key.as_bytes()));
            let mut del = get.clone();
            del[0] = b"DEL";
            for request in [&set, &get, &del, &get] {
                prop_assert_eq!(whole(&mut many, request), whole(&mut single, request));
            }
        }
    }
}
