//! What a search covers: a circle, a box or a polygon; and the cells that cover it.

use super::cell::Cell;
use super::{Bounds, EARTH_RADIUS, MAX_STEP, Point, degrees, latitude_distance, radians};

/// A form on the map; lengths are meters.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// All within a distance of the center.
    Circle {
        /// The largest distance.
        radius: f64,
    },
    /// A rectangle with the center in its middle, its sides along the axes.
    Box {
        /// From west to east.
        width: f64,
        /// From south to north.
        height: f64,
    },
    /// Everything inside a ring of points; the center is computed from them.
    Polygon(Vec<Point>),
}

/// A shape at its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    center: Point,
    shape: Shape,
    longitudes: Bounds,
    latitudes: Bounds,
}

impl Search {
    /// A search around a center, which a polygon does not need.
    pub fn new(center: Point, shape: Shape) -> Search {
        match &shape {
            Shape::Circle { radius } => around(center, *radius, *radius, shape),
            Shape::Box { width, height } => around(center, width / 2.0, height / 2.0, shape),
            Shape::Polygon(points) => {
                let (longitudes, latitudes) = box_of(points);
                Search { center: centroid(points), shape, longitudes, latitudes }
            }
        }
    }

    /// The distance of a point from the center in meters, if the point is inside.
    pub fn distance(&self, point: Point) -> Option<f64> {
        let center = self.center;
        match &self.shape {
            Shape::Circle { radius } => {
                let distance = center.distance(point);
                (distance <= *radius).then_some(distance)
            }
            Shape::Box { width, height } => {
                if latitude_distance(point.latitude, center.latitude) > height / 2.0 {
                    return None;
                }
                let level = Point { latitude: point.latitude, ..center };
                (point.distance(level) <= width / 2.0).then(|| center.distance(point))
            }
            Shape::Polygon(ring) => is_inside(ring, point).then(|| center.distance(point)),
        }
    }

    /// The cells whose points have to be looked at, in the order in which Redis reads them.
    pub fn cells(&self) -> Vec<Cell> {
        let mut step = step_for(self.reach(), self.center.latitude);
        let mut cell = Cell::around(self.center, step);
        if step > 1 && self.exceeds_neighbors(cell) {
            step -= 1;
            cell = Cell::around(self.center, step);
        }
        let mut cells = vec![cell];
        let mut last = None;
        for (east, north) in [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)]
        {
            let neighbor = cell.neighbor(east, north);
            // With very large cells two neighbors can be the same one.
            if self.needs(cell, east, north) && last != Some(neighbor) {
                cells.push(neighbor);
                last = Some(neighbor);
            }
        }
        cells
    }

    /// The distance from the center to the farthest corner, in meters.
    fn reach(&self) -> f64 {
        match &self.shape {
            Shape::Circle { radius } => *radius,
            Shape::Box { width, height } => {
                let (width, height) = (width / 2.0, height / 2.0);
                (width * width + height * height).sqrt()
            }
            Shape::Polygon(_) => {
                let corners = [self.longitudes.min, self.longitudes.max].map(|longitude| {
                    [self.latitudes.min, self.latitudes.max]
                        .map(|latitude| Point { longitude, latitude })
                });
                let distances =
                    corners.as_flattened().iter().map(|&corner| self.center.distance(corner));
                distances.fold(0.0, f64::max)
            }
        }
    }

    /// Whether the shape reaches beyond the cells around this one.
    fn exceeds_neighbors(&self, cell: Cell) -> bool {
        let area = |east, north| cell.neighbor(east, north).area();
        area(0, 1).latitudes.max < self.latitudes.max
            || area(0, -1).latitudes.min > self.latitudes.min
            || area(1, 0).longitudes.max < self.longitudes.max
            || area(-1, 0).longitudes.min > self.longitudes.min
    }

    /// Whether the neighbor in this direction can hold anything of the shape.
    fn needs(&self, cell: Cell, east: i32, north: i32) -> bool {
        if cell.step < 2 {
            return true;
        }
        let area = cell.area();
        let is_useless = (north < 0 && area.latitudes.min < self.latitudes.min)
            || (north > 0 && area.latitudes.max > self.latitudes.max)
            || (east < 0 && area.longitudes.min < self.longitudes.min)
            || (east > 0 && area.longitudes.max > self.longitudes.max);
        !is_useless
    }
}

