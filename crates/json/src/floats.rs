//! Arrays of floating-point numbers of a chosen type: FPHA of JSON.SET.
//!
//! The numbers are rounded to the type. Half precision and bfloat16 are then kept as single
//! precision, which has all their numbers.

use crate::array::{ArrayParts, Element};
use crate::document::{Document, copy};
use crate::error::EditError;
use crate::names::Names;
use crate::node::Node;
use crate::number::FloatType;
use crate::object::{Member, Object};
use crate::value::{Kind, Value};

impl Document {
    /// Rounds the numbers of every array that has numbers only, one of them a float, to a type, and
    /// makes them floats.
    ///
    /// # Errors
    /// [`EditError::OutOfRange`]: one is too large for the type. The document is as it was.
    pub fn pack_floats(&mut self, float: FloatType) -> Result<(), EditError> {
        let mut names = Names::new();
        let root = round_floats(self.root(), float, &mut names)?;
        *self = Document::new(root, names);
        Ok(())
    }
}

fn round_floats(value: Value<'_>, float: FloatType, names: &mut Names) -> Result<Node, EditError> {
    match value.kind() {
        Kind::Array(array) => {
            let is_float = |value: Value<'_>| matches!(value.kind(), Kind::Double(_));
            let all_numbers = || array.iter().all(|value| value.as_number().is_some());
            let elements: Vec<Element> = if array.iter().any(is_float) && all_numbers() {
                let rounded = |value: Value<'_>| {
                    let number = value.as_number().and_then(|number| float.round(number.as_f64()));
                    number.map(Element::Double).ok_or(EditError::OutOfRange(float))
                };
                array.iter().map(rounded).collect::<Result<_, _>>()?
            } else {
                let element = |value| round_floats(value, float, names).map(Element::Node);
                array.iter().map(element).collect::<Result<_, _>>()?
            };
            Ok(ArrayParts::new(elements.into_iter()).into_node())
        }
        Kind::Object(object) => {
            let mut members = Vec::with_capacity(object.len());
            for (name, value) in object.iter() {
                let value = round_floats(value, float, names)?;
                members.push(Member { name: names.intern(name), value });
            }
            Ok(Node::object(Object::new(members.into_iter())))
        }
        _ => Ok(copy(value, names)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn packed(text: &str, float: FloatType) -> String {
        let mut document = Document::parse(text.as_bytes(), &Limits::default()).unwrap();
        match document.pack_floats(float) {
            Ok(()) => document.root().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn numbers_are_rounded() {
        let text = "[[1,2,3,4e3],[5,6.0,7,8],[1,2],[1.5,null],{\"a\":[1.5]}]";
        let all = "[[1.0,2.0,3.0,4000.0],[5.0,6.0,7.0,8.0],[1,2],[1.5,null],{\"a\":[1.5]}]";
        assert_eq!(packed(text, FloatType::F16), all);
        assert_eq!(packed("[0.1]", FloatType::F16), "[0.0999755859375]");
        assert_eq!(packed("[0.1]", FloatType::BF16), "[0.10009765625]");
        assert_eq!(packed("[0.1]", FloatType::F32), "[0.10000000149011612]");
        assert_eq!(packed("[0.1]", FloatType::F64), "[0.1]");
        assert_eq!(packed("[65504.0]", FloatType::F16), "[65504.0]");
        assert_eq!(packed("[65535.0]", FloatType::F16), "value out of range for F16");
        assert_eq!(packed("[1e39]", FloatType::BF16), "value out of range for BF16");
        assert_eq!(packed("[1e39]", FloatType::F32), "value out of range for F32");
        assert_eq!(packed("[6e-8,1e-30]", FloatType::F16), "[5.960464477539063e-8,0.0]");
    }
}
