//! Fills in a script's expectations from a reference server.
//!
//! The script is run under both protocols. An expectation that holds under both is left as its
//! author wrote it, patterns and all; any other, and any that is missing, is written from what the
//! server replied: once where RESP2's reply is the lowered form of RESP3's, else once for each.

use super::run::{Outcome, run, shown};
use super::{Action, Script, Step};
use crate::expect::Bindings;
use crate::notation::{parse_expect, parse_words, print};
use crate::reply::{Protocol, Reply};
use crate::script::suite::Stage;

/// The script's text with every expectation made true. The error tells where the script got stuck.
pub fn bless(script: &Script, stage: &mut Stage) -> Result<String, String> {
    let mut runs = Vec::new();
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        if script.only.is_some_and(|only| only != protocol) {
            runs.push(None);
            continue;
        }
        let (outcomes, failures) =
            stage.with_server(script, |server| run(script, server, protocol, usize::MAX))?;
        if outcomes.len() < script.steps.len() {
            return Err(shown(&failures));
        }
        runs.push(Some(outcomes));
    }
    let mut lines = script.lines.clone();
    for (at, step) in script.steps.iter().enumerate().rev() {
        let outcomes = [&runs[0], &runs[1]]
            .map(|run| run.as_ref().map(|run| &run[at]).filter(|outcome| outcome.ran));
        if outcomes.iter().flatten().all(|outcome| outcome.held) || !reads(step) {
            continue;
        }
        lines.splice(step.expected_lines.clone(), expectations(step, outcomes));
    }
    Ok(lines.join("\n") + "\n")
}

fn reads(step: &Step) -> bool {
    matches!(
        step.action,
        Action::Ask { .. } | Action::Raw { .. } | Action::Read { .. } | Action::Retry { .. }
    )
}

fn expectations(step: &Step, outcomes: [Option<&Outcome>; 2]) -> Vec<String> {
    let command = match &step.action {
        Action::Ask { request, .. } | Action::Retry { request, .. } => {
            // Names are not bound here; the command's own name never depends on one.
            let words = parse_words(&request.replace("${", "$("), &Bindings::new());
            name(&words.unwrap_or_default())
        }
        _ => String::new(),
    };
    let count = outcomes.iter().flatten().map(|outcome| outcome.replies.len()).max().unwrap_or(0);
    let mut text = Vec::new();
    for at in 0..count {
        let pair = outcomes.map(|outcome| outcome.and_then(|outcome| outcome.replies.get(at)));
        text.extend(merged(&command, pair));
    }
    text.iter().flat_map(|text| text.split('\n').map(str::to_owned)).collect()
}

/// What a request is for: its first word, of OBJECT two, which has a reply of each kind.
fn name(words: &[Vec<u8>]) -> String {
    let lower = |word: &Vec<u8>| String::from_utf8_lossy(word).to_ascii_lowercase();
    let words: Vec<String> = words.iter().take(2).map(lower).collect();
    match &words[..] {
        [object, subcommand] if object == "object" => format!("{object} {subcommand}"),
        [command, ..] => command.clone(),
        [] => String::new(),
    }
}

/// One expectation for both replies if there is one, else one each.
fn merged(command: &str, pair: [Option<&Reply>; 2]) -> Vec<String> {
    let (resp2, resp3) = match pair {
        [Some(resp2), Some(resp3)] => (resp2, resp3),
        [Some(only), None] | [None, Some(only)] => return vec![write(command, only)],
        [None, None] => return Vec::new(),
    };
    let (text2, text3) = (write(command, resp2), write(command, resp3));
    let holds = |text: &str, reply, protocol| {
        parse_expect(text, &Bindings::new())
            .is_ok_and(|expect| expect.holds(reply, protocol, &mut Bindings::new()))
    };
    if holds(&text3, resp2, Protocol::Resp2) {
        vec![text3]
    } else if holds(&text2, resp3, Protocol::Resp3) {
        vec![text2]
    } else {
        vec![format!("resp2: {text2}"), format!("resp3: {text3}")]
    }
}

/// A reply in notation, loosened where Redis promises no order or the clock has a say.
fn write(command: &str, reply: &Reply) -> String {
    match (command, reply) {
        ("keys" | "hkeys" | "hvals", Reply::Array(items)) if items.len() > 1 => {
            format!("(unordered) {}", print(reply))
        }
        ("pubsub", Reply::Array(items))
            if items.len() > 1 && items.iter().all(|item| matches!(item, Reply::Bulk(_))) =>
        {
            format!("(unordered) {}", print(reply))
        }
        ("scan" | "sscan" | "hscan" | "zscan", Reply::Array(items)) if items.len() == 2 => {
            let pairs = matches!(command, "hscan" | "zscan");
            let tag = if pairs { "(pairs)" } else { "(unordered)" };
            format!("[{}, {tag} {}]", print(&items[0]), print(&items[1]))
        }
        ("ttl", Reply::Integer(seconds)) if *seconds > 1 => {
            format!("(integer) {}..{seconds}", seconds - 1)
        }
        ("pttl", Reply::Integer(ms)) if *ms > 0 => {
            let high = (ms + 999) / 1000 * 1000;
            format!("(integer) {}..{high}", (high - 2000).max(1))
        }
        // Seconds since the last use, which a busy machine lets pass.
        ("object idletime", Reply::Integer(seconds)) => {
            format!("(integer) {seconds}..{}", seconds + 2)
        }
        _ => print(reply),
    }
}
