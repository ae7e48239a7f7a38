//! The arguments of a command, as COMMAND DOCS and help texts show them.

/// One argument.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: ArgKind,
    /// The literal word that introduces it, if any.
    pub token: &'static str,
    /// Index of the key specification, for keys and patterns of keys.
    pub key_spec: Option<usize>,
    /// May be left out.
    pub optional: bool,
    /// May be repeated.
    pub multiple: bool,
    /// Repeated together with its token.
    pub multiple_token: bool,
    /// Version that brought it, if later than the command.
    pub since: &'static str,
    /// Version that deprecated it.
    pub deprecated: &'static str,
    /// What it does, where the name does not tell.
    pub summary: &'static str,
    /// Another text to show in place of the name.
    pub display: &'static str,
    /// Parts of a block or alternatives of a choice.
    pub args: &'static [Arg],
}

/// The kinds of arguments that COMMAND DOCS knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ArgKind {
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl Arg {
    /// The defaults of an argument.
    pub const ROW: Arg = Arg {
        name: "",
        kind: ArgKind::String,
        token: "",
        key_spec: None,
        optional: false,
        multiple: false,
        multiple_token: false,
        since: "",
        deprecated: "",
        summary: "",
        display: "",
        args: &[],
    };
    /// An argument of some kind.
    pub const fn new(name: &'static str, kind: ArgKind) -> Arg {
        Arg { name, kind, ..Arg::ROW }
    }
    /// A key of the specification `spec`.
    pub const fn key(name: &'static str, spec: usize) -> Arg {
        Arg { name, kind: ArgKind::Key, key_spec: Some(spec), ..Arg::ROW }
    }
    /// A literal word.
    pub const fn token(name: &'static str, token: &'static str) -> Arg {
        Arg { name, kind: ArgKind::PureToken, token, ..Arg::ROW }
    }
    /// One of several alternatives.
    pub const fn one_of(name: &'static str, args: &'static [Arg]) -> Arg {
        Arg { name, kind: ArgKind::OneOf, args, ..Arg::ROW }
    }
    /// Several arguments that stand together.
    pub const fn block(name: &'static str, args: &'static [Arg]) -> Arg {
        Arg { name, kind: ArgKind::Block, args, ..Arg::ROW }
    }
    /// The same, introduced by a literal word.
    pub const fn after(self, token: &'static str) -> Arg {
        Arg { token, ..self }
    }
    /// The same, optional.
    pub const fn optional(self) -> Arg {
        Arg { optional: true, ..self }
    }
    /// The same, repeatable.
    pub const fn multiple(self) -> Arg {
        Arg { multiple: true, ..self }
    }
    /// The same, repeatable with its token.
    pub const fn multiple_token(self) -> Arg {
        Arg { multiple: true, multiple_token: true, ..self }
    }
    /// The same, since a version.
    pub const fn since(self, since: &'static str) -> Arg {
        Arg { since, ..self }
    }
    /// The same, deprecated since a version.
    pub const fn deprecated(self, deprecated: &'static str) -> Arg {
        Arg { deprecated, ..self }
    }
    /// The same, with a sentence about it.
    pub const fn summary(self, summary: &'static str) -> Arg {
        Arg { summary, ..self }
    }
    /// The same, shown to users under another name.
    pub const fn shown_as(self, display: &'static str) -> Arg {
        Arg { display, ..self }
    }
}
