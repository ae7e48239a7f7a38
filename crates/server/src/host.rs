//! What the server does for commands: applying options, shutting down, facts for INFO.

use crate::log;
use crate::net::{Choice, Net};
use crate::process::oom_score::{self, OomScore};
use crate::process::title::{ProcessTitle, Variables};
use crate::process::{crash, facts, log as logging};
use crate::{start, tls};
use config::{ApplyError, Changed, OomScoreAdj};
use engine::Engine;
use engine::engine::{Host, Restart, ShutdownRequest};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The client that asked for the shutdown.
static REQUESTED_BY: Mutex<Option<String>> = Mutex::new(None);

/// Who asked for the shutdown, if it was a client.
pub fn requested_by() -> Option<String> {
    REQUESTED_BY.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// How the process was started, to start it again in the same way.
pub struct Started {
    /// Every word of the command line.
    pub words: Vec<OsString>,
    /// The folder it was started in.
    pub folder: PathBuf,
}

impl Started {
    /// To be called before the title is set and the folder is left.
    pub fn collect() -> std::io::Result<Started> {
        Ok(Started { words: std::env::args_os().collect(), folder: std::env::current_dir()? })
    }
}

/// The server, as commands reach it.
pub struct ServerHost {
    engine: &'static Engine,
    net: Arc<Net>,
    process: facts::Facts,
    choice: Choice,
    config_file: Option<PathBuf>,
    started: Started,
    title: ProcessTitle,
    oom_score: Mutex<OomScore>,
}

impl ServerHost {
    /// Connects what commands may reach.
    pub fn new(
        engine: &'static Engine,
        net: Arc<Net>,
        process: facts::Facts,
        choice: Choice,
        config_file: Option<PathBuf>,
        started: Started,
        title: ProcessTitle,
    ) -> ServerHost {
        let oom_score = Mutex::new(OomScore::new(Path::new("/")));
        ServerHost { engine, net, process, choice, config_file, started, title, oom_score }
    }

    /// Tells the kernel what `oom-score-adj` asks for. A failure is logged.
    pub fn apply_oom_score(&self) -> Result<(), String> {
        let config = &self.engine.config;
        let mode = match config.oom_score_adj() {
            OomScoreAdj::No => oom_score::Mode::No,
            OomScoreAdj::Relative => oom_score::Mode::Relative,
            OomScoreAdj::Absolute => oom_score::Mode::Absolute,
        };
        let mut score = self.oom_score.lock().unwrap_or_else(PoisonError::into_inner);
        score.apply(mode, config.oom_score_adj_values(), oom_score::Class::Primary).map_err(|_| {
            "Failed to apply new oom_score_adj configuration, check server logs.".into()
        })
    }

    /// Shows the process under the title that the configuration asks for.
    pub fn show_title(&self) {
        let config = &self.engine.config;
        if !config.set_proc_title() {
            return;
        }
        let lossy = |path: &Path| path.to_string_lossy().into_owned();
        let program = self.started.words.first().map(Path::new).map(lossy);
        let variables = Variables {
            title: program.unwrap_or_default(),
            bind: config.bind().first().map(|bind| bind.to_string_lossy().into_owned()),
            port: config.port(),
            tls_port: config.tls_port(),
            unix_socket: config.unixsocket().to_string_lossy().into_owned(),
            cluster: false,
            config_file: self.config_file.as_deref().map(lossy),
        };
        self.title.set(&config.proc_title_template().to_string_lossy(), &variables);
    }

    fn rewrite_with(&self, text_of: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<(), String> {
        let Some(path) = &self.config_file else {
            return Err("The server is running without a config file".into());
        };
        let existing = std::fs::read(path).unwrap_or_default();
        config::replace_file(path, &text_of(&existing))
            .map_err(|error| format!("Rewriting config file: {}", crate::process::os_error(&error)))
    }

    fn apply_one(&self, name: &str) -> Result<(), String> {
        let config = &self.engine.config;
        match name {
            "port" | "bind" | "unixsocket" => {
                self.net.rebind(&start::listeners(config)).map_err(|error| error.to_string())
            }
            "proc-title-template" => {
                self.show_title();
                Ok(())
            }
            "oom-score-adj" | "oom-score-adj-values" => self.apply_oom_score(),
            "log-format" => {
                if let Some(format) = logging::Format::from_name(config.log_format().name()) {
                    logging::set_format(format);
                }
                Ok(())
            }
            "log-timestamp-format" => {
                let name = config.log_timestamp_format().name();
                if let Some(format) = logging::TimestampFormat::from_name(name) {
                    logging::set_timestamp_format(format);
                }
                Ok(())
            }
            "tcp-keepalive" => {
                self.net.set_keepalive(config.tcp_keepalive());
                Ok(())
            }
            "loglevel" => {
                let name = config.loglevel().name();
                if let Some(level) = logging::Level::from_name(name) {
                    logging::set_level(level);
                }
                Ok(())
            }
            "crash-log-enabled" => {
                crash::set_enabled(config.crash_log_enabled()).map_err(|error| error.to_string())
            }
            "dir" => std::env::set_current_dir(config.dir()).map_err(|error| error.to_string()),
            name if name.starts_with("tls-") => {
                tls::apply(config, &self.net)?;
                self.net.rebind(&start::listeners(config)).map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }
}

impl Host for ServerHost {
    fn apply_config(&self, changed: &[Changed]) -> Result<(), ApplyError> {
        for change in changed {
            let option = change.spec.name();
            self.apply_one(option).map_err(|reason| ApplyError { option, reason })?;
        }
        Ok(())
    }

    fn shutdown(&self, by: &str, _request: ShutdownRequest) {
        *REQUESTED_BY.lock().unwrap_or_else(PoisonError::into_inner) = Some(by.to_owned());
        self.net.stop();
    }

    fn rewrite_config(&self) -> Result<(), String> {
        self.rewrite_with(|existing| self.engine.config.rewrite(existing, None))
    }

    fn rewrite_whole_config(&self) -> Result<(), String> {
        self.rewrite_with(|existing| self.engine.config.rewrite_whole(existing, None))
    }

    fn restart(&self, how: Restart, delay: Duration) -> String {
        if how == Restart::Graceful
            && self.config_file.is_some()
            && let Err(why) = self.rewrite_config()
        {
            return why;
        }
        let Some((program, rest)) = self.started.words.split_first() else {
            return "the command line is not known".into();
        };
        std::thread::sleep(delay);
        // Every descriptor of the server closes by itself; the process keeps its number.
        let mut command = Command::new("/proc/self/exe");
        command.arg0(program).args(rest).current_dir(&self.started.folder).exec().to_string()
    }

    fn segfault(&self) -> ! {
        crash::segfault()
    }

    fn facts(&self, section: &str) -> Vec<(String, String)> {
        let line = |name: &str, value: String| (name.to_owned(), value);
        match section {
            "server" => vec![
                line("os", self.process.os.clone()),
                line("process_id", self.process.process_id.to_string()),
                line("run_id", self.process.run_id.clone()),
                line("executable", self.process.executable.display().to_string()),
                line("io_backend", self.choice.backend.to_string()),
                line("uptime_in_seconds", self.process.uptime().as_secs().to_string()),
                line(
                    "config_file",
                    self.config_file.as_ref().map(|p| p.display().to_string()).unwrap_or_default(),
                ),
            ],
            "memory" => {
                let resident = facts::Resident::read(Path::new("/"));
                vec![
                    line("used_memory_rss", resident.rss_bytes.to_string()),
                    line("total_system_memory", facts::total_system_memory().to_string()),
                ]
            }
            "cpu" => {
                let (process, children) =
                    (facts::CpuTime::of_process(), facts::CpuTime::of_children());
                vec![
                    line("used_cpu_sys", facts::Seconds(process.system).to_string()),
                    line("used_cpu_user", facts::Seconds(process.user).to_string()),
                    line("used_cpu_sys_children", facts::Seconds(children.system).to_string()),
                    line("used_cpu_user_children", facts::Seconds(children.user).to_string()),
                ]
            }
            _ => Vec::new(),
        }
    }

    fn log(&self, text: &str) {
        log!(Notice, "{text}");
    }

    fn warn(&self, text: &str) {
        log!(Warning, "{text}");
    }
}
