//! `CLUSTER` subcommands that say what the coordinator's newest view says, and which keys are in a
//! slot.

use super::DISABLED;
use cluster::describe::Health;
use cluster::id::Id;
use cluster::topology::{Replica, Shard};
use engine::membership::{Current, Published};
use engine::{Args, Cx, Error, Outcome};
use keyspace::{Key, Slot};
use resp::{Output, Reply};

/// This server's name, if it is a node of a cluster.
pub(super) fn me(cx: &Cx<'_>) -> Result<Id, Error> {
    cx.engine.membership.me().ok_or(DISABLED)
}

/// The newest view.
pub(super) fn published(cx: &Cx<'_>) -> Result<Current, Error> {
    me(cx)?;
    cx.membership()
        .ok_or(Error::text("CLUSTERDOWN The coordinator of the cluster has not answered yet"))
}

/// A node's name.
pub(super) fn node(word: &[u8]) -> Result<Id, Error> {
    let text = String::from_utf8_lossy(word);
    text.parse().map_err(|_| Error::format(format!("ERR Unknown node {text}")))
}

/// `CLUSTER MYID`.
pub(super) fn myid(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let me = me(cx)?.to_string();
    cx.reply.bulk(me.as_bytes());
    Ok(())
}

/// `CLUSTER MYSHARDID`.
pub(super) fn myshardid(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    let id = published.own_shard().map_or(published.me, |shard| shard.id).to_string();
    cx.reply.bulk(id.as_bytes());
    Ok(())
}

