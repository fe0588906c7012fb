//! Lines of a process's output, with a limit of their length.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::protocol::MAX_LINE_BYTES;

/// Reads the lines of a stream on a separate thread; the channel closes at the end of the stream.
pub(crate) fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = sync_channel(64);
    std::thread::spawn(move || forward(stream, &send));
    receive
}

fn forward(stream: impl Read, send: &SyncSender<String>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        // A line without an end is cut, not collected.
        match stream.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if send.send(line).is_err() {
            return;
        }
    }
}
