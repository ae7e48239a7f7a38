//! `set-proc-title` and `proc-title-template`: what `ps` shows as the command line.

use super::argv_area::ArgvArea;
use crate::log;

/// `proc-title-template` when it is not configured.
pub const DEFAULT_TEMPLATE: &str = "{title} {listen-addr} {server-mode}";

/// The values of a template's variables.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// The program as it was started (`argv[0]`).
    pub title: String,
    /// The first bind address; `*` is shown when there is none.
    pub bind: Option<String>,
    /// `port`
    pub port: u16,
    /// `tls-port`
    pub tls_port: u16,
    /// `unixsocket`, or empty.
    pub unix_socket: String,
    /// Whether cluster mode is on.
    pub cluster: bool,
    /// The configuration file, if there is one.
    pub config_file: Option<String>,
}

impl Variables {
    fn value(&self, name: &str) -> Option<String> {
        Some(match name {
            "title" => self.title.clone(),
            "listen-addr" => self.listen_address(),
            "server-mode" => if self.cluster { "[cluster]" } else { "" }.to_owned(),
            "config-file" => self.config_file.clone().unwrap_or_else(|| "-".to_owned()),
            "port" => self.port.to_string(),
            "tls-port" => self.tls_port.to_string(),
            "unixsocket" => self.unix_socket.clone(),
            _ => return None,
        })
    }

    fn listen_address(&self) -> String {
        let port = if self.port != 0 { self.port } else { self.tls_port };
        if port == 0 {
            return format!("unixsocket:{}", self.unix_socket);
        }
        format!("{}:{port}", self.bind.as_deref().unwrap_or("*"))
    }
}

/// Fills in a template: `{name}` is replaced by the variable's value, `{{` stands for a brace, and
/// spaces around the result are removed. `None` if a variable is unknown or a brace is not closed.
pub fn expand(template: &str, variables: &Variables) -> Option<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('{') {
            out.push('{');
            rest = after;
            continue;
        }
        let (name, after) = rest.split_once('}')?;
        out.push_str(&variables.value(name)?);
        rest = after;
    }
    out.push_str(rest);
    Some(out.trim_matches(' ').to_owned())
}

/// Whether `proc-title-template` may have this value: it expands, and not to nothing.
pub fn is_valid(template: &str) -> bool {
    expand(template, &Variables::default()).is_some_and(|title| !title.is_empty())
}

/// The process's title. Without the memory for it (see [`ArgvArea`]) setting it does nothing.
#[derive(Debug)]
pub struct ProcessTitle(Option<ArgvArea>);

impl ProcessTitle {
    /// Prepares setting titles. Call it before any thread is started and after the arguments were
    /// copied out of `std::env::args`.
    pub fn prepare() -> Self {
        match ArgvArea::claim() {
            Ok(area) => Self(Some(area)),
            Err(error) => {
                log!(Debug, "The process title cannot be set: {error}");
                Self(None)
            }
        }
    }

    /// Shows the expanded template as the process's title. False if the template is not valid.
    pub fn set(&self, template: &str, variables: &Variables) -> bool {
        let Some(title) = expand(template, variables) else { return false };
        if let Some(area) = &self.0 {
            area.set(&title);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        Variables {
            title: "src/redis-server".to_owned(),
            bind: Some("127.0.0.1".to_owned()),
            port: 6379,
            unix_socket: "/run/s".to_owned(),
            ..Variables::default()
        }
    }

    #[test]
    fn the_default_reads_as_in_redis() {
        let mut variables = variables();
        assert_eq!(
            expand(DEFAULT_TEMPLATE, &variables).unwrap(),
            "src/redis-server 127.0.0.1:6379"
        );
        variables.cluster = true;
        variables.bind = None;
        let clustered = expand(DEFAULT_TEMPLATE, &variables).unwrap();
        assert_eq!(clustered, "src/redis-server *:6379 [cluster]");
        (variables.port, variables.cluster) = (0, false);
        let local = expand(DEFAULT_TEMPLATE, &variables).unwrap();
        assert_eq!(local, "src/redis-server unixsocket:/run/s");
    }

    #[test]
    fn every_variable_and_the_escaped_brace() {
        let template = "{{x} {port} {tls-port} {unixsocket} {config-file}";
        assert_eq!(expand(template, &variables()).unwrap(), "{x} 6379 0 /run/s -");
    }

    #[test]
    fn invalid_templates_are_recognised() {
        assert!(is_valid("TEST") && is_valid("--my--title") && is_valid("{port}"));
        for wrong in ["", "  ", "{server-mode}", "{invalid-var}", "{title", "a {"] {
            assert!(!is_valid(wrong), "{wrong:?}");
        }
    }
}
