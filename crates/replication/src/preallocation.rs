//! Preallocated space ahead of a log's end, and batches written in place into it, as bytes.
//!
//! The preallocated space is lines of `#`, one per sector, which every reader of such logs skips
//! wherever the data before it ends. A batch has a head, which is an annotation with the length and
//! the checksum of what follows: `#BATCH:0000002f:` and sixteen hexadecimal digits of CRC-64. What
//! a lost power leaves of a batch is some of its sectors and preallocated space in the place of the
//! others.

use structs::crc64::crc64;

/// What a disk writes whole or not at all, in bytes.
pub const SECTOR: usize = 512;
/// Batches are written in multiples of it, in bytes.
pub const BLOCK: usize = 4096;
/// Most bytes of a batch, without its head.
pub const LARGEST_BATCH: usize = 256 << 10;
/// Most bytes of a head, its filler included.
pub const LARGEST_HEAD: usize = 2 * LARGEST_MARK;
/// Where a sector has fewer bytes left than this, no batch can begin: they would look like
/// preallocated space.
const SHORTEST_FILLER: usize = 3;
/// Most bytes of a head without its filler.
pub const LARGEST_MARK: usize = MARK + SHORTEST_FILLER - 1;
/// `#BATCH:`, length, colon, checksum, `\r\n`.
const MARK: usize = PREFIX.len() + 8 + 1 + 16 + 2;
const PREFIX: &[u8] = b"#BATCH:";

/// What a head says about its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHead {
    /// Bytes that follow the head.
    pub len: usize,
    /// Their CRC-64.
    pub checksum: u64,
}

/// Returns the byte of preallocated space at an offset of the file.
fn preallocated_at(offset: u64) -> u8 {
    if offset % SECTOR as u64 == SECTOR as u64 - 1 { b'\n' } else { b'#' }
}

/// Makes preallocated space of the bytes that begin at this offset of the file.
pub fn write_preallocation(offset: u64, bytes: &mut [u8]) {
    bytes.fill(b'#');
    bytes
        .iter_mut()
        .skip(left_in_sector(offset) - 1)
        .step_by(SECTOR)
        .for_each(|byte| *byte = b'\n');
}

/// Returns whether all these bytes, which begin at this offset of the file, are preallocated space.
pub fn is_preallocated(offset: u64, bytes: &[u8]) -> bool {
    bytes.iter().zip(offset..).all(|(&byte, offset)| byte == preallocated_at(offset))
}

/// Returns how many of these bytes lie before the preallocated space at their end. They begin with
/// a sector and end with their file. Returns 0 if all are preallocated space; then the bytes before
/// them may be, too.
///
/// Sectors of zeros count as preallocated space: when preallocated space is cut off inside of a
/// block, file systems write zeros up to the block's end, and after a loss of power the file may
/// have its former length. No log ends with zeros.
pub fn data_before_preallocation(bytes: &[u8]) -> usize {
    let mut data = bytes.len();
    while data > 0 {
        let begin = (data - 1) / SECTOR * SECTOR;
        let in_sector = data_of_sector(&bytes[begin..data]);
        data = begin + in_sector;
        if in_sector > 0 {
            break;
        }
    }
    data
}

/// Returns how many of these bytes lie before preallocated space or zeros at their end. They begin
/// with a sector.
fn data_of_sector(bytes: &[u8]) -> usize {
    let preallocated =
        (0..bytes.len()).rev().take_while(|&at| bytes[at] == preallocated_at(at as u64)).count();
    let zeros = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
    match bytes.len() - preallocated.max(zeros) {
        // A line that ends with the sector has its own line feed there: no preallocated space
        // begins with one.
        data if preallocated > 0 && data == SECTOR - 1 => SECTOR,
        data => data,
    }
}

/// Returns the number of bytes of the head of a batch of `len` bytes that is written at this
/// offset.
pub fn head_len(offset: u64, len: usize) -> usize {
    let filler = filler_len(offset);
    filler + mark_len(offset + filler as u64, len)
}

