//! What a module type is for files, the keyspace and commands.

use super::{Id, Mark, Reader, Writer};
use crate::payload::seal;
use crate::{Compression, Decoder, Encoder, Error, Kind};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use structs::labels::Labels;

/// Reads a value behind the id, whose version is given. The mark of the end is read behind it.
pub type Load = fn(&mut Reader<'_, '_>, u16) -> Result<Box<dyn Value>, Error>;

/// A type: its row.
pub struct Type {
    /// The nine letters that TYPE, SCAN and files call it by.
    pub name: &'static str,
    /// The version of the encoding that [`Value::save`] writes.
    pub version: u16,
    /// The versions that are read.
    pub reads: &'static [u16],
    /// Reads a value of one of them.
    pub load: Load,
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The types that are known.
pub type Types = &'static [&'static Type];

/// A value of a module type.
pub trait Value: Any + Send + Sync {
    /// Returns the type's row.
    fn row(&self) -> &'static Type;
    /// Writes the value, in the version that the row says.
    fn save(&self, to: &mut Writer<'_>);
    /// Returns a copy that shares nothing with the value.
    fn duplicate(&self) -> Box<dyn Value>;
    /// Returns the bytes of its blocks, those of the value itself included.
    fn allocated_bytes(&self) -> usize;
    /// Returns the approximate number of deallocations that freeing it takes.
    fn free_effort(&self) -> usize;
    /// Returns about how many elements it has, by which commands are found to be long.
    fn elements(&self) -> usize;
    /// Returns the labels by which the keyspace lists its key, if values of the type have any.
    fn labels(&self) -> Option<&Arc<Labels>> {
        None
    }
    /// Returns whether a command that leaves it so removes its key.
    fn is_empty(&self) -> bool {
        false
    }
}

/// A value of any module type. Clones share it until one of them changes it.
#[derive(Clone)]
pub struct Module(Arc<dyn Value>);

impl Module {
    /// Returns a value of a type.
    pub fn new(value: impl Value) -> Module {
        Module(Arc::new(value))
    }

    /// Returns the row of its type.
    pub fn row(&self) -> &'static Type {
        self.0.row()
    }

    /// Returns the value.
    pub fn value(&self) -> &dyn Value {
        &*self.0
    }

    /// Returns the value if it is of this type.
    pub fn get<T: Value>(&self) -> Option<&T> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Returns the value to change it, if it is of this type. A value that clones share is copied
    /// first.
    pub fn get_mut<T: Value>(&mut self) -> Option<&mut T> {
        self.get::<T>()?;
        if Arc::get_mut(&mut self.0).is_none() {
            self.0 = self.0.duplicate().into();
        }
        let value: &mut dyn Value = Arc::get_mut(&mut self.0)?;
        (value as &mut dyn Any).downcast_mut()
    }

    /// Returns a copy that shares nothing with the value.
    pub fn duplicate(&self) -> Module {
        Module(self.0.duplicate().into())
    }

    /// Writes the value behind the type byte: id, primitives, end.
    pub fn save(&self, encoder: &mut Encoder) {
        let row = self.row();
        encoder.length(Id::new(row.name, row.version).bits());
        let mut to = Writer::new(encoder);
        self.0.save(&mut to);
        to.end();
    }

    /// Reads what [`Module::save`] writes.
    ///
    /// # Errors
    /// None of the types has the id's name, or the type knows no such version or payload.
    pub fn load(decoder: &mut Decoder<'_>, types: Types) -> Result<Module, Error> {
        let id = Id::from_bits(decoder.length()?);
        let row = find(types, id).ok_or(Error::UnsupportedModule(id))?;
        let mut from = Reader::new(decoder);
        let value = (row.load)(&mut from, id.version())?;
        from.end()?;
        Ok(Module(value.into()))
    }
}

/// Returns the row of the type whose values of the id's version can be read.
pub(crate) fn find(types: Types, id: Id) -> Option<&'static Type> {
    let name = id.name();
    let row = types.iter().find(|row| row.name == name)?;
    row.reads.contains(&id.version()).then_some(row)
}

/// Writes what [`Module::save`] has written into an uncompressed encoder again, with the strings as
/// this encoder writes them.
///
/// # Errors
/// It is not what has been written there.
pub fn recode(value: &[u8], to: &mut Encoder) -> Result<(), Error> {
    let mut from = Decoder::new(value);
    to.length(from.length()?);
    loop {
        let mark = Mark::read(&mut from)?;
        to.byte(mark as u8);
        match mark {
            Mark::End => return Ok(()),
            Mark::Signed | Mark::Unsigned => to.length(from.length()?),
            Mark::Float => to.raw(from.bytes(size_of::<f32>())?),
            Mark::Double => to.raw(from.bytes(size_of::<f64>())?),
            Mark::String => to.string(&from.string()?),
        }
    }
}

