//! What containers share: their HELP; and, as tests, the rules that every row obeys.

use engine::{Args, Cx, Error, Outcome};

/// The answer of every container's HELP subcommand: the lines of its row.
pub(crate) fn help(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let Some(container) = cx.resolved.parent else { return Ok(()) };
    let name = container.name.to_ascii_uppercase();
    cx.reply.array(container.help.len() + 3);
    cx.reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    container.help.iter().for_each(|line| cx.reply.simple(line));
    cx.reply.simple("HELP");
    cx.reply.simple("    Print this help.");
    Ok(())
}

/// The error of a subcommand whose options make no sense.
pub(crate) fn wrong_subcommand(container: &str, args: Args<'_>) -> Error {
    let mut text = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
    let name = args.get(1).unwrap_or_default();
    text.extend_from_slice(&name[..name.len().min(128)]);
    text.extend_from_slice(format!("'. Try {container} HELP.").as_bytes());
    Error::Bytes(text)
}

#[cfg(test)]
mod tests {
    use engine::command::Streamed;
    use engine::routing::{self, Way};
    use engine::table::{CommandTable, Resolved};
    use engine::{
        Arg, ArgKind, Begin, Command, Databases, Effort, Find, Flags, Group, KeyFlags, KeySpec,
    };
    use std::collections::BTreeSet;

