//! A compiled path.
//!
//! ```text
//!   path       = selection | projection
//!   selection  = "$" { step }                      or in brackets; legacy: without "$"
//!   step       = ( "." | ".." ) ( name | "*" ) | [ ".." ] "[" selector { "," selector } "]"
//!   selector   = quoted | integer | slice | "*" | "?" expression
//!   slice      = [ integer ] ":" [ integer ] [ ":" [ integer ] ]
//!   expression = and { "||" and }
//!   and        = not { "&&" not }
//!   not        = "!" not | comparison
//!   comparison = sum [ operator sum ]
//!   operator   = == != < <= > >= =~ in nin subsetof anyof noneof sizeof size empty
//!   sum        = product { ( "+" | "-" ) product }
//!   product    = unary { ( "*" | "/" | "%" ) unary }
//!   unary      = ( "-" | "+" ) unary | primary { "." call } [ "~" ]
//!   primary    = ( "@" | "$" ) { step } | literal | call | "(" expression ")"
//!   call       = function "(" [ expression { "," expression } ] ")"
//! ```

use super::pattern::Pattern;
use crate::document::Document;

/// The place of a name in [`super::Path`]'s list: it is looked up once an evaluation.
pub(crate) type NameRef = u32;

/// One step down, or to all levels below.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) recursive: bool,
    pub(crate) selector: Selector,
}

/// Which children a step takes.
#[derive(Debug)]
pub(crate) enum Selector {
    Name(NameRef),
    Index(i64),
    Slice { start: Option<i64>, end: Option<i64>, step: i64 },
    Wildcard,
    Filter(Expression),
    Union(Box<[Selector]>),
}

/// A path inside an expression, or a whole one.
#[derive(Debug)]
pub(crate) struct Query {
    /// Begins at `$`, not at `@`.
    pub(crate) absolute: bool,
    pub(crate) steps: Box<[Step]>,
    /// Has names and single indexes only, so that it finds one value at most.
    pub(crate) is_static: bool,
}

impl Query {
    pub(crate) fn new(absolute: bool, steps: Vec<Step>) -> Query {
        let is_static = steps.iter().all(|step| {
            !step.recursive && matches!(step.selector, Selector::Name(_) | Selector::Index(_))
        });
        Query { absolute, steps: steps.into(), is_static }
    }
}

/// Something that has a value, or is true or false.
#[derive(Debug)]
pub(crate) enum Expression {
    Query(Query),
    Literal(Document),
    Call(Function, Box<[Expression]>),
    /// `~`: the names of members.
    Keys(Box<Expression>),
    Negative(Box<Expression>),
    Positive(Box<Expression>),
    Arithmetic(Arithmetic, Box<(Expression, Expression)>),
    Compare(Comparison, Box<(Expression, Expression)>),
    /// `=~`, `search()` or `match()` with a pattern that is written in the path. `None` is an
    /// invalid one, which matches nothing.
    Matches(Box<Expression>, Option<Pattern>),
    Not(Box<Expression>),
    And(Box<[Expression]>),
    Or(Box<[Expression]>),
}

/// An operator of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// An operator that is true or false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Matches,
    In,
    NotIn,
    SubsetOf,
    AnyOf,
    NoneOf,
    SizeOf,
    Empty,
}

impl Comparison {
    /// Returns whether it compares two values, not a value or list with a list.
    pub(crate) fn is_of_values(self) -> bool {
        use Comparison::{AnyOf, In, NoneOf, NotIn, SubsetOf};
        !matches!(self, In | NotIn | SubsetOf | AnyOf | NoneOf)
    }
}

macro_rules! functions {
    ($($variant:ident $name:literal $least:literal..=$most:expr;)*) => {
        /// A function of expressions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Function {
            $($variant),*
        }

        impl Function {
            /// Returns the function with a name.
            pub(crate) fn find(name: &str) -> Option<Function> {
                match name {
                    $($name => Some(Function::$variant),)*
                    _ => None,
                }
            }

            /// Returns whether it can be called with so many arguments.
            pub(crate) fn takes(self, arguments: usize) -> bool {
                match self {
                    $(Function::$variant => ($least..=$most).contains(&arguments)),*
                }
            }
        }
    };
}

functions! {
    Length "length" 1..=1;
    Count "count" 1..=1;
    Value "value" 1..=1;
    Keys "keys" 1..=1;
    Match "match" 2..=2;
    Search "search" 2..=2;
    Concat "concat" 1..=usize::MAX;
    Abs "abs" 1..=1;
    Ceiling "ceiling" 1..=1;
    Floor "floor" 1..=1;
    First "first" 1..=1;
    Last "last" 1..=1;
    Index "index" 2..=2;
    Min "min" 1..=1;
    Max "max" 1..=1;
    Avg "avg" 1..=1;
    Sum "sum" 1..=1;
    StdDev "stddev" 1..=1;
    Append "append" 2..=usize::MAX;
    SubsetOf "subsetof" 2..=2;
    AnyOf "anyof" 2..=2;
    NoneOf "noneof" 2..=2;
}
