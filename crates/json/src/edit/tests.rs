//! Random changes of random documents, beside a plain model.

use super::*;
use crate::{Limits, Path, location};
use proptest::prelude::*;
use serde_json::{Map, Value as Model, json};

fn document(model: &Model) -> Document {
    Document::parse(model.to_string().as_bytes(), &Limits::default()).unwrap()
}

fn model_of(value: Value<'_>) -> Model {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn scalar() -> impl Strategy<Value = Model> {
    prop_oneof![
        Just(Model::Null),
        any::<bool>().prop_map(Model::from),
        (-200i64..200).prop_map(Model::from),
        any::<i64>().prop_map(Model::from),
        (-4000i32..4000).prop_map(|number| json!(f64::from(number) / 8.0)),
        (-4000i32..4000).prop_map(|number| json!(f64::from(number) / 100.0)),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Model::from),
        "[a-c]{0,3}".prop_map(Model::from),
        "[a-c\\n\"é]{0,40}".prop_map(Model::from),
    ]
}

fn model() -> impl Strategy<Value = Model> {
    scalar().prop_recursive(4, 60, 12, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..12).prop_map(Model::from),
            proptest::collection::vec(-300i64..300, 0..12).prop_map(Model::from),
            proptest::collection::vec(
                "[a-f]{1,2}".prop_flat_map(move |name| inner
                    .clone()
                    .prop_map(move |value| (name.clone(), value))),
                0..8
            )
            .prop_map(|members| Model::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

#[derive(Clone, Debug)]
enum Change {
    Replace(Model),
    InsertMember(String, Model),
    Remove,
    Merge(Model),
    Add(Model),
    Multiply(Model),
    AppendString(String),
    Toggle,
    Clear,
    Append(Vec<Model>),
    Insert(i64, Vec<Model>),
    Pop(i64),
    Trim(i64, i64),
}

fn change() -> impl Strategy<Value = Change> {
    let number = || prop_oneof![(-9i64..9).prop_map(Model::from), Just(json!(0.5))];
    let few = || proptest::collection::vec(model(), 0..4);
    prop_oneof![
        model().prop_map(Change::Replace),
        ("[a-z]{1,2}", model()).prop_map(|(name, value)| Change::InsertMember(name, value)),
        Just(Change::Remove),
        model().prop_map(Change::Merge),
        number().prop_map(Change::Add),
        number().prop_map(Change::Multiply),
        "[xyz]{0,9}".prop_map(Change::AppendString),
        Just(Change::Toggle),
        Just(Change::Clear),
        few().prop_map(Change::Append),
        (-6i64..14, few()).prop_map(|(at, values)| Change::Insert(at, values)),
        (-14i64..14).prop_map(Change::Pop),
        (-14i64..14, -14i64..14).prop_map(|(start, stop)| Change::Trim(start, stop)),
    ]
}

/// The names and positions of the children on the way to a location.
fn model_at<'m>(model: &'m mut Model, document: &Document, at: &Location) -> &'m mut Model {
    let mut here = model;
    let mut value = document.root();
    for step in at.steps() {
        here = match value.as_object() {
            Some(object) => {
                let name = object.names().nth(step).unwrap();
                here.get_mut(name).unwrap()
            }
            None => here.get_mut(step).unwrap(),
        };
        value = value.child(step).unwrap();
    }
    here
}

fn merged(target: &mut Model, patch: &Model) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merged(target.entry(name.clone()).or_insert(Model::Null), value);
        }
    }
}

fn computed(model: &Model, with: &Model, multiply: bool) -> Option<Model> {
    let ints = model.as_i64().zip(with.as_i64()).filter(|_| !model.is_f64() && !with.is_f64());
    let int = ints.and_then(|(a, b)| if multiply { a.checked_mul(b) } else { a.checked_add(b) });
    if let Some(int) = int {
        return Some(Model::from(int));
    }
    let (a, b) = (model.as_f64()?, with.as_f64()?);
    let double = if multiply { a * b } else { a + b };
    double.is_finite().then(|| Model::from(double))
}

