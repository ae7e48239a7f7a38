//! A line that follows the run, on a terminal only.

use super::document::ms;
use crate::generator::View;
use crate::options::Output;
use std::io::{IsTerminal, Write, stderr};

/// The line.
pub struct Progress {
    shown: bool,
    active: bool,
}

impl Progress {
    /// For a run. Where standard error is no terminal nothing is shown.
    pub fn new(output: &Output) -> Progress {
        // The line would get between the lines of a result that is printed to the same place.
        let active = stderr().is_terminal() && !(output.csv && std::io::stdout().is_terminal());
        Progress { shown: false, active }
    }

    /// Shows where the run is.
    pub fn show(&mut self, view: &View<'_>) {
        if self.active {
            // Whatever the line before was longer by has to go.
            let _ = write!(stderr(), "\r\x1b[2K{}", line(view));
            let _ = stderr().flush();
            self.shown = true;
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(stderr(), "\r\x1b[2K");
            let _ = stderr().flush();
        }
    }
}

fn line(view: &View<'_>) -> String {
    let mut name: String = view.name.chars().take(30).collect();
    if view.seconds < 0.0 {
        return format!("{name}: warming up, {:.0} s to go", -view.seconds);
    }
    if let Some(done) = view.done {
        name += &format!(" {:3.0} %", (done * 100.0).min(100.0));
    }
    let Some(last) = &view.last else { return name };
    let mut line = format!(
        "{name}  {} req/s  p50 {:.3} ms  p99 {:.3} ms  errors {}",
        last.requests,
        ms(last.p50_ns),
        ms(last.p99_ns),
        last.errors
    );
    if let Some(done) = view.done.filter(|&done| done > 0.01) {
        let left = view.seconds / done - view.seconds;
        line += &format!("  {:.0} s left", left.max(0.0));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::timeline::Second;

    #[test]
    fn the_line_says_what_there_is_to_say() {
        let last = Second { requests: 5, errors: 1, p50_ns: 1_500_000, ..Second::default() };
        let view = View { name: "GET", seconds: 10.0, last: Some(last), done: Some(0.25) };
        assert_eq!(
            line(&view),
            "GET  25 %  5 req/s  p50 1.500 ms  p99 0.000 ms  errors 1  30 s left"
        );
        let view = View { name: "GET", seconds: -2.0, last: None, done: Some(0.0) };
        assert_eq!(line(&view), "GET: warming up, 2 s to go");
    }
}