/// Returns whether a batch may begin at this offset. One may where another ended.
pub fn may_begin(offset: u64) -> bool {
    left_in_sector(offset) >= SHORTEST_FILLER
}

/// Returns the number of bytes from this offset to the end of its sector.
pub fn left_in_sector(offset: u64) -> usize {
    SECTOR - (offset % SECTOR as u64) as usize
}

/// Returns how many bytes must be filled so that a mark lies in one sector.
fn filler_len(offset: u64) -> usize {
    debug_assert!(may_begin(offset), "the filler would look like room");
    filler_at(offset).unwrap_or(0)
}

/// Returns the length of a mark at this offset: a batch ends where another may begin.
fn mark_len(offset: u64, len: usize) -> usize {
    let left = left_in_sector(offset + (MARK + len) as u64);
    if left < SHORTEST_FILLER { MARK + left } else { MARK }
}

/// Writes the head of a batch that is written at this offset into a slice of
/// [that many](head_len) bytes.
pub fn write_head(offset: u64, batch: &[u8], head: &mut [u8]) {
    let (filler, mark) = head.split_at_mut(filler_len(offset));
    if let [first, dots @ .., last] = filler {
        *first = b'#';
        dots.fill(b'.');
        *last = b'\n';
    }
    let text = format!("#BATCH:{:08x}:{:016x}", batch.len(), crc64(0, batch));
    let (digits, end) = mark.split_at_mut(text.len());
    digits.copy_from_slice(text.as_bytes());
    end.fill(b' ');
    let at = end.len() - 2;
    end[at..].copy_from_slice(b"\r\n");
}

impl BatchHead {
    /// Reads the line that a head is, without its end. `None`: it is another annotation.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &[u8]) -> Option<Result<BatchHead, &'static str>> {
        let rest = line.strip_prefix(PREFIX)?;
        let digits = |range| rest.get(range).and_then(hex);
        let (len, checksum) = (digits(0..8), digits(9..25));
        Some(match (len, checksum) {
            (Some(len), Some(checksum)) if rest.len() == 25 && rest[8] == b':' => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let head = BatchHead { len, checksum };
                if len <= LARGEST_BATCH { Ok(head) } else { Err("Batch too long") }
            }
            _ => Err("Not the head of a batch"),
        })
    }

    /// Compares it with its bytes, which begin at this offset of the file: all of them, or as many
    /// as are data there. `is_last`: no data follow.
    pub fn look_at(self, offset: u64, batch: &[u8], is_last: bool) -> Found {
        if batch.len() == self.len && crc64(0, batch) == self.checksum {
            return Found::Whole;
        }
        let is_short = batch.len() < self.len;
        let is_torn = is_short || has_preallocated_sector(offset, batch);
        if is_last && is_torn && !has_whole_batch(batch) { Found::Torn } else { Found::Damaged }
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    let is_hex = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u64::from_str_radix(text, 16).ok()
}

/// How a batch was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// As it was written.
    Whole,
    /// Some of its sectors never came to the disk, or the file ends inside of it.
    Torn,
    /// It is not what was written.
    Damaged,
}

/// Returns whether there is a batch in these bytes that is as it was written.
pub fn has_whole_batch(bytes: &[u8]) -> bool {
    let heads = bytes.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    heads.into_iter().any(|(at, _)| begins_with_whole_batch(&bytes[at..]))
}

/// Returns whether these bytes begin with a batch, without a filler, that is as it was written.
pub fn begins_with_whole_batch(bytes: &[u8]) -> bool {
    mark_at(bytes).is_some_and(|(head, body)| {
        let batch = bytes.get(body..body + head.len);
        batch.is_some_and(|batch| crc64(0, batch) == head.checksum)
    })
}

/// Returns the number of bytes of the batch, its mark included, that these bytes begin with.
/// `None`: they begin with none, or do not have the whole mark.
pub fn batch_len(bytes: &[u8]) -> Option<usize> {
    mark_at(bytes).map(|(head, body)| body + head.len)
}

