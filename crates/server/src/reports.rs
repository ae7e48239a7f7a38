//! What a crash report says of the server: its clients, and INFO.

use engine::Engine;
use process::crash_report::add_section;

/// Adds the sections to reports. The clients are first: a part of INFO may have to wait for the
/// thread that crashed.
pub fn add_sections(engine: &'static Engine) {
    let clients = move |write: &mut dyn FnMut(&str)| {
        let now = engine.clock.wall();
        for client in engine.clients.all() {
            let line = commands::client_line(engine, &client, now.0);
            match engine.config.hide_user_data_from_log() {
                true => write(&without_names(&line)),
                false => write(&line),
            }
        }
    };
    add_section("CLIENT LIST", Box::new(clients));
    add_section("INFO", Box::new(move |write| commands::report_info(engine, write)));
}

/// Returns a client's line without the names that it and its user have.
fn without_names(line: &str) -> String {
    let hidden = |word: &str| match word.split_once('=') {
        Some((name @ ("name" | "user"), value)) if !value.is_empty() => {
            format!("{name}=*redacted*")
        }
        _ => word.to_owned(),
    };
    line.split(' ').map(hidden).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_and_users_are_hidden() {
        let line = "id=3 addr=127.0.0.1:1 name=alice user=bob lib-name=x cmd=get\n";
        let hidden = "id=3 addr=127.0.0.1:1 name=*redacted* user=*redacted* lib-name=x cmd=get\n";
        assert_eq!(without_names(line), hidden);
        assert_eq!(without_names("id=3 name= cmd=get\n"), "id=3 name= cmd=get\n");
    }
}
