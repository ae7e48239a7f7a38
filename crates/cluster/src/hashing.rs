//! From a key to its slot: by the standard rule of Redis Cluster, or by rules of the database's
//! own.
//!
//! A rule is a regular expression with a group named `tag`. The first rule that matches from the
//! start of the key wins, and the slot is that of the tag. A key that no rule matches has no slot:
//! its requests get an error. The expressions are those of the crate `regex`, with three
//! differences, all because keys are bytes and because rules for Redis Enterprise are to mean here
//! what they mean there:
//!
//! - classes and `.` are about bytes, and `.` matches a newline, too;
//! - a match begins at the start of the key and may end before its end;
//! - a `{` that begins no counted repetition stands for itself, as in PCRE: `.*{(?<tag>.*)}.*`.
//!
//! An expression is matched in time that is linear in the key's length, whatever it is, and its
//! automata have limits. Groups other than the tag are dropped when it is read, so a match fills
//! two pairs of places on the stack.

use regex_automata::meta::{self, Regex};
use regex_automata::{Anchored, Input};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Capture, Hir, HirKind, Look, Repetition};
use std::fmt;
use structs::crc16;

/// The most rules of a database.
pub const MAX_RULES: usize = 32;

/// The most characters of a rule.
pub const MAX_RULE_CHARS: usize = 256;

/// The most bytes of a rule's automaton, and of what is built of it while it runs, in each thread.
const MAX_AUTOMATON: usize = 1 << 20;

/// How deep groups may be nested.
const MAX_NESTING: u32 = 32;

/// The rules with which Redis Enterprise begins: what is in braces, otherwise the whole key.
pub const ENTERPRISE: [&str; 2] = [".*{(?<tag>.*)}.*", "(?<tag>.*)"];

/// What is wrong with a list of rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flaw {
    /// The rule, counted from 1, and its text. `None`: the list.
    pub rule: Option<(usize, String)>,
    /// What is wrong, and what to do.
    pub why: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            Some((number, text)) => write!(f, "hashing rule {number} '{text}': {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for Flaw {}

/// How the keys of a database get their slots.
#[derive(Clone, Debug, Default)]
pub enum Hashing {
    /// What is in the first braces, or the whole key.
    #[default]
    Standard,
    /// By rules.
    Rules(Box<[Rule]>),
    /// By rules that this version cannot read; the reason. No key has a slot.
    Unreadable(String),
}

/// One rule, ready for use.
#[derive(Clone, Debug)]
pub struct Rule(Matcher);

#[derive(Clone, Debug)]
enum Matcher {
    /// The tag is the whole key.
    Whole,
    /// The tag is between the last `{` that has a `}` behind it, and the last `}`.
    Braces,
    /// The tag is group 1.
    Regex(Regex),
}

impl Hashing {
    /// Makes rules ready for use. No rules are the standard rule.
    ///
    /// # Errors
    /// The first flaw: see [`MAX_RULES`], [`MAX_RULE_CHARS`] and the head of this file.
    pub fn new(rules: &[String]) -> Result<Hashing, Flaw> {
        if rules.is_empty() {
            return Ok(Hashing::Standard);
        }
        if rules.len() > MAX_RULES {
            let why = format!("{} hashing rules are more than {MAX_RULES}", rules.len());
            return Err(Flaw { rule: None, why });
        }
        let mut made = Vec::with_capacity(rules.len());
        let mut matches_all: Option<usize> = None;
        for (at, text) in rules.iter().enumerate() {
            let flaw = |why: String| Flaw { rule: Some((at + 1, text.clone())), why };
            if let Some(before) = matches_all {
                return Err(flaw(format!(
                    "it can never match, because rule {} matches every key: put that one last",
                    before + 1
                )));
            }
            if let Some(before) = rules[..at].iter().position(|other| other == text) {
                return Err(flaw(format!("it is rule {} again", before + 1)));
            }
            let (rule, is_for_all) = Rule::new(text).map_err(flaw)?;
            matches_all = is_for_all.then_some(at);
            made.push(rule);
        }
        Ok(Hashing::Rules(made.into()))
    }

    /// The same for rules that were checked before. What cannot be read is noted, and no key has a
    /// slot then.
    pub fn of_checked(rules: &[String]) -> Hashing {
        Hashing::new(rules).unwrap_or_else(|flaw| Hashing::Unreadable(flaw.to_string()))
    }

    /// Whether it is the standard rule.
    pub fn is_standard(&self) -> bool {
        matches!(self, Hashing::Standard)
    }

    /// The part of a key that decides about its slot. `None`: no rule matches.
    pub fn tag<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        match self {
            Hashing::Standard => Some(crc16::hash_tag(key)),
            Hashing::Rules(rules) => rules.iter().find_map(|rule| rule.tag(key)),
            Hashing::Unreadable(_) => None,
        }
    }

    /// The slot of a key. `None`: no rule matches.
    pub fn slot(&self, key: &[u8]) -> Option<u16> {
        self.tag(key).map(|tag| crc16::crc16(tag) % crc16::SLOTS)
    }

    /// Which rule matches, counted from 1, and the tag. The standard rule is 0.
    pub fn explain<'k>(&self, key: &'k [u8]) -> Option<(usize, &'k [u8])> {
        match self {
            Hashing::Rules(rules) => {
                let tags = rules.iter().enumerate();
                tags.filter_map(|(at, rule)| Some((at + 1, rule.tag(key)?))).next()
            }
            _ => self.tag(key).map(|tag| (0, tag)),
        }
    }
}

