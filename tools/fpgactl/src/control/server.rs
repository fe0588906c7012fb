//! Server end of the control socket, in the process that serves the card.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fpga_pci::LogLimit;
use fpga_sim::served::Listener;
use fpga_sim::{CardFailure, FaultPlan, FaultsDescription, SimNetwork, USER_INTERRUPTS};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Answer, Progress, Request};

/// Pause after a failed `accept` (no free file descriptors), before the next attempt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum length of a request in bytes: a plan of many faults.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of simultaneous connections; others wait in the system's queue.
    pub(crate) clients: usize,
    /// Minimum age of a connection that may be closed for a waiting one. Among those, the connection with the oldest last request is
    /// closed. An answer takes microseconds, so that no client needs a connection for longer.
    pub(crate) idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { clients: 16, idle: Duration::from_secs(1) }
    }
}

/// Connected client.
struct Client {
    stream: UnixStream,
    /// Received part of a line.
    begun: Vec<u8>,
    since: Instant,
    /// Time of the last complete request.
    active: Instant,
}

/// Current counters of the card and its server.
pub(crate) type Stats<'a> = dyn Fn() -> serde_json::Value + Sync + 'a;

/// Serves requests of clients until `end` becomes readable or its other end is closed.
pub(crate) fn serve(
    network: &SimNetwork,
    listener: &Listener,
    end: impl AsFd,
    stats: &Stats<'_>,
    limits: Limits,
) -> io::Result<()> {
    let log = LogLimit::new("control connections");
    let mut clients: Vec<Client> = Vec::new();
    let mut pause = false;
    loop {
        // Time until there is a free slot for the next connection; `None`: there is one.
        let full = until_place(&clients, limits, Instant::now());
        let wait = if pause { Some(ACCEPT_PAUSE) } else { full.filter(|wait| !wait.is_zero()) };
        let listens = if wait.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let streams = clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN));
        let mut waits: Vec<PollFd<'_>> = [PollFd::new(&end, PollFlags::IN), PollFd::new(listener, listens)]
            .into_iter()
            .chain(streams)
            .collect();
        // The limits are far below the kernel's maximum.
        let wait = wait.map(|wait| Timespec::try_from(wait).unwrap_or_default());
        match poll(&mut waits, wait.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = waits.iter().map(|wait| !wait.revents().is_empty());
        if ready.next() == Some(true) {
            log.finish();
            return Ok(());
        }
        let came = ready.next() == Some(true);
        let ready: Vec<bool> = ready.collect();
        let mut ready = ready.into_iter();
        clients.retain_mut(|client| ready.next() != Some(true) || client.attend(network, stats));
        pause = came && !accept(listener, &mut clients, limits, &log);
    }
}

/// Time until another connection can be accepted; `None` if there is a free slot, zero if an old connection can be closed now.
fn until_place(clients: &[Client], limits: Limits, now: Instant) -> Option<Duration> {
    if clients.len() < limits.clients {
        return None;
    }
    let ages = clients.iter().map(|client| now.saturating_duration_since(client.since));
    ages.map(|age| limits.idle.saturating_sub(age)).min()
}

/// Accepts a waiting connection. Returns `false` if it could not be accepted and still waits.
fn accept(listener: &Listener, clients: &mut Vec<Client>, limits: Limits, log: &LogLimit) -> bool {
    let socket = match listener.accept() {
        Ok(None) => return true,
        Ok(Some(socket)) => socket,
        Err(error) => {
            if log.permits_now() {
                tracing::warn!(%error, "a control connection could not be accepted");
            }
            return false;
        }
    };
    let now = Instant::now();
    if clients.len() >= limits.clients {
        let old = clients.iter().enumerate().filter(|(_, client)| now - client.since >= limits.idle);
        if let Some((index, _)) = old.min_by_key(|(_, client)| client.active) {
            clients.remove(index);
        }
    }
    let stream = UnixStream::from(socket);
    // The server does not wait for a client that does not read its answers.
    if stream.set_nonblocking(true).is_ok() {
        clients.push(Client { stream, begun: Vec::new(), since: now, active: now });
    }
    true
}