/// The search for a shape that reaches so far to each side of its center.
fn around(center: Point, width: f64, height: f64, shape: Shape) -> Search {
    let rise = degrees(height / EARTH_RADIUS);
    // Circles of latitude are shorter the nearer they are to a pole.
    let nearest_pole = if center.latitude < 0.0 { -rise } else { rise };
    let along = degrees(width / EARTH_RADIUS / radians(center.latitude + nearest_pole).cos());
    let bounds = |at: f64, reach: f64| Bounds { min: at - reach, max: at + reach };
    Search {
        longitudes: bounds(center.longitude, along),
        latitudes: bounds(center.latitude, rise),
        center,
        shape,
    }
}

fn box_of(points: &[Point]) -> (Bounds, Bounds) {
    let bounds = |of: fn(&Point) -> f64| Bounds {
        min: points.iter().map(of).fold(f64::INFINITY, f64::min),
        max: points.iter().map(of).fold(f64::NEG_INFINITY, f64::max),
    };
    (bounds(|point| point.longitude), bounds(|point| point.latitude))
}

/// The point below the middle of the corners in space.
fn centroid(points: &[Point]) -> Point {
    let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
    for point in points {
        let (longitude, latitude) = (radians(point.longitude), radians(point.latitude));
        x += latitude.cos() * longitude.cos();
        y += latitude.cos() * longitude.sin();
        z += latitude.sin();
    }
    let level = (x * x + y * y).sqrt();
    Point { longitude: degrees(y.atan2(x)), latitude: degrees(z.atan2(level)) }
}

/// Whether a ray from the point crosses an odd number of sides.
fn is_inside(ring: &[Point], point: Point) -> bool {
    let mut is_inside = false;
    let before = ring.iter().cycle().skip(ring.len() - 1);
    for (a, b) in ring.iter().zip(before) {
        let spans = (a.latitude > point.latitude) != (b.latitude > point.latitude);
        if spans {
            let share = (b.longitude - a.longitude) * (point.latitude - a.latitude)
                / (b.latitude - a.latitude);
            is_inside ^= point.longitude < share + a.longitude;
        }
    }
    is_inside
}

/// The finest grid whose cells around a center cover so many meters.
fn step_for(meters: f64, latitude: f64) -> u32 {
    /// Half of the map's width in meters.
    const HALF_MAP: f64 = 20_037_726.37;
    if meters == 0.0 {
        return MAX_STEP;
    }
    let mut step = 1i32;
    let mut covered = meters;
    while covered < HALF_MAP {
        covered *= 2.0;
        step += 1;
    }
    step -= 2;
    // Cells are narrower in meters near the poles.
    step -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, MAX_STEP as i32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(longitude: f64, latitude: f64) -> Point {
        Point { longitude, latitude }
    }

    #[test]
    fn a_polygon_holds_what_is_between_its_corners() {
        let ring = vec![point(0.0, 0.0), point(10.0, 0.0), point(10.0, 10.0), point(0.0, 10.0)];
        let search = Search::new(Point::default(), Shape::Polygon(ring));
        assert!(search.distance(point(5.0, 5.0)).is_some_and(|meters| meters < 10_000.0));
        assert!(search.distance(point(11.0, 5.0)).is_none());
    }

    proptest! {
        /// Nothing that is inside lies outside of the cells, but for shapes around a pole or over
        /// the edge of the map, where Redis misses points too.
        #[test]
        fn the_cells_cover_the_shape(
            longitude in -100.0..100.0, latitude in -60.0..60.0, radius in 1.0..1e6,
            east in -20.0..20.0, north in -10.0..10.0
        ) {
            let center = point(longitude, latitude);
            let other = point(longitude + east, latitude + north);
            for shape in [Shape::Circle { radius }, Shape::Box { width: radius, height: radius }] {
                let search = Search::new(center, shape);
                if search.distance(other).is_some() {
                    let score = other.score();
                    prop_assert!(search.cells().iter().any(|cell| cell.scores().contains(&score)));
                }
            }
        }
    }
}