impl Rule {
    /// Reads a rule. Returns, too, whether it certainly matches every key.
    fn new(text: &str) -> Result<(Rule, bool), String> {
        let chars = text.chars().count();
        if chars > MAX_RULE_CHARS {
            return Err(format!("its {chars} characters are more than {MAX_RULE_CHARS}"));
        }
        let mut parser = ParserBuilder::new();
        parser.unicode(false).utf8(false).dot_matches_new_line(true).nest_limit(MAX_NESTING);
        let hir = parser.build().parse(&with_literal_braces(text)).map_err(|error| {
            let lines = error.to_string();
            let why = lines.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let hint = if why.contains("nicode") { " (rules are about bytes)" } else { "" };
            format!("it is no regular expression: {why}{hint}")
        })?;
        if tags_in(&hir) != 1 {
            return Err("it has no group 'tag', as in (?<tag>.*)".into());
        }
        let is_for_all =
            hir.properties().static_explicit_captures_len().is_some() && is_universal(&hir);
        let hir = only_tag(&hir);
        if text == ENTERPRISE[0] {
            return Ok((Rule(Matcher::Braces), false));
        }
        if text == ENTERPRISE[1] {
            return Ok((Rule(Matcher::Whole), true));
        }
        let config = meta::Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(MAX_AUTOMATON))
            .onepass_size_limit(Some(MAX_AUTOMATON))
            .hybrid_cache_capacity(MAX_AUTOMATON);
        let regex = meta::Builder::new()
            .configure(config)
            .build_from_hir(&hir)
            .map_err(|_| "its automaton would be too large: take smaller repetitions".to_owned())?;
        Ok((Rule(Matcher::Regex(regex)), is_for_all))
    }

    fn tag<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        match &self.0 {
            Matcher::Whole => Some(key),
            Matcher::Braces => {
                let close = key.iter().rposition(|&byte| byte == b'}')?;
                let open = key[..close].iter().rposition(|&byte| byte == b'{')?;
                Some(&key[open + 1..close])
            }
            Matcher::Regex(regex) => {
                let mut places = [None; 4];
                let input = Input::new(key).anchored(Anchored::Yes);
                regex.search_slots(&input, &mut places)?;
                // A group that took no part in the match is no tag.
                let (begin, end) = (places[2]?.get(), places[3]?.get());
                key.get(begin..end)
            }
        }
    }
}