    /// Checks every command and subcommand, and reports all that fail.
    #[track_caller]
    fn check(rule: impl Fn(&Resolved) -> Result<(), String>) {
        let table = CommandTable::build(&crate::rows(), &[]);
        let broken: Vec<String> = table
            .all()
            .iter()
            .filter_map(|row| rule(row).err().map(|why| format!("{}: {why}", row.full_name)))
            .collect();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    fn ensure(holds: bool, why: &str) -> Result<(), String> {
        if holds { Ok(()) } else { Err(why.to_owned()) }
    }

    #[test]
    fn the_audit_log_has_what_changes_the_server() {
        let table = CommandTable::build(&crate::rows(), &[]);
        let audited: Vec<&str> = table
            .all()
            .iter()
            .filter(|row| row.command.flags.has(Flags::AUDITED))
            .map(|row| &*row.full_name)
            .collect();
        let audited: BTreeSet<&str> = audited.into_iter().collect();
        let expected = "acl|deluser acl|load acl|save acl|setuser client|kill client|pause \
            client|unpause cluster|addslots cluster|addslotsrange cluster|bumpepoch \
            cluster|cancelslotmigrations cluster|delslots cluster|delslotsrange \
            cluster|failover cluster|flushslot cluster|flushslots cluster|forget \
            cluster|meet cluster|migrateslots cluster|migration cluster|replicate \
            cluster|reset cluster|saveconfig cluster|set-config-epoch cluster|setslot \
            commandlog|reset config|resetstat config|rewrite config|set debug failover \
            flushall flushdb function|delete function|flush function|load \
            function|restore module|load module|loadex module|unload replicaof \
            shutdown slaveof slowlog|reset";
        assert_eq!(audited, expected.split_whitespace().collect());
        // The call of a command looks at the flag only behind that of reading, and not when a
        // command blocks.
        check(|row| {
            let flags = row.command.flags;
            let excluded = Flags::READONLY.with(Flags::BLOCKING);
            match flags.has(Flags::AUDITED) && flags.any(excluded) {
                true => Err("is audited, and reads or blocks".to_owned()),
                false => Ok(()),
            }
        });
    }

    #[test]
    fn names_are_unique() {
        let table = CommandTable::build(&crate::rows(), &[]);
        let mut names = BTreeSet::new();
        for row in table.all() {
            assert!(names.insert(&row.full_name), "{} is there twice", row.full_name);
            assert_eq!(row.full_name, row.full_name.to_ascii_lowercase());
        }
    }

    #[test]
    fn rows_are_documented() {
        check(|row| {
            let command = row.command;
            ensure(!command.summary.is_empty(), "no summary")?;
            ensure(command.summary.len() <= 80, "a summary of more than a line")?;
            ensure(command.since.split('.').count() == 3, "`since` is no version")?;
            ensure(command.arity != 0, "no arity")?;
            let takes_words = command.arity != if row.parent.is_some() { 2 } else { 1 };
            // DEBUG's subcommands come and go, and users are not told about them. QUIT takes and
            // ignores whatever follows it. REPLCONF is between servers. CLUSTER SYNCSLOTS is
            // between servers.
            let is_excused = !command.subcommands.is_empty()
                || ["debug", "quit", "syncslots", "replconf"].contains(&command.name);
            ensure(
                !takes_words || is_excused || !command.args.is_empty(),
                "takes words but has no `args`",
            )
        });
    }

    #[test]
    fn a_command_that_changes_keys_is_a_write() {
        let changes = KeyFlags::RW.0 | KeyFlags::OW.0 | KeyFlags::RM.0;
        check(|row| {
            let flags = row.command.flags;
            let writes = row.command.keys.iter().any(|spec| spec.flags.0 & changes != 0);
            let all_keys =
                ["flushall", "flushdb", "flushslot", "swapdb"].contains(&row.command.name);
            // The reference declares that XREADGROUP only reads its keys.
            let all_keys = all_keys || row.command.name == "xreadgroup";
            // PFCOUNT keeps what it has computed with the value.
            let keeps_result = flags.has(Flags::READONLY.with(Flags::MAY_REPLICATE));
            if row.command.group == Group::Scripting {
                // What a script does its commands say; libraries are no keys.
                return Ok(());
            }
            ensure(
                flags.has(Flags::WRITE) == (writes && !keeps_result || all_keys),
                "write flag and keys disagree",
            )?;
            ensure(!flags.has(Flags::WRITE.with(Flags::READONLY)), "both a read and a write")?;
            ensure(
                !flags.has(Flags::DENYOOM) || flags.has(Flags::WRITE),
                "only writes are refused when memory is short",
            )
        });
    }

    /// Where requests go follows from keys and tips. A row that says it must have a reason, and what
    /// it says must not contradict flags, tips and keys.
    #[test]
    fn routing_agrees_with_flags_tips_and_keys() {
        check(|row| {
            let command = row.command;
            let policy = command.tips.iter().find_map(|tip| tip.strip_prefix("request_policy:"));
            let said = command.routing.way.or(row.parent.and_then(|parent| parent.routing.way));
            let usual = routing::usual(&command.facts());
            ensure(
                usual.is_ok() || said.is_some(),
                "neither its row nor the rules say where its requests go: it needs a `routing`",
            )?;
            ensure(
                usual.is_err() || command.routing.way != usual.ok(),
                "its `routing` says what follows from the row anyway",
            )?;
            let joined = |way| match way {
                Way::All { merge, .. } | Way::Split { merge, .. } | Way::Written(merge) => {
                    Some(merge)
                }
                _ => None,
            };
            let by_tips = usual.ok().and_then(joined);
            let fits = match (policy, row.way) {
                (None, _) | (Some(_), Way::Refused(_)) => true,
                (Some("multi_shard"), Way::Split { .. }) => joined(row.way) == by_tips,
                (Some("special"), Way::Scan) => true,
                (Some("all_shards" | "all_nodes"), Way::All { .. } | Way::Written(_)) => {
                    by_tips.is_none() || joined(row.way) == by_tips
                }
                (Some("all_shards"), Way::OneServer) => usual == Ok(Way::OneServer),
                // A proxy does not know all nodes.
                (Some("all_nodes"), Way::OneServer) => true,
                (Some("all_shards" | "all_nodes"), Way::Local(_)) => true,
                _ => false,
            };
            ensure(fits, "its `routing` and its tips disagree")?;
            ensure(
                matches!(row.way, Way::Split { .. }) || command.routing.whole_if.is_none(),
                "only what is split can be whole",
            )
        })
    }

    /// A request that waits would hold up all others on a shared connection.
    #[test]
    fn what_waits_has_a_connection_of_its_own() {
        check(|row| {
            let (command, flags) = (row.command, row.command.flags);
            let has_own = match row.way {
                Way::Keys => engine::keys::has_keys(command),
                Way::Written(_) | Way::Refused(_) => true,
                _ => false,
            };
            let is_blocking = flags.has(Flags::BLOCKING);
            ensure(!is_blocking || has_own, "it may wait on a connection that others share")?;
            let waits = !matches!(row.waits, routing::Waits::Never);
            ensure(is_blocking == waits, "the flag BLOCKING and its `routing` disagree")?;
            ensure(is_blocking || command.routing.waits_if.is_none(), "it never waits")
        });
        let table = CommandTable::build(&crate::rows(), &[]);
        let waits = |text: &'static str| {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            table.resolve(&words).expect("it is there").may_wait(&words)
        };
        assert!(waits("xread count 1 block 0 streams a $"));
        assert!(!waits("XREAD STREAMS BLOCK 0"));
        assert!(waits("XREADGROUP GROUP g c BLOCK 1 STREAMS a >"));
        assert!(waits("BLPOP a 0") && !waits("SET BLOCK a"));
    }