/// Returns the DUMP payload of what [`Module::save`] has written.
pub fn payload(value: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Off);
    encoder.kind(Kind::Module);
    encoder.raw(value);
    seal(encoder.into_bytes(), Kind::Module)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Foreign, Item, ScanStep, Scanner};
    use crate::{Limits, Object, ObjectRef, dump, restore};

    /// A number and a name.
    #[derive(Clone, Debug, PartialEq)]
    struct Pair(u64, Vec<u8>);

    static PAIR: Type = Type { name: "pair-type", version: 2, reads: &[1, 2], load };
    static TYPES: Types = &[&PAIR];

    fn load(from: &mut Reader<'_, '_>, version: u16) -> Result<Box<dyn Value>, Error> {
        let number = if version == 1 { from.signed()?.cast_unsigned() } else { from.unsigned()? };
        Ok(Box::new(Pair(number, from.string()?.into_owned())))
    }

    impl Value for Pair {
        fn row(&self) -> &'static Type {
            &PAIR
        }
        fn save(&self, to: &mut Writer<'_>) {
            to.unsigned(self.0);
            to.string(&self.1);
        }
        fn duplicate(&self) -> Box<dyn Value> {
            Box::new(self.clone())
        }
        fn allocated_bytes(&self) -> usize {
            size_of::<Self>() + self.1.len()
        }
        fn free_effort(&self) -> usize {
            1
        }
        fn elements(&self) -> usize {
            2
        }
    }

    fn limits() -> Limits {
        Limits { types: TYPES, ..Limits::default() }
    }

    fn restored(payload: &[u8]) -> Result<Pair, Error> {
        match restore(payload, &limits())? {
            Object::Module(module) => Ok(module.get::<Pair>().expect("the only type").clone()),
            _ => panic!("another type"),
        }
    }

    #[test]
    fn values_come_back_with_any_compression() {
        let pair = Pair(7, vec![b'x'; 1000]);
        let module = Module::new(pair.clone());
        for compression in [Compression::Off, Compression::Lzf] {
            let payload = dump(ObjectRef::Module(&module), compression);
            assert_eq!(restored(&payload), Ok(pair.clone()));
            assert_eq!(payload.len() < 100, compression == Compression::Lzf);
            for cut in 0..payload.len() {
                assert!(restored(&payload[..cut]).is_err());
            }
        }
        let mut plain = Encoder::new(Compression::Off);
        module.save(&mut plain);
        assert_eq!(restored(&payload(plain.as_bytes())), Ok(pair.clone()));
        let mut smaller = Encoder::new(Compression::Lzf);
        assert_eq!(recode(plain.as_bytes(), &mut smaller), Ok(()));
        assert!(smaller.as_bytes().len() < 100);
        assert_eq!(restored(&payload(smaller.as_bytes())), Ok(pair));
    }

    #[test]
    fn unknown_types_and_versions_are_refused_and_old_ones_read() {
        let of = |id: Id, body: &[u8]| {
            let mut encoder = Encoder::new(Compression::Off);
            encoder.length(id.bits());
            encoder.raw(body);
            payload(encoder.as_bytes())
        };
        let old = of(Id::new("pair-type", 1), b"\x01\x07\x05\x01n\0");
        assert_eq!(restored(&old), Ok(Pair(7, b"n".to_vec())));
        for id in [Id::new("pair-type", 3), Id::new("ReJSON-RL", 1)] {
            let unknown = of(id, b"\x02\x07\x05\x01n\0");
            assert_eq!(restored(&unknown), Err(Error::UnsupportedModule(id)));
        }
        let long = of(Id::new("pair-type", 2), b"\x02\x07\x05\x01n\x02\x01\0");
        assert!(matches!(restored(&long), Err(Error::Corrupt(_))));
    }

    #[test]
    fn a_scanner_announces_what_cannot_be_read() {
        let mut file = b"REDIS0011".to_vec();
        let mut encoder = Encoder::new(Compression::Off);
        encoder.kind(Kind::Module);
        encoder.string(b"key");
        Module::new(Pair(1, b"n".to_vec())).save(&mut encoder);
        file.extend_from_slice(encoder.as_bytes());
        let item = |types| {
            let mut scanner = Scanner::new(0, file.len() as u64, 1 << 20).knowing(types);
            let mut at = 0;
            loop {
                match scanner.next(&file[at..]).expect("it is sound") {
                    ScanStep::Item(item @ (Item::Record(_) | Item::Foreign(_)), _) => break item,
                    ScanStep::Item(_, taken) => at += taken,
                    ScanStep::More => panic!("it is whole"),
                }
            }
        };
        assert!(matches!(item(TYPES), Item::Record(record) if record.kind == Kind::Module as u8));
        let Item::Foreign(Foreign::Key { module, .. }) = item(&[]) else { panic!("not announced") };
        assert_eq!(module.as_deref(), Some("pair-type"));
    }

    #[test]
    fn a_shared_value_is_copied_before_it_changes() {
        let mut module = Module::new(Pair(1, Vec::new()));
        let shared = module.clone();
        module.get_mut::<Pair>().expect("its type").0 = 2;
        assert_eq!(shared.get::<Pair>().expect("its type").0, 1);
        assert_eq!(module.get::<Pair>().expect("its type").0, 2);
    }
}
