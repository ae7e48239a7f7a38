//! Lists as the keyspace sees them.

use super::{Chunk, Collection, Layout};
use crate::kind::Value;
use crate::snapshot::record::Form;
use std::borrow::Cow;
use std::mem::{ManuallyDrop, MaybeUninit};
use structs::inline::{Extent, Inline, Packing};
use structs::list::{self, List};

impl Collection for List {
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
        self.chunk_count().max(1)
    }
    fn duplicate(&self) -> Value {
        self.clone().into()
    }
    fn extent(&self) -> Option<Extent> {
        self.extent()
    }
    fn write_inline(&self, _: Packing, to: &mut [MaybeUninit<u8>]) {
        self.write_inline(to);
    }
    fn show(inline: Inline) -> ManuallyDrop<Self> {
        Self::show(inline)
    }
    fn layout(&self) -> Layout<'_> {
        Layout::Chunks(Form::List, self.chunk_count())
    }
    fn chunk(&self, index: usize) -> Option<Chunk<'_>> {
        self.chunk(index).map(|chunk| match chunk {
            list::Chunk::Packed(bytes) => Chunk { is_packed: true, bytes },
            list::Chunk::Plain(bytes) => Chunk { is_packed: false, bytes: Cow::Borrowed(bytes) },
        })
    }
}