impl Client {
    /// Answers the received requests. Returns `false` if the client is gone.
    fn attend(&mut self, network: &SimNetwork, stats: &Stats<'_>) -> bool {
        let mut buffer = [0; 4096];
        let count = match self.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => {
                return matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            }
        };
        self.begun.extend_from_slice(buffer.get(..count).unwrap_or_default());
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            self.active = Instant::now();
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            if !self.reply(&answer(network, stats, &line)) {
                return false;
            }
        }
        if self.begun.len() > MAX_REQUEST_BYTES {
            let error = Some(format!("a request has at most {MAX_REQUEST_BYTES} bytes"));
            self.reply(&Answer { error, ..Answer::default() });
            return false;
        }
        true
    }

    fn reply(&mut self, answer: &Answer) -> bool {
        let Ok(mut line) = serde_json::to_vec(answer) else { return false };
        line.push(b'\n');
        self.stream.write_all(&line).is_ok()
    }
}

/// Performs the request of one line.
fn answer(network: &SimNetwork, stats: &Stats<'_>, line: &[u8]) -> Answer {
    let mut answer = Answer::default();
    let done = match serde_json::from_slice(line) {
        Ok(request) => execute_request(network, stats, &request, &mut answer),
        Err(error) => Err(format!("not a valid request: {}", fpga_input::plain_message(&error.to_string()))),
    };
    answer.error = done.err();
    // The network was built with one card.
    let progress = network.with_card(0, |card| {
        let progress = card.fault_progress();
        progress.map(|(opportunities, strikes)| Progress { opportunities, strikes }).collect()
    });
    answer.faults = progress.unwrap_or_default();
    answer
}

fn execute_request(
    network: &SimNetwork,
    stats: &Stats<'_>,
    request: &Request,
    answer: &mut Answer,
) -> Result<(), String> {
    let no_line = |line: u8| {
        format!("line: {line} is not a user interrupt of the card; give 0 to {}", USER_INTERRUPTS - 1)
    };
    match request {
        Request::Faults { faults } => {
            let plan = planned(faults)?;
            network.with_card(0, |card| card.set_fault_plan(&plan));
        }
        Request::Unplug {} => {
            network.fail(0, CardFailure::Gone);
        }
        Request::Replug {} => {
            network.replug(0);
        }
        Request::UserInterrupt { line, on } => {
            if !network.set_user_interrupt(0, *line, *on) {
                return Err(no_line(*line));
            }
        }
        Request::PulseUserInterrupt { line } => {
            let acknowledged = network.pulse_user_interrupt(0, *line);
            answer.acknowledged = Some(acknowledged.ok_or_else(|| no_line(*line))?);
        }
        Request::Stats {} => answer.stats = Some(stats()),
        Request::State {} => {}
    }
    Ok(())
}

