//! When a list is small, when one of its nodes is full, and when an element is large.

/// What `list-max-listpack-size` asks for, worked out. Cheap to copy; made when the option is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListLimits {
    /// The most bytes a node has.
    pub(super) node_bytes: usize,
    /// The most elements a node has.
    pub(super) node_count: usize,
    /// The bytes up to which a single node may be a listpack again, before halving.
    listpack_bytes: usize,
    /// The elements that are stored alone: those that are at least this long.
    pub(super) plain_from: usize,
}

/// Which part of the limits a list may use and become a listpack.
#[derive(Clone, Copy)]
pub(super) enum Margin {
    /// All: for a list that has just been made.
    Full,
    /// Half: for one that has shrunk, so that a list at the limit does not go to and fro.
    Half,
}

/// The bytes of the size classes -1 to -5.
const SIZES: [usize; 5] = [4096, 8192, 16384, 32768, 65536];
/// The most bytes of a node that is limited by its number of elements.
const SAFETY_BYTES: usize = 8192;
/// What a node must have left on top of an element's own bytes to take it: at least what an entry
/// adds to them, and with the allocation's prefix never more than the limit, a power of two.
pub(super) const ENTRY_OVERHEAD: usize = 16;

impl Default for ListLimits {
    /// Redis's default, -2: nodes of 8 KiB.
    fn default() -> Self {
        Self::new(-2)
    }
}

impl ListLimits {
    /// `max_listpack_size` as in `list-max-listpack-size`: a number of elements, or if negative a
    /// class from -1 (4 KiB) to -5 (64 KiB).
    pub fn new(max_listpack_size: i32) -> Self {
        if max_listpack_size < 0 {
            let class = (max_listpack_size.unsigned_abs() as usize).min(SIZES.len());
            let bytes = SIZES[class - 1];
            Self {
                node_bytes: bytes,
                // As elements may be empty, their bytes alone do not bound anything.
                node_count: bytes,
                listpack_bytes: bytes,
                plain_from: bytes + 1,
            }
        } else {
            Self {
                node_bytes: SAFETY_BYTES,
                node_count: max_listpack_size.max(1) as usize,
                listpack_bytes: usize::MAX,
                plain_from: SAFETY_BYTES + 1,
            }
        }
    }

    /// The same limits with elements of `bytes` or more stored alone, as `DEBUG
    /// QUICKLIST-PACKED-THRESHOLD` wants it; 0 goes back to what the other limits imply.
    pub fn with_packed_threshold(self, bytes: usize) -> Self {
        let plain_from = if bytes == 0 { self.node_bytes + 1 } else { bytes };
        Self { plain_from, ..self }
    }

    /// Whether a listpack of this size is too big.
    #[inline]
    pub(super) fn exceeded_by(&self, bytes: usize, count: usize) -> bool {
        bytes > self.node_bytes || count > self.node_count
    }

    /// Whether a list of one node of this size may become a listpack.
    pub(super) fn allow_listpack(&self, bytes: usize, count: usize, margin: Margin) -> bool {
        let part = match margin {
            Margin::Full => 1,
            Margin::Half => 2,
        };
        bytes <= self.listpack_bytes / part && count <= self.node_count / part
    }

    /// Whether a node of this size takes one more element.
    #[inline]
    pub(super) fn node_takes(&self, bytes: usize, count: usize, element: usize) -> bool {
        element < self.plain_from
            && bytes + element + ENTRY_OVERHEAD <= self.node_bytes
            && count < self.node_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follow_the_option() {
        assert_eq!(ListLimits::new(-1).node_bytes, 4096);
        assert_eq!(ListLimits::new(-5).node_bytes, 65536);
        assert_eq!(ListLimits::new(-9).node_bytes, 65536);
        assert_eq!(ListLimits::new(0).node_count, 1);
        assert_eq!(ListLimits::new(128).node_count, 128);
        assert_eq!(ListLimits::new(-2).plain_from, 8193);
        assert_eq!(ListLimits::new(5).with_packed_threshold(10).plain_from, 10);
    }
}
