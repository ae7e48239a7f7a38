//! `DEBUG POPULATE count [prefix] [size]`: many string keys at once; those that are there stay

use engine::db::SetExpiry;
use engine::{Args, Cx, Error, Key, Outcome};

const NOT_POSITIVE: &str = "value is out of range, must be positive";

pub(super) fn populate(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let count = args.integer_in(2, 0..=i64::MAX, NOT_POSITIVE)?;
    let prefix = args.get(3).unwrap_or(b"key");
    let size = match args.len() {
        5 => args.integer_in(4, 0..=i64::MAX, NOT_POSITIVE)?,
        _ => 0,
    };
    if size > cx.engine.config.proto_max_bulk_len() as i64 {
        return Err(Error::StringTooLong);
    }
    for number in 0..count {
        let name = [prefix, b":", number.to_string().as_bytes()].concat();
        let key = Key::new(&name);
        if cx.db.lookup_no_stats(key).is_some() {
            continue;
        }
        let mut value = format!("value:{number}").into_bytes();
        if size > 0 {
            // Cut or filled up with zeros.
            value.resize(size as usize, 0);
        }
        cx.db.set_string(key, &value, SetExpiry::Clear);
        cx.db.changed_silently(key);
    }
    cx.reply.ok();
    Ok(())
}
