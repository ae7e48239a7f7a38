//! The arguments of the searching commands, read into one plain struct.

use super::{parse_point, parse_unit, point_of};
use engine::{Args, Error};
use structs::geo::{Point, Shape};
use structs::numbers::parse_f64;
use structs::zset::Zset;

/// Which of the commands is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `GEORADIUS`: center and radius at fixed places.
    Radius {
        /// May store its result.
        stores: bool,
    },
    /// `GEORADIUSBYMEMBER`.
    RadiusByMember {
        /// May store its result.
        stores: bool,
    },
    /// `GEOSEARCH`.
    Search,
    /// `GEOSEARCHSTORE`.
    SearchStore,
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }
    fn may_store(self) -> bool {
        matches!(self, Form::Radius { stores: true } | Form::RadiusByMember { stores: true })
    }
    /// The word of the source key.
    pub(super) fn source(self) -> usize {
        if self == Form::SearchStore { 2 } else { 1 }
    }
}

/// How results are ordered, by their distance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

/// How the center is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Member,
    Point,
}

/// What a search was asked for.
pub(super) struct GeoOptions {
    /// `None` if it cannot be known because there is no source key.
    pub center: Option<Point>,
    pub shape: Option<Shape>,
    /// Meters in the unit of the request.
    pub unit: f64,
    pub with_distance: bool,
    pub with_hash: bool,
    pub with_point: bool,
    pub order: Option<Order>,
    /// At most so many results.
    pub count: Option<usize>,
    /// Whichever are found first will do.
    pub any: bool,
    /// The word of the key to store into.
    pub destination: Option<usize>,
    /// Distances are stored as scores.
    pub stores_distances: bool,
    from: Option<From>,
}

/// The point of a member that has to be there.
fn center_of(zset: &Zset, member: &[u8]) -> Result<Point, Error> {
    point_of(zset, member).ok_or_else(|| {
        // Redis writes the name as C does, up to a NUL.
        let name = member.split(|&byte| byte == 0).next().unwrap_or_default();
        Error::Bytes([b"ERR member ", name, b" does not exist"].concat())
    })
}

/// Reads a request about the source's value.
pub(super) fn parse(args: Args<'_>, form: Form, zset: Option<&Zset>) -> Result<GeoOptions, Error> {
    let mut options = GeoOptions {
        center: None,
        shape: None,
        unit: 1.0,
        with_distance: false,
        with_hash: false,
        with_point: false,
        order: None,
        count: None,
        any: false,
        destination: (form == Form::SearchStore).then_some(1),
        stores_distances: false,
        from: None,
    };
    let mut at = options.parse_fixed(args, form, zset)?;
    while at < args.len() {
        at += options.parse_one(args, at, form, zset)?;
    }
    options.check(args, form)?;
    Ok(options)
}

impl GeoOptions {
    /// Reads what stands at a fixed place; returns the first word behind.
    fn parse_fixed(
        &mut self,
        args: Args<'_>,
        form: Form,
        zset: Option<&Zset>,
    ) -> Result<usize, Error> {
        match form {
            Form::Search => return Ok(2),
            Form::SearchStore => return Ok(3),
            Form::Radius { .. } => {
                self.center = Some(parse_point(args, 2)?);
                self.parse_radius(args, 4)?;
                return Ok(6);
            }
            Form::RadiusByMember { .. } => {}
        }
        // Without a source the radius is not even looked at.
        if let Some(zset) = zset {
            self.center = Some(center_of(zset, args[2])?);
            self.parse_radius(args, 3)?;
        }
        Ok(5)
    }

    fn parse_radius(&mut self, args: Args<'_>, at: usize) -> Result<(), Error> {
        let radius = number(args[at], "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err(Error::text("ERR radius cannot be negative"));
        }
        self.unit = parse_unit(args[at + 1])?;
        self.shape = Some(Shape::Circle { radius: radius * self.unit });
        Ok(())
    }

    fn parse_box(&mut self, args: Args<'_>, at: usize) -> Result<(), Error> {
        let width = number(args[at], "ERR need numeric width")?;
        let height = number(args[at + 1], "ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err(Error::text("ERR height or width cannot be negative"));
        }
        self.unit = parse_unit(args[at + 2])?;
        self.shape = Some(Shape::Box { width: width * self.unit, height: height * self.unit });
        Ok(())
    }

