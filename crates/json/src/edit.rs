//! Changes at a location of a document.
//!
//! Each finds its place first, checks what could be wrong, and changes then: an error leaves the
//! document as it was. What a change costs is the way to its place, what it puts there, and moving
//! the later siblings of what it adds or removes.

use crate::MAX_DEPTH;
use crate::array::{ArrayParts, Element, Elements};
use crate::document::{Document, copy, copy_element, release_names};
use crate::error::EditError;
use crate::location::Location;
use crate::names::{MAX_NAME_LEN, Names};
use crate::node::{Node, Shape};
use crate::number::Number;
use crate::object::{Member, Object};
use crate::value::{Array, Kind, Value};

/// A place that can be changed.
enum Place<'a> {
    Node(&'a mut Node),
    /// The packed array, and the position in it.
    Packed(&'a mut Node, usize),
}

/// Returns the place of a location.
fn place<'a>(root: &'a mut Node, location: &Location) -> Result<Place<'a>, EditError> {
    let mut node = root;
    let mut steps = location.steps().peekable();
    while let Some(step) = steps.next() {
        if let Shape::Array(Elements::Packed(packed)) = node.shape() {
            let found = step < packed.len() && steps.peek().is_none();
            return if found { Ok(Place::Packed(node, step)) } else { Err(EditError::NotFound) };
        }
        node = node.child_mut(step).ok_or(EditError::NotFound)?;
    }
    Ok(Place::Node(node))
}

/// Returns the node of a location; an element of a packed array is of another type than is asked
/// for.
fn node<'a>(root: &'a mut Node, location: &Location) -> Result<&'a mut Node, EditError> {
    match place(root, location)? {
        Place::Node(node) => Ok(node),
        Place::Packed(..) => Err(EditError::WrongType),
    }
}

/// Puts an element at a place. Returns the old node, if it was one. `bytes` are those of the tree.
fn put(place: Place<'_>, element: Element, bytes: &mut usize) -> Option<Node> {
    match place {
        Place::Node(node) => {
            let new = element.into_node();
            *bytes = *bytes + new.memory() - node.memory();
            Some(std::mem::replace(node, new))
        }
        Place::Packed(array, at) => {
            // That of packed numbers is known at once; so is that of nodes which they turned into.
            let before = array.memory();
            let mut parts = array.take_array().expect("the place is in an array");
            parts.set(at, element);
            *array = parts.into_node();
            *bytes = *bytes + array.memory() - before;
            None
        }
    }
}

