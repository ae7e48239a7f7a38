//! The sizes that the allocator really hands out.
//!
//! Asking for less than a size class gives the rest away; asking for the whole class lets a value
//! change its length a little without moving.

/// The size of the block that the allocator hands out for `size` bytes: steps of 8 up to 64
/// bytes, then four steps for each doubling.
#[inline]
pub const fn block_size(size: usize) -> usize {
    if size <= 64 {
        return if size == 0 { 8 } else { (size + 7) & !7 };
    }
    let step = 1 << ((usize::BITS - (size - 1).leading_zeros()) - 3);
    (size + step - 1) & !(step - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_close_and_stable() {
        for size in 1..20_000 {
            let block = block_size(size);
            assert!(block >= size && block <= (size + 7).max(size + size / 4));
            assert_eq!(block_size(block), block);
        }
        for (size, block) in
            [(1, 8), (23, 24), (24, 24), (64, 64), (65, 80), (122, 128), (129, 160), (508, 512)]
        {
            assert_eq!(block_size(size), block, "{size}");
        }
    }
}
