//! Streams as the keyspace sees them.

use super::{Collection, Layout, TakeApart};
use crate::kind::Value;
use crate::snapshot::record::{Form, Writer};
use structs::stream::{Parts, Stream};

impl Collection for Stream {
    fn encoding(&self) -> &'static str {
        self.encoding()
    }
    fn len(&self) -> usize {
        self.len()
    }
    fn allocated_bytes(&self) -> usize {
        self.allocated_bytes()
    }
    fn free_effort(&self) -> usize {
        self.free_effort()
    }
    fn duplicate(&self) -> Value {
        self.clone().into()
    }
    fn layout(&self) -> Layout<'_> {
        Layout::Shared(Form::Stream, self.block_count())
    }
    fn take_apart(&self) -> Option<Box<dyn TakeApart>> {
        Some(Box::new(Parts::new(self)))
    }
}

impl TakeApart for Parts {
    fn write_next(&mut self, to: &mut Writer<'_>) -> bool {
        self.show(|part| to.stream_part(part))
    }
}
