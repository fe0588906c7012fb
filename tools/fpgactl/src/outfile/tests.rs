use std::os::unix::fs::symlink;

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn out_file_dropped_keeps_old_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    for old in [None, Some("old")] {
        if let Some(old) = old {
            fs::write(&path, old).unwrap();
        }
        let mut out = OutFile::create(&path, Deadline::after(None)).unwrap();
        out.write_all(b"new").unwrap();
        let there = names(folder.path());
        let part = there.iter().find(|name| name.ends_with(SUFFIX)).unwrap();
        assert!(part.starts_with(".out."), "{part}");
        drop(out);
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), old);
        assert_eq!(names(folder.path()).len(), usize::from(old.is_some()));
    }
}

#[test]
fn out_file_committed_replaces_content_and_keeps_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    OutFile::write_whole(&path, b"first", Deadline::after(None)).unwrap();
    let umask_mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let plain = folder.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_eq!(umask_mode, fs::metadata(&plain).unwrap().permissions().mode() & 0o777);
    for mode in [0o600, 0o751, 0o644] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        OutFile::write_whole(&path, b"second", Deadline::after(None)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        assert_eq!(fs::read(&path).unwrap(), b"second");
    }
    assert_eq!(names(folder.path()), ["out", "plain"]);
}

#[test]
fn out_file_through_link_writes_target() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("target"), "old").unwrap();
    let link = folder.path().join("link");
    symlink("second", &link).unwrap();
    symlink("inner/target", folder.path().join("second")).unwrap();
    let mut out = OutFile::create(&link, Deadline::after(None)).unwrap();
    out.write_all(b"new").unwrap();
    assert_eq!(names(&inner).len(), 2, "the temporary file is beside the target");
    drop(out);
    assert_eq!(fs::read(inner.join("target")).unwrap(), b"old");
    OutFile::write_whole(&link, b"new", Deadline::after(None)).unwrap();
    assert_eq!(fs::read(inner.join("target")).unwrap(), b"new");
    assert!(link.is_symlink());
    // A link to a missing file, and one to itself.
    symlink("inner/made", folder.path().join("dangling")).unwrap();
    OutFile::write_whole(&folder.path().join("dangling"), b"made", Deadline::after(None)).unwrap();
    assert_eq!(fs::read(inner.join("made")).unwrap(), b"made");
    symlink("loop", folder.path().join("loop")).unwrap();
    assert!(OutFile::create(&folder.path().join("loop"), Deadline::after(None)).is_err());
}

#[test]
fn out_file_of_device_or_pipe_is_written_directly() {
    OutFile::write_whole(Path::new("/dev/null"), b"bytes", Deadline::after(None)).unwrap();
    assert!(Path::new("/dev/null").exists());
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let reading = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    OutFile::write_whole(&pipe, b"bytes", Deadline::after(None)).unwrap();
    assert_eq!(reading.join().unwrap(), b"bytes");
    assert_eq!(names(folder.path()), ["pipe"]);
}

#[test]
fn out_file_invalid_target_is_refused_with_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let missing = path.join("missing/out");
    let error = OutFile::create(&missing, Deadline::after(None)).unwrap_err().in_one_line();
    assert!(
        error.contains("missing/out") && error.contains("does not exist") && error.contains("mkdir -p"),
        "{error}"
    );
    for name in [path.to_owned(), path.join("new/"), PathBuf::new(), PathBuf::from("..")] {
        assert!(OutFile::create(&name, Deadline::after(None)).is_err(), "{name:?}");
    }
    let first = OutFile::create(&path.join("out"), Deadline::after(None)).unwrap();
    symlink("out", path.join("link")).unwrap();
    // The link's target does not exist yet, but is claimed.
    let error = OutFile::create(&path.join("link"), Deadline::after(None)).unwrap_err();
    assert_eq!(error.exit_status(), 2, "{error}");
    drop(first);
    OutFile::write_whole(&path.join("link"), b"", Deadline::after(None)).unwrap();
    let long = path.join("n".repeat(255));
    OutFile::write_whole(&long, b"long", Deadline::after(None)).unwrap();
    assert_eq!(fs::read(&long).unwrap(), b"long");
}

#[test]
fn out_file_target_becoming_folder_keeps_new_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let mut out = OutFile::create(&path, Deadline::after(None)).unwrap();
    out.write_all(b"new").unwrap();
    fs::create_dir(&path).unwrap();
    let error = out.commit().unwrap_err();
    let temporary = error.help().and_then(|help| help.strip_prefix("move the new content from "));
    assert_eq!(fs::read(temporary.unwrap()).unwrap(), b"new");
}
