//! What clients of a cluster change and read while it is disturbed, and what replies tell of it:
//! registers (SET), counters (INCR), lists that only grow (RPUSH), and sets (SADD, SREM).

use crate::history::model::Value;
use crate::history::{Action, State};
use crate::reply::Reply;
use crate::rng::Rng;

/// The members that a set can have.
const MEMBERS: u64 = 4;

/// What a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A string that is set.
    Register,
    /// A number that grows.
    Counter,
    /// A list that grows.
    List,
    /// A set whose members come and go.
    Set,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Register, Kind::Counter, Kind::List, Kind::Set];

    /// What keys of this kind begin with.
    pub fn letter(self) -> char {
        match self {
            Kind::Register => 'r',
            Kind::Counter => 'c',
            Kind::List => 'l',
            Kind::Set => 's',
        }
    }

    /// The kind of a key.
    ///
    /// # Panics
    /// It is none of theirs.
    pub fn of(key: &str) -> Kind {
        let is_its = |kind: &Kind| key.starts_with(kind.letter());
        Kind::ALL.into_iter().find(is_its).unwrap_or_else(|| panic!("what is {key}?"))
    }

    /// The state of an object before anything has changed it.
    fn initial(self) -> State {
        match self {
            Kind::Register | Kind::Counter => State::String(None),
            Kind::List => State::List([].into()),
            Kind::Set => State::Member(false),
        }
    }
}

/// An object of a history, what it was at first, and what was done to it.
pub type Step = (String, State, Action);

/// A request about a key.
#[derive(Clone, Debug)]
pub struct Request {
    kind: Kind,
    key: String,
    change: Option<Change>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Set(Value),
    Increment,
    Push(Value),
    Add(u64),
    Remove(u64),
}

impl Request {
    /// A request that changes a key, to a value that no other has.
    pub fn change(key: String, value: Value, rng: &mut Rng) -> Request {
        let kind = Kind::of(&key);
        let member = value % MEMBERS;
        let change = match kind {
            Kind::Register => Change::Set(value),
            Kind::Counter => Change::Increment,
            Kind::List => Change::Push(value),
            Kind::Set if rng.chance(50) => Change::Add(member),
            Kind::Set => Change::Remove(member),
        };
        Request { kind, key, change: Some(change) }
    }

    /// A request that reads all of a key.
    pub fn read(key: String) -> Request {
        Request { kind: Kind::of(&key), key, change: None }
    }

    /// The kind of its key.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it changes its key.
    pub fn is_change(&self) -> bool {
        self.change.is_some()
    }

    /// Its words.
    pub fn words(&self) -> Vec<String> {
        let words = |name: &str, value: Option<u64>| {
            let value = value.map(|value| value.to_string());
            [name.to_owned(), self.key.clone()].into_iter().chain(value).collect()
        };
        match (self.change, self.kind) {
            (Some(Change::Set(value)), _) => words("SET", Some(value)),
            (Some(Change::Increment), _) => words("INCR", None),
            (Some(Change::Push(value)), _) => words("RPUSH", Some(value)),
            (Some(Change::Add(member)), _) => words("SADD", Some(member)),
            (Some(Change::Remove(member)), _) => words("SREM", Some(member)),
            (None, Kind::Register | Kind::Counter) => words("GET", None),
            (None, Kind::Set) => words("SMEMBERS", None),
            (None, Kind::List) => ["LRANGE", &self.key, "0", "-1"].map(str::to_owned).to_vec(),
        }
    }

    fn step(&self, action: Action) -> Step {
        (self.key.clone(), self.kind.initial(), action)
    }

    fn member(&self, member: u64, action: Action) -> Step {
        (format!("{}/{member}", self.key), self.kind.initial(), action)
    }

