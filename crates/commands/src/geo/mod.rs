//! The commands of the group `geo`, one file each or a tight family. The points are scores of a
//! sorted set; [`structs::geo`] has the arithmetic.

mod geoadd;
mod lookup;
mod options;
mod search;
mod search_rows;

use engine::{Args, Command, Cx, Error};
use structs::geo::Point;
use structs::numbers::{LongDouble, parse_f64};
use structs::zset::Zset;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &search_rows::GEOSEARCHSTORE,
    &search_rows::GEOSEARCH,
    &search_rows::GEORADIUSBYMEMBER_RO,
    &search_rows::GEORADIUSBYMEMBER,
    &search_rows::GEORADIUS_RO,
    &search_rows::GEORADIUS,
    &lookup::GEOPOS,
    &lookup::GEOHASH,
    &lookup::GEODIST,
    &geoadd::GEOADD,
];

/// The point that the words at `index` and behind spell.
fn parse_point(args: Args<'_>, index: usize) -> Result<Point, Error> {
    let number = |index: usize| parse_f64(args[index]).ok_or(Error::NotFloat);
    let point = Point { longitude: number(index)?, latitude: number(index + 1)? };
    if point.is_valid() {
        return Ok(point);
    }
    let Point { longitude, latitude } = point;
    let text = format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
    Err(Error::format(text))
}

/// Meters in a unit.
fn parse_unit(word: &[u8]) -> Result<f64, Error> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = units.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
    found
        .map(|&(_, meters)| meters)
        .ok_or(Error::text("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// The point of a member.
fn point_of(zset: &Zset, member: &[u8]) -> Option<Point> {
    zset.score(member).map(Point::from_score)
}

/// A distance, with four digits behind the point whatever the protocol.
fn write_distance(cx: &mut Cx<'_>, distance: f64) {
    cx.reply.bulk(format!("{distance:.4}").as_bytes());
}

/// A coordinate, with the digits of a long double.
fn write_coordinate(cx: &mut Cx<'_>, degrees: f64) {
    let mut text = Vec::new();
    LongDouble::from(degrees).push_human(&mut text);
    if cx.reply.is_resp3() {
        cx.reply.raw(&[b",", text.as_slice(), b"\r\n"].concat());
    } else {
        cx.reply.bulk(&text);
    }
}

fn write_point(cx: &mut Cx<'_>, point: Point) {
    cx.reply.array(2);
    write_coordinate(cx, point.longitude);
    write_coordinate(cx, point.latitude);
}
