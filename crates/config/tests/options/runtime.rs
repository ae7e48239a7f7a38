//! `CONFIG GET` and `CONFIG SET`.

use config::{
    ApplyError, Changed, ClientClass, ClientMemory, Config, SetContext, SetError, load_text,
};

fn get(config: &Config, patterns: &[&str]) -> Vec<(String, String)> {
    let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
    let text = |bytes| String::from_utf8(bytes).expect("ASCII");
    config.get(&patterns).into_iter().map(|(name, value)| (text(name), text(value))).collect()
}

fn names(config: &Config, patterns: &[&str]) -> Vec<String> {
    get(config, patterns).into_iter().map(|(name, _)| name).collect()
}

fn set(config: &Config, pairs: &[(&str, &str)]) -> Result<Vec<Changed>, SetError> {
    let pairs: Vec<(&[u8], &[u8])> =
        pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    config.set(&pairs, SetContext::default(), &mut |_| Ok(()))
}

#[test]
fn get_answers_names_and_globs() {
    let config = Config::new();
    assert_eq!(get(&config, &["port"]), [("port".into(), "6379".into())]);
    assert_eq!(names(&config, &["POrt", "port", "p?rt"]), ["POrt"]);
    assert_eq!(names(&config, &["*-PRIORITY"]), ["replica-priority", "slave-priority"]);
    assert_eq!(names(&config, &["slave-priority"]), ["slave-priority"]);
    assert_eq!(names(&config, &["nosuch", "no*such"]), Vec::<String>::new());
    assert_eq!(names(&config, &["watchdog-*"]), Vec::<String>::new());
    assert_eq!(names(&config, &["watchdog-period"]), ["watchdog-period"]);
    assert_eq!(names(&config, &["save", "sav[e]"]), ["save"]);
}

#[test]
fn set_is_all_or_nothing() {
    let config = Config::new();
    set(&config, &[("maxmemory", "1gb"), ("timeout", "x")]).expect_err("x is no number");
    assert_eq!(config.maxmemory(), 0);
    let changed = set(&config, &[("maxmemory", "1gb"), ("timeout", "5"), ("hz", "10")])
        .expect("these are right");
    assert_eq!((config.maxmemory(), config.timeout()), (1 << 30, 5));
    let changed: Vec<_> = changed.iter().map(|change| (change.spec.name(), &*change.new)).collect();
    assert_eq!(changed, [("maxmemory", &b"1073741824"[..]), ("timeout", b"5")]);
}

#[test]
fn a_failed_application_is_undone() {
    let config = Config::new();
    let mut calls = Vec::new();
    let mut apply = |changes: &[Changed]| {
        calls.push((config.port(), changes[0].old.clone(), changes[0].new.clone()));
        if config.port() == 7000 {
            let reason = "Unable to listen on this port. Check server logs.".to_string();
            return Err(ApplyError { option: "port", reason });
        }
        Ok(())
    };
    let error = config
        .set(&[(b"port", b"7000"), (b"hz", b"50")], SetContext::default(), &mut apply)
        .expect_err("the port is refused");
    assert_eq!(
        error.to_string(),
        "CONFIG SET failed (possibly related to argument 'port') - \
         Unable to listen on this port. Check server logs."
    );
    assert_eq!((config.port(), config.hz()), (6379, 10));
    let port = |number: &str| number.as_bytes().to_vec();
    assert_eq!(
        calls,
        [(7000, port("6379"), port("7000")), (6379, port("7000"), port("6379"))],
        "applied, then undone with the old values in place"
    );
}

#[test]
fn only_a_change_is_applied() {
    let config = Config::new();
    let mut applied = 0;
    for _ in 0..2 {
        let mut apply = |_: &[Changed]| {
            applied += 1;
            Ok(())
        };
        config.set(&[(b"timeout", b"7")], SetContext::default(), &mut apply).expect("a number");
    }
    assert_eq!(applied, 1);
    // A certificate is read again even if its path is the old one.
    let changed = set(&config, &[("tls-cert-file", "")]).expect("a path");
    assert_eq!(changed.len(), 1);
}

#[test]
fn protected_options_need_leave() {
    let local = SetContext { is_local: true, is_loading: false };
    for (leave, context, is_allowed) in [
        ("no", local, false),
        ("local", local, true),
        ("local", SetContext::default(), false),
        ("yes", SetContext::default(), true),
    ] {
        let text = format!("enable-protected-configs {leave}");
        let config = load_text(text.as_bytes()).expect("a choice").config;
        let result = config.set(&[(b"dbfilename", b"x.rdb")], context, &mut |_| Ok(()));
        assert_eq!(result.is_ok(), is_allowed, "{leave}");
    }
}

