//! `TS.INFO key [DEBUG]`

use super::query::Shown;
use super::{NO_KEY, READS, compaction, replies};
use crate::typed;
use engine::{Arg, Args, Command, Cx, Error, Flags, Outcome};
use rdb::module::Value;
use resp::Reply;
use series::{Encoding, Rule, Series};
use structs::numbers;

/// `TS.INFO`.
pub static INFO: Command = Command {
    name: "ts.info",
    arity: -2,
    flags: Flags::READONLY.with(Flags::REACHES),
    summary: "Describes a time series.",
    args: &[Arg::key("key", 0), Arg::token("debug", "DEBUG").optional()],
    run: info,
    ..READS
};

fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let is_debug = match args.len() {
        2 => false,
        3 if args.is(2, "debug") => true,
        _ => return Err(Error::Arity("ts.info".into())),
    };
    let series = typed::read::<Series>(&cx.db, args.key(1))?.ok_or(NO_KEY)?;
    let mut rules = Vec::new();
    for rule in series.rules() {
        // The other key may have gone, or be made of another series by now.
        if compaction::is_of(cx, &rule.target, |target| target.source() == Some(args[1]))? {
            rules.push(rule);
        }
    }
    let source = compaction::true_source(cx, args[1], series)?;
    let reply = &mut cx.reply;
    reply.map(if is_debug { 16 } else { 14 });
    settings(reply, series);
    reply.simple("labels");
    replies::labels(reply, series.labels(), &Shown::All);
    reply.simple("sourceKey");
    reply.bulk_or_null(source);
    reply.simple("rules");
    reply_rules(reply, &rules);
    let ignore = series.settings().ignore;
    field(reply, "ignoreMaxTimeDiff", ignore.max_time);
    reply.simple("ignoreMaxValDiff");
    replies::number(reply, ignore.max_value);
    if is_debug {
        reply.simple("keySelfName");
        reply.bulk(args[1]);
        chunks(reply, series);
    }
    Ok(())
}

fn field(reply: &mut Reply<'_>, name: &str, number: u64) {
    reply.simple(name);
    reply.integer(number.cast_signed());
}

fn settings(reply: &mut Reply<'_>, series: &Series) {
    let settings = series.settings();
    let (first, last) = (series.first(), series.last());
    field(reply, "totalSamples", series.count() as u64);
    field(reply, "memoryUsage", Value::allocated_bytes(series) as u64);
    field(reply, "firstTimestamp", first.map_or(0, |sample| sample.time));
    field(reply, "lastTimestamp", last.map_or(0, |sample| sample.time));
    field(reply, "retentionTime", settings.retention);
    field(reply, "chunkCount", series.chunks().len().max(1) as u64);
    field(reply, "chunkSize", settings.chunk_size as u64);
    reply.simple("chunkType");
    reply.simple(match settings.encoding {
        Encoding::Compressed => "compressed",
        Encoding::Uncompressed => "uncompressed",
    });
    reply.simple("duplicatePolicy");
    reply.simple(settings.policy.name());
}

fn reply_rules(reply: &mut Reply<'_>, rules: &[&Rule]) {
    let is_map = reply.is_resp3();
    if is_map {
        reply.map(rules.len());
    } else {
        reply.array(rules.len());
    }
    for rule in rules {
        if is_map {
            reply.bulk(&rule.target);
            reply.array(3);
        } else {
            reply.array(4);
            reply.bulk(&rule.target);
        }
        reply.integer(rule.buckets.duration.cast_signed());
        reply.simple(&rule.aggregator.name().to_ascii_uppercase());
        reply.integer(rule.buckets.align.cast_signed());
    }
}

fn chunks(reply: &mut Reply<'_>, series: &Series) {
    reply.simple("Chunks");
    reply.array(series.chunks().len());
    for chunk in series.chunks() {
        reply.map(5);
        field(reply, "startTimestamp", chunk.first);
        field(reply, "endTimestamp", chunk.last);
        field(reply, "samples", chunk.samples as u64);
        field(reply, "size", chunk.bytes as u64);
        reply.simple("bytesPerSample");
        let mut text = Vec::new();
        numbers::push_f64(&mut text, chunk.bytes as f64 / chunk.samples as f64);
        reply.bulk(&text);
    }
}
