//! Time series on several servers: groups of them, and a reader that waits.

use crate::support::{in_front_of_three, server};
use harness::client::{Client, ask, ok};
use harness::reply::{Protocol, Reply};
use harness::server::Program;
use harness::wait::eventually;

/// Series of three rooms, of which each has some on all servers.
fn fill(client: &mut Client) {
    for at in 0..30 {
        let (key, room) = (format!("series:{at}"), at % 3);
        ok(client, &format!("TS.CREATE {key} LABELS kind heat room r{room} count x{at}"));
        for time in (at % 5..50).step_by(3) {
            let value = f64::from(at * 7 % 11) / 8.0 + f64::from(time);
            ask(client, &format!("TS.ADD {key} {time} {value}"));
        }
    }
    ok(client, "TS.CREATE other LABELS kind heat");
}

#[test]
fn groups_are_made_of_the_series_of_all_servers() {
    let Some((servers, proxy)) = in_front_of_three("") else { return };
    let alone = server(&Program::under_test(), &[]);
    fill(&mut proxy.client(Protocol::Resp2));
    fill(&mut alone.client());
    let sizes = servers.iter().map(|server| ask(&mut server.client(), "DBSIZE"));
    assert!(sizes.into_iter().all(|size| matches!(size, Reply::Integer(2..))), "all have a share");
    let requests = [
        "TS.MRANGE - + FILTER kind=heat GROUPBY room REDUCE avg",
        "TS.MRANGE 5 40 WITHLABELS FILTER kind=heat GROUPBY room REDUCE std.p",
        "TS.MREVRANGE - + COUNT 4 FILTER kind=heat room=(r0,r2) GROUPBY room REDUCE max",
        "TS.MRANGE - + SELECTED_LABELS room COUNT 3 AGGREGATION twa 7 EMPTY FILTER kind=heat \
         GROUPBY room REDUCE range",
        "TS.MRANGE - + COUNT 1 FILTER kind=heat GROUPBY count REDUCE count",
        "TS.MRANGE - + FILTER kind=heat GROUPBY nothing REDUCE sum",
        "TS.MRANGE - + FILTER kind=heat GROUPBY room REDUCE other",
        "TS.MRANGE - + AGGREGATION min,max 10 FILTER kind=heat GROUPBY room REDUCE sum",
        "TS.MRANGE - + GROUPBY room REDUCE sum",
    ];
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut through = proxy.client(protocol);
        let mut direct = Client::connect_with(alone.address(), protocol).expect("it connects");
        for request in requests {
            assert_eq!(ask(&mut through, request), ask(&mut direct, request), "{request}");
        }
        // Without groups the series come as they are.
        let all = "TS.MRANGE 7 7 FILTER kind=heat";
        assert_eq!(elements(ask(&mut through, all)), elements(ask(&mut direct, all)));
    }
}

fn elements(reply: Reply) -> usize {
    match reply {
        Reply::Array(elements) => elements.len(),
        Reply::Map(pairs) => pairs.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_waits_at_the_server_of_its_series() {
    let Some((servers, proxy)) = in_front_of_three("") else { return };
    let mut reader = proxy.client(Protocol::Resp2);
    for at in 0..6 {
        let key = format!("series:{at}");
        reader.send(&["TS.READ", &key, "$", "BLOCK", "0", "2"]).expect("it is sent");
        let waits = || {
            servers.iter().any(|server| {
                let clients = ask(&mut server.client(), "INFO clients");
                let text = String::from_utf8_lossy(clients.text().unwrap_or_default()).into_owned();
                text.contains("blocked_clients:1\r\n")
            })
        };
        eventually("it waits", waits);
        let mut writer = proxy.client(Protocol::Resp2);
        assert_eq!(ask(&mut writer, &format!("TS.ADD {key} 1 5")), Reply::Integer(1));
        assert_eq!(ask(&mut writer, &format!("TS.ADD {key} 2 6")), Reply::Integer(2));
        let Reply::Array(samples) = reader.reply().expect("it is answered") else {
            panic!("no samples")
        };
        assert_eq!(samples.len(), 2);
        reader.send(&["TS.READ", &key, "2", "BLOCK", "20", "5"]).expect("it is sent");
        assert_eq!(elements(reader.reply().expect("it is answered")), 1);
    }
}
