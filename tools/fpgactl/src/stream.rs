//! Where bytes come from and where they go: files that are read twice, random streams that are made twice, and the sink that
//! compares.
//!
//! Nothing here holds more than a few KiB: the length of a stream does not matter.
//!
//! Reader and writer errors carry a whole [`CliError`] inside the `io::Error`, which [`CliError::from`] takes out of
//! the driver's error again: that way it still names its file.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fpga_driver::CardAddr;
use fpga_driver::bulk::BulkError;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::error::CliError;
use crate::progress::Deadline;

/// Random bytes made, and bytes compared, at a time.
const BLOCK: usize = 16 << 10;

impl From<BulkError> for CliError {
    fn from(error: BulkError) -> Self {
        match error {
            BulkError::Stream { done, source } => match source.downcast::<Self>() {
                Ok(inner) => inner,
                Err(source) => Self::Bulk(BulkError::Stream { done, source }),
            },
            other => Self::Bulk(other),
        }
    }
}

/// A stream of known length that can be read more than once.
#[derive(Debug, Clone)]
pub enum Source {
    /// A regular file.
    File {
        /// Which.
        path: PathBuf,
        /// Its size when it was first looked at.
        length: u64,
        /// When it was last changed then.
        modified: Option<SystemTime>,
    },
    /// Random bytes.
    Random {
        /// Seed of the generator.
        seed: u64,
        /// How many.
        length: u64,
    },
}

impl Source {
    /// The file at `path`.
    ///
    /// # Errors
    /// [`CliError::File`], [`CliError::NotAFile`].
    pub fn file(path: &Path) -> Result<Self, CliError> {
        // Looked at before it is opened: opening a pipe would wait for its writer.
        let found = fs::metadata(path).map_err(|source| CliError::file(path, "read it", source))?;
        if !found.is_file() {
            return Err(CliError::NotAFile { path: path.to_owned(), kind: kind_of(&found) });
        }
        Ok(Self::File { path: path.to_owned(), length: found.len(), modified: found.modified().ok() })
    }

    /// Bytes of the stream.
    #[must_use]
    pub const fn length(&self) -> u64 {
        match self {
            Self::File { length, .. } | Self::Random { length, .. } => *length,
        }
    }

    /// What it is, for reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::Random { .. } => "random bytes".to_owned(),
        }
    }

    /// A reader from the start of the stream.
    ///
    /// # Errors
    /// [`CliError::File`].
    pub fn open(&self, deadline: Deadline) -> Result<SourceReader<'_>, CliError> {
        let bytes = match self {
            Self::File { path, .. } => {
                Bytes::File(File::open(path).map_err(|source| CliError::file(path, "read it", source))?)
            }
            Self::Random { seed, length } => Bytes::Random(Random::new(*seed, *length)),
        };
        Ok(SourceReader { source: self, bytes, deadline })
    }

    /// Fails if a file is not as it was when it was first looked at.
    ///
    /// # Errors
    /// [`CliError::Changed`], [`CliError::File`].
    pub fn check_unchanged(&self) -> Result<(), CliError> {
        let Self::File { path, length, modified } = self else { return Ok(()) };
        let found = fs::metadata(path).map_err(|source| CliError::file(path, "read it again", source))?;
        if found.len() != *length {
            return Err(self.changed(format!("{} bytes now", found.len())));
        }
        if found.modified().ok() != *modified {
            return Err(self.changed("as many now, but written to meanwhile".to_owned()));
        }
        Ok(())
    }

    /// An error that may come from a file that was shortened, or from the card.
    #[must_use]
    pub fn explain(&self, error: BulkError) -> CliError {
        match error {
            BulkError::Short { .. } => self.changed("fewer when they were read".to_owned()),
            other => other.into(),
        }
    }

    fn changed(&self, now: String) -> CliError {
        CliError::Changed { path: self.name().into(), before: self.length(), now }
    }
}

fn kind_of(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

/// A reader of a [`Source`].
#[derive(Debug)]
pub struct SourceReader<'a> {
    source: &'a Source,
    bytes: Bytes,
    deadline: Deadline,
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Random(Random),
}

