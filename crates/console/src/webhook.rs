//! Tells an address of the user's of problems: a POST with JSON when one has begun, and when it is
//! over. A thread sends; what it cannot send it tries again for ten minutes.

use crate::alerts::{Alert, Notice};
use client::http::{Connection, Request, Server};
use client::tls::{TlsOptions, rules};
use process::thread;
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Messages that may wait.
const MAX_WAITING: usize = 100;
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a message is tried.
const PATIENCE: Duration = Duration::from_secs(600);
/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;

/// Writes a line into the log.
pub type Log = fn(&str);

/// A message, and when it was made.
struct Message {
    body: Value,
    made: Instant,
}

/// The way to the thread that sends.
#[derive(Clone)]
pub struct Webhook {
    sender: SyncSender<Message>,
    log: Log,
}

impl Webhook {
    /// Starts the thread that sends to this URL.
    ///
    /// # Errors
    /// The URL is none, or the thread cannot be started; the text is for the operator.
    pub fn start(url: &str, log: Log) -> Result<Webhook, String> {
        let (server, path) = Server::at(url, || rules(&TlsOptions::default()))?;
        let (sender, messages) = sync_channel(MAX_WAITING);
        let send = move || send_all(&server, &path, &messages, log);
        thread::spawn("webhook", send)
            .map_err(|why| format!("the webhook has no thread: {why}"))?;
        Ok(Webhook { sender, log })
    }

    /// Tells of a problem of `subject`. It never waits.
    pub fn tell(&self, subject: &str, notice: &Notice) {
        let message = Message { body: body(subject, notice), made: Instant::now() };
        if let Err(TrySendError::Full(_)) = self.sender.try_send(message) {
            let title = &notice.alert.title;
            (self.log)(&format!("webhook: {MAX_WAITING} messages wait, this one is lost: {title}"));
        }
    }
}

/// The body of a message. `text` is what chats show.
fn body(subject: &str, Notice { status, alert }: &Notice) -> Value {
    let Alert { level, title, detail } = alert;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let (status, level) = (json!(status), json!(level));
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let text = format!("[{}] {host}, {subject}: {title}. {detail}", word(&status));
    json!({
        "source": "dunlin",
        "status": status,
        "level": level,
        "host": host,
        "subject": subject,
        "title": title,
        "detail": detail,
        "at": at.map_or(0, |at| at.as_secs()),
        "text": text.trim_end(),
    })
}

fn send_all(server: &Server, path: &str, messages: &Receiver<Message>, log: Log) {
    let mut is_failing = false;
    for message in messages {
        let mut pause = Duration::from_secs(1);
        loop {
            let why = match send(server, path, &message.body) {
                Ok(()) => {
                    if std::mem::take(&mut is_failing) {
                        log("webhook: messages are taken again");
                    }
                    break;
                }
                Err(why) => why,
            };
            if !std::mem::replace(&mut is_failing, true) {
                log(&format!("webhook: {}:{} takes no message: {why}", server.host, server.port));
            }
            if message.made.elapsed() + pause > PATIENCE {
                log(&format!("webhook: a message is given up: {}", message.body["text"]));
                break;
            }
            sleep(pause);
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }
}

fn send(server: &Server, path: &str, body: &Value) -> Result<(), String> {
    let body = body.to_string();
    let headers = [("content-type", "application/json"), ("user-agent", "dunlin")];
    let request = Request { method: "POST", path, headers: &headers, body: body.as_bytes() };
    let mut connection = Connection::new(server.clone()).map_err(|why| why.to_string())?;
    let answer = connection.ask(&request, Instant::now() + ANSWER, MAX_ANSWER);
    match answer.map_err(|why| why.to_string())?.status {
        200..300 => Ok(()),
        status => Err(format!("it answers with status {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::Status;
    use crate::events::Level;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    fn notice() -> Notice {
        let alert = Alert {
            level: Level::Alarm,
            title: "The last snapshot failed".into(),
            detail: "Writes may be refused.".into(),
        };
        Notice { status: Status::Firing, alert }
    }

    #[test]
    fn a_message_says_what_is_wrong_where() {
        let body = body("port 6379", &notice());
        assert_eq!((&body["status"], &body["level"]), (&json!("firing"), &json!("alarm")));
        let text = body["text"].as_str().expect("a text");
        assert!(text.starts_with("[firing] "), "{text}");
        assert!(text.ends_with("port 6379: The last snapshot failed. Writes may be refused."));
    }

    /// Answers a request with a status. Returns what came.
    fn answer(listener: &TcpListener, status: &str) -> String {
        let (mut socket, _) = listener.accept().expect("it connects");
        let mut text = String::new();
        while !text.ends_with('}') {
            let mut part = [0; 4096];
            let count = socket.read(&mut part).expect("it sends");
            assert!(count > 0, "it ends early: {text}");
            text += std::str::from_utf8(&part[..count]).expect("text");
        }
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        socket.write_all(reply.as_bytes()).expect("it is read");
        text
    }

    #[test]
    fn a_message_is_sent_again_until_it_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let hook =
            Webhook::start(&format!("http://127.0.0.1:{port}/hook?a=b"), |_| {}).expect("a hook");
        hook.tell("port 6379", &notice());
        let first = answer(&listener, "503 Busy");
        assert!(first.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{first}");
        let second = answer(&listener, "204 Taken");
        assert_eq!(first.split("\r\n\r\n").nth(1), second.split("\r\n\r\n").nth(1));
    }

    #[test]
    fn urls_that_lead_nowhere_are_refused() {
        for bad in ["", "localhost", "ftp://a/", "http://", "http://user@a/", "http://a:0x/"] {
            assert!(Webhook::start(bad, |_| {}).is_err(), "{bad}");
        }
    }
}
