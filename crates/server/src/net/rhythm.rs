//! How many completions to wait for, and for how long.
//!
//! Going to sleep and being woken costs a good part of what a small request costs, on both sides:
//! whoever sends to a sleeper pays for waking it. A thread that wakes at the first request of many
//! finds few, answers few, and wakes a client for few. So when many connections have been active
//! lately, it sleeps until most of them have spoken, but only for a moment that is short against
//! the time it takes to serve them all: a connection that is late delays nobody for long, and a
//! few connections, or one, are never made to wait. Nor are many that are active seldom: what counts
//! is how many there are beside how often two of them speak at the same time.

/// What a driver knows of how many connections are active.
#[derive(Debug)]
pub(super) struct Rhythm {
    /// Windows of a few turns are numbered; a connection is counted once in each.
    window: u16,
    turns: u8,
    /// Connections counted in this window, and in the one before.
    counting: u32,
    active: u32,
    /// Arrivals in this window.
    arrivals: u32,
}

impl Rhythm {
    /// Turns in a window. Long enough that every busy connection has its turn in it.
    const TURNS: u8 = 8;
    /// With fewer active connections there is nothing to gain.
    const FEW: u32 = 8;
    /// Microseconds of patience for each active connection, which takes about twice as long to be
    /// served, and the most there is.
    const PATIENCE: u32 = 2;
    const MOST_PATIENCE: u32 = 100;

    pub fn new() -> Self {
        Self { window: 1, turns: 0, counting: 0, active: 0, arrivals: 0 }
    }

    /// A connection has sent something; `seen` is its mark, zero at first.
    #[inline]
    pub fn count(&mut self, seen: &mut u16) {
        self.arrivals += 1;
        if *seen != self.window {
            *seen = self.window;
            self.counting += 1;
        }
    }

    /// A turn has brought something.
    pub fn turn(&mut self) {
        self.turns += 1;
        if self.turns == Self::TURNS {
            self.turns = 0;
            let crowded = std::mem::take(&mut self.arrivals) >= 2 * u32::from(Self::TURNS);
            let counted = std::mem::take(&mut self.counting);
            self.active = if crowded { counted } else { 0 };
            // Zero is what connections begin with.
            self.window = self.window.checked_add(1).unwrap_or(1);
        }
    }

    /// How many completions to wait for, and for how many microseconds, before one is enough.
    pub fn patience(&self) -> (u32, u32) {
        if self.active < Self::FEW {
            return (1, 0);
        }
        (self.active - self.active / 4, (self.active * Self::PATIENCE).min(Self::MOST_PATIENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_for_the_many() {
        let mut rhythm = Rhythm::new();
        let mut seen = [0u16; 100];
        let mut run = |connections: usize| {
            for _ in 0..2 * Rhythm::TURNS {
                seen[..connections].iter_mut().for_each(|seen| rhythm.count(seen));
                rhythm.turn();
            }
            rhythm.patience()
        };
        assert_eq!(run(1), (1, 0));
        assert_eq!(run(7), (1, 0));
        assert_eq!(run(8), (6, 16));
        assert_eq!(run(50), (38, 100));
        assert_eq!(run(100), (75, 100));
        // And it is over as soon as they are quiet.
        assert_eq!(run(2), (1, 0));
        // Many that never speak at the same time are not made to.
        for at in 0..100 {
            rhythm.count(&mut seen[at % 100]);
            rhythm.turn();
        }
        assert_eq!(rhythm.patience(), (1, 0));
    }

    #[test]
    fn windows_never_take_the_number_of_a_beginner() {
        let mut rhythm = Rhythm { window: u16::MAX, turns: Rhythm::TURNS - 1, ..Rhythm::new() };
        rhythm.turn();
        assert_eq!(rhythm.window, 1);
    }
}
