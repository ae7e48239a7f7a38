//! Random elements with repetitions: HRANDFIELD, SRANDMEMBER and ZRANDMEMBER with a negative count.

use resp::Reply;

/// Elements drawn before the reply's length is looked at again.
const DRAWN_AT_ONCE: usize = 1024;

/// Writes `count` elements, which may be far more than there are: `draw` writes some of them.
/// Stops when the reply exceeds `room`, since it will not be sent then.
pub(crate) fn draw_repeated(
    count: usize,
    reply: &mut Reply<'_>,
    room: usize,
    mut draw: impl FnMut(usize, &mut Reply<'_>),
) {
    let mut left = count;
    while left > 0 && reply.charge() <= room {
        let part = left.min(DRAWN_AT_ONCE);
        draw(part, reply);
        left -= part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::{Output, Protocol};

    fn drawn(count: usize, room: usize) -> usize {
        let mut out = Output::default();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        draw_repeated(count, &mut reply, room, |part, reply| {
            (0..part).for_each(|_| reply.raw(b"x"));
        });
        out.len()
    }

    #[test]
    fn stops_soon_after_there_is_no_room() {
        assert_eq!(drawn(0, 10), 0);
        assert_eq!(drawn(5000, usize::MAX), 5000);
        assert_eq!(drawn(usize::MAX, 3000), 3 * DRAWN_AT_ONCE);
    }
}