/// Returns the mark that these bytes begin with, and where it ends.
fn mark_at(bytes: &[u8]) -> Option<(BatchHead, usize)> {
    let end = bytes.iter().take(LARGEST_MARK).position(|&byte| byte == b'\n')?;
    let head = BatchHead::parse(bytes[..end].trim_ascii_end())?.ok()?;
    Some((head, end + 1))
}

/// Returns the number of bytes from this offset to the end of its sector, if a batch that begins
/// there has only a filler in the sector.
pub fn filler_at(offset: u64) -> Option<usize> {
    Some(left_in_sector(offset)).filter(|&left| left < LARGEST_MARK)
}

/// Returns whether one of the sectors is preallocated space, as far as these bytes are in it.
fn has_preallocated_sector(mut offset: u64, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let len = bytes.len().min(left_in_sector(offset));
        let (sector, rest) = bytes.split_at(len);
        if is_preallocated(offset, sector) {
            return true;
        }
        offset += len as u64;
        bytes = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMAND: &[u8] = b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n";

    /// Returns the file after a batch was written at `offset`, with preallocated space behind it,
    /// and where the batch ends.
    fn file(offset: usize, batch: &[u8]) -> (Vec<u8>, usize) {
        let head = head_len(offset as u64, batch.len());
        let end = offset + head + batch.len();
        let mut file = vec![b'x'; end.next_multiple_of(SECTOR) + 4 * SECTOR];
        write_preallocation(offset as u64, &mut file[offset..]);
        write_head(offset as u64, batch, &mut file[offset..offset + head]);
        file[offset + head..end].copy_from_slice(batch);
        (file, end)
    }

    /// Returns the head in the lines at an offset, and where the data that it describes begin.
    fn head_at(file: &[u8], mut offset: usize) -> Option<(BatchHead, usize)> {
        while file.get(offset) == Some(&b'#') {
            let line = file[offset..].split_inclusive(|&byte| byte == b'\n').next()?;
            offset += line.len();
            if let Some(head) = BatchHead::parse(line.trim_ascii_end()) {
                return Some((head.ok()?, offset));
            }
        }
        None
    }

    #[test]
    fn room_is_lines_of_a_sector() {
        let mut bytes = vec![0; 3 * SECTOR];
        write_preallocation(SECTOR as u64 - 2, &mut bytes);
        assert_eq!(&bytes[..3], b"#\n#");
        assert_eq!((bytes[SECTOR], bytes[SECTOR + 1]), (b'#', b'\n'));
        assert!(is_preallocated(SECTOR as u64 - 2, &bytes) && !is_preallocated(0, &bytes));
    }

    #[test]
    fn a_head_says_what_is_behind_it() {
        let (file, _) = file(0, COMMAND);
        let line = file.split(|&byte| byte == b'\r').next().expect("a line");
        let head = BatchHead { len: COMMAND.len(), checksum: crc64(0, COMMAND) };
        assert_eq!(BatchHead::parse(line), Some(Ok(head)));
        assert_eq!(BatchHead::parse(b"#TS:1700000000"), None);
        for bad in
            ["#BATCH:", "#BATCH:00000001:012345678901234", "#BATCH:0000000g:0123456789012345"]
        {
            assert!(BatchHead::parse(bad.as_bytes()).is_some_and(|head| head.is_err()), "{bad}");
        }
        let longest = BatchHead::parse(b"#BATCH:00040000:0123456789abcdef");
        assert_eq!(longest.and_then(Result::ok).map(|head| head.len), Some(LARGEST_BATCH));
        assert_eq!(
            BatchHead::parse(b"#BATCH:00040001:0123456789abcdef"),
            Some(Err("Batch too long"))
        );
    }

    #[test]
    fn heads_are_found_at_every_offset_and_lines_fit_readers() {
        for offset in (0..2 * SECTOR).filter(|&offset| may_begin(offset as u64)) {
            for len in COMMAND.len()..COMMAND.len() + 3 {
                let batch = &COMMAND.repeat(2)[..len];
                let (file, end) = file(offset, batch);
                let (head, begin) = head_at(&file, offset).expect("a head");
                assert_eq!((head.len, begin + len), (len, end), "at {offset}");
                assert_eq!(head.look_at(begin as u64, &file[begin..end], true), Found::Whole);
                assert!(may_begin(end as u64), "at {offset}: none can follow");
                assert_eq!(file[end], b'#');
                let sector_end = (offset / SECTOR + 1) * SECTOR;
                assert!(!is_preallocated(offset as u64, &file[offset..sector_end]), "at {offset}");
                // The mark in one sector.
                let mark = file[..begin].windows(7).rposition(|bytes| bytes == PREFIX).unwrap_or(0);
                assert_eq!(mark / SECTOR, (begin - 1) / SECTOR, "at {offset}");
                let lines = file[offset..].split(|&byte| byte == b'\n');
                assert!(lines.map(<[u8]>::len).all(|len| len < 1023), "Redis reads 1023 bytes");
            }
        }
    }

    #[test]
    fn room_at_the_end_is_none_of_the_data() {
        for offset in (0..2 * SECTOR).filter(|&offset| may_begin(offset as u64)) {
            let batch = [&vec![b'#'; 600][..], b"\r\n"].concat();
            let (file, end) = file(offset, &batch);
            assert_eq!(data_before_preallocation(&file), end, "from {offset}");
            assert_eq!(data_before_preallocation(&file[..end]), end, "there need not be any");
            let mut cut = file[..end].to_vec();
            cut.resize(end.next_multiple_of(BLOCK), 0);
            assert_eq!(data_before_preallocation(&cut), end, "it was cut off");
            let block_end = cut.len();
            cut.resize(block_end + SECTOR, 0);
            write_preallocation(block_end as u64, &mut cut[block_end..]);
            assert_eq!(data_before_preallocation(&cut), end, "but the file is not shorter");
            let middle = block_end - SECTOR;
            write_preallocation(middle.max(end) as u64, &mut cut[middle.max(end)..]);
            assert_eq!(data_before_preallocation(&cut), end, "and one of the sectors is as it was");
        }
    }

    proptest! {
        #[test]
        fn a_batch_with_sectors_missing_is_torn_and_a_flipped_byte_damage(
            offset in 0..2 * SECTOR,
            batch in proptest::collection::vec(any::<u8>(), 1..4 * SECTOR),
            missing: u8,
            flipped: proptest::sample::Index,
        ) {
            prop_assume!(may_begin(offset as u64));
            let batch = [&batch[..], b"\r\n"].concat();
            let (whole, end) = file(offset, &batch);
            let (head, begin) = head_at(&whole, offset).expect("a head");
            let mut torn = whole.clone();
            for sector in begin.div_ceil(SECTOR)..end.div_ceil(SECTOR) {
                if missing >> (sector % 8) & 1 == 1 {
                    write_preallocation((sector * SECTOR) as u64, &mut torn[sector * SECTOR..][..SECTOR]);
                }
            }
            let data = data_before_preallocation(&torn).max(begin);
            let data = data.min(end);
            let found = head.look_at(begin as u64, &torn[begin..data], true);
            prop_assert_eq!(found, if torn == whole { Found::Whole } else { Found::Torn });
            let mut damaged = whole.clone();
            damaged[begin + flipped.index(batch.len() - 1)] ^= 1;
            let found = head.look_at(begin as u64, &damaged[begin..end], true);
            let is_like_preallocated = has_preallocated_sector(begin as u64, &damaged[begin..end]);
            prop_assert!(found == Found::Damaged || is_like_preallocated);
            // Nothing comes after a batch that was never forced to the disk.
            let found = head.look_at(begin as u64, &damaged[begin..end], false);
            prop_assert_eq!(found, Found::Damaged);
            // The end of the file may be anywhere if the file was extended.
            let cut = begin + flipped.index(batch.len());
            let found = head.look_at(begin as u64, &whole[begin..cut], true);
            prop_assert_eq!(found, Found::Torn);
        }
    }
}
