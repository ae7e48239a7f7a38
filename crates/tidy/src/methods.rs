//! Calls between modules that paths do not show: a type whose methods are written in several
//! modules is called by `self.method()` across them. A table of modules names such types
//! (`methods TYPE`), and each call counts as a use of the module in which the method is.

use crate::graph::Arrow;
use crate::source::{Source, sources};
use crate::tokens::{Kind, Token};
use std::collections::BTreeMap;

/// Returns the calls of a type's methods from methods of the same type in other modules.
pub fn calls(package: &str, of: &str) -> Vec<Arrow> {
    let files: Vec<&Source> = sources().iter().filter(|source| source.package == package).collect();
    let mut homes = BTreeMap::new();
    for file in &files {
        for block in blocks(&file.tokens, of) {
            for name in defined(block) {
                homes.insert(name, &file.module);
            }
        }
    }
    let mut arrows = Vec::new();
    for file in &files {
        for (name, line) in blocks(&file.tokens, of).into_iter().flat_map(called) {
            if let Some(to) = homes.get(name).filter(|to| **to != &file.module) {
                arrows.push(Arrow {
                    from: file.module.clone(),
                    to: (*to).clone(),
                    file: &file.path,
                    line,
                });
            }
        }
    }
    arrows
}

/// Returns what is between the braces of `impl TYPE { … }`, without implementations of traits.
fn blocks<'a>(tokens: &'a [Token], of: &str) -> Vec<&'a [Token]> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if !tokens[at].is("impl") {
            at += 1;
            continue;
        }
        let Some(open) = tokens[at..].iter().position(|token| token.is("{")) else { break };
        let (head, begin) = (&tokens[at..at + open], at + open + 1);
        let end = begin + closing(&tokens[begin..]);
        if head.iter().any(|token| token.is(of)) && !head.iter().any(|token| token.is("for")) {
            found.push(&tokens[begin..end]);
        }
        at = end;
    }
    found
}

/// Returns where the brace closes that is open before these tokens.
fn closing(tokens: &[Token]) -> usize {
    let mut depth = 1;
    for (at, token) in tokens.iter().enumerate() {
        depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Returns the names of the methods of a block.
fn defined(block: &[Token]) -> Vec<&'static str> {
    let (mut depth, mut found) = (0, Vec::new());
    for pair in block.windows(2) {
        depth += i32::from(pair[0].is("{")) - i32::from(pair[0].is("}"));
        if depth == 0 && pair[0].is("fn") && pair[1].kind == Kind::Name {
            found.push(pair[1].text);
        }
    }
    found
}

/// Returns what a block calls by `self.name(` or `Self::name(`, and in which lines.
fn called(block: &[Token]) -> Vec<(&'static str, usize)> {
    let is_call = |words: &&[Token]| {
        let is_method = words[0].is("self") && words[1].is(".");
        let is_function = words[0].is("Self") && words[1].is("::");
        (is_method || is_function) && words[2].kind == Kind::Name && words[3].is("(")
    };
    block.windows(4).filter(is_call).map(|words| (words[2].text, words[2].line)).collect()
}

#[test]
fn methods_and_their_calls_are_found() {
    let text = "struct Hub; impl Clone for Hub { fn clone(&self) { self.no(); } } impl<P: Policy> \
                Hub<P> { fn a(&self) { fn inner() {} self.b(1); self.field; Self::c(2); x.d() } \
                fn b(&self) {} } fn e() { other.f() }";
    let tokens = crate::tokens::tokens(text);
    let blocks = blocks(&tokens, "Hub");
    assert_eq!(blocks.len(), 1);
    assert_eq!(defined(blocks[0]), ["a", "b"]);
    let called: Vec<&str> = called(blocks[0]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(called, ["b", "c"]);
}