impl Document {
    /// Checks that values fit below a depth, and their names into the table.
    fn check_fit(&self, depth: usize, values: &[Value<'_>]) -> Result<(), EditError> {
        if values.iter().any(|value| depth + value.depth() > MAX_DEPTH) {
            return Err(EditError::TooDeep);
        }
        let text = values.iter().map(|value| value.names().text_len()).sum();
        if self.names.has_place(text) { Ok(()) } else { Err(EditError::TooLarge) }
    }

    /// Replaces the value at a location by a copy of another.
    ///
    /// # Errors
    /// [`EditError::NotFound`], [`EditError::TooDeep`], [`EditError::TooLarge`].
    pub fn replace(&mut self, at: &Location, value: Value<'_>) -> Result<(), EditError> {
        self.check_fit(at.depth(), &[value])?;
        let place = place(&mut self.root, at)?;
        let new = copy_element(value, &mut self.names);
        if let Some(old) = put(place, new, &mut self.bytes) {
            release_names(&old, &mut self.names);
        }
        Ok(())
    }

    /// Gives the object at a location a member, in place of the one with this name if there is one.
    ///
    /// # Errors
    /// [`EditError::WrongType`] if there is no object, and those of [`Document::replace`].
    pub fn insert_member(
        &mut self,
        at: &Location,
        name: &str,
        value: Value<'_>,
    ) -> Result<(), EditError> {
        self.check_fit(at.depth() + 1, &[value])?;
        if name.len() > MAX_NAME_LEN || !self.names.has_place(name.len() + value.names().text_len())
        {
            return Err(EditError::TooLarge);
        }
        let names = &mut self.names;
        let object = node(&mut self.root, at)?;
        if !object.is_object() {
            return Err(EditError::WrongType);
        }
        let value = copy(value, names);
        set_member(object, name, value, names, &mut self.bytes);
        Ok(())
    }

    /// Removes the value at a location from its array or object. Returns whether it did: the root
    /// stays.
    pub fn remove(&mut self, at: &Location) -> bool {
        let Some((parent, position)) = at.split() else { return false };
        let Ok(parent) = node(&mut self.root, &parent) else { return false };
        match parent.shape() {
            Shape::Array(elements) if position < elements.len() => {
                remove_element(parent, position, &mut self.names, &mut self.bytes);
                true
            }
            Shape::Object(members) if position < members.as_slice().len() => {
                remove_member(parent, position, &mut self.names, &mut self.bytes);
                true
            }
            _ => false,
        }
    }

    /// Applies a merge patch (RFC 7396) to the value at a location: members of objects are merged,
    /// those that are null in the patch are removed, anything else replaces.
    ///
    /// # Errors
    /// Those of [`Document::replace`].
    pub fn merge(&mut self, at: &Location, patch: Value<'_>) -> Result<(), EditError> {
        self.check_fit(at.depth(), &[patch])?;
        let Kind::Object(_) = patch.kind() else { return self.replace(at, patch) };
        match place(&mut self.root, at)? {
            Place::Node(node) => merge(node, patch, &mut self.names, &mut self.bytes),
            place => {
                let mut merged = Node::NULL;
                let mut bytes = 0;
                merge(&mut merged, patch, &mut self.names, &mut bytes);
                put(place, Element::Node(merged), &mut self.bytes);
            }
        }
        Ok(())
    }

    /// Adds to the number at a location. Returns the sum.
    ///
    /// # Errors
    /// [`EditError::NotFound`], [`EditError::WrongType`], [`EditError::NotFinite`].
    pub fn add(&mut self, at: &Location, by: Number) -> Result<Number, EditError> {
        self.compute(at, |number| Ok(number.plus(by)?))
    }

    /// Multiplies the number at a location. Returns the product.
    ///
    /// # Errors
    /// [`EditError::NotFound`], [`EditError::WrongType`], [`EditError::NotFinite`].
    pub fn multiply(&mut self, at: &Location, by: Number) -> Result<Number, EditError> {
        self.compute(at, |number| Ok(number.times(by)?))
    }

    fn compute(
        &mut self,
        at: &Location,
        compute: impl FnOnce(Number) -> Result<Number, EditError>,
    ) -> Result<Number, EditError> {
        let place = place(&mut self.root, at)?;
        let number = match &place {
            Place::Node(node) => match node.shape() {
                Shape::Int(int) => Number::Int(int),
                Shape::Uint(int) => Number::Uint(int),
                Shape::Double(double) => Number::Double(double),
                _ => return Err(EditError::WrongType),
            },
            Place::Packed(array, at) => {
                let Shape::Array(Elements::Packed(packed)) = array.shape() else {
                    return Err(EditError::WrongType);
                };
                match packed.get(*at) {
                    Some(Element::Int(int)) => Number::Int(int),
                    Some(Element::Double(double)) => Number::Double(double),
                    _ => return Err(EditError::NotFound),
                }
            }
        };
        let result = compute(number)?;
        put(place, result.into(), &mut self.bytes);
        Ok(result)
    }

    /// Appends to the string at a location. Returns its new length in bytes.
    ///
    /// # Errors
    /// [`EditError::NotFound`], [`EditError::WrongType`], [`EditError::TooLarge`].
    pub fn append_string(&mut self, at: &Location, more: &str) -> Result<usize, EditError> {
        let node = node(&mut self.root, at)?;
        let len = match node.shape() {
            Shape::Str(text) => text.len() + more.len(),
            _ => return Err(EditError::WrongType),
        };
        if len > u32::MAX as usize {
            return Err(EditError::TooLarge);
        }
        let before = node.own_memory();
        node.append(more);
        self.bytes = self.bytes + node.own_memory() - before;
        Ok(len)
    }

    /// Turns the boolean at a location around. Returns what it is then.
    ///
    /// # Errors
    /// [`EditError::NotFound`], [`EditError::WrongType`].
    pub fn toggle(&mut self, at: &Location) -> Result<bool, EditError> {
        let node = node(&mut self.root, at)?;
        let Shape::Bool(bool) = node.shape() else { return Err(EditError::WrongType) };
        *node = Node::bool(!bool);
        Ok(!bool)
    }

    /// Empties the container at a location, or sets the number there to 0. Returns whether that
    /// changed anything: other values stay as they are.
    pub fn clear(&mut self, at: &Location) -> bool {
        let Some(value) = self.at(at) else { return false };
        let empty = match value.kind() {
            Kind::Array(array) if !array.is_empty() => {
                Element::Node(ArrayParts::new(Vec::new().into_iter()).into_node())
            }
            Kind::Object(object) if !object.is_empty() => {
                Element::Node(Node::object(Object::new(std::iter::empty())))
            }
            Kind::Int(int) if int != 0 => Element::Int(0),
            Kind::Uint(_) => Element::Int(0),
            Kind::Double(double) if double != 0.0 => Element::Int(0),
            _ => return false,
        };
        let Ok(place) = place(&mut self.root, at) else { return false };
        if let Some(old) = put(place, empty, &mut self.bytes) {
            release_names(&old, &mut self.names);
        }
        true
    }

    /// Returns the array at a location.
    fn array_at(&self, at: &Location) -> Result<Array<'_>, EditError> {
        self.at(at).ok_or(EditError::NotFound)?.as_array().ok_or(EditError::WrongType)
    }

