//! Options as files, arguments and CONFIG give them, beside those of the reference servers.

mod directives;
mod load;
mod reference;
mod rewrite;
mod runtime;
