//! What a sequential server does to one object: a string, a counter, a list, a member of a set.

use std::collections::VecDeque;

/// Values are numbers, different in every write.
pub type Value = u64;

/// The state of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A string; a counter's is its number.
    String(Option<Value>),
    /// A list.
    List(VecDeque<Value>),
    /// Whether a member is in a set.
    Member(bool),
}

/// An operation with its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// GET, and what it replied
    Get(Option<Value>),
    /// SET
    Set(Value),
    /// SET with NX, and whether it did
    SetIfNone(Value, bool),
    /// GETSET, and the value before
    Swap(Value, Option<Value>),
    /// DEL, and whether there was something
    Delete(bool),
    /// INCR, and its reply
    Increment(Value),
    /// INCR whose reply is not known
    Increase,
    /// A transaction that found the first value under WATCH and set the second
    CompareAndSet(Option<Value>, Value),
    /// LPUSH or RPUSH, and the length it replied if that is known
    Push {
        /// At the list's head
        front: bool,
        /// What is pushed, one after the other
        values: Vec<Value>,
        /// The reply
        length: Option<usize>,
    },
    /// LPOP, RPOP and their blocking forms, and what they replied
    Pop {
        /// From the list's head
        front: bool,
        /// The reply
        value: Option<Value>,
    },
    /// LRANGE of all, and what it replied
    All(Vec<Value>),
    /// SADD, and whether it was new
    Add(bool),
    /// SREM, and whether it was there
    Remove(bool),
    /// SMOVE to this set, which does not tell whether it was there already, or SADD whose reply is
    /// not known
    Arrive,
    /// SREM whose reply is not known
    Leave,
    /// SISMEMBER
    Contains(bool),
    /// A transaction: these in order with nothing between
    Together(Vec<Action>),
}

impl State {
    /// The state after the action, or `None` if the action's reply is impossible in this state.
    pub fn after(&self, action: &Action) -> Option<State> {
        if let Action::Together(actions) = action {
            return actions.iter().try_fold(self.clone(), |state, action| state.after(action));
        }
        match self {
            State::String(value) => string_after(*value, action).map(State::String),
            State::List(list) => list_after(list, action).map(State::List),
            State::Member(there) => match *action {
                Action::Add(new) if new != *there => Some(State::Member(true)),
                Action::Remove(was) if was == *there => Some(State::Member(false)),
                Action::Arrive => Some(State::Member(true)),
                Action::Leave => Some(State::Member(false)),
                Action::Contains(reply) if reply == *there => Some(self.clone()),
                _ => None,
            },
        }
    }
}

fn string_after(value: Option<Value>, action: &Action) -> Option<Option<Value>> {
    match *action {
        Action::Get(reply) if reply == value => Some(value),
        Action::Set(new) => Some(Some(new)),
        Action::SetIfNone(new, true) if value.is_none() => Some(Some(new)),
        Action::SetIfNone(_, false) if value.is_some() => Some(value),
        Action::Swap(new, before) if before == value => Some(Some(new)),
        Action::Delete(was) if was == value.is_some() => Some(None),
        Action::Increment(reply) if reply == value.unwrap_or(0) + 1 => Some(Some(reply)),
        Action::Increase => Some(Some(value.unwrap_or(0) + 1)),
        Action::CompareAndSet(seen, new) if seen == value => Some(Some(new)),
        _ => None,
    }
}

fn list_after(list: &VecDeque<Value>, action: &Action) -> Option<VecDeque<Value>> {
    match action {
        Action::Push { front, values, length } => {
            let mut list = list.clone();
            for value in values {
                if *front { list.push_front(*value) } else { list.push_back(*value) }
            }
            length.is_none_or(|length| length == list.len()).then_some(list)
        }
        Action::Pop { front, value } => {
            let mut list = list.clone();
            let popped = if *front { list.pop_front() } else { list.pop_back() };
            (popped == *value).then_some(list)
        }
        Action::All(reply) => list.iter().eq(reply).then(|| list.clone()),
        Action::Delete(was) => (*was != list.is_empty()).then(VecDeque::new),
        _ => None,
    }
}
