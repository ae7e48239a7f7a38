//! The template of the process title: `{title} {listen-addr} {server-mode}`.

/// The variables a template may use.
const VARIABLES: [&str; 7] =
    ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];

/// Whether every brace closes and every variable is known.
pub(crate) fn is_valid(template: &[u8]) -> bool {
    expand_proc_title(template, |_| "").is_some()
}

/// Puts the values of variables into a template; `{{` stands for a brace. `None` if the template
/// is malformed or names an unknown variable. Blanks at the end are dropped, since an empty
/// variable leaves some.
pub fn expand_proc_title<'a>(template: &[u8], value: impl Fn(&str) -> &'a str) -> Option<Vec<u8>> {
    let mut title = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.iter().position(|byte| *byte == b'{') {
        title.extend_from_slice(&rest[..open]);
        rest = &rest[open + 1..];
        if let Some(after) = rest.strip_prefix(b"{") {
            title.push(b'{');
            rest = after;
            continue;
        }
        let close = rest.iter().position(|byte| *byte == b'}')?;
        let name = str::from_utf8(&rest[..close]).ok()?;
        let name = VARIABLES.iter().find(|known| known.eq_ignore_ascii_case(name))?;
        title.extend_from_slice(value(name).as_bytes());
        rest = &rest[close + 1..];
    }
    title.extend_from_slice(rest);
    title.truncate(title.trim_ascii_end().len());
    Some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_variables() {
        let value = |name: &str| match name {
            "title" => "dunlin",
            "listen-addr" => "*:6379",
            _ => "",
        };
        let expand = |template: &str| expand_proc_title(template.as_bytes(), value);
        assert_eq!(
            expand("{title} {listen-addr} {server-mode}").as_deref(),
            Some(b"dunlin *:6379".as_slice())
        );
        assert_eq!(expand("{{a} {title}").as_deref(), Some(b"{a} dunlin".as_slice()));
        assert_eq!(expand("{x").as_deref(), None);
        assert_eq!(expand("{foo}").as_deref(), None);
    }
}
