//! An archive that the kernel unpacks as its first file system: the "newc" format of cpio.
//!
//! Layout from the kernel's Documentation/driver-api/early-userspace/buffer-format.rst: a header of 110 ASCII bytes (a magic
//! number and thirteen fields of eight hexadecimal digits), the name with its NUL, padding to four bytes, the content,
//! padding to four bytes; the last member is named `TRAILER!!!`.

/// An archive in the making. Everything belongs to root and has no date: the same members give the same bytes.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    members: u32,
}

/// A member that the format cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} has {bytes} bytes; a member of the guest's first file system may have 4 GiB")]
pub(crate) struct TooLong {
    name: String,
    bytes: usize,
}

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const TRAILER: &str = "TRAILER!!!";

impl Archive {
    /// A directory; it must come before what lies in it.
    pub(crate) fn directory(&mut self, path: &str) -> Result<(), TooLong> {
        self.member(path, DIRECTORY | 0o755, &[])
    }

    /// A file with its permission bits.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<(), TooLong> {
        self.member(path, FILE | mode, content)
    }

    /// The archive.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, TooLong> {
        self.member(TRAILER, 0, &[])?;
        Ok(self.bytes)
    }

    fn member(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<(), TooLong> {
        let too_long = |bytes| TooLong { name: name.to_owned(), bytes };
        let size = u32::try_from(content.len()).map_err(|_| too_long(content.len()))?;
        let name_size = u32::try_from(name.len() + 1).map_err(|_| too_long(name.len()))?;
        self.members += 1;
        // Inode, mode, uid, gid, links, time, size, device (major, minor), device of a node (major, minor), length of the
        // name, checksum (not in this variant). Members with one inode would be hard links.
        let fields = [self.members, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        let length = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(length, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_layout_is_the_kernels() {
        let mut archive = Archive::default();
        archive.file("init", 0o755, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        let header = concat!(
            "070701", "00000001", "000081ed", "00000000", "00000000", "00000001", "00000000", "00000005",
            "00000000", "00000000", "00000000", "00000000", "00000005", "00000000", "init\0",
        );
        // 110 + 5 bytes: one of padding.
        assert_eq!(bytes[..116], *[header.as_bytes(), b"\0"].concat());
        assert_eq!(bytes[116..124], *b"hello\0\0\0");
        assert_eq!(bytes[124..130], *b"070701");
        assert!(bytes.len().is_multiple_of(4));
        assert!(bytes[124..].windows(11).any(|window| window == b"TRAILER!!!\0"));
    }

    #[test]
    fn another_program_reads_it() {
        let mut archive = Archive::default();
        archive.directory("bin").unwrap();
        archive.file("bin/one", 0o644, &[0xa5; 4097]).unwrap();
        archive.file("bin/two", 0o755, b"x").unwrap();
        let bytes = archive.finish().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let Ok(mut cpio) = Command::new("cpio")
            .args(["--extract", "--quiet", "--make-directories"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .spawn()
        else {
            // The layout above is the test; this is a second opinion where the program is there.
            return;
        };
        cpio.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(cpio.wait().unwrap().success());
        assert_eq!(std::fs::read(folder.path().join("bin/one")).unwrap(), [0xa5; 4097]);
        assert_eq!(std::fs::read(folder.path().join("bin/two")).unwrap(), b"x");
    }
}