    /// Requests with conditions on several keys are not cut.
    #[test]
    fn a_request_about_all_of_its_keys_at_once_stays_whole() {
        let table = CommandTable::build(&crate::rows(), &[]);
        let is_split = |text: &'static str| {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            let row = table.resolve(&words).expect("it is there");
            matches!(row.way_of(&words), Way::Split { .. })
        };
        assert!(is_split("MSETEX 2 a 1 b 2 EX 9") && is_split("MSETEX 2 nx 1 b xx"));
        assert!(!is_split("MSETEX 2 a 1 b 2 NX") && !is_split("MSETEX 1 a 1 EX 9 xx"));
        assert!(is_split("MSET a 1 b 2") && !is_split("MSETNX a 1 b 2"));
    }

    #[test]
    fn routing_agrees_with_what_the_engine_does() {
        use routing::{About, Local, Session};
        check(|row| {
            let (command, flags) = (row.command, row.command.flags);
            let is_message = flags.has(Flags::PUBSUB.with(Flags::MAY_REPLICATE));
            ensure(is_message == (row.way == Way::Message), "messages have a way of their own")?;
            let runs_queue = row.way == Way::Session(Session::Exec);
            ensure(runs_queue == flags.has(Flags::RUNS_QUEUE), "EXEC runs the queue")?;
            let watches = row.way == Way::Session(Session::Watch);
            ensure(watches == flags.has(Flags::WATCHES), "WATCH watches")?;
            let chooses = matches!(command.databases, Databases::Chosen);
            ensure(chooses == (row.way == Way::Local(Local::Select)), "SELECT chooses a database")?;
            let about = match row.way {
                Way::All { about, .. } => Some(about),
                _ => None,
            };
            let is_library = command.group == Group::Scripting && flags.has(Flags::WRITE);
            ensure(
                !is_library || about == Some(About::Libraries),
                "all nodes have the same libraries",
            )
        });
    }

    /// What a target of several shards does with a request of a stream.
    #[test]
    fn a_write_of_a_stream_has_a_place_at_the_target() {
        use routing::Applied;
        check(|row| {
            let command = row.command;
            let is_applied = !matches!(
                row.applied,
                Applied::Select | Applied::Begin | Applied::End | Applied::Skip | Applied::Refuse
            );
            ensure(
                is_applied == (command.streamed() == Streamed::Write),
                "writes, and only these, are applied",
            )?;
            ensure(
                row.applied != Applied::AtKeys || engine::keys::has_keys(command),
                "a write without keys: its `routing` has to say what a target does",
            )?;
            let chooses = matches!(command.databases, Databases::Chosen);
            ensure(chooses == (row.applied == Applied::Select), "SELECT chooses a database")
        });
    }

    /// What a stream of replication brings is applied as the user of the nodes.
    #[test]
    fn streams_bring_writes_and_nothing_that_orders_a_server_about() {
        let table = CommandTable::build(&crate::rows(), &[]);
        let of = |kind| {
            let rows = table.all().iter().filter(move |row| row.command.streamed() == kind);
            rows.map(|row| (&*row.full_name, row.command)).collect::<Vec<_>>()
        };
        let names = |kind| of(kind).into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>();
        let without_keys: BTreeSet<&str> = of(Streamed::Write)
            .into_iter()
            .filter(|(_, command)| command.keys.is_empty() && command.find_keys.is_none())
            .map(|(name, _)| name)
            .collect();
        let expected = [
            "cluster|flushslot",
            "flushall",
            "flushdb",
            "function|delete",
            "function|flush",
            "function|load",
            "function|restore",
            "swapdb",
        ];
        assert_eq!(without_keys, expected.into());
        assert_eq!(names(Streamed::Message), ["publish", "spublish"].into());
        assert_eq!(names(Streamed::Script), ["eval", "evalsha", "fcall"].into());
        let refused = names(Streamed::Other);
        for name in
            ["acl|setuser", "config|set", "debug", "migrate", "replicaof", "shutdown", "get"]
        {
            assert!(refused.contains(name), "{name}");
        }
    }

    #[test]
    fn how_a_key_is_used_is_stated_once() {
        let kinds = KeyFlags::RW.0 | KeyFlags::OW.0 | KeyFlags::RM.0 | KeyFlags::RO.0;
        check(|row| {
            row.command.keys.iter().try_for_each(|spec| {
                let kinds = (spec.flags.0 & kinds).count_ones();
                let expected = if spec.flags.has(KeyFlags::NOT_KEY) { 0 } else { 1 };
                ensure(kinds == expected, "a key is one of RO, RW, OW, RM")
            })
        });
    }

    /// Dispatch takes the only key of a request without looking whether the word is there.
    #[test]
    fn key_positions_are_within_the_arity() {
        check(|row| {
            let words = row.command.arity.unsigned_abs() as usize;
            let is_key = |spec: &&KeySpec| !spec.flags.has(KeyFlags::NOT_KEY);
            row.command.keys.iter().filter(is_key).try_for_each(|spec| {
                let Begin::Index(first) = spec.begin else { return Ok(()) };
                // The sources of PFMERGE: there may be none behind the destination.
                let may_be_none = first > 1 && first == words;
                if may_be_none && matches!(spec.find, Find::Range { last: -1, .. }) {
                    return Ok(());
                }
                let needed = match spec.find {
                    Find::Range { last, .. } if last >= 0 => first + last as usize,
                    Find::Range { last, .. } => first + last.unsigned_abs() as usize - 1,
                    Find::KeyNum { index, .. } => first + index,
                    Find::Unknown => first,
                };
                ensure(first > 0 && needed < words, "a key may be past the end")
            })
        });
    }

    /// The value that the estimate looks at is that of the only key.
    #[test]
    fn efforts_on_a_part_have_one_key() {
        check(|row| {
            let is_part = matches!(row.command.effort, Effort::Part(..));
            ensure(!is_part || row.single_key > 0, "which key's part is it?")
        });
    }

    /// A long command holds the keys that are found before it runs, and may look at no other.
    #[test]
    fn long_commands_name_all_their_keys() {
        check(|row| {
            let command = row.command;
            let is_small = matches!(command.effort, Effort::Small);
            let walks = command.flags.has(Flags::WALKS) && command.keys.is_empty();
            let is_complete = command.keys.iter().all(|spec| {
                let is_known = !matches!(spec.find, Find::Unknown);
                is_known && !spec.flags.has(KeyFlags::INCOMPLETE)
            });
            let names_keys = !command.keys.is_empty() && is_complete;
            ensure(
                is_small || walks || names_keys || command.find_keys.is_some(),
                "it can be long, but its keys are not known",
            )
        });
    }

    /// A user that may do with the key what the row says may send every request of it
    /// (`most_access`).
    #[test]
    fn a_function_for_the_only_key_takes_access_away_from_what_the_row_says() {
        const ACCESS: [KeyFlags; 4] =
            [KeyFlags::ACCESS, KeyFlags::UPDATE, KeyFlags::INSERT, KeyFlags::DELETE];
        let words: Vec<&[u8]> = ["x", "k", "get", "set", "ifeq", "incrby", "u8", "1", "overflow"]
            .iter()
            .map(|word| word.as_bytes())
            .collect();
        check(|row| {
            let Some(find) = row.command.find_keys.filter(|_| row.single_key > 0) else {
                return Ok(());
            };
            for first in 2..words.len() {
                let request = [&words[..2], &words[first..], &words[2..first]].concat();
                let mut found = Vec::new();
                let _ = find(&request, &mut |word, flags| found.push((word, flags)));
                let is_within = found.iter().all(|&(word, flags)| {
                    let has_no_more =
                        |&bit: &KeyFlags| !flags.has(bit) || row.command.keys[0].flags.has(bit);
                    word == row.single_key && ACCESS.iter().all(has_no_more)
                });
                ensure(is_within, "its function finds more than its specification says")?;
            }
            Ok(())
        });
    }

    #[test]
    fn inexpressible_keys_have_a_function() {
        check(|row| {
            row.command.keys.iter().try_for_each(|spec| {
                let is_unknown =
                    matches!(spec.begin, Begin::Unknown) || matches!(spec.find, Find::Unknown);
                ensure(!is_unknown || row.command.find_keys.is_some(), "needs `find_keys`")
            })
        });
    }

    #[test]
    fn arguments_make_sense() {
        fn inspect(command: &Command, arg: &Arg) -> Result<(), String> {
            let is_group = matches!(arg.kind, ArgKind::OneOf | ArgKind::Block);
            ensure(!arg.name.is_empty(), "an argument has no name")?;
            ensure(
                is_group != arg.args.is_empty(),
                "blocks and choices, and only these, have parts",
            )?;
            ensure(
                match arg.kind {
                    ArgKind::Key => arg.key_spec.is_some(),
                    ArgKind::Pattern => true,
                    // The reference says so of commands about fields of hashes.
                    ArgKind::Integer if arg.name == "numfields" => true,
                    _ => arg.key_spec.is_none(),
                },
                "keys name a specification; patterns of keys may, and nothing else",
            )?;
            ensure(
                arg.key_spec.is_none_or(|spec| spec < command.keys.len()),
                "there is no such key specification",
            )?;
            ensure(
                arg.kind != ArgKind::PureToken
                    || !arg.token.is_empty()
                    || arg.name == "empty-string",
                "a pure token has no token",
            )?;
            arg.args.iter().try_for_each(|part| inspect(command, part))
        }
        check(|row| row.command.args.iter().try_for_each(|arg| inspect(row.command, arg)));
    }

    #[test]
    fn containers_have_help() {
        check(|row| {
            let subcommands = row.command.subcommands;
            if subcommands.is_empty() {
                return ensure(row.command.help.is_empty(), "help without subcommands");
            }
            // No subcommand of CLUSTER says more than that there is no cluster.
            if row.command.name == "cluster" {
                return Ok(());
            }
            ensure(row.parent.is_none(), "a container within a container")?;
            ensure(subcommands.iter().any(|sub| sub.name == "help"), "no HELP")?;
            subcommands.iter().filter(|sub| sub.name != "help").try_for_each(|sub| {
                let name = sub.name.to_ascii_uppercase();
                let is_shown = row.command.help.iter().any(|line| line.starts_with(&name));
                ensure(is_shown || sub.flags.has(Flags::SYSCMD), &format!("no help for {name}"))
            })
        });
    }

    #[test]
    fn categories_exist() {
        use engine::acl::category::{Category, categories};
        check(|row| {
            row.command.categories.iter().try_for_each(|name| {
                let name = name.strip_prefix('-').unwrap_or(name);
                ensure(Category::named(name.as_bytes()).is_some(), "no such category")
            })?;
            // Rules such as `+@all -@dangerous` have to reach every command.
            let shown = categories().filter(|category| category.contains(row.command));
            ensure(shown.count() > 0, "in no category")
        });
    }

    /// What the user of a cluster's nodes may not do, and what it may because nodes send it
    /// although it is about one server.
    #[test]
    fn nodes_may_do_what_they_need() {
        use engine::acl::category::Category;
        let nodes = Category::named(b"nodes").expect("there is one");
        let table = CommandTable::build(&crate::rows(), &[]);
        let names = |is_it: &dyn Fn(&Resolved) -> bool| {
            let rows = table.all().iter().filter(|row| is_it(row));
            let mut names: Vec<&str> = rows.map(|row| &*row.full_name).collect();
            names.sort_unstable();
            names.join(" ")
        };
        assert_eq!(names(&|row| nodes.has(row) && !row.travels()), OWN_NEEDS);
        assert_eq!(names(&|row| !nodes.has(row)), NOT_FOR_NODES);
        // What travels is no matter of one server, but for what clients are asked.
        let is_admin = |row: &Resolved| row.command.flags.has(Flags::ADMIN) && row.travels();
        assert_eq!(names(&is_admin), ADMINISTERING);
    }
    const OWN_NEEDS: &str = "acl|deluser acl|setuser cluster|failover cluster|migration \
        cluster|syncslots \
        config|get config|set hotkeys|get hotkeys|reset hotkeys|start hotkeys|stop psync \
        replconf shutdown sync";
    const NOT_FOR_NODES: &str = "acl|cat acl|dryrun acl|genpass acl|getuser acl|list acl|load \
        acl|log acl|save \
        acl|users acl|whoami bgrewriteaof bgsave cluster|addslots cluster|addslotsrange \
        cluster|bumpepoch cluster|cancelslotmigrations cluster|count-failure-reports \
        cluster|delslots cluster|delslotsrange cluster|flushslot cluster|flushslots \
        cluster|forget cluster|getslotmigrations cluster|meet cluster|migrateslots \
        cluster|replicas cluster|replicate cluster|reset cluster|saveconfig \
        cluster|set-config-epoch cluster|setslot cluster|slaves commandlog|get commandlog|len \
        commandlog|reset config|resetstat config|rewrite debug failover function|stats \
        latency|doctor latency|graph latency|histogram latency|history latency|latest \
        latency|reset module|list module|load module|loadex module|unload monitor pfselftest \
        replicaof role save script|debug slaveof slowlog|get slowlog|len slowlog|reset";
    const ADMINISTERING: &str = "client|kill client|list client|no-evict client|pause \
        client|unblock client|unpause \
        pfdebug";

    #[test]
    fn publish_and_subscribe_has_the_flag() {
        check(|row| {
            let is_pubsub =
                row.command.group == Group::Pubsub && row.command.subcommands.is_empty();
            let is_help = row.command.name == "help";
            ensure(!is_pubsub || is_help || row.command.flags.has(Flags::PUBSUB), "no PUBSUB flag")
        });
    }
}
