//! The rule for every value at the coordinator that versions share.
//!
//! - **Unknown fields are kept.** A later version may have written fields that this one does not
//!   know. [`Later`] is what of a value was not understood; a changed value gets it back.
//! - **A value says which versions may write it.** [`check_writer`] compares the number with
//!   [`WRITER`]; a version that may not write goes on reading.
//! - **A value that cannot be read is left alone.** The reader says so
//!   ([`crate::coordinator::Failure::Unreadable`]) and goes on with what it has.
//!
//! A version that writes fields which earlier ones may drop or ignore does nothing. One that writes
//! fields whose meaning earlier ones would break raises the number in the same transaction.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What this version may write: values that name a greater number are changed by later versions
/// only.
pub const WRITER: u32 = 1;

/// Refuses to change a value that names a greater number than [`WRITER`].
///
/// # Errors
/// What to do.
pub fn check_writer(least: u32) -> Result<(), String> {
    match least <= WRITER {
        true => Ok(()),
        false => Err(format!(
            "what is at the coordinator may be changed by later versions only (it names {least}, \
             this is {WRITER}): start this server with the version of the others"
        )),
    }
}

/// What of a value was not understood: fields, at their places.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Later {
    /// The value of `id` of the object, if it has one: it is kept only for that.
    id: Option<Value>,
    /// Fields that are not known.
    fields: Map<String, Value>,
    /// What was not understood in fields that are known.
    inside: BTreeMap<String, Later>,
    /// The same for elements of a list, by [`name_of`].
    elements: BTreeMap<String, Later>,
}

/// The names by which objects in lists are told apart.
const NAMES: [&str; 2] = ["id", "copy"];

/// Returns what tells an element of a list from others: its name, or all of it that is known.
fn name_of(known: &Value) -> String {
    let name = NAMES.iter().find_map(|name| known.get(name));
    name.unwrap_or(known).to_string()
}

impl Later {
    /// Returns what of a value is not in the form that was read of it.
    pub fn of(value: &Value, known: &Value) -> Later {
        let mut later = Later::default();
        match (value, known) {
            (Value::Object(value), Value::Object(known)) => {
                later.id = known.get("id").cloned();
                for (name, field) in value {
                    match known.get(name) {
                        None => drop(later.fields.insert(name.clone(), field.clone())),
                        Some(known) => {
                            let inside = Later::of(field, known);
                            if !inside.is_empty() {
                                later.inside.insert(name.clone(), inside);
                            }
                        }
                    }
                }
            }
            (Value::Array(value), Value::Array(known)) if value.len() == known.len() => {
                for (value, known) in value.iter().zip(known) {
                    let inside = Later::of(value, known);
                    if !inside.is_empty() {
                        later.elements.insert(name_of(known), inside);
                    }
                }
            }
            _ => {}
        }
        later
    }

    /// Reads what of a value a type does not understand. A value that is not readable has nothing
    /// that could be kept: it is left alone.
    pub fn read<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Later {
        let value: Option<Value> = serde_json::from_slice(bytes).ok();
        let known: Option<T> = serde_json::from_slice(bytes).ok();
        let known = known.and_then(|known| serde_json::to_value(known).ok());
        value.zip(known).map_or_else(Later::default, |(value, known)| Later::of(&value, &known))
    }

    /// Returns whether all was understood.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.inside.is_empty() && self.elements.is_empty()
    }

    /// Puts what was not understood into the changed value. Fields of objects and elements that are
    /// not there any more are dropped with them.
    pub fn put_into(&self, value: &mut Value) {
        match value {
            Value::Object(map) if self.id.is_none() || map.get("id") == self.id.as_ref() => {
                for (name, field) in &self.fields {
                    map.entry(name.clone()).or_insert_with(|| field.clone());
                }
                for (name, inside) in &self.inside {
                    if let Some(field) = map.get_mut(name) {
                        inside.put_into(field);
                    }
                }
            }
            Value::Array(list) if !self.elements.is_empty() => {
                for element in list {
                    if let Some(inside) = self.elements.get(&name_of(element)) {
                        inside.put_into(element);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the JSON of a changed value with what was not understood in it.
    pub fn keep(&self, encoded: Vec<u8>) -> Vec<u8> {
        if self.is_empty() {
            return encoded;
        }
        let Ok(mut value) = serde_json::from_slice::<Value>(&encoded) else { return encoded };
        self.put_into(&mut value);
        serde_json::to_vec(&value).expect("JSON can be written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_understood_is_kept_where_it_was() {
        let value = json!({
            "known": 1, "new": 2,
            "list": [{"id": "a", "more": 3}, {"id": "b"}, {"text": "x", "more": 4}],
            "of": {"id": "a", "since": 5},
        });
        let known = json!({
            "known": 1, "list": [{"id": "a"}, {"id": "b"}, {"text": "x"}], "of": {"id": "a"},
        });
        let later = Later::of(&value, &known);
        let mut same = known.clone();
        later.put_into(&mut same);
        assert_eq!(same, value);
        // Elements have moved, one is gone, and another object has come.
        let mut changed =
            json!({"known": 7, "list": [{"id": "b"}, {"id": "a"}, {"id": "c"}], "of": {"id": "b"}});
        later.put_into(&mut changed);
        let expected = json!({
            "known": 7, "new": 2,
            "list": [{"id": "b"}, {"id": "a", "more": 3}, {"id": "c"}], "of": {"id": "b"},
        });
        assert_eq!(changed, expected);
        assert!(Later::of(&known, &known).is_empty());
    }

    #[test]
    fn a_greater_number_is_for_later_versions() {
        assert_eq!((check_writer(0), check_writer(WRITER)), (Ok(()), Ok(())));
        assert!(check_writer(WRITER + 1).is_err_and(|why| why.contains("start this server with")));
    }
}
