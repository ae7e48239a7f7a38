//! `JSON.SET key path value [NX | XX] [FPHA BF16 | FP16 | FP32 | FP64]`
//!
//! The root may be set without a key; a path that names a new member of an object that is there
//! adds it. The key keeps its expiry.

use super::{
    NOT_ROOT, change_at, change_each, check_depth, document_for_write, json_event, parse, paths,
    refused,
};
use datatypes::Json;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Effort, Error, Event, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use json::{Document, EditError, FloatType, Location, Path, Targets, location};
use keyspace::{Key, Value};
use rdb::module::Module;

/// `JSON.SET`.
pub static SET: Command = Command {
    name: "json.set",
    arity: -4,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Module,
    categories: &["json"],
    since: "1.0.0",
    complexity: "O(M+N) where M is the size of the old value and N that of the new one.",
    effort: Effort::Estimate(super::parsing),
    summary: "Sets a value in a document, or a document.",
    args: &[
        Arg::key("key", 0),
        Arg::new("path", ArgKind::String),
        Arg::new("value", ArgKind::String),
        Arg::one_of("condition", &[Arg::token("nx", "NX"), Arg::token("xx", "XX")]).optional(),
        Arg::one_of(
            "fpha",
            &[
                Arg::token("bf16", "BF16"),
                Arg::token("fp16", "FP16"),
                Arg::token("fp32", "FP32"),
                Arg::token("fp64", "FP64"),
            ],
        )
        .after("FPHA")
        .optional(),
    ],
    run: set,
    ..Command::ROW
};

/// When a value is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Always,
    IfNew,
    IfThere,
}

struct JsonSetOptions {
    condition: Condition,
    floats: Option<FloatType>,
}

fn options(args: Args<'_>) -> Result<JsonSetOptions, Error> {
    let mut options = JsonSetOptions { condition: Condition::Always, floats: None };
    let mut at = 4;
    while at < args.len() {
        match () {
            () if args.is(at, "nx") && options.condition == Condition::Always => {
                options.condition = Condition::IfNew;
            }
            () if args.is(at, "xx") && options.condition == Condition::Always => {
                options.condition = Condition::IfThere;
            }
            () if args.is(at, "fpha") && options.floats.is_none() => {
                at += 1;
                let known = [
                    ("bf16", FloatType::BF16),
                    ("fp16", FloatType::F16),
                    ("fp32", FloatType::F32),
                    ("fp64", FloatType::F64),
                ];
                let float = known.iter().find(|(name, _)| args.is(at, name));
                options.floats = Some(float.ok_or(Error::Syntax)?.1);
            }
            () => return Err(Error::Syntax),
        }
        at += 1;
    }
    Ok(options)
}

fn set(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = options(args)?;
    let path = paths::path(args[2])?;
    let mut value = parse(args[3])?;
    if let Some(float) = options.floats {
        value.pack_floats(float).map_err(refused)?;
    }
    let key = args.key(1);
    let document = document_for_write(&cx.db, key)?;
    let event = json_event("json.set");
    let condition = options.condition;
    let is_set = match document {
        None if condition == Condition::IfThere => false,
        None if !path.is_root() => return Err(NOT_ROOT),
        Some(_) if path.is_root() && condition == Condition::IfNew => false,
        Some(document) if !path.is_root() => {
            let change = Change::find_if(&path, paths::targets(&path, document)?, condition)?;
            if let Some(change) = &change {
                change.check(&value)?;
                change.apply(cx, key, event, &value)?;
            }
            change.is_some()
        }
        None | Some(_) => {
            put(cx, key, value);
            cx.db.changed(key, event);
            true
        }
    };
    if is_set {
        cx.reply.ok();
    } else {
        cx.reply.null();
    }
    Ok(())
}

/// Makes a document the value of a key, which keeps its expiry.
pub(super) fn put(cx: &mut Cx<'_>, key: Key<'_>, document: Document) {
    let expiry = cx.db.expiry(key);
    cx.db.put(key, Value::Module(Module::new(Json::new(document))), expiry);
}

/// What setting a value at a path does to a document.
pub(super) enum Change {
    /// Replaces values.
    Replace(Vec<Location>),
    /// Gives objects a member.
    Insert(Vec<Location>, String),
}

impl Change {
    /// Returns what is to be done at the targets of a path under a condition, if anything.
    ///
    /// # Errors
    /// The path names no place where a value could be. With XX that is no error; with NX it is one
    /// that the path could name several places, even if it names none that is new.
    fn find_if(
        path: &Path,
        targets: Targets<'_>,
        condition: Condition,
    ) -> Result<Option<Change>, Error> {
        match (condition, targets) {
            (Condition::IfThere, targets) if !matches!(targets, Targets::Existing(_)) => Ok(None),
            (Condition::IfNew, _) if !path.is_static() => Change::find(Targets::NotStatic),
            (Condition::IfNew, Targets::Existing(_)) => Ok(None),
            (_, targets) => Change::find(targets),
        }
    }

    /// Returns what is to be done at the targets of a path, or nothing if there is nothing to do.
    ///
    /// # Errors
    /// The path names no place where a value could be.
    pub(super) fn find(targets: Targets<'_>) -> Result<Option<Change>, Error> {
        Ok(match targets {
            Targets::Existing(mut locations) => {
                location::outermost(&mut locations);
                (!locations.is_empty()).then_some(Change::Replace(locations))
            }
            Targets::New { objects, name } => {
                (!objects.is_empty()).then(|| Change::Insert(objects, name.to_owned()))
            }
            Targets::Missing => None,
            Targets::NotStatic => return Err(Error::text("ERR wrong static path")),
            Targets::OutOfBounds => return Err(Error::text("ERR array index out of range")),
        })
    }

    /// Refuses a value that would lie too deep at one of the places.
    pub(super) fn check(&self, value: &Document) -> Result<(), Error> {
        match self {
            Change::Replace(locations) => check_depth(locations, [value.root()]),
            Change::Insert(objects, _) => {
                let deepest = objects.iter().map(Location::depth).max().unwrap_or(0);
                let is_deep = deepest + 1 + value.root().depth() > json::MAX_DEPTH;
                if is_deep { Err(refused(EditError::TooDeep)) } else { Ok(()) }
            }
        }
    }

    /// Makes the change to a document.
    pub(super) fn make(&self, document: &mut Document, value: &Document) -> Result<(), EditError> {
        let locations = self.locations();
        change_each(document, locations, |document, at| self.make_at(document, at, value)).map(drop)
    }

    /// Makes the change to the document of a key, and reports it.
    pub(super) fn apply(
        &self,
        cx: &mut Cx<'_>,
        key: Key<'_>,
        event: Event,
        value: &Document,
    ) -> Result<(), Error> {
        let make = |document: &mut Document, at: &Location| self.make_at(document, at, value);
        change_at(cx, key, event, self.locations(), |()| true, make).map(drop)
    }

    fn locations(&self) -> &[Location] {
        match self {
            Change::Replace(locations) | Change::Insert(locations, _) => locations,
        }
    }

    fn make_at(
        &self,
        document: &mut Document,
        at: &Location,
        value: &Document,
    ) -> Result<(), EditError> {
        match self {
            Change::Replace(_) => document.replace(at, value.root()),
            Change::Insert(_, name) => document.insert_member(at, name, value.root()),
        }
    }
}
