//! JSON documents as values of keys.

use json::Document;
use json::rdb::{TEXT, TREE, TYPE_NAME};
use rdb::module::{Type, Value, Writer};

/// The row of the type.
pub static TYPE: Type = Type {
    name: TYPE_NAME,
    version: TEXT,
    reads: &[TREE, TEXT],
    load: |from, version| Ok(Box::new(Json::new(Document::load(from, version)?))),
};

/// Bytes of a document that are taken for one element.
const ELEMENT_BYTES: usize = 16;
/// Bytes of a document that are taken for one block of the allocator.
const BLOCK_BYTES: usize = 64;

/// A document.
#[derive(Clone)]
pub struct Json(Document);

impl Json {
    /// Returns a document as a value.
    pub fn new(document: Document) -> Json {
        Json(document)
    }

    /// Returns the document.
    pub fn document(&self) -> &Document {
        &self.0
    }

    /// Returns the document to change it.
    pub fn document_mut(&mut self) -> &mut Document {
        &mut self.0
    }
}

impl Value for Json {
    fn row(&self) -> &'static Type {
        &TYPE
    }

    fn save(&self, to: &mut Writer<'_>) {
        self.0.save(to);
    }

    fn duplicate(&self) -> Box<dyn Value> {
        Box::new(self.clone())
    }

    fn allocated_bytes(&self) -> usize {
        self.0.memory_used()
    }

    fn free_effort(&self) -> usize {
        self.allocated_bytes() / BLOCK_BYTES + 1
    }

    fn elements(&self) -> usize {
        self.allocated_bytes() / ELEMENT_BYTES + 1
    }
}
