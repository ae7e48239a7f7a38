//! `set-proc-title` and `proc-title-template`: what `ps` shows as the command line.

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
    fn listen_address(&self) -> String {
        let port = if self.port != 0 { self.port } else { self.tls_port };
        if port == 0 {
            return format!("unixsocket:{}", self.unix_socket);
        }
        format!("{}:{port}", self.bind.as_deref().unwrap_or("*"))
    }

    /// The template with these values in it; `None` if it is malformed.
    pub fn fill_in(&self, template: &[u8]) -> Option<Vec<u8>> {
        let address = self.listen_address();
        let (port, tls_port) = (self.port.to_string(), self.tls_port.to_string());
        config::expand_proc_title(template, |name| match name {
            "title" => &self.title,
            "listen-addr" => &address,
            "server-mode" if self.cluster => "[cluster]",
            "config-file" => self.config_file.as_deref().unwrap_or("-"),
            "port" => &port,
            "tls-port" => &tls_port,
            "unixsocket" => &self.unix_socket,
            _ => "",
        })
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

    fn filled(template: &str, variables: &Variables) -> String {
        String::from_utf8(variables.fill_in(template.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn the_default_template_reads_as_in_redis() {
        const DEFAULT: &str = "{title} {listen-addr} {server-mode}";
        let mut variables = variables();
        assert_eq!(filled(DEFAULT, &variables), "src/redis-server 127.0.0.1:6379");
        variables.cluster = true;
        variables.bind = None;
        assert_eq!(filled(DEFAULT, &variables), "src/redis-server *:6379 [cluster]");
        (variables.port, variables.cluster) = (0, false);
        assert_eq!(filled(DEFAULT, &variables), "src/redis-server unixsocket:/run/s");
        variables.tls_port = 6380;
        assert_eq!(filled(DEFAULT, &variables), "src/redis-server *:6380");
    }

    #[test]
    fn every_other_variable() {
        let template = "{port} {tls-port} {unixsocket} {config-file}";
        assert_eq!(filled(template, &variables()), "6379 0 /run/s -");
    }
}