    /// Reads the corners of a polygon; returns how many words they take, their number included.
    fn parse_polygon(&mut self, args: Args<'_>, at: usize) -> Result<usize, Error> {
        let corners = structs::numbers::parse_i64(args[at]).and_then(|n| i32::try_from(n).ok());
        let corners = corners.ok_or(Error::text("ERR invalid number of vertices"))?;
        let possible = (args.len() - at - 1) / 2;
        let corners = usize::try_from(corners).ok().filter(|n| (3..=possible).contains(n));
        let corners =
            corners.ok_or(Error::text("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"))?;
        let points = (0..corners).map(|corner| parse_point(args, at + 1 + 2 * corner));
        self.shape = Some(Shape::Polygon(points.collect::<Result<_, _>>()?));
        self.unit = 1.0;
        Ok(1 + 2 * corners)
    }

    /// Reads one option; returns how many words it takes.
    fn parse_one(
        &mut self,
        args: Args<'_>,
        at: usize,
        form: Form,
        zset: Option<&Zset>,
    ) -> Result<usize, Error> {
        let behind = args.len() - at - 1;
        if args.is(at, "withdist") {
            self.with_distance = true;
        } else if args.is(at, "withhash") {
            self.with_hash = true;
        } else if args.is(at, "withcoord") {
            self.with_point = true;
        } else if args.is(at, "any") {
            self.any = true;
        } else if args.is(at, "asc") {
            self.order = Some(Order::Ascending);
        } else if args.is(at, "desc") {
            self.order = Some(Order::Descending);
        } else if args.is(at, "count") && behind >= 1 {
            let count = args.integer(at + 1)?;
            let count = usize::try_from(count).ok().filter(|&count| count > 0);
            self.count = Some(count.ok_or(Error::text("ERR COUNT must be > 0"))?);
            return Ok(2);
        } else if form.may_store()
            && behind >= 1
            && (args.is(at, "store") || args.is(at, "storedist"))
        {
            self.destination = Some(at + 1);
            self.stores_distances = args.is(at, "storedist");
            return Ok(2);
        } else if form == Form::SearchStore && args.is(at, "storedist") {
            self.stores_distances = true;
        } else if form.is_search() {
            return self.parse_place_or_shape(args, at, zset);
        } else {
            return Err(Error::Syntax);
        }
        Ok(1)
    }

    /// Reads where the center is, or what lies around it. Of each only one kind may be named, and a
    /// polygon has its own center; the last of several counts.
    fn parse_place_or_shape(
        &mut self,
        args: Args<'_>,
        at: usize,
        zset: Option<&Zset>,
    ) -> Result<usize, Error> {
        let behind = args.len() - at - 1;
        let (from, shape) = (self.from, self.shape.as_ref());
        let is_polygon = matches!(shape, Some(Shape::Polygon(_)));
        let may_be_from = |kind| !is_polygon && from.is_none_or(|from| from == kind);
        if args.is(at, "frommember") && behind >= 1 && may_be_from(From::Member) {
            if let Some(zset) = zset {
                self.center = Some(center_of(zset, args[at + 1])?);
            }
            self.from = Some(From::Member);
            Ok(2)
        } else if args.is(at, "fromlonlat") && behind >= 2 && may_be_from(From::Point) {
            self.center = Some(parse_point(args, at + 1)?);
            self.from = Some(From::Point);
            Ok(3)
        } else if args.is(at, "byradius")
            && behind >= 2
            && matches!(shape, None | Some(Shape::Circle { .. }))
        {
            self.parse_radius(args, at + 1)?;
            Ok(3)
        } else if args.is(at, "bybox")
            && behind >= 3
            && matches!(shape, None | Some(Shape::Box { .. }))
        {
            self.parse_box(args, at + 1)?;
            Ok(4)
        } else if args.is(at, "bypolygon")
            && behind >= 2
            && from.is_none()
            && matches!(shape, None | Some(Shape::Polygon(_)))
        {
            Ok(1 + self.parse_polygon(args, at + 1)?)
        } else {
            Err(Error::Syntax)
        }
    }

    /// What the options must be together.
    fn check(&self, args: Args<'_>, form: Form) -> Result<(), Error> {
        if self.destination.is_some() && (self.with_distance || self.with_hash || self.with_point) {
            let what = match form {
                Form::SearchStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            let text = "is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
            return Err(Error::format(format!("ERR {what} {text}")));
        }
        let missing = match &self.shape {
            Some(Shape::Polygon(_)) => None,
            _ if form.is_search() && self.from.is_none() => {
                Some("FROMMEMBER or FROMLONLAT can be specified")
            }
            None if form.is_search() => Some("BYRADIUS, BYBOX and BYPOLYGON can be specified"),
            _ => None,
        };
        if let Some(missing) = missing {
            let name = String::from_utf8_lossy(args[0]);
            return Err(Error::format(format!("ERR exactly one of {missing} for {name}")));
        }
        if self.any && self.count.is_none() {
            return Err(Error::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }
}

fn number(word: &[u8], error: &'static str) -> Result<f64, Error> {
    parse_f64(word).ok_or(Error::text(error))
}
