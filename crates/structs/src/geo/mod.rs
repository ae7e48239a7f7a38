//! Geographic search over sorted sets, with the same cells, distances and order of results as
//! Redis.
//!
//! A point is a score: longitude and latitude are each cut into 2^26 steps, and the bits of the two
//! step numbers alternate (longitude first), which makes 52 bits. Points that share the first bits
//! share a *cell*, and a cell is a range of scores. A search covers its shape by one cell and those
//! around it ([`cell`]), reads their ranges and keeps the points that lie inside the shape
//! ([`shape`]).

pub mod cell;
pub mod shape;

pub use cell::Cell;
pub use shape::{Search, Shape};

/// Bits of a step number of a score.
pub const MAX_STEP: u32 = 26;
/// Longitudes of the whole map, in degrees.
pub const LONGITUDES: Bounds = Bounds { min: -180.0, max: 180.0 };
/// Latitudes that the map projection (EPSG:3857) can show, in degrees.
pub const LATITUDES: Bounds = Bounds { min: -85.05112878, max: 85.05112878 };
/// In meters, as Redis has it.
const EARTH_RADIUS: f64 = 6_372_797.560856;

/// A range of degrees; both ends belong to it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// The lower end.
    pub min: f64,
    /// The upper end.
    pub max: f64,
}

impl Bounds {
    fn contains(self, degrees: f64) -> bool {
        (self.min..=self.max).contains(&degrees)
    }
    fn middle(self) -> f64 {
        (self.min + self.max) / 2.0
    }
}

/// A place on earth, in degrees.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Point {
    /// East of Greenwich.
    pub longitude: f64,
    /// North of the equator.
    pub latitude: f64,
}

/// A score as bits, also one that belongs to no point (negative, infinite): C does not define that
/// cast, and clients know what it gives on x86-64.
fn bits_of(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    let truncated =
        |score: f64| if (-HALF..HALF).contains(&score) { score as i64 } else { i64::MIN };
    if score < HALF { truncated(score) as u64 } else { truncated(score - HALF) as u64 ^ (1 << 63) }
}

impl Point {
    /// Whether the point is on the map.
    pub fn is_valid(self) -> bool {
        LONGITUDES.contains(self.longitude) && LATITUDES.contains(self.latitude)
    }

    /// The score of a member at this point, which is on the map.
    pub fn score(self) -> u64 {
        Cell::around(self, MAX_STEP).bits
    }

    /// The middle of the smallest cell with this score.
    pub fn from_score(score: f64) -> Point {
        let cell = Cell { bits: bits_of(score), step: MAX_STEP };
        let area = cell.area();
        let clamp = |degrees: f64, map: Bounds| degrees.clamp(map.min, map.max);
        Point {
            longitude: clamp(area.longitudes.middle(), LONGITUDES),
            latitude: clamp(area.latitudes.middle(), LATITUDES),
        }
    }

    /// The great-circle distance in meters (haversine formula).
    pub fn distance(self, other: Point) -> f64 {
        /// About 6 nm: then the longitudes are the same for all that matters.
        const SAME_LONGITUDE: f64 = 1e-15;
        let (from, to) = (radians(self.longitude), radians(other.longitude));
        let v = ((to - from) / 2.0).sin();
        if v.abs() <= SAME_LONGITUDE {
            return latitude_distance(self.latitude, other.latitude);
        }
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let u = ((to - from) / 2.0).sin();
        let a = u * u + from.cos() * to.cos() * v * v;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }

    /// The geohash string that other tools use: eleven characters over the whole range of
    /// latitudes.
    pub fn geohash(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let poles = Bounds { min: -90.0, max: 90.0 };
        let bits = cell::encode(self, LONGITUDES, poles, MAX_STEP);
        std::array::from_fn(|index| {
            // 52 bits are ten characters and a rest, for which Redis writes the first one.
            let character = if index == 10 { 0 } else { bits >> (52 - (index + 1) * 5) & 31 };
            ALPHABET[character as usize]
        })
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// The distance in meters of two points on one meridian.
fn latitude_distance(from: f64, to: f64) -> f64 {
    EARTH_RADIUS * (radians(to) - radians(from)).abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(longitude: f64, latitude: f64) -> Point {
        Point { longitude, latitude }
    }

    /// The examples of the documentation.
    #[test]
    fn palermo_and_catania_are_where_they_should_be() {
        let palermo = point(13.361389, 38.115556);
        let catania = point(15.087269, 37.502669);
        assert_eq!(palermo.score(), 3_479_099_956_230_698);
        let stored = Point::from_score(palermo.score() as f64);
        assert!((stored.longitude - 13.361389338970184).abs() < 1e-12);
        assert!((stored.latitude - 38.1155563954963).abs() < 1e-12);
        let catania = Point::from_score(catania.score() as f64);
        assert!((stored.distance(catania) - 166_274.151_6).abs() < 1e-3);
        assert_eq!(&stored.geohash(), b"sqc8b49rny0");
    }

    #[test]
    fn points_off_the_map_are_invalid() {
        assert!(point(180.0, 85.05112878).is_valid());
        assert!(!point(180.1, 0.0).is_valid());
        assert!(!point(0.0, -85.06).is_valid());
        assert!(!point(f64::NAN, 0.0).is_valid());
    }

    #[test]
    fn a_score_that_is_no_point_still_has_one() {
        for score in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert!(Point::from_score(score).is_valid());
        }
    }
}