    /// What it has done by its reply. `None`: an error.
    ///
    /// # Panics
    /// The reply is none that the command has.
    pub fn done(&self, reply: &Reply) -> Option<Vec<Step>> {
        if reply.is_error() {
            return None;
        }
        let flag = || match reply {
            Reply::Integer(0) => false,
            Reply::Integer(1) => true,
            other => panic!("{self:?}: {other:?}"),
        };
        Some(match self.change {
            Some(Change::Set(value)) => {
                assert!(matches!(reply, Reply::Simple(_)), "{self:?}: {reply:?}");
                vec![self.step(Action::Set(value))]
            }
            Some(Change::Increment) => vec![self.step(Action::Increment(self.number(reply)))],
            Some(Change::Push(value)) => {
                let length = usize::try_from(self.number(reply)).ok();
                vec![self.step(Action::Push { front: false, values: vec![value], length })]
            }
            Some(Change::Add(member)) => vec![self.member(member, Action::Add(flag()))],
            Some(Change::Remove(member)) => vec![self.member(member, Action::Remove(flag()))],
            None => self.seen(reply),
        })
    }

    fn seen(&self, reply: &Reply) -> Vec<Step> {
        let numbers = || -> Vec<Value> {
            let elements = reply.elements().unwrap_or_else(|| panic!("{self:?}: {reply:?}"));
            elements.iter().map(|element| self.number(element)).collect()
        };
        match self.kind {
            Kind::Register | Kind::Counter => {
                let value = (!reply.is_nil()).then(|| self.number(reply));
                vec![self.step(Action::Get(value))]
            }
            Kind::List => vec![self.step(Action::All(numbers()))],
            Kind::Set => {
                let there = numbers();
                assert!(there.iter().all(|member| *member < MEMBERS), "{self:?}: {reply:?}");
                let contains = |member| Action::Contains(there.contains(&member));
                (0..MEMBERS).map(|member| self.member(member, contains(member))).collect()
            }
        }
    }

    fn number(&self, reply: &Reply) -> Value {
        let text = || std::str::from_utf8(reply.text()?).ok()?.parse().ok();
        let number = match reply {
            Reply::Integer(number) => u64::try_from(*number).ok(),
            _ => text(),
        };
        number.unwrap_or_else(|| panic!("{self:?}: {reply:?}"))
    }

    /// What it may have done when there was no reply. `None`: nothing.
    pub fn in_doubt(&self) -> Option<Step> {
        Some(match self.change? {
            Change::Set(value) => self.step(Action::Set(value)),
            Change::Increment => self.step(Action::Increase),
            Change::Push(value) => {
                self.step(Action::Push { front: false, values: vec![value], length: None })
            }
            Change::Add(member) => self.member(member, Action::Arrive),
            Change::Remove(member) => self.member(member, Action::Leave),
        })
    }
}

/// The key of an object of a history: a set's members are objects.
pub fn key_of(object: &str) -> &str {
    object.split('/').next().unwrap_or(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_steps_and_doubts_are_possible_in_each_state() {
        let mut rng = Rng::new(1);
        for (key, reply, seen) in [
            ("r1", Reply::Simple(b"OK".to_vec()), Reply::Bulk(b"8".to_vec())),
            ("c1", Reply::Integer(1), Reply::Bulk(b"1".to_vec())),
            ("l1", Reply::Integer(1), Reply::Array(vec![Reply::Bulk(b"8".to_vec())])),
            ("s1", Reply::Integer(1), Reply::Array(vec![Reply::Bulk(b"0".to_vec())])),
        ] {
            let mut change = Request::change(key.into(), 8, &mut rng);
            while matches!(change.change, Some(Change::Remove(_))) {
                change = Request::change(key.into(), 8, &mut rng);
            }
            let done = change.done(&reply).expect("it is no error").remove(0);
            assert_eq!(key_of(&done.0), key);
            let state = done.1.after(&done.2).expect("it is possible at first");
            let read = Request::read(key.into()).done(&seen).expect("it is no error").remove(0);
            assert_eq!(read.0, done.0);
            assert_eq!(state.after(&read.2), Some(state.clone()), "{key}");
            assert_eq!(done.1.after(&read.2), None, "{key}");
            let doubt = change.in_doubt().expect("it changes something");
            let states = [&doubt.1, &state].map(|state| state.after(&doubt.2));
            assert!(states.iter().all(Option::is_some), "{key}");
            assert!(Request::read(key.into()).in_doubt().is_none());
        }
    }
}
