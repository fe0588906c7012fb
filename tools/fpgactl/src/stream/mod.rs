//! Sources and sinks of bytes: files that are read twice, random streams that are generated twice, and the sink that compares.
//!
//! Nothing here holds more than a few KiB: the length of a stream does not matter. Of standard input, which can be read only once, a part
//! at a time is kept in a temporary file.
//!
//! Errors of readers and writers carry a whole [`CliError`](crate::CliError) inside the `io::Error`. Its `From` implementations extract it
//! from the driver's error, so that it still names its file.

mod input;
mod sink;
mod source;

use std::io;

use fpga_driver::{ReadVolatile, SharedSlice};

pub(crate) use input::read_yaml;
pub use input::{Input, is_stdin, open_at_once, waits};
pub use sink::{Compare, DeadlineSink, StreamPosition};
pub use source::{Source, SourceReader};

/// Number of random bytes generated, and of bytes compared, at a time.
const BLOCK_BYTES: usize = 16 << 10;

/// Fills `into` as far as `reader` has bytes; fewer only at its end.
pub fn fill(reader: &mut dyn ReadVolatile, into: SharedSlice<'_>) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(left) = into.len().checked_sub(filled).filter(|left| *left > 0) {
        let rest = into.slice(filled, left).map_err(io::Error::other)?;
        match reader.read_volatile(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::path::Path;

    use fpga_driver::{CardAddr, SharedSlice, WriteVolatile};

    use super::*;
    use crate::error::CliError;
    use crate::outfile::OutFile;
    use crate::progress::Deadline;

    const NEVER: fn() -> Deadline = || Deadline::after(None);

    fn place() -> StreamPosition {
        StreamPosition { card: "mock:1".to_owned(), transfer: 2, start: 1000, address: CardAddr::new(0x100) }
    }

    fn random(length: u64) -> Source {
        Source::Random { seed: 5, length }
    }

    fn all(source: &Source) -> Vec<u8> {
        let mut bytes = Vec::new();
        source.open(NEVER()).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn random_stream_is_independent_of_read_sizes() {
        let source = random(3 * BLOCK_BYTES as u64 + 7);
        let whole = all(&source);
        assert_eq!(Some(whole.len() as u64), source.length());
        let mut reader = source.open(NEVER()).unwrap();
        let mut at = 0;
        for size in (1..).map(|n| n * 37 % 5000 + 1) {
            let mut part = vec![0; size.min(whole.len() - at)];
            reader.read_exact(&mut part).unwrap();
            assert_eq!(part, whole[at..at + part.len()]);
            at += part.len();
            if at == whole.len() {
                break;
            }
        }
        assert_ne!(whole, all(&Source::Random { seed: 6, length: whole.len() as u64 }));
    }

    #[test]
    fn compare_first_differing_byte_is_named() {
        let source = random(100_000);
        let mut bytes = all(&source);
        bytes[70_000] ^= 1;
        bytes[80_000] ^= 1;
        let mut expected = source.open(NEVER()).unwrap();
        let mut sink = Compare::new(&mut expected, None, place());
        sink.write_all_volatile(SharedSlice::from_mut(&mut bytes[..50_000])).unwrap();
        let error = sink.write_all_volatile(SharedSlice::from_mut(&mut bytes[50_000..]));
        let error = error.unwrap_err().downcast::<CliError>().unwrap();
        let address = CardAddr::new(0x100 + 70_000);
        let (text, end) = (error.to_string(), format!("in transfer 2 at card address {address} of "));
        assert!(text.starts_with("data differ at offset 71000 (") && text.contains(&end), "{text}");
    }

    #[test]
    fn compare_equal_bytes_are_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let source = random(50_000);
        let mut bytes = all(&source);
        let mut out = OutFile::create(&path, Deadline::after(None)).unwrap();
        let mut expected = source.open(NEVER()).unwrap();
        Compare::new(&mut expected, Some(&mut out), place())
            .write_all_volatile(SharedSlice::from_mut(&mut bytes))
            .unwrap();
        out.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn source_changed_file_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in");
        fs::write(&path, [7; 100]).unwrap();
        let source = Source::file(&path).unwrap();
        source.check_unchanged().unwrap();
        fs::write(&path, [7; 50]).unwrap();
        assert!(source.check_unchanged().unwrap_err().to_string().contains("50 bytes now"));
        let mut expected = source.open(NEVER()).unwrap();
        let error = Compare::new(&mut expected, None, place())
            .write_all_volatile(SharedSlice::from_mut(&mut [7; 100]))
            .unwrap_err();
        assert!(error.to_string().contains("changed"), "{error}");
    }

    #[test]
    fn source_must_be_regular_and_differ_from_output() {
        let dir = tempfile::tempdir().unwrap();
        let error = Source::file(dir.path()).unwrap_err();
        assert!(error.to_string().contains("directory"), "{error}");
        assert!(Source::file(Path::new("/dev/null")).unwrap_err().to_string().contains("device"));
        let path = dir.path().join("in");
        fs::write(&path, "content").unwrap();
        let source = Source::file(&path).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(source.check_apart(&link).unwrap_err().exit_status(), 2);
        assert_eq!(fs::read(&path).unwrap(), b"content");
    }
}
