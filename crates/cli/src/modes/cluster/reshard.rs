//! `reshard`: moves some slots from some nodes to one.

use super::nodes::Cluster;
use super::{SLOTS, ask, bad, check, misused, moves, plan, say};
use crate::options::ClusterOptions;

pub fn run(cluster: &mut Cluster, wanted: &ClusterOptions) -> Result<(), String> {
    let refusal = "*** Please fix your cluster problems before resharding";
    check::ensure_fine(cluster, wanted, refusal)?;
    let count = match wanted.slots.filter(|count| *count > 0) {
        Some(count) if count <= SLOTS => count,
        Some(_) => return Err(format!("*** The number of slots has to be from 1 to {SLOTS}.")),
        None => ask_for_count()?,
    };
    let to = match &wanted.to {
        Some(id) => id.clone(),
        None => ask_until(|| ask("What is the receiving node ID? "))?,
    };
    let to = primary(cluster, &to)?;
    let sources = match &wanted.from {
        Some(from) => from
            .split(',')
            .filter(|id| !id.is_empty())
            .try_fold(Vec::new(), |sources, id| with_source(cluster, sources, id.trim(), to))?,
        None => ask_for_sources(cluster, to)?,
    };
    if sources.is_empty() {
        return Err(misused("*** No source nodes given, operation aborted."));
    }
    say(&format!("\nReady to move {count} slots.\n  Source nodes:"));
    sources.iter().for_each(|&at| say(&cluster.describe(at, 4)));
    say(&format!("  Destination node:\n{}", cluster.describe(to, 4)));
    let moves = plan::shares(cluster, &sources, to, count);
    say("  Resharding plan:");
    for one in &moves {
        let source = &cluster.nodes[one.from];
        if source.primary_word() == "master" {
            let line = |slot: &u16| say(&format!("    Moving slot {slot} from {}", source.id));
            one.slots.iter().for_each(line);
        } else {
            let ranges = moves::shown(&one.slots);
            say(&format!("    Moving slot range {ranges} from {}", source.id));
        }
    }
    let question = "Do you want to proceed with the proposed reshard plan (yes/no)? ";
    if !wanted.yes && ask(question).as_deref() != Some("yes") {
        return Err(String::new());
    }
    moves.iter().try_for_each(|one| moves::run(cluster, wanted, one, moves::Show::EachSlot))
}

fn ask_for_count() -> Result<usize, String> {
    ask_until(|| {
        let answer = ask(&format!("How many slots do you want to move (from 1 to {SLOTS})? "))?;
        Some(
            answer
                .parse()
                .ok()
                .filter(|count| (1..=SLOTS).contains(count))
                .map_or_else(String::new, |count: usize| count.to_string()),
        )
    })?
    .parse()
    .map_err(|_| String::new())
}

/// Asks until the answer has something in it. At the end of the input that is an error.
fn ask_until(question: impl Fn() -> Option<String>) -> Result<String, String> {
    loop {
        match question() {
            Some(answer) if answer.is_empty() => {}
            Some(answer) => return Ok(answer),
            None => return Err("\n*** No answer, operation aborted.".into()),
        }
    }
}

fn ask_for_sources(cluster: &Cluster, to: usize) -> Result<Vec<usize>, String> {
    say(
        "Please enter all the source node IDs.\n  Type 'all' to use all the nodes as source nodes \
         for the hash slots.\n  Type 'done' once you entered all the source nodes IDs.",
    );
    let mut sources = Vec::new();
    loop {
        let number = sources.len() + 1;
        let answer = ask_until(|| ask(&format!("Source node #{number}: ")))?;
        if answer == "done" {
            return Ok(sources);
        }
        sources = with_source(cluster, sources, &answer, to)?;
        if answer == "all" {
            return Ok(sources);
        }
    }
}

/// Adds a source that a word names, or all of them.
fn with_source(
    cluster: &Cluster,
    mut sources: Vec<usize>,
    id: &str,
    to: usize,
) -> Result<Vec<usize>, String> {
    if id == "all" {
        return Ok(cluster.primaries().into_iter().filter(|&at| at != to).collect());
    }
    let at = primary(cluster, id)?;
    if at == to {
        bad("*** It is not possible to use the target node as source node.");
    } else if !sources.contains(&at) {
        sources.push(at);
    }
    Ok(sources)
}

fn primary(cluster: &Cluster, id: &str) -> Result<usize, String> {
    let found = cluster.by_id(id).filter(|&at| cluster.nodes[at].primary.is_none());
    found.ok_or_else(|| {
        let word = cluster.nodes[0].primary_word();
        format!("*** The specified node ({id}) is not known or not a {word}, please retry.")
    })
}
