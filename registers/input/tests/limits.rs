//! Files that are too long, have no end, are not text, or expand too much.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

use fpga_input::{FileKind, InputError};

const SMALL: FileKind = FileKind { name: "card file", limit: 4096 };

fn file(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn regular_file_at_limit_is_read_and_one_byte_more_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "exact", "x".repeat(4096));
    assert_eq!(SMALL.read(&path).unwrap().len(), 4096);
    let path = file(dir.path(), "more", "x".repeat(4097));
    let error = SMALL.read(&path).unwrap_err();
    assert!(matches!(error, InputError::TooLong { size: Some(4097), .. }));
    let (text, path) = (error.to_string(), path.display().to_string());
    for part in ["card file ", path.as_str(), "4097 bytes", "limit of 4096 (4 KiB)", "; check that"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn pipe_is_read_up_to_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for (length, whole) in [(4096, true), (1 << 20, false)] {
        let pipe = path.clone();
        let writer = thread::spawn(move || {
            let mut end = std::fs::OpenOptions::new().write(true).open(pipe).unwrap();
            // The reader closes the pipe at the limit.
            let _ = end.write_all(&vec![b'x'; length]);
        });
        let read = SMALL.read(&path);
        writer.join().unwrap();
        assert_eq!(read.is_ok(), whole);
        assert!(whole || matches!(read, Err(InputError::TooLong { size: None, .. })));
    }
}

#[test]
fn non_text_bytes_are_named_by_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "binary", b"ab\xFF\xFE");
    let error = SMALL.read(&path).unwrap_err();
    assert!(matches!(error, InputError::NotText { at: 2, .. }));
    assert!(error.to_string().contains("byte 2 is not UTF-8"), "{error}");
}

#[cfg(feature = "yaml")]
mod yaml {
    use super::*;

    /// A list of `width` aliases of a list of `width` aliases, and so on, `levels` deep.
    fn bomb(levels: usize, width: usize) -> String {
        let mut text = "a0: &a0 [x]\n".to_owned();
        for level in 1..=levels {
            let items = vec![format!("*a{}", level - 1); width].join(", ");
            writeln!(text, "a{level}: &a{level} [{items}]").unwrap();
        }
        text
    }

    fn check(text: &str) -> Result<(), InputError> {
        FileKind::CARD.check_yaml(Path::new("a.yaml"), text)
    }

    #[test]
    fn nested_aliases_are_refused() {
        for (levels, width) in [(2, 5000), (127, 3)] {
            let error = check(&bomb(levels, width)).unwrap_err();
            assert!(matches!(error, InputError::Aliases { .. }), "{levels}, {width}: {error}");
            assert!(error.to_string().starts_with("card file a.yaml: its aliases repeat too many values"));
        }
        // Normal use of aliases.
        check(&bomb(3, 9)).unwrap();
        check("a: &a {loss: 0.5}\nb: *a\nc: {<<: *a}\nd: !tag *a\n").unwrap();
        check("a: 2 * 3\n").unwrap();
    }
}
