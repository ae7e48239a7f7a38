//! The statistics port: Twemproxy's JSON, written to every connection.

use crate::reload::Service;
use forward::stats::{Count, PoolStats};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::time::{SystemTime, UNIX_EPOCH};
use structs::sync::lock;

/// Answers connections, one after the other.
pub fn serve(service: &Service, listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        let _ = stream.set_write_timeout(Some(std::time::Duration::from_secs(1)));
        let _ = stream.write_all(json(service).as_bytes());
    }
}

/// The name of this machine.
fn source() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().replace(['"', '\\'], "")
}

/// All figures.
pub fn json(service: &Service) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (mut current, mut total) = (0, 0);
    let mut pools = String::new();
    for shared in service.common.pools() {
        let threads = lock(&shared.stats).clone();
        if threads.is_empty() {
            continue;
        }
        let sum = |pick: &dyn Fn(&PoolStats) -> &Count| -> u64 {
            threads.iter().map(|stats| pick(stats).get()).fold(0, u64::wrapping_add)
        };
        current += sum(&|stats| &stats.client_connections);
        total += sum(&|stats| &stats.accepted);
        let _ = write!(
            pools,
            ", {:?}: {{\"client_eof\":{}, \"client_err\":{}, \"client_connections\":{}, \
             \"server_ejects\":{}, \"forward_error\":{}, \"fragments\":{}",
            shared.config.name,
            sum(&|stats| &stats.client_eof),
            sum(&|stats| &stats.client_err),
            sum(&|stats| &stats.client_connections),
            sum(&|stats| &stats.server_ejects),
            sum(&|stats| &stats.forward_error),
            sum(&|stats| &stats.fragments),
        );
        let topology = shared.topology();
        for (server, place) in topology.servers.iter().enumerate() {
            let name = match &shared.config.kind {
                forward::settings::PoolKind::Servers(servers) => {
                    servers[server].member.name.clone()
                }
                _ => place.address.to_string(),
            };
            let requests = sum(&|stats| &stats.of(server).requests);
            let responses = sum(&|stats| &stats.of(server).responses);
            let _ = write!(
                pools,
                ", {name:?}: {{\"server_eof\":{}, \"server_err\":{}, \"server_timedout\":{}, \
                 \"server_connections\":{}, \"server_ejected_at\":0, \"requests\":{requests}, \
                 \"request_bytes\":{}, \"responses\":{responses}, \"response_bytes\":{}, \
                 \"in_queue\":0, \"in_queue_bytes\":0, \"out_queue\":{}, \"out_queue_bytes\":0}}",
                sum(&|stats| &stats.of(server).server_eof),
                sum(&|stats| &stats.of(server).server_err),
                sum(&|stats| &stats.of(server).server_timedout),
                sum(&|stats| &stats.of(server).server_connections),
                sum(&|stats| &stats.of(server).request_bytes),
                sum(&|stats| &stats.of(server).response_bytes),
                requests
                    .saturating_sub(responses)
                    .saturating_sub(sum(&|stats| &stats.of(server).lost)),
            );
        }
        pools.push('}');
    }
    format!(
        "{{\"service\":\"nutcracker\", \"source\":{:?}, \"version\":{:?}, \"uptime\":{}, \
         \"timestamp\":{now}, \"total_connections\":{total}, \"curr_connections\":{current}{pools}}}\n",
        source(),
        env!("CARGO_PKG_VERSION"),
        service.started.elapsed().as_secs(),
    )
}