/// Escapes each `{` that begins no counted repetition.
fn with_literal_braces(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len() + 4);
    let (mut at, mut class_depth) = (0, 0_usize);
    while let Some(&char) = chars.get(at) {
        at += 1;
        match char {
            '\\' => {
                out.push(char);
                let Some(&escaped) = chars.get(at) else { break };
                out.push(escaped);
                at += 1;
                // These have names or digits in braces.
                if "xuUpPbB".contains(escaped) && chars.get(at) == Some(&'{') {
                    let end = chars[at..]
                        .iter()
                        .position(|&c| c == '}')
                        .map_or(chars.len(), |n| at + n + 1);
                    out.extend(&chars[at..end]);
                    at = end;
                }
                continue;
            }
            '[' => {
                class_depth += 1;
                out.push(char);
                // A bracket right at the beginning of a class is one of its characters.
                while let Some(&next) = chars.get(at).filter(|next| matches!(next, '^' | ']')) {
                    out.push(next);
                    at += 1;
                    if next == ']' {
                        break;
                    }
                }
                continue;
            }
            ']' => class_depth = class_depth.saturating_sub(1),
            '{' if class_depth == 0 && !begins_repetition(&chars[at..]) => out.push('\\'),
            _ => {}
        }
        out.push(char);
    }
    out
}

/// Whether what follows a `{` makes it a repetition: `{2}`, `{2,}`, `{2,3}`.
fn begins_repetition(rest: &[char]) -> bool {
    let Some(end) = rest.iter().position(|&char| char == '}') else { return false };
    let inside: String = rest[..end].iter().collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match inside.split_once(',') {
        None => is_number(&inside),
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
    }
}

/// Counts the groups named `tag`. The parser lets no name stand twice.
fn tags_in(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Capture(group) => {
            usize::from(group.name.as_deref() == Some("tag")) + tags_in(&group.sub)
        }
        HirKind::Repetition(repetition) => tags_in(&repetition.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(tags_in).sum(),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => 0,
    }
}

/// Drops all groups but the tag, which becomes the first.
fn only_tag(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Capture(group) if group.name.as_deref() == Some("tag") => Hir::capture(Capture {
            index: 1,
            name: group.name.clone(),
            sub: Box::new(only_tag(&group.sub)),
        }),
        HirKind::Capture(group) => only_tag(&group.sub),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(only_tag(&repetition.sub)),
            ..repetition.clone()
        }),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(only_tag).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(only_tag).collect()),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => hir.clone(),
    }
}

/// Whether it certainly matches from the start of every key. A pattern that matches nothing at all
/// does, unless it asks for an end.
fn is_universal(hir: &Hir) -> bool {
    let takes_nothing = |hir: &Hir| {
        hir.properties().minimum_len() == Some(0) && hir.properties().look_set().is_empty()
    };
    if takes_nothing(hir) {
        return true;
    }
    match hir.kind() {
        HirKind::Look(look) => *look == Look::Start,
        HirKind::Capture(group) => is_universal(&group.sub),
        HirKind::Alternation(parts) => parts.iter().any(is_universal),
        HirKind::Concat(parts) => {
            let is_start = |part: &&Hir| *part.kind() == HirKind::Look(Look::Start);
            let parts = &parts[parts.iter().take_while(is_start).count()..];
            match parts {
                [parts @ .., last] if *last.kind() == HirKind::Look(Look::End) => {
                    parts.iter().all(takes_nothing) && parts.iter().any(takes_anything)
                }
                parts => parts.iter().all(takes_nothing),
            }
        }
        _ => false,
    }
}

/// Whether it is `.*`, perhaps within a group.
fn takes_anything(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Capture(group) => takes_anything(&group.sub),
        HirKind::Repetition(repetition) => {
            let any_byte = Hir::dot(regex_syntax::hir::Dot::AnyByte);
            repetition.min == 0 && repetition.max.is_none() && *repetition.sub == any_byte
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
