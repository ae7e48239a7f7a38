//! `--latency` and its kin: the round trips of PING.

use crate::format::Format;
use crate::session::{Session, emit};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How the figures are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyReport {
    /// One line, renewed on a terminal, else printed once.
    Once,
    /// A line for each interval.
    History,
}

/// The pause between round trips.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Figures {
    min: u128,
    max: u128,
    sum: u128,
    count: u128,
}

impl Figures {
    fn add(&mut self, took: Duration) {
        let took = took.as_millis();
        self.min = if self.count == 0 { took } else { self.min.min(took) };
        self.max = self.max.max(took);
        self.sum += took;
        self.count += 1;
    }

    fn text(&self, format: Format) -> String {
        let Figures { min, max, count, .. } = self;
        let mean = self.sum as f64 / self.count as f64;
        match format {
            Format::People => {
                format!("\x1b[0G\x1b[2Kmin: {min}, max: {max}, avg: {mean:.2} ({count} samples)")
            }
            Format::Csv => format!("{min},{max},{mean:.2},{count}\n"),
            Format::Raw => format!("{min} {max} {mean:.2} {count}\n"),
            Format::Json | Format::QuotedJson => format!(
                "{{\"min\": {min}, \"max\": {max}, \"avg\": {mean:.2}, \"count\": {count}}}\n"
            ),
        }
    }
}

/// Measures until the program is ended, or for one interval where the output is for programs.
pub fn run(session: &mut Session, kind: LatencyReport) -> ExitCode {
    crate::interrupt::install();
    let default = if kind == LatencyReport::History { 15 } else { 1 };
    let interval = session.options.interval.unwrap_or(Duration::from_secs(default));
    let format = session.options.style.format;
    let mut figures = Figures::default();
    let mut begin = Instant::now();
    loop {
        let start = Instant::now();
        session.ask(&["PING"]);
        figures.add(start.elapsed());
        let over = begin.elapsed() > interval;
        if format == Format::People || kind == LatencyReport::History {
            emit(figures.text(format).as_bytes());
        } else if over {
            emit(figures.text(format).as_bytes());
            return ExitCode::SUCCESS;
        }
        if kind == LatencyReport::History && over {
            if format == Format::People {
                emit(
                    format!(" -- {:.2} seconds range\n", begin.elapsed().as_secs_f64()).as_bytes(),
                );
            }
            begin = Instant::now();
            figures = Figures::default();
        }
        std::thread::sleep(PAUSE);
    }
}

/// The upper ends of the classes of a distribution, in microseconds, and their signs.
const CLASSES: [(u64, char); 31] = [
    (10, '.'),
    (125, '-'),
    (250, '*'),
    (500, '#'),
    (1_000, '1'),
    (2_000, '2'),
    (3_000, '3'),
    (4_000, '4'),
    (5_000, '5'),
    (6_000, '6'),
    (7_000, '7'),
    (8_000, '8'),
    (9_000, '9'),
    (10_000, 'A'),
    (20_000, 'B'),
    (30_000, 'C'),
    (40_000, 'D'),
    (50_000, 'E'),
    (100_000, 'F'),
    (200_000, 'G'),
    (300_000, 'H'),
    (400_000, 'I'),
    (500_000, 'J'),
    (1_000_000, 'K'),
    (2_000_000, 'L'),
    (4_000_000, 'M'),
    (8_000_000, 'N'),
    (16_000_000, 'O'),
    (30_000_000, 'P'),
    (60_000_000, 'Q'),
    (u64::MAX, '?'),
];

/// `--latency-dist`: a line of signs for each interval; the darker a sign, the rarer its class.
pub fn distribution(session: &mut Session) -> ExitCode {
    crate::interrupt::install();
    let interval = session.options.interval.unwrap_or(Duration::from_secs(1));
    emit(
        b"---------------------------------------------\n\
          . - * #          .01 .125 .25 .5 milliseconds\n\
          1,2,3,...,9      from 1 to 9     milliseconds\n\
          A,B,C,D,E        10,20,30,40,50  milliseconds\n\
          F,G,H,I,J        .1,.2,.3,.4,.5       seconds\n\
          K,L,M,N,O,P,Q,?  1,2,4,8,16,30,60,>60 seconds\n\
          Brightness       share of the round trips\n\
          ---------------------------------------------\n",
    );
    loop {
        let begin = Instant::now();
        let mut counts = [0_u64; CLASSES.len()];
        let mut all = 0;
        while begin.elapsed() < interval {
            let start = Instant::now();
            session.ask(&["PING"]);
            let took = start.elapsed().as_micros() as u64;
            let class = CLASSES.iter().position(|(end, _)| took <= *end);
            counts[class.unwrap_or(CLASSES.len() - 1)] += 1;
            all += 1;
            std::thread::sleep(PAUSE);
        }
        let mut line = String::new();
        for (count, (_, sign)) in counts.iter().zip(CLASSES) {
            // The 24 greys of a terminal with 256 colours begin at 232.
            let grey = if *count == 0 { 0 } else { 235 + 20 * count / all };
            let ink = if *count == 0 { 8 } else { 15 };
            line += &format!("\x1b[48;5;{grey}m\x1b[38;5;{ink}m{sign}");
        }
        emit(format!("{line}\x1b[0m\n").as_bytes());
    }
}
