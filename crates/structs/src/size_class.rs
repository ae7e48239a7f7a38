//! The sizes that allocators really hand out.
//!
//! Asking for less than a size class gives the rest away; asking for the whole class lets a value
//! change its length a little without moving.

/// Rounds an allocation up to a size the allocator has: multiples of 16, above 128 eighths of the
/// power of two above.
#[inline]
pub(crate) fn size_class(bytes: usize) -> usize {
    let step = if bytes <= 128 { 16 } else { bytes.next_power_of_two() / 8 };
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_close_and_stable() {
        for bytes in 1..20_000 {
            let class = size_class(bytes);
            assert!(class >= bytes && class <= (bytes + 15).max(bytes + bytes / 4));
            assert_eq!(size_class(class), class);
        }
    }
}