/// Applies a change to the model. Returns whether it should succeed.
fn apply(model: &mut Model, change: &Change) -> bool {
    match change {
        Change::Replace(value) => *model = value.clone(),
        Change::InsertMember(name, value) => match model.as_object_mut() {
            Some(object) => {
                object.insert(name.clone(), value.clone());
            }
            None => return false,
        },
        Change::Remove => unreachable!("the parent is changed"),
        Change::Merge(patch) => merged(model, patch),
        Change::Add(by) | Change::Multiply(by) => {
            let multiply = matches!(change, Change::Multiply(_));
            match computed(model, by, multiply) {
                Some(result) => *model = result,
                None => return false,
            }
        }
        Change::AppendString(more) => match model {
            Model::String(text) => text.push_str(more),
            _ => return false,
        },
        Change::Toggle => match model {
            Model::Bool(bool) => *bool = !*bool,
            _ => return false,
        },
        Change::Clear => match model {
            Model::Array(array) => array.clear(),
            Model::Object(object) => object.clear(),
            Model::Number(number) if number.as_f64() != Some(0.0) => *model = json!(0),
            _ => {}
        },
        _ => match model {
            Model::Array(array) => return apply_to_array(array, change),
            _ => return false,
        },
    }
    true
}

fn apply_to_array(array: &mut Vec<Model>, change: &Change) -> bool {
    let len = array.len() as i64;
    match change {
        Change::Append(values) => array.extend_from_slice(values),
        Change::Insert(at, values) => {
            let at = if *at < 0 { at + len } else { *at };
            if !(0..=len).contains(&at) {
                return false;
            }
            array.splice(at as usize..at as usize, values.iter().cloned());
        }
        Change::Pop(at) => {
            if len > 0 {
                let at = if *at < 0 { (at + len).max(0) } else { (*at).min(len - 1) };
                array.remove(at as usize);
            }
        }
        Change::Trim(start, stop) => {
            let absolute = |at: i64| if at < 0 { (at + len).max(0) } else { at };
            let (start, stop) = (absolute(*start), absolute(*stop).min(len - 1));
            if start > stop || start >= len {
                array.clear();
            } else {
                *array = array[start as usize..=stop as usize].to_vec();
            }
        }
        _ => unreachable!("it is no change of arrays"),
    }
    true
}

/// Applies a change to the document. Returns whether it succeeded.
fn make(document: &mut Document, at: &Location, change: &Change) -> bool {
    let documents = |models: &[Model]| models.iter().map(self::document).collect::<Vec<_>>();
    let number = |model: &Model| Number::parse(model.to_string().as_bytes()).unwrap();
    match change {
        Change::Replace(value) => document.replace(at, self::document(value).root()).is_ok(),
        Change::InsertMember(name, value) => {
            document.insert_member(at, name, self::document(value).root()).is_ok()
        }
        Change::Remove => document.remove(at),
        Change::Merge(patch) => document.merge(at, self::document(patch).root()).is_ok(),
        Change::Add(by) => document.add(at, number(by)).is_ok(),
        Change::Multiply(by) => document.multiply(at, number(by)).is_ok(),
        Change::AppendString(more) => document.append_string(at, more).is_ok(),
        Change::Toggle => document.toggle(at).is_ok(),
        Change::Clear => {
            document.clear(at);
            true
        }
        Change::Append(values) => {
            let values = documents(values);
            let values: Vec<Value<'_>> = values.iter().map(Document::root).collect();
            document.array_append(at, &values).is_ok()
        }
        Change::Insert(index, values) => {
            let values = documents(values);
            let values: Vec<Value<'_>> = values.iter().map(Document::root).collect();
            document.array_insert(at, *index, &values).is_ok()
        }
        Change::Pop(index) => document.array_pop(at, *index).is_ok(),
        Change::Trim(start, stop) => document.array_trim(at, *start, *stop).is_ok(),
    }
}

fn count_names(model: &Model, names: &mut std::collections::HashSet<String>) {
    match model {
        Model::Array(array) => array.iter().for_each(|value| count_names(value, names)),
        Model::Object(object) => {
            for (name, value) in object {
                names.insert(name.clone());
                count_names(value, names);
            }
        }
        _ => {}
    }
}

