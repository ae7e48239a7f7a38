//! The text of one log line, in each `log-format` and `log-timestamp-format`.

use super::local_time::LocalTime;
use super::log_choices::{Format, Level, Role, TimestampFormat};
use std::borrow::Cow;
use std::fmt::Write as _;

/// What a log line says.
pub(super) struct Line<'a> {
    pub pid: u32,
    pub role: Role,
    pub time: LocalTime,
    pub level: Level,
    pub message: &'a str,
}

/// The line with its newline.
pub(super) fn render(line: &Line<'_>, format: Format, stamp: TimestampFormat) -> String {
    let mut out = String::with_capacity(line.message.len() + 64);
    let Line { pid, role, time, level, message } = line;
    let time = timestamp(time, stamp);
    // Writing to a String cannot fail.
    let _ = match format {
        Format::Legacy => {
            let (role, mark) = (role_letter(*role), level_mark(*level));
            writeln!(out, "{pid}:{role} {time} {mark} {}", without_controls(message))
        }
        Format::Logfmt => writeln!(
            out,
            "pid={pid} role={} timestamp=\"{time}\" level={} message=\"{}\"",
            role.name(),
            structured_level(*level),
            without_quotes_and_newlines(message)
        ),
        Format::Json => {
            let _ = write!(
                out,
                "{{\"pid\":{pid},\"role\":\"{}\",\"timestamp\":\"{time}\",\"level\":\"{}\",\"message\":",
                role.name(),
                structured_level(*level)
            );
            push_json_string(&mut out, message);
            out.write_str("}\n")
        }
    };
    out
}

fn role_letter(role: Role) -> char {
    match role {
        Role::Sentinel => 'X',
        Role::Child => 'C',
        Role::Replica => 'S',
        Role::Primary => 'M',
    }
}

fn level_mark(level: Level) -> char {
    match level {
        Level::Debug => '.',
        Level::Verbose => '-',
        Level::Notice => '*',
        Level::Warning | Level::Nothing => '#',
    }
}

/// Valkey calls `verbose` `info` in its structured formats, as most log collectors do.
fn structured_level(level: Level) -> &'static str {
    match level {
        Level::Verbose => "info",
        other => other.name(),
    }
}

pub(super) fn timestamp(time: &LocalTime, format: TimestampFormat) -> String {
    let LocalTime { year, month, day, hour, minute, second, millis, .. } = time;
    match format {
        TimestampFormat::Legacy => {
            let month = time.month_name();
            format!("{day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02}.{millis:03}")
        }
        TimestampFormat::Iso8601 => {
            let sign = if time.utc_offset_seconds < 0 { '-' } else { '+' };
            let minutes = time.utc_offset_seconds.unsigned_abs() / 60;
            let (east_hours, east_minutes) = (minutes / 60, minutes % 60);
            format!(
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}\
                 {sign}{east_hours:02}:{east_minutes:02}"
            )
        }
        TimestampFormat::Milliseconds => time.unix_millis.to_string(),
    }
}

/// A message that stays on its line and does nothing to a terminal, whatever it quotes of a client
/// or a file.
fn without_controls(message: &str) -> Cow<'_, str> {
    if message.contains(char::is_control) {
        message.replace(char::is_control, " ").into()
    } else {
        message.into()
    }
}

/// A value that needs no escaping in logfmt, the way Valkey makes it.
fn without_quotes_and_newlines(message: &str) -> String {
    message.replace('"', "'").replace(['\n', '\r'], " ")
}

pub(super) fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> Line<'_> {
        let time = LocalTime {
            year: 2025,
            month: 11,
            day: 2,
            hour: 1,
            minute: 4,
            second: 9,
            millis: 7,
            utc_offset_seconds: -12_600,
            unix_millis: 1_762_061_649_007,
        };
        Line { pid: 42, role: Role::Primary, time, level: Level::Verbose, message }
    }

    #[test]
    fn legacy_has_redis_shape() {
        let text = render(&line("hello"), Format::Legacy, TimestampFormat::Legacy);
        assert_eq!(text, "42:M 02 Nov 2025 01:04:09.007 - hello\n");
        let text = render(&line("é\n1:M\r\x1b[31m"), Format::Legacy, TimestampFormat::Legacy);
        assert_eq!(text, "42:M 02 Nov 2025 01:04:09.007 - é 1:M  [31m\n");
        let marks: String = [Level::Debug, Level::Verbose, Level::Notice, Level::Warning]
            .map(level_mark)
            .into_iter()
            .collect();
        assert_eq!(marks, ".-*#");
        let roles: String = [Role::Sentinel, Role::Child, Role::Replica, Role::Primary]
            .map(role_letter)
            .into_iter()
            .collect();
        assert_eq!(roles, "XCSM");
    }

    #[test]
    fn structured_formats_stay_on_one_line() {
        let text = render(&line("say \"hi\"\nagain"), Format::Logfmt, TimestampFormat::Iso8601);
        assert_eq!(
            text,
            "pid=42 role=primary timestamp=\"2025-11-02T01:04:09.007-03:30\" level=info \
             message=\"say 'hi' again\"\n"
        );
        let text = render(&line("a\"b\\\n\u{1}é"), Format::Json, TimestampFormat::Milliseconds);
        assert_eq!(
            text,
            "{\"pid\":42,\"role\":\"primary\",\"timestamp\":\"1762061649007\",\"level\":\"info\",\
             \"message\":\"a\\\"b\\\\\\n\\u0001é\"}\n"
        );
    }
}
