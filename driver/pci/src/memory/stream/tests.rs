use super::*;
use crate::{HugePages, SharedMemory};
use std::io::Seek;

fn memory(length: usize) -> SharedMemory {
    SharedMemory::anonymous(length, HugePages::No).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

fn check_source(source: &mut dyn ReadVolatile, data: &[u8]) {
    let memory = memory(data.len() + 4096);
    source.read_exact_volatile(memory.view().slice(5, data.len()).unwrap()).unwrap();
    assert!(memory.view().slice(5, data.len()).unwrap().to_vec() == data);
    let error = source.read_exact_volatile(memory.view()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn stream_sources_fill_memory_and_report_end() {
    let data = pattern(200_000);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data).unwrap();
    file.rewind().unwrap();
    check_source(&mut file, &data);
    check_source(&mut &data[..], &data);
    check_source(&mut Cursor::new(&data), &data);
    check_source(&mut Bounced::new(Box::new(&data[..])), &data);
    check_source(&mut Box::new(Cursor::new(data.clone())), &data);
    let (reader, mut writer) = io::pipe().unwrap();
    let sent = data.clone();
    let thread = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    check_source(&mut { reader }, &data);
    thread.join().unwrap();
}

#[test]
fn stream_sinks_take_all_bytes() {
    let data = pattern(200_000);
    let memory = memory(data.len());
    memory.write(0, &data).unwrap();
    let view = memory.view().slice(0, data.len()).unwrap();
    let mut vector = b"before".to_vec();
    vector.write_all_volatile(view).unwrap();
    assert!(vector == [&b"before"[..], &data].concat());
    let mut bounced = Bounced::new(Vec::new());
    bounced.write_all_volatile(view).unwrap();
    assert!(bounced.into_inner() == data);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all_volatile(view).unwrap();
    file.rewind().unwrap();
    let mut back = Vec::new();
    file.read_to_end(&mut back).unwrap();
    assert!(back == data);
    let mut full = &mut [0_u8; 10][..];
    assert_eq!(Bounced::new(&mut full).write_all_volatile(view).unwrap_err().kind(), ErrorKind::WriteZero);
}

#[test]
fn stream_reporting_too_many_bytes_is_refused() {
    struct MisreportingStream;
    impl ReadVolatile for MisreportingStream {
        fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
            Ok(into.len() + 1)
        }
    }
    impl Read for MisreportingStream {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            Ok(into.len() + 1)
        }
    }
    impl WriteVolatile for MisreportingStream {
        fn write_volatile(&mut self, _: SharedSlice<'_>) -> io::Result<usize> {
            Ok(usize::MAX)
        }
    }
    let memory = memory(4096);
    assert!(
        MisreportingStream.read_exact_volatile(memory.view()).unwrap_err().to_string().contains("4097 bytes")
    );
    assert!(Bounced::new(MisreportingStream).read_exact_volatile(memory.view()).is_err());
    assert!(MisreportingStream.write_all_volatile(memory.view()).is_err());
}

#[test]
fn stream_chunks_cover_every_byte_once_in_order() {
    for length in [0, 1, 4095, 4096, 4097, 3 * 4096] {
        let memory = memory(4 * 4096);
        let view = memory.view().slice(3, length).unwrap();
        view.write_chunks(|offset, chunk| {
            for (at, byte) in (offset..).zip(chunk) {
                *byte = u8::try_from(at % 251).unwrap();
            }
        });
        assert!(view.to_vec() == pattern(length));
        let mut seen = Vec::new();
        view.read_chunks(|offset, chunk| {
            assert_eq!(offset, seen.len());
            seen.extend_from_slice(chunk);
        });
        assert!(seen == pattern(length));
        assert_eq!((memory.view().to_vec()[2], memory.view().to_vec()[3 + length]), (0, 0));
    }
    let mut own = pattern(100);
    SharedSlice::from_mut(&mut own).fill(10, 80, 0xEE).unwrap();
    assert_eq!((own[9], own[10], own[89], own[90]), (9, 0xEE, 0xEE, 90));
}