impl Read for SourceReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.deadline.check(|| format!("reading {}", self.source.name())).map_err(io::Error::other)?;
        match (&mut self.bytes, self.source) {
            (Bytes::File(file), Source::File { path, .. }) => file.read(into).map_err(|error| wrap(path, "read it", error)),
            (Bytes::File(file), Source::Random { .. }) => file.read(into),
            (Bytes::Random(random), _) => Ok(random.read(into)),
        }
    }
}

/// Interruptions stay what they are: the caller tries again.
fn wrap(path: &Path, action: &'static str, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::Interrupted => error,
        _ => io::Error::other(CliError::file(path, action, error)),
    }
}

/// Random bytes: the same for the same seed, however they are cut into reads.
#[derive(Debug)]
struct Random {
    generator: Pcg64Mcg,
    left: u64,
    block: Box<[u8; BLOCK]>,
    used: usize,
}

impl Random {
    fn new(seed: u64, length: u64) -> Self {
        Self { generator: Pcg64Mcg::seed_from_u64(seed), left: length, block: Box::new([0; BLOCK]), used: BLOCK }
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        if self.used == BLOCK {
            self.generator.fill_bytes(&mut self.block[..]);
            self.used = 0;
        }
        let ready = self.block.get(self.used..).unwrap_or_default();
        let count = into.len().min(ready.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        for (to, from) in into.iter_mut().zip(ready.iter().take(count)) {
            *to = *from;
        }
        self.used += count;
        self.left -= count as u64;
        count
    }
}

/// An output file. Unless it is [kept](Self::keep) it is removed again, so that nobody takes a part for the whole.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    file: File,
    /// Not a device or a pipe, which were there before.
    regular: bool,
    keep: bool,
}

impl OutFile {
    /// Creates the file or empties it.
    ///
    /// # Errors
    /// [`CliError::File`]; [`CliError::Usage`] if it is the file that `source` is read from.
    pub fn create(path: &Path, source: Option<&Source>) -> Result<Self, CliError> {
        if let Some(Source::File { path: read, .. }) = source
            && let (Ok(a), Ok(b)) = (fs::metadata(read), fs::metadata(path))
            && (a.dev(), a.ino()) == (b.dev(), b.ino())
        {
            return Err(CliError::Usage(format!(
                "{} is the file that is read, writing it would destroy it; give another file with --out",
                path.display()
            )));
        }
        let fail = |source| CliError::file(path, "write it", source);
        let file = File::create(path).map_err(fail)?;
        let regular = file.metadata().map_err(fail)?.is_file();
        Ok(Self { path: path.to_owned(), file, regular, keep: false })
    }

    /// The file is whole.
    pub fn keep(mut self) {
        self.keep = true;
    }
}

impl Write for OutFile {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.file.write(from).map_err(|error| wrap(&self.path, "write it", error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if !self.keep && self.regular {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A sink that gives up when the time is over.
#[derive(Debug)]
pub struct Limited<W> {
    /// Where the bytes go.
    pub inner: W,
    /// Until when.
    pub deadline: Deadline,
}

impl<W: Write> Write for Limited<W> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.deadline.check(|| "reading card memory".to_owned()).map_err(io::Error::other)?;
        self.inner.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Where a byte of the stream was in card memory, for the message about one that differs.
#[derive(Debug, Clone)]
pub struct Place {
    /// The receiving card.
    pub card: String,
    /// Which transfer, from 1.
    pub transfer: u64,
    /// Offset in the stream of the transfer's first byte.
    pub start: u64,
    /// Where that byte was.
    pub address: CardAddr,
}

/// Compares what is written to it with a second reading of the source, byte for byte, and passes it on.
#[derive(Debug)]
pub struct Compare<'a, 'b> {
    expected: &'a mut SourceReader<'b>,
    out: Option<&'a mut OutFile>,
    place: Place,
    done: u64,
    scratch: Vec<u8>,
}

impl<'a, 'b> Compare<'a, 'b> {
    /// A sink for the part of the stream at `place`; `expected` stands at its first byte.
    #[must_use]
    pub fn new(expected: &'a mut SourceReader<'b>, out: Option<&'a mut OutFile>, place: Place) -> Self {
        Self { expected, out, place, done: 0, scratch: vec![0; BLOCK] }
    }

    fn check(&mut self, piece: &[u8]) -> io::Result<()> {
        let expected = self.scratch.get_mut(..piece.len()).unwrap_or_default();
        self.expected.read_exact(expected).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::other(self.expected.source.changed("fewer when they were read again".to_owned()))
            }
            _ => error,
        })?;
        if expected == piece {
            return Ok(());
        }
        self.expected.source.check_unchanged().map_err(io::Error::other)?;
        let differing = expected.iter().zip(piece).enumerate().find(|(_, (sent, received))| sent != received);
        let Some((index, (sent, received))) = differing else { return Ok(()) };
        let inside = self.done + index as u64;
        Err(io::Error::other(CliError::Mismatch {
            offset: self.place.start + inside,
            sent: *sent,
            received: *received,
            transfer: self.place.transfer,
            address: CardAddr::new(self.place.address.get().saturating_add(inside)),
            card: self.place.card.clone(),
        }))
    }
}

impl Write for Compare<'_, '_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        for piece in from.chunks(BLOCK) {
            self.check(piece)?;
            self.done += piece.len() as u64;
        }
        if let Some(out) = &mut self.out {
            out.write_all(from)?;
        }
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: fn() -> Deadline = || Deadline::after(None);

