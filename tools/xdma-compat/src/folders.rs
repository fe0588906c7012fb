//! Lists of the folder of device files, and of the folders of links (`getdents64(2)`).

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::fs::{AtFlags, CWD, SeekFrom};
use rustix::io::Errno;

use crate::device::Device;
use crate::files::{Inode, Object, duplicate};
use crate::listener::{Answer, Call, last_error};
use crate::node::{DeviceFile, Folder};
use crate::process;
use crate::server::Supervisor;

/// Largest part of a folder that is read at once.
const MAX_BYTES: usize = 64 << 10;
/// Room that must remain for the kernel's first entry: the longest name.
const ENTRY: usize = 280;

impl Supervisor {
    /// `getdents64`. The device files come first, with the first entries of their folder.
    pub(crate) fn list(&self, call: &Call, descriptor: u64, address: u64, size: u64) -> Answer {
        let number = u32::try_from(descriptor & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let inode = match Inode::at(CWD, format!("/proc/{}/fd/{number}", call.thread), AtFlags::empty()) {
            Ok(inode) => inode,
            Err(error) => return self.unreadable(call, error),
        };
        let object = self.files.of_inode(inode);
        if object.is_none() && !self.view.is_dev(call.thread, inode) {
            return Answer::Continue;
        }
        let state = process::descriptor(call.thread, number);
        if object.zip(state).is_some_and(|(object, (_, flags))| object.is_name(flags)) {
            return Answer::Failure(Errno::BADF);
        }
        let size = usize::try_from(size & u64::from(u32::MAX)).unwrap_or(0).min(MAX_BYTES);
        let is_begin = matches!(state, Some((0, _)));
        let result = match object {
            Some(Object::File(_)) => Err(Errno::NOTDIR),
            Some(Object::Folder(_)) if !is_begin => Ok(Vec::new()),
            Some(Object::Folder(folder)) => self.list_folder(call, folder, descriptor, size),
            None if !is_begin => return Answer::Continue,
            None => self.list_devices(call, descriptor, size),
        };
        let result = result.and_then(|bytes| {
            self.memory(call).write(address, &bytes)?;
            Ok(bytes.len() as u64)
        });
        result.into()
    }

    fn list_folder(
        &self,
        call: &Call,
        folder: Folder,
        descriptor: u64,
        size: usize,
    ) -> Result<Vec<u8>, Errno> {
        let mut list = Entries::default();
        list.add(".", libc::DT_DIR);
        list.add("..", libc::DT_DIR);
        match folder {
            Folder::Cards => {
                (0..self.devices.len()).for_each(|card| list.add(&format!("card{card}"), libc::DT_DIR))
            }
            Folder::Card(card) => {
                files(&self.devices, card).for_each(|file| list.add(&file.link(), libc::DT_LNK))
            }
        }
        if list.0.len() > size {
            return Err(Errno::INVAL);
        }
        // The position says that all was read.
        rustix::fs::seek(duplicate(call.thread, descriptor)?, SeekFrom::Start(1))?;
        Ok(list.0)
    }

    fn list_devices(&self, call: &Call, descriptor: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let folder = duplicate(call.thread, descriptor)?;
        let mut list = Entries::default();
        let is_new = |name: &str| rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_err();
        if is_new(Folder::NAME) {
            list.add(Folder::NAME, libc::DT_DIR);
        }
        for card in 0..self.devices.len() {
            for name in files(&self.devices, card).map(|file| file.to_string()).filter(|name| is_new(name)) {
                list.add(&name, libc::DT_CHR);
            }
        }
        let room = size.checked_sub(list.0.len()).filter(|room| *room >= ENTRY).ok_or(Errno::INVAL)?;
        list.0.extend(read(&folder, room)?);
        Ok(list.0)
    }
}

/// Device files of a card.
fn files(devices: &[Device], card: usize) -> impl Iterator<Item = DeviceFile> + '_ {
    let nodes = devices.get(card).map(Device::nodes);
    nodes.into_iter().flatten().map(move |node| DeviceFile { card, node })
}

/// Entries as the kernel lists them (`struct linux_dirent64`).
#[derive(Debug, Default)]
struct Entries(Vec<u8>);

impl Entries {
    fn add(&mut self, name: &str, kind: u8) {
        let length = (19 + name.len() + 1).next_multiple_of(8);
        let number = self.0.len() as u64 + 1;
        let mut entry = vec![0; length];
        crate::layout::put(&mut entry, 0, &number.to_ne_bytes());
        crate::layout::put(&mut entry, 16, &u16::try_from(length).unwrap_or(0).to_ne_bytes());
        crate::layout::put(&mut entry, 18, &[kind]);
        crate::layout::put(&mut entry, 19, name.as_bytes());
        self.0.extend(entry);
    }
}

/// Reads entries of a folder.
fn read(folder: &OwnedFd, room: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0_u8; room];
    // SAFETY: the kernel writes at most as many bytes as the buffer has.
    let result = unsafe {
        libc::syscall(libc::SYS_getdents64, folder.as_fd().as_raw_fd(), bytes.as_mut_ptr(), bytes.len())
    };
    bytes.truncate(usize::try_from(result).map_err(|_| last_error())?);
    Ok(bytes)
}