/// `CLUSTER INFO`.
pub(super) fn info(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let me = me(cx)?;
    let requires_all = cx.engine.config.cluster_require_full_coverage();
    let text = match cx.membership() {
        Some(published) => published.view.info_text(me, requires_all),
        None => "cluster_state:fail\r\ncluster_slots_assigned:0\r\ncluster_known_nodes:1\r\n\
                 cluster_size:0\r\ncluster_current_epoch:0\r\ncluster_my_epoch:0\r\n"
            .into(),
    };
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// `CLUSTER NODES`.
pub(super) fn nodes(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    let text = published.view.nodes_text(published.me, cx.asker());
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// `CLUSTER REPLICAS`, `CLUSTER SLAVES`: lines of NODES.
pub(super) fn replicas(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    let primary = node(args[2])?;
    let topology = &published.view.topology.value;
    let Some(shard) = topology.shard_of(primary) else {
        return Err(Error::format(format!("ERR Unknown node {primary}")));
    };
    if shard.holder.id != primary {
        return Err(Error::text("ERR The specified node is not a master"));
    }
    let text = published.view.nodes_text(published.me, cx.asker());
    let is_replica = |line: &&str| line.split(' ').nth(3) == Some(primary.to_string().as_str());
    let lines: Vec<&str> = text.lines().filter(is_replica).collect();
    cx.reply.array(lines.len());
    lines.iter().for_each(|line| cx.reply.bulk(line.as_bytes()));
    Ok(())
}

/// `CLUSTER COUNT-FAILURE-REPORTS`: there are no reports; leases decide.
pub(super) fn count_failure_reports(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    let id = node(args[2])?;
    if published.view.topology.value.shard_of(id).is_none() {
        return Err(Error::format(format!("ERR Unknown node {id}")));
    }
    cx.reply.integer(0);
    Ok(())
}

/// `CLUSTER LINKS`: nodes have no links to each other but those of replication.
pub(super) fn links(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    me(cx)?;
    cx.reply.array(0);
    Ok(())
}

/// `CLUSTER SLOTS`.
pub(super) fn slots(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    let (asker, is_resp3) = (cx.asker(), cx.reply.is_resp3());
    let protocol = cx.reply.protocol();
    let reply = published.slots_reply(is_resp3, asker, || {
        let mut out = Output::default();
        write_slots(&mut Reply::new(&mut out, protocol), &published, asker);
        out.plain().to_vec()
    });
    cx.reply.raw(reply);
    Ok(())
}

fn write_slots(reply: &mut Reply<'_>, published: &Published, asker: cluster::describe::Asker) {
    let ranges = published.view.slot_ranges(asker);
    reply.array(ranges.len());
    for range in ranges {
        reply.array(2 + range.nodes.len());
        reply.integer(i64::from(range.first));
        reply.integer(i64::from(range.last));
        for node in range.nodes {
            reply.array(4);
            reply.bulk(node.endpoint.as_bytes());
            reply.integer(i64::from(node.port));
            reply.bulk(node.id.to_string().as_bytes());
            reply.map(node.metadata.len());
            for (name, value) in node.metadata {
                reply.bulk(name.as_bytes());
                reply.bulk(value.as_bytes());
            }
        }
    }
}

/// `CLUSTER SHARDS`.
pub(super) fn shards(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    let shards = &published.view.topology.value.shards;
    cx.reply.array(shards.len());
    for shard in shards {
        cx.reply.map(3);
        cx.reply.bulk(b"slots");
        cx.reply.array(2 * shard.slots.ranges().len());
        for &(first, last) in shard.slots.ranges() {
            cx.reply.integer(i64::from(first));
            cx.reply.integer(i64::from(last));
        }
        cx.reply.bulk(b"nodes");
        cx.reply.array(shard.copies.len());
        let is_primary = |copy: &&Replica| copy.id == shard.holder.id;
        let primary = shard.copies.iter().filter(is_primary);
        let replicas = shard.copies.iter().filter(|copy| !is_primary(copy));
        primary.chain(replicas).for_each(|copy| write_node(cx, &published, shard, copy));
        cx.reply.bulk(b"id");
        cx.reply.bulk(shard.id.to_string().as_bytes());
    }
    Ok(())
}

fn write_node(cx: &mut Cx<'_>, published: &Published, shard: &Shard, copy: &Replica) {
    let (address, asker) = (&copy.address, cx.asker());
    let is_primary = copy.id == shard.holder.id;
    let health = published.view.health_of(shard, copy);
    let offset = match copy.id == published.me && health != Health::Fail {
        true => cx.engine.journal.position().0,
        false => 0,
    };
    let (port, tls_port) = asker.ports(address);
    let ports = [("port", port), ("tls-port", tls_port)];
    let ports = ports.into_iter().filter(|(_, port)| *port > 0);
    let optional = [("hostname", &address.hostname), ("availability-zone", &address.zone)];
    let optional = optional.into_iter().filter(|(_, value)| !value.is_empty());
    cx.reply.map(6 + ports.clone().count() + optional.clone().count());
    let mut text = |name: &str, value: &str| {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(value.as_bytes());
    };
    text("id", &copy.id.to_string());
    text("ip", asker.host(address));
    text("endpoint", &asker.node(copy).endpoint);
    optional.for_each(|(name, value)| text(name, value));
    text("role", if is_primary { "master" } else { "replica" });
    text("health", health.name());
    for (name, port) in ports {
        cx.reply.bulk(name.as_bytes());
        cx.reply.integer(i64::from(port));
    }
    cx.reply.bulk(b"replication-offset");
    cx.reply.integer(offset as i64);
}

pub(super) fn slot(args: Args<'_>) -> Result<Slot, Error> {
    let number = u16::try_from(args.integer(2)?).ok().and_then(Slot::new);
    number.ok_or(Error::text("ERR Invalid slot"))
}

/// `CLUSTER COUNTKEYSINSLOT`.
pub(super) fn count_keys_in_slot(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    has_slots_of_keys(cx)?;
    let (slot, db) = (slot(args)?, cx.db.index);
    let count = cx.db.visit(slot.stripe(), |stripe| stripe.slot_key_count(db, slot));
    cx.reply.integer(count.ok_or(Error::StripeTaken)? as i64);
    Ok(())
}

/// `CLUSTER GETKEYSINSLOT`.
pub(super) fn get_keys_in_slot(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    has_slots_of_keys(cx)?;
    let (slot, db) = (slot(args)?, cx.db.index);
    let most =
        usize::try_from(args.integer(3)?).map_err(|_| Error::text("ERR Invalid number of keys"))?;
    let keys = cx.db.visit(slot.stripe(), |stripe| stripe.slot_keys(db, slot, most));
    let keys = keys.ok_or(Error::StripeTaken)?;
    cx.reply.array(keys.len());
    keys.iter().for_each(|key| cx.reply.bulk(key));
    Ok(())
}

/// With rules of its own a database has no list of a slot's keys.
pub(super) fn has_slots_of_keys(cx: &Cx<'_>) -> Result<(), Error> {
    match cx.engine.membership.has_rules() {
        false => Ok(()),
        true => Err(Error::text(
            "ERR The keys of a slot are not listed in a database with hashing rules",
        )),
    }
}

/// `CLUSTER FLUSHSLOT`. A log and a primary's stream have it, too, so it does not ask which node
/// has the slot.
pub(super) fn flush_slot(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    if !cx.engine.membership.is_on() {
        return Err(super::DISABLED);
    }
    // What is in a log or a stream was allowed.
    if cx.session.speaks_cluster {
        has_slots_of_keys(cx)?;
    }
    let slot = slot(args)?;
    match args.len() {
        3 => {}
        4 if args.is(3, "async") || args.is(3, "sync") => {}
        _ => return Err(Error::Syntax),
    }
    for db in cx.engine.keyspace.used_databases() {
        let keys = cx.db.visit(slot.stripe(), |stripe| stripe.slot_keys(db, slot, usize::MAX));
        let keys = keys.ok_or(Error::StripeTaken)?;
        cx.db.in_db(db, |db| keys.iter().for_each(|key| _ = db.delete(Key::new(key))));
    }
    cx.reply.ok();
    Ok(())
}
