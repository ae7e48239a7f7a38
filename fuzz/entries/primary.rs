//! A hostile primary: whatever it says and in whatever order, the replica's machine does not panic,
//! goes on only from where it is, loads only what was promised, tries again with pauses, and does
//! not repeat itself in the log. What it sends as a stream is cut into entries that lie one behind
//! the other.

use replication::replica::framing::Framer;
use replication::replica::{Action, Identity, Replica, Stage, Surroundings};
use replication::wire::DualChannels;

use journal::{HistoryId, JournalPos};
use keyspace::Millis;

/// What the replica has.
const ID: &[u8; 40] = b"0123456789012345678901234567890123456789";
const POSITION: JournalPos = JournalPos(900);
/// Positions are numbers of 55 bits.
const POSITIONS_END: u64 = 1 << 55;

struct Witness {
    machine: Replica,
    has: bool,
    /// The bytes of PSYNC were sent over this connection.
    asked: bool,
    /// The last reason that was logged since the stream last came.
    last_reason: String,
    now: Millis,
}

impl Witness {
    fn around(&self) -> Surroundings {
        let id = HistoryId::parse(ID).expect("it is one");
        let identity = Identity { port: 7000, version: "9.1.0".into(), ..Identity::default() };
        let has = self.has.then_some((id, POSITION));
        let dual = DualChannels::default();
        Surroundings { identity, has, timeout_ms: 5000, hands_over: false, dual }
    }

    fn check(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(_, bytes) => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    if text.contains("PSYNC") {
                        self.asked = true;
                        let next = format!("\r\n{}\r\n", POSITION.0 + 1);
                        assert_eq!(text.contains(&next), self.has, "{text}");
                    }
                }
                Action::Follow(_) => {
                    assert!(self.asked && self.has, "it had nothing to go on from")
                }
                Action::Receive(promise) => {
                    assert!(self.asked && self.machine.stage() == Stage::Receiving);
                    assert!(promise.from.is_none_or(|(_, position)| position.0 < POSITIONS_END));
                }
                Action::Close => self.asked = false,
                Action::Warn(reason) => {
                    assert!(reason.len() < 1000 && !reason.contains(['\n', '\r']), "{reason}");
                    assert!(reason != self.last_reason, "twice in a row: {reason}");
                    self.last_reason = reason;
                }
                Action::Connect | Action::Acknowledge | Action::Log(_) => {}
                Action::ConnectRdbChannel => panic!("no second connection was offered"),
                Action::HandedOver { .. } => panic!("nothing was handed over"),
            }
        }
        if self.machine.stage() == Stage::Following {
            self.last_reason.clear();
        }
    }
}

/// Lines: the first byte says what happens, the rest what the primary says.
pub fn check(input: &[u8]) {
    let mut witness = Witness {
        machine: Replica::default(),
        has: input.len().is_multiple_of(2),
        asked: false,
        last_reason: String::new(),
        now: Millis(0),
    };
    let (mut framer, mut stream) = (Framer::default(), Vec::new());
    for line in input.split(|&byte| byte == b'\n') {
        let [what, said @ ..] = line else { continue };
        let stage = witness.machine.stage();
        let (around, now) = (witness.around(), witness.now);
        let actions = match what % 8 {
            0..=3 if !matches!(stage, Stage::Waiting | Stage::Connecting) => {
                // The link's owner gives it no lines in these.
                if matches!(stage, Stage::Receiving | Stage::Following) {
                    continue;
                }
                witness.machine.line(said, &around, now)
            }
            4 => {
                witness.now.0 += 50 + 100 * said.len() as i64;
                witness.machine.tick(&around, witness.now)
            }
            5 if stage == Stage::Connecting => witness.machine.connected(now),
            6 if stage == Stage::Receiving => witness.machine.loaded(now),
            7 if stage == Stage::Following => {
                stream.extend_from_slice(said);
                stream.extend_from_slice(b"\r\n");
                let sense = framer.parse(&stream, 1000);
                let ends = framer.entries().iter().map(|entry| entry.end);
                assert!(
                    ends.clone().is_sorted() && ends.max().is_none_or(|end| end <= stream.len())
                );
                match sense {
                    Ok(_) => Vec::new(),
                    Err(corrupt) => {
                        framer = Framer::default();
                        stream.clear();
                        witness.machine.lost(&format!("Protocol error: {corrupt}"), now)
                    }
                }
            }
            _ if stage != Stage::Waiting => {
                let actions = witness.machine.lost("Connection with master lost.", now);
                assert_eq!(witness.machine.stage(), Stage::Waiting);
                actions
            }
            _ => witness.machine.tick(&around, now),
        };
        witness.check(actions);
    }
}
