//! Kernel messages about a function.
//!
//! `/dev/kmsg` returns one record per read: `priority,sequence,microseconds,flags;text`, followed by lines that begin with a space and
//! contain keys and values (the kernel's `Documentation/ABI/testing/dev-kmsg`). A file of such records is read in the same way.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use fpga_host::{PciAddress, Roots};

/// Maximum number of records; the last ones are kept.
const MAX_RECORDS: usize = 500;
/// Buffer size that exceeds any record (`CONSOLE_EXT_LOG_MAX` of the kernel is 8 KiB).
const RECORD: usize = 16 << 10;

/// Returns the lines about `address`, oldest first.
pub(super) fn about(roots: &Roots, address: PciAddress) -> Result<String, String> {
    let path = roots.dev.join("kmsg");
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking).open(path);
    let mut log = opened.map_err(|error| {
        format!("/dev/kmsg: {error}; root may read it, or `dmesg | grep {address}` helps")
    })?;
    let name = address.to_string();
    let mut found = VecDeque::new();
    let mut left = String::new();
    let mut record = vec![0; RECORD];
    loop {
        let count = match log.read(&mut record) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // EPIPE: records were overwritten meanwhile; the next read continues after them.
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::BrokenPipe) => continue,
            Err(error) => return Err(format!("/dev/kmsg: {error}")),
        };
        left += &String::from_utf8_lossy(record.get(..count).unwrap_or_default());
        // An incomplete line waits for the next read.
        let whole = left.rfind('\n').map_or(0, |at| at + 1);
        for line in left.get(..whole).unwrap_or_default().lines() {
            commit(&mut found, line, &name);
        }
        left.drain(..whole);
    }
    commit(&mut found, &left, &name);
    if found.is_empty() {
        return Ok(format!("nothing about {address}\n"));
    }
    Ok(found.into_iter().collect())
}

fn commit(found: &mut VecDeque<String>, line: &str, name: &str) {
    if line.starts_with(' ') || !line.contains(name) {
        return;
    }
    let Some((head, text)) = line.split_once(';') else { return };
    let micros: u64 = head.split(',').nth(2).and_then(|micros| micros.parse().ok()).unwrap_or(0);
    if found.len() == MAX_RECORDS {
        found.pop_front();
    }
    found.push_back(format!("[{}.{:06}] {text}\n", micros / 1_000_000, micros % 1_000_000));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_text(log: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::with_root(dir.path());
        std::fs::create_dir_all(&roots.dev).unwrap();
        std::fs::write(roots.dev.join("kmsg"), log).unwrap();
        about(&roots, PciAddress::new(0, 0x65, 0, 0).unwrap())
    }

    #[test]
    fn kernel_log_keeps_last_lines_of_function() {
        assert_eq!(log_text("").unwrap(), "nothing about 0000:65:00.0\n");
        let log = "6,1,12345678,-;vfio-pci 0000:65:00.0: enabling device\n KEY=0000:65:00.0\n6,2,3,-;other 0000:66:00.0\nno record 0000:65:00.0\n\
                   x,y;0000:65:00.0 without a time";
        assert_eq!(
            log_text(log).unwrap(),
            "[12.345678] vfio-pci 0000:65:00.0: enabling device\n[0.000000] 0000:65:00.0 without a time\n"
        );
        let many: String = (0..2000).map(|n| format!("6,{n},{n},-;0000:65:00.0 line {n}\n")).collect();
        let log_text = log_text(&many).unwrap();
        assert_eq!(log_text.lines().count(), MAX_RECORDS);
        assert!(log_text.ends_with("line 1999\n"), "{log_text}");
    }

    #[test]
    fn kernel_log_unreadable_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let message = about(&Roots::with_root(dir.path()), PciAddress::new(0, 1, 0, 0).unwrap()).unwrap_err();
        assert!(message.contains("/dev/kmsg") && message.contains("dmesg"), "{message}");
    }
}