fn check(document: &Document, model: &Model) {
    assert_eq!(&model_of(document.root()), model);
    assert_eq!(document.bytes, document.root.memory(), "the bytes are counted");
    let mut names = std::collections::HashSet::new();
    count_names(model, &mut names);
    assert_eq!(document.names.in_use(), names.len(), "names are counted");
    assert_eq!(&document.clone(), document);
}

proptest! {
    #![proptest_config(crate::few_cases(400))]
    #[test]
    fn agrees_with_a_model(
        start in model(),
        changes in proptest::collection::vec((any::<usize>(), change()), 1..12),
    ) {
        let mut model = start;
        let mut document = document(&model);
        check(&document, &model);
        let everything = Path::parse(b"$..*").unwrap();
        for (choice, change) in changes {
            let mut locations = everything.locations(&document).unwrap();
            locations.push(Location::root());
            let at = &locations[choice % locations.len()];
            if matches!(change, Change::Remove) {
                let Some((parent, position)) = at.split() else { continue };
                let name = document.at(&parent).unwrap().as_object();
                let name = name.map(|object| object.names().nth(position).unwrap().to_owned());
                match model_at(&mut model, &document, &parent) {
                    Model::Array(array) => drop(array.remove(position)),
                    Model::Object(object) => drop(object.remove(&name.unwrap())),
                    _ => unreachable!("parents are containers"),
                }
                prop_assert!(document.remove(at));
            } else {
                let expected = apply(model_at(&mut model, &document, at), &change);
                prop_assert_eq!(make(&mut document, at, &change), expected, "{:?}", change);
            }
            check(&document, &model);
        }
    }
}

fn changed(text: &str, change: impl FnOnce(&mut Document)) -> String {
    let mut document = Document::parse(text.as_bytes(), &Limits::default()).unwrap();
    change(&mut document);
    document.root().to_string()
}

fn locations(document: &Document, path: &str) -> Vec<Location> {
    Path::parse(path.as_bytes()).unwrap().locations(document).unwrap()
}

#[test]
fn the_last_member_takes_the_place_of_a_removed_one() {
    let removed = changed(r#"{"a":1,"b":2,"c":3}"#, |document| {
        let at = locations(document, "$.a");
        assert!(document.remove(&at[0]));
        document.insert_member(&Location::root(), "a", Document::null().root()).unwrap();
        document.insert_member(&Location::root(), "b", Document::string("x").root()).unwrap();
    });
    assert_eq!(removed, r#"{"c":3,"b":"x","a":null}"#);
}

#[test]
fn nested_matches_are_changed_from_the_last_to_the_first() {
    let text = r#"{"a":{"a":2,"b":3},"b":["a",{"a":4}]}"#;
    let deleted = changed(text, |document| {
        let mut found = locations(document, "$..a");
        location::outermost(&mut found);
        assert_eq!(found.len(), 2);
        found.iter().rev().for_each(|at| assert!(document.remove(at)));
    });
    assert_eq!(deleted, r#"{"b":["a",{}]}"#);
    let popped = changed("[[1,[2,3]],[4],5]", |document| {
        let found = locations(document, "$..[*]");
        for at in location::update_order(&found) {
            let _ = document.array_pop(&found[at], 0);
        }
        document.array_pop(&Location::root(), 0).unwrap();
    });
    assert_eq!(popped, "[[],5]");
}

#[test]
fn depth_is_limited() {
    let nested = |depth: usize| {
        let text = "[".repeat(depth) + &"]".repeat(depth);
        Document::parse(text.as_bytes(), &Limits::default()).unwrap()
    };
    let mut document = nested(100);
    let deepest = locations(&document, "$..[0]").pop().unwrap();
    assert_eq!(deepest.depth(), 99);
    let before = document.root().to_string();
    assert_eq!(document.replace(&deepest, nested(30).root()), Err(EditError::TooDeep));
    assert_eq!(document.array_append(&deepest, &[nested(29).root()]), Err(EditError::TooDeep));
    let patch = format!("{{\"a\":{}}}", nested(29).root());
    let patch = Document::parse(patch.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(document.merge(&deepest, patch.root()), Err(EditError::TooDeep));
    assert_eq!(document.root().to_string(), before);
    assert_eq!(document.array_append(&deepest, &[nested(28).root()]), Ok(1));
    assert_eq!(document.root().depth(), 128);
}
