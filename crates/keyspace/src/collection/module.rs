//! Values of module types as the keyspace sees them.
//!
//! A snapshot takes a clone, which shares the value, and serialises it without the stripe's lock. A
//! writer that comes meanwhile copies the value first.

use super::{Collection, Layout, TakeApart};
use crate::kind::Value;
use crate::snapshot::record::{Form, MAX_BYTES, Writer};
use rdb::module::Module;
use rdb::{Compression, Encoder};

/// Bytes of the counters beside a value that can be shared.
const COUNTERS: usize = 16;

impl Collection for Module {
    fn encoding(&self) -> &'static str {
        "raw"
    }
    fn len(&self) -> usize {
        self.value().elements()
    }
    fn is_empty(&self) -> bool {
        self.value().is_empty()
    }
    fn allocated_bytes(&self) -> usize {
        self.value().allocated_bytes() + COUNTERS
    }
    fn free_effort(&self) -> usize {
        self.value().free_effort()
    }
    fn duplicate(&self) -> Value {
        Module::duplicate(self).into()
    }
    fn layout(&self) -> Layout<'_> {
        Layout::Shared(Form::Module, 1)
    }
    fn take_apart(&self) -> Option<Box<dyn TakeApart>> {
        Some(Box::new(Parts::Waiting(self.clone())))
    }
}

/// A value that is written.
enum Parts {
    /// Nothing has been written.
    Waiting(Module),
    /// These bytes have, up to a place.
    Serialised(Vec<u8>, usize),
}

impl TakeApart for Parts {
    fn write_next(&mut self, to: &mut Writer<'_>) -> bool {
        match self {
            Parts::Waiting(module) => {
                let mut encoder = Encoder::new(Compression::Off);
                module.save(&mut encoder);
                let bytes = encoder.into_bytes();
                if bytes.len() <= MAX_BYTES {
                    to.bytes(&bytes);
                    *self = Parts::Serialised(Vec::new(), 0);
                } else {
                    to.long(bytes.len());
                    *self = Parts::Serialised(bytes, 0);
                }
                true
            }
            Parts::Serialised(bytes, at) => {
                let end = bytes.len().min(*at + MAX_BYTES);
                if *at < end {
                    to.part(&bytes[*at..end]);
                }
                let is_more = *at < end;
                *at = end;
                is_more
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cold::tests::keep;
    use crate::entry::Entry;
    use crate::keyspace::{Assignment, Keyspace, tests::with};
    use crate::snapshot::record::{Token, Tokens};
    use crate::snapshot::write_whole;
    use crate::thaw::Record;
    use crate::types::DbIndex;
    use datatypes::Json;
    use json::{Document, Limits};
    use rdb::Decoder;

    const DB: DbIndex = DbIndex(0);

    fn module(text: &str) -> Module {
        let document = Document::parse(text.as_bytes(), &Limits::default()).expect("JSON");
        Module::new(Json::new(document))
    }

    fn text(module: &Module) -> String {
        let mut text = Vec::new();
        module.get::<Json>().expect("the type").document().write(&mut text);
        String::from_utf8(text).expect("JSON is UTF-8")
    }

    /// Returns the value that the tokens of a snapshot contain.
    fn taken(tokens: &[u8]) -> Module {
        let mut bytes = Vec::new();
        for token in Tokens::new(tokens) {
            match token {
                Token::Head(head) => assert_eq!((head.form, head.count), (Form::Module, 1)),
                Token::Long(len) => bytes.reserve(len as usize),
                Token::Bytes(part) | Token::Part(part) => bytes.extend_from_slice(part),
                other => panic!("{other:?}"),
            }
        }
        Module::load(&mut Decoder::new(&bytes), datatypes::ALL).expect("just written")
    }

    #[test]
    fn snapshots_take_values_of_any_size() {
        for len in [0, 10, MAX_BYTES, 5 * MAX_BYTES + 1] {
            let value = format!("[\"{}\"]", "x".repeat(len));
            let mut tokens = Vec::new();
            write_whole(&mut tokens, &Entry::new_object(b"key", module(&value), None, 0));
            assert_eq!(text(&taken(&tokens)), value);
        }
    }

    #[test]
    fn a_change_does_not_reach_a_copy_that_is_taken_apart() {
        let mut value = module("[1]");
        let mut apart = value.take_apart().expect("it can be");
        let json = value.get_mut::<Json>().expect("the type");
        *json.document_mut() = Document::null();
        let mut tokens = Vec::new();
        while apart.write_next(&mut Writer(&mut tokens)) {}
        assert_eq!((text(&taken(&tokens)), text(&value)), ("[1]".into(), "null".into()));
    }

    #[test]
    fn a_cold_value_has_its_type() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        with(&keyspace, b"key", |data, key| {
            data.put(DB, key.hash, Entry::new_object(b"key", module("{}"), None, 0));
            data.make_cold(DB, key, keep(b"value")).expect("it may leave RAM");
            let entry = data.find(DB, key).expect("it is there");
            assert!(entry.is_cold());
            assert_eq!((entry.type_name(), entry.encoding()), ("ReJSON-RL", "raw"));
            let cold = data.cold(DB, key).expect("it is cold");
            assert!(data.install(DB, key, cold, module("[2]").into(), Record::Goes));
            let entry = data.find(DB, key).expect("it is there");
            assert_eq!(entry.type_name(), "ReJSON-RL");
            assert_eq!(entry.object::<Module>().map(text).as_deref(), Some("[2]"));
        });
    }
}
