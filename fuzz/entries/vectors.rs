//! Vector sets: payloads of RDB files and expressions of filters are read or refused. What is read
//! can be used and changed, and is written as the same value. Nothing panics, and nothing takes
//! memory far beyond the input.

#[path = "memory.rs"]
mod memory;

use rdb::module::{Reader, Value, Writer};
use rdb::{Compression, Decoder, Encoder, Error};
use vectors::{Filter, Search, TYPE, VectorSet};

/// The version of Redis's payloads.
const REDIS_VERSION: u16 = 0;

/// The first byte says whether the others are a payload of ours (0), one of Redis (2), or an
/// expression.
pub fn check(input: &[u8]) {
    let Some((&what, body)) = input.split_first() else { return };
    memory::bounded(body.len(), || match what {
        0 => payload(body, TYPE.version),
        2 => payload(body, REDIS_VERSION),
        _ => {
            if let Ok(filter) = Filter::parse(body) {
                let _ = filter.accepts(br#"{"a":1,"b":"x","c":[1,"x"]}"#);
            }
        }
    });
}

fn load(body: &[u8], version: u16) -> Result<Box<dyn Value>, Error> {
    (TYPE.load)(&mut Reader::new(&mut Decoder::new(body)), version)
}

fn save(value: &dyn Value) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Off);
    value.save(&mut Writer::new(&mut encoder));
    encoder.into_bytes()
}

fn payload(body: &[u8], version: u16) {
    let Ok(value) = load(body, version) else { return };
    let written = save(&*value);
    let again = load(&written, TYPE.version).expect("what is written is read");
    assert_eq!(written, save(&*again));
    let again = again as Box<dyn std::any::Any>;
    let mut set = *again.downcast::<VectorSet>().expect("the only type");
    let (vector, norm) = set.form(vec![0.5; set.input_dim().unwrap_or(set.dim())]);
    let search = Search { count: 5, ef: 10, filter: None, filter_ef: 0, exact: false };
    assert!(!set.search(&vector, &search).is_empty());
    set.add(b"a new element", vector, norm, 10);
    let names: Vec<Vec<u8>> = set.names().map(<[u8]>::to_vec).collect();
    assert!(names.iter().all(|name| set.remove(name)));
}
