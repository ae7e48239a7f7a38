//! Code words in front of errors. They decide what happens next; the texts behind them are for people,
//! and may be worded differently at any time.

/// In front of an error that is made in place of a server's reply: the server did not answer, or was
/// not asked because too much waits for it. No server's own reply begins so.
pub const NO_REPLY: &str = "NOREPLY";

/// What a node of a cluster answers to another node about a user that it does not know: it has no
/// clients of that user. Clients are told the text behind it.
pub const NO_USER: &str = "NOUSER";

/// What a node of a cluster answers to another node that asks for a client which it does not have.
/// Clients are told the text behind it.
pub const NO_CLIENT: &str = "NOCLIENT";

/// Returns whether a reply is an error with this code word.
pub fn has(reply: &[u8], code: &str) -> bool {
    let rest = reply.strip_prefix(b"-").and_then(|rest| rest.strip_prefix(code.as_bytes()));
    rest.is_some_and(|rest| rest.first().is_none_or(|byte| !byte.is_ascii_alphanumeric()))
}

/// Returns what a client is told for an error that nodes understand.
pub fn for_client(reply: Vec<u8>) -> Vec<u8> {
    let internal = [NO_USER, NO_CLIENT].into_iter().find(|code| has(&reply, code));
    match internal {
        Some(code) => [b"-ERR", &reply[1 + code.len()..]].concat(),
        None => reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_whole_words() {
        assert!(has(b"-NOREPLY server a\r\n", NO_REPLY));
        assert!(!has(b"-NOREPLYX\r\n", NO_REPLY) && !has(b"+NOREPLY\r\n", NO_REPLY));
        assert!(!has(b"-NOREPLICAS Not enough good replicas to write.\r\n", NO_REPLY));
    }

    #[test]
    fn clients_are_told_what_servers_say() {
        let told = |reply: &[u8]| for_client(reply.to_vec());
        assert_eq!(told(b"-NOCLIENT No such client\r\n"), b"-ERR No such client\r\n");
        assert_eq!(told(b"-NOUSER No such user 'a'\r\n"), b"-ERR No such user 'a'\r\n");
        assert_eq!(told(b"-NOREPLY server a\r\n"), b"-NOREPLY server a\r\n");
        assert_eq!(told(b":1\r\n"), b":1\r\n");
    }
}