/// Converts a section to a plan, or reports which entry is wrong.
fn planned(faults: &FaultsDescription) -> Result<FaultPlan, String> {
    faults.plan().map_err(|(index, problem)| format!("faults.list[{index}].{}: {problem}", problem.key()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::client::ask as ask_at;
    use fpga_driver::Card;
    use fpga_sim::CardDescription;

    fn network() -> SimNetwork {
        SimNetwork::builder().card(CardDescription::default()).build().unwrap()
    }

    fn ask(network: &SimNetwork, line: &str) -> Answer {
        answer(network, &|| serde_json::json!({"messages": 7}), line.as_bytes())
    }

    #[test]
    fn control_plan_is_replaced_and_strikes_counted() {
        let network = network();
        let plan = r#"{"do":"faults","faults":{"list":[{"fault":"all_ones","skip":1}]}}"#;
        assert_eq!(ask(&network, plan), Answer { faults: vec![Progress::default()], ..Answer::default() });
        let read = |network: &SimNetwork| {
            let mut word = [0; 4];
            network
                .with_card(0, |card| {
                    // As a driver that opens it does.
                    card.set_command(true, false);
                    card.bar_read(1, 0, &mut word);
                })
                .unwrap();
            word
        };
        assert_ne!(read(&network), [0xFF; 4]);
        assert_eq!(read(&network), [0xFF; 4]);
        let state = ask(&network, r#"{"do":"state"}"#);
        assert_eq!(state.faults, [Progress { opportunities: 2, strikes: 1 }]);
        // Faults that have struck stay in effect, until the card is put back.
        assert_eq!(ask(&network, r#"{"do":"faults","faults":{}}"#), Answer::default());
        assert_eq!(read(&network), [0xFF; 4]);
        assert_eq!(ask(&network, r#"{"do":"put-back"}"#), Answer::default());
        assert_ne!(read(&network), [0xFF; 4]);
    }

    #[test]
    fn control_pulse_of_masked_line_holds_until_enabled() {
        let network = network();
        let pulse = r#"{"do":"pulse-user-interrupt","line":3}"#;
        let card = Card::from_backend(network.backend(0)).unwrap();
        assert_eq!(ask(&network, pulse).acknowledged, Some(false));
        let irq = card.user_interrupt(3).unwrap();
        assert_eq!((irq.take(), irq.is_pending()), (Ok(1), Ok(false)));
        assert_eq!(ask(&network, pulse).acknowledged, Some(true));
        assert_eq!(ask(&network, pulse).acknowledged, Some(true));
        assert_eq!((irq.take(), irq.count()), (Ok(2), 3));
        assert_eq!(card.user_interrupt_states().unwrap()[3].count, Some(3));
    }

    #[test]
    fn control_stats_include_faults() {
        let answer = ask(&network(), r#"{"do":"stats"}"#);
        assert_eq!((answer.error, answer.stats), (None, Some(serde_json::json!({"messages": 7}))));
    }

    #[test]
    fn control_invalid_request_changes_nothing() {
        let network = network();
        ask(&network, r#"{"do":"faults","faults":{"list":[{"fault":"stall"}]}}"#);
        for (line, part) in [
            ("", "not a valid request"),
            ("{}", "`do`"),
            (r#"{"do":"explode"}"#, "explode"),
            (r#"{"do":"state","more":1}"#, "more"),
            (r#"{"do":"user-interrupt","line":16,"on":true}"#, "0 to 15"),
            (r#"{"do":"user-interrupt","line":1}"#, "`on`"),
            (r#"{"do":"pulse-user-interrupt","line":16}"#, "0 to 15"),
            (r#"{"do":"faults","faults":{"list":[{"fault":"none"}]}}"#, "none"),
            (
                r#"{"do":"faults","faults":{"list":[{"fault":"stall"},{"fault":"stall","count":1}]}}"#,
                "faults.list[1].count",
            ),
        ] {
            let answer = ask(&network, line);
            assert!(answer.error.as_ref().is_some_and(|error| error.contains(part)), "{line}: {answer:?}");
            assert_eq!(answer.faults.len(), 1, "{line}: the plan is unchanged");
        }
    }

    #[test]
    fn control_silent_connections_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = Listener::bind(&path).unwrap();
        let (end, ended) = UnixStream::pair().unwrap();
        let network = network();
        let limits = Limits { clients: 4, idle: Duration::ZERO };
        std::thread::scope(|scope| {
            let served =
                scope.spawn(|| serve(&network, &listener, ended, &|| serde_json::Value::Null, limits));
            let silent: Vec<_> = (0..2 * limits.clients)
                .map(|number| {
                    let mut stream = UnixStream::connect(&path).unwrap();
                    // An incomplete request does not count.
                    stream.write_all(if number % 2 == 0 { b"" } else { b"{" }).unwrap();
                    stream
                })
                .collect();
            for _ in 0..limits.clients {
                assert_eq!(ask_at(&path, &Request::State {}, None).unwrap(), Answer::default());
            }
            drop(end);
            served.join().unwrap().unwrap();
            drop(silent);
        });
    }

    #[test]
    fn control_young_connection_is_kept() {
        let now = Instant::now();
        let client = |age: u64| {
            let (stream, _) = UnixStream::pair().unwrap();
            let since = now + Duration::from_secs(100 - age);
            Client { stream, begun: Vec::new(), since, active: since }
        };
        let now = now + Duration::from_secs(100);
        let limits = Limits { clients: 2, idle: Duration::from_secs(10) };
        assert_eq!(until_place(&[client(50)], limits, now), None);
        assert_eq!(until_place(&[client(3), client(4)], limits, now), Some(Duration::from_secs(6)));
        assert_eq!(until_place(&[client(3), client(50)], limits, now), Some(Duration::ZERO));
    }
}