    /// Appends copies of values to the array at a location. Returns its new length.
    ///
    /// # Errors
    /// [`EditError::WrongType`] if there is no array, and those of [`Document::replace`].
    pub fn array_append(
        &mut self,
        at: &Location,
        values: &[Value<'_>],
    ) -> Result<usize, EditError> {
        let len = self.array_at(at)?.len();
        self.insert_elements(at, len, values)
    }

    /// Inserts copies of values before an element of the array at a location; a negative index
    /// counts from the end. Returns the array's new length.
    ///
    /// # Errors
    /// [`EditError::OutOfBounds`], [`EditError::WrongType`] if there is no array, and those of
    /// [`Document::replace`].
    pub fn array_insert(
        &mut self,
        at: &Location,
        index: i64,
        values: &[Value<'_>],
    ) -> Result<usize, EditError> {
        let len = self.array_at(at)?.len();
        let index = if index < 0 { index.saturating_add(len as i64) } else { index };
        let index = usize::try_from(index).ok().filter(|&index| index <= len);
        self.insert_elements(at, index.ok_or(EditError::OutOfBounds)?, values)
    }

    fn insert_elements(
        &mut self,
        at: &Location,
        index: usize,
        values: &[Value<'_>],
    ) -> Result<usize, EditError> {
        self.check_fit(at.depth() + 1, values)?;
        let len = self.array_at(at)?.len() + values.len();
        if len > u32::MAX as usize {
            return Err(EditError::TooLarge);
        }
        let array = node(&mut self.root, at)?;
        let (before, was_packed) = (array.own_memory(), is_packed(array));
        let names = &mut self.names;
        let mut parts = array.take_array().ok_or(EditError::WrongType)?;
        parts.insert(index, values.iter().map(|&value| copy_element(value, names)).collect());
        *array = parts.into_node();
        let added = match array.shape() {
            // Packed numbers that turned into nodes may be in blocks now.
            Shape::Array(Elements::Nodes(nodes)) if was_packed => memory_of(nodes),
            Shape::Array(Elements::Nodes(nodes)) => memory_of(&nodes[index..][..values.len()]),
            _ => 0,
        };
        self.bytes = self.bytes + array.own_memory() + added - before;
        Ok(len)
    }

    /// Removes and returns an element of the array at a location. A negative index counts from the
    /// end; one outside of the array is that of the nearest element. Nothing if the array is empty.
    ///
    /// # Errors
    /// [`EditError::NotFound`], [`EditError::WrongType`].
    pub fn array_pop(&mut self, at: &Location, index: i64) -> Result<Option<Document>, EditError> {
        let array = self.array_at(at)?;
        let len = array.len() as i64;
        let index = if index < 0 { index.saturating_add(len).max(0) } else { index.min(len - 1) };
        let Some(element) = usize::try_from(index).ok().and_then(|index| array.get(index)) else {
            return Ok(None);
        };
        let popped = Document::copy_of(element);
        let array = node(&mut self.root, at)?;
        remove_element(array, index as usize, &mut self.names, &mut self.bytes);
        Ok(Some(popped))
    }

    /// Keeps the elements from `start` to `stop`, both included, of the array at a location.
    /// Negative positions count from the end. Returns the array's new length.
    ///
    /// # Errors
    /// [`EditError::NotFound`], [`EditError::WrongType`].
    pub fn array_trim(&mut self, at: &Location, start: i64, stop: i64) -> Result<usize, EditError> {
        let array = self.array_at(at)?;
        let len = array.len() as i64;
        let absolute = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at.min(len) };
        let (start, stop) = (absolute(start), (absolute(stop) + 1).min(len));
        // An empty range is at the front, wherever it was.
        let (from, to) = if start < stop { (start as usize, stop as usize) } else { (0, 0) };
        let node = node(&mut self.root, at)?;
        let mut dropped = node.own_memory();
        if let Shape::Array(Elements::Nodes(nodes)) = node.shape() {
            let outside = [&nodes[..from], &nodes[to..]];
            outside.into_iter().flatten().for_each(|node| release_names(node, &mut self.names));
            dropped += outside.into_iter().map(memory_of).sum::<usize>();
        }
        let mut parts = node.take_array().ok_or(EditError::WrongType)?;
        parts.keep(from, to);
        *node = parts.into_node();
        self.bytes = self.bytes + node.own_memory() - dropped;
        Ok(to - from)
    }
}

fn is_packed(array: &Node) -> bool {
    matches!(array.shape(), Shape::Array(Elements::Packed(_)))
}

fn memory_of(nodes: &[Node]) -> usize {
    nodes.iter().map(Node::memory).sum()
}

/// Gives an object a member, in place of the one with this name if there is one.
fn set_member(object: &mut Node, name: &str, value: Node, names: &mut Names, bytes: &mut usize) {
    *bytes = *bytes + value.memory() - object.own_memory();
    let mut members = object.take_object().expect("it is an object");
    let place = names.find(name).and_then(|id| members.position(id));
    match place.and_then(|place| members.value_mut(place)) {
        Some(old) => {
            let old = std::mem::replace(old, value);
            *bytes -= old.memory();
            release_names(&old, names);
        }
        None => members.push(Member { name: names.intern(name), value }),
    }
    *object = Node::object(members);
    *bytes += object.own_memory();
}

/// Removes the member at a place of an object.
fn remove_member(object: &mut Node, position: usize, names: &mut Names, bytes: &mut usize) {
    let before = object.own_memory();
    let mut members = object.take_object().expect("it is an object");
    let member = members.remove(position);
    *object = Node::object(members);
    *bytes = *bytes + object.own_memory() - before - member.value.memory();
    names.release(member.name);
    release_names(&member.value, names);
}

/// Removes the element at a place of an array.
fn remove_element(array: &mut Node, position: usize, names: &mut Names, bytes: &mut usize) {
    let before = array.own_memory();
    let mut parts = array.take_array().expect("it is an array");
    let removed = parts.remove(position);
    *array = parts.into_node();
    *bytes = *bytes + array.own_memory() - before;
    if let Some(removed) = removed {
        *bytes -= removed.memory();
        release_names(&removed, names);
    }
}

/// Merges a patch into a value. Its depth was checked: a patched value is no deeper than the deeper
/// of the two. `bytes` are those of the tree that the value is in, or of itself.
fn merge(target: &mut Node, patch: Value<'_>, names: &mut Names, bytes: &mut usize) {
    let Kind::Object(patch) = patch.kind() else {
        let new = copy(patch, names);
        *bytes = *bytes + new.memory() - target.memory();
        let old = std::mem::replace(target, new);
        release_names(&old, names);
        return;
    };
    if !target.is_object() {
        *bytes -= target.memory();
        let old = std::mem::replace(target, Node::object(Object::new(std::iter::empty())));
        release_names(&old, names);
    }
    for (name, value) in patch.iter() {
        let place = match target.shape() {
            Shape::Object(members) => names.find(name).and_then(|id| members.position(id)),
            _ => None,
        };
        match (place, value.kind()) {
            (Some(place), Kind::Null) => remove_member(target, place, names, bytes),
            (None, Kind::Null) => {}
            (Some(place), _) => {
                let member = target.child_mut(place).expect("the member was found");
                merge(member, value, names, bytes);
            }
            (None, _) => {
                let mut member = Node::NULL;
                let mut member_bytes = 0;
                merge(&mut member, value, names, &mut member_bytes);
                set_member(target, name, member, names, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests;