#[test]
fn some_options_wait_for_the_data() {
    let loading = SetContext { is_local: true, is_loading: true };
    let result = Config::new().set(&[(b"appendonly", b"yes")], loading, &mut |_| Ok(()));
    assert_eq!(result.expect_err("it is loading"), SetError::Loading);
}

#[test]
fn aliases_set_the_same_value() {
    let config = Config::new();
    set(&config, &[("slave-priority", "1"), ("replica-priority", "2")]).expect("not a duplicate");
    assert_eq!(config.replica_priority(), 2);
    set(&config, &[("slowlog-max-len", "5")]).expect("a number");
    assert_eq!(config.commandlog_slow_execution_max_len(), 5);
}

#[test]
fn dir_is_made_absolute() {
    let config = load_text(b"enable-protected-configs yes\ndir /").expect("a directory").config;
    set(&config, &[("dir", "usr/..//var")]).expect("a directory");
    assert_eq!(config.value_of("dir").as_deref(), Some(&b"/var"[..]));
    let error = set(&config, &[("dir", "nonexistent")]).expect_err("no such directory");
    assert_eq!(
        error.to_string(),
        "CONFIG SET failed (possibly related to argument 'dir') - No such file or directory"
    );
}

#[test]
fn structured_options_are_typed() {
    let config = Config::new();
    let limit = config.client_output_buffer_limit(ClientClass::Replica);
    assert_eq!((limit.hard_bytes, limit.soft_bytes, limit.soft_seconds), (256 << 20, 64 << 20, 60));
    set(&config, &[("client-output-buffer-limit", "normal 1kb 2 3")]).expect("one class");
    assert_eq!(config.client_output_buffer_limit(ClientClass::Normal).hard_bytes, 1024);
    assert_eq!(config.client_output_buffer_limit(ClientClass::Replica), limit);

    assert_eq!(config.maxmemory_clients(), ClientMemory::Unlimited);
    set(&config, &[("maxmemory-clients", "20%")]).expect("a percentage");
    assert_eq!(config.maxmemory_clients(), ClientMemory::Percent(20));
    assert_eq!(get(&config, &["maxmemory-clients"])[0].1, "20%");

    set(&config, &[("latency-tracking-info-percentiles", "50.50 99.9 1e1 0.1234567 100")])
        .expect("percentiles");
    assert_eq!(
        get(&config, &["latency-tracking-info-percentiles"])[0].1,
        "50.5 99.9 10 0.123457 100"
    );
    set(&config, &[("latency-tracking-info-percentiles", "")]).expect("none");
    assert!(config.latency_tracking_info_percentiles().is_empty());
    assert_eq!(config.list_max_listpack_size(), -2);
    assert_eq!(config.save_points().len(), 3);

    config.record("replicaof", b"10.0.0.1 6380").expect("a primary");
    assert_eq!(config.replicaof().expect("a primary").port, 6380);
    assert_eq!(get(&config, &["slaveof"])[0].1, "10.0.0.1 6380");
}

#[test]
fn secrets_are_not_shown() {
    let config = Config::new();
    set(&config, &[("requirepass", "hunter2")]).expect("a password");
    assert_eq!(&config.requirepass()[..], b"hunter2");
    assert!(!format!("{config:?}").contains("hunter2"));
    for spec in config::OPTIONS.iter().filter(|spec| spec.is_sensitive()) {
        assert_eq!(
            get(&config, &[spec.name()])[0].1,
            if spec.name() == "requirepass" { "(redacted)" } else { "" }
        );
        config.record(spec.name(), b"hunter2").expect("any text");
        for name in [spec.name(), "*"].iter().chain(spec.aliases()) {
            assert!(get(&config, &[*name]).iter().all(|(_, value)| !value.contains("hunter2")));
        }
        assert!(spec.is_immutable() || set(&config, &[(spec.name(), "(redacted)")]).is_err());
    }
    let file = config.rewrite(b"", None);
    assert!(file.windows(7).filter(|part| part == b"hunter2").count() > 1, "the file has them");
    assert!(config::is_sensitive(b"MASTERAUTH") && config::is_sensitive(b"alert-webhook"));
    assert!(!config::is_sensitive(b"port"));
}