    fn place() -> Place {
        Place { card: "mock:1".to_owned(), transfer: 2, start: 1000, address: CardAddr::new(0x100) }
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
    fn a_random_stream_is_the_same_however_it_is_cut() {
        let source = random(3 * BLOCK as u64 + 7);
        let whole = all(&source);
        assert_eq!(whole.len() as u64, source.length());
        let mut reader = source.open(NEVER()).unwrap();
        let mut at = 0;
        for size in (1..).map(|n| n * 37 % 5000 + 1) {
            let mut piece = vec![0; size.min(whole.len() - at)];
            reader.read_exact(&mut piece).unwrap();
            assert_eq!(piece, whole[at..at + piece.len()]);
            at += piece.len();
            if at == whole.len() {
                break;
            }
        }
        assert_ne!(whole, all(&Source::Random { seed: 6, length: source.length() }));
    }

    #[test]
    fn the_first_differing_byte_is_named() {
        let source = random(100_000);
        let mut bytes = all(&source);
        bytes[70_000] ^= 1;
        bytes[80_000] ^= 1;
        let mut expected = source.open(NEVER()).unwrap();
        let mut sink = Compare::new(&mut expected, None, place());
        sink.write_all(&bytes[..50_000]).unwrap();
        let error = sink.write_all(&bytes[50_000..]).unwrap_err().downcast::<CliError>().unwrap();
        let CliError::Mismatch { offset, transfer, address, .. } = error else { panic!("{error}") };
        assert_eq!((offset, transfer, address), (71_000, 2, CardAddr::new(0x100 + 70_000)));
    }

    #[test]
    fn what_agrees_is_written_and_a_part_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let source = random(50_000);
        let bytes = all(&source);
        let mut out = OutFile::create(&path, None).unwrap();
        let mut expected = source.open(NEVER()).unwrap();
        Compare::new(&mut expected, Some(&mut out), place()).write_all(&bytes).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        drop(out);
        assert!(!path.exists());
        OutFile::create(&path, None).unwrap().keep();
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_changes_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in");
        fs::write(&path, [7; 100]).unwrap();
        let source = Source::file(&path).unwrap();
        source.check_unchanged().unwrap();
        fs::write(&path, [7; 50]).unwrap();
        assert!(source.check_unchanged().unwrap_err().to_string().contains("50 bytes now"));
        let mut expected = source.open(NEVER()).unwrap();
        let error = Compare::new(&mut expected, None, place()).write_all(&[7; 100]).unwrap_err();
        assert!(error.to_string().contains("changed"), "{error}");
    }

    #[test]
    fn only_regular_files_are_sources_and_no_file_is_both_ends() {
        let dir = tempfile::tempdir().unwrap();
        let error = Source::file(dir.path()).unwrap_err();
        assert!(error.to_string().contains("directory"), "{error}");
        assert!(Source::file(Path::new("/dev/null")).unwrap_err().to_string().contains("device"));
        let path = dir.path().join("in");
        fs::write(&path, "content").unwrap();
        let source = Source::file(&path).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(OutFile::create(&link, Some(&source)).unwrap_err().exit_status(), 2);
        assert_eq!(fs::read(&path).unwrap(), b"content");
    }
}
