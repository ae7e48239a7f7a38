//! Cells of the map: squares of a grid of 2^step by 2^step.

use super::{Bounds, LATITUDES, LONGITUDES, MAX_STEP, Point};
use std::ops::Range;

const LATITUDE_BITS: u64 = 0x5555_5555_5555_5555;
const LONGITUDE_BITS: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// A cell: the alternating bits of its column (longitude) and row (latitude).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// `2 * step` bits.
    pub bits: u64,
    /// Bits of the column and of the row.
    pub step: u32,
}

/// What a cell covers.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// From west to east.
    pub longitudes: Bounds,
    /// From south to north.
    pub latitudes: Bounds,
}

/// The alternating bits of a point, on a map of these bounds.
pub(super) fn encode(point: Point, longitudes: Bounds, latitudes: Bounds, step: u32) -> u64 {
    let steps = (1u64 << step) as f64;
    let part = |at: f64, of: Bounds| ((at - of.min) / (of.max - of.min) * steps) as u32;
    spread(part(point.latitude, latitudes)) | spread(part(point.longitude, longitudes)) << 1
}

/// Moves bit n to bit 2n.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    bits = (bits | bits << 16) & 0x0000_ffff_0000_ffff;
    bits = (bits | bits << 8) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits << 2) & 0x3333_3333_3333_3333;
    (bits | bits << 1) & LATITUDE_BITS
}

/// Moves bit 2n to bit n.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & LATITUDE_BITS;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
    (bits | bits >> 16) as u32
}

impl Cell {
    /// The cell of this size that the point is in.
    pub fn around(point: Point, step: u32) -> Cell {
        Cell { bits: encode(point, LONGITUDES, LATITUDES, step), step }
    }

    /// The degrees that it covers.
    pub fn area(self) -> Area {
        let steps = (1u64 << self.step) as f64;
        let bounds = |number: u32, of: Bounds| {
            let at = |number: f64| of.min + number / steps * (of.max - of.min);
            Bounds { min: at(f64::from(number)), max: at(f64::from(number) + 1.0) }
        };
        Area {
            longitudes: bounds(gather(self.bits >> 1), LONGITUDES),
            latitudes: bounds(gather(self.bits), LATITUDES),
        }
    }

    /// The scores of the points in it.
    pub fn scores(self) -> Range<u64> {
        let shift = 2 * (MAX_STEP - self.step);
        self.bits << shift..(self.bits + 1) << shift
    }

    /// The cell so many columns to the east and rows to the north (−1, 0 or 1); beyond the edge of
    /// the map it is the one at the opposite edge.
    ///
    /// A point on the map's eastern or northern edge lies in a column or row behind the last one.
    /// As in Redis, a neighbor stays in it unless it moves along that direction.
    pub fn neighbor(self, east: i32, north: i32) -> Cell {
        let used = u64::MAX >> (64 - 2 * self.step);
        let columns = step_along(self.bits, east, LONGITUDE_BITS, LATITUDE_BITS, used);
        let rows = step_along(self.bits, north, LATITUDE_BITS, LONGITUDE_BITS, used);
        Cell { bits: columns | rows, step: self.step }
    }
}

/// Adds `by` to the number whose bits are at `own`, as far as they are `used`; `others` are set so
/// that a carry passes over them.
fn step_along(bits: u64, by: i32, own: u64, others: u64, used: u64) -> u64 {
    let (number, others) = (bits & own, others & used);
    match by {
        0 => number,
        1 => number.wrapping_add(others.wrapping_add(1)) & own & used,
        _ => (number | others).wrapping_sub(others.wrapping_add(1)) & own & used,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbors_touch_and_wrap() {
        let cell = Cell::around(Point { longitude: 10.0, latitude: 50.0 }, 8);
        let (area, east) = (cell.area(), cell.neighbor(1, 0).area());
        assert_eq!(area.longitudes.max, east.longitudes.min);
        assert_eq!(area.latitudes, east.latitudes);
        let north = cell.neighbor(0, 1).area();
        assert_eq!(area.latitudes.max, north.latitudes.min);
        let edge = Cell::around(Point { longitude: 179.99, latitude: 0.0 }, 8);
        assert_eq!(edge.neighbor(1, 0).area().longitudes.min, -180.0);
    }

    #[test]
    fn a_cell_behind_the_last_column_and_row_keeps_what_does_not_move() {
        let corner = Cell::around(Point { longitude: LONGITUDES.max, latitude: LATITUDES.max }, 1);
        assert_eq!(corner.bits, 0b1100);
        assert_eq!(corner.neighbor(1, 0).bits, 0b0110);
        assert_eq!(corner.neighbor(0, -1).bits, 0b1001);
        assert_eq!(corner.neighbor(-1, -1).bits, 0b0011);
    }

    proptest! {
        #[test]
        fn bits_alternate_and_come_back(number: u32) {
            prop_assert_eq!(gather(spread(number)), number);
        }

        #[test]
        fn a_step_and_a_step_back_is_none(
            longitude in -180.0..180.0, latitude in -85.0..85.0, step in 1u32..27
        ) {
            let cell = Cell::around(Point { longitude, latitude }, step);
            for (east, north) in [(1, 0), (0, 1), (1, 1), (1, -1), (-1, 1)] {
                prop_assert_eq!(cell.neighbor(east, north).neighbor(-east, -north), cell);
            }
        }

        #[test]
        fn a_cell_has_the_scores_of_its_points(
            longitude in -180.0..180.0, latitude in -85.0..85.0, step in 1u32..27
        ) {
            let point = Point { longitude, latitude };
            prop_assert!(Cell::around(point, step).scores().contains(&point.score()));
        }
    }
}
